"""Windows: errors by arrival, sweeps, and the full table of batches."""

import itertools
from typing import Any

import numpy as np
import pytest

from streamdedup.filters.base import Mask, Times
from streamdedup.filters.memory import TABLE_PIECE_BYTES
from streamdedup.filters.strain import STRAIN, STRAIN_MAX, ChosenKeysError
from streamdedup.filters.window.placing import TAGS
from streamdedup.filters.window.table import WindowTable
from streamdedup.filters.window.window import Window
from streamdedup.keys.hashing import MURMUR3, Digests
from tests.filters.cases import band, random_digests, state
from tests.filters.test_window import (
    DAY_MS,
    KEYS,
    SHAPES,
    build,
    crowded,
    put,
    put_in_batches,
    rotated,
)
from tests.rows import table


def test_a_single_key_that_must_move_others_does_as_in_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In steady churn a third of the keys find no free cell. Only the first key of a generation makes a batch."""
    single, together = Window(10_000, 1e-6), Window(10_000, 1e-6)
    keys = [f"{number}" for number in range(30_000)]
    together.add_many(MURMUR3.digests(keys))
    batches, add = list[int](), WindowTable.add

    def counted(table: WindowTable, digests: Digests, moments: Times) -> Mask:
        batches.append(len(digests))
        return add(table, digests, moments)

    monkeypatch.setattr(WindowTable, "add", counted)
    for key in keys:
        single.add(key)
    assert state(single) == state(together)
    assert (single._table.counts == together._table.counts).all()
    assert len(batches) <= len(keys) // single.clock.slot + 1


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


ARRIVALS = ("at once", "five days of seven", "evenly", "after silence")


def arrivals(name: str, count: int) -> Times:
    """Times of `count` keys within a week, and a week's keys before them."""
    at = np.arange(count)
    if name == "at once":
        return at * 60_000 // count
    if name == "five days of seven":
        return at * 5 // count * DAY_MS + at * 5 % count * 36_000_000 // count
    return at * 7 * DAY_MS // count + (60 * DAY_MS if name == "after silence" else 0)


@pytest.mark.parametrize("error_rate", [1e-2, 1e-3])
@pytest.mark.parametrize("arrival", ARRIVALS)
def test_capacity_keys_of_any_arrival_keep_the_error_rate(arrival: str, error_rate: float) -> None:
    """However they come in a retention, after two of others: none is lost, errors are as told, all before are gone."""
    count, absent = 30_000, random_digests(4, 400_000 if error_rate > 2e-3 else 3_000_000)
    window = build(count, error_rate, retention="7d", generations=31)
    keys = np.split(random_digests(32, 3 * count), 3)
    for week, part in enumerate(keys):
        fresh = window.add_many(part, arrivals(arrival, count) + week * 8 * DAY_MS)
        assert np.count_nonzero(~fresh) < band(error_rate * count)[1]
    assert window.contains_many(keys[2][fresh]).all()
    assert len(window) >= np.count_nonzero(fresh)
    assert window.room() >= 0
    expected = window.expected_error(len(window)) * len(absent)
    low, high = band(expected)
    assert low < np.count_nonzero(window.contains_many(absent)) < high
    assert expected <= error_rate * len(absent)
    assert np.count_nonzero(window.contains_many(keys[0])) < band(error_rate * count)[1]


def test_the_streams_of_the_last_test_overflow_and_move() -> None:
    """Or it would claim nothing."""
    stashed = swept = 0
    for seed in range(12):
        window, digests, own = crowded(seed, 8)
        for row in range(len(own)):
            before = window._table.counts[TAGS:].sum() - len(window)
            put(window, digests[row : row + 1], own[row : row + 1])
            stashed += int(window._table.stash.used[0] > 0)
            swept += window._table.counts[TAGS:].sum() - len(window) < before - 1
    assert stashed > 100
    assert swept > 20


def test_a_single_key_is_refused_as_in_a_batch() -> None:
    """If keys have taken too long, one without a free cell is refused, and nothing changes."""
    window = Window(10_000, 1e-6)
    window.add_many(MURMUR3.digests([f"{number}" for number in range(20_000)]))
    added = 0
    with pytest.raises(ChosenKeysError):
        for number in range(20_000, 20_100):
            window._table.counts[STRAIN] = STRAIN_MAX + 1
            before = state(window)
            window.add(f"{number}")
            added += 1
    assert added
    assert state(window) == before


def test_a_tag_that_comes_back_finds_no_cell_of_its_former_generation() -> None:
    """Whether the window goes on by one generation at a time or by any number, and however often tags return."""
    for jump in (1, 2, 3, 7, 8, 9, 15, 16, 17, 100):
        window = build(5000, 1e-4, retention=700, generations=8)
        for turn in range(50):
            keys = random_digests(60 + turn, 100)
            put(window, keys, np.full(100, turn * jump))
            held = sum(100 for other in range(turn + 1) if (turn - other) * jump < 8)
            assert len(window) == held
            loads = np.sort(window._table.loads)[::-1]
            assert loads.sum() == held
        assert not window.contains_many(random_digests(60, 100)).any()


def test_a_sweep_looks_at_a_part_of_the_table_and_only_where_keys_have_left() -> None:
    """In steps of at most a piece; after as many generations as parts, all of it was looked at once."""
    window = build(4_000_000, 0.01, retention=700, generations=8)
    parts = window._table._parts
    assert parts == 8
    pieces = [len(list(window._table._pieces(part))) for part in range(parts)]
    assert (
        window.size_bytes / TABLE_PIECE_BYTES
        < sum(pieces)
        < window.size_bytes / TABLE_PIECE_BYTES + 9
    )
    assert len(list(window.put_many(KEYS[:1], np.array([0])))) == 1
    assert len(list(window.put_many(KEYS[1:2], np.array([7])))) == 1  # nothing has left
    assert len(list(window.put_many(KEYS[2:3], np.array([8])))) == 1 + pieces[0]
    assert len(list(window.put_many(KEYS[3:4], np.array([10])))) in (1, 1 + pieces[1] + pieces[2])
    assert len(list(window.rotate(10**9 * 100))) == sum(pieces)
    assert window._table.counts[TAGS:].sum() == len(window) == 0
    assert list(window.rotate(10**10 * 100)) == []


@table([0, 1])
def test_a_sweep_that_was_left_half_way_is_finished_before_the_next_call(steps: int) -> None:
    """Whatever that is: nothing is found that has left the window, and putting the same again changes nothing more."""
    for call in (
        lambda window: window.contains_many(KEYS),
        lambda window: "key" in window,
        lambda window: window.add("late", 0),
        lambda window: window.buffers(),
        lambda window: put(window, KEYS[:1], np.array([0])),
    ):
        window, whole = (build(4_000_000, 0.01, retention=700, generations=8) for _ in range(2))
        for one in (window, whole):
            put(one, KEYS[:2], np.array([0, 1]))
            rotated(one, 100)
        left = window.put_many(KEYS[2:4], np.array([100, 101]))
        for _ in range(steps):
            next(left)
        call(window)
        assert not window._table._due
        put(whole, KEYS[2:4], np.array([100, 101]))
        put(window, KEYS[2:4], np.array([100, 101]))
        assert state(window) == state(whole)


@table(itertools.product(range(12), SHAPES))
def test_whatever_the_batches_the_table_is_the_same(row: tuple[int, tuple[int, float]]) -> None:
    """For all shapes, with a dozen streams each."""
    put_in_batches(*row)


def test_what_is_put_moves_the_window_on() -> None:
    """Row by row; what has left it by then is skipped, and so is what had left it before."""
    window = build(retention=700, generations=8)
    put(window, KEYS[:4], np.array([2, 10, 2, 3]))
    assert window.contains_many(KEYS[:4]).tolist() == [False, True, False, True]
    assert (window.watermark, len(window)) == (None, 2)
    rotated(window, 1050)
    before = state(window)
    put(window, KEYS[[5, 6, 3]], np.array([2, -(1 << 62), 3]))
    put(window, KEYS[:0], np.zeros(0, dtype=np.int64))
    assert state(window) == before
    wrongs: list[Any] = [np.array([1.0]), [1], np.array([1, 2]), np.array([[1]])]
    for wrong in wrongs:
        with pytest.raises(TypeError, match="generations"):
            window.put_many(KEYS[:1], wrong)


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
