"""Claims about `pipe`: the first of equal lines passes, byte for byte, however it arrives."""

import csv
import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.commands import lines
from streamdedup.commands.lines import Chunk, line_reader, whole_lines
from streamdedup.commands.pipe import FullError, Summary, deduplicate
from streamdedup.errors import ConfigError, StreamdedupError
from streamdedup.events import Column
from streamdedup.filters.base import Mask
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.keys.hashing import Digests
from tests.commands.test_pipe import (
    Chunks,
    _lines,
    _run,
    _unexpected,
    homepages,  # noqa: F401 - a fixture
)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's VmHWM")
def test_memory_does_not_grow_with_the_input() -> None:
    """Four million distinct lines peak no higher than one million: the filter and a chunk."""
    peaks = [_peak_bytes(lines) for lines in (1_000_000, 4_000_000)]
    assert peaks[1] - peaks[0] < 4 << 20  # the three million lines between them are 36 MB


def _peak_bytes(lines: int) -> int:
    """Run the command over `lines` lines and return the most memory its process ever held."""
    program = (
        "import sys\n"
        "from streamdedup.cli import main\n"
        "main(['pipe', '--capacity', '4M', '--error-rate', '0.1', '--on-full', 'warn'])\n"
        "peak = next(l for l in open('/proc/self/status') if l.startswith('VmHWM'))\n"
        "print(peak.split()[1], file=sys.stderr)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        for start in range(0, lines, 100_000):
            process.stdin.write(b"".join(b"%011d\n" % i for i in range(start, start + 100_000)))
        process.stdin.close()
        report = process.stderr.read().split(b"\n")
    assert b"%s lines" % f"{lines:,}".encode() in report[0]
    return int(report[-2]) * 1024


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_lines_longer_than_a_chunk_stay_whole(extra: int) -> None:
    """A line that ends just before, at or after the border of a chunk is one line."""
    long = b"x" * (lines.CHUNK_BYTES + extra)
    data = b"a\n" + long + b"\n" + long * 2 + b"\na\n" + long + b"\n"
    assert _run(data, [lines.CHUNK_BYTES] * 9)[0] == b"a\n" + long + b"\n" + long * 2 + b"\n"


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


def test_reasons_are_bounded() -> None:
    """Each may name a place in its line."""
    summary = Summary()
    rows = {row: f"reason {row}" for row in range(1000)}
    text, bounds = b"x\n" * 1000, np.arange(0, 2001, 2)
    summary.note(Chunk(text, bounds, Column.of([b"x"] * 1000), rows, 5), rows)
    assert sum(summary.reasons.values()) == summary.malformed == 1000
    assert len(summary.first) == 101
    assert summary.first["reason 7"] == 12
    assert "other reasons" in summary.text(Bloom(10))


def test_a_record_that_passed_keeps_its_newline() -> None:
    """The last record of the input has none, and does not pass."""
    for sizes in ([], [100], [12, 100]):
        assert _run(b'x,1\ny,2\nx,"a\n",', sizes, key="csv:1")[0] == b"x,1\ny,2\n"


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
        deduplicate(read(source), sink.write, seen, summary=summary, warn=_unexpected)
    except FullError as error:
        assert taken < len(lines)
        assert f"line {taken + 1:,} " in str(error)
    else:
        assert taken == len(lines)
    assert sink.getvalue() == expected
    assert (summary.lines, summary.passed) == (taken, len(_lines(expected)))
    assert len(seen) <= capacity


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
            whole_lines(Chunks(b"a\n", [2])),
            io.BytesIO().write,
            Starved(10, 1e-9),
            on_full="grow",
            summary=summary,
            warn=_unexpected,
        )


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


@pytest.mark.parametrize(("name", "mark"), [(";", b";"), ("|", b"|"), ("tab", b"\t")])
def test_csv_may_have_other_separators(name: str, mark: bytes) -> None:
    """If it is given, a comma is text; if it is not, the reason of a line without the column names it."""
    data = b"id%bn\n1,0%b2\n1,1%b3\n1,0%b4\n" % (mark, mark, mark, mark)
    for key in ("csv:id", "csv:1"):
        assert _run(data, key=key, separator=mark.decode())[0] == data.rpartition(b"1,0")[0]
    _, summary = _run(data.replace(b",", b"_"), key="csv:2")
    assert list(summary.first.values()) == [1]
    assert f"--separator '{name}'" in next(iter(summary.first))
    with pytest.raises(ConfigError, match="--separator is for --key csv:COLUMN"):
        line_reader(["json:id"], separator=";")


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


def test_a_failing_input_is_named_and_a_failing_output_is_left_to_the_caller() -> None:
    """The side that fails is named, with the system's reason."""

    def fail(_: object) -> bytes:
        raise OSError(5, "Input/output error")

    failing, fine = Chunks(b""), Chunks(b"a\n", [2])
    failing.read1 = fail  # type: ignore[method-assign]  # the system refuses it
    with pytest.raises(StreamdedupError, match=r"^the input cannot be read: Input/output error$"):
        deduplicate(
            whole_lines(failing), _unexpected, Bloom(10), summary=Summary(), warn=_unexpected
        )
    with pytest.raises(OSError, match="Input/output error"):
        deduplicate(whole_lines(fine), fail, Bloom(10), summary=Summary(), warn=_unexpected)
