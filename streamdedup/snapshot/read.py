"""Read and check a snapshot from its first byte to its last. Nothing of it is used before all of it is verified.

Every length is checked against the file's size before memory is allocated for it, if that size is known: a file object
may not say it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from crc32c import crc32c
from typing_extensions import override

from streamdedup.errors import SnapshotError
from streamdedup.filters.memory import aligned_bytes
from streamdedup.snapshot.format import (
    CHUNK_BYTES,
    CLOSING_MAGIC,
    FORMAT_VERSION,
    MAGIC,
    PREFIX,
    SUM,
    U32,
    Sums,
    chunk_count,
    chunk_crc,
    chunks,
    filler,
    tail_crc,
)
from streamdedup.snapshot.header import (
    DamagedFileError,
    ForeignError,
    bounded_length,
    field,
    number,
    parse_header,
    parse_object,
)


@dataclass(frozen=True)
class Contents:
    """The table, and the filter's header and label, as they were when the last chunk was copied."""

    filter: Mapping[str, Any]
    buffers: list[memoryview]
    end_label: int


class SnapshotReader:
    """One snapshot, read in order: the header when this object is made, the rest once, by `contents()`.

    `size_bytes` is its size; None if that is not known, and then more bytes may follow, which are not read. Subclasses
    implement access to the bytes. Raises DamagedFileError if the bytes are not those that were written, and
    SnapshotError if another version wrote them.
    """

    def __init__(self, size_bytes: int | None) -> None:
        self._size_bytes, self._at = size_bytes, 0
        prefix = self._take(PREFIX.size)
        magic, version, length = PREFIX.unpack(prefix)
        if magic != MAGIC:
            raise ForeignError("it does not begin like a snapshot")
        text = self._take(bounded_length(length, "header"))
        self._salt = crc32c(text, crc32c(prefix))
        if self._take_u32() != self._salt:
            raise DamagedFileError("its header is damaged: the checksum differs")
        if version != FORMAT_VERSION:
            raise SnapshotError(
                f"it has format version {version} and this streamdedup reads {FORMAT_VERSION}; "
                "use the version that wrote it, or make it again"
            )
        self.header = parse_header(text)

    def contents(self) -> Contents:
        """Read and verify the rest, and return it."""
        sizes = self.header.buffer_sizes
        chunks = chunk_count(sizes)
        payload_bytes = sum(size + filler(size) for size in sizes)
        due = filler(self._at) + payload_bytes + chunks * U32.size
        if due > self._remaining:
            raise DamagedFileError(
                f"it is cut short: {due} bytes are announced, {self._remaining} are there"
            )
        self._skip_filler()
        sums: Sums = np.empty(chunks, dtype=SUM)
        buffers, summed = [], 0
        for size in sizes:
            of_buffer = sums[summed : summed + chunk_count([size])]
            buffers.append(self._buffer(size, summed, of_buffer))
            summed += len(of_buffer)
            self._skip_filler()
        self._compare(sums)
        filter_header, end_label = self._closing(sum(sizes), chunks)
        return Contents(filter_header, buffers, end_label)

    def _buffer(self, size: int, index: int, sums: Sums) -> memoryview:
        """Return the next `size` bytes, and write the checksums of their chunks to `sums`.

        `index` is the number of the first of these chunks.
        """
        raise NotImplementedError

    def _fill(self, view: memoryview) -> None:
        """Copy the next bytes into `view`."""
        raise NotImplementedError

    def _compare(self, sums: Sums) -> None:
        """Read the checksums in the file, and compare them with `sums`."""
        written = np.frombuffer(self._take(sums.nbytes), dtype=SUM)
        if (wrong := np.flatnonzero(written != sums)).size:
            raise DamagedFileError(
                f"chunk {wrong[0]} of {len(sums)} is damaged: the checksum differs"
            )

    def _skip_filler(self) -> None:
        zeros = self._take(filler(self._at))
        if zeros != bytes(len(zeros)):
            raise DamagedFileError(f"the filler before byte {self._at} is damaged: it is not zero")

    def _closing(self, payload_bytes: int, chunks: int) -> tuple[dict[str, Any], int]:
        length = self._take_u32()
        if self._remaining not in (length + U32.size + len(CLOSING_MAGIC), math.inf):
            raise DamagedFileError("its length is not what its trailer says")
        text = self._take(bounded_length(length, "trailer"))
        if self._take_u32() != tail_crc(self._salt, text):
            raise DamagedFileError("its trailer is damaged: the checksum differs")
        if self._take(len(CLOSING_MAGIC)) != CLOSING_MAGIC:
            raise DamagedFileError("it does not end like a snapshot")
        raw = parse_object(text)
        if (field(raw, "payload_bytes", int), field(raw, "chunks", int)) != (
            payload_bytes,
            chunks,
        ):
            raise DamagedFileError("its trailer counts other bytes or chunks than its header")
        header = self.header
        end_label = number(raw, "end_label", header.label_min, header.label_max)
        return field(raw, "filter", dict), end_label

    def _take(self, size: int) -> bytearray:
        if size > self._remaining:
            raise DamagedFileError(
                f"it is cut short: {size} bytes are due, {self._remaining} are there"
            )
        taken = bytearray(size)
        self._fill(memoryview(taken))
        return taken

    def _take_u32(self) -> int:
        return int(U32.unpack(self._take(U32.size))[0])

    @property
    def _remaining(self) -> float:
        return math.inf if self._size_bytes is None else self._size_bytes - self._at


class CopyingReader(SnapshotReader):
    """A snapshot whose buffers are copied into new memory.

    `read_into` fills a whole view with the next bytes of the file.
    """

    def __init__(self, read_into: Callable[[memoryview], None], size_bytes: int | None) -> None:
        self._read_into = read_into
        super().__init__(size_bytes)

    @override
    def _buffer(self, size: int, index: int, sums: Sums) -> memoryview:
        buffer = aligned_bytes(size)
        for i, (_, start, stop) in enumerate(chunks([size])):
            self._fill(buffer[start:stop])
            sums[i] = chunk_crc(self._salt, index + i, buffer[start:stop])
        return buffer

    @override
    def _fill(self, view: memoryview) -> None:
        self._read_into(view)
        self._at += len(view)


class ScanningReader(CopyingReader):
    """A snapshot whose buffers are read and verified, but not kept: `contents()` returns them empty.

    Each chunk is passed to `take` with its place in the file. The chunk is valid until `take` returns. What `take`
    made of the chunks may be used only after `contents()` has returned, because the checksums are compared last.
    """

    def __init__(
        self,
        read_into: Callable[[memoryview], None],
        size_bytes: int,
        take: Callable[[int, memoryview], None],
    ) -> None:
        self._take_chunk = take
        super().__init__(read_into, size_bytes)

    @override
    def _buffer(self, size: int, index: int, sums: Sums) -> memoryview:
        private = memoryview(bytearray(CHUNK_BYTES))
        for i, (_, start, stop) in enumerate(chunks([size])):
            at, chunk = self._at, private[: stop - start]
            self._fill(chunk)
            sums[i] = chunk_crc(self._salt, index + i, chunk)
            self._take_chunk(at, chunk)
        return memoryview(b"")


class MappedReader(SnapshotReader):
    """A snapshot that is mapped into memory. Its buffers are views of `file`.

    Without `verify`, the buffers are not read, so damage in them is not found. Everything else is still checked.
    """

    def __init__(self, file: memoryview, *, verify: bool) -> None:
        self._file, self._verify = file, verify
        super().__init__(len(file))

    @override
    def _buffer(self, size: int, index: int, sums: Sums) -> memoryview:
        buffer = self._next(size)
        if self._verify:
            for i, (_, start, stop) in enumerate(chunks([size])):
                sums[i] = chunk_crc(self._salt, index + i, buffer[start:stop])
        return buffer

    @override
    def _fill(self, view: memoryview) -> None:
        view[:] = self._next(len(view))

    def _next(self, size: int) -> memoryview:
        self._at += size
        return self._file[self._at - size : self._at]

    @override
    def _compare(self, sums: Sums) -> None:
        if self._verify:
            super()._compare(sums)
        else:
            self._take(sums.nbytes)
