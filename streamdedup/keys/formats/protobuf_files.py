"""The types that a `.proto` file defines, as a registry keeps it: its text, or, in base64, its FileDescriptorProto.

The text is parsed by proto-schema-parser, the extra `protobuf`. Confluent's registry returns texts; others return what
a producer registered, and confluent-kafka for Python registers the other form.
"""

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from streamdedup.errors import ConfigError
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.schema import NODE_STEPS, SchemaError, Work, checked_name

NUMBER_MAX = (1 << 29) - 1
GOOGLE = "google.protobuf."
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
# The numbers of types in a FieldDescriptorProto; those of an enum, a message and a group have a name besides.
_TYPES = {
    **dict(
        enumerate(
            ("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
            1,
        )
    ),
    12: "bytes",
    13: "uint32",
    **dict(enumerate(("sfixed32", "sfixed64", "sint32", "sint64"), 15)),
}
_MASK_64, _INT32 = (1 << 64) - 1, range(-(1 << 31), 1 << 31)
_GROUP, _REPEATED = 10, 3  # a type, and a label
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")  # the text of a file has a brace or a semicolon
TEXT_CHARS_MAX = 256 << 10  # of one text
CHARS_A_STEP = 4  # of a text, before it is parsed
# Strings, and comments, which may not end. Each character is looked at once.
_COMMENT = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?""", re.DOTALL
)
_NOT_DECIMAL = re.compile(r"=\s*(-?)(0[xX][0-9a-fA-F]+|0[0-7]+)(?=\s*[;\[])")

P = ParamSpec("P")
T = TypeVar("T")

Enum = Mapping[int, str]
Parts = dict[int, list[Any]]


@dataclass
class Field:
    """A field of a message. `type` is a scalar's, or the name of an enum or a message as the file has it."""

    name: str
    json_name: str
    number: int
    type: str
    kind: FramedKind | None = None  # if it is a list or a map
    oneof: Sequence["Field"] = ()  # all members of the one that it is in


@dataclass
class Message:
    """A message; `scope` is its full name. `kind` is what it is as a key, `is_wrapper` whether its value is one."""

    scope: str
    fields: list[Field] = field(default_factory=list)
    nested: list["Message"] = field(default_factory=list)
    kind: FramedKind = FramedKind.RECORD
    is_wrapper: bool = False

    def find(self, name: str) -> Field | None:
        """Return the field of that name; or else of that name in JSON."""
        by_name = (each for each in self.fields if each.name == name)
        in_json = (each for each in self.fields if each.json_name == name)
        return next(by_name, None) or next(in_json, None)


Types = dict[str, Message | Enum]


def read(text: str, types: Types, work: Work) -> tuple[str, list[Message]]:
    """Add the types of a file to `types`; return its package, and the messages that are declared outside of others.

    The steps that this takes are counted in `work`.

    Raises SchemaError if it is wrong, and ConfigError if the parser is not installed.
    """
    if _BASE64.fullmatch(text):
        return _read_serialized(text, types, work)
    work.spend(len(text) // CHARS_A_STEP)
    return _read_parsed(parser(work)(text), types, work)


def _refuse_repeated(message: Message) -> None:
    for each in ("name", "number"):
        if len({getattr(field, each) for field in message.fields}) < len(message.fields):
            raise SchemaError(f"it holds a message that repeats the {each} of a field")


def parser(work: Work) -> Callable[[str], Any]:
    """Return what parses a text, strictly, and counts its steps. ConfigError if it is not installed."""
    try:
        from antlr4.error.ErrorListener import ErrorListener
        from proto_schema_parser.parser import Parser
    except ImportError:
        raise ConfigError(
            "key.format: protobuf needs proto-schema-parser, since the registry keeps a schema as text; install"
            " streamdedup with its extra, pip install '.[protobuf]' (docs/start.md)"
        ) from None

    class Strict(ErrorListener):  # type: ignore[misc]  # antlr4 has no types
        def syntaxError(self, *_: object) -> None:  # noqa: N802 - antlr4's name
            raise SchemaError("it is no .proto file")

    def strict(reader: Any) -> None:  # noqa: ANN401 - antlr4's lexer or parser
        reader.removeErrorListeners()
        reader.addErrorListener(Strict())

    def counted(reader: Any) -> None:  # noqa: ANN401 - antlr4's parser
        strict(reader)
        tokens, simulator = reader.getTokenStream(), reader._interp
        # Where its time goes: it looks at a token, or follows a way through the grammar. Neither is linear in a text.
        tokens.LA = counting(work, tokens.LA)
        simulator.closure_ = counting(work, simulator.closure_)

    def parse(text: str) -> Any:  # noqa: ANN401 - a tree of the parser's own types
        if len(text) > TEXT_CHARS_MAX:
            raise SchemaError(f"its text is longer than {TEXT_CHARS_MAX >> 10} KiB")
        try:
            plain = _COMMENT.sub(_without_comment, text)
            plain = _NOT_DECIMAL.sub(_decimal, plain)  # the parser takes every number for a decimal
            return Parser(setup_lexer=strict, setup_parser=counted).parse(plain)
        except (ValueError, TypeError, LookupError, AttributeError):
            raise SchemaError("it is no .proto file") from None  # what the parser did not expect

    return parse


def counting(work: Work, call: Callable[P, T]) -> Callable[P, T]:
    """Return `call`, each of whose calls is a step of `work`."""

    def counted(*args: P.args, **kwargs: P.kwargs) -> T:
        work.spend()
        return call(*args, **kwargs)

    return counted


def _without_comment(found: re.Match[str]) -> str:
    """Return a string as it is, and a space for a comment: the parser takes the cube of how many there are."""
    text = found[0]
    if text[0] != "/":
        return text
    if text[1] == "*" and (len(text) < 4 or not text.endswith("*/")):
        raise SchemaError("it is no .proto file")
    return " "


def _decimal(number: re.Match[str]) -> str:
    sign, digits = number.groups()
    return f"= {sign}{int(digits, 16 if digits[1] in 'xX' else 8)}"


def built_in() -> Iterator[tuple[str, Message]]:
    """Yield Google's own types that matter, by name; all others are messages that are no key."""
    for name, of in _WRAPPED.items():
        value = Field("value", "value", 1, of)
        yield f"{GOOGLE}{name}", Message(f"{GOOGLE}{name}", [value], is_wrapper=True)
    for name, kind in _OTHERS.items():
        yield f"{GOOGLE}{name}", Message(f"{GOOGLE}{name}", kind=kind)


def _read_parsed(file: Any, types: Types, work: Work) -> tuple[str, list[Message]]:  # noqa: ANN401 - the parser's
    """Add the types of a file to `types`; return its package and its messages."""
    parts = file.file_elements
    package = next((part.name for part in parts if type(part).__name__ == "Package"), "")
    return package, [
        _message(part, package, types, work) for part in parts if _defines(part, package, types)
    ]


def _defines(part: Any, scope: str, types: Types) -> bool:  # noqa: ANN401 - likewise
    """Return whether a part is a message; add it to `types` if it is an enum."""
    if type(part).__name__ == "Enum":
        values = [each for each in part.elements if type(each).__name__ == "EnumValue"]
        if not all(each.number in _INT32 for each in values):
            raise SchemaError("it holds an enum whose number is wrong")
        # Of several names of a number, the first is that of JSON.
        types[joined(scope, part.name)] = {each.number: each.name for each in reversed(values)}
    return type(part).__name__ == "Message"


def _message(part: Any, outer: str, types: Types, work: Work) -> Message:  # noqa: ANN401 - likewise
    scope = joined(outer, part.name)
    work.spend(_steps(scope))
    made = types[scope] = Message(scope)
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
                    made.nested.append(_message(each, scope, types, work))
    _refuse_repeated(made)
    return made


def _oneof(part: Any) -> list[Field]:  # noqa: ANN401 - likewise
    members = [_field(each) for each in part.elements if type(each).__name__ == "Field"]
    for each in members:
        each.oneof = members
    return members


def _field(part: Any, kind: FramedKind | None = None) -> Field:  # noqa: ANN401 - likewise
    if getattr(part, "cardinality", None) == "REPEATED":
        kind = FramedKind.ARRAY
    given = (option.value for option in part.options if option.name == "json_name")
    json_name = next(given, None) or _camel(part.name)
    if not 0 < part.number <= NUMBER_MAX:
        raise SchemaError("it holds a field whose number is wrong")
    return Field(part.name, str(json_name), part.number, getattr(part, "type", ""), kind)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def joined(scope: str, name: str) -> str:
    """Return the full name of what has a `name` in `scope`, which may be empty."""
    return checked_name(f"{scope}.{name}" if scope else name)


def _steps(name: str) -> int:
    """Return the steps of what has a name, which takes memory, too."""
    return NODE_STEPS + len(name) // 100


def _read_serialized(text: str, types: Types, work: Work) -> tuple[str, list[Message]]:
    try:
        file = _parts(base64.b64decode(text, validate=False))
        package = "".join(_texts(file, 2))
        entries = set[str]()
        roots = [_of_descriptor(part, package, types, entries, work) for part in file.get(4, ())]
        _enums(file.get(5, []), package, types)
    except (ValueError, LookupError, TypeError):
        raise SchemaError("it is no .proto file") from None
    for message in types.values():
        for each in message.fields if isinstance(message, Message) else ():
            if each.kind is FramedKind.ARRAY and each.type.removeprefix(".") in entries:
                each.kind = FramedKind.MAP
    return package, roots


def _of_descriptor(raw: bytes, outer: str, types: Types, entries: set[str], work: Work) -> Message:
    """Add a DescriptorProto to `types`, and return it; `entries` takes the names of those that are entries of maps."""
    parts = _parts(raw)
    scope = joined(outer, _texts(parts, 1)[0])
    work.spend(_steps(scope) + NODE_STEPS * len(parts.get(2, ())))
    if any(_parts(options).get(7) for options in parts.get(7, ())):
        entries.add(scope)
    made = types[scope] = Message(scope)
    members: dict[int, list[Field]] = {}
    for each in map(_parts, parts.get(2, ())):
        if each[5] == [_GROUP]:
            continue  # of the text, too, a group is no field
        made.fields.append(found := _of_field(each))
        for oneof in each.get(9, ()):
            members.setdefault(oneof, []).append(found)
    _refuse_repeated(made)
    for group in members.values():
        for member in group:
            member.oneof = group
    _enums(parts.get(4, []), scope, types)
    nested = parts.get(3, ())
    made.nested += [_of_descriptor(each, scope, types, entries, work) for each in nested]
    return made


def _of_field(parts: Parts) -> Field:
    (name,), (number,), (type_,) = _texts(parts, 1), parts[3], parts[5]
    if not 0 < number <= NUMBER_MAX:  # TypeError if it is no integer
        raise ValueError
    kind = FramedKind.ARRAY if _REPEATED in parts.get(4, ()) else None
    json_name = (_texts(parts, 10) or [_camel(name)])[0]
    return Field(name, json_name, number, (_texts(parts, 6) or [_TYPES.get(type_, "")])[0], kind)


def _enums(raw: list[bytes], scope: str, types: Types) -> None:
    for parts in map(_parts, raw):
        values = [_parts(each) for each in parts.get(2, ())]
        named = [(_signed((each.get(2) or [0])[0]), _texts(each, 1)[0]) for each in values]
        types[joined(scope, _texts(parts, 1)[0])] = dict(reversed(named))


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _texts(parts: Parts, number: int) -> list[str]:
    return [str(each, "utf-8") for each in parts.get(number, ())]  # TypeError if it is an integer


def _parts(raw: bytes) -> Parts:
    """Return the values of a message by their numbers, in order: integers and bytes. ValueError if it is none."""
    found: Parts = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value & _MASK_64
            if shift > 63:
                raise ValueError

    while at < len(raw):
        tag = varint()
        match tag & 7:
            case 0:
                value: Any = varint()
            case 1 | 2 | 5 as wire:
                size = varint() if wire == 2 else 8 if wire == 1 else 4
                value, at = raw[at : at + size], at + size
            case _:
                raise ValueError
        found.setdefault(tag >> 3, []).append(value)
    if at > len(raw):
        raise ValueError
    return found
