"""What is printed of answers, on standard output and standard error: for a person, or as JSON."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from streamdedup.explain.event_report import EventReport
from streamdedup.explain.of_keys import KeyAnswer, KeysReport
from streamdedup.units import escaped, escaped_lines

WHAT_IS_LEFT = "what was found so far is printed"


def key_text(report: KeysReport, answer: KeyAnswer) -> str:
    """Return the answer about a key, for a person: several lines, or one if there are several keys.

    `notes_below` stand below all of them.
    """
    if report.wanted.count > 1:
        return "\t".join(map(escaped, report.row(answer))) + "\n"
    return escaped_lines(report.lines(answer))


def notes_below(notes: Iterable[str]) -> str:
    """Return what stands below the text of all answers."""
    return escaped_lines(f"note: {note}" for note in notes)


def event_text(report: EventReport) -> str:
    """Return the answer about an event, for a person."""
    return escaped_lines(report.lines()) + notes_below(report.notes)


def as_line(answer: dict[str, Any]) -> str:
    """Return an answer as a line of JSON."""
    return json.dumps(answer) + "\n"


def said(report: KeysReport | EventReport, *, as_json: bool) -> Iterator[str]:
    """Yield what standard error gets besides: the notes about several keys, if they have JSON; why the search broke."""
    if as_json and isinstance(report, KeysReport) and report.wanted.count > 1:
        yield from (f"note: {note}" for note in report.all_notes())
    if report.broken:
        yield f"{report.broken}; {WHAT_IS_LEFT}"
