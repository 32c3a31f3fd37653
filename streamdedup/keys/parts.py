"""The parts of a key. Each is the first of several names that an event has: fields of its value, or headers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from streamdedup.events import Column, Integers


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a key: of `names`, the first that is neither missing nor null.

    With the origin `json` they are paths of fields, whatever the value's format is.
    """

    origin: Literal["json", "header"]
    names: tuple[str, ...]


class Cells(NamedTuple):
    """What a name leads to: one row for each event, with a key or a null.

    `malformed` has the reason for each null, by its row. `absent` are the rows, ascending, in which the name is missing
    or null.
    """

    keys: Column
    malformed: dict[int, str]
    absent: Integers


Reader = Callable[[str, Integers | slice], Cells]  # what a name leads to in some rows


def first_of(names: Sequence[str], read: Reader) -> tuple[Column, dict[int, str]]:
    """Return the keys of one part, and why a row has none, in ascending order.

    A name is read only in rows in which all before it are absent.
    """
    keys, malformed, absent = read(names[0], slice(None))
    for name in names[1:]:
        if not len(absent):
            break
        found = read(name, absent)
        put = keys.placed if keys.buffer is found.keys.buffer else keys.replaced
        keys = put(absent, found.keys)
        rows, still = absent.tolist(), set(found.absent.tolist())
        before = [malformed.pop(row) for row in rows]
        malformed |= {
            rows[at]: f"{before[at]}, and {why}" if at in still else why
            for at, why in found.malformed.items()
        }
        absent = absent[found.absent]
    return keys, malformed if len(names) == 1 else dict(sorted(malformed.items()))
