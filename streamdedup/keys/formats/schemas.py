"""The schemas whose ids were met, each compiled to a program for every field of the key. No I/O: see `registry/`."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, get_args
from uuid import UUID

import numpy as np

from streamdedup.errors import DeliveryError
from streamdedup.events import NULL, Column, Integers, concatenated
from streamdedup.keys.formats import avro_schema, protobuf_schema
from streamdedup.keys.formats.field_paths import Paths
from streamdedup.keys.formats.framed_kinds import FramedKind, FramedKinds
from streamdedup.keys.formats.programs import Programs
from streamdedup.keys.formats.schema import Program, Schema, SchemaError, SchemaType
from streamdedup.keys.formats.schema_registry import GIVEN_UP, NO_ID, NUMBER_MAX, UNREADABLE
from streamdedup.keys.hashing import ROWS_A_CALL, frozen

MET_MAX = 1_000  # ids that a snapshot has
IDS_MAX = 20_000  # ids that are known at once: more than a batch can have
GIVEN_UP_MAX = 10_000  # ids that were given up, of which we know
FIELDS_KEPT_MAX = 100  # schemas

_TYPES: Mapping[str, SchemaType] = {
    "avro": "AVRO",
    "protobuf": "PROTOBUF",
}  # what a registry calls each format
_COMPILERS = {"avro": avro_schema.compiled, "protobuf": protobuf_schema.compiled}
_FIELDS = {"avro": avro_schema.fields, "protobuf": protobuf_schema.fields}
_NONE = np.zeros(0, dtype=np.int64)


class Registry(Protocol):
    """Where schemas come from; it does I/O."""

    async def resolve(self, schemas: "Schemas", ids: Sequence[int]) -> None:
        """Have `schemas` take the schemas of `ids`, or give those up that nobody knows."""


@dataclass(frozen=True)
class Compiled:
    """A schema by its digests, and its program for each field; none if it cannot be read, and why."""

    digest: str
    exact: str = ""
    programs: tuple[Program, ...] = ()
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """The schemas that are known at one moment. A thread that reads by it needs no lock: only `met` ever changes.

    The programs of the id `ids[i]`, ascending, begin at `entries[field, i]`; below 0 it has none.
    """

    kind: str
    programs: Programs
    ids: Integers
    entries: Integers
    met: Integers
    """When each id was met last, as a count of `Schemas.unresolved`."""
    notes: dict[int, str | frozenset[int]]
    """Why a schema cannot be read, or which fields it does not have."""
    guids: Mapping[int, str]

    def name(self, number: int) -> str:
        """Return the id or the GUID that a number stands for."""
        if number == NO_ID:
            return f"above {NUMBER_MAX}"
        return self.guids.get(number, f"{number}")

    def why_not(self, number: int) -> str:
        """Return why the schema of an id cannot be read."""
        return str(self.notes[number])

    def has_field(self, which: int, number: int) -> bool:
        """Whether the schema of an id, which can be read, has the field of that number."""
        return which not in self.notes.get(number, ())

    def read(self, which: int, values: Column) -> tuple[Column, FramedKinds]:
        """Return the keys that the field of that number has in `values`, over a new buffer, and the kind of each row.

        A row without a key is null.
        """
        fill = self._kernel()
        buffer = frozen(np.frombuffer(values.buffer, dtype=np.uint8), np.uint8)
        room_bytes = int(np.maximum(values.sizes, 0).sum()) + len(values) * self.programs.room_bytes
        out = np.empty(room_bytes, dtype=np.uint8)
        starts, sizes = np.empty((2, len(values)), dtype=np.int64)
        kinds = np.empty(len(values), dtype=np.uint8)
        known = (self.programs.code, self.ids, frozen(self.entries[which], np.int64))
        at = end = 0
        while at < len(starts):
            part = slice(at, at + ROWS_A_CALL)
            cells = frozen(values.starts[part], np.int64), frozen(values.sizes[part], np.int64)
            done = fill(*known, buffer, *cells, out[end:], starts[part], sizes[part], kinds[part])
            starts[at : at + done] += end
            at += done
            end = int(starts[at - 1] + sizes[at - 1])
        sizes[kinds != FramedKind.KEY] = NULL
        return Column(concatenated([out[:end].data]), starts, sizes), kinds

    def _kernel(self) -> Callable[..., int]:
        # Imported here: few use their kernels.
        if self.kind == "avro":
            from streamdedup.keys.formats import avro_column

            return avro_column.fill
        from streamdedup.keys.formats import protobuf_column

        return protobuf_column.fill


class Schemas:
    """What is known of schemas, by id. All shards of a worker share it, in the event loop's thread.

    A schema never changes under its id: DeliveryError if it does, as compared with what snapshots say. Of very many, or
    large ones, those that were not met lately are dropped; an id that is met again is resolved again.
    """

    def __init__(self, kind: str, paths: Iterable[tuple[str, ...]]) -> None:
        self.registry: Registry | None = None
        """Set by the caller, which does I/O. If None, every schema is unknown."""
        self._kind, self._paths = kind, tuple(paths)
        entries = np.zeros((len(self._paths), 0), dtype=np.int64)
        ids = frozen(_NONE, np.int64)
        self.guids: dict[int, str] = {}
        """The GUIDs that numbers above all ids stand for, in this process alone."""
        self.known = Known(kind, Programs(), ids, entries, _NONE.copy(), {}, self.guids)
        """What to read values by. It is replaced as a whole."""
        self._looks = 0
        self._exact: dict[int, str] = {}  # of the schemas that are known
        self._digests: dict[int, str] = {}  # of these, and of those that snapshots name
        self._given_up: set[int] = set()
        self._numbers, self._last = dict[bytes, int](), NUMBER_MAX  # of GUIDs
        self._fields: dict[str, Mapping[tuple[int, ...], Paths]] | None = None  # by `exact`

    @property
    def type(self) -> SchemaType:
        """What a registry calls schemas of this format."""
        return _TYPES[self._kind]

    @property
    def given_up(self) -> frozenset[int]:
        """The ids that no registry knows."""
        return frozenset(self._given_up)

    @property
    def met(self) -> dict[int, str]:
        """The digest of the schema of each of the `MET_MAX` ids that were met last."""
        order = dict(zip(self.known.ids.tolist(), self.known.met.tolist(), strict=True))
        last = sorted(self._digests, key=lambda number: (order.get(number, 0), number))[-MET_MAX:]
        return {number: self._digests[number] for number in sorted(last)}

    def expect(self, digests: Mapping[int, str]) -> None:
        """Take from a snapshot what it says of schemas. DeliveryError if one is another."""
        for number, digest in digests.items():
            self._check(number, digest)
        for number, digest in digests.items():
            self._remember(number, digest)

    def unresolved(self, values: Column) -> list[int]:
        """Return the ids in `values` whose schemas are not known and not given up, ascending."""
        from streamdedup.keys.formats.framing import (
            unknown_ids,
        )  # imported here: few use its kernels

        self._looks += 1
        return unknown_ids(values, self.known.ids, self.known.met, self._looks)

    def compiled(self, schema: Schema) -> Compiled:
        """Return the programs of a schema; none if they are held. Any thread may call this, and it may take seconds."""
        exact = schema.exact
        if exact in self.known.programs.schemas:
            return Compiled(schema.digest, exact)
        texts = [each.text for each in schema.references]
        try:
            if schema.why_not:
                raise SchemaError(schema.why_not)
            if schema.type != self.type:
                theirs = schema.type if schema.type in get_args(SchemaType) else "unknown"
                raise SchemaError(f"it is of type {theirs}, and key.format is {self._kind}")
            compile_ = _COMPILERS[self._kind]
            programs = [compile_(schema.text, texts, steps) for steps in self._paths]
        except SchemaError as error:
            return Compiled(schema.digest, why_not=str(error))
        if self._fields is not None and len(self._fields) < FIELDS_KEPT_MAX:
            with suppress(SchemaError, RecursionError):  # of a part that no key needs
                self._fields[exact] = _FIELDS[self._kind](schema.text, texts)
        return Compiled(schema.digest, exact, tuple(programs))

    def placed(self, schema: Compiled) -> Programs:
        """Return all programs, with those of a schema. Any thread may call this, if `take` follows before another call.

        LookupError if they were held when it was compiled, and are not any more.
        """
        known = self.known
        if schema.why_not or schema.exact in known.programs.schemas:
            return known.programs
        if not schema.programs:
            raise LookupError(schema.exact)
        lately = known.ids[np.argsort(-known.met, kind="stable")]
        of_ids = (self._exact.get(number, "") for number in lately.tolist())
        return known.programs.added(schema.exact, schema.programs, of_ids)

    def keep_fields(self) -> None:
        """Keep the fields of each schema that is compiled from now on, of the first `FIELDS_KEPT_MAX`."""
        if self._fields is None:
            self._fields = {}

    def fields_of(self, number: int, message: tuple[int, ...] = ()) -> Paths:
        """Return the paths of the fields that the schema of an id has; none if they were not kept.

        Of Protobuf, those of the `message` with these indexes, each within the message of those before it.
        """
        kept = (self._fields or {}).get(self._exact.get(number, ""), {})
        return kept.get(message, ())

    def number_of(self, guid: bytes) -> int:
        """Return the number that stands for a GUID."""
        number = self._numbers.get(guid)
        if number is None:
            self._last = max((self._last + 1) % NO_ID, NUMBER_MAX + 1)
            number = self._numbers[guid] = self._last
            self.guids[number] = str(UUID(bytes=guid))
        return number

    def knows(self, number: int) -> bool:
        """Whether the schema of an id was taken."""
        return number in self._exact

    def take(self, number: int, schema: Compiled, programs: Programs | None = None) -> None:
        """Take the schema of an id that is not known yet. DeliveryError if a snapshot names another.

        `programs` are those that `placed` returned, in a thread: here, it may take long.
        """
        self._check(number, schema.digest)
        self.forget(self._given_up & {number})
        self._given_up.discard(number)
        self._replace(programs or self.placed(schema))
        place = self.known.programs.schemas.get(schema.exact)
        self._enter([number], place.entries if place else [UNREADABLE] * len(self._paths))
        if schema.why_not:
            self.known.notes[number] = schema.why_not
        elif place and place.lacks:
            self.known.notes[number] = place.lacks
        self._exact[number] = schema.exact if place else ""
        if schema.digest and number <= NUMBER_MAX:
            self._remember(number, schema.digest)
        if len(self._exact) > IDS_MAX:
            order = self.known.ids[np.argsort(self.known.met, kind="stable")].tolist()
            self.forget([each for each in order if each in self._exact][: IDS_MAX // 2])

    def give_up(self, numbers: Iterable[int]) -> None:
        """Note that no registry knows the schemas of these ids."""
        if len(self._given_up) >= GIVEN_UP_MAX:
            self.ask_again()
        new = sorted({each for each in numbers if not self.knows(each)} - self._given_up)
        self._enter(new, [GIVEN_UP] * len(self._paths))
        self._given_up.update(new)

    def give_up_guids(self, numbers: Iterable[int]) -> None:
        """Give up those numbers that stand for GUIDs, so that these are forgotten with all that were given up."""
        self.give_up(number for number in numbers if number in self.guids)

    def ask_again(self) -> None:
        """Forget which ids were given up, and what stands for GUIDs that are not known."""
        self.forget(self._given_up)
        for number in self.guids.keys() - self._exact.keys():
            del self._numbers[UUID(self.guids.pop(number)).bytes]
        self._given_up.clear()

    def warm_up(self) -> None:
        """Compile the kernels or load them from the cache. Called at set-up, so that no batch waits for it."""
        from streamdedup.keys.formats import framing  # imported here: few use its kernels

        framing.warm_up()
        self.known.read(0, Column.of([b""]))

    def _replace(self, programs: Programs) -> None:
        """Take all programs anew. The ids whose programs are no longer there are not known any more."""
        if programs is self.known.programs:
            return
        places, before = programs.schemas, self.known.programs.schemas
        self.forget([each for each, exact in self._exact.items() if exact and exact not in places])
        entries = self.known.entries
        if any(
            places[exact].entries != before[exact].entries for exact in places if exact in before
        ):
            entries = entries.copy()
            for at, number in enumerate(self.known.ids.tolist()):
                if exact := self._exact.get(number):
                    entries[:, at] = places[exact].entries
        self.known = replace(self.known, programs=programs, entries=entries)

    def _enter(self, numbers: Sequence[int], entries: Sequence[int]) -> None:
        """Add ids, ascending, all with the same entry for each field."""
        known = self.known
        at = np.searchsorted(known.ids, numbers)
        more = np.broadcast_to(np.array(entries, dtype=np.int64)[:, None], (len(entries), len(at)))
        self.known = replace(
            known,
            ids=frozen(np.insert(known.ids, at, numbers), np.int64),
            entries=np.insert(known.entries, at, more, axis=1),
            met=np.insert(known.met, at, self._looks),
        )

    def forget(self, numbers: Collection[int]) -> None:
        """Have these ids not be known any more, so that they are resolved again."""
        if not numbers:
            return
        known, gone = self.known, set(numbers)
        kept = ~np.isin(known.ids, [*gone])
        self._exact = {each: it for each, it in self._exact.items() if each not in gone}
        self.known = replace(
            known,
            ids=frozen(known.ids[kept], np.int64),
            entries=np.ascontiguousarray(known.entries[:, kept]),
            met=known.met[kept],
            notes={each: note for each, note in known.notes.items() if each not in gone},
        )

    def _remember(self, number: int, digest: str) -> None:
        self._digests.pop(number, None)
        self._digests[number] = digest
        if len(self._digests) > IDS_MAX:
            del self._digests[next(iter(self._digests))]

    def _check(self, number: int, digest: str) -> None:
        known = self._digests.get(number)
        if known and digest and known != digest:  # neither of a schema that was not read
            raise DeliveryError(
                f"schema {number} is another than it was when the snapshot was saved ({digest} and {known}): ids of one"
                " registry never change, so kafka.schema_registry names another one, or another context",
                remedy="set that back",
                finding="schema-changed",
            )
