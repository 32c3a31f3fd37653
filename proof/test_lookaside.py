"""Claims about `Lookaside`: writers, deletions, fills and threads in any order."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamdedup import Lookaside
from streamdedup.filters.base import Addable, Key, Mask
from streamdedup.keys.hashing import Digests
from streamdedup.lookaside import Lookups
from tests.filters.cases import Case
from tests.test_lookaside import (
    BLOOM,
    Store,
    filled,
    named,
)

T = TypeVar("T")


def test_deleted_keys_cost_lookups() -> None:
    """A key that was deleted is asked for, and counted; written again, it is found."""
    store = Store(a=1)
    users = filled(BLOOM, store)
    del store["a"]
    assert users.get("a") is None
    assert users.get_many(["a"]) == [None]
    assert users.lookups == Lookups(asked=2, saved=0, false_positives=2)
    with users.writing("a"):
        store["a"] = 2
    assert users.get("a") == 2


class Writers(RuleBasedStateMachine):
    """Writers, deletions and fills in any order; a scan reads the store part by part, in the order of the keys."""

    KEYS = "abcdefgh"

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.users = Lookaside(BLOOM.build(100), self.store.get, self.store.get_many)
        self.writes: list[tuple[str, AbstractContextManager[None]]] = []
        self.filling: AbstractContextManager[Any] | None = None

    @rule(key=st.sampled_from(KEYS))
    def begin_write(self, key: str) -> None:
        """Add a key; its write comes later."""
        write = self.users.writing(key)
        write.__enter__()
        self.writes.append((key, write))

    @precondition(lambda self: self.writes)
    @rule(which=st.integers(0, 99))
    def end_write(self, which: int) -> None:
        """Write it."""
        key, write = self.writes.pop(which % len(self.writes))
        self.store[key] = which
        write.__exit__(None, None, None)

    @rule(key=st.sampled_from(KEYS))
    def delete(self, key: str) -> None:
        """Delete a key, or nothing."""
        self.store.pop(key, None)

    @precondition(lambda self: self.filling is None)
    @rule()
    def begin_fill(self) -> None:
        """Begin to scan."""
        self.filling = self.users.fill(BLOOM.build(100))
        self.fill, self.scanned = self.filling.__enter__(), 0

    @precondition(lambda self: self.filling is not None)
    @rule(keys=st.integers(1, 8))
    def scan(self, keys: int) -> None:
        """Scan on; at the end the filter is replaced."""
        part = self.KEYS[self.scanned : self.scanned + keys]
        self.fill.add_many([key for key in part if key in self.store])
        self.scanned += keys
        if self.scanned >= len(self.KEYS) and self.filling is not None:
            self.filling.__exit__(None, None, None)
            self.filling = None

    @precondition(lambda self: self.filling is not None)
    @rule()
    def fail(self) -> None:
        """The scan fails."""
        assert self.filling is not None
        assert not self.filling.__exit__(ConnectionError, ConnectionError(), None)
        self.filling = None

    @invariant()
    def every_key_is_found(self) -> None:
        """A lookup gives what the store holds, whatever is under way."""
        there = [dict.get(self.store, key) for key in self.KEYS]
        assert self.users.get_many(list(self.KEYS)) == there
        assert list(map(self.users.get, self.KEYS)) == there


TestWriters = Writers.TestCase
TestWriters.settings = settings(max_examples=40)


class Watched:
    """A filter in which two threads at once are noticed: each stays in it for a moment."""

    def __init__(self, filter_: Addable) -> None:
        self._filter, self._inside = filter_, threading.Lock()
        self.met = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filter, name)

    def __len__(self) -> int:
        return len(self._filter)

    def __contains__(self, key: Key) -> bool:
        return self._alone(lambda: key in self._filter)

    def add(self, key: Key) -> bool:
        """Add it, and notice others."""
        return self._alone(lambda: self._filter.add(key))

    def add_many(self, digests: Digests) -> Mask:
        """Add them, and notice others."""
        return self._alone(lambda: self._filter.add_many(digests))

    def add_absent(self, digests: Digests) -> Mask:
        """Add those that are absent, and notice others."""
        multiset: Any = self._filter
        return self._alone(lambda: multiset.add_absent(digests))

    def contains_many(self, digests: Digests) -> Mask:
        """Look them up, and notice others."""
        return self._alone(lambda: self._filter.contains_many(digests))

    def _alone(self, work: Callable[[], T]) -> T:
        if not self._inside.acquire(blocking=False):
            self.met += 1
            return work()
        try:
            time.sleep(0.0001)
            return work()
        finally:
            self._inside.release()


@pytest.mark.parametrize("case", [BLOOM, Case("cuckoo"), Case("exact")], ids=str)
def test_threads_miss_nothing(case: Case) -> None:
    """Writers, lookups and fills at once: a key is found from the end of its write on, and every lookup is counted.

    No two threads are in one filter: kernels run without Python's lock, and would lose bits of each other.
    """
    store, done = Store(), threading.Event()
    watched: list[Any] = [Watched(case.build(2000))]
    users = Lookaside(watched[0], store.get, store.get_many)

    def write(writer: int) -> int:
        keys = named(f"{writer}-", 100)
        for key in keys:
            users.add(f"absent {key}")
            with users.writing(key):
                store[key] = writer
            assert users.get(key) == writer
            assert users.get_many([key, f"absent {key}"]) == [writer, None]
        return 3 * len(keys)

    def refill() -> int:
        asked = 0
        while not done.is_set():
            watched.append(Watched(case.build(2000)))
            with users.fill(watched[-1]) as fill:
                for key in list(store):
                    fill.add_many([key])
            keys = list(store)
            assert users.get_many(keys).count(None) == 0
            asked += len(keys)
        return asked

    with ThreadPoolExecutor() as pool:
        refilling = pool.submit(refill)
        try:
            asked = sum(pool.map(write, range(3)))
        finally:
            done.set()
        asked += refilling.result()
    assert len(watched) > 2
    assert [filter_.met for filter_ in watched] == [0] * len(watched)
    assert users.lookups.asked == asked
    assert users.get_many(list(store)) == list(store.values())
