"""The methods of one key are builtins. They answer, change and refuse as the methods in Python that they replace.

A filter without builtins says what is right. Where `built` is called, the next single call makes builtins of them.
"""

import copy
import gc
import os
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from inspect import signature
from itertools import zip_longest
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

import streamdedup
from streamdedup import native
from streamdedup.errors import ConfigError
from streamdedup.filters.memory import READ_ONLY
from streamdedup.keys.key_normalizer import KeyNormalizer
from streamdedup.library import subclass
from streamdedup.native import OPEN, STAGE_ROOM, new_state
from tests.filters.cases import HASH_KEY, state
from tests.library import WAYS, built, has_builtins, in_time, no_builtins, pickled
from tests.rows import every

pytestmark = pytest.mark.filterwarnings("ignore::streamdedup.FilterFullWarning")

METHODS = ("add", "__contains__", "discard")
BATCHES = ("add_many", "contains_many", "remove_many", "__len__")
ALPHABETS = (
    "abcdefghij0123456789/:.?&=",
    "äöüßéèçñøå",
    "日本語中文字漢ひらカ",
    "😀😁🎉🚀",
    "a\0é日😀",
)
WRONG = (
    None,
    True,
    1.5,
    ("a", 1.5),
    ["a"],
    bytearray(b"a"),
    memoryview(b"a"),
    "\ud800",
    "a\udfffb",
)


class Text(str):
    """No plain `str`."""

    __slots__ = ()


class Data(bytes):
    """No plain `bytes`."""


OF: tuple[Callable[[str], Any], ...] = (
    *(str, str, str, str.encode, Text),
    lambda text: Data(text.encode()),
    lambda text: b"\xff" + text.encode(),
    len,
    lambda text: (text, len(text), UUID(int=len(text))),
)
"""From a text to a key of any type."""

WITH_BUILTINS = [way for way in WAYS if has_builtins(way)]


def random_key(draw: random.Random) -> Any:
    """A key of any width and length, some of them of subclasses, or no texts."""
    size = draw.choice((0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 3000))
    key = "".join(draw.choices(draw.choice(ALPHABETS), k=min(size, draw.randrange(101))))
    key += str(draw.randrange(300))
    return draw.choice(OF)(key)


def said(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or how it fails."""
    try:
        return call(*arguments)
    except Exception as error:
        return type(error), str(error)


def is_open(seen: Any) -> bool:
    """Whether builtins answer now."""
    return bool(seen._state[OPEN])


def holds_live_addresses(seen: Any) -> bool:
    """Whether an open state is what would be made of the arrays of now."""
    layout, secret, words = seen._builtins.layout, seen.hash.key, seen._stage_words()
    now = new_state(layout, secret, seen._room_left, seen._stage_room, words)
    first = (
        STAGE_ROOM if hasattr(seen, "stages") else STAGE_ROOM + 1
    )  # else it has no room to count
    return not is_open(seen) or bytes(seen._state)[8 * first :] == bytes(now)[8 * first :]


def pair(way: tuple[str, Any], **more: Any) -> tuple[Any, Any]:
    """A filter, and one without builtins."""
    kind, options = way
    with no_builtins():
        slow = built(kind, 300, **{**options, **more})
    return built(kind, 300, **{**options, **more}), slow


def steps(draw: random.Random, seen: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Methods and their arguments: single keys, and in between all that replaces arrays."""
    time = 10**12
    for _ in range(1500):
        time += draw.randrange(3_600_000) * (draw.random() < 0.02)
        at = in_time(seen, time)
        name = draw.choices(
            (
                "add",
                "__contains__",
                "discard",
                "add_many",
                "contains_many",
                "remove_many",
                "__len__",
            ),
            (40, 30, 10, 2, 2, 1, 1),
        )[0]
        if name == "__len__":
            yield name, ()
        elif name.endswith("_many"):
            digests = seen.digests([random_key(draw) for _ in range(draw.randrange(40))])
            times = [np.full(len(digests), time)] if name == "add_many" and at else []
            if hasattr(seen, name):
                yield name, (digests, *times)
        elif hasattr(seen, name):
            yield name, (random_key(draw), *(at if name == "add" else []))


def test_builtins_and_python_agree_whatever_comes_between() -> None:
    """Answers, tables and counts are equal, also beyond the capacity; and each address is that of a live array."""

    def check(row: tuple[tuple[str, Any], bytes]) -> None:
        way, key = row
        hashed = {"hash": "siphash", "hash_key": key} if key else {}
        fast, slow = pair(way, **hashed)
        calls = 0
        for name, arguments in steps(random.Random(7), slow):
            here, there = (getattr(one, name)(*arguments) for one in (fast, slow))
            assert np.array_equal(here, there), (name, arguments)
            assert holds_live_addresses(fast)
            calls += is_open(fast)
        assert calls > 1000
        assert state(fast) == state(slow)
        assert len(fast) == len(slow) > 200

    every([(way, key) for way in WITH_BUILTINS for key in (b"", HASH_KEY)], check)


def test_builtins_answer_for_a_window_whatever_moves_it() -> None:
    """Whoever puts or rotates keys, also between two steps, or changes the policy."""
    both = fast, slow = pair(("window", {}))
    day, time = 86_400_000, 10**12

    def moves(one: Any, step: int) -> Iterator[None]:
        digests = one.digests([f"{step} {number}" for number in range(9)])
        if step % 3 == 0:
            yield from one.put_many(digests, np.full(9, time // one.clock.slot))
        elif step % 3 == 1:
            yield from one.rotate(max(time, one.watermark))
        else:
            one.set_policy("drop" if step % 2 else "pass", bool(step % 2))

    for step in range(300):
        time += day // 7
        for here, there in zip_longest(*(moves(one, step) for one in both)):
            assert here == there
            for number in range(9):
                for key in (f"{step} {number}", f"{step - 3} {number}", f"new {step - 1} {number}"):
                    assert (key in fast) == (key in slow)
                    assert holds_live_addresses(fast)
        for number in range(9):
            at = time - number * day // 5
            assert fast.add(f"new {step} {number}", at) == slow.add(f"new {step} {number}", at)
            assert holds_live_addresses(fast)
    assert is_open(fast)
    assert state(fast) == state(slow)


def test_a_filter_that_grows_goes_on_as_builtin() -> None:
    """Its stages come as keys do, one by one."""

    def check(kind: str) -> None:
        fast, slow = pair((kind, {"on_full": "grow", "max_size": "1MiB"}))
        for number in range(3000):
            assert fast.add(f"{number}") == slow.add(f"{number}")
        assert "stages" in fast.stages
        assert state(fast) == state(slow)
        assert all(f"{number}" in fast for number in range(3000))
        assert is_open(fast)
        assert holds_live_addresses(fast)

    every(["bloom", "blocked", "counting", "cuckoo", "dleft", "dlcbf", "exact"], check)


@pytest.mark.parametrize("refresh", [False, True])
def test_a_window_that_grows_goes_on_as_builtin(refresh: bool) -> None:
    """Its stages come and go; keys of any of them come again, late and early ones, too."""
    hour, draw = 3_600_000, random.Random(3)
    grows = {"on_full": "grow", "max_size": "1MiB", "retention": "1d", "generations": 4}
    fast, slow = pair(("window", {**grows, "refresh": refresh}))
    time, calls, stages = 10**12, 0, set()
    for number in range(20_000):
        time += hour // (20 if number % 8000 < 4000 else 800)
        at = max(0, time + draw.choice((0, 0, 0, -hour, -40 * hour, hour, 7 * hour)))
        key = f"{number - draw.choice((0, 0, draw.randrange(4000)))}"
        assert fast.add(key, at) == slow.add(key, at)
        assert (f"{number - 500}" in fast) == (f"{number - 500}" in slow)
        calls += is_open(fast)
        stages.add(fast.stages)
        if number % 100 == 0:
            assert holds_live_addresses(fast)
    assert calls > 19_000
    assert len(stages) > 2
    assert state(fast) == state(slow)


def test_they_are_builtins_and_say_what_they_take() -> None:
    """Each method of one key, once it was called."""

    def check(way: tuple[str, Any]) -> None:
        seen = built(way[0], 100, **way[1])
        seen.add("a", *in_time(seen, 10**12))
        assert "a" in seen
        for name in METHODS:
            if hasattr(seen, name):
                getattr(seen, name)("b", *(in_time(seen, 10**12) if name == "add" else []))
                method = type(seen).__dict__[name]
                assert type(method).__name__ == "method_descriptor"
                assert list(signature(method).parameters)[:2] == ["self", "key"]
                assert method.__doc__ == getattr(type(seen), f"_{name}_by_python").__doc__

    every(WITH_BUILTINS, check)


def test_wrong_keys_get_the_same_errors() -> None:
    """And change nothing."""

    def check(way: tuple[str, Any]) -> None:
        fast, slow = pair(way)
        for one in (fast, slow):
            one.add("a", *in_time(one, 10**12))
        for key in WRONG:
            for name in METHODS:
                if hasattr(fast, name):
                    at = in_time(fast, 10**12) if name == "add" else []
                    here, there = (said(getattr(one, name), key, *at) for one in (fast, slow))
                    assert here == there
                    assert isinstance(here, tuple)
        assert "a" in fast
        assert len(fast) == 1

    every(WITH_BUILTINS, check)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("cuckoo", {}), ("bloom", {"on_full": "grow", "max_size": "1MiB"}), ("window", {})],
)
def test_a_filter_that_normalizes_hands_on_what_is_normalized(
    kind: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key is normalized once, also if the builtin leaves it to Python, which may look it up again."""
    normalized, draw, calls = KeyNormalizer.key, random.Random(5), list[Any]()

    def watched(self: KeyNormalizer, key: Any) -> str:
        calls.append(key)
        return normalized(self, key)

    monkeypatch.setattr(KeyNormalizer, "key", watched)
    fast, slow = pair((kind, {**options, "normalize": "lowercase"}))
    at = in_time(fast, 10**12)
    for _ in range(1000):
        key = draw.choice(("Key %d", "kEY %d", "key %d", "\ud800%d")) % draw.randrange(700)
        for name in METHODS:
            if hasattr(fast, name) and draw.random() < (0.1 if name == "discard" else 1):
                calls.clear()
                more = at if name == "add" else []
                here, there = (said(getattr(one, name), key, *more) for one in (fast, slow))
                assert here == there, (name, key)
                assert calls == [key, key]
    assert is_open(fast)
    assert state(fast) == state(slow)
    assert len(fast) > 400


def test_wrong_arguments_of_a_window_are_refused_as_before() -> None:
    """A time is given by time only, by position or by name."""
    fast, slow = pair(("window", {}))
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        (("a",), {}),
        (("a", 1, 2), {}),
        (("a", -1), {}),
        (("a", 10**30), {}),
        (("a", -(10**15)), {}),
        (("a", "b"), {}),
        (("a", True), {}),
        (("a", 10**12), {"time": 1}),
        ((), {"key": "b", "time": 10**12}),
        (("c",), {"time": 10**12}),
        (("c",), {"when": 10**12}),
    ]
    for arguments, named in calls:
        here, there = (said(partial(one.add, *arguments, **named)) for one in (fast, slow))
        assert here == there, (arguments, named)
    by_count, _ = pair(("window", {"retention": None}))
    assert by_count.add("a")
    with pytest.raises(ConfigError, match="by count"):
        by_count.add("b", 5)


def test_a_full_filter_warns_or_stops_at_the_same_key() -> None:
    """A key that it has is no new one, and takes no longer."""

    def check(row: tuple[tuple[str, Any], str]) -> None:
        (kind, options), on_full = row
        seen = built(kind, 50, **{**options, "on_full": on_full})
        keys = [f"{number}" for number in range(60)]
        with pytest.warns(streamdedup.FilterFullWarning) if on_full == "warn" else nullcontext():
            outcomes = [said(seen.add, key, *in_time(seen, 10**12)) for key in keys]
        assert outcomes[:50] == [True] * 50
        if on_full == "stop":
            assert {outcome[0] for outcome in outcomes[50:]} == {streamdedup.FilterFullError}
        assert not any(seen.add(key, *in_time(seen, 10**12)) for key in keys[:50])
        assert len(seen) == (50 if on_full == "stop" else 60)

    rows = [way for way in WITH_BUILTINS if "on_full" not in way[1] and way[1].get("retention", 1)]
    every([(way, on_full) for way in rows for on_full in ("warn", "stop")], check)


def test_a_warning_names_the_line_that_added() -> None:
    """A builtin among the calls makes no difference."""
    seen = built("bloom", 2)
    with pytest.warns(streamdedup.FilterFullWarning) as caught:
        for key in "abc":
            seen.add(key)
    assert caught[0].filename == __file__


def test_a_mapped_filter_answers_and_refuses(tmp_path: Path) -> None:
    """Its table is read-only."""

    def check(way: tuple[str, Any]) -> None:
        seen = built(way[0], 100, **way[1])
        seen.add("a", *in_time(seen, 10**12))
        streamdedup.save(seen, tmp_path / "seen")
        mapped: Any = streamdedup.load(tmp_path / "seen", mmap=True)
        assert "a" in mapped
        assert "b" not in mapped
        refused = said(mapped.add, "b", *in_time(seen, 10**12))
        assert READ_ONLY in refused[1]
        assert "b" not in mapped

    every(WITH_BUILTINS, check)


def test_a_copy_has_no_address_of_another() -> None:
    """Whether it is copied or pickled: what one gets the other has not."""

    def check(way: tuple[str, Any]) -> None:
        seen = built(way[0], 100, **way[1])
        at = in_time(seen, 10**12)
        seen.add("a", *at)
        made: list[Any] = [copy.copy(seen), copy.deepcopy(seen), pickled(seen)]
        for number, other in enumerate(made):
            assert not is_open(other)
            assert "a" in other
            assert other.add(f"{number}", *at)
            assert f"{number}" not in seen
            assert holds_live_addresses(other)

    every(WITH_BUILTINS, check)


def test_a_fork_leaves_each_side_its_own() -> None:
    """The child and the parent go on by themselves."""
    filters = [built(kind, 1000, **options) for kind, options in WITH_BUILTINS]
    for seen in filters:
        seen.add("before", *in_time(seen, 10**12))
    if not (child := os.fork()):
        with suppress(BaseException):
            if all(
                seen.add("child", *in_time(seen, 10**12)) and "before" in seen and "child" in seen
                for seen in filters
            ):
                os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert not any("child" in seen for seen in filters)
    assert all("before" in seen for seen in filters)


def test_a_filter_lives_as_long_as_a_method_of_it_and_no_longer() -> None:
    """There is no cycle of references, which would keep its memory."""

    def check(way: tuple[str, Any]) -> None:
        seen: Any = built(way[0], 100, **way[1])
        at = in_time(seen, 10**12)
        seen.add("a", *at)
        add, there = seen.add, weakref.ref(seen)
        gc.disable()
        try:
            del seen
            assert add("b", *at)
            del add
            assert there() is None
        finally:
            gc.enable()

    every(WITH_BUILTINS, check)


def test_no_reference_is_lost_or_kept() -> None:
    """Of the key, the answer or the filter, whether the builtin answers, Python does, or the call fails."""
    seen: Any = built("cuckoo", 100_000)
    window: Any = built("window", 100_000)
    for key in ("abc", b"abc", "é" * 30, Text("x"), 5, ("x", 5), 1.5, "\ud800"):
        for _ in range(2):  # the first round makes what is made once
            gc.collect()
            before = [sys.getrefcount(one) for one in (key, True, False, None, seen, window)]
            for _ in range(2000):
                said(seen.add, key)
                said(seen.__contains__, key)
                said(window.add, key, 10**12)
            gc.collect()
            after = [sys.getrefcount(one) for one in (key, True, False, None, seen, window)]
        assert all(abs(one - other) < 50 for one, other in zip(before, after, strict=True))


def test_threads_find_each_key_new_once() -> None:
    """While batches of other threads, which let go of the interpreter, work on the same filter."""

    def check(way: tuple[str, Any]) -> None:
        seen = built(way[0], 40_000, **way[1])
        keys = [f"{number}" for number in range(10_000)]
        at, new = in_time(seen, 10**12), list[int]()

        def one_by_one() -> None:
            new.append(sum(seen.add(key, *at) for key in keys))

        def together() -> None:
            times = [np.full(1000, 10**12)] if at else []
            for start in range(0, len(keys), 1000):
                digests = seen.digests(keys[start : start + 1000])
                new.append(int(seen.add_many(digests, *times).sum()))

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            threads = [threading.Thread(target=work) for work in (one_by_one, together) * 2]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(before)
        assert len(seen) >= 9_990
        if not way[1].get("multiset"):
            assert sum(new) == len(seen)
        assert all(key in seen for key in keys)

    every(WITH_BUILTINS, check)


def test_a_subclass_of_a_program_is_called_once() -> None:
    """Its `add` may change the key, and calls the builtin."""
    base: Any = type(built("bloom", 100))
    calls = []

    class Mine(base, of_library=True):  # type: ignore[call-arg,misc]  # a class that is made at run time
        def add(self, key: str) -> bool:
            calls.append(key)
            return bool(super().add(key + "!"))

    mine = built("bloom", 100)
    mine.__class__ = Mine
    assert mine.add("a")
    assert not mine.add("a")
    assert calls == ["a", "a"]
    assert "a!" in mine
    assert "a" not in mine


def test_where_there_can_be_none_python_answers() -> None:
    """As without the interpreter's lock."""
    with no_builtins():
        seen = built("cuckoo", 100)
        assert seen.add("a")
        assert "a" in seen
        assert seen.discard("a")
        assert type(type(seen).__dict__["add"]).__name__ == "function"
    assert native.usable()


def test_a_bound_method_that_was_taken_before_calls_the_builtin() -> None:
    """As in `add = seen.add` before a loop."""
    kind: Any = type(built("exact", 100))
    kind.add = subclass.of_one_key("add", kind._add_by_python)
    seen = built("exact", 100)
    add = seen.add
    assert add("a")
    assert type(kind.__dict__["add"]).__name__ == "method_descriptor"
    assert is_open(seen)
    assert not add("a")
    assert is_open(seen)


def test_what_a_program_puts_in_place_of_a_method_stays() -> None:
    """Also if it calls the former one, which would become a builtin."""
    kind: Any = type(built("exact", 100))
    before = subclass.of_one_key("add", kind._add_by_python)
    kind.add = before
    calls = []

    def watched(self: Any, key: str) -> bool:
        calls.append(key)
        return bool(before(self, key))

    kind.add = watched
    seen = built("exact", 100)
    assert [seen.add(key) for key in "aba"] == [True, True, False]
    assert calls == ["a", "b", "a"]
    kind.add = before
    assert not seen.add("a")
    assert calls == ["a", "b", "a"]
    kind.add = kind._natives["add"]


def test_an_object_that_is_given_another_class_is_left_to_python() -> None:
    """Its words mean something else there."""
    seen: Any = built("cuckoo", 100)
    other: Any = built("exact", 100)
    for one in (seen, other):
        one.add("a")
    seen.__class__ = type(other)
    with pytest.raises(AttributeError):
        seen.add("b")


def test_builtins_work_again_after_an_interrupt_in_any_place() -> None:
    """One may come before the end of a method is noted."""
    seen = built("bloom", 100)
    seen.add("a")
    seen._inside, seen._state[OPEN] = 1, 0
    assert seen.add("b")
    assert is_open(seen)
