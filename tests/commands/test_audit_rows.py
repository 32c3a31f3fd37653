"""Claims about the audit's parts without a broker: sorting in little memory, matching, chance, a window's time."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from math import exp, factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.commands.audit.chance import BEYOND_CHANCE, more_than, most_explained
from streamdedup.commands.audit.match import APART, Matches, match
from streamdedup.commands.audit.rows import (
    DROPPED,
    DUE,
    EMITTED,
    KINDS,
    KNOWN,
    Rows,
    Sorter,
    rows_of,
)
from streamdedup.commands.audit.window_time import Latest, WindowTime
from streamdedup.errors import StreamdedupError
from streamdedup.filters import build
from streamdedup.filters.window.rules import rules_for
from streamdedup.keys.hashing import MURMUR3
from streamdedup.rules import duplicates_rule

Given = list[tuple[int, int, int]]  # key, kind, offset
given_rows = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, KINDS - 1), st.integers(0, 999)), max_size=400
)


def added(sorter: Sorter, events: Given, batch: int) -> None:
    """Add events in batches."""
    for start in range(0, len(events), batch):
        part = events[start : start + batch]
        digests = MURMUR3.digests([b"%d" % key for key, _, _ in part])
        made = rows_of(False, 0, digests, np.array([offset for *_, offset in part]))
        made["kind"] = [kind for _, kind, _ in part]
        sorter.add(made)


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


def test_a_full_disk_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the temporary file cannot be written the audit says where that is, and what to do."""

    def full(**_: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with (
        Sorter(timed=False, size_bytes=1) as sorter,
        pytest.raises(StreamdedupError, match=r"No space left on device.*set TMPDIR"),
    ):
        added(sorter, [(key, DUE, key) for key in range(10)], 10)


@settings(max_examples=60, deadline=None)
@given(given_rows)
def test_matching_is_what_counters_say(events: Given) -> None:
    """Against an exact model of keys: what is missing, proven dropped, doubled or foreign."""
    events = [(key, kind % 4, offset) for key, kind, offset in events]
    with Sorter(timed=False, size_bytes=1000) as sorter:
        added(sorter, events, 20)
        found = match(sorter.parts())
    counts = [Counter(key for key, kind, _ in events if kind == k) for k in range(4)]
    due, emitted, known = counts[DUE], counts[EMITTED], counts[KNOWN]
    missing = set(due) - set(emitted)
    foreign = set(emitted) - set(due) - set(known)
    assert found.keys == len(due)
    assert found.missing == len(missing)
    assert found.wrongly_dropped == len(missing & set(counts[DROPPED]))
    assert found.doubled == sum(emitted.values()) - len(emitted)
    assert found.foreign == sum(emitted[key] for key in foreign)
    first = sorted(
        min(offset for k, kind, offset in events if (k, kind) == (key, DUE)) for key in missing
    )
    assert found.examples.get("missing", []) == first[:5]


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


@pytest.mark.parametrize("order", [1, -1])
def test_an_event_in_a_partition_of_another_key_is_not_one_that_was_forgotten(order: int) -> None:
    """No window has seen it, so it is neither doubled nor due again, whether it is the first or the second one."""
    times = [(-APART, APART), (3, 3)][::order]
    with Sorter(timed=True, size_bytes=10_000) as sorter:
        for offset, (generation, reach) in enumerate(times):
            made = rows_of(True, EMITTED, MURMUR3.digests([b"key"]), np.array([offset]))
            made["generation"], made["reach"] = generation, reach
            sorter.add(made)
        found = match(sorter.parts(), generations=8)
    assert (found.doubled, found.due_again, found.late_again) == (0, 0, 0)


def test_what_may_be_late_is_a_whole_window_older() -> None:
    """Judged by the greatest time of the input before it, across batches."""
    latest = Latest(rules_for(100, 7000, 8, "drop", False, None).clock)
    assert latest.may_be_late(np.array([10_000, 2_000, 1_999])).tolist() == [False, True, True]
    assert latest.may_be_late(np.array([3_000, 2_999, 20_000, 11_999])).tolist() == [
        *(False, True, False, True)
    ]
