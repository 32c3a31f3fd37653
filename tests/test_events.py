"""Claims about columns and batches: what was put in comes out, nulls and empty cells apart."""

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup import events
from streamdedup.events import (
    COPY_PIECE_BYTES,
    Column,
    EventBatch,
    Origin,
    Places,
    Verdict,
    concatenated,
)
from streamdedup.kafka.records.records import Record, batch_of

Cells = list[bytes | None]

cells = st.lists(st.none() | st.binary(max_size=5), max_size=20)


@given(cells)
def test_a_column_gives_back_its_cells(given: Cells) -> None:
    """Iterating and indexing both give the cells, and a null stays apart from an empty cell."""
    column = Column.of(given)
    assert len(column) == len(given)
    assert list(column) == given
    assert [column[row] for row in range(len(column))] == given


def test_a_column_reads_where_it_is_told() -> None:
    """Cells may stand anywhere in the buffer: in any order, apart, or over one another."""
    starts, sizes = np.array([4, 0, 0, 9]), np.array([3, 5, -1, 0])
    column = Column(b"abcdefghi", starts, sizes)
    assert list(column) == [b"efg", b"abcde", None, b""]
    assert column[0] == b"efg"


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_head_of_a_batch(count: int) -> None:
    """The head has the first rows of every column, and reading goes on at the first row left."""
    batch = _batch()
    head = batch.head(count)
    assert len(head) == count
    assert (head.topic, head.partition) == ("clicks", 3)
    assert head.offsets.tolist() == [10, 13, 14][:count]
    assert head.timestamps.tolist() == [1000, 1001, 1002][:count]
    assert list(head.keys) == [b"k", None, b""][:count]
    assert list(head.values) == [None, b"v", b"w"][:count]
    assert list(head.headers) == [(("h", b"1"),), (), (("h", None),)][:count]
    assert head.next_offset == [10, 13, 14][count]
    assert batch.next_offset == 20


def test_the_head_of_a_head() -> None:
    """Cutting twice is the same as cutting once."""
    assert _rows(_batch().head(2).head(1)) == _rows(_batch().head(1))


@pytest.mark.parametrize("events", [1, 2, 3, 4])
def test_the_parts_of_a_batch_are_all_of_it(events: int) -> None:
    """They follow each other without a gap, none is too long, and the last goes on where the batch does."""
    batch = _batch()
    parts = list(batch.parts(events))
    assert max(map(len, parts)) == min(events, 3)
    assert [offset for part in parts for offset in part.offsets.tolist()] == [10, 13, 14]
    assert [cell for part in parts for cell in part.keys] == [b"k", None, b""]
    assert [cell for part in parts for cell in part.headers] == list(batch.headers)
    assert [part.next_offset for part in parts] == [*(int(p.offsets[0]) for p in parts[1:]), 20]


def test_the_parts_of_a_batch_know_the_record_batches_that_are_whole() -> None:
    """One that is cut in two is in neither part; the rows of the others count from the first of theirs."""
    whole = replace(_batch(), origins=[Origin(0, 1, "a"), Origin(1, 3, "b")])
    assert [list(part.origins) for part in whole.parts(2)] == [[(0, 1, "a")], []]
    assert [list(part.origins) for part in whole.parts(1)] == [[(0, 1, "a")], [], []]
    shifted = replace(_batch(), origins=[Origin(0, 2, "a"), Origin(2, 3, "b")])
    assert [list(part.origins) for part in shifted.parts(2)] == [[(0, 2, "a")], [(0, 1, "b")]]


def test_places_go_with_their_events() -> None:
    """Whatever part is taken of a batch, its places are those of its events; without places there are none."""
    topics = Column.of([b"a", b"b", b"a"])
    places = Places(topics=topics, partitions=np.array([0, 1, 2]), offsets=np.array([5, 6, 7]))
    whole = replace(_batch(), places=places)
    parts = [whole, whole.head(2), whole.take(np.array([0, 2])), *whole.parts(2)]
    found = [part.places and part.places.offsets.tolist() for part in parts]
    assert found == [[5, 6, 7], [5, 6], [5, 7], [5, 6], [7]]
    assert [list(part.places.topics) for part in parts[2:] if part.places] == [
        [b"a", b"a"],
        [b"a", b"b"],
        [b"a"],
    ]
    assert [part.places.partitions.tolist() for part in parts[2:] if part.places] == [
        [0, 2],
        [0, 1],
        [2],
    ]
    assert [part.places for part in (_batch().head(2), *_batch().parts(2))] == [None] * 3
    assert _batch().take(np.array([1])).places is None


def test_verdicts_keep_their_numbers() -> None:
    """The numbers of verdicts stand in metrics and arrays, so they never change."""
    assert [(v.name, v.value) for v in Verdict] == [
        ("PASS", 0),
        ("DUPLICATE", 1),
        ("BLOCKED", 2),
        ("MALFORMED", 3),
        ("REJECTED", 4),
    ]


def _batch() -> EventBatch:
    records = [
        Record.of(1000, b"k", None, [("h", b"1")]),
        Record.of(1001, None, b"v"),
        Record.of(1002, b"", b"w", [("h", None)]),
    ]
    return batch_of("clicks", 3, [10, 13, 14], records, next_offset=20)


def _rows(batch: EventBatch) -> tuple[list[int], Cells, Cells, int]:
    return batch.offsets.tolist(), list(batch.keys), list(batch.values), batch.next_offset


parts = st.lists(st.binary(max_size=9), max_size=5)


@given(parts, st.sampled_from([bytes, memoryview, lambda part: np.frombuffer(part, np.uint8).data]))
def test_parts_are_joined_however_large(given: list[bytes], kind: Callable[[bytes], Any]) -> None:
    """In pieces or at once, of strings, views and arrays of bytes."""
    for piece_bytes in (1, 3, events.COPY_PIECE_BYTES):
        with patch.object(events, "COPY_PIECE_BYTES", piece_bytes):
            assert concatenated(map(kind, given)) == b"".join(given)


def test_a_large_cell_beside_others_is_copied_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """No piece is so large that its copy keeps other threads waiting, whoever puts a column together."""
    pieces = list[int]()

    class Noted(BytesIO):
        def write(self, piece: Any) -> int:
            pieces.append(len(piece))
            return super().write(piece)

    monkeypatch.setattr(events, "BytesIO", Noted)
    large, size = b"a" * (3 * COPY_PIECE_BYTES + 5), 3 * COPY_PIECE_BYTES + 5
    column = Column.of([large, b"b"])
    assert list(column.replaced(np.array([1]), Column.of([b"c"]))) == [large, b"c"]
    assert sum(pieces) == 2 * (size + 1)
    assert max(pieces) == COPY_PIECE_BYTES
