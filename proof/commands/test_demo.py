"""The demo: the first thing that a new user runs, so it is run here as they run it."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamdedup import settings
from streamdedup.cli import main
from streamdedup.commands import demo
from streamdedup.commands.demo.stay import endless
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.snapshot.format import PAGE_BYTES
from tests.broker.base import DEADLINE_S, wait_until
from tests.server.test_server import ask

EVENTS, DISTINCT, NEVER_FED, TEXT_BYTES = 58_212, 29_596, 100_000, 1_137_875
ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "streamdedup", "demo"]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the demo prints into a pipe."""
    done = subprocess.run(
        DEMO,
        cwd=tmp_path_factory.mktemp("demo"),
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def numbers(output: str, row: str) -> list[float]:
    """The numbers in a row of the report; the row's name may stand on a line of its own above them."""
    match = re.search(rf"^  {re.escape(row)}\s+(.*)$", output, re.MULTILINE)
    assert match, output
    return [float(number.replace(",", "")) for number in re.findall(r"[\d.,]*\d", match[1])]


def first(output: str, row: str) -> float:
    """The first number in a row of the report."""
    return numbers(output, row)[0]


FILLING = f"of {DISTINCT:,} new pages, while the filter filled up"
EXAMPLE = ("passed on", "dropped")


def test_the_report_adds_up(output: str) -> None:
    """Every event was consumed and has one outcome, and only the false positives are missing from the output."""
    passed, (_, false) = first(output, "passed on"), numbers(output, FILLING)
    assert first(output, "events") == EVENTS
    assert first(output, "different pages") == DISTINCT
    assert passed + first(output, "dropped as duplicates") == EVENTS
    assert passed + false == DISTINCT
    assert first(output, "duplicates among these") == 0
    assert all(value > 0 for value in numbers(output, "time")[:2])


def test_memory_stands_beside_that_of_an_exact_set(output: str) -> None:
    """A Bloom filter of 1 % takes 9.6 bits a key and a little slack; the set takes at least its keys and a pointer."""
    kept = first(output, "passed on")
    filter_bytes, bits, partitions = numbers(output, "the filter")
    assert partitions == 4
    assert 9.5 < bits < 10.5
    assert bits == pytest.approx(8 * filter_bytes / kept, abs=0.06)
    for row, least in (
        ("a Python set of these keys", TEXT_BYTES + DISTINCT * (sys.getsizeof(b"") + 8)),
        ("the text of the keys alone", TEXT_BYTES),
    ):
        size, bits, ratio = numbers(output, row)
        assert least <= size < 4 * TEXT_BYTES
        assert bits == pytest.approx(8 * size / DISTINCT, abs=0.06)
        assert ratio == pytest.approx(size / filter_bytes, abs=0.6)
    assert first(output, "the text of the keys alone") == TEXT_BYTES


def test_a_dropped_event_stands_below_the_first_of_its_key(output: str) -> None:
    """Both are events of the data, with one page; the one that was dropped came later."""
    lines = [re.search(rf"^  {name} +(\{{.*\}})$", output, re.MULTILINE) for name in EXAMPLE]
    first, again = (json.loads(line[1]) for line in lines if line)
    assert first["url"] == again["url"]
    urls = demo.home_pages()
    assert urls.index(first["url"]) == first["id"] < again["id"]
    assert urls[again["id"]] == again["url"]


@pytest.mark.parametrize(
    ("urls", "passed", "first", "again"),
    [
        ("aba", {0, 1}, 0, 2),
        ("abb", {0, 1}, 1, 2),
        ("baab", {0, 1, 2}, 0, 3),  # the second a passed, too
        ("aacc", {2}, 2, 3),  # the first a was dropped by a false positive
    ],
)
def test_the_example_is_a_duplicate_of_what_passed(
    urls: str, passed: set[int], first: int, again: int
) -> None:
    """Not a false positive, and not an event whose first one was dropped."""
    found = demo._example(list(urls), passed)
    assert [json.loads(event)["id"] for event in found] == [first, again]


def test_the_size_of_snapshots_is_explained(output: str) -> None:
    """They are larger than the filter by a constant for each file, and the numbers agree."""
    (filter_bytes, *_), (size, files) = (
        numbers(output, "the filter"),
        numbers(output, "snapshots of the filter")[:2],
    )
    found = re.search(
        r"^    ([\d.]+) times the filter, .* each file has ([\d,]+)$", output, re.MULTILINE
    )
    assert found
    assert float(found[1]) == pytest.approx(size / filter_bytes, abs=0.06)
    beside = float(found[2].replace(",", ""))
    assert beside == pytest.approx((size - filter_bytes) / files, abs=1)
    assert beside < 3 * PAGE_BYTES


def test_a_filter_that_forgets_is_seen() -> None:
    """An empty filter in the place of a full one answers no to every key, and the probe counts no false positive."""
    full, forgetful = Bloom(1_000, 0.01), Bloom(1_000, 0.01)
    full.add_many(full.digests([b"%d" % number for number in range(1_000)]))
    measured = demo._probe([full], {b"never fed 0"})
    assert measured.new == NEVER_FED - 1
    assert abs(measured.actual - measured.estimated) < 5 * measured.estimated**0.5
    assert measured.actual > 0.005 * NEVER_FED
    assert demo._probe([forgetful], set()).actual == 0


def test_plain_lines_without_a_terminal(output: str) -> None:
    """Progress is plain lines in a pipe: rate, verdicts, fill, error, and no control characters."""
    lines = [line for line in output.splitlines() if " full  error " in line]
    assert lines
    assert all(
        re.fullmatch(
            r" *[\d,]+ events +[\d,]+/s  passed +[\d,]+  dropped +[\d,]+  +\d+% full  error \d\.\d\d%",
            line,
        )
        for line in lines
    )
    assert re.search(r"58,212 events .* 9\d% full  error 0\.[89]\d%$", lines[-1])
    assert "\r" not in output
    assert "\x1b" not in output


def test_the_report_fits_into_80_columns(output: str) -> None:
    """No line is wrapped, but for the commands to copy: a live line that is wrapped cannot be rewritten."""
    printed, _ = output.split("What to do next")
    assert max(map(len, printed.splitlines())) <= 80


def test_the_end_names_snapshots_and_next_commands(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshots' place and size, and two commands to try next, with a file that is there and loads."""
    assert re.search(
        r"^  snapshots of the filter +[\d,]+ +4 files in var/demo-snapshots$", output, re.MULTILINE
    )
    commands = re.findall(r"streamdedup (pipe|try) (.+)$", output, re.MULTILINE)
    assert [name for name, _ in commands] == ["pipe", "try"]
    _, config, *rest = shlex.split(commands[1][1])
    assert rest[::2] == ["--set"] * 3
    monkeypatch.chdir(tmp_path)  # as empty as the directory where the demo ran
    tree = settings.load(Path(config), rest[1::2], environ={})
    assert tree.delivery.guarantee == "exactly_once"
    assert (tree.source.topic, tree.key.field) == ("TOPIC", "FIELD")


def test_a_file_to_copy_is_short_and_quoted() -> None:
    """From below the example its path is relative to where we are, and a space in it is no end."""
    for here, file in (("/a b", "c/x.yaml"), ("/", "'a b/c/x.yaml'"), ("/d", "'/a b/c/x.yaml'")):
        said = demo._next("./streamdedup", Path("/a b/c/x.yaml"), Path(here))
        assert f"./streamdedup try -c {file} --set " in said


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
    """Without the extra the command ends in 2, and gives a command that is right after a wheel, too.

    It names no checkout: it installs for this Python what the extra consists of.
    """
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert main(["demo"]) == 2
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (needed,) = project["optional-dependencies"]["demo"]
    command = f"{shlex.quote(sys.executable)} -m pip install '{needed}'"
    assert f"which is not installed; install it: {command}\n" in capsys.readouterr().err


def test_a_demo_that_stays_serves_its_page_until_it_is_interrupted(tmp_path: Path) -> None:
    """It prints the address, feeds on, and ends in 0 once it is told to."""
    with subprocess.Popen([*DEMO, "--stay"], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            line = next(line for line in process.stdout if b"http://" in line)
            port = int(line.decode().strip().rstrip("/").rpartition(":")[2])
            wait_until(lambda: consumed(port) > 1_000, DEADLINE_S, lambda: "not 1,000 events")
            assert ask(port, "/")[1].startswith("<!doctype html>")
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0


def consumed(port: int) -> float:
    """How many events the worker on this port has consumed."""
    families = text_string_to_metric_families(ask(port, "/metrics")[1])
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "streamdedup_events_consumed_total"
    )


def test_the_events_that_keep_coming_are_half_duplicates() -> None:
    """First the data of the demo, then new pages and known ones in turn."""
    urls = ["a", "b", "a"]
    assert list(islice(endless(urls), 9)) == [
        *urls,
        *("https://example.org/0", "a", "https://example.org/1", "b", "https://example.org/2", "a"),
    ]


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
        assert first(text.replace("\r\n", "\n"), "events") == EVENTS


def _chunks(controller: int) -> Iterator[bytes]:
    """What was written to the terminal, until its other side is closed: Linux then says EIO."""
    with suppress(OSError):
        while chunk := os.read(controller, 65_536):
            yield chunk
