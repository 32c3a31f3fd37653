"""A table of bits, one bit a position. Bits are set, looked up and cleared, one at a time or many at once."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from streamdedup.filters.base import Mask
from streamdedup.filters.memory import REMEDY, Counts, aligned_words, bits_over, ones_in, writable
from streamdedup.kernel import Words, kernel

BitPositions = npt.NDArray[np.uint64]


class BitTable:
    """The part that both bitmaps share: `bits` positions, and the number of bits that are set."""

    kind: ClassVar[str] = "bitmap"
    bits: int
    _words: Words
    _counts: Counts  # shape (1,): how many bits are set

    @property
    def fill_ratio(self) -> float:
        """The share of bits that are set."""
        return float(self._counts[0] / self.bits)

    @property
    def size_bytes(self) -> int:
        """The memory of the bits, in bytes."""
        return int(self._words.nbytes)

    def __len__(self) -> int:
        """Return how many bits are set. Each addition that returned True set one."""
        return int(self._counts[0])

    def buffers(self) -> list[memoryview]:
        """Return the bits as little-endian uint64 words: bit i is bit i % 64 of word i // 64."""
        return [self._words.data.cast("B")]

    def _allocate(self, bits: int, remedy: str = REMEDY) -> None:
        self._words = aligned_words(-(-bits // 64), remedy)
        self.bits, self._counts = bits, np.zeros(1, dtype=np.int64)

    def _stand_on(self, bits: int, buffers: Sequence[memoryview]) -> None:
        self.bits, self._counts = bits, np.zeros(1, dtype=np.int64)
        (table,) = buffers
        self._words = bits_over(table, bits)
        self._recount()

    def _take_in(self, other: Words) -> None:
        """Set every bit that is set in `other`, a table of the same size."""
        writable(self._words)
        np.bitwise_or(self._words, other, out=self._words)
        self._recount()

    def _keep(self, other: Words) -> None:
        """Clear every bit that is clear in `other`, a table of the same size."""
        writable(self._words)
        np.bitwise_and(self._words, other, out=self._words)
        self._recount()

    def _recount(self) -> None:
        self._counts[0] = ones_in(self._words)

    def _set_all(self, places: Iterable[tuple[BitPositions, slice]], rows: int) -> Mask:
        """Set the bits at `places`. Return a mask, shape (rows,): True for each bit that was not set.

        `places` yields slices of the batch: the positions of some rows, and which rows they are.
        """
        writable(self._words)
        fresh = np.zeros(rows, dtype=np.bool_)
        for some, part in places:
            _set_bits(self._words, some, self._counts, fresh[part])
        return fresh

    def _look_up(self, places: Iterable[tuple[BitPositions, slice]], rows: int) -> Mask:
        """Return a mask, shape (rows,): True for each bit that is set. For `places` see `_set_all`."""
        present = np.zeros(rows, dtype=np.bool_)
        for some, part in places:
            _are_set(self._words, some, present[part])
        return present

    def _clear_all(self, places: Iterable[tuple[BitPositions, slice]], rows: int) -> Mask:
        """Clear the bits at `places`. Return a mask, shape (rows,): True for each bit that was set.

        For `places` see `_set_all`.
        """
        writable(self._words)
        gone = np.zeros(rows, dtype=np.bool_)
        for some, part in places:
            _clear_bits(self._words, some, self._counts, gone[part])
        return gone

    def _set_one(self, place: int) -> bool:
        writable(self._words)
        return _set_bit(self._words, place, self._counts)

    def _is_set(self, place: int) -> bool:
        return _is_set(self._words, place)

    def _clear_one(self, place: int) -> bool:
        writable(self._words)
        return _clear_bit(self._words, place, self._counts)


_6, _63, _1, _0 = np.uint64(6), np.uint64(63), np.uint64(1), np.uint64(0)


@kernel
def _set_bits(words: Words, places: BitPositions, counts: Counts, fresh: Mask) -> None:
    newly_set = 0
    for i in range(places.shape[0]):
        word, bit = words[places[i] >> _6], _1 << (places[i] & _63)
        fresh[i] = word & bit == _0
        newly_set += fresh[i]
        words[places[i] >> _6] = word | bit
    counts[0] += newly_set


@kernel
def _are_set(words: Words, places: BitPositions, present: Mask) -> None:
    for i in range(places.shape[0]):
        present[i] = words[places[i] >> _6] >> (places[i] & _63) & _1 != _0


@kernel
def _clear_bits(words: Words, places: BitPositions, counts: Counts, gone: Mask) -> None:
    newly_clear = 0
    for i in range(places.shape[0]):
        word, bit = words[places[i] >> _6], _1 << (places[i] & _63)
        gone[i] = word & bit != _0
        newly_clear += gone[i]
        words[places[i] >> _6] = word & ~bit
    counts[0] -= newly_clear


@kernel
def _set_bit(words: Words, place: int, counts: Counts) -> bool:
    at, bit = place >> 6, _1 << np.uint64(place & 63)
    new = words[at] & bit == _0
    words[at] |= bit
    counts[0] += new
    return bool(new)


@kernel
def _is_set(words: Words, place: int) -> bool:
    return bool(words[place >> 6] >> np.uint64(place & 63) & _1 != _0)


@kernel
def _clear_bit(words: Words, place: int, counts: Counts) -> bool:
    at, bit = place >> 6, _1 << np.uint64(place & 63)
    was = words[at] & bit != _0
    words[at] &= ~bit
    counts[0] -= was
    return bool(was)
