"""Claims about the audit's parts without a broker, against exact models and by chance."""

import random
from collections import defaultdict
from collections.abc import Iterable
from math import exp, factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.commands.audit.chance import BEYOND_CHANCE, more_than, most_explained
from streamdedup.commands.audit.match import Matches, match
from streamdedup.commands.audit.rows import (
    DUE,
    EMITTED,
    Rows,
    Sorter,
    rows_of,
)
from streamdedup.delivery.window_time import WindowTime
from streamdedup.filters import build
from streamdedup.filters.window.rules import rules_for
from streamdedup.keys.hashing import MURMUR3
from streamdedup.rules import duplicates_rule
from tests.commands.test_audit_rows import (
    Given,
    added,
    given_rows,
)


def told(parts: Iterable[Rows]) -> dict[tuple[int, int, int], tuple[int, int, int]]:
    """Digest and kind -> first, last, count."""
    return {
        (int(r["high"]), int(r["low"]), int(r["kind"])): (
            int(r["first"]),
            int(r["last"]),
            int(r["count"]),
        )
        for rows in parts
        for r in rows
    }


@settings(max_examples=60, deadline=None)
@given(given_rows, st.sampled_from([1, 300, 1000, 5000, 1 << 20]), st.integers(1, 50))
def test_whatever_the_memory_the_rows_are_the_same(
    events: Given, size_bytes: int, batch: int
) -> None:
    """Equal rows are one, with their least and greatest offset and their number; a digest is in one part; sorted."""
    expected = defaultdict(list)
    for key, kind, offset in events:
        expected[*MURMUR3.digest(b"%d" % key), kind].append(offset)
    with Sorter(timed=False, size_bytes=size_bytes) as sorter:
        added(sorter, events, batch)
        parts = [part.copy() for part in sorter.parts()]
        again = told(sorter.parts())
    assert told(parts) == again
    assert again == {key: (min(of), max(of), len(of)) for key, of in expected.items()}
    assert sum(map(len, parts)) == len(expected)
    order = [(int(r["high"]), int(r["low"]), int(r["kind"])) for part in parts for r in part]
    assert order == sorted(order)
    homes = [{(int(r["high"]), int(r["low"])) for r in part} for part in parts]
    assert len(set().union(*homes)) == sum(map(len, homes))


def test_a_key_that_comes_all_the_time_takes_no_room() -> None:
    """Of a million equal events nothing is written: they are joined before the memory is full of them."""
    with Sorter(timed=False, size_bytes=1 << 20) as sorter:
        for start in range(0, 1_000_000, 10_000):
            digests = np.ones((10_000, 2), dtype=np.uint64)
            sorter.add(rows_of(False, DUE, digests, np.arange(start, start + 10_000)))
        assert sorter._file is None
        (rows,) = sorter.parts()
    assert rows.tolist() == [(1, 1, 0, 999_999, 1_000_000, DUE)]


@pytest.mark.parametrize("mean", [1e-12, 1e-7, 1e-3, 0.5, 2.0, 30.0])
def test_the_budget_is_where_chance_ends(mean: float) -> None:
    """The least count beyond which the Poisson distribution, summed term by term, has less than one in a million."""

    def tail(k: int) -> float:
        return sum(exp(-mean) * mean**i / factorial(i) for i in range(k + 1, k + 100))

    most = most_explained(mean)
    assert tail(most) < BEYOND_CHANCE * 1.001
    assert most == 0 or tail(most - 1) >= BEYOND_CHANCE * 0.999


def test_the_budget_of_many_keys() -> None:
    """Nothing is explained where nothing is expected; of very many, some five standard deviations more."""
    assert most_explained(0) == 0
    assert 4.7 < (most_explained(1e8) - 1e8) / 1e4 < 4.8
    assert more_than(5, 10) == 1.0


@pytest.mark.parametrize(
    ("retention", "max_jump"), [(7000, None), (7000, 2500), (None, None)], ids=str
)
def test_a_windows_time_is_that_of_the_worker(retention: int | None, max_jump: int | None) -> None:
    """What the worker's own rule emits is never doubled, and what it calls a duplicate would be, event by event."""
    chance = random.Random(f"{retention} {max_jump}")
    options = {"retention": retention, "generations": 8, "max_jump": max_jump}
    seen = build({"kind": "window", "capacity": 200, "error_rate": 1e-9, **options})
    rule = duplicates_rule(seen)
    clock = rules_for(200, retention, 8, "pass", False, max_jump).clock
    time, emitted, known = WindowTime(clock), [], 0
    held: dict[int, int] = {}
    for step in range(4000):
        key, at = (
            chance.randrange(300),
            10**9 + step * 20 + chance.choice([0, 0, -900, -9000, 3000]),
        )
        digest = MURMUR3.digests([b"%d" % key])
        passes = rule.judge(digest, np.array([at]), within_budget=False)[0] == 0
        list(rule.admit())
        before = time._mark
        (generation,), (reach,) = time.follow(np.array([at]))
        remembered = held.get(key, -(10**15)) > reach - 8
        assert passes != remembered, step
        if passes:
            emitted.append((key, generation, reach))
            held[key] = max(held.get(key, generation), int(generation))
        else:
            time._mark, known = before, known + 1  # it is not in the output
    assert known > 500
    assert len(emitted) > 500
    with Sorter(timed=True, size_bytes=10_000) as sorter:
        for offset, (key, generation, reach) in enumerate([*emitted, emitted[-1]]):
            made = rows_of(True, EMITTED, MURMUR3.digests([b"%d" % key]), np.array([offset]))
            made["generation"], made["reach"] = generation, reach
            sorter.add(made)
        found: Matches = match(sorter.parts(), generations=8)
    assert (found.doubled, found.examples["doubled"]) == (1, [len(emitted)])
    assert found.due_again == len(emitted) - len(held)
    keys = [key for key, *_ in emitted]
    late = sum(
        key in keys[:at] and generation <= reach - 8
        for at, (key, generation, reach) in enumerate(emitted)
    )
    assert found.late_again == late
    assert (late > 0) == (retention is not None)
