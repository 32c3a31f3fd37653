"""Extraction: from an event to the bytes that identify it, or to the reason why it has none.

The key of a string is its decoded text, that of an integer its decimal text, so `7` and `"7"` are one key.
Several fields are joined with their lengths, so (ab, c) differs from (a, bc). Everything else is malformed.
A field of a value that a Schema Registry's serializer wrote has the key that it has in JSON. A reason never holds the
key.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

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
)
from streamdedup.keys.cells import completed, each
from streamdedup.keys.formats.framed_keys import of_framed_field
from streamdedup.keys.formats.json_kinds import NAMES, Kind, Kinds
from streamdedup.keys.formats.schema_registry import (
    LOOKS_REGISTERED,
    PREFIX_BYTES,
    UNKNOWN_SCHEMA,
)
from streamdedup.keys.formats.schemas import Schemas
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.keys.options import SCHEMA_FORMATS, Format, Origin, Tombstones
from streamdedup.keys.steps import Steps, drained

ROWS_A_TURN = 100_000
PERHAPS_READ_A_TURN = 8_192
# How much Python code may do for each row of an origin, in units of some 0.7 us. Of `json`, it gives the reason if
# there is no key. An event may have many headers.
READINGS = {"key": 0, "value": 0, "json": 1, "header": 8}
BYTES_A_TURN = 1 << 20  # read in the event loop: below 10 ms, whatever the bytes are
NOT_JSON = "the value is not valid JSON"
_FRAMED = (
    f"the value {LOOKS_REGISTERED}: set key.format to that of its serializer, or take the record key"
    " (key.from: key)"
)


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
    """Takes the key from `origin`, then normalizes it with `normalizer`.

    `fields` are paths of names, or the name of one header. `schemas` are those of a `format` that needs them.
    """

    origin: Origin
    fields: tuple[str, ...] = ()
    tombstones: Tombstones = "pass"
    normalizer: Normalizer | None = None
    format: Format = "json"
    schemas: Schemas | None = dataclasses.field(default=None, compare=False, repr=False)

    @classmethod
    def of_format(
        cls,
        format_: Format,
        fields: tuple[str, ...],
        tombstones: Tombstones = "pass",
        normalizer: Normalizer | None = None,
    ) -> "Extractor":
        """Return what takes `fields` of values of this format, and knows no schema yet."""
        schemas = Schemas(format_, map(_steps, fields)) if format_ in SCHEMA_FORMATS else None
        return cls("json", fields, tombstones, normalizer, format_, schemas)

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
        """Return the keys of the fields of `values`, and why a row has none, in ascending order; of `json` alone."""
        return drained(self._of_values(values))

    @property
    def takes_long(self) -> bool:
        """Whether to extract keys in a thread, because it takes too long for the event loop."""
        if self.origin == "header" and REPLACEMENT in _as_read(self.fields[0]):
            return True  # no kernel finds that name, so Python code reads all headers
        return self.normalizer is not None and self.normalizer.takes_long

    @property
    def rows_a_turn(self) -> int:
        """How many events' keys to extract in one turn of the event loop.

        The number is smaller if Python code reads each event. What a normalizer reads is counted in `steps`.
        """
        if self.takes_long:
            return ROWS_A_TURN
        asks = READINGS[self.origin] * max(len(self.fields), 1)
        return PERHAPS_READ_A_TURN // asks if asks else ROWS_A_TURN

    def takes_long_for(self, batch: EventBatch) -> bool:
        """Return whether to extract the keys of `batch` in a thread: so many bytes would hold up the event loop.

        A few kB on the wire may be any amount here. Headers are not counted.
        """
        if self.takes_long:
            return True
        if self.origin == "header":
            return False
        column = batch.keys if self.origin == "key" else batch.values
        times = len(self.fields) if self.origin == "json" else self.normalizer is not None
        return times * int(column.sizes.sum()) > BYTES_A_TURN

    def awaits(self, batch: EventBatch) -> bool:
        """Return whether a schema of `batch` is not known yet."""
        return self.schemas is not None and bool(self.schemas.unresolved(batch.values))

    def warm_up(self) -> None:
        """Compile the kernels that `extract` runs or load them from the cache.

        Called at set-up, so that no batch waits for it. The kernel that finds a header is part of `kafka`,
        which warms it up with all others that read records.
        """
        if self.origin == "json":
            from streamdedup.keys.formats import (
                json_exact,  # imported here, because it imports numba
            )

            json_keys(self.fields, Column.of([b""]))
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
            case "json":
                return (yield from self._of_values(batch.values))
            case "key":
                read = _column(batch.keys, "the record key is null")
            case "value":
                read = _column(batch.values, "the value is null")
            case "header":
                read = _last_headers(self.fields[0], batch.headers)
        return (yield from _normalized(self.normalizer, *read))

    def _of_values(self, values: Column) -> Steps[tuple[Column, dict[int, str]]]:
        """Return the keys of the fields of `values`, whatever their format."""
        if self.format == "json_schema":
            from streamdedup.keys.formats import framing  # imported here, because it imports numba

            values = framing.unframed(values)
        if self.schemas is None:
            return (yield from json_keys_in_steps(self.fields, values, self.normalizer))
        read = []
        for which, name in enumerate(self.fields):
            found = of_framed_field(
                self.schemas,
                which,
                _name(_steps(name)),
                values,
                partial(_of_one_field, _steps(name)),
            )
            read.append((yield from _normalized(self.normalizer, *found)))
        return _joined(read)


def json_keys(
    fields: Sequence[str], texts: Column, normalizer: Normalizer | None = None
) -> tuple[Column, dict[int, str]]:
    """Return the keys of `texts`, one row each, and why a row has none, in ascending order.

    A field is a dotted path of names. If it begins with `/`, it is a JSON Pointer (RFC 6901). The keys of
    several fields are joined; each part is normalized before.
    """
    return drained(json_keys_in_steps(fields, texts, normalizer))


def json_keys_in_steps(
    fields: Sequence[str], texts: Column, normalizer: Normalizer | None
) -> Steps[tuple[Column, dict[int, str]]]:
    """Return what `json_keys` returns, in steps."""
    from streamdedup.keys.formats import json_column  # imported here, because it imports numba

    paths = [_steps(field) for field in fields]
    distinct = list(dict.fromkeys(paths))
    plain = dict(zip(distinct, json_column.located_all(distinct, texts), strict=True))
    read = []
    for steps in paths:
        read.append((yield from _normalized(normalizer, *_completed(steps, plain[steps], texts))))
    return _joined(read)


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


def _of_one_field(steps: tuple[str, ...], texts: Column) -> tuple[Column, dict[int, str]]:
    from streamdedup.keys.formats import json_column  # imported here, because it imports numba

    (plain,) = json_column.located_all([steps], texts)
    return _completed(steps, plain, texts)


def _completed(
    steps: tuple[str, ...], keys: Column, texts: Column
) -> tuple[Column, dict[int, str]]:
    """Return `keys` with those that only the exact reader finds in `texts`, and why each other row has none."""
    from streamdedup.keys.formats import json_exact  # imported here, because it imports numba

    left = _nulls(keys)
    if not len(left):
        return keys, {}
    found, kinds = json_exact.read(steps, texts.take(left))
    keys = keys.placed(left, found)
    escaped = left[kinds == Kind.ESCAPED]
    if len(escaped):
        keys = keys.replaced(escaped, json_exact.decoded(keys.take(escaped)))
    return keys, _reasons(steps, texts.take(left), left, kinds)


def _reasons(steps: tuple[str, ...], texts: Column, rows: Integers, kinds: Kinds) -> dict[int, str]:
    """Return, by its row in `rows`, why each of `texts` has no key if its kind says so."""
    name = _name(steps)
    reasons = {int(kind): f"the field {name} is {what}" for kind, what in NAMES.items()}
    reasons |= {Kind.NO_TEXT: "the value is null", Kind.NOT_JSON: NOT_JSON}
    without = (kinds > Kind.ESCAPED).nonzero()[0]
    told = dict(
        zip(
            rows[without].tolist(),
            map(reasons.__getitem__, kinds[without].tolist()),
            strict=True,
        )
    )
    long = ((kinds == Kind.NOT_JSON) & (texts.sizes >= PREFIX_BYTES)).nonzero()[0]
    buffer = np.frombuffer(texts.buffer, dtype=np.uint8)
    framed = long[buffer[texts.starts[long]] == 0]
    heads = buffer[texts.starts[framed, None] + np.arange(1, PREFIX_BYTES)].view(">u4")
    numbers, which = np.unique(heads, return_inverse=True)
    whys = list(map(_FRAMED.__mod__, numbers.tolist()))
    told.update(
        zip(rows[framed].tolist(), map(whys.__getitem__, which.ravel().tolist()), strict=True)
    )
    return told


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


def _last_headers(name: str, column: Sequence[Headers]) -> tuple[Column, dict[int, str]]:
    """Return the last header of that name in each row.

    A kernel finds it, or that there is none, if the headers are still in the wire format.
    """
    read = partial(_last_header, name=name)
    if not isinstance(column, HeaderColumn):
        return each(read, column)
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
    return keys, dict(sorted((reasons | more).items())) if reasons or more else {}


def _as_read(name: str) -> str:
    """Return the name that a header with the bytes of `name` is read with."""
    return name.encode("utf-8", "surrogatepass").decode(errors="replace")


def _last_header(headers: Headers, name: str) -> bytes:
    """Return the last header of that name. Kafka, too, takes the last one if a name is repeated."""
    for found, value in reversed(headers):
        if found == name:
            return _present(value, f"the header {name} is null")
    raise MalformedError(f"the header {name} is missing")


def canonical(field: str) -> str:
    """Return the dotted path of a field of JSON, also if it is written as a pointer; a pointer that has none stays."""
    steps = _steps(field)
    has_dotted = all(steps) and not any("." in step for step in steps) and steps[0][0] != "/"
    return ".".join(steps) if has_dotted else field


def _steps(field: str) -> tuple[str, ...]:
    if not field.startswith("/"):
        return tuple(field.split("."))
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in field[1:].split("/"))


def _name(steps: tuple[str, ...]) -> str:
    return "/" + "/".join(steps) if any("." in step for step in steps) else ".".join(steps)
