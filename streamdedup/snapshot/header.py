"""What a snapshot's header says: whose filter it is, of which log, and how long its parts are. As JSON, and back."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NoReturn, TypeVar

from streamdedup.errors import SnapshotError
from streamdedup.events import Fingerprint

JSON_BYTES_MAX = 64 << 10
OFFSET_MAX = (1 << 63) - 1  # Kafka's offsets are int64

_MAY_BE_UNKNOWN = ("cluster_id", "topic_id")

T = TypeVar("T")


class DamagedError(SnapshotError):
    """The bytes are not those that were written; another error: whole, but not for us."""


class ForeignError(DamagedError):
    """Nothing of ours, from the first byte on."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Which log a filter is the fold of, and how keys became digests: all must agree to use it.

    `hash_check` is the digest of a fixed text; `key` and `filter` are settings as plain JSON
    values. An id is None where the broker does not tell one, and then matches any. `partitions` is told only: the
    filter of a partition is the fold of its output, however many others there are.
    Of the log, only what stands at `floor` and above is folded: the rest was forgotten on purpose.
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
    floor: int = 0

    def differences(self, other: "Identity") -> list[str]:
        """Say in words what `other` has instead; empty where the two agree."""
        mine, theirs = self._leaves(), other._leaves()
        return [
            f"{name} {_json(theirs.get(name)).decode()} instead of {_json(mine.get(name)).decode()}"
            for name in {**mine, **theirs}
            if name != "partitions"
            and _json(mine.get(name)) != _json(theirs.get(name))
            and (name not in _MAY_BE_UNKNOWN or None not in (mine[name], theirs[name]))
        ]

    def _leaves(self) -> dict[str, Any]:
        """The fields, and instead of those that are mappings what is in them, as `field.name`."""
        leaves: dict[str, Any] = {}
        for leaf in fields(self):
            value = getattr(self, leaf.name)
            inner = value.items() if isinstance(value, Mapping) else ()
            leaves |= {f"{leaf.name}.{name}": part for name, part in inner} or {leaf.name: value}
        return leaves


@dataclass(frozen=True)
class Log:
    """Which log's fold a filter is, up to which offset, and which generation of its snapshots.

    `fingerprint` is of a record batch below `label`, the last one where possible; None where none could be read.
    """

    identity: Identity
    label: int
    counter: int
    fingerprint: Fingerprint | None = None


@dataclass(frozen=True)
class Header:
    """All that is known before the first chunk is written; `saved_at` is in Unix seconds.

    `log` is None in a library file: a program saved its filter, which is no log's fold.
    """

    filter: Mapping[str, Any]
    buffer_sizes: tuple[int, ...]
    saved_at: float
    writer: str
    log: Log | None = None

    @property
    def identity(self) -> Identity:
        """Of its log; SnapshotError in a library file."""
        return self.of_log().identity

    @property
    def label_min(self) -> int:
        """The least that the end label may be."""
        return self.log.label if self.log else 0

    @property
    def label_max(self) -> int:
        """The most that the end label may be: a library file's is 0."""
        return OFFSET_MAX if self.log else 0

    def of_log(self) -> Log:
        """Its log; SnapshotError in a library file."""
        if self.log is None:
            raise SnapshotError("it is a filter that a program saved, and no fold of a log")
        return self.log


def header_json(header: Header) -> bytes:
    """The header's text; SnapshotError where it is too long."""
    return bounded_json(
        {
            "log": header.log and _log_json(header.log),
            "filter": dict(header.filter),
            "buffer_sizes": header.buffer_sizes,
            "saved_at": header.saved_at,
            "writer": header.writer,
        }
    )


def _log_json(log: Log) -> dict[str, Any]:
    """Without fields for a fingerprint and a floor that are not there: so a file was before there were any."""
    told = asdict(log)
    if log.fingerprint is None:
        del told["fingerprint"]
    if not log.identity.floor:
        del told["identity"]["floor"]
    return told


def bounded_json(value: Mapping[str, object]) -> bytes:
    """As JSON; SnapshotError where it takes more than JSON_BYTES_MAX."""
    text = _json(value)
    if len(text) > JSON_BYTES_MAX:
        raise SnapshotError(
            f"a snapshot's header would take {len(text)} bytes and the most is {JSON_BYTES_MAX}; "
            "shorten the settings under `key`"
        )
    return text


def parse_header(text: bytearray) -> Header:
    """The header that gave this text; DamagedError where none did."""
    raw = parse_object(text)
    sizes = field(raw, "buffer_sizes", list)
    if not all(type(size) is int and 0 <= size <= OFFSET_MAX for size in sizes):
        raise DamagedError("its header's field 'buffer_sizes' has other things in it than sizes")
    if "log" not in raw:
        raise DamagedError("its header's field 'log' is missing")
    return Header(
        log=None if raw["log"] is None else _parse_log(field(raw, "log", dict)),
        filter=field(raw, "filter", dict),
        buffer_sizes=tuple(sizes),
        saved_at=field(raw, "saved_at", float),
        writer=field(raw, "writer", str),
    )


def _parse_log(raw: Mapping[str, object]) -> Log:
    log = Log(
        identity=_parse_identity(field(raw, "identity", dict)),
        label=number(raw, "label", 0),
        counter=number(raw, "counter", 1),
    )
    if "fingerprint" not in raw:
        return log
    return replace(log, fingerprint=_parse_fingerprint(field(raw, "fingerprint", dict), log.label))


def _parse_fingerprint(raw: Mapping[str, object], label: int) -> Fingerprint:
    return Fingerprint(
        offset=number(raw, "offset", 0, label - 1),
        producer_id=number(raw, "producer_id", -1),
        epoch=number(raw, "epoch", -1, (1 << 15) - 1),
        crc=number(raw, "crc", 0, (1 << 32) - 1),
        stamped_ms=number(raw, "stamped_ms", -(1 << 63)),
    )


def _parse_identity(raw: Mapping[str, object]) -> Identity:
    return Identity(
        hash=field(raw, "hash", str),
        hash_check=field(raw, "hash_check", str),
        key=field(raw, "key", dict),
        normalize=field(raw, "normalize", str),
        filter=field(raw, "filter", dict),
        topic=field(raw, "topic", str),
        partition=number(raw, "partition", 0),
        partitions=number(raw, "partitions", 1),
        cluster_id=None if raw.get("cluster_id") is None else field(raw, "cluster_id", str),
        topic_id=None if raw.get("topic_id") is None else field(raw, "topic_id", str),
        floor=number(raw, "floor", 1) if "floor" in raw else 0,
    )


def parse_object(text: bytearray) -> dict[str, object]:
    """A JSON object; DamagedError where it is none."""
    try:
        raw = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"its header or trailer is no JSON: {type(error).__name__}") from error
    if not isinstance(raw, dict):
        raise DamagedError("its header or trailer is no JSON object")
    return raw


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def field(raw: Mapping[str, object], name: str, kind: type[T]) -> T:
    """What an object has by that name, of that very type; DamagedError where it has not."""
    value = raw.get(name)
    if type(value) is not kind:  # `isinstance` would take True for an integer
        raise DamagedError(f"its field {name!r} is missing or no {kind.__name__}")
    return value


def number(raw: Mapping[str, object], name: str, low: int, high: int = OFFSET_MAX) -> int:
    """An integer of an object; DamagedError where it is missing or out of range."""
    value = field(raw, name, int)
    if not low <= value <= high:
        raise DamagedError(f"its field {name!r} is out of range")
    return value


def bounded_length(length: int, what: str) -> int:
    """The length, before that much is read; DamagedError where none is that long."""
    if length > JSON_BYTES_MAX:
        raise DamagedError(f"its {what} would take {length} bytes and the most is {JSON_BYTES_MAX}")
    return length


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
