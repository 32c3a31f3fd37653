"""Where a test stands, by its name: who moves it touches no mutant."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests", "proof")
# A class begins at the outermost level; a test, there or within one.
_DEFINED = re.compile(
    r"^(?:class (?P<group>\w+)|(?P<within>    )?(?:async )?def (?P<test>test_\w+)\()", re.MULTILINE
)


def is_quick(test: str) -> bool:
    """Whether it stands in tests/, which `make test` runs."""
    return node_id(test).startswith("tests/")


def node_id(test: str) -> str:
    """What pytest calls a test, from the root of the repository. LookupError unless one function has the name."""
    found = _tests().get(test.partition("[")[0], [])
    if len(found) != 1:
        raise LookupError(
            f"{test} stands in {len(found)} files of {' and '.join(FOLDERS)}; it must be one"
        )
    return f"{found[0]}::{test}"


@cache
def _tests() -> dict[str, list[str]]:
    """By the name of a test, where it stands: the file, and the class if it is in one."""
    places: dict[str, list[str]] = {}
    for path in (path for name in FOLDERS for path in (ROOT / name).rglob("test_*.py")):
        file = group = str(path.relative_to(ROOT))
        for found in _DEFINED.finditer(path.read_text("utf-8")):
            if found["group"]:
                group = f"{file}::{found['group']}"
            else:
                places.setdefault(found["test"], []).append(group if found["within"] else file)
    return places
