"""Windows that grow: the full table of batches, memory in steps, stages made ahead."""

import itertools

import numpy as np

from streamdedup.events import NO_TIMESTAMP, Verdict
from streamdedup.filters.memory import TABLE_PIECE_BYTES
from streamdedup.rules.window import DuplicatesWithin
from tests.filters.cases import random_digests, state
from tests.filters.test_growing_window import (
    build,
    crowded,
    indexes,
    put_in_batches,
    within_capacity,
)
from tests.filters.test_window import KEYS, batches, ended, put, rotated
from tests.rows import table


def test_the_streams_of_these_tests_grow_shrink_and_take_over() -> None:
    """Or they would claim nothing."""
    seen, beyond = set[tuple[int, ...]](), 0
    for seed in range(12):
        window, digests, own = crowded(seed)
        for row in range(len(own)):
            put(window, digests[row : row + 1], own[row : row + 1])
            seen.add((window._table.newest, *indexes(window)))
            beyond += window.room() < 0
    newest = {(now, max(there)) for now, *there in seen}
    assert {(0, 0), (1, 1), (2, 2), (3, 3), (0, 2), (1, 2), (0, 3)} <= newest, seen
    assert (0, 1, 2, 3) in {tuple(there) for _, *there in seen}
    assert beyond > 100


@table(itertools.product(range(6), [False, True]))
def test_times_add_alike_in_any_batches(row: tuple[int, bool]) -> None:
    """Keys that look alike are found or not, whatever the batches: answers and bytes."""
    seed, refresh = row
    _, digests, own = crowded(seed)
    own[own == NO_TIMESTAMP] = 0  # `add` refuses it as a time
    windows = [build(20, 0.4, retention=7, max_size=13_000, refresh=refresh) for _ in range(3)]
    whole, single, parted = windows
    expected = whole.add_many(digests, own)
    rows = range(len(own))
    assert [single.add_many(digests[[i]], own[[i]])[0] for i in rows] == expected.tolist()
    for part in batches(len(own), [1, 60, 9, 300]):
        assert (parted.add_many(digests[part], own[part]) == expected[part]).all()
    assert state(single) == state(whole)
    assert state(parted) == state(whole)


def test_a_smaller_stage_gets_its_memory_in_steps() -> None:
    """Between two of them a worker does other work: the pages of a large one take longer than it may stand still."""
    window = build(capacity=1_000_000)
    put(window, KEYS[:1], np.array([0]))
    window._table._follow(1)
    put(window, KEYS[1:2], np.array([1]))
    steps = len(list(window.rotate(8 * window.clock.slot)))
    assert indexes(window) == [0, 1] and window._table.newest == 0
    words, _ = window.buffers()[:2]
    assert steps == -(-len(words) // TABLE_PIECE_BYTES) > 4


def test_all_that_max_size_permits_can_be_live_at_once() -> None:
    """In steady traffic of that many keys, too, where the newest stage is full while others have drained half."""
    window = build(100, retention=700)
    rate = window.capacity // 8
    keys = random_digests(174, 60 * rate)
    rule = DuplicatesWithin(window)
    for step in range(60):
        part = keys[step * rate : (step + 1) * rate]
        verdicts = rule.judge(part, np.full(rate, step * 100), within_budget=True)
        assert verdicts.tolist() == [Verdict.PASS] * rate
        ended(rule.admit())
        assert within_capacity(window)
        assert window.contains_many(keys[max(0, step - 7) * rate : (step + 1) * rate]).all()
    assert window.size_bytes == window.size_bytes_max


def test_what_was_made_ahead_is_given_back() -> None:
    """By the first generation in which half of the newest stage is free, whichever way it begins."""
    for go_on in (
        lambda window: window.add("a", 800),
        lambda window: window.add_many(KEYS[1:2], np.array([800])),
        lambda window: put(window, KEYS[:1], np.array([8])),
        lambda window: rotated(window, 800),
    ):
        window = build(100)
        window.add_many(random_digests(183, 90), np.zeros(90, dtype=np.int64))
        window.grow()
        window.add_many(KEYS[:1], np.array([100]))  # nothing has left
        assert window.size_bytes > build(100).size_bytes
        go_on(window)
        assert window.size_bytes == build(100).size_bytes


@table(range(12))
def test_the_stages_follow_from_what_was_put(seed: int) -> None:
    """In a dozen streams."""
    put_in_batches(seed)
