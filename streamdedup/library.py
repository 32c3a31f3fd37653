"""Filters as programs get them: threads may share one, and none is full without a word.

The worker's filters need neither, and pay for neither. So `shared` gives a filter a subclass of its own class, made
once for each: there all public methods hold the filter's lock, because kernels let other threads run, and additions
watch the capacity.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import cache, wraps
from inspect import getattr_static, isfunction
from os import PathLike
from typing import Any, TypeVar, cast

import numpy as np

from streamdedup import filters, forks
from streamdedup.errors import FilterFullError, FilterFullWarning
from streamdedup.filters.base import Addable, Filter, Growing, Times
from streamdedup.filters.bloom import classic
from streamdedup.filters.kinds import GROWABLE, STATIC
from streamdedup.filters.memory import aligned_bytes, fill
from streamdedup.keys.hashing import MURMUR3, Digests, Hash
from streamdedup.snapshot import files

F = TypeVar("F", bound=Filter)
Method = Callable[..., Any]

WARN, STOP, WARNED = "warn", "stop", "warned"
UNWATCHED = sys.maxsize  # the room of a filter after its one warning
FREE = ("digests", "from_parts", "hash")  # they read nothing that changes
# They return iterators; between two steps others may work.
IN_STEPS = ("put_many", "date", "rotate")
OPERATORS = ("__contains__", "__len__", "__repr__")


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
    with cast("Shared", filter_)._lock if waits else nullcontext():
        files.save(filter_, path)


def shared(filter_: F, on_full: str = WARN) -> F:
    """Return `filter_`, made so that threads may share it; it warns, or stops, at a key beyond its capacity.

    The argument must not be used any more. A filter that takes no keys never changes, and is returned as it is.
    """
    if not isinstance(filter_, Addable):
        return filter_
    class_: Any = _class_over(type(filter_))
    made: Any = class_.__new__(class_)
    made._lock, made._on_full, made._room_left = forks.lock(forks.FILTER), on_full, 0
    for name, value in vars(
        filter_
    ).items():  # one by one, since Python reads attributes faster then
        setattr(made, name, value)
    return cast("F", made)


class Shared:
    """What a filter has more if threads share it. `_room_left` new keys fit for certain."""

    _lock: Any
    _on_full: str
    _room_left: int

    def __copy__(self) -> Any:  # noqa: ANN401 - of its own class
        one = cast("Filter", self)
        with self._lock:
            return _restored(one.header(), _copies(one.buffers()), one.hash)

    def __deepcopy__(self, _known: object) -> Any:  # noqa: ANN401 - of its own class
        return self.__copy__()

    def __reduce__(self) -> tuple[object, ...]:
        one = cast("Filter", self)
        with self._lock:
            parts = [bytes(buffer) for buffer in one.buffers()]
            return _unpickled, (one.header(), parts, one.hash.name, one.hash.key, one.hash.drawn)

    def _make_sure(self, rows: int, new: Callable[[int], bool]) -> None:
        """Before `rows` keys are added: raise FilterFullError, or warn, if too many of them are new.

        `new` returns whether those that are new fit into the room that it is given.
        """
        if self._on_full == WARNED:
            self._room_left = UNWATCHED
            return
        one: Any = self
        room = one.room() if hasattr(one, "room") else one.capacity - len(one)
        self._room_left = max(0, room)
        if rows <= room or new(room):
            return
        if self._on_full == STOP:
            raise _full(one)
        self._warn()

    def _warn(self) -> None:
        self._on_full, self._room_left = WARNED, UNWATCHED
        one = cast("Filter", self)
        text = (
            f"{_fullness(one)}; from here on it errs more often than its error_rate, {one.error_rate:g}, or takes more"
            f" memory; build it {_remedy(one)}"
        )
        warnings.warn(text, FilterFullWarning, stacklevel=4)


@cache
def _class_over(base: type) -> type:
    """The subclass of `base`, a class of filters, whose public methods hold the lock."""
    body: dict[str, Any] = {"__doc__": base.__doc__, "__module__": base.__module__}
    for name in dir(base):
        found = getattr_static(base, name)
        if name in FREE or (name.startswith("_") and name not in OPERATORS):
            continue
        if name == "__contains__":
            body[name] = _locked_lookup(found)
        elif isinstance(found, property) and found.fget:
            body[name] = property(_locked(found.fget))
        elif isfunction(found):
            body[name] = (_in_locked_steps if name in IN_STEPS else _locked)(found)
    return type(base.__name__, (Shared, base), body | _watching(base))


def _watching(base: Any) -> dict[str, Any]:  # noqa: ANN401 - any class of filters
    """The methods that do more than hold the lock."""
    add, header = base.add, base.header

    @wraps(add)
    def add_one(self: Any, key: Any) -> bool:  # noqa: ANN401
        with self._lock:
            if self._room_left < 1:
                self._make_sure(1, lambda room: room > 0 or key in self)
            new: bool = add(self, key)
            self._room_left -= new
        return new

    @wraps(add)
    def add_timed(self: Any, key: Any, time: int | None = None) -> bool:  # noqa: ANN401
        with self._lock:
            if self._room_left < 1:
                self._make_sure(1, lambda room: _fit(self, self.digests([key]), room, time))
            new: bool = add(self, key, time)
            self._room_left -= new
        return new

    @wraps(header)
    def stating(self: Any) -> dict[str, Any]:  # noqa: ANN401
        with self._lock:
            return {**header(self), **({"on_full": STOP} if self._on_full == STOP else {})}

    def from_parts(
        header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash = MURMUR3
    ) -> Filter:
        return _restored(header, buffers, hash_)

    watching = {
        "add": add_timed if hasattr(base, "clock") else add_one,
        "add_many": _adding(base.add_many),
        "header": stating,
        "from_parts": staticmethod(from_parts),
    }
    if hasattr(base, "add_absent"):
        watching["add_absent"] = _adding(base.add_absent)
    if hasattr(base, "__ior__"):
        watching["__ior__"] = _uniting(base.__ior__)
    return watching


def _adding(add_many: Method) -> Method:
    @wraps(add_many)
    def adding(self: Any, digests: Any, *times: Any, **named: Any) -> Any:  # noqa: ANN401
        with self._lock:
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
        both = {self._lock, other._lock} if isinstance(other, Shared) else {self._lock}
        with ExitStack() as held:
            # In the order of `forks`, whichever of the two is on the left.
            for lock in sorted(both, key=id):
                held.enter_context(lock)
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


def _locked_lookup(method: Method) -> Method:
    """Do as `_locked` does, without the time that any number of arguments takes."""

    @wraps(method)
    def contains(self: Any, key: Any) -> Any:  # noqa: ANN401
        with self._lock:
            return method(self, key)

    return contains


def _locked(method: Method) -> Method:
    @wraps(method)
    def locked(self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        with self._lock:
            return method(self, *arguments, **named)

    return locked


def _in_locked_steps(method: Method) -> Method:
    @wraps(method)
    def in_steps(self: Any, *arguments: Any, **named: Any) -> Iterator[None]:  # noqa: ANN401
        with self._lock:
            steps = method(self, *arguments, **named)
        return _each_under(self._lock, steps)

    return in_steps


def _each_under(lock: Any, steps: Iterator[None]) -> Iterator[None]:  # noqa: ANN401 - an RLock has no public type
    ended = False
    while not ended:
        with lock:
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

    add = _locked(classic.ClassicBloom.add)
    __contains__ = _locked(classic.ClassicBloom.__contains__)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = {**vars(self), "_table": self._table.copy()}
        del state["_lock"]
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state, _lock=forks.lock(forks.FILTER))
