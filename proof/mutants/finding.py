"""Where a test stands, by its name: who moves it touches no mutant."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests", "proof")
_DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)


def is_quick(test: str) -> bool:
    """Whether it stands in tests/, which `make test` runs."""
    return node_id(test).startswith("tests/")


def node_id(test: str) -> str:
    """What pytest calls a test, from the root of the repository. LookupError unless one function has the name."""
    found = _files().get(test.partition("[")[0], [])
    if len(found) != 1:
        raise LookupError(
            f"{test} stands in {len(found)} files of {' and '.join(FOLDERS)}; it must be one"
        )
    return f"{found[0].relative_to(ROOT)}::{test}"


@cache
def _files() -> dict[str, list[Path]]:
    """By the name of a test, the files that define it at their outermost level."""
    files: dict[str, list[Path]] = {}
    for path in (path for name in FOLDERS for path in (ROOT / name).rglob("test_*.py")):
        for name in _DEFINED.findall(path.read_text("utf-8")):
            files.setdefault(name, []).append(path)
    return files
