"""Claims about `streamdedup config check --connect`, on a broker in memory: what it says is what a start would say.

It runs `doctor`, of which tests/doctor has more; here warnings end with status 0.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from streamdedup.cli import main
from streamdedup.commands import doctor as module
from streamdedup.kafka.topics import READ, WRITE
from streamdedup.kafka.topics import RIGHTS_UNKNOWN as ANY
from streamdedup.testing import MemoryBroker, connected_to
from tests.deployment import Deployment
from tests.registry.stand_ins import answering

DAY_MS = 86_400_000


class Stage:
    """A broker in memory, on which nothing is, and a deployment of two partitions."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deployment, self.broker = Deployment("memory:1", directory, 2), MemoryBroker()
        connect = connected_to(self.broker)
        monkeypatch.setattr(module, "doctor", partial(module.doctor, connect=connect))

    def create(self, sink: int, **settings: int) -> None:
        """Create the input, and the output with so many partitions."""
        self.broker.create_topic(self.deployment.source, 2)
        self.broker.create_topic(self.deployment.sink, sink, **settings)

    def check(self) -> int:
        """The exit status."""
        return main(["config", "check", "--connect", str(self.deployment.write_config())])


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Nothing on the broker yet."""
    return Stage(tmp_path, monkeypatch)


def test_a_missing_topic_is_an_error(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """By the same message as at a start, with the status of a wrong configuration."""
    assert stage.check() == 2
    assert f"the topic {stage.deployment.source} does not exist" in capsys.readouterr().out
    stage.broker.create_topic(stage.deployment.source, 2)
    assert stage.check() == 2
    assert f"the topic {stage.deployment.sink} does not exist" in capsys.readouterr().out


def test_an_output_that_forgets_first_is_a_warning(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker would start, so the status is 0."""
    stage.create(2, retention_ms=DAY_MS)
    assert stage.check() == 0
    said = capsys.readouterr().out
    assert f"{stage.deployment.sink} deletes events (retention.ms={DAY_MS})" in said
    assert "warning  topic-retention [output-forgets-first]" in said


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize(
    ("settings", "rights", "said"),
    [
        (None, ANY, "the topic changes does not exist"),
        ({"cleanup_policy": "delete"}, ANY, "the topic changes deletes old messages"),
        ({"cleanup_policy": "compact,delete"}, ANY, "the topic changes deletes old messages"),
        ({"cleanup_policy": "compact"}, 1 << WRITE, "the right Read on topic changes is missing"),
        ({"cleanup_policy": "compact"}, 1 << READ, ""),
    ],
)
def test_a_control_topic_is_checked(
    stage: Stage,
    capsys: pytest.CaptureFixture[str],
    settings: dict[str, str] | None,
    rights: int,
    said: str,
    *,
    staged: bool,
) -> None:
    """As a start checks it: it must be there, keep the last message of each key, and be ours to read."""
    stage.create(3)
    if settings is not None:
        stage.broker.create_topic("changes", 1, **settings)
        made = stage.broker.topics["changes"]
        made.topic = replace(made.topic, rights=rights)
    if staged:
        stage.deployment.config["source"]["repartition"] = {"topic": "middle", "partitions": 3}
    (entries := stage.deployment.directory / "blocked.txt").write_text("x@example.com\n")
    file = str(stage.deployment.directory / "blocked.list")
    assert main(["lists", "build", str(entries), "-o", file]) == 0
    stage.deployment.config["blocklist"] = {"file": file, "control_topic": "changes"}
    assert stage.check() == (2 if said else 0)
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("staged", [False, True])
def test_nothing_is_made(stage: Stage, capsys: pytest.CaptureFixture[str], *, staged: bool) -> None:
    """What would be made is checked as it would be: it suits."""
    stage.broker.create_topic(stage.deployment.source, 2)
    stage.deployment.config["sink"]["create_topics"] = True
    if staged:
        repartition = {"topic": "middle", "partitions": 3}
        stage.deployment.config["source"]["repartition"] = repartition
    assert stage.check() == 0
    said = capsys.readouterr().out
    assert said.startswith("the configuration is valid\n")
    assert "suit a start; a start makes" in said
    assert stage.broker.topics.keys() == {stage.deployment.source}


def test_the_registry_is_asked(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """With a format that needs one: it answers, or what is wrong is an error of the configuration."""
    there = stage.deployment
    stage.create(2)
    there.config["key"] = {"format": "avro", "field": "id"}
    with answering({"/api/schemas/types": (200, ["AVRO"])}) as told:
        for path, status in (("", 0), ("/elsewhere", 2)):
            there.config["kafka"]["schema_registry"] = {"url": told.url + path}
            told.by_path["/api/elsewhere/schemas/ids/1"] = 404, b"<html>"
            assert stage.check() == status
    said = capsys.readouterr().out
    assert said.count("ok       registry") == 1
    assert "kafka.schema_registry.url answers as no schema registry does: status 404" in said


def test_a_middle_topic_that_does_not_suit_is_named(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both stages are checked."""
    stage.create(3)
    stage.broker.create_topic("middle", 4)
    stage.deployment.config["source"]["repartition"] = {"topic": "middle", "partitions": 3}
    assert stage.check() == 2
    assert "the middle topic middle has 4 partitions" in capsys.readouterr().out
