"""The one module that allocates tables: zeroed, and aligned to a cache line."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from bitarray import bitarray

from streamdedup.errors import ConfigError

CACHE_LINE_BYTES = 64
PAGE_BYTES = 4096  # the smallest page of our platforms; a larger page is touched more than once
REMEDY = "lower filter.capacity or raise filter.error_rate"  # if there is not enough memory
TABLE_PIECE_BYTES = 1 << 20  # worked on at a time; other threads can get the interpreter in between
READ_ONLY = "this filter is a read-only view of a file; load it without mmap to change it"

Words = npt.NDArray[np.uint64]  # `kernel.Words`
Counts = npt.NDArray[np.int64]  # counts about a table, which kernels update in place


def aligned_words(words: int, remedy: str = REMEDY) -> Words:
    """`words` zeroed uint64 that begin on a cache line. The operating system provides their pages at the first touch.

    Raises ConfigError, with `remedy`, if there is not enough memory.
    """
    return _aligned(words * 8, np.zeros, remedy).view(np.uint64)


def aligned_bytes(size: int) -> memoryview:
    """`size` bytes that begin on a cache line and are not zeroed, for data that is read from a file."""
    return _aligned(size, np.empty, REMEDY).data


def words_over(buffer: memoryview, words: int) -> Words:
    """`words` uint64 over `buffer`, which may be read-only.

    The result is the buffer itself, or a copy if the buffer does not begin at a whole word. Raises ValueError if the
    size of the buffer differs.
    """
    if buffer.nbytes != words * 8:
        raise ValueError(f"{buffer.nbytes} bytes of table, but the header describes {words * 8}")
    raw = np.frombuffer(buffer, dtype=np.uint8)
    if raw.ctypes.data % 8:
        copy = aligned_words(words)
        fill(copy.data.cast("B"), buffer)
        return copy
    return raw.view("<u8")


def bits_over(buffer: memoryview, bits: int) -> Words:
    """`words_over` for `bits` bits. It also raises ValueError if any bit after the last of them is set."""
    words = words_over(buffer, -(-bits // 64))
    if int(words[-1]) >> (bits % 64 or 64):
        raise ValueError(f"bits are set beyond the last of {bits}")
    return words


def ones_in(words: Words) -> int:
    """The number of bits that are set."""
    table = words.data.cast("B")
    return sum(bitarray(buffer=piece, endian="little").count() for piece in pieces(table))


def writable(table: npt.NDArray[Any]) -> None:
    """Raise ConfigError if the table is a read-only view, for example of a mapped file."""
    if not table.flags.writeable:
        raise ConfigError(READ_ONLY)


def touch_pages(table: memoryview) -> None:
    """Have the pages of a new table put in place now, by the calling thread, instead of at their first use."""
    deque(touching(table), maxlen=0)


def touching(table: memoryview) -> Iterator[None]:
    """Do so in steps, a piece at each."""
    for piece in pieces(table):
        np.frombuffer(piece, dtype=np.uint8)[::PAGE_BYTES] |= 0
        yield


def fill(table: memoryview, saved: memoryview) -> None:
    """Copy `saved` into `table`, which has the same size."""
    for piece, source in zip(pieces(table), pieces(saved), strict=True):
        piece[:] = source


def word_pieces(words: Words) -> Iterator[Words]:
    """Yield `words` in parts of TABLE_PIECE_BYTES, so that the part that is worked on stays in the cache."""
    step = TABLE_PIECE_BYTES // 8
    for start in range(0, len(words), step):
        yield words[start : start + step]


def pieces(table: memoryview) -> Iterator[memoryview]:
    """Yield `table` in parts of TABLE_PIECE_BYTES. Other threads can get the interpreter between two parts."""
    for start in range(0, len(table), TABLE_PIECE_BYTES):
        yield table[start : start + TABLE_PIECE_BYTES]


def _aligned(
    size: int, allocate: Callable[..., npt.NDArray[np.uint8]], remedy: str
) -> npt.NDArray[np.uint8]:
    try:
        raw = allocate(size + CACHE_LINE_BYTES, dtype=np.uint8)
    except MemoryError:
        raise ConfigError(
            f"a filter of {size:,} bytes does not fit into memory; {remedy}"
        ) from None
    skip = -raw.ctypes.data % CACHE_LINE_BYTES
    return raw[skip : skip + size]
