"""The four codecs of record batches, read and written as Java's clients do, at levels chosen for speed.

Measured on 7,000 JSON events of 112 bytes each: ns an event to compress, ns an event to decompress, and compressed
size. lz4 at level 1: 230, 50, 49 %. zstd at level 1: 280, 90, 27 % (at level 3: 450 to compress, and no smaller).
snappy: 250, 90, 52 %. gzip at level 1: 680, 370, 33 % (at level 6: 4,360, 370, 32 %).
"""

import struct
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import cramjam
import numpy as np

from streamdedup.errors import StreamdedupError
from streamdedup.events import COPY_PIECE_BYTES, concatenated

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CODECS = {name: number for number, name in enumerate(NAMES)}
RECORDS_BYTES_MAX = 128 << 20  # of one batch, decompressed: a few kB can decompress to any amount

GZIP_LEVEL = LZ4_LEVEL = ZSTD_LEVEL = 1
EXPANSION = 10  # the first guess; a buffer that is not written to costs no memory
GUESS_BYTES_MIN = 1 << 16
GROWTH = 16
NO_ROOM = "failed to write whole buffer"  # what cramjam says of a buffer that is too small

# Its version, and the oldest version that can read it.
XERIAL_HEAD = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
XERIAL_MAGIC = XERIAL_HEAD[:8]
XERIAL_BLOCK_BYTES = 1 << 15
# More are smaller than Java's, and cost time.
XERIAL_BLOCKS_MAX = RECORDS_BYTES_MAX // XERIAL_BLOCK_BYTES
_SIZE = struct.Struct(">i")


class CodecError(StreamdedupError):
    """Records that do not decompress, or to more than the limit. The message contains nothing of the data."""


class AboveLimitError(CodecError):
    """Records that decompress to more than `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"its records are above the limit of {bytes_max} bytes decompressed")


def decompress(
    codec: int, data: memoryview, bytes_max: int = RECORDS_BYTES_MAX
) -> bytes | memoryview:
    """Return the records of a batch that was compressed with `codec`, 0 to 4.

    CodecError if they cannot be decompressed, or are framed in a way that only `framings` reads. AboveLimitError if
    they take more than `bytes_max`; no more than that is ever allocated for them.
    """
    if codec == NONE:
        return data
    if not 0 < codec < len(NAMES):
        raise CodecError(f"codec {codec} is unknown")
    try:
        return _DECOMPRESS[codec](data, bytes_max)
    except (cramjam.DecompressionError, struct.error):
        raise CodecError(f"its records cannot be decompressed by {NAMES[codec]}") from None


def compress(codec: int, data: memoryview) -> bytes | memoryview:
    """Return `data` compressed with `codec`, 1 to 4."""
    return _COMPRESS[codec](data)


def _grown(
    decompress_into: Callable[[Any, Any], int], data: memoryview, bytes_max: int
) -> memoryview:
    """Decompress into a buffer of a guessed size; if that fails, try again with a larger one, up to `bytes_max`.

    None of the libraries accepts a limit, and each reports a buffer that is too small only in words. So damaged data is
    tried again, too. That is rare, and a buffer that is not written to costs no memory.
    """
    size = min(max(EXPANSION * len(data), GUESS_BYTES_MIN), bytes_max)
    while True:
        room = np.empty(size, dtype=np.uint8).data
        try:
            return room[: decompress_into(data, room)]
        except cramjam.DecompressionError as error:
            if size == bytes_max:
                if NO_ROOM in str(error):
                    raise AboveLimitError(bytes_max) from None
                raise
        size = min(GROWTH * size, bytes_max)


def _unsnap(data: memoryview, bytes_max: int) -> bytes | memoryview:
    """Decompress the frames of xerial's snappy-java, which Java's clients write, or one block without a frame."""
    framed = data[: len(XERIAL_MAGIC)] == XERIAL_MAGIC
    blocks = list(islice(_blocks(data), XERIAL_BLOCKS_MAX + 1)) if framed else [data]
    if len(blocks) > XERIAL_BLOCKS_MAX:
        raise CodecError(f"its records are in more than {XERIAL_BLOCKS_MAX} blocks")
    size = sum(map(cramjam.snappy.decompress_raw_len, blocks))
    if size > bytes_max:
        raise AboveLimitError(bytes_max)
    parts = [memoryview(cramjam.snappy.decompress_raw(block)) for block in blocks]
    return parts[0] if len(parts) == 1 else concatenated(parts)


def _blocks(data: memoryview) -> Iterator[memoryview]:
    at = len(XERIAL_HEAD)
    while at < len(data):
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        if not 0 <= size <= len(data) - at:
            raise CodecError("a block of its records, compressed by snappy, does not fit")
        yield data[at : at + size]
        at += size


def _snap(data: memoryview) -> bytes:
    parts = [XERIAL_HEAD]
    for at in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + XERIAL_BLOCK_BYTES]))
        parts += [_SIZE.pack(len(block)), block]
    return b"".join(parts)


def _lz4(data: memoryview) -> memoryview:
    """Compress into a frame whose blocks are independent of each other: the broker reads no others."""
    compressor = cramjam.lz4.Compressor(LZ4_LEVEL, content_checksum=False, block_linked=False)
    for at in range(0, len(data), COPY_PIECE_BYTES):
        compressor.compress(bytes(data[at : at + COPY_PIECE_BYTES]))
    return memoryview(compressor.finish())


def _whole(compressing: Callable[[Any, int], Any], level: int, data: Any) -> memoryview:
    return memoryview(compressing(data, level))


_DECOMPRESS: dict[int, Callable[[memoryview, int], bytes | memoryview]] = {
    GZIP: partial(_grown, cramjam.gzip.decompress_into),
    SNAPPY: _unsnap,
    LZ4: partial(_grown, cramjam.lz4.decompress_into),
    ZSTD: partial(_grown, cramjam.zstd.decompress_into),
}
_COMPRESS: dict[int, Callable[[Any], bytes | memoryview]] = {
    GZIP: partial(_whole, cramjam.gzip.compress, GZIP_LEVEL),
    SNAPPY: _snap,
    LZ4: _lz4,
    ZSTD: partial(_whole, cramjam.zstd.compress, ZSTD_LEVEL),
}
