"""The rule that keeps partitions of the input together in event time."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from streamdedup.events import Integers
from streamdedup.kafka.partitions import InputPartition
from streamdedup.repartition.skew import NO_TIME, Standing, Wait, heads_of, must_publish

NOW = 1_000_000
MAX_SKEW = 100
# Partitions of two inputs: the rule holds over all of them.
P = [InputPartition(topic, number) for topic in ("a", "b") for number in range(2)]


def times(timestamps: Sequence[int]) -> Integers:
    """Return the timestamps of a batch."""
    return np.array(timestamps, dtype=np.int64)


def wait_of(*heads: int) -> Wait:
    """A batch of partition 0."""
    return Wait(P[0], times(heads), MAX_SKEW)


@pytest.mark.parametrize(
    ("timestamps", "before", "heads"),
    [
        ([700, 500, 900], None, [500, 500, 900]),  # the smallest of what is left
        ([500, 10 * NOW, 600], None, [500, 600, 600]),  # one far in the future
        ([10 * NOW], None, [NOW]),
        ([600, 3], 500, [500, 500]),  # late by itself
        ([-1, 800], 500, [800, 800]),
        ([800, -1], 500, [800, 800]),
        ([-1, -1], 500, [500, 500]),
        ([-1], None, [NO_TIME]),
        ([], None, []),
    ],
)
def test_the_heads_of_a_batch(timestamps: list[int], before: int | None, heads: list[int]) -> None:
    """For each event the smallest time from it on, at most the present, and never less than before."""
    assert heads_of(times(timestamps), before, NOW).tolist() == heads


@pytest.mark.parametrize(
    ("other", "held"),
    [
        (Standing(0, 9, 900), False),  # at the limit
        (Standing(0, 9, 899), True),
        (Standing(9, 9, 0), False),  # at its end
        (Standing(9, 9, None), False),
        (Standing(0, 9, None), True),  # nothing is known of it yet
        (Standing(0, 9, NO_TIME), False),  # its events have no times
    ],
)
def test_a_partition_waits_for_one_that_is_behind(other: Standing, held: bool) -> None:
    """Those at their end, and those without times, hold back nobody."""
    standings = {P[0]: Standing(0, 9, 0), P[1]: other}
    assert wait_of(1000).waits_for(standings) == ((P[1],) if held else ())
    assert wait_of(1000).events(standings) == (0 if held else 1)


def test_a_batch_without_times_waits_for_nobody() -> None:
    """Events without times cannot be late."""
    standings = {P[1]: Standing(0, 9, None)}
    assert wait_of(NO_TIME).waits_for(standings) == ()
    assert wait_of(NO_TIME, NO_TIME).events(standings) == 2


def test_those_that_hold_back_are_named_slowest_first() -> None:
    """Those of which nothing is known come before all others."""
    standings = {P[1]: Standing(0, 9, 50), P[2]: Standing(0, 9, 20), P[3]: Standing(0, 9, None)}
    assert wait_of(1000).waits_for(standings) == (P[3], P[2], P[1])


def test_a_batch_is_cut_where_it_is_too_far_ahead() -> None:
    """A sparse partition holds weeks in one batch; what is not ahead goes on, and the rest as the slow one does."""
    wait = wait_of(10, 50, 110, 111, 300)
    assert wait.events({P[1]: Standing(0, 9, 10)}) == 3
    wait.passed(3)
    assert wait.head == 111
    assert wait.events({P[1]: Standing(0, 9, 10)}) == 0
    assert wait.events({P[1]: Standing(0, 9, 11)}) == 1
    assert wait.events({P[1]: Standing(9, 9, 11)}) == 2


def test_a_wait_ends_when_the_slow_one_has_copied_what_it_held() -> None:
    """However old what comes to it since may be."""
    wait = wait_of(1000, 5000)
    assert wait.waits_for({P[1]: Standing(0, 9, 0)}) == (P[1],)
    assert wait.waits_for({P[1]: Standing(8, 12, 0)}) == (P[1],)
    assert wait.waits_for({P[1]: Standing(9, 12, 0)}) == ()
    assert wait.events({P[1]: Standing(9, 12, 0)}) == 2
    assert wait.waits_for({P[1]: Standing(9, 12, 0), P[2]: Standing(0, 1, 0)}) == (P[2],)
    wait.passed(1)
    assert wait.waits_for({P[1]: Standing(9, 12, 0)}) == (P[1],)  # another wait


def test_a_head_is_published_once() -> None:
    """A head that is known already needs no commit."""
    assert must_publish(P[0], 5, {})
    assert must_publish(P[0], 5, {P[0]: Standing(0, 9, None)})
    assert must_publish(P[0], 5, {P[0]: Standing(0, 9, 4)})
    assert not must_publish(P[0], 5, {P[0]: Standing(0, 9, 5)})


@pytest.mark.parametrize("seed", range(20))
def test_all_is_read_and_no_copy_is_further_ahead_than_the_limit(seed: int) -> None:
    """Gaps, long batches and garbage: members act in any order, each on what is published alone."""
    chance = random.Random(seed)
    logs = [
        [
            times([chance.choice([-1, 0, 5 * NOW, chance.randrange(2000)]) for _ in range(3)])
            for _ in range(20)
        ]
        for _ in range(4)
    ]
    standings = {p: Standing(0, 3 * len(log), None) for p, log in zip(P, logs, strict=True)}
    waits: dict[InputPartition, Wait] = {}
    for _ in range(5000):
        number = chance.randrange(len(logs))
        p = P[number]
        mine = standings[p]
        if mine.offset == mine.end:
            continue
        batch, row = divmod(mine.offset, 3)
        heads = heads_of(logs[number][batch][row:], mine.head, NOW)
        wait = waits.setdefault(p, Wait(p, heads, MAX_SKEW))
        if not wait.waits_for(standings):
            events = wait.events(standings)
            unread = [s for q, s in standings.items() if q != p and s.holds]
            assert all(
                head == NO_TIME or head - (s.head or 0) <= MAX_SKEW
                for head in heads[:events].tolist()
                for s in unread
            )
            standings[p] = Standing(mine.offset + events, mine.end, int(heads[events - 1]))
            del waits[p]
        elif must_publish(p, wait.head, standings):
            standings[p] = Standing(mine.offset, mine.end, wait.head)
    assert all(s.offset == s.end for s in standings.values())
