"""A filter in front of a key-value store: most lookups of absent keys are answered without the store.

- A key counts as absent only if every writer of the store adds its keys here, before it writes them.
- Until the filter is complete, every lookup reaches the store.
- The lock is held for work on filters, in short turns, and never while the store is asked.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar, cast

import numpy as np

from streamdedup import forks
from streamdedup.errors import ConfigError
from streamdedup.filters.base import Addable, Filter, Key, Removable
from streamdedup.filters.kinds import STATIC
from streamdedup.filters.window.protocol import Windowed
from streamdedup.keys.encoding import named
from streamdedup.keys.hashing import Digests

K = TypeVar("K", bound=Key)
V = TypeVar("V")

ROWS_A_TURN = 1 << 12  # under the lock: less than 2 ms, if a key takes less than 500 ns


@dataclass(frozen=True, slots=True)
class Lookups:
    """Counts of the keys that were looked up."""

    asked: int
    """All of them."""
    saved: int
    """Those that were surely absent, so that the store was not asked."""
    false_positives: int
    """Those that a complete filter held and the store did not: its errors, and keys that were deleted or expired."""


class Fill:
    """Takes the keys of the store while it is scanned, for `fill`."""

    def __init__(self, filter_: Addable, lock: Any) -> None:  # noqa: ANN401 - see `forks.lock`
        self._filter, self._lock = filter_, lock
        self._put = filter_.add_absent if isinstance(filter_, Removable) else filter_.add_many

    def add_many(self, keys: Any) -> None:  # noqa: ANN401 - see `Hash.digests`
        """Add `keys`: a sequence of keys, a pyarrow array, or (buffer, offsets), as `digests` takes them.

        Lookups and writers of other threads have their turn in between.
        """
        for _, part in _parts(self._filter.digests(keys)):
            with self._lock:
                self._put(part)


class Guard(Generic[K]):
    """What `Lookaside` and `AsyncLookaside` share: the filter, its additions and fills, and the counts.

    `complete` states that the filter holds every key of the store already; a fill makes it so. All methods may be
    called from any thread. The filter belongs to this object: leave all changes to it.
    """

    def __init__(self, filter_: Filter, *, complete: bool) -> None:
        _check(filter_)
        self._lock = forks.lock(forks.LOOKASIDE)
        self._filter, self._complete = filter_, complete
        self._filling: Addable | None = None
        self._being_written: dict[object, tuple[K, ...]] = {}
        self._asked = self._saved = self._false_positives = 0

    @property
    def filter(self) -> Filter:
        """The filter in use, to look at: `len`, `capacity`, `error_rate_now`, `size_bytes`."""
        return self._filter

    @property
    def complete(self) -> bool:
        """Whether the filter holds every key of the store. Before that, every lookup reaches the store."""
        return self._complete

    @property
    def lookups(self) -> Lookups:
        """The counts so far, all of one moment."""
        with self._lock:
            return Lookups(self._asked, self._saved, self._false_positives)

    def add(self, key: K) -> None:
        """Add one key, *before* it is written to the store. If this raises, do not write.

        A fill that begins between this call and the write may miss the key, unless its scan begins after the write.
        `writing` has no such gap.
        """
        with self._lock:
            _put(self._filter, key)
            if self._filling is not None:
                _put(self._filling, key)

    @contextmanager
    def writing(self, *keys: K) -> Iterator[None]:
        """Add `keys`, and let the body write them to the store. If this raises, the body does not run.

        A fill that begins meanwhile gets them, too. If the body raises, the write counts as ended: if the store may
        still carry it out, begin no fill before that is settled.
        """
        write = object()
        with self._lock:
            self._being_written[write] = keys
        try:
            for key in keys:
                self.add(key)
            yield
        finally:
            with self._lock:
                del self._being_written[write]

    @contextmanager
    def fill(self, filter_: Addable | None = None) -> Iterator[Fill]:
        """Let the body scan the store, all of it, and give its keys to the `Fill`. At the end the filter is complete.

        With `filter_`, an empty one, that filter is filled, and takes the place of the one in use at the end; lookups
        go on meanwhile. It also gets each key that is added meanwhile, or being written when the fill begins. If the
        body raises, the filter in use stays. RuntimeError: another fill is under way. ConfigError: `filter_` does not
        fit, as for the constructor.
        """
        given = self._filter if filter_ is None else filter_
        _check(given)
        fresh = _addable(given)
        with self._lock:
            if self._filling is not None:
                raise RuntimeError("another fill is under way; begin this one after it")
            self._filling, overtaken = fresh, list(chain(*self._being_written.values()))
        try:
            fill = Fill(fresh, self._lock)
            fill.add_many(overtaken)
            yield fill
            with self._lock:
                self._filter, self._complete = fresh, True
        finally:
            with self._lock:
                self._filling = None

    def _is_absent(self, key: K) -> bool:
        """Whether `key` is surely absent. Counts it."""
        with self._lock:
            held = key in self._filter  # in any case, so that a wrong key is refused from the start
            absent = self._complete and not held
            self._asked += 1
            self._saved += absent
        return absent

    def _left(self, keys: list[K]) -> list[int]:
        """The indexes of the `keys` that are not surely absent. Counts all of them."""
        # In this order: a filter that becomes complete only after it was asked says nothing.
        complete, present = self._complete, self._present(keys)
        left = present if complete else list(range(len(keys)))
        with self._lock:
            self._asked += len(keys)
            self._saved += len(keys) - len(left)
        return left

    def _present(self, keys: list[K]) -> list[int]:
        """The indexes of the `keys` that the filter holds."""
        held: list[int] = []
        # A fill may replace this filter meanwhile. It holds all that was added before this call, which is enough.
        filter_ = self._filter
        for start, part in _parts(filter_.digests(keys)):
            with self._lock:
                present = filter_.contains_many(part)
            held += (np.flatnonzero(present) + start).tolist()
        return held

    def _found(self, values: Sequence[V | None]) -> None:
        """Count the `values` that the store gave for keys that are not surely absent."""
        with self._lock:
            if self._complete:
                self._false_positives += sum(value is None for value in values)

    def _placed(
        self, keys: Sequence[K], left: Sequence[int], values: Sequence[V | None]
    ) -> list[V | None]:
        """The `values` of the keys at the indexes `left`, each in its place among all `keys`; None in the others."""
        if isinstance(values, Mapping | Set):
            raise TypeError(
                f"get_many returned {named(values)}; return a list: the value of each key, or None, in the keys' order"
            )
        if len(values) != len(left):
            raise ValueError(
                f"get_many returned {len(values)} values for {len(left)} keys; return one for each"
            )
        self._found(values)
        placed: list[V | None] = [None] * len(keys)
        for place, value in zip(left, values, strict=True):
            placed[place] = value
        return placed


class Lookaside(Guard[K], Generic[K, V]):
    """A filter in front of a key-value store, whose `get` returns the value of a key, or None.

    A key is reported as absent, without asking the store, only if the filter does not hold it. That is right as long as
    every writer, in every process, adds its keys to this object before it writes them; a restored backup is a writer,
    too. Keys that the store has deleted, or let expire, cost lookups, never answers. A filter beyond its capacity errs
    more, which costs lookups, too.

    `get_many` gets a list of keys, never an empty one, and returns a value or None for each; unless given, `get` is
    called for one key after the other. `filter_` is of any kind that forgets nothing: ConfigError for a `window`. The
    store is asked without a lock, by the calling thread; what it raises reaches the caller.
    """

    def __init__(
        self,
        filter_: Filter,
        get: Callable[[K], V | None],
        get_many: Callable[[list[K]], Sequence[V | None]] | None = None,
        *,
        complete: bool = False,
    ) -> None:
        super().__init__(filter_, complete=complete)
        self._get, self._get_many = get, get_many

    def get(self, key: K) -> V | None:
        """The value of `key`, or None if it is absent."""
        if self._is_absent(key):
            return None
        value = self._get(key)
        if value is None:
            self._found([value])
        return value

    def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """The value of each of `keys`, or None. The store is asked at most once."""
        listed = _listed(keys)
        left = self._left(listed)
        asked = [listed[place] for place in left]
        if self._get_many is None or not asked:
            return self._placed(listed, left, [self._get(key) for key in asked])
        return self._placed(listed, left, self._get_many(asked))


class AsyncLookaside(Guard[K], Generic[K, V]):
    """`Lookaside` for a store whose `get` and `get_many` are awaited. `add`, `writing` and `fill` are not.

    Threads and event loops may share one. None of its methods waits for more than a short turn of another thread.
    """

    def __init__(
        self,
        filter_: Filter,
        get: Callable[[K], Awaitable[V | None]],
        get_many: Callable[[list[K]], Awaitable[Sequence[V | None]]] | None = None,
        *,
        complete: bool = False,
    ) -> None:
        super().__init__(filter_, complete=complete)
        self._get, self._get_many = get, get_many

    async def get(self, key: K) -> V | None:
        """The value of `key`, or None if it is absent."""
        if self._is_absent(key):
            return None
        value = await self._get(key)
        if value is None:
            self._found([value])
        return value

    async def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """The value of each of `keys`, or None. The store is asked at most once."""
        listed = _listed(keys)
        left = self._left(listed)
        asked = [listed[place] for place in left]
        if self._get_many is None or not asked:
            return self._placed(listed, left, [await self._get(key) for key in asked])
        return self._placed(listed, left, await self._get_many(asked))


def _listed(keys: Iterable[K]) -> list[K]:
    """The `keys` one by one, whatever holds them. TypeError if that is a single one."""
    if isinstance(keys, str | bytes):
        raise TypeError(f"keys are {named(keys)}; give [key], or call get")
    return list(keys)


def _check(filter_: Filter) -> None:
    """Raise ConfigError unless `filter_` is a filter that forgets nothing."""
    if not isinstance(filter_, Filter):
        raise ConfigError(f"filter is {named(filter_)}; give one that `build` or `load` returns")
    if isinstance(filter_, Windowed) or filter_.kind == "none":
        raise ConfigError(
            f"filter.kind {filter_.kind} forgets keys, and would report as absent what the store holds; choose a kind"
            " that keeps them, such as bloom"
        )


def _addable(filter_: Filter) -> Addable:
    if filter_.kind in STATIC:
        raise ConfigError(
            f"filter.kind {filter_.kind} is built once, and takes no key later: it fits a store that nobody writes to;"
            " choose another kind"
        )
    return cast("Addable", filter_)


def _put(filter_: Filter, key: Key) -> None:
    """Add `key` unless it is present: a multiset would count it, and nobody removes it."""
    if key not in filter_:
        _addable(filter_).add(key)


def _parts(digests: Digests) -> Iterator[tuple[int, Digests]]:
    """Yield `digests` in parts of ROWS_A_TURN, each with the index of its first row."""
    for start in range(0, len(digests), ROWS_A_TURN):
        yield start, digests[start : start + ROWS_A_TURN]
