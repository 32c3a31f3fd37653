"""A file of sorted digests. A lookup reads one block of 4 KiB.

In memory are the first digest and the checksum of each block: 20 bytes for 256 digests. A lookup bisects the first
digests, reads one block, verifies its checksum, and bisects the block. So its time does not depend on how the digests
are distributed, and damage is found whenever it is read. Blocks are read, not mapped: a disk that fails gives an error,
and does not kill the process by SIGBUS.
"""

import os
import sys
import weakref
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c

from streamdedup.errors import SnapshotError
from streamdedup.events import Integers
from streamdedup.filters.base import Mask
from streamdedup.filters.exact.digest_map import first_not_below, is_at, is_below
from streamdedup.kernel import kernel
from streamdedup.keys.hashing import Digests, checked, frozen
from streamdedup.snapshot import files
from streamdedup.snapshot.header import DamagedFileError, number
from streamdedup.snapshot.read import ScanningReader

ROW = np.dtype(("<u8", 2))
BLOCK_ROWS = 256
BLOCK_BYTES = BLOCK_ROWS * ROW.itemsize
DIGESTS_AT_A_TIME = 128  # their blocks take 512 KiB, which stay in the processor's cache

_1 = np.uint64(1)


class SortedDigests:
    """The digests of the file at `path`, which stays open until nothing refers to this object.

    `header` is what the file says about itself, `count` the number of its digests. It may be removed, or replaced by a
    rename, without harm to this object.
    """

    def __init__(self, path: Path, remedy: str) -> None:
        """Open the file, read all of it and verify it. Blocking. SnapshotError if it is damaged or cannot be read.

        `remedy` is what an error advises the operator to do.
        """
        self.path, self._remedy = path, remedy
        self._index = _Index()
        with files.blaming("read", path, remedy):
            try:
                with files.opened(os, path) as (fd, self.size_bytes):
                    self._fd = os.dup(fd)
                weakref.finalize(self, os.close, self._fd)
                self.header = self._scanned()
            except SnapshotError as error:
                raise SnapshotError(f"cannot use {path}: {error}; {remedy}") from None
        self._firsts = self._index.firsts()

    def find(self, digests: Digests) -> Mask:
        """Return which of `digests` (n, 2) the file holds, (n,). Blocking.

        SnapshotError if a block cannot be read, or is not as it was when the file was opened.
        """
        found: Mask = np.zeros(len(digests), dtype=np.bool_)
        if not self.count:
            return found
        for start in range(0, len(digests), DIGESTS_AT_A_TIME):
            asked = checked(digests[start : start + DIGESTS_AT_A_TIME])
            blocks: Integers = np.empty(len(asked), dtype=np.int64)
            _locate(self._firsts, asked, blocks)
            distinct, places = np.unique(blocks, return_inverse=True)
            ends = np.minimum(BLOCK_ROWS, self.count - distinct * BLOCK_ROWS)
            _search(
                frozen(self._read(distinct.tolist()), np.uint64),
                frozen(ends, np.int64),
                frozen(places, np.int64),
                asked,
                found[start : start + DIGESTS_AT_A_TIME],
            )
        return found

    def _scanned(self) -> Mapping[str, Any]:
        reader = ScanningReader(files.next_bytes(os, self._fd), self.size_bytes, self._index.take)
        header = reader.header.filter
        if header.get("kind") != files.STORE:
            raise SnapshotError(f"it is of kind {header.get('kind')!r}, and no exact store")
        self.count = number(header, "entries", 0)
        if reader.header.buffer_sizes != (self.count * ROW.itemsize,):
            raise DamagedFileError("its size is not that of its entries")
        reader.contents()
        return header

    def _read(self, blocks: Sequence[int]) -> Digests:
        """Return the rows of `blocks`, (blocks * BLOCK_ROWS, 2). Those after the last entry are undefined."""
        rows = np.empty((len(blocks) * BLOCK_ROWS, 2), dtype="<u8")
        to, sums, end = rows.data.cast("B"), self._index.sums, self.count * ROW.itemsize
        with files.blaming("read", self.path, self._remedy):
            self._announce(blocks)
            for place, block in zip(range(0, len(to), BLOCK_BYTES), blocks, strict=True):
                at = block * BLOCK_BYTES
                into = to[place : place + min(BLOCK_BYTES, end - at)]
                size = os.preadv(self._fd, [into], self._index.start + at)
                if size != len(into) or crc32c(into) != sums[block]:
                    raise SnapshotError(
                        f"cannot use {self.path}: block {block} has changed since the file was opened; check its disk,"
                        f" or {self._remedy}"
                    )
        return rows

    def _announce(self, blocks: Sequence[int]) -> None:
        """Have the system read all `blocks` side by side, so that the thread waits for the disk once, not for each."""
        if sys.platform == "linux":
            for block in blocks:
                at = self._index.start + block * BLOCK_BYTES
                os.posix_fadvise(self._fd, at, BLOCK_BYTES, os.POSIX_FADV_WILLNEED)


class _Index:
    """The first digest and the checksum of each block, and where in the file the first block begins, `start`."""

    def __init__(self) -> None:
        self.start = 0
        self.sums = array("I")
        self._firsts = bytearray()
        self._last = checked(np.zeros((0, 2), dtype=np.uint64))

    def take(self, at: int, chunk: memoryview) -> None:
        """Take the next chunk, which is at byte `at` of the file. All but the last consist of whole blocks."""
        self.start = self.start or at
        rows = frozen(np.frombuffer(chunk, dtype=ROW), np.uint64)
        if not _is_ascending(self._last, rows):
            raise DamagedFileError("its digests are not in ascending order")
        self._last = checked(rows[-1:].copy())
        for start in range(0, len(chunk), BLOCK_BYTES):
            self.sums.append(crc32c(chunk[start : start + BLOCK_BYTES]))
            self._firsts += chunk[start : start + ROW.itemsize]

    def firsts(self) -> Digests:
        """Return the first digest of each block, (blocks, 2)."""
        return frozen(np.frombuffer(self._firsts, dtype=ROW), np.uint64)


def warm_up() -> None:
    """Compile the kernels or load them from the cache. Called at set-up, so that no batch waits for it."""
    rows = checked(np.zeros((1, 2), dtype=np.uint64))
    blocks, ends = np.zeros(1, dtype=np.int64), frozen(np.ones(1), np.int64)
    _locate(rows, rows, blocks)
    _search(rows, ends, frozen(blocks, np.int64), rows, np.zeros(1, dtype=np.bool_))


@kernel
def _is_ascending(last: Digests, rows: Digests) -> bool:
    """Return whether each of `rows` is above the row before it, and the first above `last` (0 or 1, 2)."""
    for row in range(np.uint64(rows.shape[0])):
        if row:
            a, b = rows[row - _1, 0], rows[row - _1, 1]
        elif last.shape[0]:
            a, b = last[0, 0], last[0, 1]
        else:
            continue
        at = np.uint64(row)
        if is_below(rows, at, a, b) or is_at(rows, at, a, b):
            return False
    return True


@kernel
def _locate(firsts: Digests, digests: Digests, blocks: Integers) -> None:
    """Write for each digest the last block that begins with it or below it, or 0, into `blocks`."""
    for row in range(digests.shape[0]):
        a, b = digests[row, 0], digests[row, 1]
        at = first_not_below(firsts, np.uint64(0), np.uint64(firsts.shape[0]), a, b)
        if not is_at(firsts, at, a, b) and at:
            at -= _1
        blocks[row] = np.int64(at)


@kernel
def _search(rows: Digests, ends: Integers, places: Integers, digests: Digests, found: Mask) -> None:
    """Set `found` for each digest that is in its block.

    `places[i]` is the number of its block among those in `rows`, and `ends` is the number of rows of each block.
    """
    for row in range(digests.shape[0]):
        a, b = digests[row, 0], digests[row, 1]
        start = np.uint64(places[row] * BLOCK_ROWS)
        end = start + np.uint64(ends[places[row]])
        at = first_not_below(rows, start, end, a, b)
        found[row] = at < end and is_at(rows, at, a, b)
