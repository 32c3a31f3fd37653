"""Claims about a start that is refused: whatever the reason, it leaves no topic behind; over a broker in memory."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamdedup.errors import StreamdedupError
from streamdedup.kafka.topics import DELETE, READ, RIGHTS_UNKNOWN, WRITE
from streamdedup.registry import registry
from streamdedup.testing import MemoryBroker, connected_to
from tests.deployment import Deployment
from tests.lists.files import list_file
from tests.local import LocalWorker, Start
from tests.memory import over
from tests.registry.stand_ins import PlayedClient

Prepare = Callable[["Stage"], None]
REFUSED_S_MAX = 600.0  # of the virtual clock
MIDDLE = {"topic": "middle", "partitions": 3}
ALL = (1 << 16) - 1
RIGHTS = {"Read": READ, "Write": WRITE, "Delete": DELETE}


class Stage:
    """A broker in memory that has the input alone, and a deployment whose worker makes all other topics."""

    def __init__(self, directory: Path, start: Start) -> None:
        self.broker, self.deployment = MemoryBroker(), Deployment("memory:1", directory, 2)
        self.config: dict[str, dict[str, Any]] = self.deployment.config
        self.config["sink"] |= {
            "create_topics": True,
            "dead_letter_topic": "letters",
            "duplicates_topic": "duplicates",
        }
        self.broker.create_topic(self.deployment.source, 2)
        self._start = start

    def repartition(self) -> None:
        """Have workers of both stages."""
        self.config["source"]["repartition"] = MIDDLE

    def start(self) -> LocalWorker:
        """Start a worker."""
        return self._start(self.deployment, connect=connected_to(self.broker))

    async def refused(self, said: str) -> str:
        """Start a worker, which ends by an error that says so; return the error."""
        worker = self.start()
        with pytest.raises(StreamdedupError, match=said) as refusal:
            await asyncio.wait_for(worker.task, REFUSED_S_MAX)
        return str(refusal.value)

    @property
    def topics(self) -> set[str]:
        """Those that are there."""
        return set(self.broker.topics)

    def set(self, **sections: Mapping[str, Any]) -> None:
        """Set options of these sections."""
        for name, options in sections.items():
            self.config[name] = {**self.config.get(name, {}), **options}

    def file(self, name: str, text: str) -> str:
        """Write a file; return its path."""
        path = self.deployment.directory / name
        path.write_text(text)
        return str(path)

    def lacks(self, topic: str, right: str) -> str:
        """Take the `right` on a topic that is not there yet; return the topic's name."""
        name = self.deployment.sink if topic == "output" else topic
        self.broker.absent_rights[name] = ALL & ~(1 << RIGHTS[right])
        return name


def registry_refuses(stage: Stage) -> None:
    """It asks for credentials that the worker does not have."""
    stage.set(
        key={"format": "avro", "from": "json", "field": "id"},
        kafka={"schema_registry": {"url": "http://registry.example"}},
    )


def control_topic(**settings: str) -> Prepare:
    """A control topic of these settings; a missing one if there are none."""

    def prepare(stage: Stage) -> None:
        listed = list_file(stage.deployment.directory / "blocked.list", [b"a"])
        stage.set(blocklist={"file": str(listed), "control_topic": "changes"})
        if settings:
            stage.broker.create_topic("changes", 1, **settings)

    return prepare


def replicated(stage: Stage) -> None:
    """No broker can make what has as many replicas as the input."""
    input_ = stage.broker.topics[stage.deployment.source]
    input_.topic = replace(input_.topic, replicas=3)


def stamped(stage: Stage) -> None:
    """A fold of this output would put all keys into the window of now."""
    stage.set(filter={"kind": "window", "retention": "7d"})
    stage.broker.create_topic(stage.deployment.sink, 3, message_timestamp_type="LogAppendTime")


REFUSALS: Mapping[str, tuple[Prepare, str]] = {
    "a damaged block list": (
        lambda s: s.set(blocklist={"file": s.file("blocked.list", "no list\n")}),
        "blocklist.file: ",
    ),
    "a damaged allow list": (
        lambda s: s.set(
            blocklist={"file": s.file("blocked.list", "")},
            allowlist={"file": s.file("allowed.list", "no list\n")},
        ),
        "allowlist.file: ",
    ),
    "no control topic": (control_topic(), "the topic changes does not exist"),
    "a control topic that deletes": (
        control_topic(cleanup_policy="delete"),
        "the topic changes deletes old messages",
    ),
    "a control topic that deletes, too": (
        control_topic(cleanup_policy="compact,delete"),
        "the topic changes deletes old messages",
    ),
    "a registry that refuses": (registry_refuses, "it refuses us"),
    "a list of other keys": (
        lambda s: s.set(
            blocklist={"file": str(list_file(s.deployment.directory / "a.list", [b"a"]))},
            key={"normalize": "email"},
        ),
        "normaliz",
    ),
    "an output that the broker stamps": (stamped, "replaces timestamps by its own"),
    "too many replicas": (replicated, "could not be created"),
    "no snapshot directory": (
        lambda s: s.set(snapshot={"directory": s.file("file", "") + "/below"}),
        "snapshot.directory",
    ),
}


@pytest.mark.parametrize("staged", [False, True], ids=["one stage", "two stages"])
@pytest.mark.parametrize("why", REFUSALS)
@over(Stage)
async def test_a_start_that_is_refused_leaves_no_topic_behind(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, why: str, *, staged: bool
) -> None:
    """Whatever it is refused for: lists, registry, broker or disk."""
    prepare, said = REFUSALS[why]
    client = PlayedClient({})
    client.error = StreamdedupError("it refuses us")
    monkeypatch.setattr(registry, "Client", lambda _: client)
    if staged:
        stage.repartition()
    prepare(stage)
    before = stage.topics
    await stage.refused(said)
    assert stage.topics == before


@over(Stage)
async def test_a_worker_that_the_group_refuses_makes_no_topic(stage: Stage) -> None:
    """With a misspelled output it is of another meaning: it waits, and the misspelled topic is not made."""
    first = stage.start()
    await first.live()
    made = stage.topics
    assert made == {stage.deployment.source, stage.deployment.sink, "letters", "duplicates"}
    stage.set(sink={"topic": "misspelled"})
    second = stage.start()
    await second.logged("group_of_another_configuration")
    await second.stop()
    assert stage.topics == made


@over(Stage)
async def test_the_middle_is_not_made_if_its_owner_may_not_purge(stage: Stage) -> None:
    """A middle topic that is there and may not be purged is refused before the others are made."""
    stage.repartition()
    async with stage.start() as worker:
        await worker.live(3)
    for name in (stage.deployment.sink, "letters", "duplicates"):
        stage.broker.delete_topic(name)
    there = stage.broker.topics["middle"]
    assert there.topic.rights == RIGHTS_UNKNOWN
    there.topic = replace(there.topic, rights=ALL & ~(1 << DELETE))
    await stage.refused("the right Delete on topic middle is missing")
    assert stage.topics == {stage.deployment.source, "middle"}


RIGHTS_MISSING = [
    ("output", "Read"),
    ("output", "Write"),
    ("letters", "Write"),
    ("duplicates", "Write"),
    *(("middle", right) for right in RIGHTS),
]


@pytest.mark.parametrize("staged", [False, True], ids=["one stage", "two stages"])
@over(Stage)
async def test_a_right_on_a_topic_to_come_is_missed_before_it_is_made(
    stage: Stage, *, staged: bool
) -> None:
    """Brokers report the rights on a topic that is not there, too."""
    if staged:
        stage.repartition()
    for topic, right in RIGHTS_MISSING if staged else RIGHTS_MISSING[:4]:
        stage.broker.absent_rights.clear()
        name = stage.lacks(topic, right)
        await stage.refused(f"the right {right} on topic {name} is missing")
        assert stage.topics == {stage.deployment.source}
