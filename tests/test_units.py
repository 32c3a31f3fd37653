"""What is claimed of the values an operator writes: `90s`, `64MiB`, `100M`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from streamdedup import units
from tests.rows import table

SECONDS = units.seconds(0, 1e12)
MILLISECONDS = units.milliseconds(0, 10**18)
BYTES = units.size_bytes(0, 10**18)
COUNT = units.count(0, 10**18, "things")
RATE = units.rate(0, 1e12, "events")

READ = [
    (SECONDS, "90", 90.0),
    (SECONDS, "90s", 90.0),
    (SECONDS, " 1.5 h ", 5400.0),
    (SECONDS, "7d", 604_800.0),
    (SECONDS, "250ms", 0.25),
    (SECONDS, 0.1, 0.1),
    (MILLISECONDS, "250ms", 250),
    (MILLISECONDS, "1s", 1000),
    (MILLISECONDS, "0.5s", 500),
    (MILLISECONDS, 250, 250),
    (BYTES, "4096", 4096),
    (BYTES, "64MiB", 67_108_864),
    (BYTES, "64MB", 64_000_000),
    (BYTES, "1.5KiB", 1536),
    (BYTES, "1 kB", 1000),
    (COUNT, "100_000", 100_000),
    (COUNT, "100M", 100_000_000),
    (COUNT, "10 M", 10_000_000),
    (COUNT, "1.5G", 1_500_000_000),
    (COUNT, "1e9", 1_000_000_000),
    (COUNT, "9007199254740993", 9_007_199_254_740_993),
    (RATE, "2000/s", 2000.0),
    (RATE, "2000", 2000.0),
    (RATE, "2k/s", 2000.0),
    (RATE, "90/m", 1.5),
    (RATE, "1.8k/h", 0.5),
    (RATE, " 86.4 M/d ", 1000.0),
]

PLAIN = [
    *("", "~", "null", "true", "False", "NO", "on", "nan", "inf", "-inf"),
    *("0", "-1", "+5", "0.6", ".5", "5.", "1e-12", "2E12", "999999999999", "100_000", " 7 "),
    *("64MiB", "90s", "2000/s", "5k/s", "1 kB", "1%", "5S", "2000/y", "7d/s", "5abc"),
]
MAYBE_SECRET = [
    *("hunter2", "12hunter2", "5SECRET", "5abcd", "5ab/cd", "user:SECRET@host", "1:30", "0x10"),
    *("1234567890123", "12345678901234567890123456789012", "0123456789abcdef" * 2, "-1e-1000"),
    *("aHVudGVyMi1odW50ZXIyCg==", "5=", "5 5", "-", "s", "password", "password1", "passw0rd"),
    *("١٢", "1\n2", "5  s", "5s\n\n", "1__0", "_1"),
]

REFUSED = [
    (SECONDS, "1:30", "is not a duration; write one like 90s or 5m"),
    (SECONDS, "-5", "out of range, must be 0s to "),
    (MILLISECONDS, -1, "out of range, must be 0ms to "),
    (COUNT, "- 5", "is not an integer"),
    (COUNT, "--5", "is not an integer"),
    (SECONDS, "", "is not a duration"),
    (SECONDS, "nan", "is not a duration"),
    (SECONDS, float("inf"), "is not a duration"),
    (SECONDS, True, "is not a duration"),
    (SECONDS, "5 fortnights", "an unknown unit; known are ms, s, m, h, d"),
    (SECONDS, "5S", "did you mean s?"),
    (MILLISECONDS, "0.5ms", "must come to a whole number of ms"),
    (BYTES, "64M", "did you mean MiB?"),
    (BYTES, "64kb", "did you mean kB?"),
    (COUNT, "100K", "did you mean k?"),
    (COUNT, "1.5", "must come to a whole number"),
    (COUNT, "1__0", "is not an integer; write one like 100_000 or 100M"),
    (COUNT, "٣", "is not an integer"),
    (COUNT, "1e999999999", "is not an integer"),
    (COUNT, "9" * 41, "is not an integer"),
    (RATE, "2000 a second", "is not a rate; write one like 2000/s or 100M/d"),
    (RATE, "2000/", "is not a rate"),
    (RATE, "5K/s", "did you mean k/s?"),
    (RATE, "5M", "has the unknown unit 'M'; known are /s, k/s, M/s, G/s, /m,"),
    (SECONDS, "7d/s", "has the unknown unit 'd/s'; known are ms, s, m, h, d"),
]


@table(READ)
def test_a_value_is_read_exactly(row: tuple[units.Quantity, object, float]) -> None:
    """Units, fractions, underscores and exponents give the exact number, of the right type."""
    quantity, written, value = row
    read = quantity.parse(written)
    assert read == value
    assert type(read) is type(value)


@table(REFUSED)
def test_a_wrong_value_is_refused_with_its_remedy(row: tuple[units.Quantity, object, str]) -> None:
    """What is no quantity is refused, and the message says what to write."""
    quantity, written, remedy = row
    with pytest.raises(ValueError, match=re.escape(remedy)):
        quantity.parse(written)


@pytest.mark.parametrize(
    ("parse", "written", "value"),
    [
        (units.parse_milliseconds, "1s", 1000),
        (units.parse_bytes, "64MiB", 67_108_864),
        (units.parse_count, "100k", 100_000),
    ],
)
def test_a_value_without_bounds_is_read_in_its_own_unit(
    parse: Callable[[object], int], written: str, value: int
) -> None:
    """What others bound, as aiokafka does its options, is read by the same rules."""
    assert parse(written) == value
    for negative in (f"-{written}", -1):
        with pytest.raises(ValueError, match="out of range, must be 0 or more"):
            parse(negative)
    with pytest.raises(ValueError, match="write one like"):
        parse("some")


@given(st.integers(min_value=0, max_value=10**18))
def test_whole_numbers_survive_writing_and_reading(number: int) -> None:
    """Every size, count and duration in milliseconds is read back from what is written."""
    for quantity in (BYTES, COUNT, MILLISECONDS):
        assert quantity.parse(quantity.format(number)) == number


@given(st.floats(min_value=1e-9, max_value=1e12))
def test_seconds_survive_writing_and_reading(number: float) -> None:
    """Every duration from a nanosecond up is read back from what is written, to the last bit."""
    assert SECONDS.parse(SECONDS.format(number)) == number


@given(st.text(max_size=50))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes a parser fail otherwise than by its own refusal."""
    for quantity in (SECONDS, BYTES, COUNT):
        try:
            assert quantity.parse(text) >= 0
        except ValueError as refusal:
            assert re.match(_REFUSAL, str(refusal))


_REFUSAL = r"is not a|has (an|the) unknown unit|must come to|out of range"


def test_a_number_with_any_known_unit_is_quoted() -> None:
    """None of them is too long for that."""
    for quantity in (SECONDS, MILLISECONDS, BYTES, COUNT, RATE):
        for unit in quantity.scale.units:
            assert units.quote(f"64{unit}") == f"'64{unit}'"


@table([None, True, 5, -1.5, float("nan"), float("inf"), *PLAIN])
def test_what_cannot_be_a_secret_is_quoted(value: object) -> None:
    """Nothing, a bool, a short number, with a short unit or none, or a word such as `true`."""
    assert units.quote(value) == repr(value)


@table(MAYBE_SECRET)
def test_a_text_that_may_be_a_secret_is_not_quoted(text: str) -> None:
    """Neither is it where a choice is due that it does not resemble."""
    assert units.quote(text) is None
    assert units.quote(text, ("none", "pass", "drop", "siphash", "true", "false")) is None


@table(["bloom", "blom", "Blooom", "at_most_once"])
def test_a_text_that_resembles_a_choice_is_quoted(text: str) -> None:
    """Whatever its case. Without these choices it may be a secret."""
    assert units.quote(text, ("bloom", "at_least_once")) == repr(text)
    assert units.quote(text) is None


def test_of_a_list_or_a_mapping_the_type_is_named() -> None:
    """Their contents may be anything."""
    assert units.quote(["5"]) == units.quote(("5",)) == "a list"
    assert units.quote({"hunter2": 5}) == "a mapping"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("5M", "has the unknown unit 'M'"),
        ("5 SECRET", "has an unknown unit"),
        ("1234567890123M", "has an unknown unit"),
    ],
)
def test_an_unknown_unit_is_quoted_if_the_value_is(written: str, said: str) -> None:
    """It may be the end of a secret that begins with a number."""
    with pytest.raises(ValueError, match="unknown unit") as refusal:
        SECONDS.parse(written)
    assert str(refusal.value).startswith(f"{said}; ")


@pytest.mark.parametrize(
    ("number", "written"),
    [(90.0, "90s"), (3600.0, "1h"), (0.1, "100ms"), (0.0, "0s"), (86_400.0, "1d")],
)
def test_a_duration_is_written_in_the_largest_fitting_unit(number: float, written: str) -> None:
    """A written duration is as short as it can be and still exact."""
    assert SECONDS.format(number) == written


def test_bounds_are_included_and_named_when_broken() -> None:
    """A quantity takes its bounds, and nothing beyond them."""
    adapter = TypeAdapter(Annotated[int, units.milliseconds(1, 60_000)])
    assert adapter.validate_python("1m") == 60_000
    assert adapter.validate_python(1) == 1
    for beyond in (0, "61s"):
        with pytest.raises(ValidationError, match="out of range, must be 1ms to 1m"):
            adapter.validate_python(beyond)


def test_a_unit_may_be_asked_for() -> None:
    """Where a bare number could mean anything, parser and schema refuse it, and the message has the remedy."""
    quantity = units.milliseconds(0, 10**9, bare=False)
    (text,) = TypeAdapter(Annotated[int, quantity]).json_schema()["anyOf"]
    for bare in ("7", 7, "1e3"):
        with pytest.raises(ValueError, match="has no unit; write one, as in 7d, 90s or 250ms"):
            quantity.parse(bare)
        assert not re.search(text["pattern"], str(bare))
    assert quantity.parse("7s") == 7000
    assert quantity.parse("0") == 0
    assert re.search(text["pattern"], "7s")


@pytest.mark.parametrize("written", ["90s", "7d", "1_000", "1.5h", "10 m", "250"])
def test_the_schema_takes_what_the_parser_takes(written: str) -> None:
    """An editor that knows the JSON Schema accepts a duration as text."""
    quantity = units.seconds(0, 10**9)
    number, text = TypeAdapter(Annotated[float, quantity]).json_schema()["anyOf"]
    assert number == {"type": "number", "minimum": 0, "maximum": 10**9}
    assert re.search(text["pattern"], written)
    assert quantity.parse(written) > 0
    assert not re.search(text["pattern"], "90 fortnights")


def test_a_path_may_begin_at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`~` is the home directory; a relative path stays relative; an empty one is refused."""
    monkeypatch.setenv("HOME", str(tmp_path))
    path = TypeAdapter(units.LocalPath)
    assert path.validate_python("~/snapshots") == tmp_path / "snapshots"
    assert path.validate_python("var/snapshots") == Path("var/snapshots")
    with pytest.raises(ValidationError, match="is empty, must be a path"):
        path.validate_python("")
    with pytest.raises(ValidationError, match="has no home directory"):
        path.validate_python("~no-such-user-here/snapshots")


@table(
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (999.6, "1.0 kB"),  # rounded before its unit is chosen
        (1000, "1.0 kB"),
        (28_000, "28.0 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (1_797_200, "1.8 MB"),
        (1_194_000_000, "1.19 GB"),
        (119_813_233, "120 MB"),
        (5e12, "5.0 TB"),
        (1_234_567e12, "1,230,000 TB"),
    ]
)
def test_a_size_for_people_has_three_digits(row: tuple[float, str]) -> None:
    """In the largest decimal unit of which there is one at least; below a kilobyte, no byte is rounded away."""
    size_bytes, text = row
    assert units.sized(size_bytes) == text


@table(
    [
        ("", ""),
        ("events-unique", "events-unique"),
        ("größe 鍵 🙂 a\\b", "größe 鍵 🙂 a\\b"),
        ("one\ntwo\r\tthree", r"one\ntwo\r\tthree"),
        ("\x1b]0;title\x07\x1b[2J", r"\x1b]0;title\x07\x1b[2J"),
        ("\0 \x7f \x9b2K \x85", r"\x00 \x7f \x9b2K \x85"),
        ("a\u2028b\u2029c", r"a\u2028b\u2029c"),
        ("\u202egnp.exe \u2066 \u200f", r"\u202egnp.exe \u2066 \u200f"),
        ("\ud83e \udcff", r"\ud83e \udcff"),
        ("\U000e0041", r"\U000e0041"),
        (b"plain", "plain"),
        (b"\xff\xc3\xa9\x1b[31m\n", r"\xffé\x1b[31m\n"),
        (b"\xed\xa0\xbd", r"\xed\xa0\xbd"),
    ]
)
def test_text_of_others_moves_no_cursor_and_ends_no_line(row: tuple[Any, str]) -> None:
    """Whatever is not printable is shown as an escape; all else stays as it is."""
    text, shown = row
    assert units.escaped(text) == shown
    assert units.escaped(text).isprintable()


@given(st.text() | st.binary())
def test_any_text_can_be_shown(text: str | bytes) -> None:
    """It is one line that every encoding of UTF takes, and to escape it again changes nothing."""
    shown = units.escaped(text)
    assert len(shown.splitlines()) <= 1
    assert shown.encode().decode() == shown
    assert units.escaped(shown) == shown
    assert units.escaped(text, keep="\n").replace("\n", "").isprintable()
