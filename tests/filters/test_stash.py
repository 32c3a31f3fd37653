"""Claims about the stash: an exact multiset of digests that grows, and that no damage passes for."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.filters.stash import (
    COPIES,
    COUNT,
    ROWS,
    ROWS_MIN,
    A,
    B,
    Stash,
    stash_add,
    stash_count,
    stash_remove,
)
from streamdedup.keys.hashing import Digests
from tests.filters.cases import random_digests
from tests.rows import table

UNIVERSE = random_digests(40, 64)


def grown(digests: Digests) -> Stash:
    """A stash with these digests."""
    stash = Stash()
    stash.feed(partial(add_from, stash, digests), len(digests))
    return stash


def add_from(stash: Stash, digests: Digests, start: int) -> int:
    """What a kind's kernel does: rows from `start` on, until one finds the stash full."""
    for i in range(start, len(digests)):
        if not stash_add(stash.table, stash.used, *digests[i]):
            return i
    return len(digests)


def counted(stash: Stash, digests: Digests) -> list[int]:
    """How often each digest is in it."""
    return [int(stash_count(stash.table, a, b)) for a, b in digests]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 63)), max_size=300))
def test_it_is_a_multiset(steps: list[tuple[bool, int]]) -> None:
    """Additions and removals in any order, over several growths: each digest counts exactly as in a Counter."""
    stash, model = Stash(), Counter[int]()
    for adds, key in steps:
        digest = UNIVERSE[key]
        if adds:
            assert stash_add(stash.table, stash.used, *digest)
            stash.make_room()
        else:
            assert stash_remove(stash.table, stash.used, *digest) == (model[key] > 0)
        model[key] = max(0, model[key] + (1 if adds else -1))
        assert not stash.full
    assert counted(stash, UNIVERSE) == [model[key] for key in range(64)]
    assert stash.used.tolist() == [sum(n > 0 for n in model.values()), model.total()]
    found = np.zeros(64, dtype=np.bool_)
    stash.find(UNIVERSE, found)
    assert found.tolist() == [model[key] > 0 for key in range(64)]
    restored = Stash.over(memoryview(bytes(stash.buffer())))
    assert not restored.table.flags.writeable
    assert np.shares_memory(Stash.over(stash.buffer()).table, stash.table)
    assert restored.used.tolist() == stash.used.tolist()
    assert counted(restored, UNIVERSE) == counted(stash, UNIVERSE)


def test_an_empty_one_costs_next_to_nothing() -> None:
    """384 bytes, and a counter that says there is nothing to search."""
    stash = Stash()
    assert stash.size_bytes == len(stash.buffer()) == 384
    assert stash.used[ROWS] == 0
    assert not stash.has(1, 2)


def test_a_full_one_takes_copies_but_nothing_new() -> None:
    """At three quarters a new digest is refused and nothing changes; one that is there still counts up."""
    stash = Stash()
    count = ROWS_MIN * 3 // 4
    assert add_from(stash, random_digests(41, 100), 0) == count
    before = bytes(stash.buffer()), stash.used.tolist()
    assert stash.full
    assert not stash_add(stash.table, stash.used, *random_digests(41, 100)[50])
    assert (bytes(stash.buffer()), stash.used.tolist()) == before
    assert stash_add(stash.table, stash.used, *random_digests(41, 100)[0])
    assert stash.used.tolist() == [count, count + 1]


def test_a_kernel_may_stop_for_another_reason() -> None:
    """`feed` calls again where rows are left, and does not grow for that."""
    stash, calls = Stash(), []

    def one_row(start: int) -> int:
        calls.append(start)
        return start + 1

    stash.feed(one_row, 5)
    assert calls == [0, 1, 2, 3, 4]
    assert len(stash.table) == ROWS_MIN


def test_removals_leave_no_trace() -> None:
    """When all is removed, in another order, the table is zero: no tombstone slows it down."""
    digests = random_digests(43, 3000)
    stash = grown(digests)
    for a, b in np.random.default_rng(1).permutation(digests):
        assert stash_remove(stash.table, stash.used, a, b)
    assert stash.used.tolist() == [0, 0]
    assert not any(stash.buffer())


@table([0, 8, 24, 24 * 8, 24 * 15, 24 * 17, 24 * 48, 24 * 16 + 8])
def test_other_sizes_are_refused(size: int) -> None:
    """Only 24 bytes times a power of two, 16 at least, is a stash."""
    with pytest.raises(ValueError, match=f"a stash of {size} bytes"):
        Stash.over(memoryview(bytes(size)))


def test_nonsense_is_refused() -> None:
    """A digest twice, a row that no search meets, one too many in use, a wild count, a free row that holds bits."""
    digests = random_digests(46, 9)
    stash = grown(digests)
    taken = np.flatnonzero(stash.table[:, COUNT]).tolist()
    free = np.flatnonzero(stash.table[:, COUNT] == 0).tolist()
    alone = next(row for row in free if stash.table[row - 1, COUNT] == 0)  # no run leads to it

    def refused(match: str, *changes: tuple[int, int, int]) -> None:
        table = stash.table.copy()
        for row, column, value in changes:
            table[row, column] = value
        with pytest.raises(ValueError, match=match):
            Stash.over(memoryview(table.tobytes()))

    a, b, count = (int(value) for value in stash.table[taken[0]])
    refused("two rows", (alone, A, a), (alone, B, b), (alone, COUNT, 1))
    moved = [(taken[0], column, 0) for column in (A, B, COUNT)]
    refused("no search", *moved, (alone, A, a), (alone, B, b), (alone, COUNT, count))
    refused("no search", (free[0], A, 1))
    refused("no search", (free[0], B, 1))
    refused("are in use", (taken[0], COUNT, 1 << 32))
    refused("are in use", *((row, COUNT, 1) for row in free))
    assert Stash.over(stash.buffer()).used[COPIES] == 9
