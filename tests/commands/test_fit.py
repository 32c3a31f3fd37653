"""Claims about how many keys are remembered at once, and how they spread."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.commands.fit import most_at_once

HOUR_MS = 3_600_000


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=30),
    st.integers(1, 30),
)
def test_the_busiest_span_is_that_of_a_model(events: list[tuple[int, int]], window_ms: int) -> None:
    """The most distinct keys of any half-open span, wherever it ends."""
    keys, times = np.array(events, dtype=np.int64).reshape(-1, 2).T
    model = max(
        (len({key for key, at in events if end - window_ms < at <= end}) for _, end in events),
        default=0,
    )
    assert most_at_once(keys, times, window_ms) == model


@pytest.mark.parametrize(("window_h", "most"), [(1, 100), (30, 200), (1000, 300)])
def test_a_burst_counts_where_it_is_densest(window_h: int, most: int) -> None:
    """300 keys in three bursts a day apart; each event twice."""
    keys = np.repeat(np.arange(300), 2)
    times = keys // 100 * 24 * HOUR_MS
    assert most_at_once(keys, times, window_h * HOUR_MS) == most


def test_the_latest_timestamps_count_too() -> None:
    """Any int64 is one, and a span that begins there ends beyond all."""
    times = np.array([2**63 - 1, 2**63 - 2, 0, 1, 2], dtype=np.int64)
    assert most_at_once(np.arange(5), times, 1000) == 3
    assert most_at_once(np.arange(2), times[:2], 1000) == 2
