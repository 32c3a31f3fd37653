"""Extraction: from an event to the bytes that identify it, or to the reason why it has none.

The key of a string is its decoded text, that of an integer its decimal text, so `7` and `"7"` are one key.
Several parts are joined with their lengths, so (ab, c) differs from (a, bc). Everything else is malformed.
A field of a value that a Schema Registry's serializer wrote has the key that it has in JSON. A reason never holds the
key.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from streamdedup.errors import MalformedError
from streamdedup.events import (
    ABSENT,
    NULL,
    REPLACEMENT,
    UNREAD,
    Column,
    EventBatch,
    HeaderColumn,
    Headers,
    Integers,
)
from streamdedup.keys.cells import completed, each
from streamdedup.keys.formats.framed_keys import of_framed_field
from streamdedup.keys.formats.json_fields import json_reader, name_of, of_one_field, steps_of
from streamdedup.keys.formats.schema_registry import UNKNOWN_SCHEMA
from streamdedup.keys.formats.schemas import Schemas
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.keys.options import SCHEMA_FORMATS, Format, Origin, Tombstones
from streamdedup.keys.parts import Found, Part, Reader, first_of
from streamdedup.keys.steps import Steps, drained

ROWS_A_TURN = 100_000
PERHAPS_READ_A_TURN = 8_192
# How much Python code may do for each row of an origin, in units of some 0.7 us. Of `json`, it gives the reason if
# there is no key. An event may have many headers.
READINGS = {"key": 0, "value": 0, "json": 1, "header": 8}
BYTES_A_TURN = 1 << 20  # read in the event loop: below 10 ms, whatever the bytes are


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a batch, one row an event.

    A row has the key's bytes or a null. Each row with a null is in one of the other fields.
    """

    keys: Column
    malformed: dict[int, str]  # row -> reason
    unjudged: Sequence[int]  # rows of tombstones that pass without a verdict of the rules
    dropped: Sequence[int]  # rows of tombstones that the operator drops
    # Row -> reason: whether it has a key is not known, because no registry has its schema.
    unknown: dict[int, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Extractor:
    """Takes the key from `origin`, then normalizes it with `normalizer`, or each of its parts.

    `fields` are paths of names, or the name of one header. With the origin `parts`, these are `mixed`. `schemas` are
    those of a `format` that needs them.
    """

    origin: Origin | Literal["parts"]
    fields: tuple[str, ...] = ()
    tombstones: Tombstones = "pass"
    normalizer: Normalizer | None = None
    format: Format = "json"
    schemas: Schemas | None = dataclasses.field(default=None, compare=False, repr=False)
    mixed: tuple[Part, ...] = ()

    @classmethod
    def of_format(
        cls,
        format_: Format,
        fields: tuple[str, ...],
        tombstones: Tombstones = "pass",
        normalizer: Normalizer | None = None,
    ) -> "Extractor":
        """Return what takes `fields` of values of this format, and knows no schema yet."""
        parts = tuple(Part("json", (field,)) for field in fields)
        return cls.of_parts(parts, tombstones, normalizer, format_)

    @classmethod
    def of_parts(
        cls,
        parts: tuple[Part, ...],
        tombstones: Tombstones = "pass",
        normalizer: Normalizer | None = None,
        format_: Format = "json",
    ) -> "Extractor":
        """Return what joins `parts`, and knows no schema yet.

        Its origin is `parts` only if `json` or `header` cannot say the same.
        """
        origins = {part.origin for part in parts}
        single = tuple(part.names[0] for part in parts if len(part.names) == 1)
        fields = _of("json", parts)
        schemas = Schemas(format_, map(steps_of, fields)) if format_ in SCHEMA_FORMATS else None
        taken = tombstones, normalizer, format_, schemas
        if len(single) == len(parts) and (origins == {"json"} or len(parts) == 1):
            return cls(parts[0].origin, single, *taken)
        return cls("parts", (), *taken, parts)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the key; none if it is the record's key or value."""
        match self.origin:
            case "json" | "header":
                return tuple(Part(self.origin, (name,)) for name in self.fields)
        return self.mixed

    def extract(self, batch: EventBatch) -> Keys:
        """Return the keys of all events of `batch`."""
        return drained(self.steps(batch))

    def steps(self, batch: EventBatch) -> Steps[Keys]:
        """Return the same, in steps: each reads a key by Python code, or a piece of one."""
        keys, malformed = yield from self._read(batch)
        judged = self.tombstones == "judge"
        nulls = _nulls(batch.values)
        tombstones = [] if judged else nulls.tolist()
        for row in tombstones:
            malformed.pop(row, None)
        keys = keys if judged else keys.nulled(nulls)
        passed = self.tombstones == "pass"
        unjudged, dropped = (tombstones, ()) if passed else ((), tombstones)
        unknown = {} if self.schemas is None else _unknown(malformed)
        return Keys(keys, malformed, unjudged, dropped, unknown)

    def keys_of(self, values: Column) -> tuple[Column, dict[int, str]]:
        """Return the keys of the fields of `values`, and why a row has none, in ascending order; without headers."""
        return drained(self._of_parts(values, [[]] * len(values)))

    @property
    def takes_long(self) -> bool:
        """Whether to extract keys in a thread, because it takes too long for the event loop."""
        if any(REPLACEMENT in _as_read(name) for name in _of("header", self.parts)):
            return True  # no kernel finds that name, so Python code reads all headers
        return self.normalizer is not None and self.normalizer.takes_long

    @property
    def rows_a_turn(self) -> int:
        """How many events' keys to extract in one turn of the event loop.

        The number is smaller if Python code reads each event. What a normalizer reads is counted in `steps`.
        """
        if self.takes_long:
            return ROWS_A_TURN
        asks = sum(READINGS[part.origin] * len(part.names) for part in self.parts)
        return PERHAPS_READ_A_TURN // asks if asks else ROWS_A_TURN

    def takes_long_for(self, batch: EventBatch) -> bool:
        """Return whether to extract the keys of `batch` in a thread: so many bytes would hold up the event loop.

        A few kB on the wire may be any amount here. Headers are not counted.
        """
        if self.takes_long:
            return True
        column = batch.keys if self.origin == "key" else batch.values
        is_whole = self.origin in ("key", "value")
        times = self.normalizer is not None if is_whole else len(_of("json", self.parts))
        return times * int(column.sizes.sum()) > BYTES_A_TURN

    def awaits(self, batch: EventBatch) -> bool:
        """Return whether a schema of `batch` is not known yet."""
        return self.schemas is not None and bool(self.schemas.unresolved(batch.values))

    def warm_up(self) -> None:
        """Compile the kernels that `extract` runs or load them from the cache.

        Called at set-up, so that no batch waits for it. The kernel that finds a header is part of `kafka`,
        which warms it up with all others that read records.
        """
        if len(self.parts) > 1:
            from streamdedup.keys import join  # imported here, because it imports numba

            join.warm_up()
        if fields := _of("json", self.parts):
            from streamdedup.keys.formats import (
                json_exact,  # imported here, because it imports numba
            )

            json_keys(fields, Column.of([b""]))
            json_exact.warm_up()
            if self.format != "json":
                from streamdedup.keys.formats import (
                    framing,
                )  # imported here, because it imports numba

                framing.warm_up()
            if self.schemas is not None:
                self.schemas.warm_up()
        if self.normalizer:
            self.normalizer.of_column(Column.of([b""]))

    def _read(self, batch: EventBatch) -> Steps[tuple[Column, dict[int, str]]]:
        match self.origin:
            case "key":
                read = _column(batch.keys, "the record key is null")
            case "value":
                read = _column(batch.values, "the value is null")
            case _:
                return (yield from self._of_parts(batch.values, batch.headers))
        return (yield from _normalized(self.normalizer, *read))

    def _of_parts(
        self, values: Column, headers: Sequence[Headers]
    ) -> Steps[tuple[Column, dict[int, str]]]:
        """Return the keys of the parts, whatever the format of `values` is."""
        if self.format == "json_schema":
            from streamdedup.keys.formats import framing  # imported here, because it imports numba

            values = framing.unframed(values)
        parts = self.parts
        fields = _of("json", parts)
        read: dict[str, Reader] = {"header": partial(_header, headers)}
        if fields and self.schemas is None:
            read["json"] = json_reader(fields, values)
        elif fields:
            read["json"] = partial(self._framed_field, fields, values)
        found = []
        for part in parts:
            keys, malformed = first_of(part.names, read[part.origin])
            found.append((yield from _normalized(self.normalizer, keys, malformed)))
        return _joined(found)

    def _framed_field(
        self, fields: Sequence[str], values: Column, field: str, rows: Integers | slice
    ) -> Found:
        """Return what `field`, one of `fields`, leads to in `rows` of `values`, of a format with schemas."""
        assert self.schemas is not None  # noqa: S101 - the caller read the schemas' format
        name, texts = name_of(steps_of(field)), values.take(rows)
        of_json = partial(of_one_field, field)
        return of_framed_field(self.schemas, fields.index(field), name, texts, of_json)


def _of(origin: str, parts: Sequence[Part]) -> tuple[str, ...]:
    """Return all names of the parts of that origin, each once."""
    names = (name for part in parts if part.origin == origin for name in part.names)
    return tuple(dict.fromkeys(names))


def json_keys(
    fields: Sequence[str | tuple[str, ...]], texts: Column, normalizer: Normalizer | None = None
) -> tuple[Column, dict[int, str]]:
    """Return the keys of `texts`, one row each, and why a row has none, in ascending order.

    A field is a dotted path of names. If it begins with `/`, it is a JSON Pointer (RFC 6901). Of a tuple of fields, the
    first counts that is neither missing nor null. The keys of several fields are joined; each part is normalized
    before.
    """
    given = [(field,) if isinstance(field, str) else field for field in fields]
    extractor = Extractor.of_parts(
        tuple(Part("json", names) for names in given), "pass", normalizer
    )
    return extractor.keys_of(texts)


def _joined(read: Sequence[tuple[Column, dict[int, str]]]) -> tuple[Column, dict[int, str]]:
    """Return one key for each row, of what was read of each field."""
    if len(read) == 1:
        return read[0]
    from streamdedup.keys.join import joined  # imported here, because it imports numba

    malformed: dict[int, str] = {}
    for _, reasons in reversed(read):  # the first field that is missing is named
        malformed |= reasons
    return joined([keys for keys, _ in read]), dict(sorted(malformed.items()))


def _normalized(
    normalizer: Normalizer | None, keys: Column, malformed: dict[int, str]
) -> Steps[tuple[Column, dict[int, str]]]:
    """Return the normalized `keys`, and the reasons for all nulls, old and new, in ascending order."""
    if normalizer is None:
        return keys, malformed
    keys, more = yield from normalizer.steps(keys)
    return keys, dict(sorted((malformed | more).items())) if more else malformed


def _unknown(malformed: dict[int, str]) -> dict[int, str]:
    """Take the rows from `malformed` whose schemas are not known, and return them."""
    rows = [row for row, reason in malformed.items() if reason.endswith(UNKNOWN_SCHEMA)]
    return {row: malformed.pop(row) for row in rows}


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


def _header(column: Sequence[Headers], name: str, rows: Integers | slice) -> Found:
    """Return the last header of that name in each of `rows`.

    A kernel finds it, or that there is none, if the headers are still in the wire format.
    """
    read = partial(_last_header, name=name)
    if not isinstance(column, HeaderColumn):
        taken = column[rows] if isinstance(rows, slice) else [column[row] for row in rows.tolist()]
        keys, malformed = each(read, taken)
        return Found(keys, malformed, _nulls(keys))
    column = column.take(rows)
    found = column.located(name)
    without = [(ABSENT, f"the header {name} is missing"), (NULL, f"the header {name} is null")]
    reasons = {
        row: reason
        for size, reason in without
        for row in (found.sizes == size).nonzero()[0].tolist()
    }
    unread = (found.sizes == UNREAD).nonzero()[0]
    plain = Column(found.buffer, found.starts, found.sizes.clip(min=NULL))
    keys, more = completed(plain, unread, read, column.take(unread))
    malformed = dict(sorted((reasons | more).items())) if reasons or more else {}
    return Found(keys, malformed, _nulls(keys))


def _as_read(name: str) -> str:
    """Return the name that a header with the bytes of `name` is read with."""
    return name.encode("utf-8", "surrogatepass").decode(errors="replace")


def _last_header(headers: Headers, name: str) -> bytes:
    """Return the last header of that name. Kafka, too, takes the last one if a name is repeated."""
    for found, value in reversed(headers):
        if found == name:
            return _present(value, f"the header {name} is null")
    raise MalformedError(f"the header {name} is missing")
