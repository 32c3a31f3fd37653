"""Claims about what waits for its commit: each digest once, in its order, in memory that follows what waits.

The model of the rule is a set of what was admitted and a list of what each transaction has.
"""

import random
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streamdedup.events import Verdict
from streamdedup.filters.base import Mask
from streamdedup.keys.hashing import Digests
from streamdedup.rules import pending
from streamdedup.rules.duplicates import Duplicates
from streamdedup.rules.pending import ROWS_MIN, PendingDigests
from tests.chosen import CHOSEN
from tests.filters.cases import as_digests, random_digests
from tests.rows import every

PASS, DUPLICATE = Verdict.PASS, Verdict.DUPLICATE
ROWS = 4

Pair = tuple[int, int]

# Words of few homes, the last slot among them, half of which no index tells apart; a digest of zeros is like any other.
firsts = st.sampled_from([0, 1, 1 << 32, 5 << 40, 2, (7 << 50) + 2, 0xFFFFFFFF, (1 << 64) - 1])
pairs = st.tuples(firsts, st.sampled_from([0, 1, 3 << 60, 1 << 32]))
batches = st.lists(pairs, max_size=14)


def pairs_in(digests: Digests) -> list[Pair]:
    """Their words."""
    return [(int(a), int(b)) for a, b in digests]


def judged(waiting: PendingDigests, digests: Digests, most: int = 1 << 40) -> list[int]:
    """The verdicts where no filter knows anything."""
    known = np.zeros(len(digests), dtype=np.bool_)
    return list(waiting.judge(digests, known, most).tolist())


def drained(waiting: PendingDigests) -> list[Pair]:
    """All that waits, in its order, until nothing does."""
    found = []
    while waiting:
        digests = waiting.first(3)
        found += pairs_in(digests)
        waiting.drop(len(digests))
    return found


class Listed:
    """A filter that is never wrong, and remembers in which order it was given its keys."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.added = capacity, list[Pair]()

    def __len__(self) -> int:
        return len(self.added)

    def contains_many(self, digests: Digests) -> Mask:
        """Which are there."""
        return np.array([pair in self.added for pair in pairs_in(digests)], dtype=np.bool_)

    def add_many(self, digests: Digests) -> Mask:
        """Add what is not there."""
        new = []
        for pair in pairs_in(digests):
            new.append(pair not in self.added)
            self.added += [pair] * new[-1]
        return np.array(new, dtype=np.bool_)


class Judging(RuleBasedStateMachine):
    """Batches, seals, commits, doubts and folds in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = cast("Any", Listed(24))
        self.rule = Duplicates(self.seen)
        self.rule._waiting = PendingDigests(ROWS)
        self.admitted: list[Pair] = []
        self.sealed: list[list[Pair]] = []
        self.open: list[Pair] = []

    @property
    def waiting(self) -> list[Pair]:
        """What waits, in its order."""
        return [*(pair for pairs in self.sealed for pair in pairs), *self.open]

    @rule(batch=batches, within_budget=st.booleans())
    def judge(self, batch: list[Pair], within_budget: bool) -> None:
        """A row passes where neither filter, nor what waits, nor an earlier row has it, up to the first too many."""
        expected = []
        room = self.seen.capacity - len(self.admitted) - len(self.waiting)
        for pair in batch:
            passes = pair not in self.admitted and pair not in self.waiting
            if passes and room <= 0 and within_budget:
                break
            room -= passes
            self.open += [pair] * passes
            expected.append(PASS if passes else DUPLICATE)
        digests, times = as_digests(batch), np.zeros(len(batch), dtype=np.int64)
        verdicts = self.rule.judge(digests, times, within_budget=within_budget)
        assert verdicts.dtype == np.uint8
        assert verdicts.tolist() == expected

    @rule()
    def seal(self) -> None:
        """A transaction ends here."""
        self.rule.seal()
        self.sealed.append(self.open)
        self.open = []

    @rule()
    def admit(self) -> None:
        """The first transaction is committed."""
        for _ in self.rule.admit():
            pass
        if not self.sealed:
            self.seal_ours()
        self.admitted += self.sealed.pop(0)

    def seal_ours(self) -> None:
        """As the rule does by itself."""
        self.sealed, self.open = [self.open], []

    @rule()
    def forget(self) -> None:
        """A doubt."""
        self.rule.forget()
        self.sealed, self.open = [], []

    @rule(batch=batches)
    def fold(self, batch: list[Pair]) -> None:
        """After a doubt, what others committed."""
        self.forget()
        for _ in self.rule.fold(as_digests(batch), np.zeros(len(batch), dtype=np.int64)):
            pass
        self.admitted += [pair for pair in dict.fromkeys(batch) if pair not in self.admitted]

    @invariant()
    def keys_are_admitted_in_the_order_they_passed(self) -> None:
        """So the same keys make the same table, live or folded."""
        assert self.seen.added == self.admitted

    @invariant()
    def the_room_is_what_is_left(self) -> None:
        """Capacity, less what is in and what waits."""
        assert self.rule.pending == len(self.waiting)
        assert self.rule.room == self.seen.capacity - len(self.admitted) - len(self.waiting)

    @invariant()
    def the_index_holds_what_waits_and_no_more(self) -> None:
        """One slot each, and at most half of the slots; no table but the newest is empty."""
        *older, newest = self.rule._waiting._tables
        for table in (*older, newest):
            assert np.count_nonzero(table.slots) == table.waiting <= len(table.slots) // 2
        assert all(table.waiting for table in older)


TestJudging: Any = Judging.TestCase
TestJudging.settings = settings(deadline=None, max_examples=80, stateful_step_count=40)


@pytest.mark.parametrize("count", [15, 16, 17, 2000])
def test_rows_that_all_want_one_slot(count: int) -> None:
    """Digests of the same low bits, which an index meets in one slot, are still told apart."""
    rows = [(i << 32, 7) for i in range(count)]
    waiting = PendingDigests()
    assert judged(waiting, as_digests(rows + rows)) == [PASS] * count + [DUPLICATE] * count
    assert drained(waiting) == rows


def test_judging_leaves_the_answers_alone() -> None:
    """Also where an older table is asked: what the filter said is the caller's."""
    waiting, digests, known = PendingDigests(1), random_digests(44, 3), np.zeros(3, dtype=np.bool_)
    judged(waiting, digests[:1])
    waiting.judge(digests, known, 3)
    assert len(waiting._tables) == 2
    assert not known.any()


# --- chosen digests ---


def probes_of(waiting: PendingDigests) -> int:
    """How many slots the additions of all that waits have looked at; the order in which they came does not matter."""
    total = 0
    for table in waiting._tables:
        taken = np.flatnonzero(table.slots)
        homes = (table.slots[taken] >> 32).astype(np.int64)
        total += int(((taken - homes) % len(table.slots) + 1).sum())
    return total


def test_chosen_digests_that_wait_take_no_more_work_than_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Digests that share their low bits, or lie on a grid, spread like any others: nobody can choose their homes."""
    module: Any = pending
    draw = module.drawn_words
    monkeypatch.setattr(module, "drawn_words", lambda: draw(random.Random(51).randbytes))

    def check(name: str) -> None:
        digests, waiting, at_random = CHOSEN[name], PendingDigests(), PendingDigests()
        assert set(judged(waiting, digests)) == {PASS}
        judged(at_random, random_digests(51, len(digests)))
        assert probes_of(waiting) < 1.2 * probes_of(at_random) < 2 * len(digests)
        assert drained(waiting) == pairs_in(digests)

    every(CHOSEN, check)


def test_the_places_of_two_tables_are_drawn_anew() -> None:
    """A larger table, the next one after a doubt, and those of another worker have secrets of their own."""
    digests = random_digests(52, 3 * ROWS_MIN)
    secrets = []
    for _ in range(2):
        waiting = PendingDigests()
        judged(waiting, digests[:1])
        judged(waiting, digests)
        secrets += [tuple(table.secret.tolist()) for table in waiting._tables]
        waiting.clear()
        secrets.append(tuple(waiting._tables[0].secret.tolist()))
    assert len(set(secrets)) == len(secrets) == 6
