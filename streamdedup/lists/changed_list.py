"""A list with the single changes made since its file was built: what a worker with a control topic decides by."""

from dataclasses import dataclass

import numpy as np

from streamdedup.events import Column
from streamdedup.filters.base import Mask
from streamdedup.keys.hashing import Digests
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.matching import Entry, Source
from streamdedup.lists.overlay import ADDED, REMOVED, Overlay
from streamdedup.rules.lists import Cause, Causes, Match, Matches


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
    def entries(self) -> int:
        """How many entries its file has."""
        return self.base.entries

    @property
    def changes(self) -> int:
        """How many keys have single changes."""
        return len(self.overlay)

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

    def removed(self, keys: Column, digests: Digests) -> Mask:
        """Return which of `keys` a single change has removed, or a domain of theirs: (n,)."""
        found = self.overlay.look_up(digests) == REMOVED
        if len(self.overlay) and self.base.facts.normalizing.knows_domains:
            rows, asked = self.base.candidates(keys)
            found[rows[self.overlay.look_up(self.base.hash.of_column(asked)) == REMOVED]] = True
        return np.asarray(found)

    def source_of(self, entry: Entry) -> Source:
        """Return what has `entry`. A change wins over the file."""
        change = self.overlay.look_up(self.base.hash.digests([entry.key]))[0]
        if change == ADDED:
            return "change"
        return "removed" if change == REMOVED else self.base.source_of(entry)

    def causes(self, keys: Column, digests: Digests, matches: Matches) -> Causes:
        """Return why keys match, as `Matcher.causes` does: of several domains that were added, by the longest."""
        if not len(self.overlay):
            return self.base.causes(keys, digests, matches)
        digests, by_domain = digests.copy(), np.flatnonzero(matches == Match.DOMAIN)
        added = (self.overlay.look_up(digests) == ADDED) & (matches == Match.ADDRESS)
        rows, asked = self.base.candidates(keys.take(by_domain))
        of_domains = self.base.hash.of_column(asked)
        there = np.flatnonzero(self.overlay.look_up(of_domains) == ADDED)[::-1]
        at = by_domain[
            rows[there]
        ]  # the last one stays: of a key's domains the first, which is the longest
        added[at], digests[at] = True, of_domains[there]
        numbers, texts = self.overlay.reasons
        each, which = np.unique(
            np.where(added, numbers.numbers(digests).astype(np.int64), -1), return_inverse=True
        )
        causes = [Cause("file") if n < 0 else Cause("change", texts[n]) for n in each.tolist()]
        return Causes(which, causes)
