"""The places of keys in a table of buckets: of each digest, its fingerprint and its two buckets.

A kernel over a batch prefetches the buckets of a row ROWS_AHEAD rows before its turn, so that the cache misses of many
rows overlap. Kernels are compiled for each layout.
"""

from typing import Protocol

import numpy as np

from streamdedup.filters.probes import high_word, partner
from streamdedup.instructions import prefetch
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.hashing import Digests

ROWS_AHEAD = 32

Place = tuple[np.uint64, np.uint64, np.uint64]
"""A fingerprint and its two buckets."""

_6, _1, _0 = (np.uint64(number) for number in (6, 1, 0))


class Buckets(Protocol):
    """What a layout says of its buckets."""

    @property
    def buckets(self) -> np.uint64:
        """How many there are."""

    @property
    def bucket_bits(self) -> np.uint64:
        """The width of a bucket, in bits."""

    @property
    def reach(self) -> np.uint64:
        """How many bits after the start of a bucket the last word lies that is read with it.

        0 if one cache line holds the bucket.
        """

    @property
    def marks(self) -> np.uint64:
        """How many fingerprints there are: they are 1 to `marks`."""


def reach_of(cells: int, bits: int) -> int:
    """The `reach`, in bits, of a bucket of `cells` cells of `bits` bits.

    `read` takes two words for a cell, so the last word is the one after that in which the last cell begins.
    """
    return (cells - 1) * bits + 64


@inlined
def place_of(a: np.uint64, b: np.uint64, layout: Buckets) -> Place:
    """The place of a digest. Each fingerprint is equally likely.

    The bucket comes from the first word and the fingerprint from the second, so they are independent.
    """
    mark, one = high_word(b, layout.marks) + _1, high_word(a, layout.buckets)
    return mark, one, partner(mark, one, layout.buckets)


@inlined
def prefetch_bucket(words: Words, layout: Buckets, bucket: np.uint64) -> None:
    """Prefetch a bucket, which may lie in two cache lines."""
    first = bucket * layout.bucket_bits
    prefetch(words, first >> _6)
    if layout.reach != _0:
        prefetch(words, (first + layout.reach) >> _6)


@kernel
def places_from(words: Words, layout: Buckets, digests: Digests, start: int) -> Words:
    """The places of the first ROWS_AHEAD rows from `start` on, (ROWS_AHEAD, 3) uint64. Their buckets are prefetched.

    The place of a row is in row `row % ROWS_AHEAD`.
    """
    places = np.empty((ROWS_AHEAD, 3), np.uint64)
    for row in range(start, min(start + ROWS_AHEAD, digests.shape[0])):
        _locate(words, layout, digests, row, places)
    return places


@inlined
def place_at(places: Words, row: int) -> Place:
    """The place of a row that is at most ROWS_AHEAD - 1 rows ahead of the one whose turn it is."""
    at = row % ROWS_AHEAD
    return places[at, 0], places[at, 1], places[at, 2]


@inlined
def turn_of(words: Words, layout: Buckets, digests: Digests, row: int, places: Words) -> Place:
    """The place of a row. In `places`, that of the row ROWS_AHEAD later replaces it, and is prefetched."""
    place, later = place_at(places, row), row + ROWS_AHEAD
    if later < digests.shape[0]:
        _locate(words, layout, digests, later, places)
    return place


@inlined
def _locate(words: Words, layout: Buckets, digests: Digests, row: int, places: Words) -> None:
    """Write the place of a row into `places`, and prefetch both of its buckets."""
    at, (mark, one, other) = row % ROWS_AHEAD, place_of(digests[row, 0], digests[row, 1], layout)
    places[at, 0], places[at, 1], places[at, 2] = mark, one, other
    prefetch_bucket(words, layout, one)
    prefetch_bucket(words, layout, other)
