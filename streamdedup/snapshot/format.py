"""The bytes of a snapshot, drawn in `docs/snapshot-format.md`: its pieces, written one after the other. Pure.

Every byte is under a CRC-32C, or is filler, which is zero; a chunk's sum covers its number and the header too, so that
no other file's chunk passes. Each buffer stands in one piece on a page's border, to be used as it is mapped.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from streamdedup.errors import SnapshotError
from streamdedup.snapshot.header import Header, bounded_json, header_json

MAGIC = (
    b"\x89SDSNAP\n"  # like PNG's: no text begins so, and a transfer that rewrites line ends shows
)
CLOSING_MAGIC = b"\nPANSDS\x89"
FORMAT_VERSION = 1
CHUNK_BYTES = 1 << 20
PAGE_BYTES = 4096  # where a buffer may begin; a cache line's border on every platform's page size

PREFIX = struct.Struct("<8sII")  # magic, version, length of the header
U32 = struct.Struct("<I")
SUM = np.dtype("<u4")
_CHUNK_SALT = struct.Struct("<IQ")

Sums = npt.NDArray[np.uint32]


def pieces(
    header: Header,
    buffers: Sequence[memoryview],
    closing: Callable[[], tuple[Mapping[str, Any], int]],
) -> Iterator[bytes | memoryview]:
    """Make the file in pieces, each valid until the next is asked for.

    Other threads may set bits in `buffers` all the while: what is summed and written is a private
    copy of a chunk. `closing` gives the filter's header and the end label (0 without a log); it is
    called after the last chunk was copied.
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
        filled = size + filler(size)  # a whole chunk has none, so only a buffer's last is filled up
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
    """Every chunk: the buffer's number, and from where to where."""
    for number, size in enumerate(sizes):
        for start in range(0, size, CHUNK_BYTES):
            yield number, start, min(start + CHUNK_BYTES, size)


def chunk_count(sizes: Sequence[int]) -> int:
    """How many there are."""
    return sum(-(-size // CHUNK_BYTES) for size in sizes)


def filler(size: int) -> int:
    """How many bytes, all zero, follow `size` bytes up to the next page."""
    return -size % PAGE_BYTES


def chunk_crc(salt: int, index: int, chunk: memoryview) -> int:
    """The checksum of chunk `index` of the file whose header's checksum is `salt`."""
    return crc32c(chunk, crc32c(_CHUNK_SALT.pack(salt, index)))


def tail_crc(salt: int, text: bytes | bytearray) -> int:
    """The checksum of the trailer."""
    return crc32c(text, crc32c(U32.pack(salt) + U32.pack(len(text))))
