"""What an operator, a monitor or another program relies on is today what it was when it was recorded."""

import difflib
import json
from pathlib import Path
from typing import Any

import pytest

from proof.golden.records import DIRECTORY, RECORDS, make, path_of, text_of


def read(text: str) -> Any:
    """The value of a record. 10.0 is 10, as for all readers of JSON: pydantic's versions write either."""
    return json.loads(text, parse_float=lambda number: _whole(float(number)))


def _whole(number: float) -> float:
    return int(number) if number.is_integer() else number


def recorded(name: str) -> Any:
    """The record of that name, as it was committed."""
    return read(path_of(name).read_text(encoding="utf-8"))


def difference(before: object, now: object) -> str:
    """The lines that differ, with what is above them; empty if there are none."""
    first, second = (
        json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True).splitlines()
        for value in (before, now)
    )
    return "\n".join(difflib.unified_diff(first, second, lineterm=""))


@pytest.mark.parametrize("name", RECORDS)
def test_what_is_recorded_does_not_change(name: str) -> None:
    """If a change is meant: delete the record, run `python -m proof golden`, and commit what it writes."""
    now = read(text_of(RECORDS[name]()))
    assert not difference(recorded(name), now)


def test_each_record_is_there_and_no_other() -> None:
    """A record that nobody compares holds nothing."""
    assert {path.stem for path in DIRECTORY.iterdir()} == set(RECORDS)


def test_records_are_not_written_again(tmp_path: Path) -> None:
    """Making them adds what is missing, and leaves what is there."""
    path_of("there", tmp_path).write_text("what is there")
    assert make(tmp_path, {"there": dict, "missing": dict}) == ["missing"]
    assert path_of("there", tmp_path).read_text() == "what is there"
    assert path_of("missing", tmp_path).read_text() == "{}\n"
