"""The one place where tables are allocated: zeroed, and aligned to a cache line."""

import numpy as np
import numpy.typing as npt

from streamdedup.errors import ConfigError

CACHE_LINE_BYTES = 64


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
