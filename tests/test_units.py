"""What is claimed of the values an operator writes: `90s`, `64MiB`, `100M`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from streamdedup import units

READ = [
    (units.parse_seconds, "90", 90.0),
    (units.parse_seconds, "90s", 90.0),
    (units.parse_seconds, " 1.5 h ", 5400.0),
    (units.parse_seconds, "7d", 604_800.0),
    (units.parse_seconds, "250ms", 0.25),
    (units.parse_seconds, 0.1, 0.1),
    (units.parse_milliseconds, "250ms", 250),
    (units.parse_milliseconds, "1s", 1000),
    (units.parse_milliseconds, "0.5s", 500),
    (units.parse_milliseconds, 250, 250),
    (units.parse_bytes, "4096", 4096),
    (units.parse_bytes, "64MiB", 67_108_864),
    (units.parse_bytes, "64MB", 64_000_000),
    (units.parse_bytes, "1.5KiB", 1536),
    (units.parse_bytes, "1 kB", 1000),
    (units.parse_count, "100_000", 100_000),
    (units.parse_count, "100M", 100_000_000),
    (units.parse_count, "10 M", 10_000_000),
    (units.parse_count, "1.5G", 1_500_000_000),
    (units.parse_count, "1e9", 1_000_000_000),
    (units.parse_count, "9007199254740993", 9_007_199_254_740_993),
]

REFUSED = [
    (units.parse_seconds, "1:30", "is not a duration; write one like 90s or 5m"),
    (units.parse_seconds, "-5", "is not a duration"),
    (units.parse_seconds, "", "is not a duration"),
    (units.parse_seconds, "nan", "is not a duration"),
    (units.parse_seconds, float("inf"), "is not a duration"),
    (units.parse_seconds, True, "is not a duration"),
    (units.parse_seconds, "5 fortnights", "unknown unit 'fortnights'; known are ms, s, m, h, d"),
    (units.parse_seconds, "5S", "did you mean s?"),
    (units.parse_milliseconds, "0.5ms", "must come to a whole number of ms"),
    (units.parse_bytes, "64M", "did you mean MiB?"),
    (units.parse_bytes, "64kb", "did you mean kB?"),
    (units.parse_count, "100K", "did you mean k?"),
    (units.parse_count, "1.5", "must come to a whole number"),
    (units.parse_count, "1__0", "is not an integer; write one like 100_000 or 100M"),
    (units.parse_count, "٣", "is not an integer"),
    (units.parse_count, "1e999999999", "is not an integer"),
    (units.parse_count, "9" * 41, "is not an integer"),
]


@pytest.mark.parametrize(("parse", "written", "value"), READ)
def test_a_value_is_read_exactly(
    parse: Callable[[object], float], written: object, value: float
) -> None:
    """Units, fractions, underscores and exponents give the exact number, of the right type."""
    read = parse(written)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(("parse", "written", "remedy"), REFUSED)
def test_a_wrong_value_is_refused_with_its_remedy(
    parse: Callable[[object], float], written: object, remedy: str
) -> None:
    """What is no quantity is refused, and the message says what to write."""
    with pytest.raises(ValueError, match=re.escape(remedy)):
        parse(written)


@given(st.integers(min_value=0, max_value=10**18))
def test_whole_numbers_survive_writing_and_reading(number: int) -> None:
    """Every size, count and duration in milliseconds is read back from what is written."""
    assert units.parse_bytes(units.format_bytes(number)) == number
    assert units.parse_count(units.format_count(number)) == number
    assert units.parse_milliseconds(units.format_milliseconds(number)) == number


@given(st.floats(min_value=1e-9, max_value=1e12))
def test_seconds_survive_writing_and_reading(number: float) -> None:
    """Every duration from a nanosecond up is read back from what is written, to the last bit."""
    assert units.parse_seconds(units.format_seconds(number)) == number


@given(st.text(max_size=50))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes a parser fail otherwise than by its own refusal."""
    for parse in (units.parse_seconds, units.parse_bytes, units.parse_count):
        try:
            assert parse(text) >= 0
        except ValueError as refusal:
            assert re.match(r"is not a|has the unknown unit|must come to", str(refusal))


@pytest.mark.parametrize(
    ("number", "written"),
    [(90.0, "90s"), (3600.0, "1h"), (0.1, "100ms"), (0.0, "0s"), (86_400.0, "1d")],
)
def test_a_duration_is_written_in_the_largest_fitting_unit(number: float, written: str) -> None:
    """A written duration is as short as it can be and still exact."""
    assert units.format_seconds(number) == written


def test_bounds_are_included_and_named_when_broken() -> None:
    """A quantity takes its bounds, and nothing beyond them."""
    adapter = TypeAdapter(Annotated[int, units.milliseconds(1, 60_000)])
    assert adapter.validate_python("1m") == 60_000
    assert adapter.validate_python(1) == 1
    for beyond in (0, "61s"):
        with pytest.raises(ValidationError, match="out of range, must be 1ms to 1m"):
            adapter.validate_python(beyond)


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
