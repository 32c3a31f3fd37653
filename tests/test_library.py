"""What `build`, `load` and `save` of the library promise beyond the filters: a full filter, copies."""

import copy
import itertools
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import numpy as np
import pytest

import streamdedup
from streamdedup import FilterFullError, FilterFullWarning
from streamdedup.errors import ConfigError
from streamdedup.events import Column
from streamdedup.filters.base import Removable
from streamdedup.filters.strain import ChosenKeysError
from tests.filters.cases import HASH_KEY, random_digests, state
from tests.library import SETS, WAYS, built, in_time, key_of, keys_of, pickled
from tests.rows import every

fixed = pytest.mark.parametrize("kind", SETS)


# --- copies ---


def test_a_copy_is_whole(tmp_path: Path) -> None:
    """Equal, of the same class, aligned; what one gets the other has not, also after it grew; both can be saved."""

    def check(row: tuple[tuple[str, Mapping[str, Any]], Callable[[Any], Any]]) -> None:
        (kind, options), way = row
        seen = built(kind, 500, **options)
        numbers = np.arange(2000)
        first = numbers[: 500 if "on_full" not in options else 1200]
        seen.add_many(keys_of(seen, first), *in_time(seen, np.zeros(len(first), np.int64)))
        other = way(seen)
        assert type(other) is type(seen)
        assert (state(other)[:2], len(other)) == (state(seen)[:2], len(seen))
        before = state(other)[:2]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FilterFullWarning)
            seen.add_many(keys_of(seen, numbers), *in_time(seen, np.zeros(len(numbers), np.int64)))
            assert state(other)[:2] == before
            assert other.add(key_of(seen, 1999), *in_time(seen, 0))
        for each in (seen, other):
            streamdedup.save(each, tmp_path / "saved")
            assert len(streamdedup.load(tmp_path / "saved")) == len(each)

    every(itertools.product(WAYS, [copy.copy, copy.deepcopy, pickled]), check)


@pytest.mark.parametrize("normalize", [None, "lowercase"])
def test_a_copy_keeps_hash_and_policy(normalize: str | None, tmp_path: Path) -> None:
    """Its secret, its normalization, what it does if it is full, and that it is a multiset; a mapped one can change."""
    seen: Any = built(
        "cuckoo",
        2,
        hash="siphash",
        hash_key=HASH_KEY,
        on_full="stop",
        multiset=True,
        normalize=normalize,
    )
    seen.add("A")
    streamdedup.save(seen, tmp_path / "saved")
    mapped: Any = streamdedup.load(tmp_path / "saved", mmap=True, hash_key=HASH_KEY)
    for other in (copy.copy(seen), pickled(seen), copy.copy(mapped)):
        assert ("a" in other) == (normalize is not None)
        assert not other.add("A")
        assert other.discard("A")
        assert "A" in other
        assert other.add("b")
        with pytest.raises(FilterFullError):
            other.add("c")


# --- keys ---


def test_keys_of_all_types_are_keys_of_all_kinds(tmp_path: Path) -> None:
    """One by one, in batches, in columns as the worker's, and from a file; none is taken for another."""
    texts = [str(number) for number in range(100)]
    keys: list[Any] = [
        key for text in texts for key in (text, int(text), (text,), (int(text), text))
    ]
    keys += [UUID(int=number) for number in range(100)]
    keys += [b"\xff" + text.encode() for text in texts]

    def check(way: tuple[str, Mapping[str, Any]]) -> None:
        seen = built(way[0], 1000, **way[1])
        at = in_time(seen, 0)
        assert all(seen.add(key, *at) for key in keys[::2])
        fresh = seen.add_many(seen.digests(keys), *in_time(seen, np.zeros(len(keys), np.int64)))
        assert fresh.tolist() == [False, True] * (len(keys) // 2)
        streamdedup.save(seen, tmp_path / "saved")
        for each in (seen, streamdedup.load(tmp_path / "saved")):
            assert all(key in each for key in keys)
            assert -1 not in each
            assert b"\xffi\x05" not in each
            assert each.contains_many(each.hash.of_column(Column.of(keys[-100:]))).all()
        if hasattr(seen, "discard"):
            copies = keys[::2] if seen.multiset else []
            assert all(seen.discard(key) for key in [*keys, *copies])
            assert not any(key in seen for key in keys)

    every([way for way in WAYS if "range" not in way[1]], check)


# --- a full filter ---


@fixed
def test_a_full_filter_warns_once(kind: str) -> None:
    """At the first new key beyond its capacity, in whatever way it comes; a known key is no reason."""
    for way in ("add", "add_many", "add_absent"):
        seen = built(kind, 100)
        if not hasattr(seen, way):
            continue
        at = in_time(seen, np.zeros(1, np.int64))

        def add(number: int, seen: Any = seen, way: str = way, at: Any = at) -> bool:
            if way == "add":
                return bool(seen.add(b"%d" % number, *in_time(seen, 0)))
            return bool(getattr(seen, way)(seen.digests([b"%d" % number]), *at)[0])

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert all(add(number) for number in range(100))
            assert not any(add(number) for number in range(100))
            assert caught == []
            assert add(100)
            beyond = sum(add(number) for number in range(101, 200))  # the error rate grows
        assert [one.category for one in caught] == [FilterFullWarning]
        assert caught[0].filename == __file__
        assert "capacity of 100 " in str(caught[0].message)
        assert len(seen) == 101 + beyond > 150


@fixed
def test_a_full_filter_stops_and_changes_nothing(kind: str, tmp_path: Path) -> None:
    """`add_many` adds nothing of the call, known keys are answered, and a file says that it stops."""
    seen = built(kind, 100, on_full="stop")
    digests = seen.digests([b"%d" % number for number in range(200)])
    times = in_time(seen, np.zeros(200, np.int64))

    def add(rows: slice) -> list[bool]:
        return cast(
            "list[bool]", seen.add_many(digests[rows], *(each[rows] for each in times)).tolist()
        )

    assert all(add(slice(0, 60)))
    before = state(seen)
    with pytest.raises(FilterFullError, match=f"kind {kind} is full: it holds 60 keys"):
        add(slice(0, 101))
    assert state(seen) == before
    assert add(slice(0, 100)) == [False] * 60 + [True] * 40
    assert not any(add(slice(0, 100)))
    before = state(seen)
    for _ in range(2):
        with pytest.raises(FilterFullError) as error:
            seen.add(b"150", *in_time(seen, 0))
        assert "150" not in str(error.value)
        with pytest.raises(ConfigError):
            add(slice(99, 101))
    assert state(seen) == before
    assert not seen.add(b"7", *in_time(seen, 0))
    streamdedup.save(seen, tmp_path / "saved")
    back: Any = streamdedup.load(tmp_path / "saved")
    with pytest.raises(FilterFullError):
        back.add(b"150", *in_time(seen, 0))
    if isinstance(seen, Removable):
        assert seen.discard(b"7")
        assert seen.add(b"150")
        with pytest.raises(FilterFullError):
            seen.add(b"151")


def test_a_window_that_forgets_is_not_full() -> None:
    """Room comes back with time, within a call, too; without it the call is refused as a whole."""
    seen = built("window", 100, retention=3000, generations=4, on_full="stop")
    rows = random_digests(504, 1000)
    seen.add_many(rows[:100], np.zeros(100, np.int64))
    with pytest.raises(FilterFullError):
        seen.add_many(rows[100:101], np.full(1, 1500))
    with pytest.raises(ConfigError, match="give the time"):
        seen.add_many(rows[100:101])
    with pytest.raises(ConfigError, match="give the time"):
        seen.add("a key")
    later = np.repeat(np.arange(2, 10) * 5000, 100)
    assert seen.add_many(rows[100:900], later).all()
    before = state(seen)
    with pytest.raises(FilterFullError):
        seen.add_many(rows[800:1000], np.repeat([45_000, 46_000], 100))
    assert state(seen) == before
    assert seen.add("a key", 60_000)
    assert len(seen) == 1


def test_a_window_by_count_is_never_full() -> None:
    """It forgets the oldest of its keys."""
    seen = built("window", 100, retention=None, on_full="stop")
    assert all(seen.add(b"%d" % number) for number in range(1000))


@pytest.mark.parametrize("on_full", ["stop", "warn"])
def test_a_union_may_fill_a_filter(on_full: str) -> None:
    """Then it warns, or is refused and changes nothing."""
    one, other = (built("bloom", 100, on_full=on_full) for _ in range(2))
    one.add_many(random_digests(505, 90))
    other.add_many(random_digests(506, 90))
    before = state(one)
    if on_full == "stop":
        with pytest.raises(FilterFullError):
            one |= other
        assert state(one) == before
    else:
        with pytest.warns(FilterFullWarning):
            one |= other
        assert len(one) > 100


def test_a_union_is_no_reason_to_warn_again() -> None:
    """A filter that has warned is silent from then on, whether a union filled it, or finds it full."""
    one, other, empty = (built("bloom", 100) for _ in range(3))
    one.add_many(random_digests(505, 90))
    other.add_many(random_digests(506, 90))
    with pytest.warns(FilterFullWarning) as caught:
        one |= other
        one.add_many(random_digests(507, 200))
        one |= empty
        one.add("a key")
        one.add_many(random_digests(508, 200))
    assert len(caught) == 1


@pytest.mark.parametrize("kind", ["cuckoo", "exact", "window"])
def test_what_a_refused_call_has_added_takes_room(kind: str) -> None:
    """Keys before the refused one are there, so `stop` counts them, and stops at the capacity."""
    seen = built(kind, 30_000, on_full="stop")
    chosen = random_digests(509, 30_000).copy()
    chosen[:, 0] = 1 << 60  # of one place
    with pytest.raises(ChosenKeysError):
        seen.add_many(chosen, *in_time(seen, np.zeros(len(chosen), np.int64)))
    held = len(seen)
    assert held > 0
    rows = random_digests(510, 30_001 - held)
    with pytest.raises(FilterFullError, match="it holds"):
        seen.add_many(rows, *in_time(seen, np.zeros(len(rows), np.int64)))
    assert len(seen) == held


def test_a_file_that_says_something_else_is_refused(tmp_path: Path) -> None:
    """`on_full` of a header is `stop`, or not there."""
    seen = built("bloom", 10)
    with pytest.raises(ValueError, match="on_full 'grow' is not"):
        type(seen).from_parts({**seen.header(), "on_full": "grow"}, seen.buffers())
    streamdedup.save(seen, tmp_path / "saved")
    content = (tmp_path / "saved").read_bytes()
    assert b"on_full" not in content  # nor in the files of a worker, which are those of before
    assert b"multiset" not in content


# --- an interrupt ---


class Interrupt:
    """Raises KeyboardInterrupt at the line of the given number of the code that makes room in a filter."""

    NAMES = ("feed", "make_room", "_hold", "_over", "_grow")

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: Any, event: str, _: object) -> Any:
        """Trace a frame of this code."""
        if frame.f_code.co_name not in self.NAMES:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


@pytest.mark.skipif(sys.gettrace() is not None, reason="what traces the tests would stop")
@pytest.mark.parametrize(
    ("kind", "way"),
    [
        *((kind, "add_many") for kind in ("cuckoo", "dleft", "dlcbf", "exact", "window")),
        *((kind, "add") for kind in ("cuckoo", "exact", "window")),
    ],
)
@pytest.mark.filterwarnings("ignore::streamdedup.FilterFullWarning")
def test_an_interrupt_while_a_filter_makes_room_breaks_nothing(
    kind: str, way: str, tmp_path: Path
) -> None:
    """Ctrl-C, then `save`, as a crawler does: the file can be loaded, and no key is lost, now or later."""
    before, later = random_digests(511, 20), random_digests(512, 60)
    for number in count(1):
        seen = built(kind, 20)
        seen.add_many(before, *in_time(seen, np.zeros(20, np.int64)))
        trace = Interrupt(number)
        sys.settrace(trace)
        with suppress(KeyboardInterrupt):
            if way == "add":
                for key in range(40):
                    seen.add(f"{key}", *in_time(seen, 0))
            else:
                seen.add_many(random_digests(513, 100), *in_time(seen, np.zeros(100, np.int64)))
        sys.settrace(None)
        if trace.left > 0:
            assert number > 10
            break
        streamdedup.save(seen, tmp_path / "saved")
        for one in (seen, cast("Any", streamdedup.load(tmp_path / "saved"))):
            assert one.contains_many(before).all()
            for key in range(40, 60):
                one.add(f"{key}", *in_time(one, 0))
                assert f"{key}" in one
            one.add_many(later, *in_time(one, np.zeros(60, np.int64)))
            assert one.contains_many(np.concatenate([before, later])).all()
            assert len(copy.copy(one)) == len(one)
