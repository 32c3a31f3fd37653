"""The paths of the fields that a value, or a schema, has: level by level, of bounded depth and number.

Lists stay closed, and maps of a schema: no path of names leads to what is in them.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

NESTING_MAX = 5  # names of a path
PATHS_MAX = 250  # of one value, or one schema; those of the upper levels come first
VISITED_MAX = 10_000  # fields of one value, or one schema
NAME_CHARS_MAX = 200  # a longer name is no field's, but data

Path = tuple[str, ...]
Paths = Sequence[Path]
T = TypeVar("T")


def paths_of(root: T, fields: Callable[[T], Iterable[tuple[str, T | None]]]) -> Paths:
    """Return the paths of the fields of `root`, each once.

    `fields` yields those of an object, each by its name, with the object that it is; None if it is none.
    """
    found = dict[Path, None]()
    waiting = deque[tuple[Path, T]]([((), root)])
    visited = 0
    while waiting:
        path, within = waiting.popleft()
        for name, inner in fields(within):
            visited += 1
            if len(found) >= PATHS_MAX or visited > VISITED_MAX:
                return [*found]
            if len(name) > NAME_CHARS_MAX:
                continue
            below = (*path, name)
            found[below] = None
            if inner is not None and len(below) < NESTING_MAX:
                waiting.append((below, inner))
    return [*found]
