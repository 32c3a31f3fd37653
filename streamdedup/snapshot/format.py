"""The byte layout of a snapshot, and its pieces in the order they are written. Pure.

`docs/snapshot-format.md` shows the layout. A CRC-32C covers every byte, except filler, which is zero. The checksum of
a chunk also covers its number and the header, so that a chunk of another file never passes. Each buffer is contiguous
and begins on a page boundary, so that it can be used as it is mapped.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from streamdedup.errors import SnapshotError
from streamdedup.snapshot.header import Header, bounded_json, header_json

# Like PNG's: no text begins with these bytes, and a transfer that converts line ends changes them.
MAGIC = b"\x89SDSNAP\n"
CLOSING_MAGIC = b"\nPANSDS\x89"
FORMAT_VERSION = 1
CHUNK_BYTES = 1 << 20
PAGE_BYTES = 4096  # where a buffer may begin; a multiple of a cache line, whatever page size the platform has

PREFIX = struct.Struct("<8sII")  # magic, version, length of the header
U32 = struct.Struct("<I")
SUM = np.dtype("<u4")
_CHUNK_SALT = struct.Struct("<IQ")

Sums = npt.NDArray[np.uint32]


class Buffer(Protocol):
    """The bytes of a buffer: a memoryview, or a file that is read piece by piece."""

    def __getitem__(self, part: slice, /) -> bytes | memoryview:
        """Return the bytes from `part.start` up to `part.stop`, both given."""


def pieces(
    header: Header,
    buffers: Sequence[Buffer],
    closing: Callable[[], tuple[Mapping[str, Any], int]],
) -> Iterator[bytes | memoryview]:
    """Yield the file in pieces, each valid until the next is requested.

    Other threads may set bits in `buffers` while the file is written: each chunk is copied, and the copy is both
    summed and written. `closing` returns the filter's header and the end label (0 without a log); it is called after
    the last chunk was copied. SnapshotError if the end label is below the label.
    """
    head = _head(header)
    salt = crc32c(head)
    start_of_payload = len(head) + U32.size
    yield head + U32.pack(salt) + bytes(filler(start_of_payload))
    sums: Sums = np.empty(chunk_count(header.buffer_sizes), dtype=SUM)
    private = memoryview(bytearray(CHUNK_BYTES))
    for index, (number, start, stop) in enumerate(chunks(header.buffer_sizes)):
        size = stop - start
        private[:size] = buffers[number][start:stop]
        sums[index] = chunk_crc(salt, index, private[:size])
        filled = size + filler(size)  # only a buffer's last chunk needs filler
        private[size:filled] = bytes(filled - size)
        yield private[:filled]
    filter_header, end_label = closing()
    if not header.label_min <= end_label <= header.label_max:
        raise SnapshotError(f"the end label {end_label} is below the label {header.label_min}")
    yield sums.tobytes() + _tail(header, salt, filter_header, end_label)


def _head(header: Header) -> bytes:
    text = header_json(header)
    return PREFIX.pack(MAGIC, FORMAT_VERSION, len(text)) + text


def _tail(header: Header, salt: int, filter_header: Mapping[str, Any], end_label: int) -> bytes:
    text = bounded_json(
        {
            "filter": dict(filter_header),
            "end_label": end_label,
            "payload_bytes": sum(header.buffer_sizes),
            "chunks": chunk_count(header.buffer_sizes),
        }
    )
    return U32.pack(len(text)) + text + U32.pack(tail_crc(salt, text)) + CLOSING_MAGIC


def chunks(sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield every chunk: the number of its buffer, and where in that it begins and ends."""
    for number, size in enumerate(sizes):
        for start in range(0, size, CHUNK_BYTES):
            yield number, start, min(start + CHUNK_BYTES, size)


def chunk_count(sizes: Sequence[int]) -> int:
    """Return the number of chunks."""
    return sum(-(-size // CHUNK_BYTES) for size in sizes)


def filler(size: int) -> int:
    """Return the number of bytes, all zero, that follow `size` bytes up to the next page."""
    return -size % PAGE_BYTES


def chunk_crc(salt: int, index: int, chunk: memoryview) -> int:
    """Return the checksum of chunk `index` of the file whose header has the checksum `salt`."""
    return crc32c(chunk, crc32c(_CHUNK_SALT.pack(salt, index)))


def tail_crc(salt: int, text: bytes | bytearray) -> int:
    """Return the checksum of the trailer."""
    return crc32c(text, crc32c(U32.pack(salt) + U32.pack(len(text))))
