"""More claims about one partition's decisions: folds cut anywhere, estimates, and windows that are crowded."""

from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.delivery.shard import Shard
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.filters.window.window import Window
from tests.delivery.deciding import decided
from tests.delivery.test_shard import DUPLICATE, TOMBSTONE, Row, admit, contents, decide, fold, odd
from tests.delivery.test_windowed_shard import (
    CAPACITY,
    GENERATIONS,
    PASS,
    SLOT,
    parts,
    shard_of,
    window,
)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=2) | odd, max_size=40), st.lists(st.integers(0, 40), max_size=6))
@example([b"a", b"a", TOMBSTONE, b"b"], [0, 0, 4])
def test_a_fold_knows_no_batches(log: list[Row], cuts: list[int]) -> None:
    """Cut anywhere, the same output gives the same filter, bit for bit, crowded as it may be (invariant 5)."""
    whole, parts = (Shard(0, Bloom(20, 0.3), stop_when_full=True) for _ in range(2))
    fold(whole, log, len(log))
    bounds = [0, *sorted(min(cut, len(log)) for cut in cuts), len(log)]
    for start, end in pairwise(bounds):
        fold(parts, log[start:end], end)
    assert contents(parts) == contents(whole)
    assert parts.label == whole.label == len(log)


def test_new_events_dropped_wrongly_are_estimated_well() -> None:
    """Of distinct keys every duplicate is a false one: the estimate is within five deviations of their number."""
    shard = Shard(0, Bloom(2000, 0.3), stop_when_full=False)
    for start in range(0, 5000, 50):
        decide(shard, [b"%d" % i for i in range(start, start + 50)])
        admit(shard, start + 50)
    false, expected = shard.tally[DUPLICATE], shard.tally.expected_false
    assert expected > 1000
    assert abs(false - expected) < 5 * expected**0.5


def state(shard: Shard) -> tuple[Any, list[bytes]]:
    """All that a filter is."""
    return shard.filter.header(), [bytes(part) for part in shard.filter.buffers()]


def test_capacity_keys_on_five_days_of_seven_are_all_taken() -> None:
    """As `retention: 7d, capacity: 100k` is meant: the shard decides all of them, and judges none of them known."""
    count, day = 100_000, 86_400_000
    shard = shard_of(Window(count, 1e-9, retention="7d"))
    events = [(b"%d" % i, i * 5 // count * day + i % 36_000) for i in range(count)]
    for label, (keys, times) in enumerate(parts(events, list(range(0, count, 9000)))):
        assert (decided(shard, keys, times).verdicts == PASS).all()
        admit(shard, label)
    assert len(shard.filter) == count
    assert not shard.beyond_capacity


def test_keys_that_leave_the_window_make_room_for_that_which_lets_them_leave() -> None:
    """Far more keys than the capacity, none of them ever beyond it, in one batch or in many: never full."""
    count, span = 5 * CAPACITY, GENERATIONS * SLOT
    events = [(b"%d" % i, i * span // CAPACITY) for i in range(count)]
    for cut in ([], list(range(0, count, 700))):
        shard, label = shard_of(window(max_jump=None)), 0
        for keys, times in parts(events, cut):
            assert (decided(shard, keys, times).verdicts == PASS).all()
            shard.seal()
        while shard.pending:
            label += 1
            admit(shard, label)
            assert len(shard.filter) <= CAPACITY
        assert CAPACITY - 300 < len(shard.filter) <= CAPACITY
