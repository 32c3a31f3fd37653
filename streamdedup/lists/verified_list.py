"""A list with its exact store behind it: what the list matches and the store has not, it matched wrongly, so it passes.

Single changes are exact, and are not asked for: they win, as without a store.
"""

from dataclasses import dataclass

import numpy as np

from streamdedup.events import Column
from streamdedup.filters.base import Filter
from streamdedup.keys.domains import candidates
from streamdedup.keys.hashing import Bytes, Digests
from streamdedup.lists.changed_list import ChangedList
from streamdedup.lists.exact_store import ExactStore
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.overlay import ADDED, NO_CHANGES, REMOVED, UNCHANGED, Overlay
from streamdedup.rules.listed import Answer, Answers, Match, Matches


@dataclass(frozen=True)
class VerifiedList:
    """`store` holds what the file of `listed` was built of. A `Verifier`: asking it waits for a disk."""

    listed: KeyList | ChangedList
    store: ExactStore

    @property
    def name(self) -> str:
        """As `Matcher.name`."""
        return self.listed.name

    @property
    def version(self) -> str:
        """As `Matcher.version`."""
        return self.listed.version

    @property
    def base(self) -> KeyList:
        """The list's file, without single changes."""
        return self.listed.base if isinstance(self.listed, ChangedList) else self.listed

    def match(self, keys: Column, digests: Digests) -> Matches:
        """As `Matcher.match`; never wrongly."""
        return self.verify(keys, digests)[0]

    def verify(self, keys: Column, digests: Digests) -> tuple[Matches, Answers]:
        """As `Verifier.verify`."""
        base, overlay = self.base, self._overlay
        told = overlay.look_up(digests)
        answers = self._answers(base.addresses, digests, told)
        there = (told == ADDED) | (answers == Answer.CONFIRMED)
        matches: Matches = there.astype(np.uint8) * np.uint8(Match.ADDRESS)
        if base.facts.normalizing.name != "email" or (base.domains is None and not len(overlay)):
            return matches, answers
        rest = np.flatnonzero(~there & (told != REMOVED))
        rows, asked = candidates(keys.take(rest))
        digests = base.hash.of_column(asked.buffer, asked.starts, asked.sizes)
        told = overlay.look_up(digests)
        of_domains = self._answers(base.domains, digests, told)
        there = (told == ADDED) | (of_domains == Answer.CONFIRMED)
        matches[rest[rows[there]]] = Match.DOMAIN
        answers[rest[rows[of_domains == Answer.FALSE_POSITIVE]]] = Answer.FALSE_POSITIVE
        return matches, answers

    def _answers(self, held: Filter | None, digests: Digests, told: Bytes) -> Answers:
        """An `Answer` for each of `digests`; what `held` matches is asked of the store."""
        answers: Answers = np.full(len(digests), Answer.ABSENT, dtype=np.uint8)
        answers[told != UNCHANGED] = Answer.UNASKED
        if held is not None:
            found = np.flatnonzero(held.contains_many(digests) & (told == UNCHANGED))
            answers[found] = np.where(
                self.store.holds(digests[found]), Answer.CONFIRMED, Answer.FALSE_POSITIVE
            )
        return answers

    @property
    def _overlay(self) -> Overlay:
        return self.listed.overlay if isinstance(self.listed, ChangedList) else NO_CHANGES
