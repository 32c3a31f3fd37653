"""The programs of schemas in one array, as a kernel takes them. Equal schemas share theirs, and the total is bounded.

Nothing that a reader holds ever changes: programs are only added after what is used, or copied to a new array. So a
thread that reads by them needs no lock, and any thread may make the next `Programs` of these.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from streamdedup.events import Integers
from streamdedup.keys.formats.schema import CODE_MAX, ROW_BYTES, Program
from streamdedup.keys.hashing import frozen

# Numbers for each field of the key: 32 MiB. One schema takes a quarter at most.
TOTAL_MAX = 4 * CODE_MAX
ROOM_MIN = 1 << 10
PIECE = 1 << 14  # numbers that are copied at once: numpy holds the GIL for less than 1 ms


@dataclass(frozen=True, slots=True)
class SchemaPrograms:
    """Where the programs of one schema begin, one for each field; which fields it does not have."""

    entries: tuple[int, ...]
    numbers: int
    room_bytes: int
    lacks: frozenset[int]


@dataclass(frozen=True, slots=True)
class Programs:
    """The first `used` numbers of `_room` are programs; `schemas` has those of each schema, by its `exact` digest."""

    _room: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    used: int = 0
    schemas: Mapping[str, SchemaPrograms] = field(default_factory=dict)

    @property
    def code(self) -> Integers:
        """All programs, for a kernel."""
        return frozen(self._room[: self.used], np.int64)

    @property
    def room_bytes(self) -> int:
        """What a key may take that is no part of its value."""
        return max((schema.room_bytes for schema in self.schemas.values()), default=ROW_BYTES)

    def added(self, exact: str, programs: Sequence[Program], lately: Iterable[str]) -> "Programs":
        """Return these and those of one schema more, one for each field.

        If they become too many, only those that come first in `lately` stay, so that half of `TOTAL_MAX` is free again.
        Before the result is in use, nothing else may be added to these.
        """
        numbers, most = sum(len(each.code) for each in programs), TOTAL_MAX * len(programs)
        kept = self
        if self.used + numbers > most:
            kept = self._moved(self._first(lately, most // 2 - numbers), most)
        elif self.used + numbers > len(self._room):
            kept = self._moved(self.schemas, min(most, max(ROOM_MIN, 2 * (self.used + numbers))))
        entries, at = [], kept.used
        for each in programs:
            entries.append(at)
            for piece in range(0, len(each.code), PIECE):
                numbers_of = each.code[piece : piece + PIECE]
                kept._room[at : at + len(numbers_of)] = numbers_of
                at += len(numbers_of)
        schema = SchemaPrograms(
            entries=tuple(entries),
            numbers=numbers,
            room_bytes=ROW_BYTES + max(each.room_bytes for each in programs),
            lacks=frozenset(at for at, each in enumerate(programs) if not each.has_field),
        )
        return replace(kept, used=at, schemas={**kept.schemas, exact: schema})

    def _first(self, lately: Iterable[str], most: int) -> list[str]:
        """Return those of the schemas in `lately` that have at most so many numbers together."""
        chosen = dict[str, None]()
        for exact in lately:
            if exact in self.schemas and exact not in chosen:
                most -= self.schemas[exact].numbers
                if most < 0:
                    break
                chosen[exact] = None
        return [*chosen]

    def _moved(self, chosen: Iterable[str], room: int) -> "Programs":
        """Return the programs of `chosen` alone, in a new array with `room`."""
        to, at, schemas = np.empty(room, dtype=np.int64), 0, dict[str, SchemaPrograms]()
        for exact in chosen:
            old = self.schemas[exact]
            start = old.entries[0]
            to[at : at + old.numbers] = self._room[start : start + old.numbers]
            schemas[exact] = replace(old, entries=tuple(it - start + at for it in old.entries))
            at += old.numbers
        return Programs(to, at, schemas)
