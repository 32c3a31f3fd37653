"""Compiles an Avro schema, and the path to a key in its values, to the program that `avro_column` runs.

A value has neither names nor lengths, so all of it is walked: what is not on the path is skipped. The writer's schema
alone counts, without defaults and aliases. The program is linear in the size of the schema: each record that is skipped
is one subroutine, however often it is used.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeVar

from streamdedup.keys.formats.field_paths import Paths, paths_of
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.schema import (
    CODE_MAX,
    NODE_STEPS,
    Program,
    SchemaError,
    Work,
    checked_name,
    packed,
)

NESTING_MAX = 100  # of the schema's own text; far below where Python's reader of JSON gives up
SIZE_BYTES_MAX = (1 << 31) - 1  # of a fixed


class Op(IntEnum):
    """The instructions, each followed by its operands."""

    END = 0
    SKIP = 1  # bytes
    VARINT = 2
    BYTES = 3  # a length, and as many bytes
    UNION = 4  # count, the address of each branch
    JUMP = 5  # address
    CALL = 6  # address
    RETURN = 7
    BLOCKS = 8  # the address after its NEXT; the items' instructions follow
    NEXT = 9
    EVEN_BLOCKS = 10  # of items that have as many bytes each
    KIND = 11  # kind
    KEY_TEXT = 12
    KEY_BYTES = 13
    KEY_INT = 14
    KEY_LONG = 15
    KEY_ENUM = 16  # count, the address of each symbol, which is `packed` there
    KEY_FIXED = 17  # bytes
    KEY_UUID = 18


_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_SKIPPED = {"int": Op.VARINT, "long": Op.VARINT, "bytes": Op.BYTES, "string": Op.BYTES}
_KEYS = {
    "string": Op.KEY_TEXT,
    "bytes": Op.KEY_BYTES,
    "int": Op.KEY_INT,
    "long": Op.KEY_LONG,
}
_NO_KEYS = {
    "null": FramedKind.NULL,
    "boolean": FramedKind.BOOLEAN,
    "float": FramedKind.FLOAT,
    "double": FramedKind.FLOAT,
    "array": FramedKind.ARRAY,
    "map": FramedKind.MAP,
    "record": FramedKind.RECORD,
}
_LOGICAL: Mapping[tuple[str, str], FramedKind] = {
    ("bytes", "decimal"): FramedKind.DECIMAL,
    ("bytes", "big-decimal"): FramedKind.DECIMAL,
    ("fixed", "decimal"): FramedKind.DECIMAL,
    ("fixed", "duration"): FramedKind.DURATION,
}
_ITEMS = {"array": "items", "map": "values"}  # where the type of the items is
_NAMED = {"record", "error", "enum", "fixed"}

Node = dict[str, Any]
_PRIMITIVES: Mapping[str, Node] = {kind: {"type": kind} for kind in (*_SIZES, *_SKIPPED)}
T = TypeVar("T")


def compiled(text: str, references: Sequence[str], steps: Sequence[str]) -> Program:
    """Return the program that finds the key at the path of `steps` in values of the schema `text`.

    `references` are the schemas whose names it uses, each after those that it uses itself. Addresses count from the
    program's beginning. Raises SchemaError if the schema is wrong.
    """
    try:
        return _Compiler().program(_root(text, references), tuple(steps))
    except RecursionError:
        raise SchemaError("its records are nested too deep") from None


def fields(text: str, references: Sequence[str]) -> Mapping[tuple[int, ...], Paths]:
    """Return the paths of the fields in values of the schema `text`, under (). Otherwise as `compiled`."""
    return {(): paths_of(_root(text, references), _fields)}


def _fields(node: Node) -> Iterator[tuple[str, Node | None]]:
    """Yield the fields of a record, and of each record of a union; each with its type if it may have fields itself."""
    for each in node["branches"] if node["type"] == "union" else [node]:
        for name, inner in each.get("fields", ()):
            yield name, inner if inner["type"] in ("record", "union") else None


def _root(text: str, references: Sequence[str]) -> Node:
    reader = _Reader()
    *_, root = (reader.read(_parsed(each), "", 0) for each in (*references, text))
    return root


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # A primitive type may stand there without quotes.
        if text.strip() in _PRIMITIVES:
            return text.strip()
        raise SchemaError("it is not JSON") from None


class _Reader:
    """Makes nodes of a schema's JSON, and finds what its names name: a node is a type with its own parts resolved."""

    def __init__(self) -> None:
        self._names: dict[str, Node] = {}
        self._work = Work()

    def read(self, raw: object, space: str, depth: int) -> Node:
        self._work.spend(NODE_STEPS)
        if depth > NESTING_MAX:
            raise SchemaError(f"it is nested deeper than {NESTING_MAX}")
        if isinstance(raw, str):
            return _PRIMITIVES.get(raw) or self._named(raw, space)
        if isinstance(raw, list):
            branches = [self.read(each, space, depth + 1) for each in raw]
            return {"type": "union", "branches": branches}
        if not isinstance(raw, dict):
            raise SchemaError("it holds something that is no type")
        kind = raw.get("type")
        if not isinstance(kind, str):
            return self.read(kind, space, depth + 1)
        if kind in _NAMED:
            return self._defined(kind, raw, space, depth)
        return self._anonymous(kind, raw, space, depth)

    def _anonymous(self, kind: str, raw: Mapping[str, Any], space: str, depth: int) -> Node:
        if kind in _ITEMS:
            return {"type": kind, "items": self.read(raw.get(_ITEMS[kind]), space, depth + 1)}
        if kind in _PRIMITIVES:
            return {"type": kind, "logical": _logical(raw)}
        return self._named(kind, space)

    def _named(self, name: str, space: str) -> Node:
        node = self._names.get(_full(name, space)) or self._names.get(name)
        if node is None:
            raise SchemaError("it uses a name that nothing in it or in its references defines")
        return node

    def _defined(self, kind: str, raw: Mapping[str, Any], space: str, depth: int) -> Node:
        name = raw.get("name")
        if not isinstance(name, str) or not name:
            raise SchemaError(f"it holds a type {kind} without a name")
        given = raw.get("namespace", space)
        full = _full(name, given if isinstance(given, str) else space)
        if full in self._names:
            raise SchemaError("it defines a name twice")
        node: Node = {"type": "record" if kind == "error" else kind, "name": full}
        self._names[full] = node
        match kind:
            case "enum":
                symbols = _listed(str, raw.get("symbols"), "an enum without symbols")
                node["symbols"] = _distinct(symbols, "an enum that repeats a symbol")
            case "fixed":
                size = raw.get("size")
                if type(size) is not int or not 0 <= size <= SIZE_BYTES_MAX:
                    raise SchemaError("it holds a fixed without a size")
                node |= {"size": size, "logical": _logical(raw)}
            case _:
                fields = _listed(dict, raw.get("fields"), "a record without fields")
                inner = full.rpartition(".")[0]
                named = _listed(
                    str, [each.get("name") for each in fields], "a field without a name"
                )
                _distinct(named, "a record that repeats the name of a field")
                node["fields"] = [
                    (each["name"], self.read(each.get("type"), inner, depth + 1)) for each in fields
                ]
        return node


def _listed(kind: type[T], values: object, what: str) -> list[T]:
    if not isinstance(values, list) or not all(isinstance(each, kind) for each in values):
        raise SchemaError(f"it holds {what}")
    return values


def _distinct(names: list[str], what: str) -> list[str]:
    if len(set(names)) < len(names):
        raise SchemaError(f"it holds {what}")
    return names


def _logical(raw: Mapping[str, Any]) -> str:
    given = raw.get("logicalType")
    return given if isinstance(given, str) else ""


def _full(name: str, space: str) -> str:
    return checked_name(name if "." in name or not space else f"{space}.{name}")


class _Compiler:
    def __init__(self) -> None:
        self._code: list[int] = []
        self._room_bytes, self._has_field, self._visited = 0, False, 0
        self._skip_at = -1  # of the last instruction, if it is a SKIP that may become longer
        self._calls: list[tuple[int, str]] = []
        self._skipped: list[Node] = []  # the records that need a subroutine, each once
        self._called = set[str]()  # their names
        self._empty: dict[str, bool] = {}
        self._cores: dict[str, Node] = {}
        self._symbols: dict[str, list[int]] = {}  # the addresses of an enum's symbols, by its name

    def program(self, root: Node, steps: tuple[str, ...]) -> Program:
        self._find(root, steps)
        self._emit(Op.END)
        addresses: dict[str, int] = {}
        for node in self._skipped:  # more are found meanwhile
            addresses[node["name"]] = self._here()
            for _, field in node["fields"]:
                self._skip(field)
            self._emit(Op.RETURN)
        for at, name in self._calls:
            self._code[at] = addresses[name]
        return Program(self._code, self._room_bytes, self._has_field)

    def _emit(self, op: Op, *operands: int) -> int:
        """Add an instruction; return where its operands begin."""
        self._skip_at = -1
        self._add(op, *operands)
        return len(self._code) - len(operands)

    def _add(self, *numbers: int) -> None:
        if len(self._code) + len(numbers) > CODE_MAX:
            raise SchemaError("it is too large")
        self._code += numbers

    def _here(self) -> int:
        """Return the address of the next instruction, to which something will jump."""
        self._skip_at = -1
        return len(self._code)

    def _skip_bytes(self, count: int) -> None:
        if count and self._skip_at >= 0:
            self._code[self._skip_at] += count
        elif count:
            at = self._emit(Op.SKIP, count)
            self._skip_at = at

    def _find(self, node: Node, steps: tuple[str, ...]) -> None:
        """Walk a value of `node`, and take what `steps` lead to."""
        if node["type"] == "union":
            self._branch(node, lambda branch: self._find(branch, steps))
            return
        if not steps:
            self._take(node)
            return
        if node["type"] != "record":  # the rest of the path leads nowhere
            self._skip(node)
            return
        # A union of n records on each step of the path visits n ** steps of them.
        self._visited += len(node["fields"])
        if self._visited > CODE_MAX:
            raise SchemaError("it is too large")
        for name, field in node["fields"]:
            if name == steps[0]:
                self._find(field, steps[1:])
            else:
                self._skip(field)

    def _take(self, node: Node) -> None:
        self._has_field = True
        kind, logical = node["type"], node.get("logical", "")
        if kind == "enum":
            self._take_enum(node["name"], node["symbols"])
            return
        why = _NO_KEYS.get(kind) or _LOGICAL.get((kind, logical))
        if why is not None:
            self._emit(Op.KIND, why)
            self._skip(node)
        elif kind == "fixed":
            is_uuid = logical == "uuid" and node["size"] == 16
            self._emit(Op.KEY_UUID) if is_uuid else self._emit(Op.KEY_FIXED, node["size"])
        else:
            self._emit(_KEYS[kind])

    def _take_enum(self, name: str, symbols: Sequence[str]) -> None:
        if name not in self._symbols:
            over = self._emit(Op.JUMP, 0)
            self._symbols[name] = [self._put(symbol) for symbol in symbols]
            self._code[over] = self._here()
        self._emit(Op.KEY_ENUM, len(symbols), *self._symbols[name])

    def _put(self, symbol: str) -> int:
        """Add a symbol, and return its address."""
        at, text = len(self._code), checked_name(symbol).encode("utf-8", "replace")
        self._room_bytes = max(self._room_bytes, len(text))
        self._add(*packed(text))
        return at

    def _skip(self, node: Node) -> None:
        """Walk a value of `node` of which nothing is taken."""
        kind = node["type"]
        if kind in _SIZES or kind == "fixed":
            self._skip_bytes(node["size"] if kind == "fixed" else _SIZES[kind])
        elif kind == "enum":
            self._emit(Op.VARINT)
        elif kind == "union":
            self._branch(node, self._skip)
        elif kind == "record":
            if not self._is_empty(node):
                self._call(self._core(node))
        elif kind in ("array", "map"):
            self._blocks(node["items"], is_map=kind == "map")
        else:
            self._emit(_SKIPPED[kind])

    def _call(self, record: Node) -> None:
        name = record["name"]
        if name not in self._called:
            self._called.add(name)
            self._skipped.append(record)
        self._calls.append((self._emit(Op.CALL, 0), name))

    def _core(self, record: Node) -> Node:
        """Return the record within `record` that has the same bytes, if all else in it has none.

        So a value cannot have many calls for each of its bytes.
        """
        seen = set[str]()
        while record["name"] not in self._cores and record["name"] not in seen:
            seen.add(record["name"])
            parts = [part for _, part in record["fields"] if not self._is_empty(part)]
            if len(parts) != 1 or parts[0]["type"] != "record":
                break
            record = parts[0]
        core = self._cores.get(record["name"], record)
        self._cores |= dict.fromkeys(seen, core)  # each step of a chain is taken once
        return core

    def _branch(self, node: Node, walk: Callable[[Node], None]) -> None:
        branches = node["branches"]
        at = self._emit(Op.UNION, len(branches), *[0] * len(branches)) + 1
        ends = []
        for number, branch in enumerate(branches):
            self._code[at + number] = self._here()
            walk(branch)
            ends.append(self._emit(Op.JUMP, 0))
        for end in ends:
            self._code[end] = self._here()

    def _blocks(self, items: Node, *, is_map: bool) -> None:
        if not is_map and (size := self._even_size(items)) is not None:
            self._emit(Op.EVEN_BLOCKS, size)
            return
        after = self._emit(Op.BLOCKS, 0)
        self._here()
        if is_map:
            self._emit(Op.BYTES)
        self._skip(items)
        self._emit(Op.NEXT)
        self._code[after] = self._here()

    def _even_size(self, node: Node) -> int | None:
        """Return how many bytes every value of `node` has; None if that is not known by its type alone."""
        if node["type"] == "fixed":
            return int(node["size"])
        if node["type"] == "record":
            return 0 if self._is_empty(node) else None
        return _SIZES.get(node["type"])

    def _is_empty(self, node: Node) -> bool:
        """Return whether every value of `node` has no byte. All others have one at least, so they bound a count."""
        if node["type"] != "record":
            return self._even_size(node) == 0
        name = node["name"]
        if name not in self._empty:
            self._empty[name] = False  # within itself: what has no end has bytes
            self._empty[name] = all(self._is_empty(field) for _, field in node["fields"])
        return self._empty[name]
