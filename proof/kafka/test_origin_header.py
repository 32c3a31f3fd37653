"""Bytes of strangers at the end of an event, never taken for an origin, and never read or written out of bounds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.events import UNREAD, Column
from streamdedup.kafka.records import origin_rows
from streamdedup.kafka.records.headers import RawHeaders
from streamdedup.kafka.records.origin_header import marked, unmarked
from tests.kafka.test_headers import changed, written
from tests.kafka.test_origin_header import NAME, batch_of, place_in, places_of

WHOLE = written([(b"h", None), (NAME, b"tt/10/205/g")])


@pytest.mark.bounds
def test_bytes_that_are_no_headers_are_strange() -> None:
    """Whatever one byte becomes, what the kernel takes for an origin is what a reader of headers finds there."""
    taken = 0
    for text in [*changed(WHOLE), *(WHOLE + bytes([byte]) for byte in range(256))]:
        alone = batch_of([(b"k", b"v", text)])
        back, stranger = unmarked(alone, "g")
        if alone.headers.located("").sizes == UNREAD:  # no record: `walk` would refuse it
            assert stranger == 0
            continue
        place = place_in(alone.headers[0], "g")
        assert (stranger is None) == (place is not None)
        if place is not None:
            taken += 1
            assert places_of(back) == [place]
            assert back.headers[0] == alone.headers[0][:-1]
            assert (back.keys[0], back.values[0]) == (b"k", b"v")
    assert taken > 500  # most of them: another header, topic, partition or offset


@pytest.mark.bounds
@given(st.lists(st.binary(max_size=60), max_size=5))
@settings(deadline=None, max_examples=300)
def test_any_bytes_may_stand_for_headers(texts: list[bytes]) -> None:
    """Nothing fails, and nothing outside of the row is read, whatever would complete it there."""
    batch = batch_of([(b"k", None, text) for text in [*texts, WHOLE]])
    back, stranger = unmarked(batch, "g")
    assert (stranger is None) == (len(back) == len(batch))
    few = len(texts)
    assert stranger is not None or places_of(back)[few] == (b"tt", 10, 205)


@pytest.mark.bounds
def test_rows_outside_of_the_buffer_are_strange() -> None:
    """They are not read, however large their numbers; `marked` refuses them."""
    batch = batch_of([(b"k", b"v", WHOLE)])
    size, head = int(batch.bodies.sizes[0]), int(batch.headers.starts[0])
    end = len(batch.bodies.buffer)
    places = [(-1, size, head), (end, size, head), (1 << 62, 1 << 62, head), (0, -1, head)]
    places += [(0, end + 1, head), (0, size, -1), (0, size, size + 1), (0, size, 1 << 62)]
    for start, taken, header_start in places:
        starts, sizes, heads = (np.array([n]) for n in (start, taken, header_start))
        wrong = replace(
            batch,
            bodies=Column(batch.bodies.buffer, starts, sizes),
            headers=RawHeaders(Column(batch.bodies.buffer, heads, np.ones(1, np.int64))),
        )
        out, table = np.zeros(end, np.uint8), np.zeros((origin_rows.COLUMNS, 1), np.int64)
        name, group = np.frombuffer(NAME, np.uint8), np.frombuffer(b"g", np.uint8)
        buffer = np.frombuffer(batch.bodies.buffer, np.uint8)
        columns = frozen(starts), frozen(sizes), frozen(heads)
        assert origin_rows.take_off(buffer, *columns, name, group, out, table) == 0
        if taken <= end:
            with pytest.raises(ValueError, match="the headers of row 0 do not lie in its body"):
                marked(wrong, np.zeros(1, np.int64), "g")


def frozen(numbers: Any) -> Any:
    """The same array, read-only, as kernels get it."""
    numbers.flags.writeable = False
    return numbers


@pytest.mark.bounds
def test_what_does_not_fit_is_not_written() -> None:
    """Either kernel stops before a row for which there is no room."""
    batch = batch_of([(b"k", b"v", WHOLE)])
    buffer, name = np.frombuffer(batch.bodies.buffer, np.uint8), np.frombuffer(b"\2n", np.uint8)
    places = batch.bodies.starts, batch.bodies.sizes, batch.headers.starts
    begins, sizes_of, heads = (frozen(column.copy()) for column in places)
    one, offset = np.frombuffer(b"g", np.uint8), frozen(np.array([7]))
    size = int(batch.bodies.sizes[0])
    longer = size + 2 + 1 + 3  # the name, the size of the value, the value
    for room in range(longer + 2):
        out = np.zeros(room + 9, np.uint8)
        starts, sizes = np.zeros((2, 1), np.int64)
        done = origin_rows.append(
            buffer, begins, sizes_of, heads, name, one, one, offset, out[:room], starts, sizes
        )
        assert (done, int(sizes[0])) == ((1, longer) if room >= longer else (0, 0))
        assert not out[room:].any()
        out, table = np.zeros(room + 9, np.uint8), np.zeros((origin_rows.COLUMNS, 1), np.int64)
        ours = np.frombuffer(NAME, np.uint8)
        assert origin_rows.take_off(
            buffer, begins, sizes_of, heads, ours, one, out[:room], table
        ) == (room >= size)
        assert not out[room:].any()
