"""Compiles a `.proto` file, and the path to a key in its messages, to the program that `protobuf_column` runs.

A message has numbers and lengths, so only the fields of the path matter.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum

from streamdedup.keys.formats.field_paths import Paths, paths_of
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.protobuf_files import (
    GOOGLE,
    Enum,
    Field,
    Message,
    Types,
    built_in,
    joined,
    read,
)
from streamdedup.keys.formats.schema import (
    CODE_MAX,
    Program,
    SchemaError,
    Work,
    checked_name,
    packed,
)

ANY_WIRE = -1
MESSAGES_MAX = 100


class Wire(IntEnum):
    """How the value of a field is written; the lowest three bits of its tag."""

    VARINT = 0
    EIGHT_BYTES = 1
    BYTES = 2  # a length, and as many bytes
    GROUP = 3
    END_GROUP = 4
    FOUR_BYTES = 5


class Op(IntEnum):
    """What to do with the field of a level."""

    DESCEND = 0  # into the message; operand: the level in it
    KIND = 1  # operand: the kind
    TEXT = 2
    BYTES = 3
    INT32 = 4
    INT64 = 5
    UINT32 = 6
    UINT64 = 7
    SINT32 = 8
    SINT64 = 9
    ENUM = 10  # operand: the address of its numbers and symbols


_SCALARS = {
    "string": (Wire.BYTES, Op.TEXT),
    "bytes": (Wire.BYTES, Op.BYTES),
    "int32": (Wire.VARINT, Op.INT32),
    "int64": (Wire.VARINT, Op.INT64),
    "uint32": (Wire.VARINT, Op.UINT32),
    "uint64": (Wire.VARINT, Op.UINT64),
    "sint32": (Wire.VARINT, Op.SINT32),
    "sint64": (Wire.VARINT, Op.SINT64),
    "fixed32": (Wire.FOUR_BYTES, Op.UINT32),
    "fixed64": (Wire.EIGHT_BYTES, Op.UINT64),
    "sfixed32": (Wire.FOUR_BYTES, Op.INT32),
    "sfixed64": (Wire.EIGHT_BYTES, Op.INT64),
}
_WIRES = {"bool": Wire.VARINT, "float": Wire.FOUR_BYTES, "double": Wire.EIGHT_BYTES}
_NO_KEYS = {
    "bool": FramedKind.BOOLEAN,
    "float": FramedKind.FLOAT,
    "double": FramedKind.FLOAT,
}


def compiled(text: str, references: Sequence[str], steps: Sequence[str]) -> Program:
    """Return the program that finds the key at the path of `steps` in each message of the schema `text`.

    `references` are the files that it imports, directly or not. Raises SchemaError if one of them is wrong, and
    ConfigError if the parser is not installed.
    """
    try:
        file, types, work = _read(text, references)
        return _Compiler(types, work).program(file, tuple(steps))
    except RecursionError:
        raise SchemaError("its messages are nested too deep") from None


def fields(text: str, references: Sequence[str]) -> Mapping[tuple[int, ...], Paths]:
    """Return the paths of the fields of the messages of the schema `text`, by the indexes of each. Else as `compiled`.

    At most `MESSAGES_MAX` messages are there, the outer ones first.
    """
    file, types, work = _read(text, references)
    compiler = _Compiler(types, work)
    found = dict[tuple[int, ...], Paths]()
    waiting = deque[tuple[tuple[int, ...], Message]]([((), file)])
    while waiting and len(found) < MESSAGES_MAX:
        indexes, message = waiting.popleft()
        if indexes:  # else it is the file
            found[indexes] = paths_of(message, compiler.fields)
        waiting += [((*indexes, at), inner) for at, inner in enumerate(message.nested)]
    return found


def _read(text: str, references: Sequence[str]) -> tuple[Message, Types, Work]:
    """Return the file as a message, in which its messages are nested, and what they name."""
    types, work = Types(built_in()), Work()
    *_, (package, roots) = (read(each, types, work) for each in (*references, text))
    return Message(package, nested=roots), types, work


class _Compiler:
    """The code begins with the table of the file's messages.

    A table is the address of the message's level, how many messages are declared in it, and the table of each. A level
    is the number of the field on the path, how it is written, an `Op` and its operand; then how many tags of others
    unset it, and these, ascending. Its number is 0 if the path ends there.
    """

    def __init__(self, types: Mapping[str, Message | Enum], work: Work) -> None:
        self._types, self._work = types, work
        self._code: list[int] = []
        self._levels: dict[tuple[int, tuple[str, ...]], int] = {}  # by the message, and the steps
        self._enums: dict[int, int] = {}
        self._room_bytes, self._has_field = 0, False

    def program(self, file: Message, steps: tuple[str, ...]) -> Program:
        self._table(file, steps)
        return Program(self._code, self._room_bytes, self._has_field)

    def fields(self, message: Message) -> Iterator[tuple[str, Message | None]]:
        """Yield the names of the fields of `message`, each with the message that it is."""
        for each in message.fields:
            target: Message | Enum | None = None
            if each.kind is None and each.type not in _SCALARS and each.type not in _NO_KEYS:
                target = self._named(each.type, message.scope)
            yield (
                each.name,
                target if isinstance(target, Message) and not target.is_wrapper else None,
            )

    def _table(self, message: Message, steps: tuple[str, ...]) -> int:
        at = self._add(0, len(message.nested), *[0] * len(message.nested))
        self._code[at] = self._level(message, steps)
        for number, nested in enumerate(message.nested):
            self._code[at + 2 + number] = self._table(nested, steps)
        return at

    def _add(self, *numbers: int) -> int:
        self._code += numbers
        if len(self._code) > CODE_MAX:
            raise SchemaError("it is too large")
        return len(self._code) - len(numbers)

    def _level(self, message: Message, steps: tuple[str, ...]) -> int:
        """Add the level of `message` at which the first of `steps` is, if it is not there yet; return its address."""
        which = id(message), steps
        if which not in self._levels:
            self._levels[which] = self._new_level(message, steps)
        return self._levels[which]

    def _new_level(self, message: Message, steps: tuple[str, ...]) -> int:
        found = message.find(steps[0])
        if found is None:
            return self._add(0, 0, 0, 0, 0)
        wire, op, operand = self._way(message, found, steps[1:])
        tags = self._tags(message, found)
        return self._add(found.number, wire, op, operand, len(tags), *tags)

    def _tags(self, message: Message, found: Field) -> list[int]:
        """Return the tags of the other members of the oneof of a field: as another type, a member is unknown."""
        others = (each for each in found.oneof if each is not found)
        return sorted(
            each.number << 3 | wire for each in others for wire in self._wires(message, each)
        )

    def _wires(self, message: Message, field: Field) -> tuple[Wire, ...]:
        """Return how a member of a oneof is written: either way, if its type is not known."""
        if field.type in _SCALARS:
            return (_SCALARS[field.type][0],)
        if field.type in _NO_KEYS:
            return (_WIRES[field.type],)
        try:
            target = self._named(field.type, message.scope)
        except SchemaError:
            return Wire.VARINT, Wire.BYTES
        return (Wire.BYTES if isinstance(target, Message) else Wire.VARINT,)

    def _way(self, message: Message, found: Field, steps: tuple[str, ...]) -> tuple[int, Op, int]:
        """Return how a field is written, what to do with it, and the operand of that."""
        kind, target = found.kind, None
        if kind is None and found.type not in _SCALARS and found.type not in _NO_KEYS:
            target = self._named(found.type, message.scope)
        if kind is None and isinstance(target, Message) and (steps or target.is_wrapper):
            return Wire.BYTES, Op.DESCEND, self._level(target, steps or ("value",))
        if steps:  # the rest of the path leads nowhere
            return ANY_WIRE, Op.KIND, FramedKind.MISSING
        self._has_field = True
        if kind is None and found.type in _SCALARS:
            return *_SCALARS[found.type], 0
        if kind is None and target is not None and not isinstance(target, Message):
            return Wire.VARINT, Op.ENUM, self._enum(target)
        if kind is None:
            kind = target.kind if isinstance(target, Message) else _NO_KEYS[found.type]
        return ANY_WIRE, Op.KIND, kind

    def _enum(self, symbols: Enum) -> int:
        if id(symbols) not in self._enums:
            self._enums[id(symbols)] = self._new_enum(symbols)
        return self._enums[id(symbols)]

    def _new_enum(self, symbols: Enum) -> int:
        texts = {number: checked_name(symbols[number]).encode() for number in sorted(symbols)}
        self._room_bytes = max(self._room_bytes, *map(len, texts.values()), 0)
        where = {number: self._add(*packed(text)) for number, text in texts.items()}
        return self._add(len(where), *(part for pair in where.items() for part in pair))

    def _named(self, name: str, scope: str) -> Message | Enum:
        """Return the type of that name as `scope` sees it: the innermost one."""
        if name.startswith("."):
            scope, name = "", name[1:]
        while True:
            self._work.spend()
            if found := self._types.get(joined(scope, name)):
                return found
            if not scope:
                break
            scope = scope.rpartition(".")[0]
        if name.startswith(GOOGLE):
            return Message(name)
        raise SchemaError("it uses a name that nothing in it or in its imports defines")
