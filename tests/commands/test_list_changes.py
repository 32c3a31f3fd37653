"""Claims about `streamdedup lists changes`: which single changes are in force, and who made them; in memory."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamdedup.commands.lists import in_force as module
from streamdedup.commands.lists.in_force import in_force
from streamdedup.kafka.records.records import Record
from streamdedup.lists import in_force as reading
from streamdedup.lists.control import Op, message
from streamdedup.lists.overlay import Changes
from streamdedup.testing import MemoryBroker, connected_to
from tests.deployment import Deployment
from tests.lists.tools import Commands, Said, lists

__all__ = ["lists"]  # a fixture
TOPIC, AT_MS = "control", 1_795_360_114_000  # 2026-11-22T15:08:34Z


class Stage:
    """A control topic of three partitions, and the command."""

    def __init__(self, lists: Commands, patch: pytest.MonkeyPatch, directory: Path) -> None:
        self.broker, self._lists = MemoryBroker(), lists
        self.broker.create_topic(TOPIC, 3, cleanup_policy="compact")
        self.config = Deployment("memory:1", directory, 1)
        self.config.config["key"] = {"from": "value", "normalize": "email"}
        block = {"file": str(directory / "not built yet.list"), "control_topic": TOPIC}
        self.config.config["blocklist"] = block
        patch.setattr(module, "in_force", partial(in_force, connect=connected_to(self.broker)))

    def write(
        self,
        entry: bytes,
        op: Op | bytes,
        *,
        reason: str = "",
        actor: str = "",
        partition: int = 0,
        after_s: int = 0,
    ) -> None:
        """Append a change, written so many seconds after AT_MS."""
        value = op if isinstance(op, bytes) else message(op, reason, actor)
        record = Record.of(AT_MS + 1000 * after_s, entry, value)
        self.broker.log(TOPIC, partition).append([record])

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Said:
        """Run the command."""
        config = str(self.config.write_config())
        return self._lists("changes", "-c", config, *arguments, stdin=stdin)

    def rows(self, *arguments: str, stdin: bytes = b"") -> Sequence[list[str]]:
        """The fields of each line that it prints."""
        said = self(*arguments, stdin=stdin)
        assert said.status == 0, said.errors
        return [line.split("\t") for line in said.out.decode().splitlines()]


@pytest.fixture
def stage(lists: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    """Changes of five entries; of one, the first was taken back."""
    made = Stage(lists, monkeypatch, tmp_path)
    made.write(b"a@x.example", "add", reason="Reported twice", actor="anna")
    made.write(b"b@x.example", "add")
    made.write(b"b@x.example", "undo", after_s=1)
    made.write(b"a@x.example", b"no JSON", after_s=2)
    made.write(b"@x.example", "remove", reason="a partner", partition=1, after_s=3)
    made.write(b".tree.example", "add", actor="import\t7", partition=2, after_s=4)
    made.write(b"c@y.example", "add", reason="first", after_s=5)
    made.write(b"c@y.example", "remove", reason="second\nline", after_s=6)
    return made


def test_each_change_in_force_has_its_place_author_time_and_reason(stage: Stage) -> None:
    """The newest first, a line each, without a key; a malformed message and one that was undone are not among them."""
    assert stage.rows() == [
        ["0/5", "remove", "address", "-", "2026-11-22T15:08:40Z", r"second\nline"],
        ["2/0", "add", "domain", r"import\t7", "2026-11-22T15:08:38Z", "-"],
        ["1/0", "remove", "domain", "-", "2026-11-22T15:08:37Z", "a partner"],
        ["0/0", "add", "address", "anna", "2026-11-22T15:08:34Z", "Reported twice"],
    ]
    said = stage()
    assert "control has 1 malformed message, which change nothing" in said.errors
    assert "example" not in said.out.decode() + said.errors


def test_entries_are_shown_if_asked_for(stage: Stage) -> None:
    """As the last field, to whoever may see them."""
    assert [row[-1] for row in stage.rows("--show-entries")] == [
        "c@y.example",
        ".tree.example",
        "@x.example",
        "a@x.example",
    ]


@pytest.mark.parametrize(
    ("asked", "entries"),
    [
        (["A@X.example"], ["@x.example", "a@x.example"]),
        (["other@a.tree.example"], [".tree.example"]),
        (["@x.example"], ["@x.example"]),
        ([".TREE.example"], [".tree.example"]),
        (["b@z.example"], []),
        (["c@y.example", "a@x.example"], ["c@y.example", "@x.example", "a@x.example"]),
    ],
)
def test_a_key_that_is_typed_is_answered_with_the_entries_that_concern_it(
    stage: Stage, asked: list[str], entries: list[str]
) -> None:
    """Its own change, and those of its domains; also if it is a line of standard input."""
    assert [row[-1] for row in stage.rows(*asked)] == entries
    lines = "\n".join(asked).encode()
    assert [row[-1] for row in stage.rows("-", stdin=lines)] == entries
    if not entries:
        assert "no change that was asked for is in force" in stage(*asked).errors


def test_what_is_no_key_is_refused_and_not_repeated(stage: Stage) -> None:
    """By its number."""
    said = stage("a@x.example", "secret.example")
    assert said.status == 2
    assert "entry 2 is not valid: the entry is a domain without a mark" in said.errors
    assert "secret" not in said.errors


def test_a_program_gets_one_object(stage: Stage) -> None:
    """With nulls for what is not known."""
    report: Any = json.loads(stage("--json", "c@y.example").out)
    assert (report["topic"], report["in_force"], report["malformed"]) == ("control", 1, 0)
    assert report["changes"] == [
        {
            "partition": 0,
            "offset": 5,
            "op": "remove",
            "kind": "address",
            "actor": None,
            "time": "2026-11-22T15:08:40Z",
            "reason": "second\nline",
            "entry": "c@y.example",
        }
    ]
    report = json.loads(stage("--json").out)
    assert report["in_force"] == 4
    assert not any("entry" in change for change in report["changes"])


def test_at_most_so_many_are_shown(stage: Stage) -> None:
    """The newest of all partitions, and how many there are."""
    for number in range(200):
        stage.write(b"n%d@z.example" % number, "add", partition=number % 3, after_s=100 + number)
    assert [row[0] for row in stage.rows("--limit", "2")] == ["1/67", "0/72"]
    said = stage("--limit", "2")
    assert "the newest 2 of 204 changes; --limit shows more" in said.errors
    with pytest.raises(SystemExit, match="2"):
        stage("--limit", "200k")


def test_among_partitions_the_latest_counts(stage: Stage) -> None:
    """As on a worker, after partitions were added; and a key that is changed again stands once."""
    stage.write(b"a@x.example", "remove", partition=2, after_s=60)
    stage.write(b"a@x.example", "add", partition=1, after_s=30)
    stage.write(b"c@y.example", "add", reason="same time", after_s=6)
    stage.write(b"c@y.example", "add", reason="same time, later", after_s=6)
    rows = {row[-1]: row for row in stage.rows("a@x.example", "c@y.example")}
    assert rows["a@x.example"][:2] == ["2/1", "remove"]
    assert rows["c@y.example"][:2] == ["0/7", "add"]
    assert rows["c@y.example"][5] == "same time, later"


def test_all_is_found_however_the_changes_are_merged(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many are merged now and then while they are read."""
    before = stage.rows("--show-entries")
    monkeypatch.setattr(reading, "Changes", partial(Changes, latest_max=2))
    monkeypatch.setattr(reading, "ROWS_A_TURN", 1)
    assert stage.rows("--show-entries") == before


def test_messages_after_an_open_transaction_are_announced(stage: Stage) -> None:
    """They are not in force, and whoever looks for one must know why."""
    log = stage.broker.log(TOPIC, 1)
    log.append([Record.of(AT_MS, b"d@z.example", message("add", ""))], "another program's")
    said = stage("d@z.example")
    assert said.out == b""
    assert "a transaction is open on control/1 from offset 1 on" in said.errors


def test_without_a_control_topic_there_is_nothing_to_ask(stage: Stage) -> None:
    """By the name of the option."""
    del stage.config.config["blocklist"]["control_topic"]
    said = stage()
    assert said.status == 2
    assert "blocklist.control_topic is not set, so there are no single changes" in said.errors
