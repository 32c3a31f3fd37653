"""The d-left table: loads of the theory, permutations, all widths, large tables."""

from typing import Any

import numpy as np
import pytest

from streamdedup import filters
from streamdedup.filters.dleft.dleft import DLeft
from streamdedup.filters.dleft.shape import Shape
from streamdedup.filters.dleft.table import DLeftTable
from tests.filters.cases import copies, random_digests
from tests.filters.test_dleft import located
from tests.rows import table


def test_loads_are_those_of_the_differential_equations() -> None:
    """After additions only, the shares of buckets with 5, 6, 7, 8 cells or more are .9971 .8747 .1283 0."""
    buckets = 150_000
    seen = DLeft(24 * buckets, 1e-3, multiset=True)
    for seed in range(4):
        seen.add_many(np.random.default_rng(seed).integers(0, 1 << 64, (6 * buckets, 2), np.uint64))
    shares = seen.loads()[::-1].cumsum()[::-1] / (4 * buckets)
    assert shares[5:].tolist() == pytest.approx([0.9971, 0.8747, 0.1283, 0], abs=0.0008)
    assert (seen.overflowed, seen.fill_ratio) == (0, 0.75)


@table(
    [
        *[("any", buckets, counter_bits) for buckets in (1, 6, 37, 64) for counter_bits in (0, 2)],
        *[("published", buckets, 2) for buckets in (1, 64)],
    ]
)
def test_each_subtable_holds_a_permutation_of_the_fingerprints(row: tuple[str, int, int]) -> None:
    """No two fingerprints share a place in any subtable, so an equal cell is an equal fingerprint."""
    permutations, buckets, counter_bits = row
    shape = Shape(buckets, 5, counter_bits, permutations)
    places = [set() for _ in range(4)]  # type: list[set[tuple[int, int]]]
    for i in range(buckets):
        for j in range(shape.remainders):
            a, b = -(-(i << 64) // buckets), -(-(j << 64) // shape.remainders)
            for subtable, spot in enumerate(located(shape, a, b)):
                assert subtable * buckets <= spot[0] < (subtable + 1) * buckets
                places[subtable].add(spot)
    assert [len(found) for found in places] == [buckets * shape.remainders] * 4


def test_cells_land_above_the_2_32nd_bit() -> None:
    """In a table of more than 2^32 bits, four copies of a key stand in its four places, many of them beyond.

    The pages of the 1 GB are the kernel's zero page until written.
    """
    table, keys = DLeftTable(Shape(1 << 24, 15, counter_bits=0)), random_digests(51, 20)
    assert table.add(np.tile(keys, (4, 1))).sum() == len(keys)
    beyond = 0
    for a, b in keys.tolist():
        for bucket, remainder in located(table.shape, a, b):
            at = bucket * 8 * 15
            content = int.from_bytes(table.words[at // 64 : at // 64 + 2].tobytes(), "little")
            assert content >> at % 64 & 0x7FFF == remainder
            beyond += at > 1 << 32
    assert beyond > len(keys)
    assert table.remove(np.tile(keys, (4, 1))).all()
    assert not table.contains(keys).any()


@table(["cuckoo", "dleft", "dlcbf"])
def test_a_file_that_states_too_few_keys_has_none_below_zero(kind: str) -> None:
    """Of a multiset only the header says how many keys are distinct; as they are taken out, none are left."""
    for multiset in (False, True):
        seen: Any = filters.build({"kind": kind, "capacity": 100, "multiset": multiset})
        digests = random_digests(79, 90)
        seen.add_many(digests)
        header = {**seen.header(), "keys": 90 if kind == "dlcbf" else 3}
        back: Any = filters.from_parts(header, copies(seen), seen.hash)
        assert back.remove_many(digests).all()
        assert len(back) == 0
        back.add_many(digests)
        assert len(back) == 90
