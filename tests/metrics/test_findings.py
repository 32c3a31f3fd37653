"""Claims about the catalogue of findings: each is documented, caused by a test, and timed from its first sight."""

import ast
import re
from pathlib import Path

import pytest

from proof.runbook import PARTS, SOURCE, causes, sections
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.metrics.findings import (
    BROKER_AWAY,
    CLOCK_UNVERIFIED,
    FILTER_FULL,
    KINDS,
    PARTITION_STOPPED,
    SECOND_WRITER,
    Kind,
    Log,
    Severity,
    of_error,
)

ROOT = Path(__file__).parents[2]


def named_by_errors() -> set[str]:
    """The ids that errors name by `finding="..."`."""
    return {
        keyword.value.value
        for path in (ROOT / "streamdedup").rglob("*.py")
        if "finding=" in (source := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "finding"
        and isinstance(keyword.value, ast.Constant)
        and isinstance(keyword.value.value, str)
    }


def test_a_test_causes_each() -> None:
    """A mark is no claim by itself: conftest fails a test that does not cause what its mark names."""
    assert set(causes()) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_runbook_has_a_section_for_each(kind: Kind) -> None:
    """By its id: what it means, its impact, what to look at, what to do, and which tests cause it."""
    section = sections(SOURCE.read_text("utf-8"))[kind.id]
    parts = re.findall(r"^(?:- )?\*\*([\w ]+):\*\* (.+)", section, re.MULTILINE)
    assert [name for name, _ in parts] == list(PARTS)
    text = " ".join(section.split())
    assert f"{kind.meaning} A {kind.severity}." in text
    named = re.findall(r"`(test_\w+)` of `(\S+)`", text)
    assert named == [(name, path) for path, name in causes()[kind.id]]


def test_errors_name_none_that_is_not_there() -> None:
    """An id is a literal where an error is raised."""
    assert named_by_errors() - set(KINDS) == set()
    assert SECOND_WRITER.id in named_by_errors()


def test_each_id_is_there_once_and_means_something() -> None:
    """Ids are words with hyphens."""
    assert all(kind.id == kind.id.lower() and "_" not in kind.id for kind in KINDS.values())
    assert len({kind.meaning for kind in KINDS.values()}) == len(KINDS)


def test_an_error_gives_its_finding_with_the_remedy_apart() -> None:
    """The message of the error has both."""
    error = DeliveryError("there is another", remedy="stop it", finding="second-writer")
    found = of_error(error, PARTITION_STOPPED, "t/3", "stopped")
    assert (found.kind, found.remedy) == (SECOND_WRITER, "stop it")
    assert found.text == "t/3: stopped: there is another; stop it"
    assert str(error) == "there is another; stop it"


@pytest.mark.parametrize("error", [ConfigError("no"), ValueError("no")])
def test_an_error_without_one_is_of_the_general_kind(error: Exception) -> None:
    """Whatever it is."""
    found = of_error(error, PARTITION_STOPPED, "t/3")
    assert (found.kind, found.text) == (PARTITION_STOPPED, "t/3: no")


def test_a_finding_lasts_as_long_as_it_is_active_at_its_place() -> None:
    """Its text may change meanwhile; if it comes again, it begins anew."""
    log = Log()

    def since(now: float, *places: str) -> list[float | None]:
        active = [FILTER_FULL.at(place, f"full at {now}") for place in places]
        return [found.since for found in log.observe(now, active)]

    assert since(10.0, "t/0") == [10.0]
    assert since(12.0, "t/0", "t/1") == [10.0, 12.0]
    assert since(15.0, "t/1") == [12.0]
    assert since(20.0, "t/0", "t/1") == [20.0, 12.0]


def test_findings_of_one_place_have_their_own_times() -> None:
    """Each since its own beginning."""
    log = Log()
    log.observe(1.0, [BROKER_AWAY.at(None, "away")])
    both = log.observe(2.0, [BROKER_AWAY.at(None, "away"), CLOCK_UNVERIFIED.at(None, "unknown")])
    assert [found.since for found in both] == [1.0, 2.0]


def test_a_kind_has_one_of_three_severities() -> None:
    """As text, it is the value of the label."""
    assert Kind("x", Severity.NOTE, "x").severity == "note"
    assert {kind.severity for kind in KINDS.values()} == set(Severity)
