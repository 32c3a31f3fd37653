"""A list with the changes that came since its file was built: what a worker with a control topic judges by."""

from dataclasses import dataclass

import numpy as np

from streamdedup.events import Column
from streamdedup.keys.hashing import Digests
from streamdedup.keys.normalizers.domains import candidates
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.overlay import ADDED, REMOVED, Overlay
from streamdedup.rules.lists import Match, Matches


@dataclass(frozen=True)
class ChangedList:
    """`overlay` over `base`; `position` is that of the control topic, from which the overlay follows.

    What is removed as an address passes, also where its domain is on the list; a domain that is removed passes, unless
    another entry holds the address.
    """

    base: KeyList
    overlay: Overlay
    position: int

    @property
    def name(self) -> str:
        """As `Matcher.name`."""
        return self.base.name

    @property
    def version(self) -> str:
        """That of the file, and how far the control topic was read: the same on each worker."""
        return f"{self.base.version}+{self.position}"

    def match(self, keys: Column, digests: Digests) -> Matches:
        """As `Matcher.match`."""
        base, told = self.base, self.overlay.look_up(digests)
        there = base.addresses.contains_many(digests) & (told != REMOVED) | (told == ADDED)
        matches: Matches = there.astype(np.uint8) * np.uint8(Match.ADDRESS)
        if base.facts.normalizing.name != "email":
            return matches
        rest = np.flatnonzero(~there & (told != REMOVED))
        rows, asked = candidates(keys.take(rest))
        digests = base.hash.of_column(asked)
        told = self.overlay.look_up(digests)
        there = told == ADDED
        if base.domains is not None:
            there |= base.domains.contains_many(digests) & (told != REMOVED)
        matches[rest[rows[there]]] = Match.DOMAIN
        return matches
