"""Threads share a filter of the library as they share a `set`, and a fork leaves the child a whole one.

That calls exclude each other is shown at each public method in turn, without luck: one thread stands still inside the
method of the kind, and another one calls. What is lost without that shows where four threads add the same keys.
"""

import copy
import itertools
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial, wraps
from inspect import Parameter, getattr_static, signature
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

import streamdedup
from streamdedup import ClassicBloom, filters, forks, library
from streamdedup.filters.base import Growing
from streamdedup.library import subclass
from streamdedup.library.refused import OPERATORS, REFUSED
from streamdedup.library.subclass import Shared
from streamdedup.native import OPEN, Native
from tests.broker.base import DEADLINE_S
from tests.library import WAYS, built, config_of, has_builtins, in_time, key_of
from tests.rows import every

UNIONABLE = [
    way
    for way in WAYS
    if way[0] in {"bitmap", "blocked", "bloom", "counting"} and "on_full" not in way[1]
]
OTHERWISE = {"__init__", "__repr__"}  # what the library does by other methods
NO_KEYS = np.empty((0, 2), np.uint64)
STABLE = {"digests", "from_parts", "hash"}  # they read nothing that changes


# --- one call at a time ---

# What a thread does `at` a method of the kind, and as it `waits` for a lock; the locks that it has `taken`.
HERE = threading.local()


class StoppedError(Exception):
    """A call has come as far as it should."""


@dataclass(frozen=True)
class Call:
    """Something that a thread does with a filter, up to the inner method `to`."""

    to: str
    run: Callable[[], object]

    @override
    def __repr__(self) -> str:
        return self.to


class ReportingLock:
    """A lock whose waiting threads say so."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def acquire(self) -> bool:
        """Take it, as `with` does."""
        HERE.__dict__.setdefault("taken", []).append(self)
        if not self._lock.acquire(blocking=False):
            HERE.waits()
            self._lock.acquire()
        return True

    def _is_owned(self) -> bool:
        """Whether this thread holds it, as an RLock knows."""
        return self._lock._is_owned()  # type: ignore[attr-defined,no-any-return]

    def release(self) -> None:
        """Give it back."""
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def reach(name: str) -> bool:
    """Do what this thread does there. True, so that something may come after it."""
    HERE.__dict__.get("at", {}).get(name, lambda: None)()
    return True


def beside(first: Call, second: Call) -> str:
    """What another thread with the call `second` does while `first` is inside: it "waits", is "inside", or "failed"."""
    reports: SimpleQueue[str] = SimpleQueue()
    state = "never there"

    def enter() -> None:
        reports.put("inside")
        raise StoppedError

    def work() -> None:
        HERE.waits, HERE.at = partial(reports.put, "waits"), {second.to: enter}
        with suppress(StoppedError):
            second.run()
        reports.put("failed")

    def stand() -> None:
        nonlocal state
        HERE.at = {}
        thread.start()
        state = reports.get(timeout=DEADLINE_S)
        raise StoppedError

    thread = threading.Thread(target=work, daemon=True)
    HERE.at = {first.to: stand}
    with suppress(StoppedError):
        first.run()
    HERE.at = {}
    if state != "never there":
        thread.join(DEADLINE_S)
    return state


def inner_methods(base: type) -> dict[str, Any]:
    """All that a program can ask a filter for, by name: whatever is no constant, nor one of `STABLE`."""
    own = [one for one in base.__mro__ if one.__module__.startswith("streamdedup.")]
    operators = {name for one in own for name in vars(one) if name.startswith("__")} - OTHERWISE
    names = {name for name in dir(base) if not name.startswith("_")} - STABLE | operators
    found = {name: getattr_static(base, name) for name in sorted(names)}
    return {name: one for name, one in found.items() if callable(one) or isinstance(one, property)}


class Table(list[memoryview]):
    """Buffers that notice when their first one is read, and when all of them were."""

    @override
    def __iter__(self) -> Iterator[memoryview]:
        reach("the first of the table")
        yield from super().__iter__()
        reach("the end of the table")


def watched(name: str, inner: Any) -> Any:
    """The same method, or property, which a thread reaches."""
    if isinstance(inner, property):
        read: Any = inner.fget
        return property(lambda self: reach(name) and read(self))
    if in_steps(inner):

        def steps(*_: object) -> Iterator[None]:
            reach(f"a step of {name}")
            yield

        return wraps(inner)(lambda *_: reach(name) and steps())
    wrap = Table if name == "buffers" else lambda found: found
    return wraps(inner)(
        lambda *arguments, **named: reach(name) and wrap(inner(*arguments, **named))
    )


def in_steps(inner: Any) -> bool:
    """Whether it returns an iterator, which works after the call."""
    return not isinstance(inner, property) and "Iterator" in str(signature(inner).return_annotation)


@cache
def watched_class(base: type) -> type:
    """The kind with methods that a thread reaches. A filter of the library is made over it."""
    inner = {name: watched(name, method) for name, method in inner_methods(base).items()}
    return type(base.__name__, (base,), inner)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that wait for a filter say so."""
    monkeypatch.setattr(forks, "lock", lambda _floor: ReportingLock())


def watched_filter(kind: str, options: Mapping[str, Any]) -> Any:
    """A filter of the library whose calls may be stopped inside."""
    inner: Any = filters.build(config_of(kind, 100, options))
    class_: Any = type(inner)
    inner.__class__ = watched_class(class_)
    return library.shared(inner)


def of_the_kind(seen: Any) -> type:
    """The class of the worker's filters over which the library has made that of `seen`."""
    mro = type(seen).__mro__
    return mro[mro.index(Native) + 2]  # after the watched one


def calls_of(seen: Any) -> list[Call]:
    """One of each method, operator and property. What they are given does not matter: none gets to work with it."""
    calls = []
    for name, inner in inner_methods(of_the_kind(seen)).items():
        if isinstance(inner, property):
            calls.append(Call(name, partial(getattr, seen, name)))
            continue
        taken = list(signature(inner).parameters.values())[1:]
        required = [one for one in taken if one.default is Parameter.empty]
        run = partial(getattr(type(seen), name), seen, *[NO_KEYS] * len(required))
        calls.append(Call(name, run))
        if in_steps(inner):
            calls.append(Call(f"a step of {name}", lambda run=run: next(run())))  # type: ignore[misc]
    return calls


@pytest.mark.usefixtures("waiting")
def test_no_two_calls_are_inside_a_filter_at_one_time() -> None:
    """Whichever two: public methods, properties and operators, found by introspection, and steps of iterators."""

    def check(row: tuple[str, Mapping[str, Any]]) -> None:
        kind, options = row
        seen = watched_filter(kind, options)
        calls = calls_of(seen)
        assert {"add", "add_many", "contains_many", "__contains__", "__len__"} <= {
            call.to for call in calls
        }
        together = [
            (first, second, state)
            for first in calls
            for second in calls
            if (state := beside(first, second)) != "waits"
        ]
        assert together == []

    every(WAYS, check)


# What each method that only the library has does first with the table, and what else it is given.
OF_A_SET: dict[str, tuple[str, tuple[Any, ...]]] = {
    "__and__": ("the first of the table", ()),
    "__copy__": ("the first of the table", ()),
    "__deepcopy__": ("the first of the table", ({},)),
    "__eq__": ("header", ()),
    "__or__": ("the first of the table", ()),
    "__reduce__": ("the first of the table", ()),
    "__repr__": ("__len__", ()),
    "clear": ("the end of the table", ()),
    "copy": ("the first of the table", ()),
    "intersection": ("the first of the table", ()),
    "union": ("the first of the table", ()),
    "update": ("add_many", ([],)),
}
SAVES = {"save", "to_bytes"}  # as in a test below


@pytest.mark.usefixtures("waiting")
def test_no_method_of_a_set_works_beside_another_call() -> None:
    """Found by introspection, too. Of two filters, both are held."""
    found = {
        name
        for one in Shared.__mro__
        if one.__module__.startswith("streamdedup.library.")
        for name, method in vars(one).items()
        if callable(method) and (name.startswith("__") or not name.startswith("_"))
    }
    assert found - {"__init__"} == {*OF_A_SET, *REFUSED, *OPERATORS, "remove", *SAVES}

    def check(row: tuple[tuple[str, Mapping[str, Any]], str]) -> None:
        (kind, options), name = row
        seen, other = (watched_filter(kind, options) for _ in range(2))
        to, given = OF_A_SET[name]
        by = {"__and__": "__iand__", "__or__": "__ior__"}
        by |= {"intersection": "__iand__", "union": "__ior__"}
        both = (other,) if name in {"__eq__", *by} else ()
        call = Call(to, partial(getattr(type(seen), name), seen, *both, *given))
        if name in by and not hasattr(seen, by[name]):
            with pytest.raises(TypeError, match="has no "):
                call.run()
            return
        HERE.at = {}
        for one in (seen, *(both if name == "__eq__" else ())):
            assert beside(call, Call("add_many", partial(one.add_many, NO_KEYS))) == "waits"

    every(itertools.product(WAYS, OF_A_SET), check)


def test_builtins_leave_all_to_python_while_a_call_is_inside() -> None:
    """Whichever call: the methods of one key, which take no lock, then do not touch the table."""

    def check(row: tuple[str, Mapping[str, Any]]) -> None:
        kind, options = row
        seen = watched_filter(kind, options)
        HERE.at = {}
        seen.add(key_of(seen, 1), *in_time(seen, 10**12))
        assert seen._state[OPEN]
        inside = []

        def look() -> None:
            inside.append(seen._state[OPEN])
            raise StoppedError

        calls = [call for call in calls_of(seen) if call.to not in {"add", "discard"}]
        for call in calls:
            HERE.at = {call.to: look}
            with suppress(StoppedError):
                call.run()
            HERE.at = {}
            assert key_of(seen, 1) in seen
            assert seen._state[OPEN], call
        assert inside == [0] * len(calls)

    every([way for way in WAYS if has_builtins(way)], check)


@pytest.mark.usefixtures("waiting")
def test_nobody_adds_while_a_filter_is_copied_or_saved(tmp_path: Path) -> None:
    """From the first byte to the last. Only a save of bits that are only set lets others in."""

    def check(row: tuple[tuple[str, Mapping[str, Any]], str]) -> None:
        (kind, options), at = row
        seen = watched_filter(kind, options)
        add = Call("add_many", lambda: seen.add_many(NO_KEYS))
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            assert beside(Call(at, lambda way=way: way(seen)), add) == "waits"  # type: ignore[misc]
        bits = seen.only_sets_bits and not isinstance(seen, Growing)
        for save in (lambda: streamdedup.save(seen, tmp_path / "saved"), seen.to_bytes):
            assert beside(Call(at, save), add) == ("inside" if bits else "waits")

    every(itertools.product(WAYS, ["the first of the table", "the end of the table"]), check)


@pytest.mark.parametrize(("kind", "options"), UNIONABLE, ids=str)
@pytest.mark.usefixtures("waiting")
def test_a_union_holds_both_filters_in_one_order(kind: str, options: Mapping[str, Any]) -> None:
    """Nobody adds to either of them; `a |= b` and `b |= a` cannot wait for each other for ever."""
    one, other = (watched_filter(kind, options) for _ in range(2))
    orders = []
    for left, right in ((one, other), (other, one), (one, one)):
        unite = Call("__ior__", partial(type(left).__ior__, left, right))
        for seen in (left, right):
            assert beside(unite, Call("add_many", partial(seen.add_many, NO_KEYS))) == "waits"
        HERE.taken = []
        assert beside(unite, Call("__len__", partial(len, left))) == "waits"
        orders.append(list(dict.fromkeys(HERE.taken)))
    assert orders[0] == orders[1]
    assert [len(order) for order in orders] == [2, 2, 1]


@pytest.mark.usefixtures("waiting")
def test_a_classic_filter_sets_and_reads_bits_for_one_caller_at_a_time() -> None:
    """The rest of it reads one number, or nothing that changes."""
    seen = ClassicBloom(64, [lambda _key: int(reach("a bit"))])
    calls = [Call("a bit", partial(seen.add, "a")), Call("a bit", partial(seen.__contains__, "a"))]
    assert {beside(first, second) for first in calls for second in calls} == {"waits"}
    held = {"add", "__contains__", "__getstate__", "__setstate__"}
    assert set(inner_methods(ClassicBloom)) - held == {
        "__len__",
        "error_rate_now",
        "expected_error",
        "fill_ratio",
        "hashes",
        "positions",
        "size_bytes",
    }


# --- forks ---


def used(seen: Any) -> tuple[Callable[[], object], Callable[[], object]]:
    """Batches of additions, and a single one."""
    many = seen.digests([f"key {number}" for number in range(100_000)])
    return lambda: seen.add_many(many), lambda: seen.add("another")


def filled() -> tuple[Callable[[], object], Callable[[], object]]:
    """The same of what guards a store."""
    stored: dict[str, str] = {}
    guard = streamdedup.Lookaside(built("bloom", 200_000), stored.get)
    keys = [f"key {number}" for number in range(5000)]

    def fill() -> None:
        with guard.fill() as scan:
            scan.add_many(keys)

    return fill, lambda: guard.add("another")


def classic() -> tuple[Callable[[], object], Callable[[], object]]:
    """The same of a filter of strings."""
    seen = ClassicBloom(1 << 18, 3)
    return lambda: [seen.add(f"{i}") for i in range(100)], lambda: seen.add("another")


def normalized() -> tuple[Callable[[], object], Callable[[], object]]:
    """The same of addresses that no kernel reads."""
    seen = built("cuckoo", 2000, normalize="email")
    keys = [f"ü{number}@bücher.example" for number in range(1000)]
    return lambda: seen.digests(keys), lambda: seen.add("ä@bücher.example")


def called_first() -> tuple[Callable[[], object], Callable[[], object]]:
    """The first call of a class, for which its builtin is loaded."""
    kept = []  # builtins of former classes call it

    def first() -> object:
        subclass.class_over.cache_clear()
        seen = built("cuckoo", 100)
        for _, entry in seen._builtins.entries():
            kept.append(entry._made)
            entry._made = None
        return seen.add("another"), "another" in seen, seen.discard("another")

    return first, first


@pytest.mark.skipif(sys.platform == "darwin", reason="its libraries refuse a fork among threads")
@pytest.mark.parametrize(
    "uses",
    [
        *(
            pytest.param(lambda kind=kind: used(built(kind, 200_000)), id=kind)
            for kind in ("cuckoo", "bloom", "exact")
        ),
        filled,
        classic,
        normalized,
        called_first,
    ],
)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that it has threads
def test_a_child_can_use_what_a_thread_used_at_the_fork(
    uses: Callable[[], tuple[Callable[[], object], Callable[[], object]]],
) -> None:
    """It finds no lock of a thread that it does not have."""
    fork_beside(*uses())


def fork_beside(often: Callable[[], object], once: Callable[[], object]) -> None:
    """Do one thing in a thread, often, and the other in each of ten children that begin meanwhile."""
    often()
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            often()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(10):
            time.sleep(0.01)
            child = os.fork()
            if not child:
                signal.alarm(20)  # else it would wait for ever
                once()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        ended.set()
        thread.join(120)
