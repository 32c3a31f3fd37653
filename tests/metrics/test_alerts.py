"""The alerts of deploy/prometheus: of metrics that there are, each with its tests and its section of the runbook."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from proof import runbook
from streamdedup.metrics.catalogue import METRICS
from streamdedup.metrics.findings import KINDS
from tests.metrics.promql import OF_PROMETHEUS, asked, grouped

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
PAGES_MAX = 3
OF_RUNBOOK = re.compile(r"http://\{\{ \$labels\.instance \}\}/runbook/(.*)")


def read(name: str) -> dict[str, Any]:
    """A file of the folder."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text("utf-8"))
    return found


RULES: list[dict[str, Any]] = [
    rule for group in read("alerts.yaml")["groups"] for rule in group["rules"]
]
LABELS = {metric.name: {*metric.labels, *OF_PROMETHEUS} for metric in METRICS}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_series_that_there_are(rule: dict[str, Any]) -> None:
    """By labels that they have."""
    series = asked(rule["expr"])
    assert series
    for one in series:
        assert one.labels <= LABELS[one.name], one
    assert grouped(rule["expr"]) <= set.union(*(LABELS[one.name] for one in series))


def test_few_alerts_wake_somebody() -> None:
    """All others are tickets."""
    severities = Counter(rule["labels"]["severity"] for rule in RULES)
    assert severities.keys() == {"page", "ticket"}
    assert severities["page"] <= PAGES_MAX


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_leads_to_a_section_of_the_runbook(rule: dict[str, Any]) -> None:
    """That of a finding, or of a line of the log; those of each finding by its label."""
    url = rule["annotations"].get("runbook_url")
    if url is None:
        assert "instance" not in grouped(rule["expr"])
        return
    found = OF_RUNBOOK.fullmatch(url)
    assert found is not None
    if found[1] != "{{ $labels.id }}":
        assert found[1] in runbook.sections(runbook.SOURCE.read_text("utf-8"))


def test_no_finding_is_left_out() -> None:
    """Each that is more than a note has an alert."""
    of_findings = [rule["expr"] for rule in RULES if "streamdedup_finding{" in rule["expr"]]
    beginning = r"starting|draining|partition-starts|repartition-starts"
    assert of_findings == [
        f'streamdedup_finding{{severity="failure",id!~"{beginning}"}} > 0',
        'streamdedup_finding{severity="warning"} > 0',
        f'streamdedup_finding{{id=~"{beginning}"}} > 0',
    ]
    assert set(beginning.split("|")) <= KINDS.keys()


def test_each_alert_is_seen_silent_firing_and_ended() -> None:
    """In this order, by `promtool test rules`."""
    shown = {
        test["name"]: [bool(case["exp_alerts"]) for case in test["alert_rule_test"]]
        for test in read("alerts_test.yaml")["tests"]
    }
    assert shown == {rule["alert"]: [False, True, False] for rule in RULES}
