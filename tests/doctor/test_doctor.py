"""What doctor promises as a whole: statuses, time, no trace, and that an unknown is never ok."""

import asyncio
import json
import os
import re
import time
from functools import partial
from pathlib import Path

import pytest

from streamdedup.cli import main
from streamdedup.commands import doctor as command
from streamdedup.doctor import brokers, examine, facts, machine
from streamdedup.doctor.examine import CHECKS, OF_SAMPLE
from streamdedup.doctor.lines import LINES_MAX, Line, Report, Status, bounded, ok, warning
from streamdedup.testing import HangingNetwork, connected_to
from tests.doctor.stage import EVENTS, KEY, Stage

ANSWER_S_MAX = 0.5

# Which checks need the answer of a call: no other one may wait for it.
HANGING = {
    "describe_groups": {"group-members", "group-meaning", "group-partitions", "group-unread"},
    "api_versions": {
        "broker-versions",
        "broker-features",
        "broker-limits",
        "broker-offsets",
        "broker-racks",
        "topic-replicas",
        "descriptors",
    },
    "list_groups": {"output-shared"},
    "describe_acls": {"rights-topics", "rights-groups", "rights-transactions"},
}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks wait for half a second only."""
    monkeypatch.setattr(brokers, "MEMBERS_S_MAX", ANSWER_S_MAX / 5)
    for module in (examine, facts, command):
        monkeypatch.setattr(module, "ANSWER_S_MAX", ANSWER_S_MAX)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("call", HANGING)
def test_an_answer_that_never_comes_makes_its_lines_unknown(tmp_path: Path, call: str) -> None:
    """And no others: no line waits for another."""
    well = Stage(tmp_path)
    well.feed([KEY, b"another"])
    known = {line.check for line in well.look().lines if line.status is Status.UNKNOWN}
    well.broker.network = HangingNetwork(call)
    started = time.monotonic()
    lines = well.look().lines
    assert time.monotonic() - started < 6 * ANSWER_S_MAX
    hanging = [line for line in lines if line.sentence == f"no answer within {ANSWER_S_MAX:g} s"]
    assert {line.check for line in hanging} == HANGING[call]
    assert all(line.status is Status.UNKNOWN for line in hanging)
    unknown = {line.check for line in lines if line.status is Status.UNKNOWN}
    of_sample = {check.id for check in OF_SAMPLE}  # whose first one loads compiled loops
    assert unknown - of_sample == (known | HANGING[call]) - of_sample


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("call", ["list_offsets", "offset_fetch", "fetch"])
def test_no_unknown_is_ok(tmp_path: Path, call: str) -> None:
    """A check that could not ask what it needs does not say that it is well."""
    stage = Stage(tmp_path, HangingNetwork(call))
    stage.feed([KEY])
    stage.emit(1)
    stage.commit(0, label=0)
    asks = {
        "list_offsets": ("group-unread", "output-resume", "filter-room", "open-transactions"),
        "offset_fetch": ("group-offsets", "group-unread", "output-writers", "output-resume"),
        "fetch": ("output-writers", "sample-keys"),
    }[call]
    lines = stage.look().lines
    for check in asks:
        assert {line.status for line in lines if line.check == check} == {Status.UNKNOWN}, check


def test_all_is_well(tmp_path: Path) -> None:
    """Each check has a line, in the order of the catalogue, and only those are unknown that need a worker."""
    stage = Stage(tmp_path)
    stage.feed(b"user%d" % n for n in range(10))
    report = stage.look()
    assert list(dict.fromkeys(line.check for line in report.lines)) == [
        check.id for check in (*CHECKS, *OF_SAMPLE)
    ]
    said = [line for line in report.lines if line.status is not Status.OK]
    assert {line.check for line in said} <= {"clock", "broker-limits", "broker-offsets", "compiled"}


def test_it_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is removed, also if the disk is full; no topic is made, no offset is committed, nobody is a member."""
    stage = Stage(tmp_path)
    stage.feed([KEY])
    before = sorted(tmp_path.rglob("*"))
    stage.look()
    directory = stage.settings.snapshot.directory

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    (line,) = stage.lines("disk-speed")
    assert (line.status, line.place) == (Status.FAILURE, str(directory))
    assert sorted(set(tmp_path.rglob("*")) - set(before)) == [stage.there.write_config()]
    assert stage.broker.topics.keys() == {stage.source, stage.sink}
    assert not stage.broker.group(stage.group).offsets
    assert not stage.broker.group(stage.group).members
    assert not stage.broker.transactions


def test_the_file_of_the_disk_has_no_name_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So nothing is left, whatever ends the process."""
    stage = Stage(tmp_path)
    directory, seen = stage.settings.snapshot.directory, list[list[Path]]()
    real = os.fsync

    def looked(fd: int) -> None:
        seen.append(list(directory.iterdir()))
        real(fd)

    monkeypatch.setattr(os, "fsync", looked)
    assert stage.lines("disk-speed")[0].status in (Status.OK, Status.WARNING)
    assert seen == [[]]


def test_nothing_is_written_if_little_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below 1 GiB."""
    monkeypatch.setattr(machine, "_free_and_used", lambda _: ((1 << 30) - 1, 0))
    monkeypatch.setattr(machine, "written_s", None)
    (line,) = Stage(tmp_path).lines("disk-speed")
    assert line.status is Status.UNKNOWN
    assert "nothing was written" in line.sentence


@pytest.mark.parametrize(
    ("statuses", "answered", "status"),
    [
        ([Status.OK], True, 0),
        ([Status.OK, Status.UNKNOWN], True, 0),
        ([Status.WARNING, Status.UNKNOWN], True, 3),
        ([Status.WARNING, Status.FAILURE], True, 2),
        ([Status.FAILURE], False, 1),
    ],
)
def test_the_exit_status(statuses: list[Status], answered: bool, status: int) -> None:
    """Of the worst line; an unknown one is no warning."""
    lines = tuple(Line(each, "it is so") for each in statuses)
    assert Report(lines, answered, 1.0).exit_status == status


def test_a_check_has_a_bounded_number_of_lines() -> None:
    """Of each status; what is left out is counted."""
    lines = [warning(f"line {n}", "none") for n in range(64)]
    found = bounded([*lines, ok("well")])
    assert len(found) == LINES_MAX + 2
    assert found[-1].status is Status.WARNING
    assert f"{64 - LINES_MAX} more lines" in found[-1].sentence


def test_json_has_the_same_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object; and `config check --connect` ends with 0 where doctor ends with 3."""
    stage = Stage(tmp_path)
    stage.topic(stage.sink, settings={"retention.ms": "1000"})
    stage.feed([KEY] * 200)
    connect = connected_to(stage.broker)
    monkeypatch.setattr(command, "doctor", partial(command.doctor, connect=connect))
    file = str(stage.there.write_config())
    assert main(["doctor", file, "--json"]) == 3
    told = capsys.readouterr().out
    assert KEY.decode() not in told
    report = json.loads(told)
    assert report["counts"]["failure"] == 0
    (line,) = [line for line in report["lines"] if line["check"] == "topic-retention"]
    assert line["finding"] == "output-forgets-first"
    assert main(["config", "check", "--connect", file]) == 0
    text = capsys.readouterr().out
    assert "warning  topic-retention [output-forgets-first]: " in text


def test_without_a_broker_the_machine_is_looked_at(tmp_path: Path) -> None:
    """The first line says that no broker answers, the others that ask it are unknown, and the status is 1."""
    stage = Stage(tmp_path)
    stage.config["kafka"] |= {"bootstrap_servers": "127.0.0.1:1", "give_up_after_s": 1}
    report = asyncio.run(command.doctor(stage.settings, EVENTS))
    assert report.exit_status == 1
    by = {line.check: line for line in report.lines}
    assert by["broker-versions"].status is Status.FAILURE
    assert "no broker answered at 127.0.0.1:1" in by["broker-versions"].sentence
    asking = [check.id for check in CHECKS if check.asks_brokers][1:]
    assert {by[check].status for check in asking} == {Status.UNKNOWN}
    assert by["disk-speed"].status is not Status.UNKNOWN
    text = report.as_text()
    assert (
        text.count("no broker can be asked") == 1
    )  # the page of a person has one line for all of them
    assert re.search(r"^unknown  \d\d checks: no broker can be asked", text, re.MULTILINE)
    assert len(report.as_json()["lines"]) > len(text.splitlines())
