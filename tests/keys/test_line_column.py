"""Claims about lines as a column: their bounds, and copies of those that are chosen, are those of a loop."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.keys.formats.line_column import bounds_of, chosen

texts = st.lists(st.sampled_from([b"\n", b"\n", b"\0", b"a", b"\r", b"x" * 100]), min_size=1).map(
    b"".join
)


@given(texts, st.sampled_from([b"\n", b"\0", b"a"]), st.lists(st.booleans(), min_size=1))
def test_any_lines_are_copied_as_a_loop_would(text: bytes, end: bytes, choice: list[bool]) -> None:
    """Whatever ends them, the last one perhaps not; also the first few of them alone."""
    bounds = bounds_of(text, end)
    lines = [text[start:stop] for start, stop in pairwise(bounds)]
    assert b"".join(lines) == text
    assert [line.removesuffix(end) for line in lines] == text.removesuffix(end).split(end)
    rows = np.resize(choice, len(lines))
    for count in (len(rows), len(rows) // 2):
        found = chosen(text, bounds, rows[:count])
        assert bytes(found) == b"".join(
            line for line, row in zip(lines[:count], rows[:count], strict=True) if row
        )


@pytest.mark.parametrize(
    "rows", [[True] * 3, [False] * 3, [False, True, False], [True, False, True]]
)
def test_neighbours_are_copied_together(rows: list[bool]) -> None:
    """All, none, one, and both ends; the last line has no end."""
    text = b"first\n\nlast"
    found = chosen(text, bounds_of(text, b"\n"), np.array(rows))
    lines = (b"first\n", b"\n", b"last")
    assert bytes(found) == b"".join(line for line, row in zip(lines, rows, strict=True) if row)
