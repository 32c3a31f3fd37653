"""Claims about marks: they are appended as a producer would write them, and read as a fold has to."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.events import Column, EventBatch, Headers, Integers, Verdict
from streamdedup.kafka.client.open_batches import OpenBatches
from streamdedup.kafka.options import MARK
from streamdedup.kafka.records import headers, walk
from streamdedup.kafka.records.headers import RawHeaders
from streamdedup.kafka.records.marks import appended, mark, marked_rows, marks_of
from streamdedup.kafka.records.records import Record, batch_of, records_of
from tests.kafka.test_columns import as_events, as_objects, copied, fetched
from tests.kafka.test_wire import NONE, NOW_MS, Row, built, rows_by_chance

PASS, DUPLICATE, BLOCKED = (int(v) for v in (Verdict.PASS, Verdict.DUPLICATE, Verdict.BLOCKED))
TAILS: list[Headers] = [mark(Verdict.PASS), (*mark(Verdict.BLOCKED), ("größe", None), ("", b""))]


def as_columns(rows: Sequence[Row]) -> EventBatch:
    """Events of these rows, as they are cut from a record batch."""
    [found] = fetched(built(rows), events_max=10**6)
    assert isinstance(found.headers, RawHeaders)
    return found  # type: ignore[no-any-return]


def headed(*headers: Headers) -> list[Row]:
    """Rows of these headers."""
    return [(offset, NOW_MS, b"k", b"v", each) for offset, each in enumerate(headers)]


# --- appending ---


@pytest.mark.parametrize("count", [63, 64, 8_191])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_appended_is_read_behind_all_else(seed: int, count: int) -> None:
    """By aiokafka, of records of every shape, all of them or some; keys, values and the headers before it stay."""
    rows = rows_by_chance(seed, 300)
    rows[7] = (*rows[7][:4], tuple(("h", b"%d" % n) for n in range(count)))  # its count grows
    batch, chance = as_columns(rows), np.random.default_rng(seed)
    for some in (np.arange(300), np.flatnonzero(chance.random(300) < 0.3)):
        which = chance.integers(0, len(TAILS), len(some))
        longer = appended(batch, some, TAILS, which)
        tails = {row: TAILS[tail] for row, tail in zip(some.tolist(), which.tolist(), strict=True)}
        expected = [
            (*event, (*headers, *tails.get(at, ())))
            for at, (*event, headers) in enumerate(as_events([batch]))
        ]
        assert as_events([longer]) == expected
        sent = [event for one in copied(longer, np.arange(300)) for event in as_objects(one)]
        assert [event[1:] for event in sent] == [event[1:] for event in expected]


NUMBERS = [0, 9, 10, 99, 12_345, -1, -10, (1 << 63) - 1, -(1 << 63), 1_700_000_000_000]


def test_numbers_are_written_in_decimal_digits() -> None:
    """Each as Python writes it, under its name, behind the tail."""
    batch, rows = as_columns(rows_by_chance(4, len(NUMBERS))), np.arange(len(NUMBERS))
    which = np.zeros(len(NUMBERS), dtype=np.int64)
    numbers = {"größe": np.array(NUMBERS), "": np.array(NUMBERS[::-1])}
    longer = appended(batch, rows, TAILS, which, numbers)
    digits = zip(NUMBERS, NUMBERS[::-1], strict=True)
    told = [(("größe", b"%d" % one), ("", b"%d" % other)) for one, other in digits]
    assert as_events([longer]) == [
        (*event, (*headers, *TAILS[0], *its))
        for (*event, headers), its in zip(as_events([batch]), told, strict=True)
    ]


def test_a_mark_is_looked_for_if_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest mark, with an empty value, is found. If no row has as many bytes of headers, no row is read."""
    other: Headers = ((MARK[1:], b""),)
    batch = as_columns(headed((), other, ((MARK, b""),)))
    assert marked_rows(batch.headers).tolist() == [2]
    monkeypatch.setattr(walk, "last_header", lambda *_: pytest.fail("a row was read"))
    assert not len(marked_rows(batch.head(2).headers))
    assert marks_of(batch.head(2).headers).tolist() == [Verdict.PASS] * 2


def test_what_is_not_marked_is_the_very_batch() -> None:
    """Nothing is copied where nothing has to be."""
    batch = as_columns(rows_by_chance(1, 10))
    none: Integers = np.zeros(0, dtype=np.int64)
    assert appended(batch, none, TAILS, none) is batch


def test_a_record_batch_without_a_mark_is_still_copied_whole() -> None:
    """And one of which an event is marked is not: it would go out without its mark."""
    keys = [b"x" * 20_000 for _ in range(40)]
    rows: list[Row] = [(at, NOW_MS, key, b"v", ()) for at, key in enumerate(keys)]
    batch = as_columns(rows)
    assert len(batch.origins) == 1
    assert not appended(batch, np.array([3]), TAILS, np.array([0])).origins
    encoder = OpenBatches(NONE, transactional=False)
    longer = appended(batch, np.array([3]), TAILS, np.array([0]))
    sent = [*encoder.copy("t", longer, np.arange(40), 1 << 22), *encoder.finish("t")]
    marked = [event[3] for one in sent for event in as_objects(bytes(one._build()))]
    assert marked == [TAILS[0] if at == 3 else () for at in range(40)]


@pytest.mark.parametrize(("head", "size"), [(-1, 10), (11, 10), (0, 1 << 40)])
def test_headers_outside_of_their_body_are_refused(head: int, size: int) -> None:
    """Nothing is read or written beside the buffer."""
    bodies = Column(b"\1\1\0" * 4, np.array([0]), np.array([size]))
    raw = RawHeaders(Column(bodies.buffer, np.array([head]), np.array([1])))
    with pytest.raises((ValueError, MemoryError)):
        headers.appended(bodies, raw.starts, np.array([0]), TAILS, np.array([0]), {})


# --- reading ---

texts = st.sampled_from([b"pass", b"duplicate", b"blocked", b"malformed", b"Pass", b"", b"passe"])
cells = st.tuples(st.sampled_from([MARK, MARK + "s", "a"]), st.none() | texts)


@given(st.lists(st.lists(cells, max_size=4).map(tuple), max_size=8))
@example([((MARK, b"duplicate"), (MARK, b"pass")), ((MARK, b"blocked"), (MARK, None)), ()])
@settings(deadline=None, max_examples=200)
def test_the_last_mark_counts(given_headers: list[Headers]) -> None:
    """Whatever stood before it; a null, or what is no verdict, marks as nothing does."""
    names = {verdict.name.lower().encode(): int(verdict) for verdict in Verdict}
    last = [dict(each).get(MARK) for each in given_headers]
    records = [Record.of(NOW_MS, None, None, each) for each in given_headers]
    made = batch_of("t", 0, range(len(records)), records, next_offset=len(records)).headers
    assert marks_of(made).tolist() == [names.get(value or b"", PASS) for value in last]
    assert marked_rows(made).tolist() == [row for row, v in enumerate(last) if v is not None]


def test_an_event_that_brings_a_mark_gets_ours_behind_it() -> None:
    """So that the last one is never that of whoever wrote the input."""
    batch = as_columns(headed(((MARK, b"duplicate"),), (), ((MARK, b"blocked"), ("a", b"1"))))
    rows = marked_rows(batch.headers)
    assert rows.tolist() == [0, 2]
    ours = appended(batch, rows, [mark(Verdict.PASS)], np.zeros(2, dtype=np.int64))
    assert marks_of(batch.headers).tolist() == [DUPLICATE, PASS, BLOCKED]
    assert not marks_of(ours.headers).any()
    assert [record.headers for record in records_of(ours, np.arange(3))][1] == ()
