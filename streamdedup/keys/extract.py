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
from itertools import accumulate
from typing import Literal

import numpy as np

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
    concatenated,
)
from streamdedup.keys.cells import completed
from streamdedup.keys.formats.framed_keys import of_framed_field
from streamdedup.keys.formats.json_fields import json_reader, name_of, of_one_field, steps_of
from streamdedup.keys.formats.schema_registry import (
    HEAD_BYTES,
    UNKNOWN_SCHEMA,
    VALUE_HEADER,
    Framing,
)
from streamdedup.keys.formats.schemas import Known, Schemas
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.keys.options import SCHEMA_FORMATS, Format, Origin, Tombstones
from streamdedup.keys.parts import Cells, Part, Reader, first_of
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

    @classmethod
    def joined(cls, parts: Sequence["Keys"]) -> "Keys":
        """Return the keys of the parts of a batch as those of all of it."""
        if len(parts) == 1:
            return parts[0]
        buffers = [part.keys.buffer for part in parts]
        before = [0, *accumulate(map(len, buffers))]
        starts = [part.keys.starts + at for part, at in zip(parts, before, strict=False)]
        sizes = np.concatenate([part.keys.sizes for part in parts])
        column = Column(concatenated(buffers), np.concatenate(starts), sizes)
        malformed, unknown = dict[int, str](), dict[int, str]()
        unjudged, dropped, row = list[int](), list[int](), 0
        for part in parts:
            malformed |= {row + at: why for at, why in part.malformed.items()}
            unknown |= {row + at: why for at, why in part.unknown.items()}
            unjudged += [row + at for at in part.unjudged]
            dropped += [row + at for at in part.dropped]
            row += len(part.keys)
        return cls(column, malformed, unjudged, dropped, unknown)


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
    framing: Framing = "auto"
    schemas: Schemas | None = dataclasses.field(default=None, compare=False, repr=False)
    mixed: tuple[Part, ...] = ()

    @classmethod
    def of_parts(
        cls,
        parts: tuple[Part, ...],
        tombstones: Tombstones = "pass",
        normalizer: Normalizer | None = None,
        format_: Format = "json",
        framing: Framing = "auto",
    ) -> "Extractor":
        """Return what joins `parts`, and knows no schema yet.

        Its origin is `parts` only if `json` or `header` cannot say the same.
        """
        origins = {part.origin for part in parts}
        single = tuple(part.names[0] for part in parts if len(part.names) == 1)
        fields = _of("json", parts)
        schemas = Schemas(format_, map(steps_of, fields)) if format_ in SCHEMA_FORMATS else None
        taken = tombstones, normalizer, format_, framing, schemas
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
        """Return the same, in steps: each reads a key by Python code, or a piece of one.

        All of them read by the schemas that are known now, whatever is dropped before they end.
        """
        return self._steps(batch, self._known)

    @property
    def _known(self) -> Known | None:
        return None if self.schemas is None else self.schemas.known

    def _steps(self, batch: EventBatch, known: Known | None) -> Steps[Keys]:
        keys, malformed = yield from self._read(batch, known)
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
        return drained(self._of_parts(values, None, self._known))

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
        return self.schemas is not None and bool(self.schemas.unresolved(self.heads(batch)))

    def texts(self, batch: EventBatch) -> Column:
        """Return the values as they are read: JSON without a frame; by a schema, with the prefix that names it."""
        if self.format == "json":
            return batch.values
        framed = self._prefixed(batch.values, batch.headers)
        if self.schemas is not None:
            return framed
        from streamdedup.keys.formats import framing  # imported here: few use its kernels

        return framing.unframed(framed)

    def heads(self, batch: EventBatch) -> Column:
        """Return the beginning of each value, with the prefix that names its schema."""
        values = batch.values
        few = Column(values.buffer, values.starts, np.minimum(values.sizes, HEAD_BYTES))
        return self._prefixed(few, batch.headers)

    def _prefixed(self, values: Column, headers: HeaderColumn | None) -> Column:
        """Return the values, each with the prefix that names its schema, if another frame does."""
        if self.framing == "prefix":
            return values
        from streamdedup.keys.formats import frames  # imported here: few use its kernels

        cells = None
        if headers is not None and self.schemas is not None and self.framing != "id64":
            cells = _cells_of(VALUE_HEADER, headers)
        number_of = self.schemas.number_of if self.schemas else len
        return frames.in_prefix(self.framing, values, cells, number_of)

    def warm_up(self) -> None:
        """Compile the kernels that `extract` runs or load them from the cache.

        Called at set-up, so that no batch waits for it. The kernel that finds a header is part of `kafka`,
        which warms it up with all others that read records.
        """
        if len(self.parts) > 1:
            from streamdedup.keys import join  # imported here: few use its kernels

            join.warm_up()
        if fields := _of("json", self.parts):
            # Imported here: few use their kernels.
            from streamdedup.keys.formats import json_exact

            json_keys(fields, Column.of([b""]))
            json_exact.warm_up()
            if self.format != "json":
                from streamdedup.keys.formats import frames, framing

                framing.warm_up()
                frames.warm_up()
            if self.schemas is not None:
                self.schemas.warm_up()
        if self.normalizer:
            self.normalizer.of_column(Column.of([b""]))

    def _read(self, batch: EventBatch, known: Known | None) -> Steps[tuple[Column, dict[int, str]]]:
        match self.origin:
            case "key":
                read = _column(batch.keys, "the record key is null")
            case "value":
                read = _column(batch.values, "the value is null")
            case _:
                return (yield from self._of_parts(batch.values, batch.headers, known))
        return (yield from _normalized(self.normalizer, *read))

    def _of_parts(
        self, values: Column, headers: HeaderColumn | None, known: Known | None
    ) -> Steps[tuple[Column, dict[int, str]]]:
        """Return the keys of the parts, whatever the format of `values` is."""
        if self.format == "json_schema":
            from streamdedup.keys.formats import framing  # imported here: few use its kernels

            values = framing.unframed(self._prefixed(values, None))
        parts = self.parts
        fields = _of("json", parts)
        read: dict[str, Reader] = {}
        if headers is not None:
            read["header"] = partial(_header, headers)
        if fields and known is None:
            read["json"] = json_reader(fields, values)
        elif fields and known is not None:
            texts = self._prefixed(values, headers)
            read["json"] = partial(_framed_field, known, fields, texts)
        found = []
        for part in parts:
            keys, malformed = first_of(part.names, read[part.origin])
            found.append((yield from _normalized(self.normalizer, keys, malformed)))
        return _joined(found)


def _framed_field(
    known: Known, fields: Sequence[str], values: Column, field: str, rows: Integers | slice
) -> Cells:
    """Return what `field`, one of `fields`, leads to in `rows` of `values`, of a format with schemas."""
    name, texts = name_of(steps_of(field)), values.take(rows)
    return of_framed_field(known, fields.index(field), name, texts, partial(of_one_field, field))


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
    from streamdedup.keys.join import joined  # imported here: few use its kernels

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


def _header(column: HeaderColumn, name: str, rows: Integers | slice) -> Cells:
    """Return the last header of that name in each of `rows`.

    A kernel finds it, or that there is none.
    """
    read = partial(_last_header, name=name)
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
    return Cells(keys, malformed, _nulls(keys))


def _cells_of(name: str, column: HeaderColumn) -> Column | None:
    """Return the last header of that name in each row, null if it has none; None if no row has one."""
    read = partial(_optional, name=name)
    found = column.located(name)
    if (found.sizes <= NULL).all() and not (found.sizes == UNREAD).any():
        return None
    plain = Column(found.buffer, found.starts, found.sizes.clip(min=NULL))
    unread = (found.sizes == UNREAD).nonzero()[0]
    if not len(unread):
        return plain
    return plain.replaced(unread, Column.of([read(each) for each in column.take(unread)]))


def _optional(headers: Headers, name: str) -> bytes | None:
    return next((value for found, value in reversed(headers) if found == name), None)


def _as_read(name: str) -> str:
    """Return the name that a header with the bytes of `name` is read with."""
    return name.encode("utf-8", "surrogatepass").decode(errors="replace")


def _last_header(headers: Headers, name: str) -> bytes:
    """Return the last header of that name. Kafka, too, takes the last one if a name is repeated."""
    for found, value in reversed(headers):
        if found == name:
            return _present(value, f"the header {name} is null")
    raise MalformedError(f"the header {name} is missing")
