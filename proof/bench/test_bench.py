"""Claims about the benchmark of the filters: what it publishes is what it measured, and it measures what it says."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import contenders, measure, plots, report, samples, targets
from bench.clock import Clock

ROOT = Path(__file__).parents[2]
RESULTS: dict[str, Any] = json.loads(plots.RESULTS.read_text("utf-8"))
MEASURED = (ROOT / "results" / "filters.md").read_text("utf-8")
PAGE = (ROOT / "docs" / "filters.md").read_text("utf-8")


@pytest.mark.parametrize("name", report.tables(RESULTS))
def test_the_page_has_the_tables_of_the_results(name: str) -> None:
    """Between its comments each table of results/filters.md is the one that the results give."""
    _, _, rest = MEASURED.partition(f"<!-- measured: {name} -->\n")
    assert rest.partition("<!-- end -->")[0].strip() == report.tables(RESULTS)[name].strip()


def test_the_page_has_no_other_tables_of_results() -> None:
    """Each comment names a table that is made."""
    assert MEASURED.count("<!-- measured: ") == MEASURED.count("<!-- end -->")
    assert MEASURED.count("<!-- measured: ") == len(report.tables(RESULTS))


@pytest.mark.parametrize("path", [plots.ERRORS, plots.TIMES], ids=lambda path: path.name)
def test_the_plots_were_drawn_from_the_results(path: Path) -> None:
    """Each plot says which results it shows, and those are the ones that are kept."""
    assert plots.drawn_from(RESULTS) in path.read_text("utf-8")


def test_the_page_is_linked_from_the_readme() -> None:
    """Whoever reads about the kinds finds the page."""
    assert "](docs/filters.md" in (ROOT / "README.md").read_text("utf-8")


def test_every_kind_is_explained_and_measured() -> None:
    """A kind of the registry has its lines on the page, its style in the plots, and its figures at 10^8 keys."""
    for kind in contenders.KINDS:
        assert f"- **`{kind}`**" in PAGE
        assert kind in plots.STYLES
        assert kind in RESULTS["sizes"][targets.SIZE]


def test_addresses_are_those_of_their_numbers() -> None:
    """A column from any number on has the addresses that formatting gives."""
    numbers = (0, 999_999, 1_000_000, 123_456_789_012)
    found = [samples.column(number, 2).to_pylist() for number in numbers]
    assert found == [[b"user%012d@example.com" % (n + i) for i in (0, 1)] for n in numbers]


@pytest.mark.parametrize("kind", ["bloom", "fuse"])
def test_a_large_table_is_filled_to_capacity(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In tenths, by all of the ways, and then asked: each has a figure, and errors are those of the rate."""
    told = _measured(kind, 100_000, monkeypatch)
    assert told["filled"] == 1
    assert 0 < told["false"] < 0.02
    for way in contenders.WAYS:
        assert told["ns"][way]["hit"] > 0
        assert told["ns"][way]["miss"] > 0
    assert told["ns"]["digests"]["add"] > 0


def test_a_limit_of_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that may not be filled up says how far it was filled."""
    told = _measured("bloom", 3_000_000, monkeypatch, {"bloom": 1e-9})
    assert 0 < told["filled"] < 0.1


def _measured(
    kind: str,
    capacity: int,
    monkeypatch: pytest.MonkeyPatch,
    seconds_max: dict[str, float] | None = None,
) -> Any:
    monkeypatch.setattr(measure, "WHOLE_MAX", 1000)
    monkeypatch.setattr(measure, "WARM_KEYS", 1000)
    monkeypatch.setattr(measure, "SINGLES", 50)
    monkeypatch.setattr(contenders.Contender, "batch", 1000)
    return measure.at_size([kind], capacity, seconds_max or {}, Clock())[kind]


def test_a_filter_that_loses_a_key_ends_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure is given of answers that are wrong."""
    monkeypatch.setattr(contenders.Ours, "add", lambda *_: None)
    with pytest.raises(SystemExit, match="bloom found 0 of"):
        _measured("bloom", 100_000, monkeypatch)


@pytest.mark.parametrize(("theirs", "met"), [(400.0, True), (399.0, False)])
def test_a_target_is_met_by_the_worst(theirs: float, met: bool) -> None:
    """Four times as fast in two of three things is missed if the third is less."""
    table = {
        name: {"ns": {way: dict.fromkeys(targets.WHAT, 100.0) for way in (*report.WAYS,)}}
        for name in contenders.NAMES
    }
    table["rbloom, mmh3"]["ns"]["column"] = {"add": 900.0, "hit": 900.0, "miss": theirs}
    told = targets.judged({"sizes": {targets.SIZE: table}})[0]
    assert (told["met"], told["measured"]["miss"]) == (met, round(theirs / 100, 2))
