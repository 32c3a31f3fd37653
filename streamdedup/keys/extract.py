"""Extraction: from an event to the bytes that identify it, or to the reason why it has none.

The key of a string is its decoded text, that of an integer its decimal text, so `7` and `"7"` are one key.
Several fields are joined with their lengths, so (ab, c) differs from (a, bc). Everything else is malformed.
A reason never holds the key.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import orjson

from streamdedup.errors import MalformedError
from streamdedup.events import Column, EventBatch, HeaderColumn, Headers, Integers
from streamdedup.keys.cells import completed, each
from streamdedup.keys.formats.schema_registry import looks_registered
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.keys.options import Origin, Tombstones

MISSING = object()
ROWS_A_TURN, OBJECTS_A_TURN = 100_000, 1_000
PERHAPS_OBJECTS_A_TURN = 2_048  # Python code may read each row, at about 3 us a row
# How much Python code may read each row for an origin, relative to `json`. An event may have many headers.
READINGS = {"key": 0, "value": 0, "json": 1, "header": 2}
NOT_JSON = "the value is not valid JSON"
FLOATS_FROM = 2.0**63  # from here on, orjson returns a float for an integer, too
_DIGITS = re.compile(rb"[0-9]{19}")  # the fewest digits of such an integer
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")  # RFC 6901: no leading zeros


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a batch, one row an event.

    A row has the key's bytes or a null. Each row with a null is in one of the other fields.
    """

    keys: Column
    malformed: dict[int, str]  # row -> reason
    unjudged: Sequence[int]  # rows of tombstones that pass without a verdict of the rules
    dropped: Sequence[int]  # rows of tombstones that the operator drops


@dataclass(frozen=True, slots=True)
class Extractor:
    """Takes the key from `origin`, then normalizes it with `normalizer`.

    `fields` are JSON paths, or the name of one header.
    """

    origin: Origin
    fields: tuple[str, ...] = ()
    tombstones: Tombstones = "pass"
    normalizer: Normalizer | None = None

    def extract(self, batch: EventBatch) -> Keys:
        """Return the keys of all events of `batch`."""
        keys, malformed = self._read(batch)
        judged = self.tombstones == "judge"
        nulls = _nulls(batch.values)
        tombstones = [] if judged else nulls.tolist()
        for row in tombstones:
            malformed.pop(row, None)
        keys = keys if judged else keys.nulled(nulls)
        passed = self.tombstones == "pass"
        return Keys(keys, malformed, tombstones if passed else (), () if passed else tombstones)

    @property
    def takes_long(self) -> bool:
        """Whether to extract keys in a thread, because it takes too long for the event loop."""
        return self.normalizer is not None and self.normalizer.takes_long

    @property
    def rows_a_turn(self) -> int:
        """How many events' keys to extract in one turn of the event loop.

        The number is smaller if Python code reads each event.
        """
        if self.takes_long:
            return ROWS_A_TURN
        if len(self.fields) > 1 or (self.origin == "json" and _may_index(self.fields[0])):
            return OBJECTS_A_TURN
        asks = READINGS[self.origin] + (self.normalizer is not None)
        return PERHAPS_OBJECTS_A_TURN // asks if asks else ROWS_A_TURN

    def warm_up(self) -> None:
        """Compile the kernels that `extract` runs or load them from the cache.

        Called at set-up, so that no batch waits for it. The kernel that finds a header is part of `kafka`,
        which warms it up with all others that read records.
        """
        if len(self.fields) > 1:
            return  # several fields are read without a kernel
        if self.origin == "json":
            json_keys(self.fields, Column.of([b""]))
        if self.normalizer:
            self.normalizer.of_column(Column.of([b""]))

    def _read(self, batch: EventBatch) -> tuple[Column, dict[int, str]]:
        match self.origin:
            case "json":
                return json_keys(self.fields, batch.values, self.normalizer)
            case "key":
                read = _column(batch.keys, "the record key is null")
            case "value":
                read = _column(batch.values, "the value is null")
            case "header":
                read = _last_headers(self.fields[0], batch.headers)
        return _normalized(self.normalizer, *read)


def json_keys(
    fields: Sequence[str], texts: Column, normalizer: Normalizer | None = None
) -> tuple[Column, dict[int, str]]:
    """Return the keys of `texts`, one row each, and why a row has none, in ascending order.

    The result is that of `json_reader`. But for a single field, a kernel finds most keys.
    """
    if len(fields) > 1:
        return each(json_reader(fields, normalizer), texts)
    return _normalized(normalizer, *_of_one_field(fields[0], texts))


def json_reader(
    fields: Sequence[str], normalizer: Normalizer | None = None
) -> Callable[[bytes | None], bytes]:
    """Return a function from a JSON text to its key, each part of it normalized; it raises MalformedError.

    A field is a dotted path of names. If it begins with `/`, it is a JSON Pointer (RFC 6901).
    """
    paths = [_steps(field) for field in fields]
    normal = normalizer.of_key if normalizer else bytes

    def read(text: bytes | None) -> bytes:
        given = _present(text, "the value is null")
        document, parts = _parse(given), []
        for steps in paths:
            found = _follow(document, steps)
            if type(found) is float and abs(found) >= FLOATS_FROM and _DIGITS.search(given):
                document = _parse_exactly(given)  # the next fields read this document, too
                found = _follow(document, steps)
            parts.append(normal(_text(found, steps)))
        return parts[0] if len(parts) == 1 else _join(parts)

    return read


def _normalized(
    normalizer: Normalizer | None, keys: Column, malformed: dict[int, str]
) -> tuple[Column, dict[int, str]]:
    """Return the normalized `keys`, and the reasons for all nulls, old and new, in ascending order."""
    if normalizer is None:
        return keys, malformed
    keys, more = normalizer.of_column(keys)
    return keys, dict(sorted((malformed | more).items())) if more else malformed


def _of_one_field(field: str, texts: Column) -> tuple[Column, dict[int, str]]:
    from streamdedup.keys.formats.json_column import (
        located,  # imported here, because it imports numba
    )

    found = located(_steps(field), texts)
    return completed(found, _nulls(found), _reader(field), texts)


@cache
def _reader(field: str) -> Callable[[bytes | None], bytes]:
    """Return the reader of one field. It is cached, since every batch asks for it and few use it."""
    return json_reader([field])


def _column(column: Column, reason: str) -> tuple[Column, dict[int, str]]:
    return column, dict.fromkeys(_nulls(column).tolist(), reason)


def _nulls(column: Column) -> Integers:
    """Return the rows that are null."""
    # np.flatnonzero has more overhead than the work of most batches.
    return (column.sizes < 0).nonzero()[0]


def _present(cell: bytes | None, reason: str) -> bytes:
    if cell is None:
        raise MalformedError(reason)
    return cell


def _last_headers(name: str, column: Sequence[Headers]) -> tuple[Column, dict[int, str]]:
    """Return the last header of that name in each row.

    A kernel finds it if the headers are still in the wire format.
    """
    read = partial(_last_header, name=name)
    if not isinstance(column, HeaderColumn):
        return each(read, column)
    found = column.located(name)
    return completed(found, _nulls(found), read, column)


def _last_header(headers: Headers, name: str) -> bytes:
    """Return the last header of that name. Kafka, too, takes the last one if a name is repeated."""
    for found, value in reversed(headers):
        if found == name:
            return _present(value, f"the header {name} is null")
    raise MalformedError(f"the header {name} is missing")


def _steps(field: str) -> tuple[str, ...]:
    if not field.startswith("/"):
        return tuple(field.split("."))
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in field[1:].split("/"))


def _may_index(field: str) -> bool:
    """Return whether the path may lead to an element of an array, which no kernel can follow."""
    return any(map(_INDEX.fullmatch, _steps(field)))


def _parse(text: bytes) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise MalformedError(_why_not_json(text)) from None


def _why_not_json(text: bytes) -> str:
    looks = looks_registered(text)
    if looks is None:
        return NOT_JSON
    return f"the value {looks}: take the key from the record key (key.from: key), or have a converter write plain JSON"


def _text(found: object, steps: tuple[str, ...]) -> bytes:
    if type(found) is str:
        return found.encode()
    if type(found) is int:
        return b"%d" % found
    raise MalformedError(f"the field {_name(steps)} is {_kind(found)}")


def _follow(document: object, steps: tuple[str, ...]) -> object:
    for step in steps:
        if isinstance(document, dict):
            document = document.get(step, MISSING)
        elif isinstance(document, list) and _INDEX.fullmatch(step):
            document = document[int(step)] if int(step) < len(document) else MISSING
        else:
            return MISSING
    return document


def _parse_exactly(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedError(NOT_JSON) from None


def _name(steps: tuple[str, ...]) -> str:
    return "/" + "/".join(steps) if any("." in step for step in steps) else ".".join(steps)


def _kind(found: object) -> str:
    kinds = {dict: "an object", list: "an array", bool: "a boolean", float: "not an integer"}
    if found is MISSING:
        return "missing"
    return "null" if found is None else kinds.get(type(found), "of another type")


def _join(parts: Sequence[bytes]) -> bytes:
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)
