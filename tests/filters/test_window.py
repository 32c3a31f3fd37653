"""Claims about `window`: what it remembers and forgets, by whose time, and that a worker and a fold agree with it."""

import json
import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.events import Verdict
from streamdedup.filters.base import Mask, Times
from streamdedup.filters.digest_filter import CAPACITY_MAX
from streamdedup.filters.memory import TABLE_PIECE_BYTES
from streamdedup.filters.sizing import bloom_error, window_error, window_room, window_size
from streamdedup.filters.window.clock import (
    EARLIEST,
    LATEST,
    NEVER,
    SPAN_MAX,
    TIME_MAX,
    UNLIMITED,
    checked_times,
)
from streamdedup.filters.window.protocol import Windowed
from streamdedup.filters.window.row_index import _keep_first, table_for
from streamdedup.filters.window.verdicts import NO_PENDING, PendingRows, WindowVerdicts
from streamdedup.filters.window.window import Window
from streamdedup.kernel import Words
from streamdedup.keys.hashing import MURMUR3, Digests, checked
from streamdedup.keys.multilinear import drawn_words
from streamdedup.rules.window import DuplicatesWithin
from tests.chosen import CHOSEN
from tests.filters.cases import band, copies, random_digests, state
from tests.keys.test_multilinear import bits_of

EXACT = 1e-9  # an error rate at which small tests meet no false positive
KEYS = random_digests(30, 40)

Event = tuple[int, int]  # the number of a key, a time


class Model:
    """A window as sets, one a generation, by exact integers and one key at a time."""

    def __init__(self, window: Window) -> None:
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
    """An empty window."""
    config = {"kind": "window", "capacity": capacity, "error_rate": error_rate, **options}
    return cast("Window", filters.build(config))


def drawn(events: list[Event], window: Window) -> tuple[Digests, Times | None]:
    """The arguments of `add_many`."""
    times = np.array([time for _, time in events], dtype=np.int64)
    return KEYS[[key for key, _ in events]], None if window.clock.by_count else times


def taken(window: Window, digests: Digests, times: Times | None) -> Mask:
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


def cut(times: Times | None, part: slice) -> Times | None:
    """A slice of what may not be there."""
    return None if times is None else times[part]


def rotated(window: Window, watermark: int | None) -> None:
    """Rotate to the end."""
    for _ in window.rotate(watermark):
        pass


near = st.integers(-400, 400)
far = st.sampled_from([-(1 << 63), (1 << 63) - 1, -TIME_MAX - 1, TIME_MAX + 1, 10**15])
times = near | near | near | near | near | near | far
events = st.lists(st.tuples(st.integers(0, len(KEYS) - 1), times), max_size=60)
sane = st.lists(
    st.tuples(st.integers(0, len(KEYS) - 1), near | near | st.sampled_from([EARLIEST, LATEST])),
    max_size=60,
)
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


@settings(deadline=None, max_examples=300)
@given(options, events, sizes)
def test_a_window_is_one_set_a_generation(
    chosen: dict[str, Any], given_: list[Event], cuts: list[int]
) -> None:
    """By time, by count, out of order, late, ahead, renewed, in any batches: exactly what sets of keys would say."""
    window = build(**chosen)
    model = Model(window)
    digests, moments = drawn(given_, window)
    expected = [model.add(*event) for event in given_]
    for part in batches(len(given_), cuts):
        fresh = taken(window, digests[part], cut(moments, part))
        assert fresh.tolist() == expected[part]
    assert window.contains_many(KEYS).tolist() == [model.holds(key) for key in range(len(KEYS))]
    assert window.watermark == model.watermark
    assert len(window) == sum(map(len, model.sets.values()))


@settings(deadline=None, max_examples=150)
@given(by_time, st.lists(st.tuples(st.integers(0, len(KEYS) - 1), near), max_size=60))
def test_no_key_of_the_window_is_ever_absent(chosen: dict[str, Any], given_: list[Event]) -> None:
    """A key is found while the watermark is at most `retention` ahead of it, and not once it is a slot more.

    What was ahead of the watermark counts as of it.
    """
    window = build(**chosen)
    added: dict[int, int] = {}
    for key, time in given_:
        fresh = window.add_many(KEYS[[key]], np.array([time]))[0]
        assert window.watermark is not None
        assert window.retention is not None
        oldest = window.clock.slot * (
            window.clock.generation(window.watermark) - window.clock.generations + 1
        )
        if (fresh or window.refresh) and time >= oldest:
            now = min(time, window.watermark)
            added[key] = now if fresh else max(now, added[key])
        for other, at in added.items():
            age = window.watermark - at
            found = window.contains_many(KEYS[[other]])[0]
            assert found or age > window.retention
            assert not found or age < window.clock.slot * window.clock.generations


@settings(deadline=None, max_examples=100)
@given(options, sane)
def test_one_by_one_is_the_same_as_all_at_once(chosen: dict[str, Any], given_: list[Event]) -> None:
    """Keys with their times, as texts: verdicts, table, header."""
    single, together = build(**chosen), build(**chosen)
    digests = MURMUR3.digests([f"{key}" for key, _ in given_])
    _, moments = drawn(given_, together)
    expected = together.add_many(digests, moments).tolist()
    at: list[Any] = [None if moments is None else int(time) for _, time in given_]
    fresh = [single.add(f"{key}", time) for (key, _), time in zip(given_, at, strict=True)]
    assert fresh == expected
    assert state(single) == state(together)
    assert all((f"{key}" in single) == (f"{key}" in together) for key, _ in given_)


@pytest.mark.parametrize("generations", [2, 8, 12, 64])
@pytest.mark.parametrize("capacity", [1, 10, 1000])
def test_by_count_the_last_keys_are_remembered(capacity: int, generations: int) -> None:
    """At least the last `capacity`, at most a G-1-th more than that, rounded up."""
    window = build(capacity, generations=generations)
    keys = random_digests(31, 4 * capacity + 100)
    for part in np.array_split(keys, 7):
        window.add_many(part)
    found = window.contains_many(keys)
    assert found[-capacity:].all()
    slot = -(-capacity // (generations - 1))
    assert np.count_nonzero(found) == len(window) <= generations * slot
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


@pytest.mark.parametrize(("late", "verdict"), [("pass", True), ("drop", False)])
def test_what_is_older_than_the_window_is_not_added(late: str, verdict: bool) -> None:
    """It passes or is dropped, each time; but where its key is known, it is a duplicate like any other."""
    window = build(retention=700, late=late)
    window.add("now", 10_000)
    before = state(window)
    assert [window.add("old", 9199) for _ in range(3)] == [verdict] * 3
    assert window.add_many(KEYS[:2], np.array([0, -5])).tolist() == [verdict] * 2
    assert not window.add("now", 0)
    assert "old" not in window
    assert state(window) == before
    assert window.add("just in time", 9300)


@pytest.mark.parametrize(
    ("generations", "cell_bytes"), [(2, 1), (8, 1), (9, 2), (12, 2), (16, 2), (17, 4), (33, 8)]
)
def test_a_cell_has_the_fewest_bytes_for_its_generations(generations: int, cell_bytes: int) -> None:
    """1, 2, 4 or 8; the size of the table follows."""
    window = build(retention=1000, generations=generations)
    window.add("a", 0)
    assert window.generations_many(window.digests(["a", "b"])).tolist() == [1, 0]
    assert window.generations_many(KEYS).itemsize == cell_bytes
    assert window.size_bytes == pytest.approx(window.cells * cell_bytes, abs=8)


def test_generations_are_bits() -> None:
    """A key that is in several has a bit for each: generation g is bit g % G, below 0, too."""
    window = build(retention=700)
    window.add("a", -250)
    assert window.generations_many(window.digests(["a"])).tolist() == [1 << (-3 % 8)]
    window.put_many(window.digests(["a", "a", "b"]), np.array([-3, -5, -4]))
    assert window.generations_many(window.digests(["a", "b"])).tolist() == [0b101000, 0b10000]


# --- errors and sizes ---


@pytest.mark.parametrize(
    ("error_rate", "bits", "hashes", "published"),
    [(1e-2, 15.9, 10, 0.00994), (1e-3, 21.4, 13, 0.001), (1e-4, 26.9, 16, 1.03e-4)],
)
def test_sizes_and_errors_are_those_published(
    error_rate: float, bits: float, hashes: int, published: float
) -> None:
    """For 8 generations, bits a key of the window, and the error when all of them are full."""
    window = build(1_000_000, error_rate)
    assert window.size_bytes * 8 / 1e6 == pytest.approx(bits, abs=0.05)
    assert window.hashes == hashes
    timed = build(1_000_000, error_rate, retention=7)
    assert timed.expected_error(1_000_000) == pytest.approx(published, rel=0.04)
    assert error_rate * 0.98 < timed.expected_error(1_000_000) <= error_rate


@pytest.mark.parametrize("error_rate", [1e-2, 1e-3])
@pytest.mark.parametrize("generations", [8, 12])
def test_a_full_window_errs_as_told(error_rate: float, generations: int) -> None:
    """Each generation full: what is found of others is as theory says, on both sides, and no member is absent."""
    share, absent = 30_000, random_digests(4, 2_200_000)
    window = build(
        share * (generations - 1), error_rate, retention=generations - 1, generations=generations
    )
    keys = random_digests(32, share * 2 * generations)
    for generation, members in enumerate(np.split(keys, 2 * generations)):
        rotated(window, generation)
        window.put_many(members, np.full(share, generation))
    gone, live = np.split(keys, 2)
    assert window.contains_many(live).all()
    expected = window.expected_error(window.capacity) * len(absent)
    low, high = band(expected)
    assert low < np.count_nonzero(window.contains_many(absent)) < high
    assert window.error_rate_now == pytest.approx(expected / len(absent), rel=0.05)
    assert window.fill_ratio == pytest.approx(0.5, abs=0.05)
    assert np.count_nonzero(window.contains_many(gone)) < band(error_rate * len(gone))[1]


@pytest.mark.parametrize("retention", [7000, None])
def test_all_that_was_new_is_found_also_where_some_was_wrongly_known(retention: int | None) -> None:
    """At 1 %: what is wrongly taken for known is not added, and all else is there until it leaves the window."""
    window = build(70_000, 0.01, retention=retention)
    keys, at = random_digests(41, 300_000), np.arange(300_000) // 10
    fresh = window.add_many(keys, None if retention is None else at)
    wrong = int(np.count_nonzero(~fresh))
    assert 0 < wrong < band(0.01 * len(keys))[1]
    inside = keys[at >= at[-1] - retention] if retention else keys[-70_000:]
    assert window.contains_many(inside[fresh[-len(inside) :]]).all()
    assert np.count_nonzero(window.contains_many(inside)) > 0.99 * len(inside)


@given(st.integers(1, 10**12), st.floats(1e-15, 0.5), st.integers(2, 64))
def test_sizes_keep_their_error_rate(capacity: int, error_rate: float, generations: int) -> None:
    """G generations of capacity / (G - 1) keys, rounded up, err at most so together; one cell less, and they err more.

    Written as in the literature: the sum over the generations, each a Bloom filter.
    """
    cells, hashes = window_size(capacity, error_rate, generations)
    share = -(-capacity // (generations - 1))

    def told(size: int) -> float:
        return generations * float(-np.expm1(-hashes * share / size)) ** hashes

    assert told(cells) <= error_rate * (1 + 1e-9)
    assert cells == 1 or told(cells - 1) > error_rate * (1 - 1e-9)
    assert window_error(cells, hashes, [share] * generations) <= error_rate * (1 + 1e-9)


def test_room_is_what_the_error_rate_leaves() -> None:
    """As many keys as the current generation can take; none where the others have used it up; by count no end."""
    window = build(70_000, 0.01, retention=700)
    assert window.room() > 10_000  # the other generations are empty
    for start in range(7):
        window.add_many(random_digests(33 + start, 10_000), np.full(10_000, start * 100))
    window.add("first", 700)
    loads = cast("list[int]", window.header()["generation_keys"])
    others, room = loads[:7], window.room() + 1
    assert room == pytest.approx(10_000, rel=0.05)
    errors = [
        sum(bloom_error(window.cells, window.hashes, keys) for keys in [*others, here])
        for here in (room, room + 1)
    ]
    assert errors[0] <= window.error_rate < errors[1]
    window.put_many(random_digests(40, 14_000), np.full(14_000, 7))
    assert window.room() < 0
    rotated(window, 1000)  # what is left of the others has used all up
    assert window.room() == 0
    rotated(window, 1500)
    assert window.room() > 10_000
    assert window_room(100, 3, 0.01, [1000.0]) == 0
    assert build(50).room() == CAPACITY_MAX


# --- the worker's way ---


def work(
    window: Window, given_: list[Event], cuts: list[int], depth: int
) -> tuple[list[WindowVerdicts], list[Event]]:
    """Judge all in batches, up to `depth` of which are pending; give the verdicts, and the log of what passed."""
    digests, moments = drawn(given_, window)
    queue: list[PendingRows] = []
    verdicts, log = [], list[Event]()

    def admit() -> None:
        first = queue.pop(0)
        rotated(window, first.watermark)
        window.put_many(first.digests, first.generations)

    for part in batches(len(given_), cuts):
        pending = NO_PENDING
        if queue:
            pending = PendingRows(
                np.concatenate([one.digests for one in queue]),
                np.concatenate([one.generations for one in queue]),
                queue[-1].watermark,
            )
        before = state(window)
        judged = window.judge(digests[part], cut(moments, part), pending)
        assert state(window) == before
        verdicts.append(judged)
        log += [event for event, fresh in zip(given_[part], judged.fresh, strict=True) if fresh]
        added = np.ones_like(judged.fresh) if window.refresh else judged.fresh
        queue.append(PendingRows(digests[part][added], judged.generations[added], judged.watermark))
        if len(queue) > depth:
            admit()
    while queue:
        admit()
    return verdicts, log


@settings(deadline=None, max_examples=300)
@given(options, events, sizes, st.integers(0, 3))
def test_who_judges_before_adding_decides_alike(
    chosen: dict[str, Any], given_: list[Event], cuts: list[int], depth: int
) -> None:
    """With batches pending and added later, verdicts and state are those of adding at once."""
    window, at_once = build(**chosen), build(**chosen)
    verdicts, _ = work(window, given_, cuts, depth)
    expected = taken(at_once, *drawn(given_, at_once))
    fresh = [bool(one) for judged in verdicts for one in judged.fresh]
    assert fresh == expected.tolist()
    assert state(window) == state(at_once)
    if verdicts:
        assert verdicts[-1].watermark == at_once.watermark


@settings(deadline=None, max_examples=200)
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
        rotated(fold, watermark)
        fold.put_many(rows, generations)
        fold.put_many(rows, generations)  # again, as after a snapshot that is ahead of its label
    assert state(fold) == state(window)
    assert fold.watermark == window.watermark


def test_late_and_known_are_told_apart() -> None:
    """Late is what is not there and older than the window; it passes only where it shall."""
    for late in ("pass", "drop"):
        window = build(retention=700, late=late)
        window.add_many(KEYS[:1], np.array([10_000]))
        judged = window.judge(KEYS[[0, 1, 2, 1]], np.array([0, 0, 10_100, 10_100]))
        assert judged.late.tolist() == [False, True, False, False]
        assert judged.fresh.tolist() == [False, late == "pass", True, True]
        assert judged.generations.tolist() == [0, 0, 101, 101]
        assert judged.watermark == 10_100


def test_large_batches_are_judged_like_small_ones() -> None:
    """Beyond what one call of a kernel takes: rows see one another, and what is pending, across its calls."""
    rows = 100_000
    keys = random_digests(34, rows)
    twice = np.concatenate((keys, keys))
    at = np.sort(np.random.default_rng(35).integers(0, 700, 2 * rows))
    window = build(1_000_000, retention=70_000)
    pending = PendingRows(keys[: rows // 2], np.zeros(rows // 2, dtype=np.int64), 5)
    judged = window.judge(twice, at, pending)
    assert not judged.fresh[: rows // 2].any()
    assert judged.fresh[rows // 2 : rows].all()
    assert not judged.fresh[rows:].any()
    assert judged.watermark == int(at[rows - 1])
    generations, watermark = window.folded(at)
    assert (generations == at // window.clock.slot).all()
    assert watermark == int(at[-1])


@pytest.mark.parametrize("name", CHOSEN)
def test_chosen_rows_take_no_more_work_than_random_ones(name: str) -> None:
    """Rows are compared in a table in which nobody can choose the places."""
    digests, work = CHOSEN[name], []
    for rows in (digests, random_digests(36, len(digests))):
        table, secret = table_for(len(rows)), drawn_words(random.Random(36).randbytes)
        chosen = np.ones(len(rows), dtype=np.bool_)
        _keep_first(rows, chosen, table, secret)
        assert chosen.all()
        taken_ = np.flatnonzero(table >= 0)
        homes = bits_of(secret, rows[table[taken_]]).astype(np.int64) % len(table)
        work.append(int(((taken_ - homes) % len(table) + 1).sum()))
    assert work[0] < 1.2 * work[1] < 2 * len(digests)


@pytest.mark.parametrize("refresh", [False, True])
def test_the_rule_draws_the_places_anew(refresh: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time rows are compared; the verdicts do not depend on it."""
    drawn = []

    def draw() -> Words:
        drawn.append(drawn_words())
        return drawn[-1]

    rule = DuplicatesWithin(build(retention=700, refresh=refresh))
    for module in ("row_index", "verdicts"):
        monkeypatch.setattr(f"streamdedup.filters.window.{module}.drawn_words", draw)
    verdicts = rule.judge(KEYS[[0, 1, 0]], np.array([0, 1, 2]), within_budget=True)
    assert verdicts.tolist() == [Verdict.PASS, Verdict.PASS, Verdict.DUPLICATE]
    assert len({tuple(words.tolist()) for words in drawn}) == len(drawn) == 1 + refresh


def test_a_generation_that_is_to_come_cannot_be_set() -> None:
    """And then nothing is; one that has gone is skipped."""
    window = build(retention=700)
    with pytest.raises(ValueError, match="generation 0 is above the current, None; rotate"):
        window.put_many(KEYS[:1], np.array([0]))
    rotated(window, 1000)
    before = state(window)
    with pytest.raises(ValueError, match="generation 11 is above the current, 10; rotate"):
        window.put_many(KEYS[:2], np.array([10, 11]))
    window.put_many(KEYS[:2], np.array([2, -(1 << 63)]))
    window.put_many(KEYS[:0], np.zeros(0, dtype=np.int64))
    assert state(window) == before
    wrongs: list[Any] = [np.array([1.0]), [1], np.array([1, 2]), np.array([[1]])]
    for wrong in wrongs:
        with pytest.raises(TypeError, match="generations"):
            window.put_many(KEYS[:1], wrong)


# --- rotation ---


def wide() -> Window:
    """A window of several pieces, with a key that the next rotations forget."""
    window = build(4_000_000, 0.01, retention=700)
    window.add("old", 0)
    return window


def test_a_rotation_clears_a_piece_at_each_step() -> None:
    """The watermark is there at once; each step clears one piece, others see none of the old keys after the last."""
    window = wide()
    steps = window.rotate(800)
    assert (window.watermark, len(window), window.layout) == (800, 0, 1)
    left = [int(np.count_nonzero(np.frombuffer(view, np.uint8))) for view in views(window)]
    assert sum(left) == window.hashes
    counted = 0
    for _ in steps:
        counted += 1
        done = views(window)[:counted]
        assert not any(np.frombuffer(view, np.uint8).any() for view in done)
    assert counted == len(left) == math.ceil(window.size_bytes / TABLE_PIECE_BYTES) > 4
    assert "old" not in window


def views(window: Window) -> list[memoryview]:
    """The pieces of the table as it is, though a rotation may be half way."""
    table = window._ring.words.data.cast("B")
    return [table[at : at + TABLE_PIECE_BYTES] for at in range(0, len(table), TABLE_PIECE_BYTES)]


@pytest.mark.parametrize(
    "call",
    [
        lambda window: window.contains_many(KEYS),
        lambda window: "key" in window,
        lambda window: window.generations_many(KEYS),
        lambda window: window.judge(KEYS, np.zeros(len(KEYS), dtype=np.int64)),
        lambda window: window.add_many(KEYS[:0], np.zeros(0, dtype=np.int64)),
        lambda window: window.add("late", 0),
        lambda window: window.put_many(KEYS[:1], np.array([0])),
        lambda window: window.rotate(801),
        lambda window: window.buffers(),
    ],
)
@pytest.mark.parametrize("steps", [0, 1])
def test_a_rotation_that_was_left_half_way_is_finished_by_the_next_call(
    call: Any, steps: int
) -> None:
    """Whatever that is: no bit of the old keys is ever taken for one of the new generation."""
    window = wide()
    left = window.rotate(800)
    for _ in range(steps):
        next(left)
    call(window)
    assert not any(np.frombuffer(view, np.uint8).any() for view in views(window))
    assert list(left) == []


def test_only_what_has_keys_is_cleared() -> None:
    """Where no key leaves, or none is there, there is no pass over the table, and `layout` stays."""
    window = wide()
    for watermark in (0, 99, 700):
        assert list(window.rotate(watermark)) == []
    assert (window.layout, "old" in window) == (0, True)
    assert len(list(window.rotate(800))) > 1
    assert list(window.rotate(10**9)) == []
    assert (window.layout, "old" in window) == (1, False)
    window.add("new", 10**9)
    rotated(window, 10**9 + 10**6)
    assert ("new" in window, len(window), window.fill_ratio) == (False, 0, 0)


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


def test_layout_tells_when_a_copy_is_void() -> None:
    """While it is the same, bits only went from 0 to 1; so the table may be copied meanwhile."""
    window = build(70, 0.01)
    layouts, tables = [window.layout], copies(window)
    for key in random_digests(36, 300):
        window.add_many(key.reshape(1, 2))
        layouts.append(window.layout)
        tables += copies(window)
    assert layouts[-1] == 300 // 10 - 8
    for (one, other), (before, after) in zip(pairwise(layouts), pairwise(tables), strict=True):
        lost = np.frombuffer(before, np.uint8) & ~np.frombuffer(after, np.uint8)
        assert lost.any() == (one != other)


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
        "cells": [header["cells"] - 1, header["cells"] + 1, None],
        "watermark": [None, 2000, -2000, TIME_MAX + 1, 3.0],
        "current": [1, -1, None],
        "generation_keys": [
            None,
            [40] * 7,
            [40] * 9,
            [-1] * 8,
            [40.0] + [0] * 7,
            [True] * 8,
        ],
    }
    for name, values in wrongs.items():
        for wrong in values:
            with pytest.raises(ValueError, match=r"\w"):
                filters.from_parts({**header, name: wrong}, parts)
        with pytest.raises(ValueError, match=name):
            filters.from_parts({k: v for k, v in header.items() if k != name}, parts)


def test_bits_that_no_key_set_are_refused() -> None:
    """Beyond the last cell, of a generation that there is not, before the first key."""
    window = build(retention=7000, generations=12)
    window.add("a", 0)
    header = window.header()
    assert window.cells % 4
    for at, value in ((0, 1 << 12), (window.cells, 1)):
        (table,) = copies(window)
        np.frombuffer(table, np.uint16)[at] |= value
        with pytest.raises(ValueError, match="bits"):
            filters.from_parts(header, [table])
    empty = build(retention=7000, generations=12).header()
    with pytest.raises(ValueError, match="bits"):
        filters.from_parts(empty, copies(window))
    with pytest.raises(ValueError, match="no watermark"):
        filters.from_parts(
            {**empty, "generation_keys": [1] * 12}, copies(build(retention=7000, generations=12))
        )


def test_a_read_only_window_answers_and_refuses_changes() -> None:
    """As of a mapped file: the worker's ways, too."""
    window = build(retention=7000)
    window.add_many(KEYS[:3], np.arange(3))
    frozen = [memoryview(bytes(buffer)) for buffer in window.buffers()]
    restored = cast("Window", filters.from_parts(window.header(), frozen))
    assert restored.judge(KEYS[:4], np.arange(4)).fresh.tolist() == [False] * 3 + [True]
    for change in (
        lambda: restored.rotate(10_000),
        lambda: restored.put_many(KEYS[:1], np.array([0])),
        lambda: restored.add("more", 1),
    ):
        with pytest.raises(ConfigError, match="load it without mmap"):
            change()


# --- refusals ---


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"generations": 1}, r"filter\.generations is 1; it must be an integer from 2 to 64"),
        ({"generations": 65}, r"filter\.generations is 65"),
        ({"generations": 8.0}, r"filter\.generations is 8\.0"),
        ({"retention": 0}, r"filter\.retention 0 is out of range, must be 1 to"),
        ({"retention": "7 days"}, r"filter\.retention '7 days' has an unknown unit"),
        ({"retention": 1.5}, r"filter\.retention 1\.5 .*whole"),
        ({"retention": True}, r"filter\.retention True is not a duration"),
        ({"retention": SPAN_MAX + 1}, r"filter\.retention .* is out of range"),
        ({"retention": 7, "max_jump": 0}, r"filter\.max_jump 0 is out of range"),
        ({"max_jump": 5}, r"filter\.max_jump is 5, but a window by count has no times"),
        ({"late": "keep"}, r"filter\.late 'keep' is unknown; choose one of: pass, drop"),
        ({"refresh": 1}, r"filter\.refresh is 1; it must be true or false"),
        ({"error_rate": 1e-18}, r"filter\.error_rate 1e-18 is below 1e-17; raise it"),
        ({"capacity": 10**13}, r"filter\.capacity 10000000000000 .* and the most is"),
        ({"probe": "triple"}, r"filter\.probe 'triple' is unknown"),
    ],
)
def test_impossible_options_are_named(wrong: dict[str, Any], said: str) -> None:
    """With the value and the remedy."""
    with pytest.raises(ConfigError, match=said):
        build(**{"error_rate": 1e-6, **wrong})


def test_times_that_do_not_fit_are_refused() -> None:
    """None where they are needed, some where there are none, arrays that a kernel would misread; nothing is added."""
    count, timed = build(), build(retention=7000)
    wrongs: list[Any] = [
        np.array([1.0, 2.0]),
        np.array([1]),
        np.array([[1], [2]]),
        np.array([1, 2], dtype=np.int32),
        [1, 2],
    ]
    for wrong in wrongs:
        for call in (timed.add_many, timed.judge):
            with pytest.raises(
                ConfigError, match=r"times are int64 in ms since 1970, shape \(2,\)"
            ):
                call(KEYS[:2], wrong)
    for call in (timed.add_many, timed.judge):
        with pytest.raises(ConfigError, match="this window goes by time"):
            call(KEYS[:2])
    for call in (count.add_many, count.judge):
        with pytest.raises(ConfigError, match="this window goes by count"):
            call(KEYS[:2], np.array([1, 2]))
    for missing in (lambda: timed.add("a"), lambda: timed.folded(2)):
        with pytest.raises(ConfigError, match="this window goes by time"):
            missing()
    for needless in (lambda: count.add("a", 1), lambda: count.folded(np.array([1]))):
        with pytest.raises(ConfigError, match="this window goes by count"):
            needless()
    assert len(count) == len(timed) == 0


@pytest.mark.parametrize(
    ("time", "said"),
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
    ],
)
def test_a_time_that_is_no_ms_is_refused(time: Any, said: str) -> None:
    """A date, a text, seconds with a fraction, or ns: one key, with what to give instead."""
    window = build(retention=7000)
    with pytest.raises(ConfigError, match=said):
        window.add("a", time)
    assert len(window) == 0
    assert window.add("a", EARLIEST)
    assert window.add("b", LATEST)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([1, 2], r"not of type list; give np\.array\(times, dtype=np\.int64\)"),
        (np.array([1, 2], "datetime64[s]"), r"not datetime64\[s\]; .*datetime64\[ms\].*np\.int64"),
        (np.array([1, 2.0]), r"not float64, shape \(2,\)"),
        (np.array([1, 1_700_000_000_000_000_000]), "a time of 1700000000000000000 .*divide ns"),
        (np.array([-(1 << 63), 1]), "is not ms since 1970"),
    ],
)
def test_times_that_are_no_ms_are_refused(times: Any, said: str) -> None:
    """As one key, many: before any is added. The worker, whose log may hold any, judges and folds them."""
    window = build(retention=7000)
    with pytest.raises(ConfigError, match=said):
        window.add_many(KEYS[:2], times)
    assert len(window) == 0
    window.judge(KEYS[:2], np.array([-(1 << 63), (1 << 63) - 1]))
    window.folded(np.array([-(1 << 63), (1 << 63) - 1]))


def test_every_layout_of_times_means_the_same() -> None:
    """Read-only and strided times are taken like any others."""
    expected = build(retention=700)
    at = np.arange(0, 2000, 50)
    expected.add_many(KEYS, at)
    frozen = at.copy()
    frozen.flags.writeable = False
    for layout in (frozen, np.repeat(at, 2)[::2]):
        window = build(retention=700)
        window.add_many(KEYS, layout)
        assert state(window) == state(expected)


def test_a_window_is_windowed() -> None:
    """It has what the Protocol asks for, and no other kind is taken for one."""
    assert isinstance(build(), Windowed)
    assert not isinstance(filters.build({"kind": "bloom", "capacity": 10}), Windowed)
