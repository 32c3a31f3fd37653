"""Claims about `Lookaside` and `AsyncLookaside`: no key of the store is missed, and absent ones cost it nothing."""

import asyncio
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from typing_extensions import override

import streamdedup
from streamdedup import AsyncLookaside, Lookaside
from streamdedup.errors import ConfigError
from streamdedup.filters.no_filter import NoFilter
from streamdedup.keys.hashing import MURMUR3
from streamdedup.lookaside import Lookups
from tests.filters.cases import KEEPING, Case, state
from tests.rows import every

BLOOM = Case("bloom")


class Store(dict[str, int]):
    """A key-value store, which keeps the keys that it was asked for, call by call."""

    def __init__(self, *given: Any, **more: int) -> None:
        super().__init__(*given, **more)
        self.calls: list[list[str]] = []

    @override
    def get(self, key: str) -> int | None:  # type: ignore[override]  # as of a store, without a default
        self.calls.append([key])
        return super().get(key)

    def get_many(self, keys: list[str]) -> list[int | None]:
        """Return the value of each, or None."""
        self.calls.append(keys)
        return [super(Store, self).get(key) for key in keys]

    async def get_soon(self, key: str) -> int | None:
        """Return the value, after others had their turn."""
        await asyncio.sleep(0)
        return self.get(key)

    async def get_many_soon(self, keys: list[str]) -> list[int | None]:
        """Return the values, after others had their turn."""
        await asyncio.sleep(0)
        return self.get_many(keys)


def filled(case: Case, store: Store, capacity: int = 1000) -> Lookaside[str, int]:
    """Return a look-aside of `store` that is complete."""
    made = Lookaside(case.build(capacity), store.get, store.get_many)
    with made.fill() as fill:
        fill.add_many(list(store))
    return made


def named(prefix: str, number: int) -> list[str]:
    """Return so many keys."""
    return [f"{prefix}{i}" for i in range(number)]


# --- answers ---


def test_absent_keys_never_reach_the_store() -> None:
    """Each key of the store has its value, one by one and in a list; of the others none is asked for."""

    def check(case: Case) -> None:
        store = Store(zip(named("k", 100), count()))
        users = filled(case, store)
        keys = [key for pair in zip(store, named("absent", 100), strict=True) for key in pair]
        values = [value for i in range(100) for value in (i, None)]
        assert [users.get(key) for key in keys] == values
        assert store.calls == [[key] for key in store]
        store.calls.clear()
        assert users.get_many(keys) == values
        assert store.calls == [list(store)]
        assert users.lookups == Lookups(asked=400, saved=200, false_positives=0)

    every(KEEPING, check)


def test_a_full_filter_misses_no_key() -> None:
    """Of 2,000 keys in a filter for 10 each is found; what it errs costs lookups, which are counted."""

    def check(case: Case) -> None:
        store = Store(zip(named("k", 2000), count()))
        users = filled(case, store, capacity=10)
        assert users.get_many(list(store)) == list(store.values())
        assert users.get_many(named("absent", 1000)) == [None] * 1000
        asked, saved, false_positives = 3000, users.lookups.saved, users.lookups.false_positives
        assert users.lookups.asked == asked
        assert saved + false_positives == 1000
        assert sum(map(len, store.calls)) == asked - saved

    every(KEEPING, check)


def test_a_list_without_a_key_to_ask_for_asks_nothing() -> None:
    """Many stores refuse an empty list."""
    store = Store()
    users = Lookaside(BLOOM.build(10), store.get, store.get_many, complete=True)
    assert users.get_many([]) == []
    assert users.get_many(["a", "b"]) == [None, None]
    assert store.calls == []


def test_without_get_many_each_key_is_asked_for() -> None:
    """One call of `get` for each key that may be present."""
    store = Store(a=1, b=2)
    users = Lookaside(BLOOM.build(10), store.get)
    with users.fill() as fill:
        fill.add_many(["a", "b"])
    assert users.get_many(["b", "c", "a"]) == [2, None, 1]
    assert store.calls == [["b"], ["a"]]


def test_a_value_too_few_is_an_error() -> None:
    """Values would stand beside wrong keys."""
    users = Lookaside[str, int](BLOOM.build(10), lambda _: None, lambda keys: [1] * (len(keys) - 1))
    with pytest.raises(ValueError, match=r"returned 1 values for 2 keys"):
        users.get_many(["a", "b"])


@pytest.mark.parametrize("values", [{"a": 1, "b": 2}, {1, 2}, {"a": 1, "b": 2}.keys()], ids=str)
async def test_a_dict_or_set_is_an_error(values: Any) -> None:
    """Many clients return a dict, whose keys would be taken for the values."""

    async def soon(_keys: list[str]) -> Any:
        return values

    for keys in (["a", "b"], iter(["a", "b"])):
        with pytest.raises(TypeError, match=r"^get_many returned of type \w+; return a list"):
            Lookaside(BLOOM.build(10), Store().get, lambda _: values).get_many(keys)
    with pytest.raises(TypeError, match=r"^get_many returned of type \w+; return a list"):
        await AsyncLookaside(BLOOM.build(10), Store().get_soon, soon).get_many(["a", "b"])


@pytest.mark.parametrize("complete", [False, True])
def test_keys_are_the_same_before_a_filter_is_complete(complete: bool) -> None:
    """Whatever holds them is taken key by key, and what is no key is refused at once, not only after the fill."""
    store = Store(a=1)
    users = Lookaside(BLOOM.build(10), store.get, store.get_many, complete=complete)
    users.add("a")
    for keys in (("a", "b"), {"a": 0, "b": 0}.keys(), (key for key in "ab"), np.array(["a", "b"])):
        assert users.get_many(keys) == [1, None]
    store.calls.clear()
    counted = users.lookups
    wrong: list[Any] = ["ab", b"ab", pa.array(["a", "b"]), (b"ab", np.array([0, 1, 2])), [1.5], 1]
    for keys in wrong:
        with pytest.raises(TypeError):
            users.get_many(keys)
    for key in (1.5, None, b"a".join):
        with pytest.raises(TypeError):
            users.get(cast("str", key))
    assert (store.calls, users.lookups) == ([], counted)


def test_what_the_store_raises_reaches_the_caller() -> None:
    """And the lock is free afterwards."""

    def broken(_key: str) -> None:
        raise ConnectionError

    users = Lookaside[str, int](BLOOM.build(10), broken)
    with pytest.raises(ConnectionError):
        users.get("a")
    assert users.lookups == Lookups(asked=1, saved=0, false_positives=0)


# --- filters that it takes ---


@pytest.mark.parametrize(
    "options", [{}, {"retention": "1d"}, {"retention": "1d", "on_full": "grow"}], ids=str
)
def test_a_window_is_refused(options: dict[str, Any]) -> None:
    """It would report as absent what the store still holds; at once, and for a fill."""
    window = streamdedup.build({"kind": "window", "capacity": 10, **options})
    users = filled(BLOOM, Store(a=1))
    with pytest.raises(ConfigError, match=r"filter\.kind windows? forgets .* such as bloom"):
        Lookaside(window, Store().get)
    with pytest.raises(ConfigError, match="forgets"), users.fill(window):
        pass
    assert users.get("a") == 1


def test_what_holds_nothing_or_is_no_filter_is_refused() -> None:
    """`none` keeps no key, and `ClassicBloom` knows no digests."""
    with pytest.raises(ConfigError, match=r"filter\.kind none forgets"):
        Lookaside(NoFilter(MURMUR3), Store().get)
    classic: Any = streamdedup.ClassicBloom(8)
    with pytest.raises(ConfigError, match="ClassicBloom; give one that"):
        Lookaside(classic, Store().get)
    with pytest.raises(ConfigError, match="ClassicBloom"), filled(BLOOM, Store()).fill(classic):
        pass


def test_a_static_filter_is_for_a_store_without_writers(tmp_path: Path) -> None:
    """It answers if it is complete; a key that it does not hold is refused, before it is written."""
    fuse = streamdedup.build({"kind": "fuse", "keys": ["a"], "error_rate": 1e-9})
    streamdedup.save(fuse, tmp_path / "keys.filter")
    store = Store(a=1)
    users = Lookaside(
        streamdedup.load(tmp_path / "keys.filter", mmap=True), store.get, complete=True
    )
    assert (users.get("a"), users.get("b"), store.calls) == (1, None, [["a"]])
    users.add("a")
    with pytest.raises(ConfigError, match=r"filter\.kind fuse is built once"), users.writing("b"):
        store["b"] = 2
    with pytest.raises(ConfigError, match="built once"), users.fill():
        pass
    assert "b" not in store
    with users.fill(BLOOM.build(10)) as fill:
        fill.add_many(list(store))
    users.add("b")


def test_a_key_that_is_written_often_takes_one_place() -> None:
    """A multiset does not count it."""

    def check(case: Case) -> None:
        users = filled(case, Store())
        users.add("a")
        once = state(users.filter)
        for _ in range(10):
            users.add("a")
        assert state(users.filter) == once

    every(KEEPING, check)


# --- fills ---


def test_before_it_is_complete_every_lookup_reaches_the_store() -> None:
    """None is answered without it, and none counts as an error of the filter."""
    store = Store(a=1)
    users = Lookaside(BLOOM.build(10), store.get, store.get_many)
    assert not users.complete
    with users.fill() as fill:
        assert (users.get("a"), users.get("b"), users.get_many(["a", "b"])) == (1, None, [1, None])
        fill.add_many(["a"])
    assert users.complete
    assert store.calls == [["a"], ["b"], ["a", "b"]]
    assert users.lookups == Lookups(asked=4, saved=0, false_positives=0)


def test_keys_need_not_be_texts() -> None:
    """As they need not be in the filter, and the type of a look-aside says which they are."""
    values: dict[tuple[str, int], str] = {("a", 1): "one", ("a", 2): "two"}
    asked = list[tuple[str, int]]()

    def get(key: tuple[str, int]) -> str | None:
        asked.append(key)
        return values.get(key)

    users = Lookaside(BLOOM.build(10), get)
    with users.fill() as fill:
        fill.add_many([("a", 1)])
    users.add(("a", 2))
    assert users.get_many([("a", 1), ("a", 2), ("a", 3)]) == ["one", "two", None]
    assert asked == [("a", 1), ("a", 2)]


@pytest.mark.parametrize(
    "keys",
    [["a", "é"], [b"a", "é".encode()], pa.array(["a", "é"]), (b"a\xc3\xa9", np.array([0, 1, 3]))],
    ids=["str", "bytes", "arrow", "buffer"],
)
def test_a_fill_takes_columns(keys: Any) -> None:
    """As `digests` does."""
    store = Store({"a": 1, "é": 2})
    users = Lookaside(BLOOM.build(10), store.get)
    with users.fill() as fill:
        fill.add_many(keys)
    assert (users.get("a"), users.get("é"), users.get("b")) == (1, 2, None)


def test_a_rebuild_gets_what_is_written_meanwhile() -> None:
    """None that was written while the store was scanned is missed, and what is gone costs nothing."""

    def check(case: Case) -> None:
        store = Store(zip(named("k", 10), count()))
        users = filled(case, store)
        del store["k0"]
        with users.fill(case.build(2000)) as fill:
            fill.add_many(list(store))
            with users.writing("late", "later"):
                store |= {"late": 10, "later": 11}
            users.add("last")
            store["last"] = 12
            assert users.get("last") == 12
        assert users.get_many(list(store)) == list(store.values())
        store.calls.clear()
        assert users.get("k0") is None
        assert store.calls == []

    every(KEEPING, check)


def test_a_write_that_a_fill_overtakes_is_not_missed() -> None:
    """It begins before the fill, and reaches the store after the scan; the new filter has another hash, too."""
    store = Store()
    users = filled(BLOOM, store)
    fresh = streamdedup.build(
        {"kind": "exact", "capacity": 10, "hash": "siphash", "hash_key": bytes(16)}
    )
    with users.writing("a", "b"):
        with users.fill(fresh) as fill:
            fill.add_many(list(store))
        store |= {"a": 1, "b": 2}
    assert users.filter is fresh
    assert users.get_many(["a", "b"]) == [1, 2]


def test_a_fill_that_fails_changes_nothing() -> None:
    """The filter in use stays, and another fill may begin; the first one leaves it incomplete."""
    store = Store(a=1)
    users = Lookaside(BLOOM.build(10), store.get)
    with pytest.raises(ConnectionError), users.fill():
        raise ConnectionError
    assert not users.complete
    before = users.filter
    with users.fill() as fill:
        fill.add_many(["a"])
    with pytest.raises(ConnectionError), users.fill(BLOOM.build(10)):
        users.add("b")
        raise ConnectionError
    assert users.filter is before
    store["b"] = 2
    assert (users.get("a"), users.get("b")) == (1, 2)


def test_one_fill_at_a_time() -> None:
    """The second is refused, and the first goes on."""
    store = Store(a=1)
    users = Lookaside(BLOOM.build(10), store.get)
    with users.fill() as fill:
        with pytest.raises(RuntimeError, match="another fill"), users.fill(BLOOM.build(10)):
            pass
        fill.add_many(["a"])
    assert users.complete
    assert users.get("a") == 1


# --- asyncio ---


async def test_coroutines_ask_a_store_that_is_awaited() -> None:
    """All that holds for `Lookaside` holds: counts, lists, fills, and writes that a fill overtakes."""
    store = Store(zip(named("k", 10), count()))
    users = AsyncLookaside(BLOOM.build(100), store.get_soon, store.get_many_soon)
    assert await users.get("absent") is None
    with users.fill() as fill:
        for key in list(store):
            fill.add_many([key])
            await asyncio.sleep(0)
    store.calls.clear()
    assert await asyncio.gather(*map(users.get, ["k1", "absent", "k2"])) == [1, None, 2]
    assert await users.get_many(["absent", "k3"]) == [None, 3]
    assert await users.get_many(["absent"]) == [None]
    assert store.calls == [["k1"], ["k2"], ["k3"]]
    assert users.lookups == Lookups(asked=7, saved=3, false_positives=0)
    one_by_one = AsyncLookaside(users.filter, store.get_soon, complete=True)
    assert await one_by_one.get_many(["k4", "absent", "k5"]) == [4, None, 5]


async def test_coroutines_that_write_and_fill_miss_nothing() -> None:
    """A write that begins before a fill, and ends after its scan, is in the new filter."""
    store = Store()
    users = AsyncLookaside(BLOOM.build(100), store.get_soon, complete=True)
    begun, scanned = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        with users.writing("a"):
            begun.set()
            await scanned.wait()
            store["a"] = 1

    writer = asyncio.create_task(write())
    await begun.wait()
    with users.fill(BLOOM.build(100)) as fill:
        fill.add_many(list(store))
    scanned.set()
    await writer
    assert await users.get("a") == 1
