"""Claims about what an audit says of keys in several partitions, against exact models."""

from collections.abc import Iterator
from itertools import chain

import numpy as np

from streamdedup.delivery.cross_partition import Watch
from streamdedup.filters.window.clock import UNLIMITED, Clock
from tests.commands.test_audit_across import (
    Stage,
    by_time,
    emitted,
)
from tests.memory import over
from tests.spread import spread


@over(Stage)
async def test_evidence_in_the_output_alone_counts(stage: Stage) -> None:
    """The input may have been deleted since."""
    await stage.run(spread(3000, 948).events)
    for log in stage.broker.topics[stage.source].logs:
        log.trim(log.end)
    report = await stage.audited()
    assert not report.fine
    assert report.as_text().endswith("no event was read; keys are in several partitions\n")


def test_each_event_that_follows_one_of_another_partition_is_doubled() -> None:
    """By their times, whatever the order of the partitions."""
    found = emitted(by_time(4), [(1, 2), (1, 8), (1, 20)], [(1, 1), (1, 9), (1, 10)])
    assert found.compared(Watch()).doubled == 3  # at 2, 9 and 10


def test_by_count_it_is_not_known_what_a_window_held() -> None:
    """It is evidence all the same."""
    clock = Clock(slot=1000, generations=4, max_jump=UNLIMITED, by_count=True)
    across = emitted(clock, [(1, 0), (1, 7), (2, 0)], [(1, 0)]).compared(Watch())
    assert (across.keys, across.in_several, across.doubled) == (2, 1, None)
    assert across.evidence


def test_many_keys_are_compared_in_bounded_memory() -> None:
    """In pieces, from a file: an exact model agrees."""
    chance = np.random.default_rng(5)
    partitions = [
        [(int(key), int(time)) for key, time in chance.integers(0, (20_000, 30), (9_000, 2))]
        for _ in range(4)
    ]
    for generations in (None, 3):
        clock = None if generations is None else by_time(generations)
        keys = emitted(clock, *partitions, size_bytes=300_000)
        with keys.sorter:
            across = keys.compared(Watch())
        assert across.keys == len({key for key, _ in chain(*partitions)})
        assert across.doubled == sum(1 for _ in _doubled(partitions, generations))


def _doubled(
    partitions: list[list[tuple[int, int]]], generations: int | None
) -> Iterator[tuple[int, int]]:
    of: dict[int, list[tuple[int, int]]] = {}
    for partition, events in enumerate(partitions):
        for key, time in events:
            of.setdefault(key, []).append((time, partition))
    for places in of.values():
        if generations is None:
            yield from list({(0, partition) for _, partition in places})[1:]
            continue
        places.sort()
        for at, (time, partition) in enumerate(places):
            earlier = [then for then, where in places[:at] if where != partition]
            if earlier and max(earlier) > time - generations:
                yield time, partition
