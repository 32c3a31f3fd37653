"""Bitmap for keys of any kind: one bit a position, and one position a key. It is a Bloom filter with k = 1."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from typing_extensions import override

from streamdedup.filters.base import Mask
from streamdedup.filters.bitmap.bit_table import BitPositions, BitTable
from streamdedup.filters.bitmap.kinds import BITMAP
from streamdedup.filters.digest_filter import DigestFilter, check_alike, number, slices
from streamdedup.filters.probes import PROBES, begin, is_double, position, stated_probe
from streamdedup.filters.sizing import TABLE_BITS_MAX, beside, bitmap_size, bloom_error
from streamdedup.kernel import kernel
from streamdedup.keys.hashing import MURMUR3, Digests, Hash, checked


class HashedBitmap(BitTable, DigestFilter):
    """A bitmap for `capacity` keys of any kind, with at most `error_rate` false positives at capacity.

    It takes about 1/p bits a key: 100 at 1 %, for which a Bloom filter takes 10. So the default
    `error_rate` is 0.01, not 1e-6 as for the other kinds: that would take a million bits a key.
    """

    only_sets_bits = True

    def __init__(
        self,
        capacity: int,
        error_rate: float = 1e-2,
        *,
        probe: str = "standard",
        hash_: Hash = MURMUR3,
    ) -> None:
        super().__init__(capacity, error_rate, hash_)
        self._double = is_double(probe)
        BITMAP.check(capacity, error_rate)
        self._allocate(bitmap_size(capacity, error_rate))

    @property
    def error_rate_now(self) -> float:
        """The fill ratio: each key has one bit."""
        return self.fill_ratio

    def expected_error(self, keys: int) -> float:
        """Return 1 - e^(-n/m) for n = `keys`."""
        return bloom_error(self.bits, 1, keys)

    def add_many(self, digests: Digests) -> Mask:
        """Add all `digests` (n, 2). Return a mask, shape (n,): True for each digest that was absent."""
        return self._set_all(self._places(digests), len(checked(digests)))

    def contains_many(self, digests: Digests) -> Mask:
        """Look up all `digests` (n, 2). Return a mask, shape (n,): True for each digest that is present."""
        return self._look_up(self._places(digests), len(checked(digests)))

    def __ior__(self, other: Self) -> Self:
        check_alike("union", self, other, "bits", "probe", "range")
        self._take_in(other._words)
        return self

    def header(self) -> dict[str, Any]:
        """Return the kind, the parameters and the size."""
        return self._header(bits=self.bits, probe=PROBES[self._double])

    @override
    def _restore(self, header: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        bits = number(header, "bits", 1, TABLE_BITS_MAX)
        least, most = (bitmap_size(self.capacity, rate) for rate in beside(self.error_rate))
        if not least <= bits <= most:
            raise ValueError(f"{bits} bits do not follow from capacity and error rate")
        self._double = stated_probe(header)
        self._stand_on(bits, buffers)

    def _places(self, digests: Digests) -> Iterator[tuple[BitPositions, slice]]:
        """Yield the positions of the bits of `digests` in slices, each with its rows."""
        for part, rows in slices(digests):
            places = np.empty(len(part), dtype=np.uint64)
            _find(part, np.uint64(self.bits), self._double, places)
            yield places, rows

    def _place(self, a: int) -> int:
        """Return the position that `_find` gives for the signed word `a`.

        It reads `a` as unsigned. The position is the high word of a * m, or a mod m for the double
        sequence.
        """
        a &= 0xFFFFFFFFFFFFFFFF
        return a % self.bits if self._double else a * self.bits >> 64

    @override
    def _add_one(self, a: int, b: int) -> bool:
        return self._set_one(self._place(a))

    @override
    def _contains_one(self, a: int, b: int) -> bool:
        return self._is_set(self._place(a))


_0 = np.uint64(0)


@kernel
def _find(digests: Digests, bits: np.uint64, double: bool, places: BitPositions) -> None:
    """Write the first position of the probe sequence of each digest into `places`."""
    for i in range(digests.shape[0]):
        state, _ = begin(digests[i, 0], _0, bits, double)
        places[i] = position(state, bits, double)
