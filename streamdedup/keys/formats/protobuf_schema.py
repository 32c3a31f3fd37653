"""Compiles a `.proto` text, and the path to a key in its messages, to the program that `protobuf_column` runs.

A message has numbers and lengths, so only the fields of the path matter. The text is parsed by proto-schema-parser, the
extra `protobuf`. What others of Google's own types are is built in.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from streamdedup.errors import ConfigError
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.schema import Program, SchemaError

NUMBER_MAX = (1 << 29) - 1
ANY_WIRE = -1


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
_NO_KEYS = {
    "bool": FramedKind.BOOLEAN,
    "float": FramedKind.FLOAT,
    "double": FramedKind.FLOAT,
}
_GOOGLE = "google.protobuf."
_WRAPPED = {
    "StringValue": "string",
    "BytesValue": "bytes",
    "Int32Value": "int32",
    "Int64Value": "int64",
    "UInt32Value": "uint32",
    "UInt64Value": "uint64",
    "BoolValue": "bool",
    "FloatValue": "float",
    "DoubleValue": "double",
}
_OTHERS = {
    "Any": FramedKind.ANY,
    "Duration": FramedKind.DURATION,
}


@dataclass
class _Field:
    name: str
    json_name: str
    number: int
    type: str
    kind: FramedKind | None = None  # if it is a list or a map
    others: tuple[int, ...] = ()  # the numbers of the other members of its oneof


@dataclass
class _Message:
    """A message; `scope` is its full name. `kind` is what it is as a key, `is_wrapper` whether its value is one."""

    scope: str
    fields: list[_Field] = field(default_factory=list)
    nested: list["_Message"] = field(default_factory=list)
    kind: FramedKind = FramedKind.RECORD
    is_wrapper: bool = False

    def find(self, name: str) -> _Field | None:
        """Return the field of that name; or else of that name in JSON."""
        by_name = (each for each in self.fields if each.name == name)
        in_json = (each for each in self.fields if each.json_name == name)
        return next(by_name, None) or next(in_json, None)


Enum = Mapping[int, str]


def compiled(text: str, references: Sequence[str], steps: Sequence[str]) -> Program:
    """Return the program that finds the key at the path of `steps` in each message of the schema `text`.

    `references` are the files that it imports, directly or not. Raises SchemaError if one of them is wrong, and
    ConfigError if the parser is not installed.
    """
    parse = parser()
    types: dict[str, _Message | Enum] = dict(_built_in())
    try:
        *_, (package, roots) = (_read(parse(each), types) for each in (*references, text))
        return _Compiler(types).program(_Message(package, nested=roots), tuple(steps))
    except RecursionError:
        raise SchemaError("its messages are nested too deep") from None


def parser() -> Callable[[str], Any]:
    """Return what parses a text, strictly. ConfigError if it is not installed."""
    try:
        from antlr4.error.ErrorListener import ErrorListener
        from proto_schema_parser.parser import Parser
    except ImportError:
        raise ConfigError(
            "key.format: protobuf needs proto-schema-parser; install it by pip install 'streamdedup-kafka[protobuf]'"
        ) from None

    class Strict(ErrorListener):  # type: ignore[misc]  # antlr4 has no types
        def syntaxError(self, *_: object) -> None:  # noqa: N802 - antlr4's name
            raise SchemaError("it is no .proto file")

    def strict(reader: Any) -> None:  # noqa: ANN401 - antlr4's lexer or parser
        reader.removeErrorListeners()
        reader.addErrorListener(Strict())

    def parse(text: str) -> Any:  # noqa: ANN401 - a tree of the parser's own types
        return Parser(setup_lexer=strict, setup_parser=strict).parse(text)

    return parse


def _built_in() -> Iterator[tuple[str, _Message]]:
    for name, of in _WRAPPED.items():
        value = _Field("value", "value", 1, of)
        yield f"{_GOOGLE}{name}", _Message(f"{_GOOGLE}{name}", [value], is_wrapper=True)
    for name, kind in _OTHERS.items():
        yield f"{_GOOGLE}{name}", _Message(f"{_GOOGLE}{name}", kind=kind)


def _read(file: Any, types: dict[str, _Message | Enum]) -> tuple[str, list[_Message]]:  # noqa: ANN401 - the parser's
    """Add the types of a file to `types`; return its package and its messages."""
    parts = file.file_elements
    package = next((part.name for part in parts if type(part).__name__ == "Package"), "")
    return package, [
        _message(part, package, types) for part in parts if _defines(part, package, types)
    ]


def _defines(part: Any, scope: str, types: dict[str, _Message | Enum]) -> bool:  # noqa: ANN401 - likewise
    """Return whether a part is a message; add it to `types` if it is an enum."""
    if type(part).__name__ == "Enum":
        values = [each for each in part.elements if type(each).__name__ == "EnumValue"]
        # Of several names of a number, the first is that of JSON.
        types[_joined(scope, part.name)] = {each.number: each.name for each in reversed(values)}
    return type(part).__name__ == "Message"


def _message(part: Any, outer: str, types: dict[str, _Message | Enum]) -> _Message:  # noqa: ANN401 - likewise
    scope = _joined(outer, part.name)
    made = types[scope] = _Message(scope)
    for each in part.elements:
        match type(each).__name__:
            case "Field":
                made.fields.append(_field(each))
            case "MapField":
                made.fields.append(_field(each, FramedKind.MAP))
            case "OneOf":
                made.fields += _oneof(each)
            case _:
                if _defines(each, scope, types):
                    made.nested.append(_message(each, scope, types))
    return made


def _oneof(part: Any) -> Iterator[_Field]:  # noqa: ANN401 - likewise
    members = [_field(each) for each in part.elements if type(each).__name__ == "Field"]
    for each in members:
        each.others = tuple(other.number for other in members if other is not each)
        yield each


def _field(part: Any, kind: FramedKind | None = None) -> _Field:  # noqa: ANN401 - likewise
    if getattr(part, "cardinality", None) == "REPEATED":
        kind = FramedKind.ARRAY
    given = (option.value for option in part.options if option.name == "json_name")
    json_name = next(given, None) or _camel(part.name)
    if not 0 < part.number <= NUMBER_MAX:
        raise SchemaError("it holds a field whose number is wrong")
    return _Field(part.name, str(json_name), part.number, getattr(part, "type", ""), kind)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


class _Compiler:
    """The code begins with the table of the file's messages.

    A table is the address of the message's level, how many messages are declared in it, and the table of each. A level
    is the number of the field on the path, how it is written, an `Op` and its operand; then how many others unset it,
    and their numbers. Its number is 0 if the path ends there.
    """

    def __init__(self, types: Mapping[str, _Message | Enum]) -> None:
        self._types = types
        self._code: list[int] = []
        self._room_bytes = 0

    def program(self, file: _Message, steps: tuple[str, ...]) -> Program:
        self._table(file, steps)
        return Program(self._code, self._room_bytes)

    def _table(self, message: _Message, steps: tuple[str, ...]) -> int:
        at = self._add(0, len(message.nested), *[0] * len(message.nested))
        self._code[at] = self._level(message, steps)
        for number, nested in enumerate(message.nested):
            self._code[at + 2 + number] = self._table(nested, steps)
        return at

    def _add(self, *numbers: int) -> int:
        self._code += numbers
        return len(self._code) - len(numbers)

    def _level(self, message: _Message, steps: tuple[str, ...]) -> int:
        """Add the level of `message` at which the first of `steps` is; return its address."""
        found = message.find(steps[0])
        if found is None:
            return self._add(0, 0, 0, 0, 0)
        wire, op, operand = self._way(message, found, steps[1:])
        return self._add(found.number, wire, op, operand, len(found.others), *found.others)

    def _way(self, message: _Message, found: _Field, steps: tuple[str, ...]) -> tuple[int, Op, int]:
        """Return how a field is written, what to do with it, and the operand of that."""
        kind, target = found.kind, None
        if kind is None and found.type not in _SCALARS and found.type not in _NO_KEYS:
            target = self._named(found.type, message.scope)
        if kind is None and isinstance(target, _Message) and (steps or target.is_wrapper):
            return Wire.BYTES, Op.DESCEND, self._level(target, steps or ("value",))
        if steps:  # the rest of the path leads nowhere
            return ANY_WIRE, Op.KIND, FramedKind.MISSING
        if kind is None and found.type in _SCALARS:
            return *_SCALARS[found.type], 0
        if kind is None and target is not None and not isinstance(target, _Message):
            return Wire.VARINT, Op.ENUM, self._enum(target)
        if kind is None:
            kind = target.kind if isinstance(target, _Message) else _NO_KEYS[found.type]
        return ANY_WIRE, Op.KIND, kind

    def _enum(self, symbols: Enum) -> int:
        texts = {number: symbols[number].encode() for number in sorted(symbols)}
        self._room_bytes = max(self._room_bytes, *map(len, texts.values()), 0)
        where = {number: self._add(len(text), *text) for number, text in texts.items()}
        return self._add(len(where), *(part for pair in where.items() for part in pair))

    def _named(self, name: str, scope: str) -> _Message | Enum:
        """Return the type of that name as `scope` sees it: the innermost one."""
        if name.startswith("."):
            scope, name = "", name[1:]
        while True:
            if found := self._types.get(_joined(scope, name)):
                return found
            if not scope:
                break
            scope = scope.rpartition(".")[0]
        if name.startswith(_GOOGLE):
            return _Message(name)
        raise SchemaError("it uses a name that nothing in it or in its imports defines")
