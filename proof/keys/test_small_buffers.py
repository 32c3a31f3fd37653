"""Claims about kernels that append to a buffer: whatever its caller computed, nothing is written beyond it.

Those of Avro and Protobuf: `test_hostile_schemas`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamdedup.events import NULL, Column
from streamdedup.keys.formats import frames, framing, json_exact
from streamdedup.keys.hashing import frozen
from streamdedup.keys.normalizers import domains, email_column, url_column
from streamdedup.keys.normalizers.url_query import PARAMETERS_MAX
from streamdedup.keys.options import EmailRules, UrlRules

GUARD = 4_096
ROWS = 3

Cells = tuple[Any, Any, Any]  # the buffer, starts and sizes that a kernel reads
Run = Callable[[Cells, Any, Any, Any], Any]

_RULES = EmailRules.of("provider")


def cells_of(column: Column) -> Cells:
    """What a kernel reads of a column."""
    buffer = frozen(np.frombuffer(column.buffer, dtype=np.uint8), np.uint8)
    return buffer, frozen(column.starts, np.int64), frozen(column.sizes, np.int64)


def _end() -> Any:
    return np.zeros(1, dtype=np.int64)


def email(cells: Cells, out: Any, starts: Any, sizes: Any) -> None:
    """Normalize addresses."""
    table, special = email_column._table(_RULES), email_column._special()
    email_column.fill(*table, special, *cells, out, _end(), starts, sizes)


def url(cells: Cells, out: Any, starts: Any, sizes: Any, *, sorts: bool = False) -> None:
    """Normalize URLs into `out`; or only put their parameters into order there."""
    rules = url_column._switches(UrlRules()), url_column._dropped(UrlRules())
    large, ends = np.empty(1 << 14, dtype=np.uint8), np.empty((PARAMETERS_MAX, 2), dtype=np.int64)
    to, copy = (large, out) if sorts else (out, large)
    url_column.fill(*rules, *cells, to, _end(), copy, ends, starts, sizes)


def decode(cells: Cells, out: Any, starts: Any, sizes: Any) -> None:
    """Decode strings of JSON."""
    json_exact.decode(*cells, out, _end(), starts, sizes)


@pytest.mark.bounds
@pytest.mark.parametrize(
    ("run", "cell"),
    [
        (email, b"Some.One+tag@example.org"),
        (email, b"a@googlemail.com"),
        (url, b"http://h.example/~a b?z=1&a=2&b"),
        (partial(url, sorts=True), b"http://h.example/?z=" + b"1" * 300 + b"&a=2"),
        (decode, b"plain text without an escape"),
        (decode, b"\\u00e9\\ud83d\\ude00\\n"),
    ],
)
def test_nothing_is_written_beyond_a_buffer(run: Run, cell: bytes) -> None:
    """Of any size that is too small; what was written before stays."""
    cells = cells_of(Column.of([cell] * ROWS))
    for room in (0, 1, len(cell) // 2, len(cell), 2 * len(cell), 1 << 14):
        memory = np.full(room + GUARD, 0xEE, dtype=np.uint8)
        starts, sizes = np.full((2, ROWS), NULL, dtype=np.int64)
        run(cells, memory[:room], starts, sizes)
        assert (memory[room:] == 0xEE).all()
        written = sizes[sizes >= 0]
        assert len(written) == ROWS or room < (1 << 14)


@pytest.mark.bounds
def test_no_more_keys_of_domains_are_written_than_there_is_room_for() -> None:
    """Although `count` found more."""
    cells = cells_of(Column.of([b"a@b.c.example.org"] * ROWS))
    counts = np.empty(ROWS, dtype=np.int64)
    domains.count(np.uint8(ord("@")), *cells, counts)
    for room in (0, 1, int(counts.sum()) - 1):
        memory = np.full((2, room + GUARD), 7, dtype=np.int64)
        domains.fill(
            np.uint8(ord("@")), *cells, frozen(counts, np.int64), memory[0, :room], memory[1, :room]
        )
        assert (memory[:, room:] == 7).all()


@pytest.mark.bounds
def test_no_more_unknown_ids_are_noted_than_there_is_room_for() -> None:
    """Each value may have another one."""
    cells = cells_of(Column.of([b"\0" + number.to_bytes(4) for number in range(9)]))
    none = np.zeros(0, dtype=np.int64)
    memory = np.full(4 + GUARD, 7, dtype=np.int64)
    counts = _end()
    framing.look(*cells, frozen(none, np.int64), none, np.int64(0), memory[:4], counts)
    assert [*counts.tolist(), *memory[:4].tolist()] == [4, 0, 1, 2, 3]
    assert (memory[4:] == 7).all()


@pytest.mark.bounds
def test_a_value_without_room_is_not_copied() -> None:
    """Whoever computes the places may be wrong."""
    cells = cells_of(Column.of([b"abcdef", b"", None, b"gh"]))
    for room in range(9):
        memory = np.full(room + 64, 0xEE, dtype=np.uint8)
        places = np.array([0, 6, 6, 6])
        assert frames.put(*cells, memory[:room], places) == 4
        assert (memory[room:] == 0xEE).all()
        assert places.tolist() == [6 if room >= 6 else 0, 6, 6, 8 if room >= 8 else 6]
