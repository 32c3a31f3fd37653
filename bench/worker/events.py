"""The events of a topic, made from a seed: which key each has, which are the first of theirs, and their bytes.

The key is an address, the value a JSON object of the address, the event's position in its partition, and a filler; so
an output tells not only which keys it holds but which of their events.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from bench.samples import AFTER, BEFORE, DIGITS

Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

KEY = BEFORE + b"0" * DIGITS + AFTER
VALUE = b'{"email":"' + KEY + b'","n":"' + b"0" * DIGITS + b'","pad":"%b"}'
NUMBER_IN_KEY = len(BEFORE)
NUMBER_IN_VALUE = VALUE.index(KEY) + NUMBER_IN_KEY
POSITION_IN_VALUE = VALUE.index(b'"n":"') + len(b'"n":"')
SIZE_MIN = len(KEY) + len(VALUE % b"")


@dataclass(frozen=True)
class Form:
    """What all events of a topic look like; `size` is that of key and value together, in bytes."""

    size: int

    def __post_init__(self) -> None:
        if self.size < SIZE_MIN:
            raise ValueError(f"size is {self.size}: an event has at least {SIZE_MIN} bytes")

    @cached_property
    def value(self) -> bytes:
        """The value with zeros for digits."""
        return VALUE % (b"x" * (self.size - SIZE_MIN))


@dataclass(frozen=True)
class Part:
    """One partition: the key's number of each event, by offset, and whether it is the first with that key."""

    numbers: Integers
    first: npt.NDArray[np.bool_]

    def expected(self, end: int, *, judged: bool) -> Integers:
        """The offsets below `end` that an output holds, in order: those of first occurrences, else all."""
        return np.flatnonzero(self.first[:end]) if judged else np.arange(end)


def parts(events: int, partitions: int, duplicates: float, seed: int = 1) -> list[Part]:
    """`events` in all, of which the share `duplicates` has the key of an earlier one, any of them equally likely.

    Keys are numbered as they come; a key's partition is its number modulo `partitions`.
    """
    chance = np.random.default_rng(seed)
    first = chance.random(events) >= duplicates
    first[:1] = True
    seen = np.cumsum(first)
    again = (chance.random(events) * (seen - first)).astype(np.int64)
    numbers = np.where(first, seen - 1, again)
    of = numbers % partitions
    return [Part(numbers[of == p], first[of == p]) for p in range(partitions)]
