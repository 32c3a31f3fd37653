"""A schema as a registry gives it: text, and the texts that it refers to."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from streamdedup.errors import StreamdedupError

SchemaType = Literal["AVRO", "PROTOBUF", "JSON"]

CODE_MAX = 1 << 20  # numbers of a program
STEPS_MAX = 1 << 19  # of reading a schema and all that it refers to: some seconds, and some 100 MB
NODE_STEPS = 4  # of a type, a message or a field: some 500 bytes while the schema is compiled
ROW_BYTES = 40  # of a key that is no part of its value: digits, or a UUID; a symbol comes on top
# Of a full name, or a symbol: many that have a long one in common would fill the memory.
NAME_CHARS_MAX = 1_000


class SchemaError(StreamdedupError):
    """A schema that no key can be found by. The message says why, as a sentence about `it`, and quotes nothing."""


def checked_name(name: str) -> str:
    """Return a full name, or a symbol. SchemaError if it is longer than any that is needed."""
    if len(name) > NAME_CHARS_MAX:
        raise SchemaError(f"it holds a name of more than {NAME_CHARS_MAX} characters")
    return name


class Work:
    """The steps that are left for one schema. They bound the time and the memory that it may take."""

    def __init__(self) -> None:
        self._left = STEPS_MAX

    def spend(self, steps: int = 1) -> None:
        """Count steps. SchemaError if they are more than are left."""
        self._left -= steps
        if self._left < 0:
            raise SchemaError("it takes too long to read")


def packed(symbol: bytes) -> list[int]:
    """Return the numbers of a program that are a symbol: its length in bytes, then eight bytes each, lowest first."""
    words = range(0, len(symbol), 8)
    return [
        len(symbol),
        *(int.from_bytes(symbol[at : at + 8], "little", signed=True) for at in words),
    ]


class Program(NamedTuple):
    """What finds a key in values of one schema: for the kernel of its format, and what a key may take besides a value.

    Addresses in `code` count from its beginning. `room_bytes` are those of the longest symbol of an enum. `has_field`
    is whether the schema has anything at the end of the path.
    """

    code: list[int]
    room_bytes: int
    has_field: bool


@dataclass(frozen=True)
class Reference:
    """A schema that another one refers to by `name`: an Avro name, or the path of an import."""

    name: str
    text: str


@dataclass(frozen=True)
class Schema:
    """A schema with its `references`, each after those that it refers to itself; or `why_not`, if it was not read."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    why_not: str = ""

    @cached_property
    def digest(self) -> str:
        """16 hex digits, which another schema does not have; texts that differ in white space alone have the same.

        A schema that was not read has none.
        """
        if self.why_not:
            return ""
        plain = json.dumps([" ".join(part.split()) for part in self._parts])
        return hashlib.sha256(plain.encode()).hexdigest()[:16]

    @cached_property
    def exact(self) -> str:
        """64 hex digits, which no other schema has, nor a text that differs in anything."""
        return hashlib.sha256(json.dumps(self._parts).encode()).hexdigest()

    @property
    def _parts(self) -> list[str]:
        return [self.type, *(f"{each.name}\0{each.text}" for each in self.references), self.text]
