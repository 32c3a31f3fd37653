"""Claims about the lock that `make` installs from: exact versions, by hashes, that follow from pyproject.toml."""

import re
from pathlib import Path

import pytest

from tests.lock import EXTRAS, LOCKS, ROOT, outdated

PROJECT = ROOT / "pyproject.toml"
PINNED = re.compile(r"([a-z0-9][a-z0-9.-]*(?:\[[a-z0-9,-]+\])?)==([^ ;]+)(?: ; (.+))?")


def entries(name: str) -> dict[tuple[str, str], str]:
    """The versions in a file of the lock, by distribution and marker. Each has a hash, or this fails."""
    text = (LOCKS / f"{name}.txt").read_text().partition("\n")[2]
    found = {}
    for entry in text.replace(" \\\n", " ").splitlines():
        pinned, *hashes = entry.split("    --hash=sha256:")
        match = PINNED.fullmatch(pinned.strip())
        assert match, pinned
        assert hashes
        assert all(re.fullmatch("[0-9a-f]{64}", each.strip()) for each in hashes), pinned
        found[match[1], match[3] or ""] = match[2]
    return found


@pytest.mark.parametrize("name", EXTRAS)
def test_all_is_pinned_by_hashes_and_names_no_index(name: str) -> None:
    """And the versions of all files are the same, so one environment can have them all."""
    found, all_ = entries(name), entries("dev")
    assert "://" not in (LOCKS / f"{name}.txt").read_text()
    assert {"hatchling", "editables", "aiokafka"} <= {distribution for distribution, _ in found}
    assert all(all_.get(each, version) == version for each, version in found.items())
    assert name != "demo" or found.keys() < all_.keys()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"aiokafka>=0.14,<0.15"', '"aiokafka>=0.13,<0.15"'),
        ('"pytest>=8.3",', ""),
        ('requires = ["hatchling>=1.27"]', 'requires = ["hatchling>=1.28"]'),
        ('">=3.11,<3.15"', '">=3.11,<3.16"'),
    ],
    ids=["a dependency", "an extra's", "the build's", "the Pythons"],
)
def test_a_lock_that_does_not_follow_is_noticed(tmp_path: Path, old: str, new: str) -> None:
    """Any change of what a lock is made of; and a file that is missing."""
    assert outdated() == []
    project = tmp_path / "pyproject.toml"
    text = PROJECT.read_text()
    assert text.count(old) == 1
    project.write_text(text.replace(old, new))
    every = [f"{name}.txt" for name in EXTRAS]
    assert outdated(project=project) == outdated(tmp_path) == every


def test_other_tables_do_not_matter(tmp_path: Path) -> None:
    """A line of mypy's changes no version."""
    project = tmp_path / "pyproject.toml"
    project.write_text(PROJECT.read_text().replace("strict = true", "strict = false"))
    assert outdated(project=project) == []
