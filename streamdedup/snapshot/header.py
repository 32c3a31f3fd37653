"""A snapshot's header, to JSON and back: the filter, the log it is the fold of, and how long its parts are."""

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NoReturn, TypeVar

from streamdedup.errors import SnapshotError
from streamdedup.events import Fingerprint

JSON_BYTES_MAX = 64 << 10
DRAWN = "drawn"  # the `hash_check` of an identity whose filters have each a secret of their own
DEPTH_MAX = 64  # of arrays and objects; those of our headers go 5 deep
OFFSET_MAX = (1 << 63) - 1  # Kafka's offsets are int64

_MAY_BE_UNKNOWN = ("cluster_id", "topic_id")
_SETTINGS = (
    "hash",
    "hash_check",
    "key",
    "normalize",
    "filter",
)  # of an identity; the rest is the log

T = TypeVar("T")


class DamagedFileError(SnapshotError):
    """The bytes are not those that were written. A plain SnapshotError means: intact, but not for us."""


class ForeignError(DamagedFileError):
    """The file is none of ours: already its first bytes differ."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Which log a filter is the fold of, and how keys became digests. A filter is used only if all of this agrees.

    `hash_check` is the digest of a fixed text, or DRAWN. `key` and `filter` are settings as plain JSON values. An id is
    None if the broker does not report one, and then matches any. `partitions` is only for information: the filter of a
    partition is the fold of its output, however many others there are. Only what stands at the offset `floor` and
    above is folded: the rest was forgotten on purpose.
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
        """Describe in words what differs in `other`, one text a field; empty if the two agree."""
        mine, theirs = self._leaves(), other._leaves()
        return [
            f"{name} {_json(theirs.get(name)).decode()} instead of {_json(mine.get(name)).decode()}"
            for name in self._differing(other)
        ]

    def is_of_log_of(self, other: "Identity") -> bool:
        """Return whether both are of one log: at most their settings differ, which an operator may put back."""
        return not self._differing(
            replace(other, **{name: getattr(self, name) for name in _SETTINGS})
        )

    @property
    def kind(self) -> str:
        """The kind of the filter."""
        return str(self.filter["kind"])

    def way_to(self, other: "Identity") -> str:
        """Return, for messages, which options to change so that this identity becomes `other`, of the same log."""
        names = [_OPTIONS.get(name, name) for name in self._differing(other)]
        ways = [_hash_of(other)] if _OPTIONS["hash_check"] in names else []
        ways += ["start the version of then"] if _TABLE in names else []
        # If no kind was named, there is none to put back.
        ways += [f"set {_KIND}: {other.kind}"] if _KIND in names else []
        others = [name for name in names if name not in (_OPTIONS["hash_check"], _TABLE, _KIND)]
        return " and ".join([*ways, *([f"put {', '.join(others)} back"] if others else [])])

    def _differing(self, other: "Identity") -> list[str]:
        """Return the names of the leaves that differ in `other`."""
        mine, theirs = self._leaves(), other._leaves()
        return [
            name
            for name in {**mine, **theirs}
            if name != "partitions"
            and _json(mine.get(name)) != _json(theirs.get(name))
            and (name not in _MAY_BE_UNKNOWN or None not in (mine[name], theirs[name]))
        ]

    def _leaves(self) -> dict[str, Any]:
        """Return the fields; a field that is a mapping is replaced by its entries, named `field.name`."""
        leaves: dict[str, Any] = {}
        for leaf in fields(self):
            value = getattr(self, leaf.name)
            inner = value.items() if isinstance(value, Mapping) else ()
            leaves |= {f"{leaf.name}.{name}": part for name, part in inner} or {leaf.name: value}
        return leaves


_KIND = "filter.kind"
_TABLE = "filter.table"  # a leaf that no option decides, but the version
# How the options are called that decide a leaf of an identity, if not by its name.
_OPTIONS = {
    "hash": "filter.hash",
    "hash_check": "filter.hash",
    "key.fields": "key.field",
    "key.tombstones": "source.tombstones",
    "key.placement": "source.repartition",
    "normalize": "key.normalize",
    "filter.grows": "filter.on_full",
}


def _hash_of(identity: Identity) -> str:
    """Return, for messages, how to configure the hash of that identity."""
    if identity.hash != "siphash":
        return f"set filter.hash: {identity.hash}, without a secret"
    if identity.hash_check == DRAWN:
        return "unset filter.hash_key_file, with filter.hash: siphash"
    return "set filter.hash_key_file to the secret of then"


@dataclass(frozen=True)
class Log:
    """The log that a filter is the fold of, the offset it was folded up to, and the generation of this snapshot.

    `fingerprint` is that of a record batch below `label`, the last one if possible; None if none could be read.
    `input_id` is the topic id of the input that was read; it is no part of the identity, because an input that was made
    again has the same output. None if it is not known. `schemas` are the digests of the schemas of a registry that were
    met last, by id.
    """

    identity: Identity
    label: int
    counter: int
    fingerprint: Fingerprint | None = None
    input_id: str | None = None
    schemas: Mapping[int, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Header:
    """Everything that is known before the first chunk is written. `saved_at` is in Unix seconds.

    `log` is None in a library file: a program saved its filter, which is the fold of no log. `secret` is that of the
    hash if it was drawn, and else empty: a secret that was configured is in no file.
    """

    filter: Mapping[str, Any]
    buffer_sizes: tuple[int, ...]
    saved_at: float
    writer: str
    log: Log | None = None
    secret: bytes = dataclasses.field(default=b"", repr=False)

    @property
    def identity(self) -> Identity:
        """The identity of its log. SnapshotError in a library file."""
        return self.of_log().identity

    @property
    def label_min(self) -> int:
        """The smallest valid end label."""
        return self.log.label if self.log else 0

    @property
    def label_max(self) -> int:
        """The largest valid end label: 0 in a library file."""
        return OFFSET_MAX if self.log else 0

    def of_log(self) -> Log:
        """Return its log. SnapshotError in a library file."""
        if self.log is None:
            raise SnapshotError("it is a filter that a program saved, and not the fold of a log")
        return self.log


def header_json(header: Header) -> bytes:
    """Return the header's text, without a secret if none was drawn. SnapshotError if it is too long."""
    raw: dict[str, object] = {
        "log": header.log and _log_json(header.log),
        "filter": dict(header.filter),
        "buffer_sizes": header.buffer_sizes,
        "saved_at": header.saved_at,
        "writer": header.writer,
    }
    return bounded_json(raw | ({"secret": header.secret.hex()} if header.secret else {}))


def _log_json(log: Log) -> dict[str, Any]:
    """Leave out a fingerprint, an input id, schemas and a floor that are not set.

    So the text is that of files from before these fields existed.
    """
    fields = asdict(log)
    if log.fingerprint is None:
        del fields["fingerprint"]
    if log.input_id is None:
        del fields["input_id"]
    if not log.schemas:
        del fields["schemas"]
    if not log.identity.floor:
        del fields["identity"]["floor"]
    return fields


def bounded_json(value: Mapping[str, object]) -> bytes:
    """Return `value` as JSON. SnapshotError if that takes more than JSON_BYTES_MAX."""
    text = _json(value)
    if len(text) > JSON_BYTES_MAX:
        raise SnapshotError(
            f"a snapshot's header would take {len(text)} bytes and the limit is {JSON_BYTES_MAX}; "
            "shorten the settings under `key`"
        )
    return text


def parse_header(text: bytearray) -> Header:
    """Return the header with this text. DamagedFileError if the text is not that of a header."""
    raw = parse_object(text)
    sizes = field(raw, "buffer_sizes", list)
    if not all(type(size) is int and 0 <= size <= OFFSET_MAX for size in sizes):
        raise DamagedFileError(
            "its header's field 'buffer_sizes' contains something that is not a size"
        )
    if "log" not in raw:
        raise DamagedFileError("its header's field 'log' is missing")
    return Header(
        log=None if raw["log"] is None else _parse_log(field(raw, "log", dict)),
        filter=field(raw, "filter", dict),
        buffer_sizes=tuple(sizes),
        saved_at=field(raw, "saved_at", float),
        writer=field(raw, "writer", str),
        secret=_parse_secret(field(raw, "secret", str)) if "secret" in raw else b"",
    )


def _parse_secret(text: str) -> bytes:
    if not re.fullmatch("[0-9a-f]{32}", text):
        raise DamagedFileError("its header's field 'secret' is not 32 hexadecimal digits")
    return bytes.fromhex(text)


def _parse_log(raw: Mapping[str, object]) -> Log:
    log = Log(
        identity=_parse_identity(field(raw, "identity", dict)),
        label=number(raw, "label", 0),
        counter=number(raw, "counter", 1),
        input_id=field(raw, "input_id", str) if "input_id" in raw else None,
        schemas=_parse_schemas(field(raw, "schemas", dict)) if "schemas" in raw else {},
    )
    if "fingerprint" not in raw:
        return log
    return replace(log, fingerprint=_parse_fingerprint(field(raw, "fingerprint", dict), log.label))


def _parse_schemas(raw: Mapping[str, object]) -> Mapping[int, str]:
    for number, digest in raw.items():
        is_id = re.fullmatch("0|[1-9][0-9]{0,9}", number)
        if not is_id or not re.fullmatch("[0-9a-f]{16}", str(digest)):
            raise DamagedFileError(
                "its header's field 'schemas' has something else than ids and digests"
            )
    return {int(number): str(digest) for number, digest in raw.items()}


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
    """Return a JSON object. DamagedFileError if the text is none, or is nested deeper than DEPTH_MAX."""
    # What Python's reader refuses depends on its version, and goes up to 65,000.
    if _depth(text) > DEPTH_MAX:
        raise DamagedFileError(f"its header or trailer is nested deeper than {DEPTH_MAX}")
    try:
        raw = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(
            f"its header or trailer is not JSON: {type(error).__name__}"
        ) from error
    if not isinstance(raw, dict):
        raise DamagedFileError("its header or trailer is not a JSON object")
    return raw


_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_BRACKET = re.compile(rb"[][{}]")


def _depth(text: bytearray) -> int:
    """Return how deep arrays and objects are nested, if the text is JSON. Brackets in strings do not count."""
    depth = deepest = 0
    for bracket in _BRACKET.finditer(_STRING.sub(b"", text)):
        depth += 1 if bracket[0] in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def field(raw: Mapping[str, object], name: str, kind: type[T]) -> T:
    """Return the value of a field, which must be of exactly this type. DamagedFileError if it is missing or is not."""
    value = raw.get(name)
    if type(value) is not kind:  # `isinstance` would take True for an integer
        raise DamagedFileError(f"its field {name!r} is missing or not of type {kind.__name__}")
    return value


def number(raw: Mapping[str, object], name: str, low: int, high: int = OFFSET_MAX) -> int:
    """Return an integer field. DamagedFileError if it is missing or out of range."""
    value = field(raw, name, int)
    if not low <= value <= high:
        raise DamagedFileError(f"its field {name!r} is out of range")
    return value


def bounded_length(length: int, what: str) -> int:
    """Return `length`, before that much is read. DamagedFileError if it is above JSON_BYTES_MAX."""
    if length > JSON_BYTES_MAX:
        raise DamagedFileError(
            f"its {what} would take {length} bytes and the limit is {JSON_BYTES_MAX}"
        )
    return length


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
