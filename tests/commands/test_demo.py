"""The demo: the first thing that a new user runs, so it is run here as they run it."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from streamdedup import settings
from streamdedup.cli import main
from streamdedup.commands import demo

EVENTS, DISTINCT = 58_212, 29_596
DEMO = [sys.executable, "-m", "streamdedup", "demo"]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the demo prints into a pipe."""
    done = subprocess.run(
        DEMO,
        cwd=tmp_path_factory.mktemp("demo"),
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def number(output: str, row: str) -> int:
    """The integer in a row of the table."""
    match = re.search(rf"^  {re.escape(row)}\s+([\d,]+)", output, re.MULTILINE)
    assert match, output
    return int(match[1].replace(",", ""))


def test_the_table_adds_up(output: str) -> None:
    """Everything was consumed; what is missing of the distinct pages are the false positives, a few."""
    unique, false = number(output, "unique, emitted"), number(output, "false positives, actual")
    assert number(output, "events consumed") == EVENTS
    assert unique + number(output, "duplicates, dropped") == EVENTS
    assert unique + false == DISTINCT
    assert 0 <= false <= 40  # some 6 are expected; 40 is far beyond chance
    assert number(output, "events per second") > 0


def test_plain_lines_without_a_terminal(output: str) -> None:
    """Progress is plain lines in a pipe: rate, verdicts, fill, error, and no control characters."""
    lines = [line for line in output.splitlines() if "estimated error" in line]
    assert lines
    assert all(
        re.search(r"events .*/s .*pass .*duplicate .*fill .*%.*error", line) for line in lines
    )
    assert "\r" not in output
    assert "\x1b" not in output


def test_the_end_names_snapshots_and_next_commands(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshots' place and size, and three commands to try next, with a file that is there."""
    assert re.search(r"4 files, [\d,]+ bytes, in var/demo-snapshots", output)
    assert len(re.findall(r"streamdedup (?:config show|run|pipe)", output)) == 3
    shown, run = re.findall(r"streamdedup (?:config show|run -c) (.+)$", output, re.MULTILINE)
    assert shown == run
    monkeypatch.chdir(tmp_path)  # as empty as the directory where the demo ran
    assert settings.load(Path(shown), environ={}).delivery.guarantee == "exactly_once"


def test_a_file_to_copy_is_short_and_quoted() -> None:
    """From below the example its path is relative to where we are, and a space in it is no end."""
    for here, file in (("/a b", "c/x.yaml"), ("/", "'a b/c/x.yaml'"), ("/d", "'/a b/c/x.yaml'")):
        said = demo._next("./streamdedup", Path("/a b/c/x.yaml"), Path(here))
        assert f"./streamdedup config show {file}\n" in said


def test_the_next_commands_call_us_as_we_were_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name only where the shell finds this very command by it; a path with a space is quoted."""
    ours, other = tmp_path / "a b" / "streamdedup", tmp_path / "other" / "streamdedup"
    for script in (ours, other):
        script.parent.mkdir()
        script.touch(0o755)
    monkeypatch.setenv("PATH", str(ours.parent))
    assert demo._command(str(ours)) == "streamdedup"
    for path in (str(other.parent), str(tmp_path)):
        monkeypatch.setenv("PATH", path)
        assert demo._command(str(ours)) == f"'{ours}'"
    monkeypatch.chdir(tmp_path / "a b")
    assert demo._command("./streamdedup") == "./streamdedup"
    assert demo._command("/x/streamdedup/__main__.py") == f"{sys.executable} -m streamdedup"


def test_a_missing_broker_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the extra the command ends in 2, and says how to install it from a checkout."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert main(["demo"]) == 2
    assert "install the extra, from a checkout: pip install '.[demo]'" in capsys.readouterr().err


def test_a_live_line_on_a_terminal(tmp_path: Path) -> None:
    """On a terminal one line is rewritten in place; a second run begins afresh where the first left snapshots."""
    for _ in range(2):
        controller, terminal = pty.openpty()
        with subprocess.Popen(DEMO, cwd=tmp_path, stdout=terminal, stderr=terminal) as process:
            os.close(terminal)
            text = b"".join(_chunks(controller)).decode()
        os.close(controller)
        assert process.returncode == 0
        assert "\r" in text
        assert "\x1b[K" in text
        assert number(text.replace("\r\n", "\n"), "events consumed") == EVENTS


def _chunks(controller: int) -> Iterator[bytes]:
    """What was written to the terminal, until its other side is closed: Linux then says EIO."""
    with suppress(OSError):
        while chunk := os.read(controller, 65_536):
            yield chunk
