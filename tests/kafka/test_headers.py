"""Claims about a header that a kernel finds: it is that of the reader, byte by byte, or is left to it."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.events import ABSENT, NULL, Column
from streamdedup.kafka.records import walk
from streamdedup.kafka.records.headers import RawHeaders
from streamdedup.keys.cells import each
from streamdedup.keys.extract import Extractor, _header, _last_header
from tests.kafka.test_columns import fetched
from tests.kafka.test_wire import LZ4, NONE, built, rows_by_chance, theirs, varint
from tests.watching import watched

Cells = list[tuple[bytes, bytes | None]]  # the headers of an event; a name is any bytes
AFTER = (b"", b"\x02\x04id\x02x", b"\x80", b"\x01\x01")  # what stands between the rows

NAMES = ["id", "", "größe", "i", "idx", "\ufffd", "i\ufffd", "\ud800", "n" * 64]
wire_names = st.sampled_from(
    [
        *(name.encode("utf-8", "surrogatepass") for name in NAMES),
        *(b"\xff", b"i\xff", b"\xc3", b"gr\xc3", b"i\0", b"ID", b"\xed\xa0"),
    ]
) | st.binary(max_size=4)
values = st.none() | st.binary(max_size=3) | st.just(b"v" * 100)
rows = st.lists(st.lists(st.tuples(wire_names, values), max_size=5), max_size=6)


def written(cells: Cells) -> bytes:
    """These headers, as a record has them behind its value."""
    parts = [bytes(varint(len(cells)))]
    for name, value in cells:
        size = b"\1" if value is None else bytes(varint(len(value)))
        parts += [bytes(varint(len(name))), name, size, value or b""]
    return b"".join(parts)


def column_of(texts: list[bytes]) -> Column:
    """Each of `texts` between others in one buffer, which would complete what is cut short."""
    sizes = np.array([len(text) for text in texts], dtype=np.int64)
    parts = [text + AFTER[row % len(AFTER)] for row, text in enumerate(texts)]
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return Column(b"".join(parts), ends[:-1], sizes)


def read_by_python(name: str, column: RawHeaders) -> tuple[list[bytes | None], dict[int, str]]:
    """What the reader of objects finds."""
    keys, reasons = each(partial(_last_header, name=name), list(column))
    return list(keys), reasons


@pytest.mark.bounds
@given(rows, st.sampled_from(NAMES))
@example([[(b"id", b"1"), (b"id", b"2"), (b"x", b"3")], [(b"id", b"1"), (b"id", None)], []], "id")
@example([[(b"i\xff", b"1")], [("i\ufffd".encode(), b"2")]], "i\ufffd")
@example([[(b"\xed\xa0\x80", b"1")]], "\ud800")
@settings(deadline=None, max_examples=100)
def test_every_header_is_that_of_the_reader(events: list[Cells], name: str) -> None:
    """Several of a name, empty names, nulls, names beyond ASCII and UTF-8, none at all: the same keys and reasons."""
    column = RawHeaders(column_of([written(cells) for cells in events]))
    keys, reasons, absent = _header(column, name, slice(None))
    assert absent.tolist() == list(reasons)
    assert (list(keys), reasons) == read_by_python(name, column)
    assert list(reasons) == sorted(reasons)


@given(rows, st.sampled_from(["id", "", "größe"]))
@settings(deadline=None)
def test_no_plain_header_is_left_to_the_reader(events: list[Cells], name: str) -> None:
    """The kernel finds every value that is there, and tells null from missing, so that Python reads no row."""
    found = RawHeaders(column_of([written(cells) for cells in events])).located(name)
    last = [dict(cells).get(name.encode(), ABSENT) for cells in events]
    assert list(found) == [None if value == ABSENT else value for value in last]
    nothing = [value if value in (None, ABSENT) else 0 for value in last]
    assert np.minimum(found.sizes, 0).tolist() == [NULL if n is None else n for n in nothing]


SMALL = [written([(b"a", b"1"), (b"id", b"k")]), written([(b"id", None), (b"id", b"kk")])]


def changed(text: bytes) -> Iterator[bytes]:
    """The same with each byte replaced by each other, and cut short anywhere."""
    for at in range(len(text)):
        yield text[:at]
        yield from (text[:at] + bytes([byte]) + text[at + 1 :] for byte in range(256))


@pytest.mark.bounds
@pytest.mark.parametrize("whole", SMALL, ids=["two", "null first"])
def test_what_is_no_header_is_left_to_the_reader(whole: bytes) -> None:
    """Of bytes that `walk` would refuse, none is a key: a row's value ends where the row's bytes do."""
    texts = list(changed(whole))
    found = RawHeaders(column_of(texts)).located("id")
    for text, cell in zip(texts, found, strict=True):
        alone = RawHeaders(Column.of([text]))  # nothing is behind it, so nothing may be read there
        assert list(alone.located("id")) == [cell]
        if cell is not None:
            assert read_by_python("id", alone) == ([cell], {})
    assert (found.sizes >= 0).any()


@pytest.mark.bounds
def test_rows_outside_of_the_buffer() -> None:
    """They are not read, however large their numbers."""
    text = written([(b"id", b"k")])
    starts = np.array([0, -1, 1, 1 << 62, 0, 0, len(text)])
    sizes = np.array([len(text), 2, len(text), 1 << 62, len(text) + 1, -1, 0])
    found = RawHeaders(Column(text, starts, sizes)).located("id")
    assert list(found) == [b"k", None, None, None, None, None, None]


def test_many_headers_take_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows and headers, a call is short, and all rows are read."""
    spent: list[float] = []
    monkeypatch.setattr(walk, "last_header", watched(walk.last_header, spent))
    filler: Cells = [(b"", b"")] * 60
    texts = [written([*filler, (b"id", b"%d" % row)]) for row in range(3_000)]
    assert list(RawHeaders(Column.of(texts)).located("id")) == [b"%d" % row for row in range(3_000)]
    assert len(spent) >= 180_000 / (1 << 16)
    assert sorted(spent)[-2] < 0.01, spent  # the machine may have had other work once


@pytest.mark.parametrize("codec", [NONE, LZ4], ids=["none", "lz4"])
@pytest.mark.parametrize("name", ["a", "", "größe", "n" * 70])
def test_of_record_batches_the_keys_are_those_of_their_objects(name: str, codec: int) -> None:
    """Read from within a batch, in parts of any size: what aiokafka reads there, by Kafka's own rule."""
    rows = rows_by_chance(17, 400)
    data = built(rows, codec) + built(rows, base=1000)
    extractor = Extractor("header", (name,), "judge")
    found: list[bytes | None] = []
    for batch in fetched(data, start=150, events_max=90):
        found += extractor.extract(batch).keys
    wanted = [dict(headers).get(name) for offset, *_, headers in theirs(data) if offset >= 150]
    assert found == wanted
    assert set(wanted) == {None, b"", b"x" * 150}
