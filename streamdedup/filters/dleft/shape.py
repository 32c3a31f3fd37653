"""The sizes of a d-left table: d subtables of B buckets of w cells. A cell has a remainder and perhaps a counter.

In a bucket the counters come first, then the remainders. Kernels read the remainders in runs, as many as
fit into one word; each remainder of a run is in a lane of that word.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamdedup.filters.sizing import dleft_buckets, dleft_remainder_bits
from streamdedup.kernel import Words, inlined, unpacked

PERMUTATIONS = ("any", "published", "none")
REMAINDER_BITS_MIN = 4


class DLeftLayout(NamedTuple):
    """The sizes that the kernels need, derived from a `Shape`."""

    tables: np.uint64
    buckets: np.uint64
    remainders: np.uint64  # how many different ones there are; the greatest is 2^r - 1
    remainder_bits: np.uint64
    counter_bits: np.uint64  # 0 if cells have no counter
    cells: np.uint64
    bucket_bits: np.uint64
    runs: np.uint64  # runs in a bucket
    lanes: np.uint64  # lanes in a run
    ones: np.uint64  # the lowest bit of each lane
    tops: np.uint64  # the highest bit of each lane
    tops_last: np.uint64  # the highest bit of each lane of the last run, which may be shorter
    permutation: np.uint64  # its index in PERMUTATIONS


FIELDS = len(DLeftLayout._fields)


@dataclass(frozen=True)
class Shape:
    """The sizes of a table.

    Without counters each copy of a key takes a cell, and no remainder is 0, since 0 means that the cell is
    free.

    `permutations` is `any`, for any number of buckets; `published`, for a power of two buckets, with
    counters; or `none`, the plain d-left table, whose removals err. `none` is for its demonstration only,
    and no kind offers it: it reads places of 16 bits each from the digest, so it has at most 2^16 buckets
    and remainders of at most 16 bits.
    """

    buckets: int
    remainder_bits: int
    counter_bits: int
    permutations: str = "any"
    tables: int = 4
    cells: int = 8

    @property
    def remainders(self) -> int:
        """How many different remainders there are."""
        return (1 << self.remainder_bits) - (0 if self.counter_bits else 1)

    @property
    def cell_bits(self) -> int:
        """The width of a cell: remainder and counter."""
        return self.remainder_bits + self.counter_bits

    @property
    def fingerprint_bits(self) -> int:
        """The width of a fingerprint: the remainder and the bucket's number, rounded up to whole bits."""
        return (self.buckets - 1).bit_length() + self.remainder_bits

    @property
    def cells_all(self) -> int:
        """The number of cells in all buckets."""
        return self.tables * self.buckets * self.cells

    @property
    def bits(self) -> int:
        """The size of all cells, in bits."""
        return self.cells_all * self.cell_bits

    @property
    def words(self) -> int:
        """The size of all cells, in words, with one more word that stays 0, which `packing` needs."""
        return -(-self.bits // 64) + 1

    @property
    def layout(self) -> Words:
        """The fields of a `DLeftLayout` as an array. In a kernel, `layout_of` makes the `DLeftLayout` of it."""
        runs = -(-self.cells // (64 // self.remainder_bits))
        lanes = -(-self.cells // runs)
        last = self.cells - (runs - 1) * lanes
        ones = sum(1 << lane * self.remainder_bits for lane in range(lanes))
        tops = ones << (self.remainder_bits - 1)
        fields = DLeftLayout(
            tables=np.uint64(self.tables),
            buckets=np.uint64(self.buckets),
            remainders=np.uint64(self.remainders),
            remainder_bits=np.uint64(self.remainder_bits),
            counter_bits=np.uint64(self.counter_bits),
            cells=np.uint64(self.cells),
            bucket_bits=np.uint64(self.cells * self.cell_bits),
            runs=np.uint64(runs),
            lanes=np.uint64(lanes),
            ones=np.uint64(ones),
            tops=np.uint64(tops),
            tops_last=np.uint64(tops & ((1 << last * self.remainder_bits) - 1)),
            permutation=np.uint64(PERMUTATIONS.index(self.permutations)),
        )
        return np.array(fields, dtype=np.uint64)


def shape_for(
    capacity: int, error_rate: float, counter_bits: int, permutations: str = "any"
) -> Shape:
    """Return the shape of a table that keeps `error_rate` at `capacity` keys.

    `published` rounds the number of buckets up to a power of two.
    """
    buckets = dleft_buckets(capacity)
    if permutations == "published":
        buckets = 1 << (buckets - 1).bit_length()
    bits = dleft_remainder_bits(capacity, buckets, error_rate, reserved=0 if counter_bits else 1)
    return Shape(buckets, max(REMAINDER_BITS_MIN, bits), counter_bits, permutations)


@inlined
def layout_of(fields: Words) -> DLeftLayout:
    """Return the `DLeftLayout` of these fields."""
    return DLeftLayout(*unpacked(fields, FIELDS))
