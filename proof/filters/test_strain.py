"""How long chosen keys take, and that random ones are never refused."""

import math
import time
from typing import Any, cast

import numpy as np
import pytest

from streamdedup import filters
from streamdedup.filters.cuckoo.cuckoo import Cuckoo
from streamdedup.filters.exact.exact import WORDS_MAX, Exact
from streamdedup.filters.sizing import exact_steps
from streamdedup.filters.stash import RUN_MAX
from streamdedup.filters.strain import CREDIT, STRAIN_MAX, ChosenKeysError
from streamdedup.keys.hashing import Digests
from tests.chosen import for_few_buckets, for_one_slot, for_rows
from tests.filters.cases import random_digests, state
from tests.filters.test_strain import accepted, longest_run
from tests.rows import table


@pytest.mark.parametrize("load", [0.5, 0.8, 0.9])
def test_random_keys_of_an_exact_set_stay_below_half(load: float) -> None:
    """Up to capacity, and through three growths; a run of half the bound is out of the question at the largest size."""
    seen = Exact(200_000, load=load)
    seen.add_many(random_digests(74, 800_000))
    assert not seen.strained
    rate = load - 1 - math.log(load)
    assert WORDS_MAX * math.exp(-rate * STRAIN_MAX / 2) < 1e-6


def test_random_keys_of_a_cuckoo_table_stay_below_half() -> None:
    """Also beyond capacity, where many searches fail, and the stash takes what is too much."""
    for seed in range(4):
        seen = Cuckoo(30_000 * 10 ** (seed % 2), 1e-3)
        digests = random_digests(77 + seed, 2 * seen.capacity)
        for part in np.array_split(digests, 400):
            seen.add_many(part)
        assert not seen.strained
        assert seen._stash.used[0] > 0


@pytest.mark.parametrize("multiset", [False, True])
@pytest.mark.parametrize(
    "before", ["copies of one", "beyond capacity", "each twice", "two look-alikes"]
)
def test_what_is_not_refused_takes_as_long_as_others(before: str, *, multiset: bool) -> None:
    """Neither copies nor keys beyond the capacity are a way around the account.

    Times are the processor's: a key that searched all of 500 buckets would take 15 times as long as one at capacity.
    """
    capacity = 30_000
    chosen = for_few_buckets(Cuckoo(capacity, 1e-3), 1500)[:4000]

    def full() -> Cuckoo:
        seen = Cuckoo(capacity, 1e-3, multiset=multiset)
        seen.add_many(random_digests(91, capacity - 300))
        return seen

    def attacked() -> Cuckoo:
        seen = Cuckoo(capacity, 1e-3, multiset=multiset)
        if before == "copies of one":
            seen.add_many(np.repeat(random_digests(91, 1), 70_000, axis=0))
        elif before == "beyond capacity":
            seen.add_many(random_digests(91, 30_420))
        elif before == "two look-alikes":
            seen.add_many(np.repeat(chosen[:1], 2, axis=0))
        return seen

    rows = np.repeat(chosen, 2, axis=0) if before == "each twice" else chosen
    ordinary = min(ns_a_key(full(), random_digests(92, 300)) for _ in range(5))
    assert min(ns_a_key(attacked(), rows) for _ in range(3)) < 8 * ordinary


def ns_a_key(seen: Any, digests: Digests) -> float:
    """The processor's time for each of `digests` that is added before one is refused."""
    done, start = 0, time.thread_time_ns()
    for part in np.array_split(digests, max(1, len(digests) // 200)):
        try:
            seen.add_many(part)
        except ChosenKeysError:
            break
        done += len(part)
    return (time.thread_time_ns() - start) / max(1, done)


def test_a_run_that_grows_at_its_end_is_refused_before_it_is_moved() -> None:
    """Keys that ascend move nothing, but a key before them would move all: that one is refused at once."""
    seen = Exact(100_000)
    seen._counts[CREDIT] = 1 << 20
    run = for_one_slot(STRAIN_MAX + 100, ascending=True)
    seen.add_many(run[1:])
    seen._counts[CREDIT] = math.ceil(3 * exact_steps(0.8))
    before = state(seen)
    with pytest.raises(ChosenKeysError):
        seen.add_many(run[:1])
    assert state(seen) == before
    assert seen.contains_many(run[1:]).all()
    assert not seen.contains_many(run[:1]).any()
    elsewhere = random_digests(72, 100) // np.uint64(2)
    assert seen.add_many(elsewhere).all()


@table([8, 16])
def test_each_of_a_long_run_is_found(size: int) -> None:
    """Searches go on in strides; what lies between two fingerprints, before and behind them, is absent."""
    seen = Exact(10_000, fingerprint_bytes=size)
    seen._counts[CREDIT] = 1 << 20
    both = for_one_slot(2001, ascending=True) * np.array([1, 0], np.uint64)
    if size == 16:  # one first word, ascending second words
        both = np.stack([np.full(2001, 1 << 63, np.uint64), np.arange(2001, dtype=np.uint64)], 1)
    odd = np.random.default_rng(73).permutation(both[1::2])
    seen.add_many(odd)
    seen.add_many(random_digests(73, 5000))
    assert seen.contains_many(both).tolist() == [False, True] * 1000 + [False]
    assert seen.remove_many(odd[:500]).all()
    assert seen.contains_many(odd).tolist() == [False] * 500 + [True] * 500


@table(["cuckoo", "dleft", "dlcbf"])
def test_random_keys_copies_and_removals_are_never_refused(kind: str) -> None:
    """Far beyond capacity, each of them many times, and after most of them were removed again."""
    seen = cast("Any", filters.build({"kind": kind, "capacity": 2000, "error_rate": 1e-6}))
    digests = random_digests(82, 6000)
    seen.add_many(digests)
    for row in range(12):
        seen.add_many(digests[row::3])
    seen.remove_many(digests[:5000])
    seen.add_many(random_digests(83, 3000))
    assert not seen.strained


def test_a_chain_in_the_stash_is_refused() -> None:
    """Beyond capacity the stash may be large; but digests for one place in it form no chain without end."""
    seen = Cuckoo(10, 1e-3)
    seen.add_many(random_digests(84, 40_000))
    assert not seen.strained
    assert longest_run(seen._stash) < RUN_MAX // 4
    rows = seen._stash.table.shape[0]
    near = list(for_rows(rows, [0] * (2 * RUN_MAX)))
    count = accepted(seen, np.array(near, dtype=np.uint64))
    assert RUN_MAX / 4 < count <= RUN_MAX
    assert seen.strained
