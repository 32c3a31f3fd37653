"""The rule that keeps partitions of the input together in event time."""

from collections.abc import Sequence

import numpy as np
import pytest

from streamdedup.events import Integers
from streamdedup.kafka.partitions import InputPartition
from streamdedup.repartition.skew import (
    NO_TIME,
    Standing,
    Standings,
    Wait,
    heads_of,
    must_publish,
)

FAR = 5_000_000
MAX_SKEW = 100
# Partitions of two inputs: the rule holds over all of them.
P = [InputPartition(topic, number) for topic in ("a", "b") for number in range(2)]


def times(timestamps: Sequence[int]) -> Integers:
    """Return the timestamps of a batch."""
    return np.array(timestamps, dtype=np.int64)


def wait_of(*heads: int) -> Wait:
    """A batch of partition 0."""
    return Wait(P[0], times(heads), MAX_SKEW)


def all_of(*others: Standing) -> Standings:
    """The standings of the partitions from 1 on."""
    return Standings(dict(zip(P[1:], others, strict=False)))


@pytest.mark.parametrize(
    ("timestamps", "before", "after", "heads"),
    [
        ([700, 500, 900], None, [], [500, 500, 900]),  # the smallest of what is left
        ([500, FAR, 600], None, [], [500, 600, 600]),  # one far in the future
        ([FAR], None, [], [FAR]),
        ([FAR], None, [600, 700], [600]),  # and what comes after it
        ([FAR, FAR], 500, [600, 3], [500, 500]),
        ([600, 3], 500, [], [500, 500]),  # late by itself
        ([3], 500, [600], [500]),
        ([600, 700], FAR, [], [600, 700]),  # the head before came from a wrong time
        ([600], FAR, [700], [600]),
        ([-1, 800], 500, [], [800, 800]),
        ([800, -1], 500, [], [800, 800]),
        ([-1, -1], 500, [], [500, 500]),
        ([-1, -1], 500, [600], [600, 600]),
        ([-1], None, [], [NO_TIME]),
        ([], None, [], []),
    ],
)
def test_the_heads_of_a_batch(
    timestamps: list[int], before: int | None, after: list[int], heads: list[int]
) -> None:
    """For each event the smallest time from it on, and never less than before, unless all is older than that."""
    assert heads_of(times(timestamps), before, times(after)).tolist() == heads


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
    standings = Standings({P[0]: Standing(0, 9, 0), P[1]: other})
    assert wait_of(1000).waits_for(standings) == (P[1] if held else None)
    assert wait_of(1000).events(standings) == (0 if held else 1)


def test_a_batch_without_times_waits_for_nobody() -> None:
    """Events without times cannot be late."""
    standings = all_of(Standing(0, 9, None))
    assert wait_of(NO_TIME).waits_for(standings) is None
    assert wait_of(NO_TIME, NO_TIME).events(standings) == 2


def test_the_slowest_is_waited_for() -> None:
    """One of which nothing is known comes before all others."""
    slow = [Standing(0, 9, 50), Standing(0, 9, 20), Standing(0, 9, None)]
    assert wait_of(1000).waits_for(all_of(*slow)) == P[3]
    assert wait_of(1000).waits_for(all_of(*slow[:2])) == P[2]


def test_a_batch_is_cut_where_it_is_too_far_ahead() -> None:
    """A sparse partition holds weeks in one batch; what is not ahead goes on, and the rest as the slow one does."""
    wait = wait_of(10, 50, 110, 111, 300)
    assert wait.events(all_of(Standing(0, 9, 10))) == 3
    wait.passed(3)
    assert wait.head == 111
    assert wait.events(all_of(Standing(0, 9, 10))) == 0
    assert wait.events(all_of(Standing(0, 9, 11))) == 1
    assert wait.events(all_of(Standing(9, 9, 11))) == 2


def test_a_wait_ends_when_the_slow_one_has_copied_what_it_held() -> None:
    """However old what comes to it since may be. What was not slow when the wait began held something, too."""
    wait = wait_of(1000, 5000)
    assert wait.waits_for(all_of(Standing(0, 9, 0), Standing(1, 2, 1000))) == P[1]
    assert wait.waits_for(all_of(Standing(8, 12, 0), Standing(1, 2, 1000))) == P[1]
    assert wait.waits_for(all_of(Standing(9, 12, 0), Standing(1, 2, 1000))) is None
    assert wait.events(all_of(Standing(9, 12, 0), Standing(2, 2, 1000))) == 2
    assert wait.waits_for(all_of(Standing(9, 12, 0), Standing(1, 2, 0))) == P[2]
    assert wait.waits_for(all_of(Standing(9, 12, 0), Standing(2, 4, 0))) is None
    wait.passed(1)
    assert wait.waits_for(all_of(Standing(9, 12, 0))) == P[1]  # another wait


def test_a_head_is_published_once() -> None:
    """A head that is known already needs no commit."""
    assert must_publish(P[0], 5, Standings({}))
    assert must_publish(P[0], 5, Standings({P[0]: Standing(0, 9, None)}))
    assert must_publish(P[0], 5, Standings({P[0]: Standing(0, 9, 4)}))
    assert not must_publish(P[0], 5, Standings({P[0]: Standing(0, 9, 5)}))


@pytest.mark.rule(29)
def test_many_that_wait_look_at_few() -> None:
    """Whoever waits looks at the slowest, and not at all others."""
    looked: list[InputPartition] = []

    class Watched(dict[InputPartition, Standing]):
        def __getitem__(self, partition: InputPartition) -> Standing:
            looked.append(partition)
            return super().__getitem__(partition)

    many = [InputPartition("a", number) for number in range(1000)]
    standings = Standings(Watched({p: Standing(0, 9, number) for number, p in enumerate(many)}))
    for number, partition in enumerate(many):
        Wait(partition, times([number]), MAX_SKEW).waits_for(standings)
    assert len(looked) <= 2 * len(many)
