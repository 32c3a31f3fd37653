"""One call at a time: all public methods of a filter hold its lock, because kernels let other threads run.

The methods of one key, which are builtins, hold the interpreter's lock instead. They read a state (`native`), which is
closed while a method that holds the filter's lock is inside: then they leave all to it.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from itertools import chain
from operator import is_
from typing import Any, ClassVar, ParamSpec, TypeVar, cast

from streamdedup.errors import ConfigError, with_options
from streamdedup.keys.hashing import Hash
from streamdedup.native import OPEN, ROOM, STAGE_ROOM, Native, new_state

P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[..., Any]

# How the worker names an option that is called `hash_key` here.
OF_COMMANDS = "hash_key_file, --hash-key-file"
UNWATCHED = sys.maxsize  # the room of a filter that does not look whether it is full
ROOM_BYTES, STAGE_ROOM_BYTES = (slice(8 * word, 8 * word + 8) for word in (ROOM, STAGE_ROOM))


class Locked(Native):
    """What a filter has more if threads share it. `_room_left` new keys fit for certain."""

    _lock: Any
    _inside: int  # how many methods hold the lock, one within the other
    _known: tuple[Any, ...]  # what the state was made of
    _builtins: ClassVar[Any]  # of its kind; None if there can be none
    _natives: ClassVar[dict[str, Any]]  # the builtins of its class that were made
    _normalizes: ClassVar[bool]  # whether its builtins get keys that are normalized

    @property
    def _room_left(self) -> int:
        return int.from_bytes(self._state[ROOM_BYTES], sys.byteorder, signed=True)

    @_room_left.setter
    def _room_left(self, keys: int) -> None:
        self._state[ROOM_BYTES] = keys.to_bytes(8, sys.byteorder, signed=True)

    def _count_room(self) -> int:
        """Return how many new keys fit, which may be below 0, and keep the number in `_room_left`."""
        raise NotImplementedError

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock. Builtins leave all to Python meanwhile. Errors name options as a program does."""
        inside, was_open = self._level(), 0
        with self._lock:
            try:
                was_open = self._enter(inside)
                yield
            except (ConfigError, TypeError, ValueError) as error:
                name_options(error)
                raise
            finally:
                self._leave(inside, was_open)

    def _level(self) -> int:
        """How many methods of this thread are inside; read before the lock is taken once more.

        It is not taken from `_inside` alone, which an interrupt may have left too high.
        """
        return self._inside if self._lock._is_owned() else 0

    def _enter(self, inside: int) -> int:
        """Begin a method that holds the lock: builtins leave all to Python. Return whether they worked before."""
        self._inside = inside + 1
        was_open, self._state[OPEN] = self._state[OPEN], 0
        return was_open

    def _leave(self, inside: int, was_open: int) -> None:
        """End it. Builtins work again if they did before, and no array of theirs was replaced."""
        self._inside = inside
        if was_open:
            if _same(tuple(chain(*self._stage_words())), self._known):
                self._state[STAGE_ROOM_BYTES] = self._stage_room.to_bytes(8, sys.byteorder)
                self._state[OPEN] = 1
            else:
                self._known = ()

    def _opens(self) -> bool:
        """Let builtins work, from the arrays of now. Return False if they do already, or cannot."""
        if self._inside or self._state[OPEN] or self._builtins is None:
            return False
        one, words = cast("Any", self), self._stage_words()
        if not all(words) or (type(one.hash) is not Hash) != self._normalizes:
            return False
        if self._room_left < 1:
            self._count_room()
        self._known, room = tuple(chain(*words)), self._room_left
        layout = self._builtins.layout
        self._state = new_state(layout, one.hash.key, room, self._stage_room, words)
        return True

    def _stage_words(self) -> list[tuple[Any, ...]]:
        """The words of each stage, as builtins take them; empty if they cannot work now."""
        return [self._builtins.words(stage) for stage in getattr(self, "_stages", [self])]

    @property
    def _stage_room(self) -> int:
        """How many new keys the newest stage takes."""
        return getattr(self, "_room", UNWATCHED)


@contextmanager
def both_alone(one: object, other: object) -> Iterator[None]:
    """Hold the locks of two filters, in the order of `forks`, whichever of the two is on the left."""
    both = {id(each._lock): each for each in (one, other) if isinstance(each, Locked)}
    with ExitStack() as held:
        for _, each in sorted(both.items()):
            held.enter_context(each._alone())
        yield


def locked(method: Method) -> Method:
    """Return the method, which then holds the lock."""

    @wraps(method)
    def alone(self: Any, *arguments: Any, **named: Any) -> Any:
        inside, was_open = self._level(), 0
        with self._lock:  # as `_alone`, in less time
            try:
                was_open = self._enter(inside)
                return method(self, *arguments, **named)
            except (ConfigError, TypeError, ValueError) as error:
                name_options(error)
                raise
            finally:
                self._leave(inside, was_open)

    return alone


def naming_options(call: Callable[P, R]) -> Callable[P, R]:
    """Return what is called, whose errors then name options as a program writes them."""

    @wraps(call)
    def naming(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return call(*arguments, **named)
        except (ConfigError, TypeError, ValueError) as error:
            name_options(error)
            raise

    return naming


def name_options(error: Exception) -> None:
    """Have an error of the worker, about `filter.capacity`, name the option as a program writes it: `capacity`."""
    error.args = tuple(
        with_options(each, str).replace(OF_COMMANDS, "hash_key") if isinstance(each, str) else each
        for each in error.args
    )


def in_locked_steps(method: Method) -> Method:
    """Return a method whose iterator holds the lock for a step at a time."""

    @wraps(method)
    def in_steps(self: Any, *arguments: Any, **named: Any) -> Iterator[None]:
        with self._alone():
            steps = method(self, *arguments, **named)
        return _each_under(self._alone, steps)

    return in_steps


def _each_under(alone: Callable[[], Any], steps: Iterator[None]) -> Iterator[None]:
    ended = False
    while not ended:
        with alone():
            ended = next(steps, steps) is steps
        if not ended:
            yield


def _same(words: tuple[Any, ...], known: tuple[Any, ...]) -> bool:
    return len(words) == len(known) and all(map(is_, words, known))
