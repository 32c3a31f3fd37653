"""Claims about `dleft`, and about the table that it shares with `dlcbf`: where keys go, and whose cell is freed."""

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from streamdedup.errors import ConfigError
from streamdedup.filters.dleft import rows
from streamdedup.filters.dleft.dleft import DLeft
from streamdedup.filters.dleft.shape import DLeftLayout, Shape
from streamdedup.filters.dleft.table import DLeftTable
from streamdedup.keys.hashing import MURMUR3, Digests
from tests.filters.cases import copies, random_digests
from tests.filters.dleft_tools import cells, digest
from tests.rows import table

SMALL = Shape(6, 6, counter_bits=2, permutations="none", tables=2, cells=3)


# --- where keys go: the worked examples ---


def add(table: DLeftTable, *spots: tuple[int, int], times: int = 1) -> None:
    """Add a key that has these places."""
    table.add(np.repeat(digest(table.shape, *spots), times, axis=0))


def test_a_key_goes_to_the_least_loaded_of_its_buckets() -> None:
    """One cell in bucket 1 on the left, two in bucket 2 on the right: it goes left."""
    table = DLeftTable(SMALL)
    add(table, (1, 0b111111), (5, 1))
    for remainder in (1, 2, 3):
        add(table, (4, remainder), (2, remainder))  # left, right, left, as the loads tell
    add(table, (4, 4), (2, 4))
    assert [len(cells(table, 0, 1)), len(cells(table, 1, 2))] == [1, 2]
    add(table, (1, 0b010100), (2, 0b010101))
    assert cells(table, 0, 1) == [(0b111111, 1), (0b010100, 1)]
    assert len(cells(table, 1, 2)) == 2


def test_of_equally_loaded_buckets_it_is_the_leftmost() -> None:
    """With four subtables, keys of the same four buckets fill them from left to right, row by row."""
    table = DLeftTable(Shape(6, 6, counter_bits=2, permutations="none"))
    for remainder in range(1, 7):
        add(table, *[(bucket, remainder) for bucket in (3, 0, 5, 2)])
    loads = [len(cells(table, i, bucket)) for i, bucket in enumerate((3, 0, 5, 2))]
    assert loads == [2, 2, 1, 1]


def test_a_remainder_that_is_there_is_counted_up() -> None:
    """(1, 001100) stands on the left, so its key takes no cell on the right, although nothing is there."""
    table = DLeftTable(SMALL)
    add(table, (1, 0b001100), (3, 0))
    add(table, (1, 0b001100), (2, 0b010101))
    assert cells(table, 0, 1) == [(0b001100, 2)]
    assert cells(table, 1, 2) == []


def test_all_buckets_are_searched_before_a_key_is_placed() -> None:
    """Insertion correction: a key on the right is counted there when its left bucket has become empty."""
    table = DLeftTable(SMALL)
    add(table, (1, 7), (4, 7))
    add(table, (1, 9), (2, 9))
    assert cells(table, 1, 2) == [(9, 1)]
    table.remove(digest(SMALL, (1, 7), (4, 7)))
    add(table, (1, 9), (2, 9))
    assert (cells(table, 0, 1), cells(table, 1, 2)) == ([], [(9, 2)])


def test_what_fits_nowhere_is_stashed_whole() -> None:
    """With both buckets full a key goes to the stash, is found, and is the first to leave."""
    table = DLeftTable(SMALL)
    for remainder in range(8):
        add(table, (1, remainder), (2, remainder))
    assert [len(cells(table, 0, 1)), len(cells(table, 1, 2)), table.stash.used[0]] == [3, 3, 2]
    last = digest(SMALL, (1, 7), (2, 7))
    assert table.contains(last).all()
    assert table.remove(np.repeat(last, 2, axis=0)).tolist() == [True, False]
    assert not table.contains(last).any()
    assert len(table) == 7


# --- whose cell is freed ---


def test_without_permutations_a_removal_takes_the_cell_of_another_key() -> None:
    """With x = (1, f), (2, f) on the left, y = (1, f), (4, f) on the right: removing y takes the cell of x."""
    table = DLeftTable(SMALL)
    x, y = digest(SMALL, (1, 9), (2, 9)), digest(SMALL, (1, 9), (4, 9))
    add(table, (1, 1), (5, 1))
    table.add(y)
    add(table, (3, 2), (2, 2))
    add(table, (3, 3), (2, 3))
    table.add(x)
    assert cells(table, 0, 1) == [(1, 1), (9, 1)]
    assert cells(table, 1, 4) == [(9, 1)]
    assert table.remove(y).all()
    assert cells(table, 0, 1) == [(1, 1)]
    assert not table.contains(x).any()


def located(shape: Shape, a: int, b: int) -> list[tuple[int, int]]:
    """The bucket, of all, and the remainder of a digest in each subtable."""
    spots = np.zeros((1, shape.tables, 2), dtype=np.uint64)
    rows._permute(DLeftLayout(*shape.layout), np.uint64(a), np.uint64(b), spots, 0)
    return [(int(bucket), int(remainder)) for bucket, remainder in spots[0]]


@table(itertools.product([(0, 4), (2, 7)], range(4)))
def test_no_member_is_lost_where_keys_collide_and_overflow(
    row: tuple[tuple[int, int], int],
) -> None:
    """In a tiny table, with few fingerprints and many in the stash, removals of what was added lose nothing else."""
    (counter_bits, bits), seed = row
    table = DLeftTable(Shape(2, bits, counter_bits))
    chance, keys = np.random.default_rng(seed), random_digests(seed + 30, 150)
    members: Counter[int] = Counter()
    overflowed = 0
    for _ in range(600):
        some = chance.integers(0, len(keys), 5)
        table.add(keys[some])
        members.update(some.tolist())
        leaving = chance.permutation(list(members.elements()))[: chance.integers(0, 10)]
        assert table.remove(keys[leaving]).all()
        members.subtract(leaving.tolist())
        assert table.contains(keys[list(members.elements())]).all()
        overflowed = max(overflowed, int(table.stash.used[0]))
    assert overflowed > 20
    assert table.remove(keys[list(members.elements())]).all()
    if not counter_bits:
        assert (len(table), int(table.words.sum()), table.counts[:2].tolist()) == (0, 0, [0, 0])


# --- cells ---


@table(itertools.product([0, 2], [*range(4, 34), 40, 47, 48]))
def test_cells_of_any_width_are_packed_to_the_bit(row: tuple[int, int]) -> None:
    """Each remainder stands where it belongs, whole, across the border of words, too; removals leave the others."""
    counter_bits, bits = row
    table, keys = DLeftTable(Shape(3, bits, counter_bits)), random_digests(50, 70)
    table.add(keys)
    check(table, keys)
    table.remove(keys[1::2])
    check(table, keys[::2])


def check(table: DLeftTable, members: Digests) -> None:
    """Hold a table's cells, decoded from its bytes, against the digests that are in it."""
    assert table.contains(members).all()
    held = [cells(table, i, j) for i in range(4) for j in range(table.shape.buckets)]
    assert (
        np.bincount([len(bucket) for bucket in held], minlength=9).tolist()
        == table.loads().tolist()
    )
    if table.shape.remainder_bits > 12:  # there, no counter sticks
        expected = Counter(located(table.shape, a, b)[0][1] for a, b in members.tolist())
        found: Counter[int] = Counter()
        for remainder, count in (cell for bucket in held for cell in bucket):
            found[remainder] += max(1, count)
        assert found == expected


def test_a_remainder_of_0_is_not_found_in_free_cells() -> None:
    """Of both kinds: where nothing is, nothing looks like the key whose remainder is 0."""
    zero = np.zeros((1, 2), dtype=np.uint64)
    for counter_bits in (0, 2):
        table = DLeftTable(Shape(10, 12, counter_bits))
        assert not table.contains(zero).any()
        assert not table.remove(zero).any()
        assert table.add(np.repeat(zero, 3, axis=0)).tolist() == [True, False, False]
        assert table.contains(zero).all()


# --- dleft itself ---


def test_each_addition_takes_a_cell_until_the_buckets_are_full() -> None:
    """A hundred additions of one key: 32 cells, the rest in one row of the stash, and as many removals empty it."""
    seen = DLeft(1000, 1e-3, multiset=True)
    assert seen.add_many(seen.digests(["again"] * 100)).tolist() == [True] + [False] * 99
    assert (seen.loads()[8], seen.overflowed) == (4, 1)
    assert seen.error_rate_now == pytest.approx(seen.expected_error(1))
    assert seen.remove_many(seen.digests(["again"] * 101)).tolist() == [True] * 100 + [False]
    assert (len(seen), seen.overflowed, seen.fill_ratio) == (0, 0, 0)


@table([5e-324, 1e-300, 1e-14])
def test_error_rates_that_take_too_wide_cells_are_refused(error_rate: float) -> None:
    """Cells have room for 48 bits: a rate far below that of a collision of digests is the operator's mistake."""
    with pytest.raises(ConfigError, match=r"remainders of .*; raise filter.error_rate"):
        DLeft(1000, error_rate)


def spoiled(seen: DLeft, what: str) -> tuple[dict[str, Any], list[memoryview]]:
    """Parts of a filter of which one is wrong."""
    header, parts = seen.header(), copies(seen)
    words = np.frombuffer(parts[0], dtype=np.uint64)
    if what == "a hole":
        loads = [len(cells(seen._table, 0, bucket)) for bucket in range(seen.buckets)]
        at = loads.index(7) * 8 * seen.remainder_bits
        for bit in range(at, at + seen.remainder_bits):
            words[bit // 64] &= ~np.uint64(1 << bit % 64)
    elif what == "a bit beyond":
        words[-1] = 1
    elif what == "too few keys":
        header["keys"] = int(seen.loads() @ np.arange(9)) // 32 - 1
    else:
        header["keys"] = int(seen.loads() @ np.arange(9)) + 1
    return header, parts


@table(
    [
        ("a hole", "free cell before one in use"),
        ("a bit beyond", "beyond the last"),
        ("too few keys", "keys"),
        ("too many keys", "keys"),
    ]
)
def test_a_table_that_no_filter_leaves_is_refused(row: tuple[str, str]) -> None:
    """A free cell before one in use, bits beyond the last cell, more fingerprints than cells or too few."""
    what, said = row
    seen = DLeft(1000, 1e-2, multiset=True)
    seen.add_many(random_digests(55, 1000))
    with pytest.raises(ValueError, match=said):
        DLeft.from_parts(*spoiled(seen, what), MURMUR3)
