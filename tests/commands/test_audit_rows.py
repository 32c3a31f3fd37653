"""Claims about the audit's parts without a broker: sorting in little memory, matching, chance, a window's time."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.commands.audit.match import APART, match
from streamdedup.commands.audit.rows import (
    DROPPED,
    DUE,
    EMITTED,
    KINDS,
    KNOWN,
    Sorter,
    rows_of,
)
from streamdedup.delivery.window_time import Latest
from streamdedup.errors import StreamdedupError
from streamdedup.filters.window.rules import rules_for
from streamdedup.keys.hashing import MURMUR3

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
