"""The sizes of a d-left table: d subtables of B buckets of w cells, each cell a remainder and perhaps a counter.

A bucket's counters come first, then its remainders; these are read in runs, as many as one word takes, and a run's
lanes are their places.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamdedup.filters.memory import Words
from streamdedup.filters.sizing import dleft_buckets, dleft_remainder_bits
from streamdedup.kernel import inlined

PERMUTATIONS = ("any", "published", "none")
REMAINDER_BITS_MIN = 4


class Layout(NamedTuple):
    """What the kernels need of a shape."""

    tables: np.uint64
    buckets: np.uint64
    remainders: np.uint64  # how many there are; the greatest is 2^r - 1
    remainder_bits: np.uint64
    counter_bits: np.uint64  # 0 where cells have no counter
    cells: np.uint64
    bucket_bits: np.uint64
    runs: np.uint64  # in a bucket
    lanes: np.uint64  # in a run
    ones: np.uint64  # the lowest bit of each lane
    tops: np.uint64  # the highest
    tops_last: np.uint64  # the highest of each lane of the last run, which may be shorter
    permutation: np.uint64  # its place in PERMUTATIONS


@dataclass(frozen=True)
class Shape:
    """The sizes of a table. Without counters a copy takes a cell, and no remainder is 0, which means free.

    `permutations`: `any` for any number of buckets; `published` for a power of two, with counters; `none` for the
    plain d-left, whose removals err: for its demonstration only, no kind takes it. It reads places of 16 bits each from
    the digest, so at most 2^16 buckets and remainders of 16 bits.
    """

    buckets: int
    remainder_bits: int
    counter_bits: int
    permutations: str = "any"
    tables: int = 4
    cells: int = 8

    @property
    def remainders(self) -> int:
        """How many remainders there are."""
        return (1 << self.remainder_bits) - (0 if self.counter_bits else 1)

    @property
    def cell_bits(self) -> int:
        """Remainder and counter."""
        return self.remainder_bits + self.counter_bits

    @property
    def fingerprint_bits(self) -> int:
        """What tells one digest from another: the remainder, and which of the buckets, rounded up to whole bits."""
        return (self.buckets - 1).bit_length() + self.remainder_bits

    @property
    def cells_all(self) -> int:
        """The cells of all buckets."""
        return self.tables * self.buckets * self.cells

    @property
    def bits(self) -> int:
        """Of all cells."""
        return self.cells_all * self.cell_bits

    @property
    def words(self) -> int:
        """Of all cells, and one that stays 0, as `packing` wants it."""
        return -(-self.bits // 64) + 1

    @property
    def layout(self) -> Words:
        """The fields of a `Layout`, which `layout_of` makes of them in a kernel."""
        runs = -(-self.cells // (64 // self.remainder_bits))
        lanes = -(-self.cells // runs)
        last = self.cells - (runs - 1) * lanes
        ones = sum(1 << lane * self.remainder_bits for lane in range(lanes))
        tops = ones << (self.remainder_bits - 1)
        fields = Layout(
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
    """That of a table which keeps `error_rate` at `capacity` keys; `published` rounds its buckets to a power of two."""
    buckets = dleft_buckets(capacity)
    if permutations == "published":
        buckets = 1 << (buckets - 1).bit_length()
    bits = dleft_remainder_bits(capacity, buckets, error_rate, reserved=0 if counter_bits else 1)
    return Shape(buckets, max(REMAINDER_BITS_MIN, bits), counter_bits, permutations)


@inlined
def layout_of(fields: Words) -> Layout:
    """One array is passed to a kernel sooner than thirteen numbers, and numbers are quicker in it than an array."""
    return Layout(
        fields[0],
        fields[1],
        fields[2],
        fields[3],
        fields[4],
        fields[5],
        fields[6],
        fields[7],
        fields[8],
        fields[9],
        fields[10],
        fields[11],
        fields[12],
    )
