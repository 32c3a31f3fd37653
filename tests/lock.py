"""The lock: exact versions, with hashes, of all that `make` installs, on each Python and platform that we promise.

`python -m tests.lock` compares it with pyproject.toml, offline; `python -m tests.lock write` makes it anew, with the
newest versions, and is `make lock`, which installs the tool that it calls, uv.
"""

import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "requirements"
# What each file has beside the dependencies that are always installed. All agree, so one environment can have all.
EXTRAS = {
    "dev": ("demo", "dev", "protobuf", "scrapy"),
    "demo": ("demo",),
    "bench": ("bench",),
    "docs": ("docs",),
}
FOR_EDITABLE = "editables~=0.5"  # hatchling asks for it when it installs the package as it stands in the checkout
UV = (
    *("uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"),
    *("--generate-hashes", "--no-emit-index-url", "--no-annotate", "--no-header"),
)


def tables(project: Path = ROOT / "pyproject.toml") -> dict[str, Any]:
    """Return what decides which distributions are installed: the tables of `project` that a lock is made of."""
    read = tomllib.loads(project.read_text("utf-8"))
    names = ("requires-python", "dependencies", "optional-dependencies")
    return {"build": read["build-system"]["requires"]} | {
        name: read["project"][name] for name in names
    }


def head(project: Path = ROOT / "pyproject.toml") -> str:
    """Return the first line of each file of the lock: a hash of the tables that it was made of."""
    text = json.dumps(tables(project), sort_keys=True)
    return f"# make lock; the tables of pyproject.toml: {hashlib.sha256(text.encode()).hexdigest()}"


def outdated(directory: Path = LOCKS, project: Path = ROOT / "pyproject.toml") -> list[str]:
    """Return the names of files in `directory` that are missing, or were made of other tables."""
    wanted = head(project)
    paths = [directory / f"{name}.txt" for name in EXTRAS]
    return [
        path.name
        for path in paths
        if not path.exists() or path.read_text("utf-8").partition("\n")[0] != wanted
    ]


def write(directory: Path = LOCKS) -> None:
    """Make all files of the lock in `directory`. CalledProcessError if uv finds no versions that fit together."""
    build = "\n".join([*tables()["build"], FOR_EDITABLE])
    with TemporaryDirectory() as scratch:
        union = Path(scratch) / "union.txt"
        union.write_text(
            _compiled(build, sorted({each for all_ in EXTRAS.values() for each in all_}))
        )
        for name, extras in EXTRAS.items():
            locked = _compiled(build, extras, "--constraints", str(union))
            (directory / f"{name}.txt").write_text(f"{head()}\n{locked}", "utf-8")


def _compiled(build: str, extras: Sequence[str], *options: str) -> str:
    wanted = [option for extra in extras for option in ("--extra", extra)]
    command = (*UV, *wanted, *options, "pyproject.toml", "-")
    done = subprocess.run(
        command, cwd=ROOT, input=build, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        write()
    elif names := outdated():
        sys.exit(
            f"{', '.join(names)} in requirements/ do not follow from the dependencies in pyproject.toml; run make lock"
        )
