"""Claims about `pipe`: the first of equal lines passes, byte for byte, however it arrives."""

import codecs
import csv
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup import filters
from streamdedup.cli import main
from streamdedup.commands import lines
from streamdedup.commands.lines import Chunk, line_reader, whole_lines
from streamdedup.commands.pipe import FullError, Summary, deduplicate
from streamdedup.errors import ConfigError, StreamdedupError
from streamdedup.events import Column
from streamdedup.filters.base import Mask
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.keys.formats import texts
from streamdedup.keys.hashing import Digests

COMMAND = [sys.executable, "-m", "streamdedup", "pipe"]


# Dense in newlines and in the bytes that text tools trip over.
any_text = st.lists(
    st.sampled_from([b"\n", b"\n", b"a", b"b", b"\r", b"\0", b"\xff", b" ", b"\x0b", b"\x85"]),
    max_size=60,
).map(b"".join)


class Chunks:
    """A reader that gives its data in the sizes told, then one byte at a time."""

    def __init__(self, data: bytes, sizes: Sequence[int] = ()) -> None:
        self._data, self._sizes = io.BytesIO(data), iter(sizes)

    def read1(self, size: int, /) -> bytes:
        """At most `size` bytes."""
        return self._data.read(min(size, next(self._sizes, 1)))


@pytest.fixture(scope="module")
def homepages() -> bytes:
    """Read the home pages of packages, in their real order: 58,212 lines, 29,596 distinct."""
    packed = resources.files("streamdedup") / "data" / "homepages.txt.gz"
    return gzip.decompress(packed.read_bytes())


def test_the_home_pages_pass_as_in_a_model(homepages: bytes) -> None:
    """Of real input the lines that pass are the first occurrences, in order."""
    out, summary = _run(homepages, sizes=[65_536] * 100)
    assert out == _model(homepages)
    assert (summary.lines, summary.passed, summary.malformed) == (58_212, 29_596, 0)


@pytest.mark.skipif(shutil.which("awk") is None, reason="there is no awk to compare with")
def test_the_home_pages_pass_as_in_awk(homepages: bytes) -> None:
    """The command gives the same bytes as awk '!seen[$0]++'."""
    awk = subprocess.run(
        ["awk", "!seen[$0]++"],
        input=homepages,
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        check=True,
    )
    ours = subprocess.run(
        [*COMMAND, "--error-rate", "1e-9"], input=homepages, capture_output=True, check=True
    )
    assert ours.stdout == awk.stdout
    assert b"58,212 lines: 29,596 passed, 28,616 duplicates" in ours.stderr


@settings(deadline=None)
@given(any_text, st.lists(st.integers(1, 20), max_size=20))
def test_any_chunking_gives_the_same_lines(data: bytes, sizes: list[int]) -> None:
    """Wherever the input is cut into chunks, the output is that of the model."""
    out, summary = _run(data, sizes)
    assert out == _model(data)
    assert summary.lines == len(_lines(data))
    assert summary.passed == len(_lines(out))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", b""),
        (b"\n", b"\n"),
        (b"\n\n\n", b"\n"),
        (b"a", b"a"),
        (b"a\na", b"a\n"),
        (b"a\nb", b"a\nb"),
        (b"a\n\nb\n\na\n", b"a\n\nb\n"),
        (b"a\r\na\na\r\n", b"a\r\na\n"),
        (b"a\0b\na\0c\na\0b\n", b"a\0b\na\0c\n"),
        (b"a\na\0\na\n", b"a\na\0\n"),
        (b"\xff\xfe\n\xff\n\xff\xfe\n", b"\xff\xfe\n\xff\n"),
        (b"a \na\n a\n", b"a \na\n a\n"),
        (b"\x0c\x1c\x85\n\x0c\n", b"\x0c\x1c\x85\n\x0c\n"),
    ],
)
def test_lines_are_bytes(data: bytes, expected: bytes) -> None:
    """Nothing but a newline ends a line, nothing is decoded, an open last line stays open."""
    assert _run(data, [len(data) or 1])[0] == expected
    assert _run(data)[0] == expected


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_lines_longer_than_a_chunk_stay_whole(extra: int) -> None:
    """A line that ends just before, at or after the border of a chunk is one line."""
    long = b"x" * (lines.CHUNK_BYTES + extra)
    data = b"a\n" + long + b"\n" + long * 2 + b"\na\n" + long + b"\n"
    assert _run(data, [lines.CHUNK_BYTES] * 9)[0] == b"a\n" + long + b"\n" + long * 2 + b"\n"


def test_a_line_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line beyond the limit stops the run with the limit named, after the lines before it."""
    monkeypatch.setattr(texts, "LINE_BYTES_MAX", 100)
    fits = b"a\n" + b"x" * 100 + b"\n" + b"y" * 100
    assert _run(fits, [10] * 99)[0] == fits
    sink, source = io.BytesIO(), Chunks(b"a\n" + b"x" * 10_000, [10] * 9999)
    with pytest.raises(StreamdedupError, match="longer than 100 bytes"):
        deduplicate(source, sink.write, Bloom(10), summary=Summary(), warn=_unexpected)
    assert sink.getvalue() == b"a\n"
    assert len(source.read1(10_000)) == 10  # it did not read on to the end


def test_a_json_key_decides_and_the_line_passes() -> None:
    """Lines are equal where their keys are, whatever else they hold; the first passes as it is."""
    lines = [
        b'{"id": 7, "n": 1}',
        b'{"n": 2, "id": "7"}',
        b' {"id":"\\u0037"} \r',
        b'{"id": 8}',
        b'{"id": [7]}',
        b'{"id": [7]}',
    ]
    out, summary = _run(b"\n".join(lines), key="json:id")
    assert out.split(b"\n") == [lines[0], lines[3], lines[4], lines[5]]
    assert (summary.lines, summary.passed, summary.malformed) == (6, 4, 2)


def test_malformed_lines_pass_and_are_counted() -> None:
    """Lines without a key pass each time, in their place, and the summary says how many."""
    data = b'{"id": 1}\n\nnot json\n{"id": 1}\nnot json\n{"id": null}\n\xff\n{"id": 2}'
    out, summary = _run(data, key="json:id")
    assert out == b'{"id": 1}\n\nnot json\nnot json\n{"id": null}\n\xff\n{"id": 2}'
    assert (summary.lines, summary.passed, summary.malformed) == (8, 7, 5)
    said = summary.text(Bloom(10))
    assert "8 lines: 7 passed (5 malformed, passed unjudged), 1 duplicate;" in said
    assert "hint" not in said


def test_a_key_that_no_line_has_is_told() -> None:
    """Where all lines are malformed the summary says why the first is: --key was wrong, rather than they."""
    _, summary = _run(b'{"id": "s3cr3t"}\nnot json\n', key="json:user")
    hint = summary.text(Bloom(10)).splitlines()[-1]
    assert (
        hint
        == "hint: no line had the key; in the first, the field user is missing; check --key and --normalize"
    )
    assert "hint" not in _run(b"", key="json:user")[1].text(Bloom(10))


def test_one_is_written_as_one() -> None:
    """The summary counts one line and one duplicate, the messages one key, without a plural."""
    assert _run(b"a\n")[1].text(Bloom(10)).startswith("1 line: 1 passed, 0 duplicates; ")
    assert _run(b"a\na\n")[1].text(Bloom(10)).startswith("2 lines: 1 passed, 1 duplicate; ")
    with pytest.raises(FullError, match="it holds 1 key, so line 2 "):
        deduplicate(
            Chunks(b"a\nb\n"),
            io.BytesIO().write,
            Bloom(1, 1e-9),
            summary=Summary(),
            warn=_unexpected,
        )


@pytest.mark.parametrize("field", ["user.id", "/user/id"])
def test_json_keys_take_paths(field: str) -> None:
    """The field is a path as in the configuration."""
    data = b'{"user": {"id": 1}}\n{"user": {"id": "1"}}\n'
    assert _run(data, key=f"json:{field}")[0] == b'{"user": {"id": 1}}\n'


BESIDE = [rb'"\ud83e"', b"1e999", b"NaN", b"[-Infinity, -1e999]", rb'{"\udd14": "\udd14\ud83e"}']


@pytest.mark.parametrize("beside", BESIDE)
def test_what_does_not_decode_beside_the_key_hides_no_duplicate(beside: bytes) -> None:
    """Nor does a byte order mark before any line, as where files were put one after the other."""
    line = b'{"id": 7, "x": %s}' % beside
    other = line.replace(b"7", b"8")
    marked = b"\xef\xbb\xbf" + line
    out, summary = _run(b"\n".join([marked, line, other, line, marked]), key="json:id")
    assert out == marked + b"\n" + other + b"\n"
    assert (summary.passed, summary.malformed) == (2, 0)


def test_fields_may_stand_in_for_each_other() -> None:
    """Written as in `key.parts`; without a comma between brackets it is one field, as before."""
    lines = [
        b'{"after": {"id": 7}, "[a]": 1}',
        b'{"after": null, "before": {"id": 7}, "[a]": 1}',
        b'{"before": {"id": 8}, "[a]": 1}',
        b'{"after": {"id": {}}, "before": {"id": 8}, "[a]": 1}',
    ]
    data = b"\n".join(lines) + b"\n"
    out, summary = _run(data, key="json:[after.id, /before/id]")
    assert out.splitlines() == [lines[0], lines[2], lines[3]]
    assert summary.first == {"the field after.id is an object": 4}
    assert _run(data, key="json:[a]")[0].splitlines() == lines[:1]
    with pytest.raises(ConfigError, match=r"has an empty field; write json:\[FIELD, FIELD\]"):
        line_reader(["json:[a,,b]"])


def test_several_fields_make_one_key() -> None:
    """Given several times, json fields are taken together, with names that may hold a comma."""
    lines = [
        b'{"a": "xy", "b,c": "z"}',
        b'{"a": "x", "b,c": "yz"}',
        b'{"b,c": "z", "a": "xy", "d": 1}',
    ]
    sink = io.BytesIO()
    deduplicate(
        Chunks(b"".join(line + b"\n" for line in lines)),
        sink.write,
        Bloom(10),
        read=line_reader(["json:a", "json:b,c"]),
        summary=Summary(),
        warn=_unexpected,
    )
    assert sink.getvalue().splitlines() == lines[:2]


CSV = b'id,name\r\n7,"a, b"\r\n8,"two\nlines"\r\n"7",again\r\n\r\n9,"said ""so"""\r\n8,more\r\nx'


def test_the_key_is_a_column_of_csv() -> None:
    """By its name the header passes; by a number the first line is a record. A record may take several lines."""
    for sizes in ([], [100]):
        out, summary = _run(CSV, sizes, key="csv:id")
        assert out == CSV.replace(b'"7",again\r\n', b"").replace(b"8,more\r\n", b"")
        assert (summary.lines, summary.passed, summary.malformed) == (7, 5, 1)
        assert summary.first == {"the line has too few columns": 6}
        out, summary = _run(CSV, sizes, key="csv:1")
        assert out.startswith(b"id,name\r\n7")
        assert (summary.lines, summary.passed, summary.malformed) == (8, 6, 1)


def test_several_columns_make_one_key_and_are_normalized() -> None:
    """As fields of JSON are; a record without one of them passes."""
    data, sink = b"a,b\nX,1\nx,2\nx ,1\nx\n", io.BytesIO()
    reader = line_reader(["csv:a", "csv:2"], "lowercase")
    summary = Summary()
    deduplicate(Chunks(data), sink.write, Bloom(10), read=reader, summary=summary, warn=_unexpected)
    assert sink.getvalue() == b"a,b\nX,1\nx,2\nx\n"
    assert (summary.lines, summary.malformed) == (4, 1)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("mails,x", "has 0 columns with that name among 2: mails, x; name one of these, or give"),
        ("mail,x,mail", "has 2 columns with that name among 3: mail, x, mail; "),
        ("id;mail", "separator seems to be another one: --separator ';'"),
        ("id\tmail", "separator seems to be another one: --separator 'tab'"),
        ('id,mail"', 'among 2: id, mail"; a quote within a name is part of it; '),
        ('id,"mail', "is no header: the record at line 1 takes 2 lines: an unclosed quote?; "),
        ('"id"x,mail', "is no header: the line is not CSV: its quotes do not match"),
        ('"id";"mail"', "no header, or its --separator, perhaps ';'"),
        ('"id"\t"mail"', "no header, or its --separator, perhaps 'tab'"),
        ("sep=;", "is Excel's sep=: delete it, and give --separator ';'"),
        ('"sep=\t"\r', "is Excel's sep=: delete it, and give --separator 'tab'"),
        ("\ufeffSEP=,", "is Excel's sep=: delete it, and give --separator ','"),
        (
            '"' + 30 * "id\n" + '",m',
            "is no header: the record at line 1 takes 31 lines: an unclosed",
        ),
        ("\x1b[2J,\x00", r"among 2: \x1b[2J, \x00; "),
        (",".join(map(str, range(99))), " 18, 19 and 79 more; "),
        (99 * "x", f"among 1: {40 * 'x'}...; "),
    ],
)
def test_a_column_that_is_not_there_is_the_operators_error(header: str, said: str) -> None:
    """The message names the columns that there are, and what is probably wrong."""
    with pytest.raises(ConfigError) as refusal:
        _run(f"{header}\n1,2\n".encode(), key="csv:mail")
    assert str(refusal.value).startswith("--key csv:mail: the first line of the input ")
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("csv:mail", "2 records: 1 passed, 1 duplicate; "),
        ("csv:1", "3 records: 3 passed, 0 duplicates; "),
        ("line", "5 lines: 4 passed, 1 duplicate; "),
    ],
)
def test_the_summary_counts_what_there_is(
    key: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A record of CSV that takes several lines is one."""
    (tmp_path / "in.csv").write_bytes(b'id,mail\n1,"two\nlines"\n2,"two\nlines"\n')
    assert main(["pipe", str(tmp_path / "in.csv"), "--key", key]) == 0
    assert said in capfd.readouterr().err


MAILS = [b"user%d@bad.example" % i for i in range(1, 501)]


@pytest.mark.parametrize(
    ("strays", "takes"),
    [
        ([(3, b'"', 0)], {3: 998}),
        ([(3, b'"', 0), (400, b'"', 99)], {3: 398}),
        ([(3, b'"', 0), (400, b'"', 0)], {3: 398, 400: 601}),
        ([(3, b'"', 0), (30, b'"', 99), (99, b'"', 0)], {3: 28, 99: 902}),
        ([(500, b'"', 0)], {500: 501}),
        ([(3, b'"""', 0), (400, b'"', 1)], {3: 398}),
    ],
    ids=["one", "pair", "two that open", "pair and one", "late", "three"],
)
@pytest.mark.parametrize("columns", [1, 2, 3])
def test_a_stray_quote_costs_its_own_line(
    strays: list[tuple[int, bytes, int]], takes: dict[int, int], columns: int
) -> None:
    """Wherever it is, all other lines are judged, and all pass the first time. The reason has its place and size."""
    for place in range(columns):
        rows = [[mail, b"Anna", b"x"][:columns] for mail in MAILS]
        again = b"".join(b",".join(row) + b"\n" for row in rows)
        for number, quote, at in strays:
            cell = rows[number - 1][place]
            rows[number - 1][place] = cell[:at] + quote + cell[at:]
        data = b"".join(b",".join(row) + b"\n" for row in rows)
        out, summary = _run(data + again, [len(data)], key="csv:1")
        assert out.startswith(data)
        left = out.removeprefix(data).splitlines()
        assert set(left) <= set(again.splitlines())
        assert len(left) <= len(strays)
        assert summary.first == {
            f"the record at line {number} takes {count} lines: an unclosed quote?": number
            for number, count in takes.items()
        }


@pytest.mark.parametrize(
    ("lines", "passed"),
    [
        (['2,"b', "3,a", "4,a", '5,"c"', "6,a"], ['2,"b', '5,"c"']),
        (['2,"b', "3,a", '4,"c'], ['2,"b', '4,"c']),
        (['2,"b', *["3,a"] * 18, '"4",c'], ['2,"b', '"4",c']),
        (['"2,b', "3,a", '"4, x",a'], ['"2,b']),
        (['2,"b', "3,a", '4,"c', "5,a", '6,"a"'], ['2,"b', '4,"c']),
        (['2,"b" x,"', "evil", '3,a"'], ['2,"b" x,"', "evil", '3,a"']),
        (['2,"b', "3,a,a", '4,"c"', "5,a"], ['2,"b', "3,a,a", '4,"c"']),
    ],
)
def test_a_stray_quote_costs_its_own_line_if_another_follows(
    lines: list[str], passed: list[str]
) -> None:
    """The lines between them are judged, if each could be a record. If not, one record takes them, which passes."""
    data = "\n".join(["id,mail", "1,a", *lines, ""]).encode()
    out, summary = _run(data, key="csv:mail")
    assert out.decode().splitlines() == ["id,mail", "1,a", *passed]
    assert min(summary.first.values()) == 3


@pytest.mark.parametrize(
    ("place", "last", "said"),
    [
        (0, 4, "1 line read as parts of other records"),
        (0, 15, "12 lines read as parts of other records"),
        (2, 15, "12 lines read as parts of other records"),
        (2, 22, "19 lines read as parts of other records"),
    ],
)
def test_lines_that_two_strays_swallow_are_named(place: int, last: int, said: str) -> None:
    """A record of few lines is believed, so they may be dropped with its key, but not without a word."""
    rows = [[b"x", b"a%d" % number, b"note"] for number in range(1, 40)]
    rows[2][place] = b'"' + rows[2][place]
    rows[last - 1][place] += b'"'
    again = rows[last - 1 if place == 0 else 2][1]  # the record's key
    data = b"".join(b",".join(row) + b"\n" for row in [[b"x", again, b"z"], *rows])
    out, summary = _run(data, key="csv:2")
    assert out.count(b"\n") == 40 - (last - 2)
    place_of = "the first: line 5, in the record at line 4: an unclosed quote?"
    warning = f"\nwarning: {said}, though they are records by themselves; {place_of}"
    assert warning in summary.text(Bloom(10))


@pytest.mark.parametrize(
    "record",
    [b'x,a,"Dear Anna,\nit works, mostly.\nYours"\n', b'x,a,"one\ntwo"\n', b'x,"a\nb",y\n'],
)
def test_a_note_of_some_lines_is_no_warning(record: bytes) -> None:
    """Its lines are no records."""
    _, summary = _run(b"n,id,note\n" + 3 * record, key="csv:id")
    assert "warning" not in summary.text(Bloom(10))


NOTE = b"".join(b"evil%d@bad.example\n" % (i % 7) for i in range(9000))


@pytest.mark.parametrize(
    "record",
    [
        b'1,"' + NOTE + b'"\n',
        b'1,"' + NOTE.replace(b"@", b'""@') + b'",x\n',
        b'1,"' + 200_000 * b"x" + b"\n" + NOTE + b'"\r\n',
        b"1," + 200_000 * b"y" + b"\n",
        b'1,"' + 200_000 * b'""' + b'"\n',
        b'1,"a"b,"\nevil@bad.example\nevil@bad.example\n"\n',
    ],
    ids=["lines", "quotes", "long line", "no quotes", "only quotes", "its quotes do not match"],
)
def test_a_long_record_is_read_to_its_end(record: bytes) -> None:
    """Its lines are no records: none is dropped because it came before, and none is a key."""
    data = b"id,note\n" + record + b"2,b\n3,evil1@bad.example\n"
    for key in ("csv:id", "csv:1"):
        out, summary = _run(data + data.partition(b"\n")[2], [1 << 20] * 9, key=key)
        assert out.startswith(data)
        assert len(out) in (len(data), len(data) + len(record))  # again, if it is malformed
        assert summary.lines == 6 + (key == "csv:1")


@pytest.mark.parametrize("line", [b'a","c', b'a"b,"c', b'"', b'""', b'x,"""', b'"a', b',""x'])
def test_quotes_in_every_line_take_linear_time(line: bytes) -> None:
    """A line that is read again is not read to the end of the input again. All lines pass that differ."""
    rows = [b"%d,%b" % (i, line) for i in range(30_000)]
    data = b"".join(row + b"\n" for row in rows)
    began = time.process_time()
    out, _ = _run(data, [1 << 20], key="csv:1")
    assert out == data
    assert time.process_time() - began < 10  # in quadratic time it takes minutes


@pytest.mark.parametrize(("name", "mark"), [(";", b";"), ("|", b"|"), ("tab", b"\t")])
def test_csv_may_have_other_separators(name: str, mark: bytes) -> None:
    """If it is given, a comma is text; if it is not, the reason of a line without the column names it."""
    data = b"id%bn\n1,0%b2\n1,1%b3\n1,0%b4\n" % (mark, mark, mark, mark)
    sink = io.BytesIO()
    for key in ("csv:id", "csv:1"):
        reader = line_reader([key], separator=mark.decode())
        sink = io.BytesIO()
        source = Chunks(data)
        deduplicate(source, sink.write, Bloom(10), read=reader, summary=Summary(), warn=_unexpected)
        assert sink.getvalue() == data.rpartition(b"1,0")[0]
    _, summary = _run(data.replace(b",", b"_"), key="csv:2")
    assert list(summary.first.values()) == [1]
    assert f"--separator '{name}'" in next(iter(summary.first))
    with pytest.raises(ConfigError, match="--separator is for --key csv:COLUMN"):
        line_reader(["json:id"], separator=";")


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"a\na\nb\n", "line"),
        (b'{"id": 1}\n{"id": 1, "n": 2}\n', "json:id"),
        (b'"id",n\n1,2\n1,3\n', "csv:id"),
        (b"7,2\n7,3\n", "csv:1"),
        (b'"7",2\n7,3\n', "csv:1"),
        (b'"id\nid",n\n1,2\n1,3\n', "csv:n"),
    ],
)
def test_a_byte_order_mark_is_no_part_of_the_first_key(data: bytes, key: str) -> None:
    """It passes as it is; only the first line has one, everywhere else it is text."""
    for sizes in ([], [len(data) + 3]):
        out = _run(data, sizes, key=key)[0]
        marked, summary = _run(texts.BYTE_ORDER_MARK + data, sizes, key=key)
        assert marked == texts.BYTE_ORDER_MARK + out
        assert summary.malformed == 0
    assert len(_run(b"a\n\xef\xbb\xbfa\n")[0].splitlines()) == 2


@pytest.mark.parametrize("key", ["line", "json:id", "csv:id"])
@pytest.mark.parametrize("text", ["a\na\n", "a", "\u4e00\n\u4e00\n", '{"id": 1}\n'])
def test_utf_16_is_refused_before_anything_is_written(text: str, key: str) -> None:
    """Its lines are none of bytes: the first has the mark, and each newline is cut in two."""
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        data = mark + text.encode(encoding)
        for sizes in ([], [1] * len(data)):
            with pytest.raises(ConfigError, match=r"is UTF-16; convert it first, .* iconv"):
                _run(data, sizes, key=key)


def test_reasons_are_counted_and_have_places() -> None:
    """The most frequent first; also if only some lines are malformed."""
    good = b'{"id": 1}\n'
    data = good + b"x\n" + b'{"no": 1}\n' * 3 + good + b"y\n"
    summary = _run(data, key="json:id")[1]
    assert (summary.lines, summary.malformed) == (7, 5)
    text = summary.text(Bloom(10))
    assert re.search(r"malformed 3 times: [^\n]+; first at line 3\n", text)
    assert re.search(r"malformed 2 times: [^\n]+; first at line 2, at byte 1$", text)
    assert "hint" not in text
    assert (
        _run(b"x\n", key="json:id")[1]
        .text(Bloom(10))
        .endswith("a value is missing or wrong; check --key and --normalize")
    )
    lines_of = b'a,b\n"x\ny",1\nz\n'
    assert list(_run(lines_of, key="csv:b")[1].first.values()) == [4]


def test_reasons_are_bounded() -> None:
    """Each may name a place in its line."""
    summary = Summary()
    rows = {row: f"reason {row}" for row in range(1000)}
    summary.note(Chunk([b"x"] * 1000, Column.of([b"x"] * 1000), rows, 5), rows)
    assert sum(summary.reasons.values()) == summary.malformed == 1000
    assert len(summary.first) == 101
    assert summary.first["reason 7"] == 12
    assert "other reasons" in summary.text(Bloom(10))


def test_cells_that_are_blank_are_keys_as_they_are() -> None:
    """An empty cell is the empty key; one of blanks is another."""
    out, summary = _run(b'id\n""\n  \n"\n"\n  \n""\n', key="csv:id")
    assert out == b'id\n""\n  \n"\n"\n'
    assert (summary.lines, summary.malformed) == (5, 0)


def test_the_header_may_have_a_byte_order_mark_and_an_empty_input_has_none() -> None:
    """Some editors write one; it passes as it is."""
    data = "\ufeffid,n\n1,2\n1,3\n".encode()
    assert _run(data, key="csv:id")[0] == data.removesuffix(b"1,3\n")
    assert _run(b"", key="csv:id")[0] == b""


def test_a_record_that_passed_keeps_its_newline() -> None:
    """The last record of the input has none, and does not pass."""
    for sizes in ([], [100], [12, 100]):
        assert _run(b'x,1\ny,2\nx,"a\n",', sizes, key="csv:1")[0] == b"x,1\ny,2\n"


def test_stray_quotes_make_a_record_malformed() -> None:
    """It passes as it is, and the next one is read."""
    data = b'1,"a"b\n2,c\n2,d\n3,"open\n'
    out, summary = _run(data, key="csv:1")
    assert out == b'1,"a"b\n2,c\n3,"open\n'
    assert summary.malformed == 2


@given(
    st.lists(st.lists(st.text(max_size=3), min_size=2, max_size=3), max_size=8),
    st.lists(st.integers(1, 9)),
)
@settings(deadline=None)
def test_what_python_writes_as_csv_is_copied(rows: list[list[str]], sizes: list[int]) -> None:
    """Whatever the cells hold, and however the input arrives: the first record of each key passes."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    data = text.getvalue().encode("utf-8", "surrogatepass").replace(b"\r", b"_")
    out, _ = _run(data, sizes, key="csv:2")
    read = list(csv.reader(io.StringIO(data.decode("utf-8", "replace"), newline="")))
    keys = [row[1] for row in read]
    left = csv.reader(io.StringIO(out.decode("utf-8", "replace"), newline=""))
    assert list(left) == [row for at, row in enumerate(read) if keys[at] not in keys[:at]]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ([""], "--key '' is neither 'line' nor 'json:FIELD' nor 'csv:COLUMN'"),
        (
            ["id"],
            "--key is neither 'line' nor 'json:FIELD' nor 'csv:COLUMN'; write json: before the name of a field",
        ),
        (["line:x"], "--key 'line:x' is neither 'line' nor 'json:FIELD' nor 'csv:COLUMN'"),
        (["json"], "--key 'json' is neither 'line' nor 'json:FIELD' nor 'csv:COLUMN'"),
        (["json:a", "json:"], "--key 'json:' is neither 'line' nor 'json:FIELD' nor 'csv:COLUMN'"),
        (["tsv:1"], "--key is neither 'line' nor 'json:FIELD' nor 'csv:COLUMN'"),
        (["csv:"], "--key 'csv:' is neither 'line' nor 'json:FIELD' nor 'csv:COLUMN'"),
        (["csv:0"], "--key csv:0: columns are counted from 1"),
        (["csv:a", "json:a"], "--key json: and csv: are of lines of two formats"),
        (
            ["json:a", "line"],
            "--key line is the whole line, so it cannot be combined with another key",
        ),
    ],
)
def test_an_unknown_key_is_the_operators_error(keys: list[str], said: str) -> None:
    """A --key of another form is refused with the forms there are."""
    with pytest.raises(ConfigError) as refusal:
        line_reader(keys)
    assert str(refusal.value).partition("; delete")[0] == said


def test_the_line_is_the_key_of_lines() -> None:
    """Without a field there is nothing to take from a line, however often that is said."""
    assert line_reader(["line"]) is line_reader(["line", "line"]) is whole_lines


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 9) | st.none(), max_size=40),
    st.integers(1, 8),
    st.lists(st.integers(1, 60), max_size=20),
)
def test_at_capacity_all_before_is_written(
    ids: list[int | None], capacity: int, sizes: list[int]
) -> None:
    """A full filter stops at the first line with a new key: those before are out, none after is.

    Known keys and malformed lines still go their way in a filter that is exactly full.
    """
    lines = [b"malformed" if i is None else b'{"id": %d}' % i for i in ids]
    expected, taken = _model_with_room(lines, capacity)
    sink, summary, seen = io.BytesIO(), Summary(), Bloom(capacity, 1e-9)
    source = Chunks(b"".join(line + b"\n" for line in lines), sizes)
    try:
        read = line_reader(["json:id"])
        deduplicate(source, sink.write, seen, read=read, summary=summary, warn=_unexpected)
    except FullError as error:
        assert taken < len(lines)
        assert f"line {taken + 1:,} " in str(error)
    else:
        assert taken == len(lines)
    assert sink.getvalue() == expected
    assert (summary.lines, summary.passed) == (taken, len(_lines(expected)))
    assert len(seen) <= capacity


def test_a_window_is_never_full() -> None:
    """It forgets instead: all lines pass that the last ones do not have, without a warning."""
    seen = filters.build({"kind": "window", "capacity": 70})
    lines = [b"%d" % i for i in [*range(500), *range(430, 500), *range(10)]]
    out, summary, warnings = io.BytesIO(), Summary(), list[str]()
    source = io.BytesIO(b"\n".join(lines))
    deduplicate(source, out.write, seen, on_full="stop", summary=summary, warn=warnings.append)
    assert (summary.lines, summary.passed, warnings) == (580, 510, [])
    assert "BEYOND" not in summary.text(seen)


def test_a_growth_that_gets_no_memory_ends_the_copy() -> None:
    """By an error that says how far it came, not by a traceback."""

    class Starved(Bloom):
        """A filter whose growth fails."""

        def add_many(self, digests: Digests) -> Mask:
            """Fail."""
            raise MemoryError(f"no place for {len(digests)} keys")

    summary = Summary()
    with pytest.raises(FullError, match=r"no memory for the filter to grow.*after line 0 did not"):
        deduplicate(
            Chunks(b"a\n", [2]),
            io.BytesIO().write,
            Starved(10, 1e-9),
            on_full="grow",
            summary=summary,
            warn=_unexpected,
        )


def test_on_full_warn_goes_on() -> None:
    """With "warn" a full filter goes on taking keys, and the summary shows more keys than room."""
    seen, sink, summary, _ = _overfill(keys=15)
    assert sink == b"".join(b"%d\n" % i for i in range(15))
    assert "15 of 10 keys" in summary.text(seen)


def test_a_warning_is_given_once_when_capacity_is_passed() -> None:
    """It names the line, the capacity and the remedy; a filter that is exactly full is silent."""
    assert _overfill(keys=10)[3] == []
    (warning,) = _overfill(keys=15)[3]
    assert warning.startswith("the filter is full: by line 11 it holds more than 10 keys; ")
    assert warning.endswith("; give a larger --capacity")


def _overfill(keys: int) -> tuple[Bloom, bytes, Summary, list[str]]:
    """Pass so many keys through a filter for ten, a line at a time, and return what was said."""
    seen, sink, summary, warnings = Bloom(10, 1e-9), io.BytesIO(), Summary(), list[str]()
    data = b"".join(b"%d\n" % i for i in range(keys))
    source = Chunks(data, [2] * 10 + [3] * 9)
    deduplicate(source, sink.write, seen, on_full="warn", summary=summary, warn=warnings.append)
    return seen, sink.getvalue(), summary, warnings


def test_a_failing_input_is_named_and_a_failing_output_is_left_to_the_caller() -> None:
    """The side that fails is named, with the system's reason."""

    def fail(_: object) -> bytes:
        raise OSError(5, "Input/output error")

    failing, fine = Chunks(b""), Chunks(b"a\n", [2])
    failing.read1 = fail  # type: ignore[method-assign]  # the system refuses it
    with pytest.raises(StreamdedupError, match=r"^the input cannot be read: Input/output error$"):
        deduplicate(failing, _unexpected, Bloom(10), summary=Summary(), warn=_unexpected)
    with pytest.raises(OSError, match="Input/output error"):
        deduplicate(fine, fail, Bloom(10), summary=Summary(), warn=_unexpected)


def test_a_sink_that_nobody_reads_ends_the_run() -> None:
    """It is asked for after each chunk, also where nothing new comes that would be written."""
    source, sink, summary = Chunks(b"a\na\na\na\n", [2, 2, 2, 2]), io.BytesIO(), Summary()
    answers = iter([False, False, True])
    deduplicate(
        source,
        sink.write,
        Bloom(10),
        summary=summary,
        warn=_unexpected,
        is_unread=lambda: next(answers),
    )
    assert (sink.getvalue(), summary.lines) == (b"a\n", 3)
    assert source.read1(2) == b"a\n"


def _run(data: bytes, sizes: Sequence[int] = (), key: str = "line") -> tuple[bytes, Summary]:
    sink, summary = io.BytesIO(), Summary()
    deduplicate(
        Chunks(data, sizes),
        sink.write,
        Bloom(100_000, 1e-9),
        read=line_reader([key]),
        summary=summary,
        warn=_unexpected,
    )
    return sink.getvalue(), summary


def _unexpected(warning: object) -> None:
    raise AssertionError(warning)


def _lines(data: bytes) -> list[bytes]:
    """Split `data` into lines, each with its newline but the last where it has none."""
    *closed, last = data.split(b"\n")
    return [line + b"\n" for line in closed] + ([last] if last else [])


def _model(data: bytes) -> bytes:
    first: dict[bytes, bytes] = {}
    for line in _lines(data):
        first.setdefault(line.removesuffix(b"\n"), line)
    return b"".join(first.values())


def _model_with_room(lines: list[bytes], room: int) -> tuple[bytes, int]:
    """Return what passes before the first new key without room, and the lines taken."""
    met: set[int] = set()
    out: list[bytes] = []
    for taken, line in enumerate(lines):
        key = None if line == b"malformed" else json.loads(line)["id"]
        if key is not None and key not in met and len(met) == room:
            return b"".join(out), taken
        if key is None or key not in met:
            out.append(line + b"\n")
        if key is not None:
            met.add(key)
    return b"".join(out), len(lines)
