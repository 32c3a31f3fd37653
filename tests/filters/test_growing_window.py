"""Claims about windows that grow: nothing is lost, errors stay within the rate, and memory follows the traffic."""

import random
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.filters.base import Growing
from streamdedup.filters.growing.windows import GrowingWindow
from streamdedup.filters.sizing import any_of
from streamdedup.filters.stash import spare_bytes
from streamdedup.filters.window.clock import NEVER, Generations
from streamdedup.filters.window.protocol import Windowed
from streamdedup.keys.hashing import Digests
from streamdedup.rules.window import DuplicatesWithin
from tests.filters.cases import band, copies, random_digests, state
from tests.filters.test_window import (
    EXACT,
    KEYS,
    Event,
    batches,
    by_time,
    drawn,
    ended,
    events,
    kept_as_sets,
    put,
    put_alike,
    refuses_headers,
    restored,
    rotated,
    sizes,
    taken,
    work,
)
from tests.rows import table

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SMALL = {"capacity": 3, "max_size": 40_000}  # four stages and more for the 40 keys of the streams


def build(capacity: int = 1000, error_rate: float = EXACT, **options: Any) -> GrowingWindow:
    """An empty window that grows, of 8 generations and 700 ms unless told otherwise."""
    config = {"kind": "window", "on_full": "grow", "capacity": capacity, "error_rate": error_rate}
    return cast(
        "GrowingWindow", filters.build({**config, "retention": 700, "generations": 8, **options})
    )


def indexes(window: GrowingWindow) -> list[int]:
    """The indexes of its stages, ascending."""
    return [stage["index"] for stage in window.header()["stages"]]


def within_capacity(window: GrowingWindow) -> bool:
    """Whether each stage holds no more than it is for; then the sum of their errors is within the rate."""
    return all(table.keys <= table.capacity for table in window._table.tables.values())


# --- what is remembered ---


@settings(deadline=None, max_examples=100)
@given(by_time, events, sizes)
def test_it_is_one_set_a_generation(
    chosen: dict[str, Any], given_: list[Event], cuts: list[int]
) -> None:
    """As a window that does not grow: out of order, late, ahead, renewed, in any batches, with any stages."""
    window = build(**SMALL, **chosen)
    live = kept_as_sets(window, given_, cuts)
    # A key that is put again, because it is renewed or far ahead, may be in two stages.
    again = window.refresh or chosen["max_jump"] is not None
    assert len(window) == live or (again and len(window) > live)


@settings(deadline=None, max_examples=60)
@given(by_time, events, sizes, sizes, st.integers(0, 3))
def test_worker_fold_and_library_agree(
    chosen: dict[str, Any], given_: list[Event], cuts: list[int], others: list[int], depth: int
) -> None:
    """Who judges first and adds later, who folds the log in other batches, and who adds at once: to the byte."""
    chosen |= {"refresh": False, **SMALL}
    window, fold, at_once = build(**chosen), build(**chosen), build(**chosen)
    fresh, log = work(window, given_, cuts, depth)
    assert fresh == taken(at_once, *drawn(given_, at_once)).tolist()
    digests, moments = drawn(log, fold)
    assert moments is not None
    for part in batches(len(log), others):
        generations, watermark = fold.folded(moments[part])
        put(fold, digests[part], generations)
        put(fold, digests[part], generations)  # again, as after an admission that was broken off
        rotated(fold, watermark)
        fold = restored(fold)
    assert state(fold) == state(window) == state(at_once)


def crowded(seed: int) -> tuple[GrowingWindow, Digests, Generations]:
    """An empty window whose keys look alike often, and a stream that overfills it, with jumps, pauses and late keys."""
    chance = random.Random(seed)
    at, own = 0, list[int]()
    while len(own) < 1500:
        at += chance.choice([0, 0, 1, 1, 2, 4, 24])
        late = [0, 0, 0, 1, 3, 8]
        own += [at - chance.choice(late) for _ in range(chance.randrange(90))]
    digests = random_digests(150 + seed, len(own))
    twice = [chance.randrange(len(own)) for _ in range(200)]
    window = build(20, 0.4, retention=7, max_size=13_000)
    return window, np.concatenate((digests, digests[twice])), np.array(own + [at] * 200)


@table(range(3))
def test_the_stages_follow_from_what_was_put(seed: int) -> None:
    """Byte for byte, row by row or in any batches, restored between or not; beyond the last stage, too."""
    put_in_batches(seed)


def put_in_batches(seed: int) -> None:
    """Put a stream whole, row by row, and in parts; the three windows are the same."""
    _, digests, own = crowded(seed)
    put_alike([crowded(seed)[0] for _ in range(3)], digests, own, 8, seed)


# --- errors and memory ---


def test_a_burst_is_held_and_its_memory_comes_back() -> None:
    """Five times the capacity within an hour, then silence, then as before: nothing is lost, errors are as promised."""
    count, error_rate = 20_000, 0.01
    window = build(count, error_rate, retention="7d", generations=31)
    keys, absent = random_digests(170, 8 * count), random_digests(171, 400_000)
    small = window.size_bytes
    fresh = [window.add_many(keys[:count], np.arange(count) * 7 * DAY_MS // count)]
    assert (indexes(window), window.size_bytes) == ([0], small)
    burst = 7 * DAY_MS + np.arange(5 * count) * HOUR_MS // (5 * count)
    fresh.append(window.add_many(keys[count : 6 * count], burst))
    assert (indexes(window), window.room() >= 0) == ([0, 1, 2], True)
    assert window.size_bytes > 5 * small
    wrong = sum(int(np.count_nonzero(~one)) for one in fresh)
    assert wrong < band(error_rate * 6 * count)[1]
    assert window.contains_many(keys[count : 6 * count][fresh[1]]).all()
    met = int(np.count_nonzero(window.contains_many(absent)))
    low, high = band(window.error_rate_now * len(absent))
    assert low < met < high
    assert window.error_rate_now < error_rate
    assert within_capacity(window)
    window.add("after silence", 60 * DAY_MS)
    assert (indexes(window), window.size_bytes, len(window)) == ([0], small, 1)
    week = window.add_many(
        keys[-count + 1 :], np.arange(count - 1) * 6 * DAY_MS // count + 60 * DAY_MS
    )
    assert window.contains_many(keys[-count + 1 :][week]).all()
    assert (indexes(window), window.size_bytes) == ([0], small)


def test_it_shrinks_while_events_go_on() -> None:
    """A large stage drains once half of a smaller one would do, with no silence; no key is lost on the way."""
    window = build(1000, retention=700)
    keys = random_digests(172, 30_000)
    seen = list[list[int]]()
    for step in range(60):
        rate = 500 if step < 10 else 50  # of 100 ms: 4,000 keys are live at once, then 400
        part, at = keys[step * 500 : step * 500 + rate], np.full(rate, step * 100)
        assert window.add_many(part, at).all()
        back = [
            keys[i * 500 : i * 500 + (500 if i < 10 else 50)] for i in range(max(0, step - 7), step)
        ]
        assert all(window.contains_many(part).all() for part in back)
        assert within_capacity(window)
        seen.append(indexes(window))
    assert [0, 1, 2] in seen
    assert seen[-1] == [0]
    assert window.size_bytes == build(1000, retention=700).size_bytes


def test_no_stage_outlives_its_keys() -> None:
    """What has drained is dropped when a generation begins, whichever way the time goes on."""
    for go_on in (
        lambda window: window.add("a", 7 * 100 + 150),
        lambda window: put(window, KEYS[:1], np.array([8])),
        lambda window: rotated(window, 850),
    ):
        window = build(100, retention=700)
        window.add_many(random_digests(173, 160), np.repeat([0, 100], [100, 60]))
        assert indexes(window) == [0, 1]
        go_on(window)
        assert indexes(window) == [1]


def test_thousands_of_turns_keep_the_budget() -> None:
    """Stages come and go with the traffic; however long, those that are there at once are of different indexes."""
    chance, window = random.Random(1), build(50, 0.01, retention=700, max_size=20_000)
    made, at = set[tuple[int, ...]](), 0
    capacity, error_rate = window.capacity, window.error_rate
    promised = any_of(error_rate / 2 ** (index + 1) for index in range(20))
    for turn in range(5000):
        at += 100 * chance.choice([1, 1, 1, 2])
        rate = (2, 6, 40, 90, 4)[turn // 40 % 5]
        keys = random_digests(200 + turn % 50, rate) ^ np.uint64(turn)
        if window.room() >= rate:
            ended(window.put_many(keys, np.full(rate, at // 100)))
        rotated(window, at)
        assert window.error_rate_now <= promised <= error_rate
        assert within_capacity(window)
        made.add(tuple(indexes(window)))
    assert window.layout > 500
    assert (window.capacity, max(map(max, made))) == (capacity, max(map(len, made)) - 1)
    assert window.size_bytes <= window.size_bytes_max


def test_at_the_bound_it_stops_and_what_waits_counts() -> None:
    """No key beyond `max_size` becomes pending, until others leave; what goes in nonetheless is found."""
    window = build(100, retention=700)
    rule, keys = DuplicatesWithin(window), random_digests(175, 3 * window.capacity)
    most = window.capacity
    for start in range(0, most, 300):
        rule.judge(keys[start : start + 300], np.full(300, start // 10), within_budget=True)
        rule.seal()
    assert (rule.pending, rule.room, indexes(window)) == (most, 0, [0])
    assert len(rule.judge(keys[-5:], np.full(5, 200), within_budget=True)) == 0
    while rule.pending:
        ended(rule.admit())
    assert (len(window), window.room(), rule.room) == (most, 0, 0)
    assert within_capacity(window)
    assert len(rule.judge(keys[-5:], np.full(5, 200), within_budget=True)) == 0
    assert len(rule.judge(keys[-5:], np.full(5, 10**6), within_budget=True)) == 5
    ended(rule.admit())
    assert (len(window), indexes(window)) == (5, [0])
    for start in range(0, len(keys), 1000):
        put(window, keys[start : start + 1000], np.full(len(keys[start : start + 1000]), 10**4))
    assert window.room() < 0
    assert window.contains_many(keys).all()


# --- ahead, and parts ---


def test_a_stage_made_ahead_is_used_and_changes_nothing() -> None:
    """A worker makes it in a thread. A generation that leaves half of the newest stage free gives it back."""
    ahead, late = build(40), build(40)
    keys, zeros = random_digests(176, 120), np.zeros(120, dtype=np.int64)
    for one in (ahead, late):
        one.add_many(keys[:30], zeros[:30])
    assert (ahead.grows_within(10), ahead.grows_within(11)) == (False, True)
    ahead.grow()
    assert (ahead.grows_within(90), ahead.grows_within(91)) == (False, True)
    assert (ahead.layout, ahead.header(), ahead.size_bytes > late.size_bytes) == (
        0,
        late.header(),
        True,
    )
    made = ahead._table._ahead[1]
    for part in np.array_split(keys[30:], 3):
        fresh = [one.add_many(part, zeros[: len(part)]).tolist() for one in (ahead, late)]
        assert fresh[0] == fresh[1]
    assert ahead._table.tables[1] is made
    assert state(ahead) == state(late)
    while ahead.grows_within(10**6):
        ahead.grow()
    assert ahead.size_bytes == ahead.size_bytes_max
    before = state(ahead)
    ahead.grow()
    assert state(ahead) == before
    rotated(ahead, 10**6)
    assert ahead.size_bytes == build(40).size_bytes


def grown() -> GrowingWindow:
    """A window of three stages, the newest of which is not the largest."""
    window = build(40, retention=700)
    window.add_many(random_digests(178, 150), np.zeros(150, dtype=np.int64))
    window.add_many(random_digests(179, 130), np.full(130, 750))
    window.add_many(random_digests(180, 40), np.full(40, 800))
    assert (window._table.newest, indexes(window)) == (0, [0, 2]), indexes(window)
    return window


def test_headers_that_contradict_are_refused() -> None:
    """Every field missing, of another type, or not what the others say."""
    window = grown()
    header, parts = window.header(), copies(window)
    assert state(cast("GrowingWindow", filters.from_parts(header, parts))) == state(window)
    zero, two = header["stages"]
    wrongs: dict[str, list[Any]] = {
        "by": ["count", None],
        "retention": [690, None],
        "slot": [99, None],
        "table": ["ring", None],
        "size_bytes_max": [header["size_bytes_max"] + 8, 0, None],
        "watermark": [None, 14_000, 10**19],
        "newest": [1, 3, -1, None],
        "capacity": [41, 10**13],
        "error_rate": [0.1],
        "stages": [
            None,
            [],
            [zero],
            [two, zero],
            [zero, zero],
            [zero, {**two, "index": 1}],
            [zero, {**two, "index": 50}],
            [zero, {**two, "buckets": two["buckets"] + 1}],
            [{**zero, "fingerprint_bits": None}, two],
            [zero, 2],
        ],
    }
    refuses_headers(header, parts, wrongs)
    with pytest.raises(ValueError, match=r"stages \[2, 0\] are not in order"):
        filters.from_parts({**header, "stages": [two, zero]}, [*parts[2:], *parts[:2]])
    empty = build(40).buffers()
    with pytest.raises(ValueError, match="stage 0 has no live key"):
        filters.from_parts({**header, "newest": 2}, [*empty, *parts[2:]])


def test_a_larger_max_size_lets_it_go_on() -> None:
    """And a smaller one keeps the stages that there are."""
    least = build(40).size_bytes + spare_bytes()
    window = build(40, max_size=least)
    assert window.capacity == 40
    window.permit("64KiB")
    assert window.capacity > 600
    window.add_many(random_digests(181, 150), np.zeros(150, dtype=np.int64))
    assert indexes(window) == [0, 1, 2]
    window.permit(least)
    assert window.capacity == 40 + 80 + 160
    with pytest.raises(ConfigError, match=r"filter\.max_size 10 is 10 bytes, and the first stage"):
        window.permit(10)


@table(
    [
        ({"retention": None}, "on_full grow is not for a window by count, which is never full"),
        ({"max_size": 10}, r"filter\.max_size 10 is 10 bytes"),
        ({"generations": 1}, r"filter\.generations is 1"),
        ({"error_rate": 1e-18}, "half of its error rate: .* it takes cells of"),
        ({"probe": "double"}, r"filter\.probe is not for filter\.kind window"),
    ]
)
def test_impossible_options_are_named(row: tuple[Any, str]) -> None:
    """With the value and the remedy."""
    wrong, said = row
    with pytest.raises(ConfigError, match=said):
        build(**{"error_rate": 1e-6, **wrong})


def test_a_read_only_window_answers_and_refuses_changes() -> None:
    """As of a mapped file."""
    window = grown()
    frozen = [memoryview(bytes(buffer)) for buffer in window.buffers()]
    mapped = cast("GrowingWindow", filters.from_parts(window.header(), frozen))
    assert mapped.contains_many(random_digests(180, 40)).all()
    changes: list[Callable[[], object]] = [
        lambda: mapped.rotate(10_000),
        lambda: mapped.put_many(KEYS[:1], np.array([8])),
        lambda: mapped.add("more", 800),
    ]
    for change in changes:
        with pytest.raises(ConfigError, match="load it without mmap"):
            change()


def test_what_it_can_do_its_types_say() -> None:
    """It has a window's methods, and grows; its text names the stages."""
    window = grown()
    assert isinstance(window, Windowed)
    assert isinstance(window, Growing)
    assert repr(window).startswith("<streamdedup window in 2 stages: 170 of ")
    assert window.generations_many(random_digests(180, 1)).tolist() == [8]
    assert window.generations_many(KEYS[:1]).tolist() == [NEVER]
    window.grow()
    window.set_policy("drop", refresh=True)
    window.add_many(random_digests(182, 50), np.full(50, 800))
    assert (window._table.newest, indexes(window)) == (1, [0, 1, 2])
    assert (window.late, window.refresh) == ("drop", True)
    assert not window.add_many(KEYS[:2], np.zeros(2, dtype=np.int64)).any()
