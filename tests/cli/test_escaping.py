"""Claims about text that others chose, at each place where it is shown: it moves no cursor, and ends no line."""

import io
import logging
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import structlog
from _pytest.logging import LogCaptureHandler

from streamdedup import logs
from streamdedup.commands.audit.report import PartitionCounts, Report
from streamdedup.commands.trial import Trial
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.events import Verdict
from streamdedup.lists import facts
from streamdedup.lists.build import builder
from streamdedup.metrics.findings import GROUP_REFUSES, OUTPUT_FORGETS
from streamdedup.progress import Progress
from streamdedup.snapshot import files
from tests.lists.tools import Commands, built
from tests.lists.tools import lists as lists  # noqa: PLC0414 - a fixture
from tests.server.test_server import readyz, status

EVIL = (
    "\x1b[2J\x1b]0;title\x07",
    "a\nwarning: all is well",
    "b\r\x1b[K",
    "\x9b2J \x85 \x7f \0",
    "\u202etxt.exe \u2066 \u200f",
    "c\u2028d\u2029e",
    "\ud83e \udcff",
)
evil = pytest.mark.parametrize("text", EVIL, ids=map(ascii, EVIL))


class Terminal(io.StringIO):
    """Standard error on a terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Log to a terminal; give logging back as it was."""
    stream, levels = Terminal(), (logging.root.level, logging.getLogger("aiokafka").level)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(logging.root, "handlers", [])
    logs.set_up()
    yield stream
    logging.root.setLevel(levels[0])
    logging.getLogger("aiokafka").setLevel(levels[1])


@evil
def test_on_a_terminal_a_line_of_the_log_is_a_line(terminal: Terminal, text: str) -> None:
    """Whether it is the value of a field, the text of a library's line, or the name of its logger."""
    for handler in logging.root.handlers[:]:  # pytest's own: xdist cannot send lone surrogates
        if isinstance(handler, LogCaptureHandler):
            logging.root.removeHandler(handler)
    structlog.get_logger("a").warning("shard_live", in_force=text, among=[text], spaced=f"x {text}")
    logging.getLogger("other").warning("from %s", text)
    logging.getLogger(f"other.{text}").warning("careful")
    shown = re.sub(r"\x1b\[\d+m", "", terminal.getvalue())  # the colors are ours
    lines = shown.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT", line) for line in lines), ascii(lines)
    for said in ("shard_live", "from", "careful"):
        assert sum(said in line for line in lines) == 1, ascii(lines)
    assert all(map(str.isprintable, lines)), ascii(lines)


@evil
def test_readyz_has_a_line_for_each_reason(text: str) -> None:
    """A group's assignor, and whatever else a reason or a warning may quote."""
    refused, forgets = status(None), status({})
    source: Any = refused.source
    source.refused_since = 3.0
    refused.group_says = GROUP_REFUSES.at(None, f"joined by {text}")
    (line,) = readyz(refused)[1]
    assert line.startswith("joined by ")
    assert line.isprintable()
    forgets.output_forgets = OUTPUT_FORGETS.at(text, text, text)
    lines = readyz(forgets)[1]
    assert all(map(str.isprintable, lines))


@evil
def test_try_and_audit_print_a_line_for_each_finding(text: str) -> None:
    """Reasons and notes, and names of topics and groups."""
    trial = Trial(text, 1, 2, 1, Counter({Verdict.MALFORMED: 1}), Counter({text: 1}))
    trial.first[text], trial.notes = (text, 0, 0, ""), [text]
    counts: Any = {each.name: 0 for each in fields(PartitionCounts)} | {"offsets": {}, "limits": ()}
    report = Report(
        group=text,
        source=text,
        sink=text,
        guarantee=text,
        error_rate=0.1,
        partitions=(),
        total=PartitionCounts(**counts),
        breaches=(text,),
        notes=(text,),
    )
    for shown in (trial.as_text(), report.as_text()):
        assert shown.replace("\n", "").isprintable()
    assert trial.as_text().count("\n") == 5
    assert report.as_text().count("\n") == 9


@evil
def test_lists_inspect_prints_a_line_for_each_fact(
    lists: Commands, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """The header of a list is its builder's, who may be anybody."""
    monkeypatch.setattr(files, "writer", lambda: text)
    built(lists.directory, ["a"])
    said = lists("inspect", "out.list")
    assert said.status == 0
    assert len(said.out.decode().split("\n")) == 13
    assert said.out.decode().replace("\n", "").isprintable()


@pytest.mark.parametrize("name", [*EVIL, "", "x" * 101, "x" * 64_000])
def test_a_list_whose_name_no_build_gives_is_refused(
    lists: Commands, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It would be in headers of events, in metrics and in logs. A build refuses it, and so does a load."""
    with pytest.raises(ConfigError):
        facts.check_name(name)
    monkeypatch.setattr(builder, "check_name", lambda _: None)
    with pytest.raises(SnapshotError, match="its name is no text of 1 to 100 printable characters"):
        built(lists.directory, ["a"], name=name)
    said = lists("inspect", "out.list")
    assert said.status == 1
    assert "its name is no text" in said.errors
    assert said.errors.replace("\n", "").isprintable()


@evil
def test_lists_check_prints_a_line_for_each_key(lists: Commands, text: str) -> None:
    """With three fields; what is no control character stays as it was given."""
    built(lists.directory, ["größe@x.com", "a"])
    key = f"{text}x".encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
    said = lists("check", "out.list", key, "größe@x.com", "a\\tb", "a\tb")
    lines = said.out.decode("utf-8", "surrogateescape").split("\n")
    assert len(lines) == 5
    assert [line.count("\t") for line in lines] == [2, 2, 2, 2, 0]
    assert re.sub("[\t\udca0-\udcff]", "", lines[0]).isprintable()
    assert lines[1:4] == ["blocked\taddress\tgröße@x.com", "pass\t-\ta\\tb", "pass\t-\ta\\tb"]


@evil
def test_an_error_of_a_command_moves_no_cursor(lists: Commands, text: str) -> None:
    """It may quote a path. Its own line ends stay."""
    name = text.replace("\0", "").encode("utf-8", "replace").decode()
    said = lists("inspect", f"{name}.list")
    assert said.status == 1
    assert said.errors.replace("\n", "").isprintable()
    out = io.StringIO()
    Progress(out, live=False).say(f"{text}\nx")
    assert out.getvalue().replace("\n", "").isprintable()
