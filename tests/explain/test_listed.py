"""Claims about what `explain` says of a key that is on a list."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from streamdedup.events import Column
from streamdedup.explain.listed import Listed, listed
from streamdedup.keys.hashing import MURMUR3, Digests
from streamdedup.lists import KeyList
from streamdedup.lists.changed_list import ChangedList
from streamdedup.lists.overlay import ADDED, Changes
from streamdedup.rules.lists import Cause, Causes, Lists, Match, Matches
from tests.lists.tools import PROVIDER, built


@dataclass
class Counted:
    """A list that counts how often it is asked for each key, and for its cause."""

    asked: ChangedList | KeyList
    is_mapped: bool = False
    matched: list[bytes | None] = field(default_factory=list)
    explained: list[bytes | None] = field(default_factory=list)

    @property
    def name(self) -> str:
        """That of the list."""
        return self.asked.name

    @property
    def version(self) -> str:
        """That of the list."""
        return self.asked.version

    def match(self, keys: Column, digests: Digests) -> Matches:
        """As the list does."""
        self.matched += [keys[row] for row in range(len(keys))]
        return self.asked.match(keys, digests)

    def causes(self, keys: Column, digests: Digests, matches: Matches) -> Causes:
        """As the list does."""
        self.explained += [keys[row] for row in range(len(keys))]
        return self.asked.causes(keys, digests, matches)


def changed(directory: Path) -> ChangedList:
    """Two entries of a file, and a single change."""
    held = built(directory, ["file@x.example", "@domain.example"], normalizing=PROVIDER)
    changes = Changes()
    changes.apply(MURMUR3.digests(["added@x.example"]), [ADDED], [0], 0, ["why"])
    return ChangedList(held, changes.overlay(), 1)


KEYS = [b"added@x.example", b"new@x.example", b"a@domain.example", b"file@x.example"]


def test_each_key_is_looked_up_once(tmp_path: Path) -> None:
    """Blocked, exempt or neither; an exempt one has its match and its cause all the same."""
    (tmp_path / "allow").mkdir()
    allow = built(tmp_path / "allow", ["file@x.example"], normalizing=PROVIDER)
    block = Counted(changed(tmp_path))
    found = listed(Lists(allow, block), Column.of(KEYS))
    of = block.name, block.version
    assert found == {
        0: Listed(*of, Match.ADDRESS, exempt=False, cause=Cause("change", "why")),
        2: Listed(*of, Match.DOMAIN, exempt=False, cause=Cause("file")),
        3: Listed(*of, Match.ADDRESS, exempt=True, cause=Cause("file")),
    }
    assert Counter(block.matched) == Counter(KEYS)
    assert Counter(block.explained) == Counter(KEYS[row] for row in found)


def test_a_key_on_no_list_is_not_named(tmp_path: Path) -> None:
    """Nor if there is no key, or no block list."""
    block = changed(tmp_path)
    new = Column.of(KEYS[1:2])
    assert not listed(Lists(None, block), new)
    assert not listed(Lists(None, block), new.take(np.zeros(0, dtype=np.int64)))
    assert not listed(Lists(block, None), new)
