"""Claims about what waits for its commit: large batches, and memory that follows what waits."""

import tracemalloc
from typing import Any, cast

import numpy as np
import pytest

from streamdedup.keys.hashing import ROWS_A_CALL
from streamdedup.rules.duplicates import ROWS_A_STEP, Duplicates
from streamdedup.rules.pending import ROWS_MIN, PendingDigests
from tests.filters.cases import random_digests
from tests.rules.test_pending import DUPLICATE, PASS, ROWS, Listed, judged


def test_large_batches_are_judged_like_small_ones() -> None:
    """Beyond a kernel's call and several tables: rows see one another and all that waits, and leave in their order."""
    rows = 2 * ROWS_A_CALL + 500
    digests = random_digests(41, rows)
    waiting = PendingDigests(ROWS)
    starts = [0, 3, 40, 1000, 9000]
    for start, end in zip(starts, [*starts[1:], rows], strict=True):
        assert judged(waiting, digests[max(start - 2, 0) : end])[-1] == PASS
    assert len(waiting._tables) > 2
    assert set(judged(waiting, digests)) == {DUPLICATE}
    left = []
    while waiting:
        left.append(waiting.first(ROWS_A_STEP).copy())
        waiting.drop(len(left[-1]))
    assert np.array_equal(np.concatenate(left), digests)


@pytest.mark.parametrize("most", [0, 1, 100, ROWS_A_CALL // 2 + 7])
def test_a_large_batch_is_cut_before_the_first_too_many(most: int) -> None:
    """Wherever that is, what is equal to a row before it is still judged, and nothing behind it."""
    digests = random_digests(42, ROWS_A_CALL)
    batch = np.concatenate((digests.repeat(2, axis=0), digests[:1].repeat(ROWS_A_CALL, axis=0)))
    waiting = PendingDigests()
    assert judged(waiting, batch, most) == [PASS, DUPLICATE] * most
    assert len(waiting) == most
    assert judged(waiting, digests[most:]) == [PASS] * (len(digests) - most)


def test_memory_follows_what_waits() -> None:
    """A burst takes more, less than four times what waits; later it is given back, at once in a doubt."""
    waiting, digests = PendingDigests(), random_digests(45, 100_000)
    least = waiting.size_bytes
    judged(waiting, digests[:10_000])
    judged(waiting, digests)
    assert 32 * len(digests) < waiting.size_bytes < 4 * 32 * len(digests)
    waiting.clear()
    assert (len(waiting), waiting.size_bytes) == (0, least)
    judged(waiting, digests)
    for row in range(12):
        waiting.drop(len(waiting))
        judged(waiting, digests[row : row + 1])
    assert waiting.size_bytes == least


def test_what_hardly_passes_is_not_allotted_again_and_again() -> None:
    """A table that is used for large batches stays, though most of their rows are equal."""
    waiting = PendingDigests()
    batch = random_digests(46, 20).repeat(ROWS_MIN, axis=0)
    sizes = set()
    for _ in range(5):
        judged(waiting, batch)
        sizes.add(waiting.size_bytes)
        waiting.drop(len(waiting))
        sizes.add(waiting.size_bytes)
    assert len(sizes) == 1


def test_ten_thousand_transactions_take_no_more_memory_than_a_hundred() -> None:
    """Nothing is left behind by what was admitted, with two transactions in flight all the while."""
    seen = cast("Any", Listed(1))
    seen.contains_many = lambda digests: np.zeros(len(digests), dtype=np.bool_)
    seen.add_many = lambda _digests: None
    rule = Duplicates(seen)
    digests, times = random_digests(47, 4000), np.zeros(400, dtype=np.int64)

    def transactions(count: int) -> int:
        for number in range(count):
            start = number * 37 % (len(digests) - len(times))
            rule.judge(digests[start : start + len(times)], times, within_budget=False)
            rule.seal()
            if number:
                for _ in rule.admit():
                    pass
        for _ in rule.admit():
            pass
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = transactions(100)
        assert transactions(10_000) - before < 4096
    finally:
        tracemalloc.stop()
    assert rule.pending == 0
