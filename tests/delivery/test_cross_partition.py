"""Claims about the watch for keys that come in two partitions."""

import sys
from collections.abc import Callable

import numpy as np

from streamdedup.delivery.cross_partition import Watch
from streamdedup.events import Verdict
from streamdedup.keys.hashing import Digests


def digests(numbers: list[int], low: int = 0) -> Digests:
    """One digest a number; sampled where `low` is 0."""
    return np.array([[number << 12 | low, number] for number in numbers], dtype=np.uint64)


def verdicts(*given: Verdict) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """As a column."""
    return np.array(given, dtype=np.uint8)


def test_a_key_in_two_partitions_is_noticed() -> None:
    """Passed here, passed there: a duplicate that nobody saw; its share is estimated from those that were seen."""
    watch = Watch()
    watch.look(0, digests([1, 2, 3, 1]), verdicts(*[Verdict.PASS] * 3, Verdict.DUPLICATE))
    assert watch.unseen_share == 0
    watch.look(1, digests([2, 4]), verdicts(Verdict.PASS, Verdict.PASS))
    assert (watch.unseen, watch.seen) == (1, 1)
    assert watch.unseen_share == 0.5


def test_what_one_partition_sees_again_is_none() -> None:
    """An event that was taken back and decided anew passes twice, in its own partition."""
    watch = Watch()
    for _ in range(2):
        watch.look(3, digests([1, 2]), verdicts(Verdict.PASS, Verdict.PASS))
    assert watch.unseen == 0


def test_only_a_sample_is_kept_and_it_is_bounded() -> None:
    """One digest in 4,096, by its low bits; the oldest leave first."""
    watch = Watch(kept_max=10)
    watch.look(0, digests([1], low=1), verdicts(Verdict.PASS))
    watch.look(1, digests([1], low=1), verdicts(Verdict.PASS))
    assert watch.unseen == 0
    watch.look(0, digests(list(range(50))), verdicts(*[Verdict.PASS] * 50))
    watch.look(1, digests([40, 49, 39]), verdicts(*[Verdict.PASS] * 3))
    assert watch.unseen == 2


def test_a_key_that_comes_again_and_again_costs_no_more_calls() -> None:
    """Of a batch of one sampled key, such as the empty one under murmur3, no event costs Python code a step."""
    calls = list[int]()
    for count in (10, 8_000):
        said = verdicts(Verdict.PASS, *[Verdict.DUPLICATE] * (count - 1))
        watch, made = Watch(), digests([0] * count)
        calls.append(_calls(lambda: watch.look(0, made, said)))  # noqa: B023 - called at once
        assert watch.seen == count - 1
    assert calls[0] == calls[1]


def _calls(work: Callable[[], None]) -> int:
    """How many calls Python code makes."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls
