"""The bytes of a snapshot, drawn in `docs/snapshot-format.md`. Pure: from values to bytes and back.

Every length is bounded by the file's size before memory is taken for it. Every byte is under a
CRC-32C; a chunk's covers its number and the header too, so that no other file's chunk passes.
"""

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NoReturn, TypeVar

import numpy as np
from crc32c import crc32c

from streamdedup.errors import SnapshotError

MAGIC = (
    b"\x89SDSNAP\n"  # like PNG's: no text begins so, and a transfer that rewrites line ends shows
)
CLOSING_MAGIC = b"\nPANSDS\x89"
FORMAT_VERSION = 1
CHUNK_BYTES = 1 << 20
JSON_BYTES_MAX = 64 << 10
OFFSET_MAX = (1 << 63) - 1  # Kafka's offsets are int64

_PREFIX = struct.Struct("<8sII")
_U32 = struct.Struct("<I")
_MAY_BE_UNKNOWN = ("cluster_id", "topic_id")
_CHUNK_SALT = struct.Struct("<IQ")

T = TypeVar("T")


class DamagedError(SnapshotError):
    """The bytes are not those that were written; another error: whole, but not for us."""


@dataclass(frozen=True)
class Identity:
    """Which log a filter is the fold of, and how keys became digests: all must agree to use it.

    `hash_check` is the digest of a fixed text; `key` and `filter` are settings as plain JSON
    values. An id is None where the broker does not tell one, and then matches any.
    """

    hash: str
    hash_check: str
    key: Mapping[str, Any]
    normalize: str
    filter: Mapping[str, Any]
    topic: str
    partition: int
    partitions: int
    cluster_id: str | None = None
    topic_id: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Give plain JSON values."""
        return asdict(self)

    def differences(self, other: "Identity") -> list[str]:
        """Say in words what `other` has instead; empty where the two agree."""
        mine, theirs = self._leaves(), other._leaves()
        return [
            f"{name} {_json(theirs.get(name)).decode()} instead of {_json(mine.get(name)).decode()}"
            for name in {**mine, **theirs}
            if _json(mine.get(name)) != _json(theirs.get(name))
            and (name not in _MAY_BE_UNKNOWN or None not in (mine[name], theirs[name]))
        ]

    def _leaves(self) -> dict[str, Any]:
        """The fields, and instead of those that are mappings what is in them, as `field.name`."""
        leaves: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            inner = value.items() if isinstance(value, Mapping) else ()
            leaves |= {f"{field.name}.{name}": leaf for name, leaf in inner} or {field.name: value}
        return leaves


@dataclass(frozen=True)
class Header:
    """All that is known before the first chunk is written; `saved_at` is in Unix seconds."""

    identity: Identity
    label: int
    counter: int
    filter: Mapping[str, Any]
    buffer_sizes: tuple[int, ...]
    saved_at: float
    writer: str


@dataclass(frozen=True)
class Contents:
    """The table, and the filter's header and label as they were when its last chunk was copied."""

    filter: Mapping[str, Any]
    buffers: list[memoryview]
    end_label: int


def pieces(
    header: Header,
    buffers: Sequence[memoryview],
    closing: Callable[[], tuple[Mapping[str, Any], int]],
) -> Iterator[bytes | memoryview]:
    """Make the file in pieces, each valid until the next is asked for.

    Other threads may set bits in `buffers` all the while: what is summed and written is a private
    copy of a chunk. `closing` gives the filter's header and the end label; it is called after the
    last chunk was copied.
    """
    head = _head(header)
    salt = crc32c(head)
    yield head + _U32.pack(salt)
    private = memoryview(bytearray(CHUNK_BYTES + _U32.size))
    for index, (number, start, stop) in enumerate(_chunks(header.buffer_sizes)):
        size = stop - start
        private[:size] = buffers[number][start:stop]
        _U32.pack_into(private, size, _chunk_crc(salt, index, private[:size]))
        yield private[: size + _U32.size]
    filter_header, end_label = closing()
    if not header.label <= end_label <= OFFSET_MAX:
        raise SnapshotError(f"the end label {end_label} is below the label {header.label}")
    yield _tail(header, salt, filter_header, end_label)


class Reader:
    """One snapshot read in order: the header as this is made, the rest by `contents()`, once.

    `read_into` fills a whole buffer. DamagedError; SnapshotError where another version wrote it.
    """

    def __init__(self, read_into: Callable[[memoryview], None], size_bytes: int) -> None:
        self._read_into, self._remaining = read_into, size_bytes
        prefix = self._take(_PREFIX.size)
        magic, version, length = _PREFIX.unpack(prefix)
        if magic != MAGIC:
            raise DamagedError("it does not begin like a snapshot")
        text = self._take(_bounded(length, "header"))
        self._salt = crc32c(text, crc32c(prefix))
        if self._take_u32() != self._salt:
            raise DamagedError("its header is damaged: the checksum differs")
        if version != FORMAT_VERSION:
            raise SnapshotError(
                f"it has format version {version} and this streamdedup reads {FORMAT_VERSION}; "
                "use the version that wrote it, or let the output be folded again"
            )
        self.header = _parse_header(text)

    def contents(self) -> Contents:
        """Read the rest, and give it when all is as it was written."""
        sizes = self.header.buffer_sizes
        payload_bytes, chunks = sum(sizes), _chunk_count(sizes)
        if payload_bytes + chunks * _U32.size > self._remaining:
            raise DamagedError(
                f"it is cut short: {payload_bytes} bytes are announced, {self._remaining} are there"
            )
        buffers = [np.empty(size, np.uint8).data for size in sizes]
        for index, (number, start, stop) in enumerate(_chunks(sizes)):
            chunk = buffers[number][start:stop]
            self._fill(chunk)
            if self._take_u32() != _chunk_crc(self._salt, index, chunk):
                raise DamagedError(f"chunk {index} of {chunks} is damaged: the checksum differs")
        filter_header, end_label = self._closing(payload_bytes, chunks)
        return Contents(filter_header, buffers, end_label)

    def _closing(self, payload_bytes: int, chunks: int) -> tuple[dict[str, Any], int]:
        length = self._take_u32()
        if self._remaining != length + _U32.size + len(CLOSING_MAGIC):
            raise DamagedError("its length is not what its trailer says")
        text = self._take(_bounded(length, "trailer"))
        if self._take_u32() != _tail_crc(self._salt, text):
            raise DamagedError("its trailer is damaged: the checksum differs")
        if self._take(len(CLOSING_MAGIC)) != CLOSING_MAGIC:
            raise DamagedError("it does not end like a snapshot")
        raw = _parse_object(text)
        if (_field(raw, "payload_bytes", int), _field(raw, "chunks", int)) != (
            payload_bytes,
            chunks,
        ):
            raise DamagedError("its trailer counts other bytes or chunks than its header")
        end_label = _number(raw, "end_label", at_least=self.header.label)
        return _field(raw, "filter", dict), end_label

    def _take(self, size: int) -> bytearray:
        if size > self._remaining:
            raise DamagedError(
                f"it is cut short: {size} bytes are due, {self._remaining} are there"
            )
        taken = bytearray(size)
        self._fill(memoryview(taken))
        return taken

    def _take_u32(self) -> int:
        return int(_U32.unpack(self._take(_U32.size))[0])

    def _fill(self, view: memoryview) -> None:
        self._read_into(view)
        self._remaining -= len(view)


def _head(header: Header) -> bytes:
    text = _json(
        {
            "identity": header.identity.as_dict(),
            "label": header.label,
            "counter": header.counter,
            "filter": dict(header.filter),
            "buffer_sizes": header.buffer_sizes,
            "saved_at": header.saved_at,
            "writer": header.writer,
        }
    )
    if len(text) > JSON_BYTES_MAX:
        raise SnapshotError(
            f"a snapshot's header would take {len(text)} bytes and the most is {JSON_BYTES_MAX}; "
            "shorten the settings under `key`"
        )
    return _PREFIX.pack(MAGIC, FORMAT_VERSION, len(text)) + text


def _tail(header: Header, salt: int, filter_header: Mapping[str, Any], end_label: int) -> bytes:
    text = _json(
        {
            "filter": dict(filter_header),
            "end_label": end_label,
            "payload_bytes": sum(header.buffer_sizes),
            "chunks": _chunk_count(header.buffer_sizes),
        }
    )
    return _U32.pack(len(text)) + text + _U32.pack(_tail_crc(salt, text)) + CLOSING_MAGIC


def _parse_header(text: bytearray) -> Header:
    raw = _parse_object(text)
    sizes = _field(raw, "buffer_sizes", list)
    if not all(type(size) is int and 0 <= size <= OFFSET_MAX for size in sizes):
        raise DamagedError("its header's field 'buffer_sizes' has other things in it than sizes")
    return Header(
        identity=_parse_identity(_field(raw, "identity", dict)),
        label=_number(raw, "label", at_least=0),
        counter=_number(raw, "counter", at_least=1),
        filter=_field(raw, "filter", dict),
        buffer_sizes=tuple(sizes),
        saved_at=_field(raw, "saved_at", float),
        writer=_field(raw, "writer", str),
    )


def _parse_identity(raw: Mapping[str, object]) -> Identity:
    return Identity(
        hash=_field(raw, "hash", str),
        hash_check=_field(raw, "hash_check", str),
        key=_field(raw, "key", dict),
        normalize=_field(raw, "normalize", str),
        filter=_field(raw, "filter", dict),
        topic=_field(raw, "topic", str),
        partition=_number(raw, "partition", at_least=0),
        partitions=_number(raw, "partitions", at_least=1),
        cluster_id=None if raw.get("cluster_id") is None else _field(raw, "cluster_id", str),
        topic_id=None if raw.get("topic_id") is None else _field(raw, "topic_id", str),
    )


def _parse_object(text: bytearray) -> dict[str, object]:
    try:
        raw = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"its header or trailer is no JSON: {type(error).__name__}") from error
    if not isinstance(raw, dict):
        raise DamagedError("its header or trailer is no JSON object")
    return raw


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _field(raw: Mapping[str, object], name: str, kind: type[T]) -> T:
    value = raw.get(name)
    if type(value) is not kind:  # `isinstance` would take True for an integer
        raise DamagedError(f"its field {name!r} is missing or no {kind.__name__}")
    return value


def _number(raw: Mapping[str, object], name: str, *, at_least: int) -> int:
    value = _field(raw, name, int)
    if not at_least <= value <= OFFSET_MAX:
        raise DamagedError(f"its field {name!r} is out of range")
    return value


def _bounded(length: int, what: str) -> int:
    if length > JSON_BYTES_MAX:
        raise DamagedError(f"its {what} would take {length} bytes and the most is {JSON_BYTES_MAX}")
    return length


def _chunks(sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    for number, size in enumerate(sizes):
        for start in range(0, size, CHUNK_BYTES):
            yield number, start, min(start + CHUNK_BYTES, size)


def _chunk_count(sizes: Sequence[int]) -> int:
    return sum(-(-size // CHUNK_BYTES) for size in sizes)


def _chunk_crc(salt: int, index: int, chunk: memoryview) -> int:
    return crc32c(chunk, crc32c(_CHUNK_SALT.pack(salt, index)))


def _tail_crc(salt: int, text: bytes | bytearray) -> int:
    return crc32c(text, crc32c(_U32.pack(salt) + _U32.pack(len(text))))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
