"""Claims about the keys of a window that wait: what is judged by them, what it costs, and where the room ends."""

from typing import Any, cast

import numpy as np
import pytest

from streamdedup import filters
from streamdedup.events import Verdict
from streamdedup.filters.window.window import Window
from streamdedup.rules import pending_in_time
from streamdedup.rules.window import DuplicatesWithin
from tests.filters.cases import random_digests

KEYS = random_digests(70, 40_000)
PASS, DUPLICATE = Verdict.PASS, Verdict.DUPLICATE


def rule_over(capacity: int = 100_000, **options: Any) -> DuplicatesWithin:
    """The rule over an empty window of 8 generations of 100 ms."""
    config = {"kind": "window", "capacity": capacity, "error_rate": 1e-9, "generations": 8}
    window = cast("Window", filters.build({**config, "retention": 700, **options}))
    return DuplicatesWithin(window)


def judged(rule: DuplicatesWithin, rows: slice, time: int, *, budget: bool = True) -> list[int]:
    """The verdicts of some of `KEYS`, all at one time."""
    digests = KEYS[rows]
    times = np.full(len(digests), time, dtype=np.int64)
    return [int(verdict) for verdict in rule.judge(digests, times, within_budget=budget)]


def admitted(rule: DuplicatesWithin) -> None:
    """Admit to the end."""
    for _ in rule.admit():
        pass


def test_judging_costs_the_batch_whatever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels get the rows of the batch alone, once for each table of the queue, and what waits is not copied."""
    rule, rows = rule_over(), list[int]()
    for name in ("_judge", "_find_later"):
        kernel = getattr(pending_in_time, name)

        def counting(table: Any, *arguments: Any, kernel: Any = kernel) -> Any:
            rows.append(
                max(len(one) for one in arguments if isinstance(one, np.ndarray) and one.ndim == 2)
            )
            return kernel(table, *arguments)

        monkeypatch.setattr(pending_in_time, name, counting)
    judged(rule, slice(0, 30_000), 0)
    before = [table.ring.ctypes.data for table in rule._waiting._tables]
    rows.clear()
    assert judged(rule, slice(29_990, 30_010), 0) == [DUPLICATE] * 10 + [PASS] * 10
    assert rows == [20] * len(before)
    assert [table.ring.ctypes.data for table in rule._waiting._tables] == before


@pytest.mark.parametrize("first", [10, 5000])
def test_a_key_waits_in_each_of_its_windows(first: int) -> None:
    """It passes again after its window, while both wait, in one table of the queue or in two; the later one counts."""
    rule = rule_over()
    judged(rule, slice(0, 1), 0)
    rule.seal()
    judged(rule, slice(1, first), 0)
    assert judged(rule, slice(0, 1), 799) == [DUPLICATE]
    assert judged(rule, slice(0, 1), 800) == [PASS]
    rule.seal()
    assert judged(rule, slice(0, 1), 1500) == [DUPLICATE]
    for _ in range(2):
        admitted(rule)
        assert judged(rule, slice(0, 1), 1599) == [DUPLICATE]
    assert rule.pending == 0
    assert judged(rule, slice(0, 1), 1600) == [PASS]


def test_room_counts_what_waits_and_what_has_left() -> None:
    """At the time of the row: a key that lets others leave finds their room; the row that finds none is not judged."""
    rule = rule_over(capacity=100)
    assert judged(rule, slice(0, 60), 0) == [PASS] * 60
    admitted(rule)
    assert judged(rule, slice(60, 100), 100) == [PASS] * 40
    assert rule.room == 0
    assert judged(rule, slice(50, 102), 200) == [DUPLICATE] * 50
    assert (rule.watermark, rule.room) == (100, 0)
    assert judged(rule, slice(100, 102), 800) == [PASS] * 2
    assert rule.room == 58
    admitted(rule)
    assert rule.room == 58
    assert judged(rule, slice(200, 300), 900) == [PASS] * 98
    assert judged(rule, slice(298, 300), 900, budget=False) == [PASS] * 2
    assert rule.room == -2


def test_what_is_forgotten_takes_no_room() -> None:
    """At a doubt all that waits goes, with the time that it had reached."""
    rule = rule_over(capacity=100)
    judged(rule, slice(0, 10), 0)
    admitted(rule)
    judged(rule, slice(10, 90), 5000)
    assert rule.room == 20
    rule.forget()
    assert (rule.room, rule.watermark, rule.pending) == (90, 0, 0)
    assert judged(rule, slice(0, 100), 0) == [DUPLICATE] * 10 + [PASS] * 90


def test_the_queue_takes_eight_bytes_more_for_a_row() -> None:
    """Its generation."""
    rule = rule_over()
    judged(rule, slice(0, 30_000), 0)
    assert rule._waiting.size_bytes < 40 * 4 * 30_000
