"""Claims about the cause of a match: the list's file, or the single change that blocks a key, and its reason."""

from pathlib import Path

import pytest

from streamdedup.events import Column
from streamdedup.keys.hashing import MURMUR3
from streamdedup.lists.changed_list import ChangedList
from streamdedup.lists.exact_store import ExactStore, place_of
from streamdedup.lists.overlay import ADDED, NO_CHANGES, REMOVED, Changes
from streamdedup.lists.verified_list import VerifiedList
from streamdedup.rules.lists import Causes
from tests.lists.tools import PROVIDER, built

ENTRIES = [
    "file@x.example",
    "both@x.example",
    "removed@x.example",
    "@file.example",
    ".tree.example",
]
CHANGES = {
    "both@x.example": (ADDED, "in both"),
    "added@x.example": (ADDED, "an address"),
    "silent@x.example": (ADDED, ""),
    "removed@x.example": (REMOVED, "not of what is blocked"),
    "long.short.example": (ADDED, "the longer"),  # as a list holds `.long.short.example`
    "short.example": (ADDED, "the shorter"),
    "@file.example": (ADDED, "the domain in both"),
    "b.tree.example": (ADDED, "below the tree of the file"),
}
FILE = ("file", "")
EXPECTED = {
    "file@x.example": FILE,
    "both@x.example": ("change", "in both"),
    "added@x.example": ("change", "an address"),
    "silent@x.example": ("change", ""),
    "a@long.short.example": ("change", "the longer"),
    "a@b.short.example": ("change", "the shorter"),
    "a@file.example": ("change", "the domain in both"),
    "a@a.tree.example": FILE,
    "a@b.tree.example": ("change", "below the tree of the file"),
}


def shown(causes: Causes) -> list[tuple[str, str]]:
    """The cause of each match."""
    return [tuple(causes.each[which]) for which in causes.which.tolist()]


@pytest.mark.parametrize("is_verified", [False, True])
def test_each_match_has_its_cause(tmp_path: Path, is_verified: bool) -> None:
    """A change wins over the file; of several domains the longest that was added is named. So it is with a store."""
    listed = built(tmp_path, ENTRIES, normalizing=PROVIDER, kind="bloom", exact=True)
    changes = Changes()
    for key, (change, reason) in CHANGES.items():
        changes.apply(MURMUR3.digests([key]), [change], [0], 0, [reason])
    changed = ChangedList(listed, changes.overlay(), 7)
    assert listed.path is not None
    store = ExactStore.open(place_of(listed.path), listed)
    asked = VerifiedList(changed, store) if is_verified else changed
    keys = Column.of([key.encode() for key in EXPECTED])
    digests = MURMUR3.of_column(keys)
    matches = asked.match(keys, digests)
    assert matches.all()
    assert shown(asked.causes(keys, digests, matches)) == list(EXPECTED.values())
    unchanged = ChangedList(listed, NO_CHANGES, 0)
    assert set(shown(unchanged.causes(keys, digests, matches))) == {FILE}


def test_a_list_without_domains_has_causes_too(tmp_path: Path) -> None:
    """Its keys are taken as they are, whatever they look like."""
    listed = built(tmp_path, ["a@x", "b"])
    changes = Changes()
    changes.apply(MURMUR3.digests(["@x"]), [ADDED], [0], 0, ["key"])
    changed, keys = ChangedList(listed, changes.overlay(), 1), Column.of([b"a@x", b"@x", b"b"])
    digests = MURMUR3.of_column(keys)
    causes = changed.causes(keys, digests, changed.match(keys, digests))
    assert shown(causes) == [FILE, ("change", "key"), FILE]
