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
from streamdedup.keys.hashing import Digests, checked, frozen
from streamdedup.lists.digest_blocks import BLOCK_ROWS, is_ascending, locate, search
from streamdedup.snapshot import files
from streamdedup.snapshot.header import DamagedFileError, number
from streamdedup.snapshot.read import ScanningReader

ROW = np.dtype(("<u8", 2))
BLOCK_BYTES = BLOCK_ROWS * ROW.itemsize
DIGESTS_AT_A_TIME = 128  # their blocks take 512 KiB, which stay in the processor's cache


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
                raise SnapshotError(f"cannot use {path}: {error}", remedy=remedy) from None
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
            locate(self._firsts, asked, blocks)
            distinct, places = np.unique(blocks, return_inverse=True)
            ends = np.minimum(BLOCK_ROWS, self.count - distinct * BLOCK_ROWS)
            search(
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
                        f"cannot use {self.path}: block {block} has changed since the file was opened",
                        remedy=f"check its disk, or {self._remedy}",
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
        if not is_ascending(self._last, rows):
            raise DamagedFileError("its digests are not in ascending order")
        self._last = checked(rows[-1:].copy())
        for start in range(0, len(chunk), BLOCK_BYTES):
            self.sums.append(crc32c(chunk[start : start + BLOCK_BYTES]))
            self._firsts += chunk[start : start + ROW.itemsize]

    def firsts(self) -> Digests:
        """Return the first digest of each block, (blocks, 2)."""
        return frozen(np.frombuffer(self._firsts, dtype=ROW), np.uint64)
