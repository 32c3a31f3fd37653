"""The schemas whose ids were met, each compiled to a program for every field of the key. No I/O: see `registry/`."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, get_args

import numpy as np

from streamdedup.errors import DeliveryError
from streamdedup.events import NULL, Column, Integers, concatenated
from streamdedup.keys.formats import avro_schema, protobuf_schema
from streamdedup.keys.formats.framed_kinds import FramedKind, FramedKinds
from streamdedup.keys.formats.schema import ROW_BYTES, Program, Schema, SchemaError, SchemaType
from streamdedup.keys.formats.schema_registry import GIVEN_UP, UNREADABLE
from streamdedup.keys.hashing import ROWS_A_CALL, frozen

MET_MAX = 1_000  # ids that a snapshot has
GIVEN_UP_MAX = 10_000  # ids that were given up, of which we know

_TYPES: Mapping[str, SchemaType] = {
    "avro": "AVRO",
    "protobuf": "PROTOBUF",
}  # what a registry calls each format
_COMPILERS = {"avro": avro_schema.compiled, "protobuf": protobuf_schema.compiled}
_NONE = np.zeros(0, dtype=np.int64)


class Registry(Protocol):
    """Where schemas come from; it does I/O."""

    async def resolve(self, schemas: "Schemas", ids: Sequence[int]) -> None:
        """Have `schemas` take the schemas of `ids`, or give those up that nobody knows."""


@dataclass(frozen=True)
class Compiled:
    """A schema by its digest, and its program for each field; none if it cannot be read, and why."""

    digest: str
    programs: tuple[Program, ...] = ()
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class _Programs:
    """Those of one field: all in `code`, that of the i-th id from `entries[i]` on; `ids` ascend.

    It is replaced as a whole, so a thread that reads by it needs no lock.
    """

    steps: tuple[str, ...]
    code: Integers = field(default_factory=lambda: frozen(_NONE, np.int64))
    room_bytes: int = ROW_BYTES
    ids: Integers = field(default_factory=lambda: frozen(_NONE, np.int64))
    entries: Integers = field(default_factory=lambda: frozen(_NONE, np.int64))

    def added(self, program: Program) -> "_Programs":
        """Return these and one more, which no id has yet."""
        code = frozen(np.concatenate([self.code, program.code]), np.int64)
        room_bytes = max(self.room_bytes, ROW_BYTES + program.room_bytes)
        return replace(self, code=code, room_bytes=room_bytes)

    def entered(self, numbers: Sequence[int], entry: int) -> "_Programs":
        """Return these with more ids, ascending, whose program begins at `entry`."""
        at = np.searchsorted(self.ids, numbers)
        ids, entries = np.insert(self.ids, at, numbers), np.insert(self.entries, at, entry)
        return replace(self, ids=frozen(ids, np.int64), entries=frozen(entries, np.int64))

    def without(self, numbers: Collection[int]) -> "_Programs":
        """Return these without some of the ids."""
        kept = ~np.isin(self.ids, list(numbers))
        ids, entries = frozen(self.ids[kept], np.int64), frozen(self.entries[kept], np.int64)
        return replace(self, ids=ids, entries=entries)


class Schemas:
    """What is known of schemas, by id. All shards of a worker share it, in the event loop's thread.

    A schema never changes under its id: DeliveryError if it does, as compared with what snapshots say.
    """

    def __init__(self, kind: str, paths: Iterable[tuple[str, ...]]) -> None:
        self.registry: Registry | None = None
        """Set by the caller, which does I/O. If None, every schema is unknown."""
        self._kind = kind
        self._fields = [_Programs(steps) for steps in paths]
        self._met, self._looks = _NONE.copy(), 0  # when each id was met last
        self._digests: dict[int, str] = {}  # of the schemas that are known
        self._expected: dict[int, str] = {}  # of those that snapshots name
        self._why_not: dict[int, str] = {}  # of those that cannot be read
        self._lacking: set[tuple[int, int]] = set()  # the number of a field, and an id without it
        self._given_up: set[int] = set()

    @property
    def type(self) -> SchemaType:
        """What a registry calls schemas of this format."""
        return _TYPES[self._kind]

    @property
    def _ids(self) -> Integers:
        return self._fields[0].ids

    @property
    def given_up(self) -> frozenset[int]:
        """The ids that no registry knows."""
        return frozenset(self._given_up)

    @property
    def met(self) -> dict[int, str]:
        """The digest of the schema of each of the `MET_MAX` ids that were met last."""
        read = {number: digest for number, digest in self._digests.items() if digest}
        digests = {**self._expected, **read}
        order = dict(zip(self._ids.tolist(), self._met.tolist(), strict=True))
        last = sorted(digests, key=lambda number: (order.get(number, 0), number))[-MET_MAX:]
        return {number: digests[number] for number in sorted(last)}

    def expect(self, digests: Mapping[int, str]) -> None:
        """Take from a snapshot what it says of schemas. DeliveryError if one is another."""
        for number, digest in digests.items():
            self._check(number, self._digests.get(number), digest)
            self._check(number, self._expected.get(number), digest)
        self._expected |= digests

    def unresolved(self, values: Column) -> list[int]:
        """Return the ids in `values` whose schemas are not known and not given up, ascending."""
        from streamdedup.keys.formats.framing import unknown_ids  # imported here: it imports numba

        self._looks += 1
        return unknown_ids(values, self._ids, self._met, self._looks)

    def compiled(self, schema: Schema) -> Compiled:
        """Return the programs of a schema. Any thread may call this; for a large schema it takes long."""
        texts = [each.text for each in schema.references]
        try:
            if schema.why_not:
                raise SchemaError(schema.why_not)
            if schema.type != self.type:
                theirs = schema.type if schema.type in get_args(SchemaType) else "unknown"
                raise SchemaError(f"it is of type {theirs}, and key.format is {self._kind}")
            compiled = _COMPILERS[self._kind]
            programs = [compiled(schema.text, texts, each.steps) for each in self._fields]
        except SchemaError as error:
            return Compiled(schema.digest, why_not=str(error))
        return Compiled(schema.digest, tuple(programs))

    def knows(self, number: int) -> bool:
        """Whether the schema of an id was taken."""
        return number in self._digests

    def take(self, number: int, schema: Compiled) -> None:
        """Take the schema of an id that is not known yet. DeliveryError if a snapshot names another."""
        self._check(number, self._expected.get(number), schema.digest)
        if number in self._given_up:
            self.ask_again()
        if not schema.programs:
            self._why_not[number] = schema.why_not
        self._enter([number], schema.programs or UNREADABLE)
        without = (which for which, each in enumerate(schema.programs) if not each.has_field)
        self._lacking |= {(which, number) for which in without}
        self._digests[number] = schema.digest

    def give_up(self, numbers: Iterable[int]) -> None:
        """Note that no registry knows the schemas of these ids."""
        if len(self._given_up) >= GIVEN_UP_MAX:
            self.ask_again()
        new = sorted({each for each in numbers if not self.knows(each)} - self._given_up)
        self._enter(new, GIVEN_UP)
        self._given_up.update(new)

    def ask_again(self) -> None:
        """Forget which ids were given up."""
        self._met = self._met[~np.isin(self._ids, list(self._given_up))]
        self._fields = [each.without(self._given_up) for each in self._fields]
        self._given_up.clear()

    def why_not(self, number: int) -> str:
        """Return why the schema of an id cannot be read."""
        return self._why_not[number]

    def has_field(self, which: int, number: int) -> bool:
        """Whether the schema of an id, which can be read, has the field of that number."""
        return (which, number) not in self._lacking

    def read(self, which: int, values: Column) -> tuple[Column, FramedKinds]:
        """Return the keys that the field of that number has in `values`, over a new buffer, and the kind of each row.

        A row without a key is null.
        """
        programs = self._fields[which]
        fill = self._kernel()
        buffer = frozen(np.frombuffer(values.buffer, dtype=np.uint8), np.uint8)
        room_bytes = int(np.maximum(values.sizes, 0).sum()) + len(values) * programs.room_bytes
        out = np.empty(room_bytes, dtype=np.uint8)
        starts, sizes = np.empty((2, len(values)), dtype=np.int64)
        kinds = np.empty(len(values), dtype=np.uint8)
        known = programs.code, programs.ids, programs.entries
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

    def warm_up(self) -> None:
        """Compile the kernels or load them from the cache. Called at set-up, so that no batch waits for it."""
        from streamdedup.keys.formats import framing  # imported here: it imports numba

        framing.warm_up()
        self.read(0, Column.of([b""]))

    def _kernel(self) -> Callable[..., int]:
        # Imported here, because these modules import numba.
        if self._kind == "avro":
            from streamdedup.keys.formats import avro_column

            return avro_column.fill
        from streamdedup.keys.formats import protobuf_column

        return protobuf_column.fill

    def _enter(self, numbers: Sequence[int], programs: Sequence[Program] | int) -> None:
        """Add ids, ascending, and their program for each field; or what says that they have none."""
        self._met = np.insert(self._met, np.searchsorted(self._ids, numbers), self._looks)
        if isinstance(programs, int):
            self._fields = [each.entered(numbers, programs) for each in self._fields]
            return
        both = zip(self._fields, programs, strict=True)
        self._fields = [of.added(one).entered(numbers, len(of.code)) for of, one in both]

    def _check(self, number: int, known: str | None, digest: str) -> None:
        if known and digest and known != digest:  # neither of a schema that was not read
            raise DeliveryError(
                f"schema {number} is another than it was when the snapshot was saved ({digest} and {known}): ids of one"
                " registry never change, so kafka.schema_registry names another one, or another context; set that back"
            )
