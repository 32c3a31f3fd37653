"""Claims about the origin of an event in a middle topic: what is appended comes off again to the last byte.

And whatever else stands at the end of an event, it is never taken for an origin of ours.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.events import NULL, Column, EventBatch, Headers, Origin
from streamdedup.kafka.records.headers import RawHeaders
from streamdedup.kafka.records.origin_header import ORIGIN, found_in, marked, unmarked
from tests.kafka.test_columns import as_events, fetched
from tests.kafka.test_headers import Cells, column_of, values, wire_names, written
from tests.kafka.test_wire import LZ4, NONE, built, rows_by_chance, varint
from tests.rows import table

GROUP = "streamdedup/à"  # a group may have any character
NAME = ORIGIN.encode()
TOPIC, PARTITION = "clicks.of-all_1", 7
NULL_SIZE = b"\1"

some_headers = st.lists(
    st.tuples(wire_names | st.just(NAME), values | st.just(b"clicks/1/2/" + GROUP.encode())),
    max_size=5,
)
offsets = st.integers(0, (1 << 63) - 1) | st.integers(0, 2000)
events = st.lists(
    st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=200), some_headers),
    max_size=6,
)


def sized(cell: bytes | None) -> bytes:
    """A key or value as a record has it."""
    return NULL_SIZE if cell is None else bytes(varint(len(cell))) + cell


def batch_of(
    rows: Sequence[tuple[bytes | None, bytes | None, bytes]], first: int = 0
) -> EventBatch:
    """Events of these keys, values and bytes of headers, in one buffer, with other bytes between them."""
    bodies = column_of([sized(key) + sized(value) + headers for key, value, headers in rows])
    columns = []
    before = np.zeros(len(rows), dtype=np.int64)
    for cells in ([key for key, *_ in rows], [value for _, value, _ in rows]):
        heads = np.array([len(sized(cell)) - len(cell or b"") for cell in cells], dtype=np.int64)
        sizes = np.array([NULL if cell is None else len(cell) for cell in cells], dtype=np.int64)
        columns.append(Column(bodies.buffer, bodies.starts + before + heads, sizes))
        before += heads + np.maximum(sizes, 0)
    headers = Column(bodies.buffer, bodies.starts + before, bodies.sizes - before)
    every = np.arange(len(rows))
    return EventBatch(
        topic=TOPIC,
        partition=PARTITION,
        offsets=first + every,
        timestamps=1000 - every,
        keys=columns[0],
        values=columns[1],
        headers=RawHeaders(headers),
        next_offset=first + len(rows),
        bodies=bodies,
    )


def of_cells(
    rows: Sequence[tuple[bytes | None, bytes | None, Cells]], first: int = 0
) -> EventBatch:
    """The same, of headers that are well written."""
    return batch_of([(key, value, written(cells)) for key, value, cells in rows], first)


VALUE = re.compile(rb"([^/]{1,249})/(0|[1-9][0-9]*)/(0|[1-9][0-9]*)/(.*)", re.DOTALL)


def place_in(headers: Headers, group: str) -> tuple[bytes, int, int] | None:
    """The place that the last of these headers names for `group`; else None."""
    name, value = headers[-1] if headers else ("", None)
    named = VALUE.fullmatch(value or b"") if name == ORIGIN else None
    if named is None or named[4] != group.encode():
        return None
    partition, offset = int(named[2]), int(named[3])
    return (named[1], partition, offset) if partition < 1 << 31 and offset < 1 << 63 else None


def all_of(batch: EventBatch) -> list[Any]:
    """Everything of the events but their places."""
    columns = (batch.offsets.tolist(), batch.timestamps.tolist(), list(batch.keys))
    rest = (list(batch.values), [tuple(cells) for cells in batch.headers], batch.next_offset)
    return [batch.topic, batch.partition, *columns, *rest]


def places_of(batch: EventBatch) -> list[tuple[bytes | None, int, int]]:
    """Where the events lay."""
    places = batch.places
    assert places is not None
    assert len(places) == len(batch)
    numbers = places.partitions.tolist(), places.offsets.tolist()
    return list(zip(places.topics, *numbers, strict=True))


@pytest.mark.bounds
@given(events, offsets, st.data())
@example([(None, None, [(b"", b"")] * 63), (b"", b"", [(b"", None)] * 64)], 9, None)
@settings(deadline=None, max_examples=100)
@pytest.mark.rule(24)
def test_what_is_marked_is_unmarked_to_the_last_byte(rows: Any, offset: int, data: Any) -> None:
    """Of rows of any choice; and each event names where it lay. Names need not be UTF-8, and values may be null.

    An event may come with a header of that name, and even with an origin of our own.
    """
    batch = of_cells(rows, min(offset, (1 << 63) - 1 - len(rows)))
    chosen = data and data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    taken = np.flatnonzero(chosen) if data else np.arange(len(rows))
    few = batch.take(taken)
    there = marked(batch, taken, GROUP)
    places = [(TOPIC.encode(), PARTITION, offset) for offset in few.offsets.tolist()]
    for row, (topic, partition, at) in enumerate(places):
        origin = b"%b/%d/%d/%b" % (topic, partition, at, GROUP.encode())
        assert there.headers[row] == (*few.headers[row], (ORIGIN, origin))
    back, stranger = unmarked(there, GROUP)
    assert stranger is None
    assert list(back.bodies) == list(few.bodies)
    assert all_of(back) == all_of(few)
    assert places_of(back) == places
    assert back.bodies.buffer is back.keys.buffer is back.values.buffer


@given(st.lists(st.integers(0, 200), max_size=4))
@example([62, 63, 64, 65])
@example([8190, 8191, 8192])
@settings(deadline=None)
def test_the_count_may_need_more_bytes(counts: list[int]) -> None:
    """At 64 and 8192 headers its varint grows by a byte, and shrinks again."""
    batch = of_cells([(b"k", b"v", [(b"h", b"x")] * count) for count in counts])
    there = marked(batch, np.arange(len(counts)), GROUP)
    assert there.headers.counts().tolist() == [n + 1 for n in counts]
    back, stranger = unmarked(there, GROUP)
    assert stranger is None
    assert list(back.bodies) == list(batch.bodies)


@pytest.mark.parametrize("codec", [NONE, LZ4], ids=["none", "lz4"])
def test_record_batches_are_marked_and_unmarked(codec: int) -> None:
    """As fetched, compressed or not, in parts of any size: keys, values, headers and timestamps stay as they were."""
    for batch in fetched(built(rows_by_chance(23, 400), codec), events_max=150):
        there = marked(batch, np.arange(len(batch)), GROUP)
        back, stranger = unmarked(replace(there, origins=[Origin(0, len(there), "raw")]), GROUP)
        assert stranger is None
        assert as_events([back]) == as_events([batch])
        assert list(back.bodies) == list(batch.bodies)
        assert back.timestamps.tolist() == batch.timestamps.tolist()
        assert (list(there.origins), list(back.origins)) == ([], [])


def test_events_of_several_topics_name_their_own() -> None:
    """One after another, and again the first: each has its topic, and its numbers."""
    given = [b"a/0/9/g", b"a/1/0/g", b"bb/2147483647/9223372036854775807/g", b"a/0/1/g"]
    batch = of_cells([(b"k", b"v", [(b"h", b"1"), (NAME, value)]) for value in given])
    back, stranger = unmarked(batch, "g")
    expected = [(b"a", 0, 9), (b"a", 1, 0), (b"bb", (1 << 31) - 1, (1 << 63) - 1), (b"a", 0, 1)]
    assert (stranger, places_of(back)) == (None, expected)
    assert places_of(back.take(np.array([1, 2]))) == expected[1:3]
    assert places_of(back.head(2)) == expected[:2]
    assert [places_of(part) for part in back.parts(3)] == [expected[:3], expected[3:]]


STRANGE: dict[str, Cells] = {
    "none at all": [],
    "another header": [(b"id", b"t/0/0/g")],
    "not the last": [(NAME, b"t/0/0/g"), (b"id", b"1")],
    "a longer name": [(NAME + b"s", b"t/0/0/g")],
    "a shorter name": [(NAME[:-1], b"t/0/0/g")],
    "null": [(NAME, None)],
    "empty": [(NAME, b"")],
    "another group": [(NAME, b"t/0/0/h")],
    "a longer group": [(NAME, b"t/0/0/gg")],
    "no group": [(NAME, b"t/0/0/")],
    "no last slash": [(NAME, b"t/0/0")],
    "no topic": [(NAME, b"/0/0/g")],
    "a topic that is too long": [(NAME, b"t" * 250 + b"/0/0/g")],
    "no partition": [(NAME, b"t//0/g")],
    "no offset": [(NAME, b"t/0//g")],
    "a sign": [(NAME, b"t/-1/0/g")],
    "a plus": [(NAME, b"t/0/+1/g")],
    "a space": [(NAME, b"t/0/ 1/g")],
    "a digit beyond ASCII": [(NAME, "t/0/\u0661/g".encode())],
    "after the nine": [(NAME, b"t/0/:/g")],
    "a leading zero": [(NAME, b"t/0/01/g")],
    "a leading zero of a partition": [(NAME, b"t/00/1/g")],
    "a partition above 31 bits": [(NAME, b"t/2147483648/1/g")],
    "an offset above 63 bits": [(NAME, b"t/0/9223372036854775808/g")],
    "an offset above 64 bits": [(NAME, b"t/0/18446744073709551616/g")],
    "an offset of 30 digits": [(NAME, b"t/0/" + b"1" * 30 + b"/g")],
}


@table(STRANGE)
def test_a_strange_event_is_named(what: str) -> None:
    """By its offset; the events before it are there, and reading would go on with it."""
    ours: Cells = [(b"id", b"1"), (NAME, b"t/0/5/g")]
    batch = of_cells([(b"k", b"v", each) for each in (ours, ours, STRANGE[what], ours)], 40)
    assert place_in(batch.headers[2], "g") is None
    back, stranger = unmarked(batch, "g")
    assert (stranger, back.next_offset, back.offsets.tolist()) == (42, 42, [40, 41])
    assert places_of(back) == [(b"t", 0, 5)] * 2
    assert [list(cells) for cells in back.headers] == [[("id", b"1")]] * 2


def test_what_is_found_in_place_of_an_origin() -> None:
    """It is told by its kind; a group is named, but no other header, and no value."""
    batch = of_cells([(b"k", b"v", cells) for cells in STRANGE.values()])
    said = {what: found_in(batch, row, "g") for row, what in enumerate(STRANGE)}
    groups = {"another group": "h", "a longer group": "gg", "no group": ""}
    unnamed = {"none at all", "another header", "not the last", "a longer name", "a shorter name"}
    for what, text in said.items():
        if what in groups:
            assert text == f"the origin of group {groups[what]!r}"
        elif what in unnamed:
            assert text == f"no header {ORIGIN} at the end"
        else:
            assert text == f"a header {ORIGIN} that names no place of the input"
