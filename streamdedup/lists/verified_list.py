"""A list with its exact store. A key that the list matches and the store does not hold is a false positive: it passes.

Single changes are exact, so the store is not asked about them. They win, as without a store.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from streamdedup.events import Column, Integers
from streamdedup.filters.base import Filter, Mask
from streamdedup.keys.hashing import Bytes, Digests
from streamdedup.lists.changed_list import ChangedList
from streamdedup.lists.exact_store import ExactStore
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.matching import Entry, Source
from streamdedup.lists.overlay import ADDED, NO_CHANGES, REMOVED, UNCHANGED, Overlay
from streamdedup.rules.lists import Answer, Answers, Causes, Match, Matches

_NO_ROWS: Integers = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class VerifiedList:
    """`store` holds the entries of the file of `listed`. It is a `Verifier`."""

    listed: KeyList | ChangedList
    store: ExactStore

    @property
    def name(self) -> str:
        """The name of the list."""
        return self.listed.name

    @property
    def version(self) -> str:
        """The version of the list."""
        return self.listed.version

    @property
    def entries(self) -> int:
        """How many entries the list's file has."""
        return self.listed.entries

    @property
    def changes(self) -> int | None:
        """How many keys have single changes; None if there is no control topic."""
        return self.listed.changes

    @property
    def is_mapped(self) -> bool:
        """Whether the list's file is mapped."""
        return self.listed.is_mapped

    @property
    def base(self) -> KeyList:
        """The list's file, without single changes."""
        return self.listed.base if isinstance(self.listed, ChangedList) else self.listed

    def match(self, keys: Column, digests: Digests) -> Matches:
        """Return a `Match` for each of `keys`, (n,), as `Matcher.match` does; never a false positive. Blocking."""
        return self.verify(keys, digests)[0]

    def causes(self, keys: Column, digests: Digests, matches: Matches) -> Causes:
        """Return why keys match: what the list says. The store was asked about the file's matches alone."""
        return self.listed.causes(keys, digests, matches)

    def removed(self, keys: Column, digests: Digests) -> Mask:
        """Return which of `keys` a single change has removed, or a domain of theirs: (n,)."""
        return self.listed.removed(keys, digests)

    def source_of(self, entry: Entry) -> Source:
        """Return what has `entry`; the file only if the store has it, too. Blocking."""
        found = self.listed.source_of(entry)
        is_false = found == "file" and not self.store.holds(self.base.hash.digests([entry.key]))[0]
        return "-" if is_false else found

    def verify(self, keys: Column, digests: Digests) -> tuple[Matches, Answers]:
        """Ask the list, then the store, about all `keys`. Return a `Match` and an `Answer` for each, (n,). Blocking."""
        return self.suspects(keys, digests).verify()

    def suspects(self, keys: Column, digests: Digests) -> "StoreSuspects":
        """Ask the list in memory, and return its matches. The store must be asked only about these."""
        base, overlay = self.base, self._overlay
        addresses = _Found.of(base.addresses, overlay, digests)
        rows, of_domains = _NO_ROWS, digests[:0]
        if base.facts.normalizing.knows_domains and (base.domains is not None or len(overlay)):
            rest = np.flatnonzero((addresses.changes != ADDED) & (addresses.changes != REMOVED))
            of_rest, asked = base.candidates(keys.take(rest))
            rows, of_domains = (
                rest[of_rest],
                base.hash.of_column(asked),
            )
        domains = _Found.of(base.domains, overlay, of_domains)
        return StoreSuspects(self.store, addresses, domains, rows)

    @property
    def _overlay(self) -> Overlay:
        return self.listed.overlay if isinstance(self.listed, ChangedList) else NO_CHANGES


@dataclass(frozen=True)
class _Found:
    """What single changes and a filter have for n digests.

    `changes` (n,) are the single changes. `rows` (k,) are the rows that the filter matches and no single change
    decides; `digests` (k, 2) are theirs.
    """

    changes: Bytes
    rows: Integers
    digests: Digests

    @classmethod
    def of(cls, held: Filter | None, overlay: Overlay, digests: Digests) -> Self:
        """Look up `digests` (n, 2) in `overlay`, and in `held`, the filter of the file's entries, if it has one."""
        changes = overlay.look_up(digests)
        rows = _NO_ROWS
        if held is not None:
            rows = np.flatnonzero(held.contains_many(digests) & (changes == UNCHANGED))
        return cls(changes, rows, digests[rows])

    def answers(self, there: Mask) -> Answers:
        """Return an `Answer` for each of the n digests. `there` (k,) is the store's answer for `rows`."""
        answers: Answers = np.full(len(self.changes), Answer.ABSENT, dtype=np.uint8)
        answers[self.changes != UNCHANGED] = Answer.UNASKED
        answers[self.rows] = np.where(there, Answer.CONFIRMED, Answer.FALSE_POSITIVE)
        return answers


@dataclass(frozen=True)
class StoreSuspects:
    """The `Suspects` of a `VerifiedList`: the keys that it matches, and the domains that it matches.

    Each domain belongs to the key at one of the rows `of_keys`. The domains of a matched key are looked up too, because
    that match may be false.
    """

    store: ExactStore
    keys: _Found
    domains: _Found
    of_keys: Integers

    def __len__(self) -> int:
        return len(self.keys.rows) + len(self.domains.rows)

    def verify(self) -> tuple[Matches, Answers]:
        """Ask the store. Return a `Match` and an `Answer` for each key, both (n,), uint8. Blocking."""
        there = self.store.holds(np.concatenate((self.keys.digests, self.domains.digests)))
        answers = self.keys.answers(there[: len(self.keys.rows)])
        of_domains = self.domains.answers(there[len(self.keys.rows) :])
        listed = (self.keys.changes == ADDED) | (answers == Answer.CONFIRMED)
        by_domain = (self.domains.changes == ADDED) | (of_domains == Answer.CONFIRMED)
        matches: Matches = np.zeros(len(answers), dtype=np.uint8)
        matches[self.of_keys[by_domain]] = Match.DOMAIN
        matches[listed] = Match.ADDRESS
        wrong = self.of_keys[of_domains == Answer.FALSE_POSITIVE]
        answers[wrong[~listed[wrong]]] = Answer.FALSE_POSITIVE
        return matches, answers
