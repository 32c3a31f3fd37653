"""The one place where tables are allocated: zeroed, and aligned to a cache line."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from streamdedup.errors import ConfigError

CACHE_LINE_BYTES = 64
PAGE_BYTES = 4096  # the smallest of our platforms; larger pages are touched more than once
PIECE_BYTES = 1 << 20  # at a time: whoever waits for the interpreter gets it in between


def aligned_words(words: int) -> npt.NDArray[np.uint64]:
    """`words` zeroed uint64 that begin on a cache line. The kernel gives the pages when they are first touched."""
    try:
        raw = np.zeros(words * 8 + CACHE_LINE_BYTES, dtype=np.uint8)
    except MemoryError:
        raise ConfigError(
            f"a filter of {words * 8:,} bytes does not fit into memory;"
            " lower filter.capacity or raise filter.error_rate"
        ) from None
    skip = -raw.ctypes.data % CACHE_LINE_BYTES
    return raw[skip : skip + words * 8].view(np.uint64)


def touch(table: memoryview) -> None:
    """Have the pages of a new table put in place now, by whoever calls, rather than where they are first used."""
    for piece in _pieces(table):
        np.frombuffer(piece, dtype=np.uint8)[::PAGE_BYTES] |= 0


def fill(table: memoryview, saved: memoryview) -> None:
    """Copy `saved` into `table`, of the same size."""
    for piece, source in zip(_pieces(table), _pieces(saved), strict=True):
        piece[:] = source


def _pieces(table: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(table), PIECE_BYTES):
        yield table[start : start + PIECE_BYTES]
