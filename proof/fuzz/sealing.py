"""Mutators of what is sealed by checksums: the parts are changed, then the checksums made to fit again.

Otherwise hardly any input would get beyond the first check. Whoever writes to a topic, or gives away a list, writes
right checksums.
"""

import json
import struct
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from crc32c import crc32c

from proof.fuzz.mutations import mutated, mutated_json
from streamdedup.kafka.records.codecs import CODECS, NONE, CodecError, compress, decompress
from streamdedup.kafka.records.wire import CRC_FROM, HEAD, HEAD_BYTES, LENGTH_END
from streamdedup.snapshot.format import (
    CLOSING_MAGIC,
    MAGIC,
    PREFIX,
    U32,
    chunk_count,
    chunk_crc,
    chunks,
    filler,
    tail_crc,
)

PACKED_BYTES_MAX = 1 << 20  # of records that are decompressed to be changed
_CRC_AT, _AFTER_CRC = 17, 21
_LENGTH, _LENGTH_AT = struct.Struct(">i"), 8


def mutated_batches(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return record batches of which bytes were changed, with right CRCs in most cases.

    More often than not only the head and the records of the first batch are changed, these before or after they are
    compressed, and its length fits.
    """
    what = random.random()
    if what < 0.1:
        return mutated(random, data, others)
    if what < 0.25:
        return _sealed_batches(mutated(random, data, others))
    return _sealed_batches(_with_other_records(random, data, others))


def batch_with(head: bytes, codec: int, records: bytes) -> bytes:
    """Return the record batch with the fields of `head`, of other records, compressed already."""
    fields = list(HEAD.unpack_from(head))
    fields[5] = fields[5] & ~7 | codec
    made = HEAD.pack(*fields) + records
    return _sealed_batches(made[:8] + _LENGTH.pack(len(made) - LENGTH_END) + made[12:])


def _with_other_records(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    if len(data) < HEAD_BYTES:
        return mutated(random, data, others)
    head, codec = data[:HEAD_BYTES], HEAD.unpack_from(data)[5] & 7
    end = max(HEAD_BYTES, LENGTH_END + _LENGTH.unpack_from(data, _LENGTH_AT)[0])
    packed, parts = data[HEAD_BYTES:end], [other[HEAD_BYTES:] for other in others]
    what = random.random()
    if what < 0.2:
        fields = head[_AFTER_CRC:]
        head = head[:_AFTER_CRC] + _as_long(mutated(random, fields, [fields]), fields)
    elif what < 0.6:
        packed = mutated(random, packed, parts)
    else:
        try:
            plain = bytes(decompress(codec, memoryview(packed), PACKED_BYTES_MAX))
        except CodecError:
            plain = packed
        packed, codec = mutated(random, plain, parts), random.choice(list(CODECS.values()))
        packed = bytes(compress(codec, memoryview(packed))) if codec != NONE else packed
    return batch_with(head, codec, packed) + data[end:]


def _as_long(data: bytes, before: bytes) -> bytes:
    """Return `data`, cut or filled up to the size of `before`."""
    return data[: len(before)].ljust(len(before), b"\0")


def _sealed_batches(data: bytes) -> bytes:
    """Return `data` with a right CRC in each whole record batch."""
    made, at = bytearray(data), 0
    while len(made) - at >= HEAD_BYTES:
        end = at + LENGTH_END + _LENGTH.unpack_from(made, at + _LENGTH_AT)[0]
        if not at + HEAD_BYTES <= end <= len(made):
            break
        struct.pack_into(">I", made, at + _CRC_AT, crc32c(bytes(made[at + CRC_FROM : end])))
        at = end
    return bytes(made)


class FileParts(NamedTuple):
    """A file of `snapshot.format`: the JSON texts of its header and trailer, and its buffers."""

    version: int
    header: bytes
    buffers: list[bytes]
    trailer: bytes

    @classmethod
    def of(cls, data: bytes) -> "FileParts":
        """Take apart a file that is intact."""
        _, version, length = PREFIX.unpack_from(data)
        at = PREFIX.size + length
        header = data[PREFIX.size : at]
        sizes = json.loads(header)["buffer_sizes"]
        at += U32.size
        at += filler(at)
        buffers = []
        for size in sizes:
            buffers.append(data[at : at + size])
            at += size + filler(size)
        at += chunk_count(sizes) * U32.size
        (length,) = U32.unpack_from(data, at)
        return cls(version, header, buffers, data[at + U32.size :][:length])

    def assembled(self) -> bytes:
        """Return the file with right checksums, whatever the texts say."""
        head = PREFIX.pack(MAGIC, self.version, len(self.header)) + self.header
        salt, parts = crc32c(head), [head]
        parts += [U32.pack(salt), bytes(filler(len(head) + U32.size))]
        for buffer in self.buffers:
            parts += [buffer, bytes(filler(len(buffer)))]
        sums = [
            chunk_crc(salt, index, memoryview(self.buffers[number])[start:stop])
            for index, (number, start, stop) in enumerate(chunks([len(b) for b in self.buffers]))
        ]
        parts += [U32.pack(crc) for crc in sums]
        parts += [U32.pack(len(self.trailer)), self.trailer, U32.pack(tail_crc(salt, self.trailer))]
        return b"".join([*parts, CLOSING_MAGIC])


def mutated_file(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return a file of which bytes were changed, or, more often, a part of it, with right checksums."""
    if random.random() < 0.15:
        return mutated(random, data, others)
    parts = FileParts.of(data)
    what = random.random()
    if what < 0.6:
        parts = parts._replace(trailer=_mutated_trailer(random, parts.trailer))
    elif what < 0.7:
        parts = parts._replace(header=mutated_json(random, parts.header, [parts.header]))
    elif parts.buffers:
        buffers = list(parts.buffers)
        at = random.randrange(len(buffers))
        buffers[at] = _as_long(mutated(random, buffers[at], buffers), buffers[at])
        parts = parts._replace(buffers=buffers)
        if random.random() < 0.4:
            parts = parts._replace(trailer=_mutated_trailer(random, parts.trailer))
    return parts.assembled()


def _mutated_trailer(random: Random, text: bytes) -> bytes:
    """Return the text with changes, mostly in what it says about the filter."""
    if random.random() < 0.1:
        return mutated_json(random, text, [text])
    document = json.loads(text)
    inner = mutated_json(random, json.dumps(document["filter"]).encode(), [text])
    return text.replace(json.dumps(document["filter"], separators=(",", ":")).encode(), inner)
