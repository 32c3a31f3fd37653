"""The dashboard of deploy/grafana: what make.py writes, of metrics that there are; a gap is a gap."""

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamdedup.metrics.catalogue import METRICS
from tests.metrics.promql import OF_PROMETHEUS, asked, grouped

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "streamdedup.json").read_text("utf-8"))
PARTS = {"histogram": ("_bucket", "_count", "_sum")}
LABELS = {
    metric.name + part: {*metric.labels, *OF_PROMETHEUS, *(["le"] if part == "_bucket" else [])}
    for metric in METRICS
    for part in PARTS.get(metric.kind, ("",))
}


def substituted(expression: str) -> str:
    """An expression as Grafana sends it, for all jobs and topics."""
    return re.sub(r"\$(job|topic)", ".*", expression).replace("$__rate_interval", "15s")


def panels() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Each title, panel and expression."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], panel, substituted(target["expr"])


PANELS = list(panels())


def test_it_is_what_its_maker_writes() -> None:
    """`python deploy/grafana/make.py` would change nothing."""
    made = runpy.run_path(str(FOLDER / "make.py"))["made"]()
    assert made == (FOLDER / "streamdedup.json").read_text("utf-8")


@pytest.mark.parametrize(("title", "panel", "expression"), PANELS)
def test_a_panel_asks_for_series_that_there_are(
    title: str, panel: dict[str, Any], expression: str
) -> None:
    """By labels that they have, and its legend names labels by which it groups."""
    series = asked(expression)
    assert series, title
    for one in series:
        assert one.labels <= LABELS[one.name], one
    labels = set.union(*(LABELS[one.name] for one in series))
    assert grouped(expression) <= labels
    for target in panel["targets"]:
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels


@pytest.mark.parametrize(("title", "panel", "expression"), PANELS)
def test_a_gap_is_never_drawn_as_a_value(
    title: str, panel: dict[str, Any], expression: str
) -> None:
    """Lines end where data ends, and no expression makes up a 0."""
    assert " or " not in expression, title
    if panel["type"] == "timeseries":
        assert panel["fieldConfig"]["defaults"]["custom"]["spanNulls"] is False


def test_it_can_be_imported_anywhere() -> None:
    """Source, jobs and topics are variables; neither it nor its source has an id of ours."""
    assert [each["name"] for each in DASHBOARD["templating"]["list"]] == [
        "datasource",
        "job",
        "topic",
    ]
    assert not DASHBOARD.get("uid")
    sources = {panel["datasource"]["uid"] for panel in DASHBOARD["panels"] if "datasource" in panel}
    assert sources == {"${datasource}"}


def test_a_bloom_filter_that_is_full_is_shown_as_full() -> None:
    """So no panel has `fill_ratio`, which is a half then."""
    assert not any("fill_ratio" in expression for _, _, expression in PANELS)


def test_each_panel_has_a_title_of_its_own_and_says_what_it_means() -> None:
    """With a unit."""
    shown = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert len({panel["title"] for panel in shown}) == len(shown)
    for panel in shown:
        assert panel["description"].endswith(".")
        if panel["type"] != "table":
            assert panel["fieldConfig"]["defaults"]["unit"]
