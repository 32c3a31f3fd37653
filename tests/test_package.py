"""Claims about what is in the package, and so in the wheel: all that git tracks, and every folder as a package."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_nothing_that_is_tracked_is_ignored() -> None:
    """The wheel and the linters leave out what git ignores: a tracked module must match no pattern of .gitignore."""
    command = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this is no checkout of git")
    assert done.stdout == ""


def test_every_folder_with_modules_is_a_package() -> None:
    """A folder without `__init__.py` is imported all the same, but import-linter does not see it."""
    package = ROOT / "streamdedup"
    folders = {path.parent for path in package.rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
