"""Filters as programs get them: threads may share one, and none is full without a word.

The worker's filters need neither, and pay for neither. So `shared` gives a filter a subclass of its own class, made
once for each: there all public methods hold the filter's lock, because kernels let other threads run, and additions
watch the capacity. The methods of one key become builtins when they are first called (`filters.one_key`).
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, wraps
from importlib import import_module
from inspect import Parameter, Signature, getattr_static, isfunction
from itertools import chain
from operator import is_
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

import numpy as np
from typing_extensions import override

from streamdedup import filters, forks
from streamdedup.errors import FilterFullError, FilterFullWarning
from streamdedup.filters.base import Addable, Filter, Growing, Times
from streamdedup.filters.bloom import classic
from streamdedup.filters.kinds import GROWABLE, KINDS, STATIC
from streamdedup.filters.memory import aligned_bytes, fill
from streamdedup.keys.hashing import MURMUR3, Digests, Hash
from streamdedup.native import HEAD, OPEN, ROOM, STAGE_ROOM, Native, as_builtin, new_state, usable
from streamdedup.snapshot import files

if TYPE_CHECKING:  # it brings numba
    from streamdedup.filters.one_key import Builtins

F = TypeVar("F", bound=Filter)
Method = Callable[..., Any]

WARN, STOP, WARNED = "warn", "stop", "warned"
UNWATCHED = sys.maxsize  # the room of a filter after its one warning
FREE = ("digests", "from_parts", "hash")  # they read nothing that changes
# They return iterators; between two steps others may work.
IN_STEPS = ("put_many", "date", "rotate")
OPERATORS = ("__contains__", "__len__", "__repr__")
ONE_KEY = ("__contains__", "add", "discard")  # the methods that may become builtins
# What a builtin of one key takes, and its method before it becomes one.
ONE_ARGUMENT = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in ("self", "key")]
ROOM_BYTES, STAGE_ROOM_BYTES = (slice(8 * word, 8 * word + 8) for word in (ROOM, STAGE_ROOM))


def build(config: Mapping[str, Any]) -> Addable:
    """Do what `streamdedup.build` documents."""
    on_full = WARN
    if isinstance(config, Mapping) and config.get("kind") not in tuple(STATIC):
        given = dict(config)
        if given.get("on_full") in (WARN, STOP):
            on_full, config = given.pop("on_full"), given
    return shared(filters.build(config), on_full)


def load(path: "str | PathLike[str]", *, mmap: bool, hash_key: bytes, verify: bool) -> Filter:
    """Do what `streamdedup.load` documents."""
    return files.load(path, mmap=mmap, hash_key=hash_key, verify=verify, make=_restored)


def save(filter_: Filter, path: "str | PathLike[str]") -> None:
    """Do what `streamdedup.save` documents. Other threads wait if they could do more than set bits meanwhile."""
    waits = isinstance(filter_, Shared) and (
        isinstance(filter_, Growing) or not cast("Filter", filter_).only_sets_bits
    )
    with cast("Shared", filter_)._alone() if waits else nullcontext():
        files.save(filter_, path)


def shared(filter_: F, on_full: str = WARN) -> F:
    """Return `filter_`, made so that threads may share it; it warns, or stops, at a key beyond its capacity.

    The argument must not be used any more.
    """
    class_: Any = _class_over(type(filter_), getattr(filter_, "_of", filter_.kind))
    made: Any = class_.__new__(class_)
    made._on_full = on_full
    for name, value in vars(
        filter_
    ).items():  # one by one, since Python reads attributes faster then
        setattr(made, name, value)
    return cast("F", made)


class Shared(Native):
    """What a filter has more if threads share it. `_room_left` new keys fit for certain."""

    _lock: Any
    _on_full: str
    _inside: int  # how many methods hold the lock, one within the other
    _known: tuple[Any, ...]  # what the state was made of
    _builtins: ClassVar[Any]  # of its kind; None if there can be none
    _natives: ClassVar[dict[str, Any]]  # the builtins of its class that were made

    def __new__(cls, *_: object, **_named: object) -> Self:  # noqa: D102 - no public name
        made = super().__new__(cls)
        made._state, made._inside, made._known = bytearray(8 * HEAD), 0, ()
        made._lock, made._on_full = forks.lock(forks.FILTER), WARN
        return made

    @property
    def _room_left(self) -> int:
        return int.from_bytes(self._state[ROOM_BYTES], sys.byteorder, signed=True)

    @_room_left.setter
    def _room_left(self, keys: int) -> None:
        self._state[ROOM_BYTES] = keys.to_bytes(8, sys.byteorder, signed=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock. Builtins leave all to Python meanwhile."""
        inside, was_open = self._level(), 0
        with self._lock:
            try:
                was_open = self._enter(inside)
                yield
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
        if not all(words) or type(one.hash) is not Hash:
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

    def __copy__(self) -> Any:  # noqa: ANN401 - of its own class
        one = cast("Filter", self)
        with self._alone():
            return _restored(one.header(), _copies(one.buffers()), one.hash)

    def __deepcopy__(self, _known: object) -> Any:  # noqa: ANN401 - of its own class
        return self.__copy__()

    def __reduce__(self) -> tuple[object, ...]:
        one = cast("Filter", self)
        with self._alone():
            parts = [bytes(buffer) for buffer in one.buffers()]
            return _unpickled, (one.header(), parts, one.hash.name, one.hash.key, one.hash.drawn)

    def _make_sure(self, rows: int, new: Callable[[int], bool]) -> None:
        """Before `rows` keys are added: raise FilterFullError, or warn, if too many of them are new.

        `new` returns whether those that are new fit into the room that it is given.
        """
        room = self._count_room()
        if rows <= room or new(room):
            return
        if self._on_full == STOP:
            raise _full(cast("Filter", self))
        self._warn()

    def _count_room(self) -> int:
        """Return how many new keys fit, which may be below 0."""
        one: Any = self
        room: int = UNWATCHED
        if self._on_full != WARNED:
            room = one.room() if hasattr(one, "room") else one.capacity - len(one)
        self._room_left = max(0, room)
        return room

    def _warn(self) -> None:
        self._on_full, self._room_left = WARNED, UNWATCHED
        one = cast("Filter", self)
        text = (
            f"{_fullness(one)}; from here on it errs more often than its error_rate, {one.error_rate:g}, or takes more"
            f" memory; build it {_remedy(one)}"
        )
        warnings.warn(text, FilterFullWarning, stacklevel=_level_of_caller())


@cache
def _class_over(base: Any, kind: str) -> type:  # noqa: ANN401 - any class of filters
    """The subclass of `base`, a class of filters, whose public methods hold the lock. `kind` is that of its stages.

    A filter that is built at once never changes, and needs no lock.
    """
    body: dict[str, Any] = {"__doc__": base.__doc__, "__module__": base.__module__}
    for name in () if kind in STATIC else dir(base):
        found = getattr_static(base, name)
        if name in FREE or (name.startswith("_") and name not in OPERATORS):
            continue
        if isinstance(found, property) and found.fget:
            body[name] = property(_locked(found.fget))
        elif isfunction(found):
            body[name] = (_in_locked_steps if name in IN_STEPS else _locked)(found)
    body |= {"__contains__": base.__contains__} if kind in STATIC else _watching(base)
    for name in filter(body.__contains__, ONE_KEY):
        body[f"_{name}_by_python"] = by_python = _by_python(name, body[name])
        body[name] = _of_one_key(name, by_python)
    made: Any = type(base.__name__, (Shared, base), body)
    made._class, made._natives, made._builtins = made, {}, None
    if usable() and kind in KINDS and not hasattr(base, "range"):
        made._builtins = _builtins_of(kind)
        for name, entry in made._builtins.entries():
            if name in body and entry.arguments == len(ONE_ARGUMENT):
                body[name].__signature__ = Signature(ONE_ARGUMENT)
    return cast("type", made)


def _by_python(name: str, method: Method) -> Method:
    """What a builtin calls for help: it lets builtins work, if they can now, or does what `method` does."""
    locked = _locked(method)

    @wraps(method)
    def by_python(self: Any, *key: Any, **named: Any) -> Any:  # noqa: ANN401
        inside = self._level()
        with self._lock:
            self._inside = inside
            does = self._natives[name] if self._opens() else locked
            return does(self, *key, **named)

    return by_python


def _of_one_key(name: str, by_python: Method) -> Method:
    """The method until it is first called: then it becomes a builtin, unless a program has put another in its place.

    Who has taken it before, as a bound method, calls the builtin through it.
    """

    @wraps(by_python)
    def of_one_key(self: Any, *key: Any, **named: Any) -> Any:  # noqa: ANN401
        builtin = self._natives.get(name) or _builtin(self._class, name)
        if vars(self._class).get(name) is of_one_key:
            setattr(self._class, name, builtin)
        return builtin(self, *key, **named)

    return of_one_key


def _builtin(class_: Any, name: str) -> Any:  # noqa: ANN401 - a class of filters, and its method
    """Make the builtin of a class; the method in Python if there can be none. Two threads may do this at once."""
    like = getattr(class_, f"_{name}_by_python")
    entry = dict(class_._builtins.entries() if class_._builtins else ()).get(name)
    made = like if entry is None else as_builtin(class_, name, entry.address, entry.arguments, like)
    class_._natives[name] = made
    return made


def _level_of_caller() -> int:
    """How many calls of this module lead here; a builtin among them counts for none."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename == __file__:
        level, frame = level + 1, frame.f_back
    return level


def _builtins_of(kind: str) -> "Builtins":
    family = KINDS[kind].path.partition(".")[0]
    found: Builtins = import_module(f"streamdedup.filters.{family}.one_key").BUILTINS[kind]
    return found


def warm_up() -> None:
    """Compile what the methods of one key are made of, for each kind, or load it from the cache."""
    for kind in KINDS if usable() else ():
        for _, entry in _builtins_of(kind).entries():
            entry.address  # noqa: B018 - made when it is asked for


def _same(words: tuple[Any, ...], known: tuple[Any, ...]) -> bool:
    return len(words) == len(known) and all(map(is_, words, known))


def _watching(base: Any) -> dict[str, Any]:  # noqa: ANN401 - any class of filters
    """The methods that do more than hold the lock."""
    add, header = base.add, base.header

    @wraps(add)
    def add_one(self: Any, key: Any, /) -> bool:  # noqa: ANN401
        if self._room_left < 1:
            self._make_sure(1, lambda room: room > 0 or key in self)
        new: bool = add(self, key)
        self._room_left -= new
        return new

    @wraps(add)
    def add_timed(self: Any, key: Any, /, time: int | None = None) -> bool:  # noqa: ANN401
        if self._room_left < 1:
            self._make_sure(1, lambda room: _fit(self, self.digests([key]), room, time))
        new: bool = add(self, key, time)
        self._room_left -= new
        return new

    @wraps(header)
    def stating(self: Any) -> dict[str, Any]:  # noqa: ANN401
        with self._alone():
            return {**header(self), **({"on_full": STOP} if self._on_full == STOP else {})}

    def from_parts(
        header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash = MURMUR3
    ) -> Filter:
        return _restored(header, buffers, hash_)

    watching = {
        "__init__": _locked(base.__init__),
        "add": add_timed if hasattr(base, "clock") else add_one,
        "__contains__": base.__contains__,
        "add_many": _adding(base.add_many),
        "header": stating,
        "from_parts": staticmethod(from_parts),
    }
    if hasattr(base, "add_absent"):
        watching["add_absent"] = _adding(base.add_absent)
        watching["discard"] = base.discard
    if hasattr(base, "__ior__"):
        watching["__ior__"] = _uniting(base.__ior__)
    return watching


def _adding(add_many: Method) -> Method:
    @wraps(add_many)
    def adding(self: Any, digests: Any, *times: Any, **named: Any) -> Any:  # noqa: ANN401
        with self._alone():
            rows = len(digests) if isinstance(digests, Sequence | np.ndarray) else 0
            if self._room_left < rows:
                self._make_sure(rows, lambda room: _fit(self, digests, room, *times, **named))
            room = self._room_left
            self._room_left = 0  # until it returns: it may add some, and raise
            fresh = add_many(self, digests, *times, **named)
            self._room_left = room - int(np.count_nonzero(fresh))
        return fresh

    return adding


def _uniting(unite: Method) -> Method:
    @wraps(unite)
    def uniting(self: Any, other: Any) -> Any:  # noqa: ANN401
        both = {id(one._lock): one for one in (self, other) if isinstance(one, Shared)}
        with ExitStack() as held:
            # In the order of `forks`, whichever of the two is on the left.
            for _, one in sorted(both.items()):
                held.enter_context(one._alone())
            if self._on_full == STOP:
                trial = self.__copy__()
                unite(trial, other)
                if len(trial) > self.capacity:
                    raise _full(self)
            unite(self, other)
            self._room_left = 0
            if self._on_full == WARN and len(self) > self.capacity:
                self._warn()
        return self

    return uniting


def _locked(method: Method) -> Method:
    @wraps(method)
    def locked(self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        inside, was_open = self._level(), 0
        with self._lock:
            try:
                was_open = self._enter(inside)
                return method(self, *arguments, **named)
            finally:
                self._leave(inside, was_open)

    return locked


def _in_locked_steps(method: Method) -> Method:
    @wraps(method)
    def in_steps(self: Any, *arguments: Any, **named: Any) -> Iterator[None]:  # noqa: ANN401
        with self._alone():
            steps = method(self, *arguments, **named)
        return _each_under(self._alone, steps)

    return in_steps


def _each_under(alone: Callable[[], Any], steps: Iterator[None]) -> Iterator[None]:
    ended = False
    while not ended:
        with alone():
            ended = next(steps, UNWATCHED) is UNWATCHED
        if not ended:
            yield


def _fit(
    one: Any,  # noqa: ANN401 - a filter of keys, of integers, or a window
    digests: Digests,
    room: int,
    times: Times | int | None = None,
) -> bool:
    """Whether those of `digests` that are absent fit into the room; in a window, as time goes on with them."""
    absent = np.flatnonzero(~one.contains_many(digests))
    _, first = np.unique(np.asarray(digests)[absent], axis=0, return_index=True)
    if times is None:  # which a window by time refuses itself
        return len(first) <= room or hasattr(one, "clock")
    from streamdedup.filters.window.clock import checked_time, given_times  # it brings numba

    new, clock = absent[np.sort(first)], one.clock
    if not isinstance(times, np.ndarray):
        times = np.array([checked_time(clock, times)], dtype=np.int64)
    generations, _ = one.folded(given_times(clock, times, len(digests))[new])
    current, held, most = one.loads()
    reached = np.maximum.accumulate(np.maximum(generations, current))
    left = np.append(np.cumsum(held[::-1])[::-1], 0)  # once so many generations are forgotten
    rows = len(new)
    leaves = np.maximum(np.searchsorted(reached, generations + clock.generations), np.arange(rows))
    live = np.cumsum(1 - np.bincount(leaves, minlength=rows + 1)[:rows])
    return bool(np.all(left[np.minimum(reached - current, len(held))] + live <= most))


def _restored(
    header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash = MURMUR3
) -> Filter:
    """The filter of these parts, which says itself what it does if it is full. ValueError if they do not fit."""
    on_full = header.get("on_full", WARN)
    if on_full not in (WARN, STOP):
        raise ValueError(f"on_full {on_full!r} is not {WARN} or {STOP}")
    return shared(filters.from_parts(header, buffers, hash_), on_full)


def _unpickled(
    header: Mapping[str, Any], parts: Sequence[bytes], name: str, key: bytes, drawn: bool
) -> Filter:
    return _restored(header, _copies(map(memoryview, parts)), Hash(name, key, drawn))


def _copies(buffers: Iterable[memoryview]) -> list[memoryview]:
    made = []
    for buffer in buffers:
        made.append(aligned_bytes(buffer.nbytes))
        fill(made[-1], buffer)
    return made


def _full(one: Filter) -> FilterFullError:
    return FilterFullError(f"{_fullness(one)}; nothing was added; build it {_remedy(one)}")


def _fullness(one: Filter) -> str:
    name = one.stages if isinstance(one, Growing) else f"kind {one.kind}"
    return (
        f"a filter of {name} is full: it holds {len(one):,} keys, and more are new than its capacity of"
        f" {one.capacity:,} has room for"
    )


def _remedy(one: Filter) -> str:
    if isinstance(one, Growing):
        return "with a greater max_size"
    grows = ", or with on_full: grow" if one.kind in GROWABLE else ""
    return f"with a greater capacity{grows}"


class ClassicBloom(classic.ClassicBloom):  # noqa: D101 - the docstring is that of the class below it
    __doc__ = classic.ClassicBloom.__doc__

    def __init__(
        self,
        bits: int,
        hashes: int | Sequence[str | classic.KeyHash] = 4,
        *,
        family: str = "salted_md5",
    ) -> None:
        super().__init__(bits, hashes, family=family)
        self._lock = forks.lock(forks.FILTER)

    @override
    def add(self, key: object) -> bool:
        with self._lock:
            return super().add(key)

    @override
    def __contains__(self, key: object) -> bool:
        with self._lock:
            return super().__contains__(key)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = {**vars(self), "_table": self._table.copy()}
        del state["_lock"]
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state, _lock=forks.lock(forks.FILTER))
