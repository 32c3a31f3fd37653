"""What `streamdedup.open` returns: a filter of the library, whose changes are in the log of its directory, too."""

import atexit
import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast
from uuid import UUID
from weakref import WeakSet

import numpy as np

from streamdedup import library
from streamdedup.errors import ConfigError
from streamdedup.filters.base import Addable, Key, Mask, Times
from streamdedup.filters.digest_filter import one_row
from streamdedup.kept.changes import Changes, Timed
from streamdedup.kept.directory import Directory, is_in
from streamdedup.kept.journal import WAITING_MAX, Journal
from streamdedup.kept.log import ADDED, CLEARED, REMOVED, LogWriter
from streamdedup.kept.options import check_same, empty, permitted
from streamdedup.library.refused import Refusing

if TYPE_CHECKING:
    from streamdedup import classes
    from streamdedup.classes import Target
    from streamdedup.keys.hashing import Hash

CLOSED = "the filter is closed; open {path} again to change it"
IN_CHILD = (
    "the filter in {path} is kept by the process that opened it, and not by this child of its fork; change it there, or"
    " open it after the fork, in one process"
)

# The types of keys that cannot change until they are written.
WAIT_AS_THEY_ARE = frozenset({str, bytes, int, UUID})

_open = WeakSet["Kept"]()


class Kept(Refusing):
    """A filter that is kept in a directory, as `streamdedup.open` returns it. Threads may share it, forks may ask it.

    What a method has changed is on the disk within a second, or once `flush` returns. `filter` is the filter itself:
    ask it what else it can be asked. What is added to it directly is not kept.

    Every method that changes it raises ValueError once it is closed, and in the child of a fork, and SnapshotError,
    before it changes anything, if the disk has refused so much that no more may wait.
    """

    def __init__(self, directory: Directory, filter_: Addable, log: LogWriter) -> None:
        self.filter = cast("classes.Addable", filter_)
        self._directory, self._refusal = directory, ""
        self._closing, self._is_closed = RLock(), False
        self._changes = Changes(filter_)
        self._logs_all = self._changes.needs_all
        self._journal = Journal(directory, filter_, self._changes, log)
        self._lock, self._waiting, self._append = (
            self._journal.lock,
            self._journal.waiting,
            self._journal.append,
        )
        _open.add(self)
        atexit.register(self.close)

    @classmethod
    def begun(cls, directory: Directory, filter_: Addable) -> Self:
        """Keep `filter_` in the directory, in place of one that is there. SnapshotError if it cannot be saved."""
        log = directory.new_log(filter_, Changes(filter_))
        try:
            directory.save(filter_, log.label.number)
            return cls(directory, filter_, log)
        except BaseException:
            log.close()
            raise

    @classmethod
    def resumed(cls, directory: Directory, filter_: Addable, options: Mapping[str, Any]) -> Self:
        """Keep `filter_`, as `directory.load` returned it, after what its logs have. SnapshotError if one is wrong.

        A filter that grows may grow to `max_size` of the options from now on. Its logs are of what was permitted when
        they were written, so it is saved anew if that is another size.
        """
        log, capacity = directory.replay(filter_, Changes(filter_)), filter_.capacity
        try:
            if permitted(filter_, options).capacity == capacity:
                return cls(directory, filter_, log)
        except BaseException:
            log.close()
            raise
        log.close()
        return cls.begun(directory, filter_)

    def add(self, key: Key, time: int | None = None) -> bool:
        """Add one key; return True if it was absent. A window by time takes the key's `time`, in ms since 1970."""
        if type(key) not in WAIT_AS_THEY_ARE:
            return self._add_other(key, time)
        if len(self._waiting) >= WAITING_MAX:
            self._journal.flush()
        with self._lock:
            if self._refusal:
                raise ValueError(self._refusal)
            new: bool
            if time is None:
                new = self.filter.add(key)
                if new or self._logs_all:
                    self._append(key)
            else:
                new = self.filter.add(key, time)  # type: ignore[call-arg] # of a window
                self._append(Timed(key, time))
        return new

    def _add_other(self, key: Key, time: int | None) -> bool:
        """Add a key that may change while it waits, or that only its filter can read: its digest waits."""
        one: Any = self.filter
        in_range = hasattr(one, "range")
        digests = one.digests([key]) if in_range else one_row(*one.hash.signed(key))
        return bool(self.add_many(digests, None if time is None else np.array([time]))[0])

    def add_many(self, keys: Any, times: Times | None = None) -> Mask:  # noqa: ANN401 - see `Hash.digests`
        """Add `keys`, or their digests, in order; return True, shape (n,), for each that was absent.

        A window by time also takes their times, int64, shape (n,). If this raises, a kill may lose those it had added.
        """
        digests = self.digests(keys)
        with self._changing():
            fresh: Mask = self.filter.add_many(digests, *([] if times is None else [times]))
            changed = digests.copy() if self._logs_all else digests[fresh]
            if len(changed):
                self._journal.append_rows(ADDED, self._changes.of(changed, times))
        return fresh

    def update(self, *iterables: Any) -> None:  # noqa: ANN401 - of keys
        """Add all keys of `iterables`, as `update` of the filter does."""
        library.add_all(self, iterables)

    def discard(self, key: Key) -> bool:
        """Take `key` out, as `discard` of the filter does; return False if it was absent.

        TypeError if its kind takes no key out.
        """
        discard = self._removing("discard")
        with self._changing():
            gone: bool = discard(key)
            if gone:
                self._journal.append_rows(REMOVED, self._changes.of(self.digests([key])))
        return gone

    def remove_many(self, keys: Any) -> Mask:  # noqa: ANN401 - see `Hash.digests`
        """Take `keys`, or their digests, out; return True, shape (n,), for each that was there. TypeError as above."""
        remove, digests = self._removing("remove_many"), self.digests(keys)
        with self._changing():
            gone: Mask = remove(digests)
            if gone.any():
                self._journal.append_rows(REMOVED, self._changes.of(digests[gone]))
        return gone

    def clear(self) -> None:
        """Take all keys out. The filter is as it was when it was made."""
        with self._changing():
            self.filter.clear()
            self._journal.append_rows(CLEARED, np.empty((0, self._changes.words), np.uint64))

    def digests(self, keys: Any) -> Any:  # noqa: ANN401 - see `Hash.digests`
        """The digests of `keys`, as `digests` of the filter makes them; digests stay as they are."""
        return keys if isinstance(keys, np.ndarray) else self.filter.digests(keys)

    def __contains__(self, key: Key) -> bool:
        return key in self.filter

    def contains_many(self, keys: Any) -> Mask:  # noqa: ANN401 - see `Hash.digests`
        """Whether each of `keys`, or of their digests, is present, shape (n,)."""
        return self.filter.contains_many(keys)

    def __len__(self) -> int:
        return len(self.filter)

    def __bool__(self) -> bool:
        """Whether a key was added."""
        return len(self.filter) > 0

    @property
    def kind(self) -> str:
        """The name of the filter's kind; of one that grows, "chain"."""
        return self.filter.kind

    @property
    def capacity(self) -> int:
        """The number of distinct keys up to which `error_rate` holds."""
        return self.filter.capacity

    @property
    def error_rate(self) -> float:
        """The greatest probability, at capacity, that a key which was never added is found."""
        return self.filter.error_rate

    @property
    def error_rate_now(self) -> float:
        """The same probability with the keys that it has now."""
        return self.filter.error_rate_now

    @property
    def fill_ratio(self) -> float:
        """The share of the table that is in use, from 0 to 1."""
        return self.filter.fill_ratio

    @property
    def size_bytes(self) -> int:
        """The memory of the table, in bytes."""
        return self.filter.size_bytes

    @property
    def hash(self) -> "Hash":
        """The hash that makes digests of keys."""
        return self.filter.hash

    def copy(self) -> "classes.Addable":
        """Return a filter of its own with the same content, which is not kept."""
        return self.filter.copy()

    def save(self, target: "Target") -> None:
        """Put a copy of the filter at a path elsewhere, or into a binary file object, as `streamdedup.save` does."""
        self.filter.save(target)

    def to_bytes(self) -> bytes:
        """Return what such a file would hold."""
        return self.filter.to_bytes()

    def __repr__(self) -> str:
        return f"<kept in {self._directory.path}: {self.filter!r}>"

    def flush(self) -> None:
        """Wait until all that was changed before is on the disk. SnapshotError if the disk refuses it.

        It is kept then, tried again at each beat, and by the next `flush`. ValueError once it is closed, and in the
        child of a fork.
        """
        if self._refusal:
            raise ValueError(self._refusal)
        self._journal.flush()

    def close(self) -> None:
        """Flush, and let others open the directory. A second call does nothing, nor does one in the child of a fork.

        SnapshotError if the disk refuses what is left: it is lost. What the program may not lose it flushes before.
        """
        if self._is_closed:
            return
        with self._closing:
            if self._is_closed:
                return
            with self._lock:  # who adds at the moment does so before
                self._refusal = CLOSED.format(path=self._directory.path)
            # If an interrupt comes before the end, the next call, or the exit, goes on.
            try:
                self._journal.close()
            finally:
                if self._journal.has_ended:
                    self._is_closed = True
                    self._directory.close()
                    atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(
            f"the filter in {self._directory.path} cannot be copied or pickled, since one object keeps it; copy its"
            " `filter`"
        )

    def _not_kept(self, *_others: object) -> NoReturn:
        """Raise TypeError: what `|` and `&` make is no filter that is kept."""
        raise TypeError(
            "a kept filter has no | and &, since its log has single keys; seen.filter | other is a new filter, which is"
            " not kept, if its kind has that; or add keys by seen.update(keys)"
        )

    union = intersection = __or__ = __ior__ = __and__ = __iand__ = _not_kept

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock, once there is room. ValueError if it must not be changed here."""
        if self._journal.is_full and not self._refusal:
            self._journal.flush()
        with self._lock:
            if self._refusal:
                raise ValueError(self._refusal)
            yield

    def _removing(self, name: str) -> Any:  # noqa: ANN401 - a method
        method = getattr(self.filter, name, None)
        if method is None:
            raise TypeError(
                f"a filter of kind {self.filter.kind} takes no key out; open a directory with a kind that has {name}"
            )
        return method

    def _leave_to_parent(self) -> None:
        """In the child of a fork: refuse changes, wait for no thread, and let the parent alone have the directory."""
        self._refusal, self._is_closed = IN_CHILD.format(path=self._directory.path), True
        self._lock, self._waiting = RLock(), deque()
        self._directory.close()


def _leave_to_parents() -> None:
    for one in list(_open):
        if not one._is_closed:
            one._leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parents)


def kept(path: "str | os.PathLike[str]", options: Mapping[str, Any]) -> Kept:
    """Do what `streamdedup.open` documents."""
    place = Path(path)
    if os.path.isfile(place):  # noqa: PTH113 - False of what no path can be
        raise ConfigError(
            f"{place} is a file, and a filter is kept in a directory: name one; what was saved there is loaded by"
            " streamdedup.load"
        )
    made = None if is_in(place) else empty(place, options)  # before anything is written
    directory = Directory(place)
    try:
        if not directory.exists:
            return Kept.begun(directory, empty(place, options) if made is None else made)
        hash_key = options.get("hash_key", b"")
        filter_ = directory.load(partial(library.load, mmap=False, hash_key=hash_key, verify=True))
        check_same(place, filter_, options)
        return Kept.resumed(directory, filter_, options)
    except BaseException:
        directory.close()
        raise
