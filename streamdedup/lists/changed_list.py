"""A list with the single changes made since its file was built: what a worker with a control topic decides by."""

from dataclasses import dataclass

import numpy as np

from streamdedup.events import Column
from streamdedup.keys.hashing import Digests
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.overlay import ADDED, REMOVED, Overlay
from streamdedup.rules.lists import Match, Matches


@dataclass(frozen=True)
class ChangedList:
    """`overlay` over `base`. `position` is the offset of the control topic up to which the overlay has read it.

    A removed address passes even if its domain is on the list. The addresses of a removed domain pass, unless another
    entry holds them.
    """

    base: KeyList
    overlay: Overlay
    position: int

    @property
    def name(self) -> str:
        """The name of the list."""
        return self.base.name

    @property
    def version(self) -> str:
        """The version of the file, and how far the control topic was read. It is the same on every worker."""
        return f"{self.base.version}+{self.position}"

    @property
    def is_mapped(self) -> bool:
        """Whether the list's file is mapped."""
        return self.base.is_mapped

    def match(self, keys: Column, digests: Digests) -> Matches:
        """Return a `Match` for each of `keys`, (n,), as `Matcher.match` does. Single changes win over the file."""
        base, changes = self.base, self.overlay.look_up(digests)
        there = base.addresses.contains_many(digests) & (changes != REMOVED) | (changes == ADDED)
        matches: Matches = there.astype(np.uint8) * np.uint8(Match.ADDRESS)
        if not base.facts.normalizing.knows_domains:
            return matches
        rest = np.flatnonzero(~there & (changes != REMOVED))
        rows, asked = base.candidates(keys.take(rest))
        digests = base.hash.of_column(asked)
        changes = self.overlay.look_up(digests)
        there = changes == ADDED
        if base.domains is not None:
            there |= base.domains.contains_many(digests) & (changes != REMOVED)
        matches[rest[rows[there]]] = Match.DOMAIN
        return matches
