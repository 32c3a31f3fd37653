"""The alerts of deploy/prometheus, as Prometheus takes them; a wrong one is found."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.programs import program_of_debian

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
NAMES = ("alerts.yaml", "alerts_test.yaml")


@pytest.fixture(scope="module")
def promtool() -> str:
    """Prometheus' tool for rules."""
    return program_of_debian("promtool", "prometheus")


def check(
    promtool: str, *arguments: str, folder: Path = FOLDER
) -> subprocess.CompletedProcess[str]:
    """Run it."""
    program = [promtool, *arguments]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)


def test_prometheus_takes_the_rules(promtool: str) -> None:
    """Without a warning."""
    done = check(promtool, "check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_silent_fires_and_ends(promtool: str) -> None:
    """As alerts_test.yaml says."""
    done = check(promtool, "test", "rules", "alerts_test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("alert", "right", "wrong"),
    [
        ("StreamdedupEventsWait", "seconds) > 600", "seconds) > 6000"),
        ("StreamdedupFailure", 'severity="failure"', 'severity="failed"'),
        ("StreamdedupFailure", "for: 5m", "for: 50m"),
        ("StreamdedupSnapshotsOld", "seconds > 900", "seconds > 9"),
    ],
)
def test_a_wrong_rule_is_found(
    promtool: str, tmp_path: Path, alert: str, right: str, wrong: str
) -> None:
    """By the tests of its alert, which are played alone: a day of each minute takes long."""
    rules, tests = ((FOLDER / name).read_text("utf-8") for name in NAMES)
    assert right in rules
    played = yaml.safe_load(tests)
    played["tests"] = [test for test in played["tests"] if test["name"] == alert]
    (tmp_path / NAMES[1]).write_text(yaml.safe_dump(played), "utf-8")
    assert len(played["tests"]) == 1
    for text, status in ((rules, 0), (rules.replace(right, wrong, 1), 1)):
        (tmp_path / NAMES[0]).write_text(text, "utf-8")
        assert check(promtool, "test", "rules", NAMES[1], folder=tmp_path).returncode == status
