"""Locks that a process takes before it forks: the child gets nothing that another thread is changing.

Without that, a lock that another thread holds at the fork is never given back in the child. `subprocess` forks without
this, and needs none of them.
"""

import os
from threading import RLock
from typing import Any, Final
from weakref import ref

# A thread that holds a lock may take locks of later floors, never of earlier ones.
LOOKASIDE: Final = 0
FILTER: Final = 1
NORMALIZER: Final = 2
COMPILER: Final = 3

_FLOORS: tuple[set[ref[Any]], ...] = (set(), set(), set(), set())
_forking, _taken = RLock(), list[Any]()


def lock(floor: int) -> Any:  # noqa: ANN401 - an RLock has no public type
    """Return a new lock. A thread that holds it may take it again."""
    made = RLock()
    take_first(made, floor)
    return made


def take_first(one: Any, floor: int) -> None:  # noqa: ANN401 - what has `acquire` and `release`
    """Take this lock, too, before the process forks."""
    known = _FLOORS[floor]
    known.add(ref(one, known.discard))


def _take() -> None:
    _forking.acquire()
    for known in _FLOORS:
        for one in sorted(filter(None, [each() for each in list(known)]), key=id):
            one.acquire()
            _taken.append(one)


def _give_back() -> None:
    while _taken:
        _taken.pop().release()
    _forking.release()


os.register_at_fork(before=_take, after_in_parent=_give_back, after_in_child=_give_back)
