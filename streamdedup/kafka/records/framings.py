"""Read compressed records that are framed in unusual ways, as far as Java's consumer reads them.

The libraries of `codecs` take frames by the book. Java's readers are laxer, and a broker appends what they read. So
whoever may write to a topic can write such a record batch, and nobody else would notice. These readers are slower than
those of `codecs`, and belong into a thread. What Java's consumer reads of each framing is in `tests/kafka`.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import cramjam

from streamdedup.events import concatenated
from streamdedup.kafka.records.codecs import (
    GZIP,
    LZ4,
    NAMES,
    SNAPPY,
    XERIAL_MAGIC,
    ZSTD,
    AboveLimitError,
    CodecError,
    decompress,
)

XERIAL_HEAD_BYTES = 16
LZ4_MAGIC = b"\x04\x22\x4d\x18"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
INFLATE_BYTES_MIN, INFLATE_BYTES_MAX = 1 << 9, 1 << 20  # compressed bytes that are inflated at once
GZIP_HEAD_BYTES = 10
ZSTD_WINDOW_MAX = 17 << 3  # 128 MiB, the most that readers take

_GZIP_END = struct.Struct("<II")  # CRC-32 and size of what is decompressed
_GZIP_HEADER_CRC, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 2, 4, 8, 16
_LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM, _LZ4_BLOCK_CHECKSUMS = 8, 4, 16
_LZ4_PLAIN = 1 << 31  # in the size of a block that is not compressed
_U16, _U32, _XERIAL_SIZE = struct.Struct("<H"), struct.Struct("<I"), struct.Struct(">i")
_ZSTD_SKIPPABLE = 0x184D2A5  # the upper bits of the magic number
_ZSTD_SINGLE, _ZSTD_CHECKSUM = 1 << 5, 1 << 2
_ZSTD_LAST_BLOCK = b"\x01\x00\x00"  # of no bytes


def reread(codec: int, data: memoryview, bytes_max: int) -> bytes | memoryview:
    """Return the records of a batch, compressed with `codec` (1 to 4), as far as Java's consumer reads them.

    CodecError, with what is wrong, if it reads none either. AboveLimitError if they take more than `bytes_max`.
    """
    try:
        return _READERS[codec](data, bytes_max)
    except (struct.error, IndexError):
        raise CodecError(f"its {NAMES[codec]} data ends too early") from None


def _gunzip(data: memoryview, bytes_max: int) -> bytes:
    """Decompress one member after the other. What follows the last whole one is ignored."""
    raw, parts = bytes(data), list[bytes]()
    at, left = 0, bytes_max
    while True:
        try:
            part, at = _member(raw, at, left)
        except AboveLimitError:
            raise AboveLimitError(bytes_max) from None
        except (CodecError, struct.error, IndexError):
            if parts:
                return concatenated(parts)
            raise
        parts.append(part)
        left -= len(part)


def _member(data: bytes, at: int, bytes_max: int) -> tuple[bytes, int]:
    """Return the decompressed bytes of the gzip member that begins at `at`, and the position after it."""
    at = _gzip_head_end(data, at)
    inflate, parts, left = zlib.decompressobj(-zlib.MAX_WBITS), list[bytes](), bytes_max
    step = INFLATE_BYTES_MIN  # a few at first: zlib copies what it was given beyond the end
    while not inflate.eof:
        piece = data[at : at + step]
        if not piece:
            raise CodecError("its gzip data ends too early")
        try:
            parts.append(inflate.decompress(piece, left + 1))
        except zlib.error:
            raise CodecError("its gzip data is damaged") from None
        left -= len(parts[-1])
        if left < 0:
            raise AboveLimitError(bytes_max)
        at += len(piece)
        step = min(2 * step, INFLATE_BYTES_MAX)
    at -= len(inflate.unused_data)
    whole = concatenated(parts)
    crc, size = _GZIP_END.unpack_from(data, at)
    if crc != zlib.crc32(whole) or size != len(whole) & 0xFFFFFFFF:
        raise CodecError("the checksum or the size at the end of its gzip data is wrong")
    return whole, at + _GZIP_END.size


def _gzip_head_end(data: bytes, start: int) -> int:
    """Return where the head of a member ends that begins at `start`; reserved flags mean nothing."""
    if data[start : start + 3] != b"\x1f\x8b\x08":
        raise CodecError("its gzip data does not begin as gzip does")
    flags, at = data[start + 3], start + GZIP_HEAD_BYTES
    if flags & _GZIP_EXTRA:
        at += _U16.size + _U16.unpack_from(data, at)[0]
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & flag:
            at = data.find(b"\0", at) + 1 or len(data)
    if flags & _GZIP_HEADER_CRC:
        (crc,) = _U16.unpack_from(data, at)
        if crc != zlib.crc32(data[start:at]) & 0xFFFF:
            raise CodecError("the checksum in the head of its gzip data is wrong")
        at += _U16.size
    return at


def _unsnap(data: memoryview, bytes_max: int) -> bytes:
    """Decompress one stream of xerial's after the other; up to three bytes after the last block are ignored."""
    parts, left = list[bytes](), bytes_max
    for block in _blocks(data):
        try:
            left -= cramjam.snappy.decompress_raw_len(block)
            if left < 0:
                raise AboveLimitError(bytes_max)
            parts.append(bytes(cramjam.snappy.decompress_raw(block)))
        except cramjam.DecompressionError:
            raise CodecError("a block of its snappy data is damaged") from None
    return concatenated(parts)


def _blocks(data: memoryview) -> Iterator[memoryview]:
    if not data:
        raise CodecError("its snappy data is empty")
    if len(data) < XERIAL_HEAD_BYTES or data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield data  # one block without a frame
        return
    at = 0
    while len(data) - at >= _XERIAL_SIZE.size:
        if data[at : at + _XERIAL_SIZE.size] == XERIAL_MAGIC[: _XERIAL_SIZE.size]:
            at += XERIAL_HEAD_BYTES
            if at > len(data):
                raise CodecError("its snappy data ends within the head of a stream")
            continue
        (size,) = _XERIAL_SIZE.unpack_from(data, at)
        at += _XERIAL_SIZE.size
        if not 0 <= size <= len(data) - at:
            raise CodecError(f"a block of its snappy data claims {size} bytes")
        yield data[at : at + size]
        at += size


def _lz4(data: memoryview, bytes_max: int) -> bytes | memoryview:
    """Decompress the first frame, whatever follows it and whatever its content's size and checksum are."""
    if bytes(data[: len(LZ4_MAGIC)]) != LZ4_MAGIC:
        raise CodecError("its lz4 data does not begin as a frame does")
    flags, size_code = data[4], data[5]
    start = 15 if flags & _LZ4_CONTENT_SIZE else 7
    if bytes(data[:start]) != lz4_head(flags, size_code, bytes(data[6 : start - 1])):
        raise CodecError("the checksum in the head of its lz4 frame is wrong")
    after_block = _U32.size if flags & _LZ4_BLOCK_CHECKSUMS else 0
    at = start
    while size := _U32.unpack_from(data, at)[0] & ~_LZ4_PLAIN:
        at += _U32.size + size + after_block
    if flags & _LZ4_CONTENT_CHECKSUM:
        _U32.unpack_from(data, at + _U32.size)  # Java reads it, and does not compare it
    flags &= ~(_LZ4_CONTENT_SIZE | _LZ4_CONTENT_CHECKSUM)
    plain = lz4_head(flags, size_code) + bytes(data[start:at]) + bytes(_U32.size)
    return decompress(LZ4, memoryview(plain), bytes_max)


def lz4_head(flags: int, size_code: int, content_size: bytes = b"") -> bytes:
    """Return the head of an lz4 frame, with its checksum."""
    fields = bytes((flags, size_code)) + content_size
    return LZ4_MAGIC + fields + bytes((_xxh32(fields) >> 8 & 0xFF,))


def _xxh32(data: bytes) -> int:
    """Return the 32-bit xxHash, with seed 0, of less than 16 bytes."""
    number, whole = 374_761_393 + len(data), len(data) // 4 * 4
    for (word,) in _U32.iter_unpack(data[:whole]):
        number = _rotated(number + word * 3_266_489_917, 17) * 668_265_263
    for byte in data[whole:]:
        number = _rotated(number + byte * 374_761_393, 11) * 2_654_435_761
    number &= 0xFFFFFFFF
    number = (number ^ number >> 15) * 2_246_822_519 & 0xFFFFFFFF
    number = (number ^ number >> 13) * 3_266_489_917 & 0xFFFFFFFF
    return number ^ number >> 16


def _rotated(number: int, bits: int) -> int:
    number &= 0xFFFFFFFF
    return number << bits | number >> 32 - bits


def _unzstd(data: memoryview, bytes_max: int) -> bytes | memoryview:
    """Decompress one frame after the other; if the last one of several is cut short, the blocks that are whole."""
    at = 0
    while at < len(data):
        frame = _zstd_frame(data, at)
        if frame.end is None:
            if not at:
                raise CodecError("its zstd data ends too early")
            whole = bytes(data[:at]) + _without_end(data, at, frame)
            return decompress(ZSTD, memoryview(whole), bytes_max)
        at = frame.end
    return decompress(ZSTD, data, bytes_max)


class _ZstdFrame(NamedTuple):
    """Where the parts of a frame are; `end` is None if it is cut short.

    `blocks` and `blocks_end` are where its blocks begin, and where the last whole one of them ends.
    """

    blocks: int
    blocks_end: int
    end: int | None


def _zstd_frame(data: memoryview, start: int) -> _ZstdFrame:
    magic = bytes(data[start : start + _U32.size])
    if len(magic) < _U32.size and ZSTD_MAGIC.startswith(magic):
        return _ZstdFrame(start, start, None)
    if len(magic) == _U32.size and _U32.unpack(magic)[0] >> 4 == _ZSTD_SKIPPABLE:
        size = _U32.unpack_from(data, start + 4)[0] if len(data) - start >= 8 else len(data)
        end = start + 8 + size
        return _ZstdFrame(start, start, end if end <= len(data) else None)
    if magic != ZSTD_MAGIC:
        raise CodecError("a frame of its zstd data does not begin as one does")
    if start + 4 == len(data):
        return _ZstdFrame(start, start, None)
    flags = data[start + 4]
    is_single = bool(flags & _ZSTD_SINGLE)
    content = (is_single, 2, 4, 8)[flags >> 6]
    blocks = at = start + 5 + (not is_single) + (0, 1, 2, 4)[flags & 3] + content
    is_last = False
    while not is_last:
        head = int.from_bytes(data[at : at + 3], "little")
        is_last, is_repeated = bool(head & 1), head >> 1 & 3 == 1
        end = at + 3 + (1 if is_repeated else head >> 3)
        if len(data) - at < 3 or end > len(data):
            return _ZstdFrame(blocks, at, None)
        at = end
    end = at + (_U32.size if flags & _ZSTD_CHECKSUM else 0)
    return _ZstdFrame(blocks, at, end) if end <= len(data) else _ZstdFrame(blocks, blocks, None)


def _without_end(data: memoryview, start: int, frame: _ZstdFrame) -> bytes:
    """Return a frame of the whole blocks of one that is cut short."""
    blocks = bytes(data[frame.blocks : frame.blocks_end])
    if not blocks:
        return b""
    flags = data[start + 4]
    window = ZSTD_WINDOW_MAX if flags & _ZSTD_SINGLE else data[start + 5]
    return ZSTD_MAGIC + bytes((0, window)) + blocks + _ZSTD_LAST_BLOCK


_READERS: dict[int, Callable[[memoryview, int], bytes | memoryview]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnap,
    LZ4: _lz4,
    ZSTD: _unzstd,
}
