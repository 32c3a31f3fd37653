"""The alerts of deploy/prometheus, as Prometheus takes them; a wrong one is found."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs import program_of_debian

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"


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
    ("right", "wrong"),
    [
        ("seconds) > 600", "seconds) > 6000"),
        ('severity="failure"', 'severity="failed"'),
        ("for: 5m", "for: 50m"),
        ("seconds > 900", "seconds > 9"),
    ],
)
def test_a_wrong_rule_is_found(promtool: str, tmp_path: Path, right: str, wrong: str) -> None:
    """By the tests of the rules."""
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    rules = tmp_path / "alerts.yaml"
    text = rules.read_text("utf-8")
    assert right in text
    rules.write_text(text.replace(right, wrong, 1), "utf-8")
    assert check(promtool, "test", "rules", "alerts_test.yaml", folder=tmp_path).returncode == 1
