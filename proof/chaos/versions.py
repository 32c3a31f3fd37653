"""An older version of the package, taken from the repository's history, whose workers run in a round beside today's.

Its sources and its compiled kernels have a directory of their own, so neither version runs what belongs to the other.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "streamdedup"
NAMED_SINCE = (
    f"{PACKAGE}/settings/meaning.py"  # versions without it share no group with those that have it
)
COMPILE_S = 900.0


@dataclass(frozen=True)
class OldVersion:
    """The package as of `commit`, with its `sources` and its `cache` of kernels."""

    commit: str
    sources: Path
    cache: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make a `python -m streamdedup` run this version, whatever the current directory is."""
        return {
            "PYTHONPATH": str(self.sources),
            "PYTHONSAFEPATH": "1",
            "STREAMDEDUP_CACHE": str(self.cache),
        }


def commit_of(name: str) -> str:
    """Return the short name of the commit that `name` means.

    ValueError if the repository has none, or if its workers share no group with today's.
    """
    found = _git(
        "rev-parse", "--verify", "--quiet", "--short", "--end-of-options", f"{name}^{{commit}}"
    )
    if found.returncode:
        raise ValueError(f"{name}: a commit of this repository is needed, or a name of one")
    commit = found.stdout.decode().strip()
    if not _git("ls-tree", "--name-only", commit, NAMED_SINCE).stdout:
        raise ValueError(f"{name}: its workers join as `sticky`, and share no group with today's")
    return commit


def take_out(commit: str, directory: Path) -> OldVersion:
    """Extract the package as of `commit` below `directory`, unless it is there already.

    RuntimeError if Python would import the package from elsewhere; CalledProcessError if git or tar fails.
    """
    home = directory / f"old-{commit}"
    old = OldVersion(commit, home / "sources", home / "cache")
    if not old.sources.exists():
        part = home / "part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        archive = _git("archive", "--format=tar", commit, PACKAGE)
        archive.check_returncode()
        subprocess.run(["tar", "-xC", str(part)], input=archive.stdout, check=True)
        part.rename(old.sources)
    imported = _python(old.environment, "-c", f"import {PACKAGE}; print({PACKAGE}.__file__)")
    if not Path(imported.strip()).is_relative_to(old.sources):
        raise RuntimeError(f"{commit} was to be imported from {old.sources}, not from {imported}")
    return old


def compile_kernels(old: OldVersion) -> None:
    """Compile what its workers need, so that the first of them is as quick as the others."""
    _python(old.environment, "-m", PACKAGE, "compile")


def _python(environment: Mapping[str, str], *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        timeout=COMPILE_S,
        check=True,
    ).stdout


def _git(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["git", "-C", str(ROOT), *arguments], stdout=subprocess.PIPE, check=False)
