"""Claims about the cells of a window: whatever their width, they are seen as they are, and keys get the same ones."""

import hashlib
import itertools
from typing import Any

import numba
import numpy as np

from streamdedup import build
from streamdedup.filters.sizing import WINDOW_CELLS, WINDOW_WHOLE_BITS, window_tag_bits
from streamdedup.filters.window.cells import (
    first_cell,
    free_in,
    get,
    held_in,
    layout_at,
    layout_fields,
    look,
    put,
)
from tests.filters.cases import random_digests
from tests.rows import table

BUCKETS = 100
MARK = 3
WIDTHS = [11, 16, 17, 21, 22, 31, WINDOW_WHOLE_BITS, 33, 63]
"""Of a cell, in bits: four in a word, two, or one; and as many as fill a word, and more."""

_seen: Any = numba.njit(
    lambda words, fields, current, bucket, mark: (
        look(words, layout_at(fields, current), bucket, mark),
        held_in(words, layout_at(fields, current), bucket, mark),
        free_in(words, layout_at(fields, current), bucket),
    )
)
_put: Any = numba.njit(
    lambda words, fields, cell, content: put(words, layout_at(fields, 0), cell, content)
)
_get: Any = numba.njit(lambda words, fields, cell: get(words, layout_at(fields, 0), cell))
_first: Any = numba.njit(lambda bucket, cells: first_cell(bucket, cells))  # noqa: PLW0108


@table(itertools.product(WIDTHS, [2, 31, 64], [-1000, 0, 12345]))
def test_a_bucket_is_seen_as_its_cells_are(row: tuple[int, int, int]) -> None:
    """Free are those of 0, and those whose generation has passed; of the others, those with a mark hold it."""
    bits, generations, current = row
    tag_bits = window_tag_bits(generations)
    chance = np.random.default_rng(bits)
    count = BUCKETS * WINDOW_CELLS
    marks = chance.choice([0, 1, MARK, 2 ** (bits - tag_bits) - 1], count)
    tags = np.where(marks != 0, chance.integers(0, 1 << tag_bits, count), 0)
    contents = [int(mark) << tag_bits | int(tag) for mark, tag in zip(marks, tags, strict=True)]
    fields, words = _table(bits, tag_bits, generations)
    for cell, content in enumerate(contents):
        _put(words, fields, np.uint64(cell), np.uint64(content))
    assert [int(_get(words, fields, np.uint64(cell))) for cell in range(count)] == contents
    free = (marks == 0) | ((current - tags) % (1 << tag_bits) >= generations)
    for bucket in range(BUCKETS):
        cells = slice(bucket * WINDOW_CELLS, (bucket + 1) * WINDOW_CELLS)
        due = _bits(~free[cells] & (marks[cells] == MARK)), _bits(free[cells])
        seen = _seen(words, fields, current, np.uint64(bucket), np.uint64(MARK))
        assert seen == (due, *due)


def test_the_first_of_some_cells_is_that_of_the_lowest_bit() -> None:
    """If there are none, it is the first of the bucket."""
    for cells in range(1 << WINDOW_CELLS):
        first = next((i for i in range(WINDOW_CELLS) if cells >> i & 1), 0)
        assert _first(np.uint64(5), np.uint64(cells)) == 5 * WINDOW_CELLS + first


@table([(1e-2, "9d4533573716e504"), (1e-6, "062cd7a763bfa306"), (1e-9, "41fe93b8ee876f1a")])
def test_keys_get_the_cells_that_they_always_got(row: tuple[float, str]) -> None:
    """From empty to full and three turns on, with searches, some keys twice: else a fold would give another table."""
    error_rate, digest = row
    window: Any = build(
        {"kind": "window", "capacity": 5000, "error_rate": error_rate, "retention": 30_000}
    )
    digests = random_digests(81, 20_000)
    for first in range(0, len(digests), 1000):
        rows = np.maximum(0, np.arange(first, first + 1000) - 50 * (np.arange(1000) % 7 == 0))
        window.add_many(digests[rows], np.arange(first, first + 1000) * 31_000 // 5800)
    table = hashlib.sha256(window.buffers()[0]).hexdigest()
    assert table[:16] == digest


def _table(bits: int, tag_bits: int, generations: int) -> tuple[Any, Any]:
    fields = layout_fields(BUCKETS, bits, tag_bits, generations, 0, 0)
    return fields, np.zeros(-(-BUCKETS * WINDOW_CELLS * bits // 64) + 1, dtype=np.uint64)


def _bits(cells: Any) -> int:
    return sum(bool(is_set) << i for i, is_set in enumerate(cells))
