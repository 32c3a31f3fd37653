"""What `build`, `load` and `save` of the library promise beyond the filters: threads, a full filter, copies."""

import copy
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import streamdedup
from streamdedup import ClassicBloom, FilterFullError, FilterFullWarning
from streamdedup.errors import ConfigError
from streamdedup.filters import GROWABLE, KINDS, OPTIONS, STATIC
from streamdedup.filters.base import Removable
from tests.filters.cases import HASH_KEY, random_digests, state

SETS = sorted(set(KINDS) - STATIC)
WAYS: list[tuple[str, Mapping[str, Any]]] = [
    *((kind, {}) for kind in SETS),
    *((kind, {"multiset": True}) for kind in SETS if "multiset" in OPTIONS[kind]),
    *((kind, {"on_full": "grow", "max_size": "64MiB"}) for kind in GROWABLE),
    ("window", {"retention": None}),
    ("bitmap", {"range": [0, 99_999]}),
]
ways = pytest.mark.parametrize(("kind", "options"), WAYS, ids=str)
fixed = pytest.mark.parametrize("kind", SETS)
THREADS = 4


@pytest.fixture(autouse=True)
def _turns_are_short() -> Iterator[None]:
    """Threads lose the interpreter as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def built(kind: str, capacity: int, **options: Any) -> Any:
    """An empty filter of the library that errs too seldom to notice."""
    rate = {"bitmap": 1e-5, "blocked": 1e-7}.get(kind, 1e-9)
    config: dict[str, Any] = {"kind": kind, "capacity": capacity, **options}
    if kind == "exact":
        config["fingerprint_bytes"] = 16
    if "range" not in config:
        config["error_rate"] = rate
    if kind == "window" and "retention" not in config:
        config["retention"] = "1d"
    return streamdedup.build({name: value for name, value in config.items() if value is not None})


def pickled(seen: Any) -> Any:
    """What another process would get of it."""
    return pickle.loads(pickle.dumps(seen))  # noqa: S301 - our own


def in_time(seen: Any, times: Any) -> list[Any]:
    """The times that a window by time takes."""
    return [times] if hasattr(seen, "clock") and not seen.clock.by_count else []


def keys_of(seen: Any, numbers: Any) -> Any:
    """The integers of a range, or the digests of these numbers."""
    return (
        numbers if hasattr(seen, "range") else seen.digests([b"%d" % number for number in numbers])
    )


def key_of(seen: Any, number: int) -> Any:
    """One of them as a single key."""
    return number if hasattr(seen, "range") else b"%d" % number


def run(*calls: Callable[[], None]) -> None:
    """All at one time, each in a thread of its own. Raises what one of them raised."""
    failed: list[BaseException] = []
    start = threading.Barrier(len(calls))

    def guarded(call: Callable[[], None]) -> None:
        try:
            start.wait()
            call()
        except BaseException as error:  # it is raised below
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if failed:
        raise failed[0]


# --- threads ---


@ways
def test_four_threads_add_to_one_filter(
    kind: str, options: Mapping[str, Any], tmp_path: Path
) -> None:
    """In batches and one by one, while it is looked at, copied and saved: each key is new once, and none is lost."""
    each, path = 3000, tmp_path / "saved"
    seen = built(kind, THREADS * each // (8 if "on_full" in options else 1), **options)
    numbers = np.arange(THREADS * each)
    new: list[int] = []

    def add(part: Any) -> None:
        for piece in np.array_split(part, 60):
            new.append(
                int(
                    seen.add_many(
                        keys_of(seen, piece), *in_time(seen, np.zeros(len(piece), np.int64))
                    ).sum()
                )
            )
            number = int(piece[-1])
            if options.get("multiset"):
                continue
            new.append(int(seen.add(key_of(seen, number), *in_time(seen, 0))))
            assert key_of(seen, number) in seen

    def look() -> None:
        for _ in range(3):
            streamdedup.save(seen, path)
            saved = streamdedup.load(path)
            assert len(saved) <= len(seen)
            assert len(copy.copy(seen)) <= len(seen)
            assert repr(seen)
            assert seen.fill_ratio >= 0
            assert seen.size_bytes > 0

    shared_by_two = [
        numbers[: 2 * each],
        numbers[each : 3 * each],
        numbers[2 * each :],
        numbers[: 2 * each][::-1],
    ]
    run(*(lambda part=part: add(part) for part in shared_by_two), look)
    assert sum(new) == len(seen) == THREADS * each
    assert seen.contains_many(keys_of(seen, numbers)).all()
    streamdedup.save(seen, path)
    back: Any = streamdedup.load(path)
    assert len(back) == len(seen)
    assert back.contains_many(keys_of(seen, numbers)).all()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        way
        for way in WAYS
        if way[0] in {"counting", "cuckoo", "dleft", "dlcbf", "exact", "bitmap"}
        and "on_full" not in way[1]
        and way != ("bitmap", {})
    ],
    ids=str,
)
def test_two_threads_take_out_what_two_others_add(kind: str, options: Mapping[str, Any]) -> None:
    """What remains is what nobody took out."""
    seen: Any = built(kind, 20_000, **options)
    assert isinstance(seen, Removable)
    numbers = np.arange(20_000)
    seen.add_many(keys_of(seen, numbers[:10_000]))

    def discard(start: int) -> None:
        for piece in np.array_split(numbers[start : start + 4000], 40):
            assert seen.remove_many(keys_of(seen, piece[1:])).all()
            assert seen.discard(key_of(seen, int(piece[0])))

    def add(start: int) -> None:
        for piece in np.array_split(numbers[start : start + 4000], 40):
            assert seen.add_many(keys_of(seen, piece)).all()

    run(lambda: discard(0), lambda: discard(4000), lambda: add(10_000), lambda: add(14_000))
    assert seen.contains_many(keys_of(seen, numbers)).tolist() == [
        8000 <= i < 18_000 for i in range(20_000)
    ]
    assert len(seen) == 10_000


def test_unions_of_two_in_both_directions_do_not_wait_for_each_other() -> None:
    """`a |= b` and `b |= a` at one time: both hold all."""
    one, other = (built("bloom", 2000) for _ in range(2))
    one.add_many(random_digests(501, 500))
    other.add_many(random_digests(502, 500))

    def unite(to: Any, of: Any) -> None:
        for _ in range(300):
            to |= of

    run(lambda: unite(one, other), lambda: unite(other, one), lambda: unite(one, one))
    for each in (one, other):
        assert each.contains_many(
            np.concatenate([random_digests(501, 500), random_digests(502, 500)])
        ).all()


def test_a_window_moves_on_in_steps_while_others_add() -> None:
    """`put_many` and `rotate` hold the lock for a step at a time, and none of them is lost."""
    seen = built("window", 20_000, on_full="grow")
    rows = random_digests(503, 8000)
    generations, watermark = seen.folded(np.zeros(4000, np.int64))

    def put() -> None:
        for piece in np.array_split(rows[:4000], 20):
            for _ in seen.put_many(piece, generations[: len(piece)]):
                pass
        for _ in seen.rotate(watermark):
            pass

    def add() -> None:
        for piece in np.array_split(rows[4000:], 40):
            seen.add_many(piece, np.zeros(len(piece), np.int64))

    run(put, add)
    assert seen.contains_many(rows).all()
    assert len(seen) == 8000


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
    ],
)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that it has threads
def test_a_child_can_use_what_a_thread_used_at_the_fork(
    uses: Callable[[], tuple[Callable[[], object], Callable[[], object]]],
) -> None:
    """It finds no lock of a thread that it does not have."""
    often, once = uses()
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


def test_threads_share_a_classic_filter() -> None:
    """`ClassicBloom` counts each key once, too; a copy of it is whole."""
    seen = ClassicBloom(1 << 18, 3)
    new: list[bool] = []
    run(*[lambda: new.extend([seen.add(f"{i}") for i in range(2000)])] * THREADS)
    assert sum(new) == len(seen) == 2000
    for other in (copy.copy(seen), copy.deepcopy(seen), pickled(seen)):
        assert "7" in other
        assert other.add("another")
        assert (len(other), len(seen)) == (2001, 2000)
    assert "another" not in seen


# --- copies ---


@ways
@pytest.mark.parametrize(
    "way",
    [copy.copy, copy.deepcopy, pickled],
    ids=["copy", "deepcopy", "pickle"],
)
def test_a_copy_is_whole(
    kind: str, options: Mapping[str, Any], way: Callable[[Any], Any], tmp_path: Path
) -> None:
    """Equal, of the same class, aligned; what one gets the other has not, also after it grew; both can be saved."""
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


def test_equal_keys_of_a_call_count_once_before_a_filter_is_full() -> None:
    """Ten additions of each fit, though they are more than there is room for."""
    for kind in ("cuckoo", "bloom", "exact"):
        seen = built(kind, 50, on_full="stop")
        digests = seen.digests([b"%d" % (number % 50) for number in range(500)])
        assert seen.add_many(digests).sum() == 50


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


def test_beyond_max_size_a_filter_that_grows_warns() -> None:
    """With the kind that it was built as, and the remedy of its own."""
    seen = built("cuckoo", 100, on_full="grow", max_size=6000)
    with pytest.warns(FilterFullWarning, match=r"of cuckoo in \d stages? is .* a greater max_size"):
        seen.add_many(random_digests(507, seen.capacity + 1))


def test_a_set_and_a_multiset_have_no_union() -> None:
    """Of the kind that has both; the error names the option."""
    one, other = (built("counting", 100, multiset=multiset) for multiset in (False, True))
    with pytest.raises(ConfigError, match=r"multiset differs \(False, True\); build both alike"):
        one |= other


@pytest.mark.parametrize("kind", ["counting", "cuckoo", "dleft", "dlcbf"])
def test_a_file_says_whether_it_holds_a_multiset(kind: str, tmp_path: Path) -> None:
    """Of two additions `discard` takes one back, or the key; also after `load`, mapped or not."""
    for multiset in (False, True):
        seen = built(kind, 100, multiset=multiset)
        seen.add("a")
        seen.add("a")
        streamdedup.save(seen, tmp_path / "saved")
        back: Any = streamdedup.load(tmp_path / "saved")
        assert back.multiset == seen.multiset == multiset
        assert "multiset" not in seen.header() or multiset
        for each in (seen, back):
            assert each.discard("a")
            assert ("a" in each) == multiset


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"multiset": 1}, r"filter\.multiset is 1; it must be True or False"),
        ({"multiset": "yes"}, r"filter\.multiset is 'yes'"),
        (
            {"multiset": True, "on_full": "grow"},
            r"filter\.multiset is not for filter\.on_full grow",
        ),
        (
            {"kind": "exact", "multiset": True},
            r"filter\.multiset is not for filter\.kind exact, but for counting, cuckoo",
        ),
        ({"kind": "bloom", "multiset": False}, r"filter\.multiset is not for filter\.kind bloom"),
    ],
    ids=repr,
)
def test_multisets_that_cannot_be_are_named(options: dict[str, Any], said: str) -> None:
    """With the option and the remedy; False with `grow` is what a filter that grows is."""
    with pytest.raises(ConfigError, match=said):
        streamdedup.build({"kind": "cuckoo", "capacity": 10, **options})
    assert streamdedup.build(
        {"kind": "cuckoo", "capacity": 10, "multiset": False, "on_full": "grow"}
    ).add("a")


def test_a_file_that_says_something_else_is_refused(tmp_path: Path) -> None:
    """`on_full` of a header is `stop`, or not there."""
    seen = built("bloom", 10)
    with pytest.raises(ValueError, match="on_full 'grow' is not"):
        type(seen).from_parts({**seen.header(), "on_full": "grow"}, seen.buffers())
    streamdedup.save(seen, tmp_path / "saved")
    content = (tmp_path / "saved").read_bytes()
    assert b"on_full" not in content  # nor in the files of a worker, which are those of before
    assert b"multiset" not in content
