"""Claims about the benchmark of the filters: what it publishes is what it measured, and it measures what it says."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import contenders, measure, plots, report, targets
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


def test_every_kind_is_explained_and_measured() -> None:
    """A kind of the registry has its lines on the page, its style in the plots, and its figures at 10^8 keys."""
    for kind in contenders.KINDS:
        assert f"- **`{kind}`**" in PAGE
        assert kind in plots.STYLES
        assert kind in RESULTS["sizes"][targets.SIZE]


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
