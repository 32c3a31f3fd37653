"""A copy of the buffers of a filter whose cells move: the shard goes on while a snapshot is written from it.

All steps that take long are for a thread. None of them keeps the interpreter from others: numpy lets go of it while it
copies, and `mmap` while it gives memory back.
"""

import mmap
from collections.abc import Iterable, Sequence

import numpy as np

from streamdedup.filters.memory import PAGE_BYTES

_HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)


class Copy:
    """Memory for buffers of these sizes, in bytes; `take` fills it. This blocks. MemoryError if it cannot be had."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._memory = [_memory(size) for size in sizes]

    @property
    def buffers(self) -> list[memoryview]:
        """What was taken."""
        return [
            memoryview(taken)[:size] for taken, size in zip(self._memory, self._sizes, strict=True)
        ]

    def take(self, buffers: Iterable[memoryview]) -> None:
        """Copy `buffers`, which nobody may change meanwhile. This blocks, for about 0.1 ms a MB."""
        for taken, buffer in zip(self.buffers, buffers, strict=True):
            np.copyto(np.frombuffer(taken, np.uint8), np.frombuffer(buffer.cast("B"), np.uint8))

    def give_back(self) -> None:
        """Give the memory back to the system, now and in this thread: that takes time. The bytes are lost."""
        self._sizes = ()
        self._memory.clear()


def _memory(size: int) -> mmap.mmap:
    """Return `size` bytes whose pages are in place, so that a copy into them is as short as can be."""
    try:
        made = mmap.mmap(-1, max(1, size))
    except OSError as error:
        raise MemoryError(f"{size:,} bytes for a copy of the filter") from error
    if _HUGE_PAGES is not None:
        made.madvise(_HUGE_PAGES)
    np.frombuffer(made, np.uint8)[::PAGE_BYTES] = 0
    return made
