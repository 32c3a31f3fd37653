"""Claims about `window`: what it remembers and forgets, by whose time, and that a worker and a fold agree with it."""

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.events import Verdict
from streamdedup.filters.base import Mask, Times
from streamdedup.filters.digest_filter import CAPACITY_MAX
from streamdedup.filters.growing.windows import GrowingWindow
from streamdedup.filters.stash import Stash, stash_put
from streamdedup.filters.window.clock import (
    EARLIEST,
    LATEST,
    NEVER,
    SPAN_MAX,
    TIME_MAX,
    UNLIMITED,
    Generations,
    checked_times,
)
from streamdedup.filters.window.in_time import InTime
from streamdedup.filters.window.placing import TAGS
from streamdedup.filters.window.window import Window
from streamdedup.keys.hashing import Digests, checked
from streamdedup.rules.window import DuplicatesWithin
from tests.filters.cases import copies, random_digests, state
from tests.rows import table

EXACT = 1e-9  # an error rate at which small tests meet no false positive
KEYS = random_digests(30, 40)

AnyWindow = TypeVar("AnyWindow", bound=Window | GrowingWindow)
Event = tuple[int, int]  # the number of a key, a time


class Model:
    """A window as sets, one a generation, by exact integers and one key at a time."""

    def __init__(self, window: InTime) -> None:
        self.window, self.sets = window, dict[int, set[int]]()
        self.watermark: int | None = None

    def add(self, key: int, time: int) -> bool:
        """Add a key at a time; return whether it passes."""
        slot, count, max_jump, by_count = self.window.clock
        now = self.watermark
        time = max(-TIME_MAX, min(TIME_MAX, time))
        if by_count:
            time = 0 if now is None else now + 1
        ahead = time if now is None else max(now, min(time, now + max_jump))
        having = [one for one, members in self.sets.items() if key in members]
        own = time if now is None else max(now, time)
        found = max(having, default=NEVER) > own // slot - count
        late = now is not None and time // slot <= now // slot - count
        if late or (found and not self.window.refresh):
            return not found and self.window.late == "pass"
        if by_count and key in self.sets.get(ahead // slot, ()):
            return False
        self.watermark = ahead
        for generation in [one for one in self.sets if one <= ahead // slot - count]:
            del self.sets[generation]
        self.sets.setdefault(min(time // slot, ahead // slot), set()).add(key)
        return not found

    def holds(self, key: int) -> bool:
        """Return whether any generation has the key."""
        return any(key in members for members in self.sets.values())


def build(capacity: int = 1000, error_rate: float = EXACT, **options: Any) -> Window:
    """An empty window, of 8 generations unless told otherwise."""
    config = {"kind": "window", "capacity": capacity, "error_rate": error_rate, "generations": 8}
    config |= options
    return cast("Window", filters.build(config))


def drawn(events: list[Event], window: InTime) -> tuple[Digests, Times | None]:
    """The arguments of `add_many`."""
    times = np.array([time for _, time in events], dtype=np.int64)
    return KEYS[[key for key, _ in events]], None if window.clock.by_count else times


def taken(window: InTime, digests: Digests, times: Times | None) -> Mask:
    """As `add_many`, also of times that it refuses: a log may hold any, and the kernels are one."""
    return window._table.add(
        checked(digests), checked_times(window.clock, times, rows=len(digests))
    )


def batches(rows: int, sizes: list[int]) -> Iterator[slice]:
    """Slices of `rows` by `sizes`, again and again."""
    start = step = 0
    while start < rows:
        yield slice(start, start + sizes[step % len(sizes)])
        start, step = start + sizes[step % len(sizes)], step + 1


def ended(steps: Iterator[None]) -> None:
    """Take all steps."""
    for _ in steps:
        pass


def rotated(window: InTime, watermark: int | None) -> None:
    """Rotate to the end."""
    ended(window.rotate(watermark))


def put(window: InTime, digests: Digests, generations: Generations) -> None:
    """Put to the end."""
    ended(window.put_many(digests, generations))


# Without -1, which is no time: a worker takes the watermark for it.
near = st.integers(-400, -2) | st.integers(0, 400)
far = st.sampled_from([-(1 << 63), (1 << 63) - 1, -TIME_MAX - 1, TIME_MAX + 1, 10**15])
times = near | near | near | near | near | near | far
events = st.lists(st.tuples(st.integers(0, len(KEYS) - 1), times), max_size=60)
sizes = st.lists(st.integers(1, 9), min_size=1, max_size=4)
by_time = st.fixed_dictionaries(
    {
        "retention": st.integers(1, 150),
        "max_jump": st.none() | st.integers(1, 1000),
        "generations": st.sampled_from([2, 3, 8, 12, 17, 33, 64]),
        "late": st.sampled_from(["pass", "drop"]),
        "refresh": st.booleans(),
    }
)
by_count = st.fixed_dictionaries(
    {
        "capacity": st.integers(1, 30),
        "generations": st.sampled_from([2, 3, 8, 12]),
        "refresh": st.booleans(),
    }
)
options = by_time | by_count


# --- what is remembered ---


@settings(deadline=None, max_examples=100)
@given(options, events, sizes)
def test_a_window_is_one_set_a_generation(
    chosen: dict[str, Any], given_: list[Event], cuts: list[int]
) -> None:
    """By time, by count, out of order, late, ahead, renewed, in any batches: exactly what sets of keys would say."""
    window = build(**chosen)
    keys = kept_as_sets(window, given_, cuts)
    assert len(window) == keys


def kept_as_sets(window: InTime, given_: list[Event], cuts: list[int]) -> int:
    """Add all in batches, beside a model; return how many keys the model has."""
    model = Model(window)
    digests, moments = drawn(given_, window)
    expected = [model.add(*event) for event in given_]
    for part in batches(len(given_), cuts):
        fresh = taken(window, digests[part], None if moments is None else moments[part])
        assert fresh.tolist() == expected[part]
    assert window.contains_many(KEYS).tolist() == [model.holds(key) for key in range(len(KEYS))]
    assert window.watermark == model.watermark
    return len(set().union(*model.sets.values()))


@table(itertools.product([2, 8, 12, 64], [1, 10, 1000]))
def test_by_count_the_last_keys_are_remembered(row: tuple[int, int]) -> None:
    """At least the last `capacity`, at most a G-1-th more than that, rounded up."""
    generations, capacity = row
    window = build(capacity, generations=generations)
    keys = random_digests(31, 4 * capacity + 100)
    for part in np.array_split(keys, 7):
        window.add_many(part)
    found = window.contains_many(keys)
    assert found[-capacity:].all()
    slot, kept, *_ = window.clock
    assert kept == min(generations, capacity + 1)
    assert slot == -(-capacity // (kept - 1))
    assert np.count_nonzero(found) == len(window) <= kept * slot
    assert window.watermark == len(keys) - 1


def test_a_key_that_is_asked_for_again_and_again_lets_no_time_pass() -> None:
    """By count only keys that are not in the newest generation do, also where they are renewed."""
    window = build(70, refresh=True)
    window.add_many(KEYS[:3])
    assert not window.add_many(KEYS[[2] * 500]).any()
    assert window.contains_many(KEYS[:3]).all()
    assert window.watermark == 2


def test_a_key_that_is_renewed_outlives_the_window() -> None:
    """With `refresh` each occurrence renews it; without, the first one counts."""
    for refresh in (True, False):
        window = build(retention=700, refresh=refresh)
        fresh = []
        for time in range(0, 4000, 100):
            fresh.append(window.add("key", time))
            window.add(f"another at {time}", time)  # a key that is not new moves no watermark
        assert [i for i, new in enumerate(fresh) if new] == ([0] if refresh else [0, 8, 16, 24, 32])


def test_one_key_moves_the_watermark_by_max_jump() -> None:
    """A key of the far future neither empties the window nor is forgotten with what is of its time."""
    window = build(retention=700, max_jump=150)
    window.add("first", 1000)
    assert window.add("future", 10**12)
    assert (window.watermark, "first" in window, "future" in window) == (1150, True, True)
    assert window.add("next", 1100)
    assert window.watermark == 1150
    rotated(window, 1150 + 700)
    assert ("first" in window, "future" in window) == (False, True)
    assert build(retention=700).clock == (100, 8, UNLIMITED, False)
    assert build(retention="7d", max_jump="1d").clock == (86_400_000, 8, 86_400_000, False)
    assert build(70).clock == (10, 8, 1, True)


@table([("pass", True), ("drop", False)])
def test_what_is_older_than_the_window_is_not_added(row: tuple[str, bool]) -> None:
    """It passes or is dropped, each time; but where its key is known, it is a duplicate like any other."""
    late, verdict = row
    window = build(retention=700, late=late)
    window.add("now", 10_000)
    before = state(window)
    assert [window.add("old", 9199) for _ in range(3)] == [verdict] * 3
    assert window.add_many(KEYS[:2], np.array([0, -5])).tolist() == [verdict] * 2
    assert not window.add("now", 0)
    assert "old" not in window
    assert state(window) == before
    assert window.add("just in time", 9300)


def test_a_key_is_of_the_latest_generation_that_was_put() -> None:
    """Whatever comes later, an earlier one lowers none; below 0, too; before the first key there is none."""
    window = build(retention=700, generations=8)
    assert window.generations_many(KEYS[:1]).tolist() == [NEVER]
    put(window, KEYS[[0, 0, 1]], np.array([-3, -5, -4]))
    assert window.generations_many(KEYS[:3]).tolist() == [-3, -4, NEVER]
    assert len(window) == 2


# --- errors and sizes ---


DAY_MS = 86_400_000


def test_sizes_follow_from_capacity_and_error_rate() -> None:
    """At 1e-6 a fingerprint of 24 bits and a tag of 6 are widened to 32; 95 % of the cells are in use at capacity."""
    window = build(1_000_000, 1e-6, retention="7d", generations=31)
    assert window.size_bytes * 8 / 1e6 == pytest.approx(32 / 0.95, rel=2e-3)
    assert 0.5e-6 < 4 * window.expected_error(1_000_000) <= 1e-6
    packed = build(1_000_000, 1e-4, retention="7d", generations=31)  # 18 bits and 6
    assert packed.size_bytes * 8 / 1e6 == pytest.approx(24 / 0.95, rel=2e-3)
    assert 0.5e-4 < packed.expected_error(1_000_000) <= 1e-4
    assert window.expected_error(0) == 0
    count = build(30_000, 1e-6, generations=31)  # by count, all 31 generations are full
    assert count.size_bytes / window.size_bytes == pytest.approx(0.031, rel=0.01)


def test_room_is_what_capacity_leaves() -> None:
    """Keys that leave the window give their room back; by count there is no end."""
    window = build(700, retention=700, generations=8)
    for slot in range(8):
        window.add_many(random_digests(33 + slot, 100), np.full(100, slot * 100))
        assert window.room() == 600 - 100 * slot
    rotated(window, 1000)
    assert (window.room(), len(window)) == (200, 500)
    rotated(window, 10**9)
    assert (window.room(), len(window), window.fill_ratio) == (700, 0, 0)
    assert build(50).room() == CAPACITY_MAX


# --- the worker's way ---


def work(
    window: Window | GrowingWindow, given_: list[Event], cuts: list[int], depth: int
) -> tuple[list[bool], list[Event]]:
    """Judge all in batches, up to `depth` of which are pending; give what passed of each, and the log of it."""
    rule = DuplicatesWithin(window)
    digests, moments = drawn(given_, window)
    moments = np.zeros(len(given_), dtype=np.int64) if moments is None else moments
    waiting, fresh, log = 0, list[bool](), list[Event]()
    for part in batches(len(given_), cuts):
        before = state(window)
        verdicts = rule.judge(digests[part], moments[part], within_budget=False)
        rule.seal()
        assert state(window) == before
        passed = (verdicts == Verdict.PASS).tolist()
        fresh += passed
        log += [event for event, new in zip(given_[part], passed, strict=True) if new]
        waiting += 1
        if waiting > depth:
            ended(rule.admit())
            waiting -= 1
    for _ in range(waiting):
        ended(rule.admit())
    return fresh, log


@settings(deadline=None, max_examples=100)
@given(options, events, sizes, st.integers(0, 3))
def test_who_judges_before_adding_decides_alike(
    chosen: dict[str, Any], given_: list[Event], cuts: list[int], depth: int
) -> None:
    """With batches pending and added later, verdicts and state are those of adding at once."""
    window, at_once = build(**chosen), build(**chosen)
    fresh, _ = work(window, given_, cuts, depth)
    expected = taken(at_once, *drawn(given_, at_once))
    assert fresh == expected.tolist()
    if not window.refresh:  # a renewal that waits is put once in a generation
        assert state(window) == state(at_once)
    assert window.contains_many(KEYS).tolist() == at_once.contains_many(KEYS).tolist()
    assert window.watermark == at_once.watermark


@settings(deadline=None, max_examples=80)
@given(options, events, sizes, sizes, st.integers(0, 3))
def test_a_fold_of_the_log_is_the_worker_s_filter(
    chosen: dict[str, Any], given_: list[Event], cuts: list[int], others: list[int], depth: int
) -> None:
    """Table, header and watermark to the byte, whatever the batches of either; late events that passed make no odds."""
    chosen["refresh"] = False  # renewals are in no log
    window, fold = build(**chosen), build(**chosen)
    _, log = work(window, given_, cuts, depth)
    digests, moments = drawn(log, fold)
    for part in batches(len(log), others):
        rows = digests[part]
        generations, watermark = fold.folded(len(rows) if moments is None else moments[part])
        put(fold, rows, generations)
        put(fold, rows, generations)  # again, as after an admission that was broken off
        rotated(fold, watermark)
    assert state(fold) == state(window)
    assert fold.watermark == window.watermark


def test_a_digest_that_is_a_generation_above_another_hides_it_from_no_renewal() -> None:
    """Chosen so that digest and generation add up alike: the key that comes second is remembered, too."""
    key = KEYS[:1]
    above = key + np.array([[0, 1]], dtype=np.uint64)
    rule = DuplicatesWithin(build(retention=700, refresh=True))
    for digests, time in ((np.concatenate((above, key)), [0, 100]), (key, [110])):
        verdicts = rule.judge(digests, np.array(time), within_budget=True).tolist()
        assert verdicts == ([Verdict.PASS, Verdict.PASS] if len(time) > 1 else [Verdict.DUPLICATE])


# --- the table follows from what was put ---


ALIKE = 0.4  # an error rate with many look-alikes
WHOLE = 1e-6  # an error rate with cells of 32 bits, if there are 31 generations


def crowded(
    seed: int, generations: int, error_rate: float = ALIKE
) -> tuple[Window, Digests, Generations]:
    """An empty window, and a stream that overfills it, with jumps, pauses and late keys."""
    chance = random.Random(seed)
    window = build(150, error_rate, retention=generations - 1, generations=generations)
    at, own = 0, list[int]()
    while len(own) < 1500:
        at += chance.choice([0, 0, 0, 1, 1, 2, generations // 2, 3 * generations])
        own += [
            at - chance.choice([0, 0, 0, 1, 3, generations]) for _ in range(chance.randrange(60))
        ]
    digests = random_digests(50 + seed, len(own))
    twice = [chance.randrange(len(own)) for _ in range(200)]
    return window, np.concatenate((digests, digests[twice])), np.array(own + [at] * 200)


SHAPES = [(2, ALIKE), (5, ALIKE), (8, ALIKE), (31, ALIKE), (31, WHOLE)]


@table(enumerate(SHAPES))
def test_whatever_the_batches_the_table_is_the_same(row: tuple[int, tuple[int, float]]) -> None:
    """Byte for byte, with moves, overflows, sweeps and what was saved and restored between; and no key is lost."""
    put_in_batches(*row)


def put_in_batches(seed: int, shape: tuple[int, float]) -> None:
    """Put a stream whole, row by row, and in parts; the three windows are the same."""
    generations, error_rate = shape
    windows = [crowded(seed, generations, error_rate)[0] for _ in range(3)]
    _, digests, own = crowded(seed, generations, error_rate)
    put_alike(windows, digests, own, generations, seed)
    assert windows[0]._table.counts[TAGS:].sum() >= len(windows[0]) > 0


def put_alike(
    windows: Sequence[Window | GrowingWindow],
    digests: Digests,
    own: Generations,
    generations: int,
    seed: int,
) -> None:
    """Put them whole into the first of three windows, row by row into the next, and in parts into the last.

    The last one is saved and restored now and then. Of the second, what must be there is looked for.
    """
    window, single, parted = windows
    chance, start = random.Random(100 + seed), 0
    put(window, digests, own)
    for row in range(len(own)):
        put(single, digests[row : row + 1], own[row : row + 1])
        if row % 97 == 0:
            live = own[: row + 1] > own[: row + 1].max() - generations
            assert single.contains_many(digests[: row + 1][live]).all()
    while start < len(own):
        stop = start + chance.choice([1, 2, 7, 50, 400])
        put(parted, digests[start:stop], own[start:stop])
        if chance.random() < 0.3:
            rotated(parted, int(own[:stop].max()))
            parted = restored(parted)
        start = stop
    for one in (window, single, parted):
        rotated(one, int(own.max()))
    assert state(single) == state(window)
    assert state(parted) == state(window)


def restored(window: AnyWindow) -> AnyWindow:
    """The window that comes back from its parts, through JSON."""
    header = json.loads(json.dumps(window.header()))
    return cast("AnyWindow", filters.from_parts(header, copies(window), window.hash))


# --- rotation ---


def test_the_watermark_never_goes_back() -> None:
    """To stay is no step; an empty window takes any, also before 1970; times beyond all bounds are taken for these."""
    window = build(retention=700)
    assert list(window.rotate(None)) == []
    rotated(window, -5)
    rotated(window, -5)
    for back in (-6, None):
        with pytest.raises(ValueError, match=f"is -5 and cannot go back to {back}"):
            window.rotate(back)
    assert window.watermark == -5
    rotated(window, 1 << 100)
    assert window.watermark == TIME_MAX


# --- parts ---


def test_a_window_by_time_comes_back_from_its_parts() -> None:
    """Header, through JSON, and table: half full, half rotated, and it goes on alike."""
    window = build(retention="7s", generations=12, late="drop", refresh=True, max_jump="2s")
    restored = build(retention=7000, generations=12, late="drop", refresh=True, max_jump=2000)
    assert state(window) == state(restored)
    for start in (0, 20):
        at = np.arange(0, 20_000, 1000) + start * 700
        header = json.loads(json.dumps(window.header()))
        restored = cast("Window", filters.from_parts(header, copies(window)))
        assert state(restored) == state(window)
        assert (restored.clock, restored.watermark) == (window.clock, window.watermark)
        assert (restored.late, restored.refresh, restored.retention) == ("drop", True, 7000)
        for one in (window, restored):
            one.add_many(KEYS[start : start + 20], at)
        assert state(restored) == state(window)


def test_headers_by_time_that_do_not_fit_are_refused() -> None:
    """Every field missing, of another type, or out of its bounds."""
    window = build(retention=7000)
    window.add_many(KEYS, np.arange(len(KEYS)))
    header, parts = window.header(), copies(window)
    filters.from_parts(header, parts)
    wrongs: dict[str, list[Any]] = {
        "by": ["count", "key", None],
        "retention": [6990, 7010, 0, 1 << 70, True, None],
        "slot": [999, 1001, 1000.5, None],
        "generations": [1, 7, 9, 65, None],
        "max_jump": [0, SPAN_MAX + 1, "1s"],
        "late": ["keep", None, []],
        "refresh": [0, 1, None, "no"],
        "table": ["ring", None],
        "buckets": [header["buckets"] - 1, header["buckets"] + 1, None],
        "fingerprint_bits": [0, header["fingerprint_bits"] + 1, None],
        "watermark": [None, 14_000, TIME_MAX + 1, 3.0],
    }
    refuses_headers(header, parts, wrongs)


def refuses_headers(
    header: Mapping[str, Any], parts: list[memoryview], wrongs: Mapping[str, list[Any]]
) -> None:
    """Check that no field may be missing, which is told by its name, or have one of its wrong values."""
    for name, values in wrongs.items():
        for wrong in values:
            with pytest.raises(ValueError, match=r"\w"):
                filters.from_parts({**header, name: wrong}, parts)
        with pytest.raises(ValueError, match=name):
            filters.from_parts({k: v for k, v in header.items() if k != name}, parts)


def test_cells_that_no_key_filled_are_refused() -> None:
    """Beyond the last cell, of a generation that must have been swept, without a fingerprint, before the first key."""
    window = build(retention=7000, generations=12)
    window.add("a", 0)
    header, words = window.header(), window.size_bytes // 8
    for at, value, said in ((-1, 1, "beyond"), (0, 1, "generation"), (0, 5 << 5 | 8, "generation")):
        table, stash = copies(window)
        np.frombuffer(table, np.uint64)[at] |= np.uint64(value)
        with pytest.raises(ValueError, match=said):
            filters.from_parts(header, [table, stash])
    assert words > 100
    empty = build(retention=7000, generations=12).header()
    with pytest.raises(ValueError, match="no watermark"):
        filters.from_parts(empty, copies(window))


@table([(0, 0, 1), (1, 1 << 20, 1), (1 << 60, 0, 1), (1, 0, 33), (1, 0, 7)])
def test_rows_of_a_stash_that_no_window_has_are_refused(row: tuple[int, int, int]) -> None:
    """A fingerprint, a bucket or a tag that there is not, or a generation that has left."""
    window = build(retention=7000, generations=12)
    window.add("a", 0)
    stash = Stash()
    assert stash_put(stash.table, stash.used, *np.array(row, dtype=np.uint64))
    with pytest.raises(ValueError, match="row of the stash"):
        filters.from_parts(window.header(), [copies(window)[0], stash.buffer()])


def test_a_window_of_an_older_version_is_refused_by_name() -> None:
    """Its cells were bits of a ring of Bloom filters."""
    header = build(retention=7000).header()
    del header["table"]
    with pytest.raises(ValueError, match="an older version saved this window; build it anew"):
        filters.from_parts(header, copies(build(retention=7000)))


# --- refusals ---


@table(
    [
        ({"generations": 1}, r"filter\.generations is 1; it must be an integer from 2 to 64"),
        ({"generations": 65}, r"filter\.generations is 65"),
        ({"generations": 8.0}, r"filter\.generations is 8\.0"),
        ({"retention": 0}, r"filter\.retention 0 is out of range, must be 1 to"),
        ({"retention": "7 days"}, r"filter\.retention '7 days' has an unknown unit"),
        ({"retention": "7"}, r"filter\.retention '7' has no unit; write one, as in 7d"),
        ({"retention": 1.5}, r"filter\.retention 1\.5 .*whole"),
        ({"retention": True}, r"filter\.retention True is not a duration"),
        ({"retention": SPAN_MAX + 1}, r"filter\.retention .* is out of range"),
        ({"retention": 7, "max_jump": 0}, r"filter\.max_jump 0 is out of range"),
        ({"max_jump": 5}, r"filter\.max_jump is 5, but a window by count has no times"),
        ({"late": "keep"}, r"filter\.late 'keep' is unknown; choose one of: pass, drop"),
        ({"refresh": 1}, r"filter\.refresh is 1; it must be true or false"),
        (
            {"error_rate": 1e-18},
            r"error_rate 1e-18 .* it takes cells of 68 bits, and the most is 63",
        ),
        ({"probe": "double"}, r"filter\.probe is not for filter\.kind window"),
    ]
)
def test_impossible_options_are_named(row: tuple[Any, str]) -> None:
    """With the value and the remedy."""
    wrong, said = row
    with pytest.raises(ConfigError, match=said):
        build(**{"error_rate": 1e-6, **wrong})


def test_times_that_do_not_fit_are_refused() -> None:
    """None where they are needed, some where there are none; nothing is added."""
    count, timed = build(), build(retention=7000)
    with pytest.raises(ConfigError, match="this window goes by time"):
        timed.add_many(KEYS[:2])
    with pytest.raises(ConfigError, match="this window goes by count"):
        count.add_many(KEYS[:2], np.array([1, 2]))
    for missing in (lambda: timed.add("a"), lambda: timed.folded(2)):
        with pytest.raises(ConfigError, match="this window goes by time"):
            missing()
    for needless in (lambda: count.add("a", 1), lambda: count.folded(np.array([1]))):
        with pytest.raises(ConfigError, match="this window goes by count"):
            needless()
    assert len(count) == len(timed) == 0


@table(
    [
        (
            1.5,
            r"integer of ms since 1970, not of type float; for a datetime, give int\(time\.times",
        ),
        ("7", "not of type str"),
        (datetime(2024, 1, 1, tzinfo=UTC), r"datetime\.datetime; .*timestamp\(\) \* 1000"),
        (LATEST + 1, "a time of 253402300800001 is not ms since 1970: .*divide ns by 1,000,000"),
        (EARLIEST - 1, "a time of -62135596800001 is not ms since 1970"),
        (1 << 63, "is not ms since 1970"),
        (-1, "a time of -1 is how Kafka says .* no timestamp, .* which is the filter's watermark"),
        (np.int64(-1), "a time of -1 is how Kafka says"),
    ]
)
def test_a_time_that_is_no_ms_is_refused(row: tuple[Any, str]) -> None:
    """A date, a text, seconds with a fraction, or ns: one key, with what to give instead."""
    time, said = row
    window = build(retention=7000)
    with pytest.raises(ConfigError, match=said):
        window.add("a", time)
    assert len(window) == 0
    assert window.add("a", EARLIEST)
    assert window.add("b", -2)  # in 1969
    assert window.add("c", LATEST)


@table(
    [
        ([1, 2], r"not of type list; give np\.array\(times, dtype=np\.int64\)"),
        (np.array([1, 2], "datetime64[s]"), r"not datetime64\[s\]; .*datetime64\[ms\].*np\.int64"),
        (np.array([1, 2.0]), r"not float64, shape \(2,\)"),
        *(
            (wrong, r"times are int64 in ms since 1970, shape \(2,\)")
            for wrong in (np.array([1]), np.array([[1], [2]]), np.array([1, 2], np.int32))
        ),
        (np.array([1, 1_700_000_000_000_000_000]), "a time of 1700000000000000000 .*divide ns"),
        (np.array([-(1 << 63), 1]), "is not ms since 1970"),
        (np.array([-1, 5]), "a time of -1 is how Kafka says"),
        (np.array([-5, -1]), "a time of -1 is how Kafka says"),
    ]
)
def test_times_that_are_no_ms_are_refused(row: tuple[Any, str]) -> None:
    """As one key, many: before any is added. The worker, whose log may hold any, judges and folds them."""
    times, said = row
    window = build(retention=7000)
    with pytest.raises(ConfigError, match=said):
        window.add_many(KEYS[:2], times)
    assert len(window) == 0
    extremes = np.array([-(1 << 63), (1 << 63) - 1])
    DuplicatesWithin(window).judge(KEYS[:2], extremes, within_budget=True)
    window.folded(np.array([-(1 << 63), (1 << 63) - 1]))
