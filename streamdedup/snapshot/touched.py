"""Snapshots for who only asks: mapped, and of the table only the chunks that were touched are read and verified.

A lookup touches a few pages, and no code says which. So the mapping is asked afterwards which of its pages are in
memory (Linux: /proc/self/pagemap), and the chunks with these are read from the file and compared with their checksums.
An answer counts only after `MappedStore.check`. Where the system does not say it, all chunks are verified. So they are
if the kind of the filter reads its whole table when it is loaded, which all do but `cuckoo` (`filters/glance.py`).

The mapping is private: who adds keys to such a filter changes no file, and the checksums are those of the file.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from mmap import ACCESS_COPY, PAGESIZE
from mmap import mmap as map_file
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from streamdedup.filters.glance import at_a_glance
from streamdedup.snapshot.files import opened
from streamdedup.snapshot.format import CHUNK_BYTES, SUM, Sums, chunk_crc, chunks
from streamdedup.snapshot.header import DamagedFileError, Identity
from streamdedup.snapshot.read import MappedReader, SnapshotReader
from streamdedup.snapshot.store import Snapshot, Store

PAGEMAP = "/proc/self/pagemap"
_PRESENT = np.uint64(0b11 << 62)  # in memory, or swapped out
_PAGES_A_READ = 1 << 16


class TouchedReader(MappedReader):
    """A mapped snapshot that remembers where its chunks are, and their checksums. `fd` stays open until `close`."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        self._fd = os.dup(fd)
        self._places: list[
            tuple[int, int]
        ] = []  # of each chunk: where it begins and ends in the file
        self._sums: Sums = np.empty(0, dtype=SUM)
        try:
            if not size_bytes:
                raise DamagedFileError("it is cut short: it is empty")
            self._map = map_file(fd, size_bytes, access=ACCESS_COPY)
            with suppress(AttributeError, OSError):  # it only saves reads of the disk
                from mmap import MADV_RANDOM

                self._map.madvise(MADV_RANDOM)
            super().__init__(memoryview(self._map), verify=False)
        except BaseException:
            os.close(self._fd)
            raise

    @override
    def _buffer(self, size: int, index: int, sums: Sums) -> memoryview:
        at = self._at
        self._places += [(at + start, at + stop) for _, start, stop in chunks([size])]
        return super()._buffer(size, index, sums)

    @override
    def _compare(self, sums: Sums) -> None:
        self._sums = np.frombuffer(self._take(sums.nbytes), dtype=SUM)

    def check(self) -> int:
        """Verify the chunks that were touched so far; return how many. DamagedFileError if one is damaged."""
        touched = self._touched()
        private = memoryview(bytearray(CHUNK_BYTES))
        for index in touched:
            start, stop = self._places[index]
            chunk = private[: stop - start]
            if os.preadv(self._fd, [chunk], start) != len(chunk):
                raise DamagedFileError("it was cut short while it was read")
            if chunk_crc(self._salt, index, chunk) != self._sums[index]:
                raise DamagedFileError(
                    f"chunk {index} of {len(self._places)} is damaged: the checksum differs"
                )
        return len(touched)

    def close(self) -> None:
        """Close the descriptor. The mapping ends with the last filter over it."""
        os.close(self._fd)

    def _touched(self) -> list[int]:
        """Return the numbers of the chunks of which a page is in memory; of all if that is not known."""
        every = range(len(self._places))
        try:
            pages = self._pages_in_memory()
        except OSError:
            return list(every)
        if not pages.any():  # its header was read, so this system does not say it
            return list(every)
        return [
            at
            for at, (start, stop) in enumerate(self._places)
            if pages[start // PAGESIZE : -(-stop // PAGESIZE)].any()
        ]

    def _pages_in_memory(self) -> "np.typing.NDArray[np.bool_]":
        begin = np.frombuffer(self._map, dtype=np.uint8).ctypes.data // PAGESIZE
        count = -(-len(self._map) // PAGESIZE)
        found = np.zeros(count, dtype=np.bool_)
        fd = os.open(PAGEMAP, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for at in range(0, count, _PAGES_A_READ):
                pages = min(_PAGES_A_READ, count - at)
                entries = np.frombuffer(os.pread(fd, 8 * pages, 8 * (begin + at)), dtype=np.uint64)
                if len(entries) != pages:
                    raise OSError("the page map was cut short")
                found[at : at + pages] = entries & _PRESENT != 0
        finally:
            os.close(fd)
        return found


class MappedStore(Store):
    """The generations of a partition, to look at: `load` maps them, and sets nothing aside.

    Call `check` before an answer by one of its filters counts, and `close` at the end. `save` is not for it.
    """

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - those of a Store
        super().__init__(*args, **options)
        self._mapped: dict[Path, TouchedReader] = {}
        self._passed_over: set[Path] = set()

    def close(self) -> None:
        """Close all files. Filters over them can still be used, and no longer be checked."""
        for reader in self._mapped.values():
            reader.close()
        self._mapped.clear()

    def check(self, path: Path) -> None:
        """Verify what was touched of the generation at `path`.

        DamagedFileError if it is damaged: the next `load` passes over it.
        """
        try:
            self._mapped[path].check()
        except DamagedFileError:
            self._passed_over.add(path)
            raise

    @override
    def _generations(self) -> list[Path]:
        return [path for path in super()._generations() if path not in self._passed_over]

    @override
    def _read(self, path: Path, identity: Identity, end: int, hash_key: bytes) -> Snapshot:
        with at_a_glance():
            return super()._read(path, identity, end, hash_key)

    @override
    def _set_aside(self, path: Path) -> str:
        return "left as it is: this command changes nothing"

    @contextmanager
    @override
    def _opened(self, path: Path) -> Iterator[tuple[SnapshotReader, int]]:
        with opened(self._fs, path, os.O_NOFOLLOW) as (fd, size_bytes):
            reader = TouchedReader(fd, size_bytes)
        if (before := self._mapped.pop(path, None)) is not None:
            before.close()
        self._mapped[path] = reader
        yield reader, size_bytes
