"""Claims about `pipe`: the first of equal lines passes, byte for byte, however it arrives."""

import codecs
import gzip
import io
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup import filters
from streamdedup.cli import main
from streamdedup.commands import lines
from streamdedup.commands.lines import line_reader, whole_lines
from streamdedup.commands.pipe import FullError, Summary, deduplicate
from streamdedup.errors import ConfigError, StreamdedupError
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.keys.formats import texts

# Dense in newlines and in the bytes that text tools trip over.
any_text = st.lists(
    st.sampled_from([b"\n", b"\n", b"a", b"b", b"\r", b"\0", b"\xff", b" ", b"\x0b", b"\x85"]),
    max_size=60,
).map(b"".join)


class Chunks:
    """A reader that gives its data in the sizes told, then one byte at a time."""

    def __init__(self, data: bytes, sizes: Iterable[int] = ()) -> None:
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


def test_a_line_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line beyond the limit stops the run with the limit named, after the lines before it."""
    monkeypatch.setattr(texts, "LINE_BYTES_MAX", 100)
    fits = b"a\n" + b"x" * 100 + b"\n" + b"y" * 100
    assert _run(fits, [10] * 99)[0] == fits
    sink, source = io.BytesIO(), Chunks(b"a\n" + b"x" * 10_000, [10] * 9999)
    with pytest.raises(StreamdedupError, match="longer than 100 bytes"):
        deduplicate(whole_lines(source), sink.write, Bloom(10), summary=Summary(), warn=_unexpected)
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
            whole_lines(Chunks(b"a\nb\n")),
            io.BytesIO().write,
            Bloom(1, 1e-9),
            summary=Summary(),
            warn=_unexpected,
        )


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
    out, _ = _run(b"\n".join(lines), key=["json:a", "json:b,c"])
    assert out.splitlines() == lines[:2]


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
    assert _run(b"", key="csv:id")[0] == b""


cells = st.sampled_from(["", "a", "b", "ab", " ", "ä", '"a"', '"', '""', '"a,b"', "\r", ";"])
rows_of_csv = st.lists(st.lists(cells, max_size=4).map(",".join), max_size=30)


@settings(deadline=None)
@given(rows_of_csv, st.sampled_from(["\n", "\r\n"]), st.lists(st.integers(1, 60), max_size=20))
@pytest.mark.parametrize("key", [["csv:1"], ["csv:2"], ["csv:a"], ["csv:3", "csv:1"]])
def test_records_without_quotes_are_read_as_all_others(
    key: list[str], rows: list[str], newline: str, sizes: list[int]
) -> None:
    """By a kernel, in pieces of the input: the same pass, and the same are malformed for the same reasons."""
    text = newline.join(["a,b,c", "1,2,3", *rows])
    data = text.encode()
    for tail in (b"", b"\n", b"\nx,\xff,y\na,a,a\n"):
        found = _run(data + tail, [24, *sizes, 1000], key=key)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(lines, "is_plain", lambda *_: False)
            out, summary = _run(data + tail, [24, *sizes, 1000], key=key)
        summary.started = found[1].started
        assert found == (out, summary)


def test_several_columns_make_one_key_and_are_normalized() -> None:
    """As fields of JSON are; a record without one of them passes."""
    data = b"a,b\nX,1\nx,2\nx ,1\nx\n"
    out, summary = _run(data, key=["csv:a", "csv:2"], normalize="lowercase")
    assert out == b"a,b\nX,1\nx,2\nx\n"
    assert (summary.lines, summary.malformed) == (4, 1)


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


@pytest.mark.parametrize(
    ("name", "passed"),
    [("none", b"Key\n key\nkey\nKEY \n"), ("trim", b"Key\n key\nKEY \n"), ("lowercase", b"Key\n")],
)
def test_lines_are_equal_that_are_normalized_alike(
    name: str, passed: bytes, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The first of them passes as it came."""
    (tmp_path / "in").write_bytes(b"Key\n key\nkey\nKEY \n")
    assert main(["pipe", str(tmp_path / "in"), "--normalize", name]) == 0
    assert capfdbinary.readouterr().out == passed


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
    """However often that is said."""
    assert _run(b"a\na\n", key=["line", "line"])[0] == b"a\n"


def test_a_window_is_never_full() -> None:
    """It forgets instead: all lines pass that the last ones do not have, without a warning."""
    seen = filters.build({"kind": "window", "capacity": 70})
    lines = [b"%d" % i for i in [*range(500), *range(430, 500), *range(10)]]
    out, summary, warnings = io.BytesIO(), Summary(), list[str]()
    source = io.BytesIO(b"\n".join(lines))
    deduplicate(
        whole_lines(source), out.write, seen, on_full="stop", summary=summary, warn=warnings.append
    )
    assert (summary.lines, summary.passed, warnings) == (580, 510, [])
    assert "BEYOND" not in summary.text(seen)


def test_on_full_warn_goes_on_and_warns_once() -> None:
    """The warning names the line, the capacity and the remedy; a filter that is exactly full is silent."""
    for keys in (10, 15):
        seen, sink, summary, warnings = Bloom(10, 1e-9), io.BytesIO(), Summary(), list[str]()
        data = b"".join(b"%d\n" % i for i in range(keys))
        source = Chunks(data, [2] * 10 + [3] * 9)
        deduplicate(
            whole_lines(source),
            sink.write,
            seen,
            on_full="warn",
            summary=summary,
            warn=warnings.append,
        )
        assert sink.getvalue() == data
        assert f"{keys} of 10 keys" in summary.text(seen)
        assert len(warnings) == (keys > 10)
    assert warnings[0].startswith("the filter is full: by line 11 it holds more than 10 keys; ")
    assert warnings[0].endswith("; give a larger --capacity")


def test_a_sink_that_nobody_reads_ends_the_run() -> None:
    """It is asked for after each chunk, also where nothing new comes that would be written."""
    source, sink, summary = Chunks(b"a\na\na\na\n", [2, 2, 2, 2]), io.BytesIO(), Summary()
    answers = iter([False, False, True])
    deduplicate(
        whole_lines(source),
        sink.write,
        Bloom(10),
        summary=summary,
        warn=_unexpected,
        is_unread=lambda: next(answers),
    )
    assert (sink.getvalue(), summary.lines) == (b"a\n", 3)
    assert source.read1(2) == b"a\n"


def _run(
    data: bytes, sizes: Sequence[int] = (), key: str | list[str] = "line", **options: Any
) -> tuple[bytes, Summary]:
    sink, summary = io.BytesIO(), Summary()
    deduplicate(
        line_reader([key] if isinstance(key, str) else key, **options)(Chunks(data, sizes)),
        sink.write,
        Bloom(100_000, 1e-9),
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
