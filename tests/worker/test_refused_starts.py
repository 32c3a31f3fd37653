"""Claims about a start that is refused: whatever the reason, it leaves no topic behind; over a broker in memory."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, InvalidSessionTimeoutError

from streamdedup.errors import StreamdedupError
from streamdedup.kafka.topics import DELETE, READ, RIGHTS_UNKNOWN, WRITE, Topology
from streamdedup.registry import registry
from streamdedup.testing import MemoryBroker, connected_to
from streamdedup.testing.cluster import MemoryCluster
from streamdedup.testing.source import MemoryMember
from tests.deployment import Deployment
from tests.lists.files import list_file
from tests.local import LocalWorker, Start, on_virtual_clock
from tests.registry.stand_ins import PlayedClient

Prepare = Callable[["Stage"], None]
REFUSED_S_MAX = 600.0  # of the virtual clock
MIDDLE = {"topic": "middle", "partitions": 3}
ALL = (1 << 16) - 1
RIGHTS = {"Read": READ, "Write": WRITE, "Delete": DELETE}


class Stage:
    """A broker in memory that has the input alone, and a deployment whose worker makes all other topics."""

    def __init__(self, directory: Path, *, staged: bool) -> None:
        self.broker, self.deployment = MemoryBroker(), Deployment("memory:1", directory, 2)
        self.config: dict[str, dict[str, Any]] = self.deployment.config
        self.config["sink"] |= {
            "create_topics": True,
            "dead_letter_topic": "letters",
            "duplicates_topic": "duplicates",
        }
        if staged:
            self.config["source"]["repartition"] = MIDDLE
        self.broker.create_topic(self.deployment.source, 2)

    def set(self, **sections: Mapping[str, Any]) -> None:
        """Set options of these sections."""
        for name, options in sections.items():
            self.config[name] = {**self.config.get(name, {}), **options}

    def file(self, name: str, text: str) -> str:
        """Write a file; return its path."""
        path = self.deployment.directory / name
        path.write_text(text)
        return str(path)


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
    "too many replicas": (replicated, "could not be created"),
    "no snapshot directory": (
        lambda s: s.set(snapshot={"directory": s.file("file", "") + "/below"}),
        "snapshot.directory",
    ),
}


@pytest.mark.parametrize("staged", [False, True], ids=["one stage", "two stages"])
@pytest.mark.parametrize("why", REFUSALS)
def test_a_start_that_is_refused_leaves_no_topic_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str, *, staged: bool
) -> None:
    """Whatever it is refused for: lists, registry, broker or disk."""
    prepare, said = REFUSALS[why]
    client = PlayedClient({})
    client.error = StreamdedupError("it refuses us")
    monkeypatch.setattr(registry, "Client", lambda _: client)

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, staged=staged)
        prepare(stage)
        before = set(stage.broker.topics)
        worker = start(stage.deployment, connect=connected_to(stage.broker))
        with pytest.raises(StreamdedupError, match=said):
            await asyncio.wait_for(worker.task, REFUSED_S_MAX)
        assert stage.broker.topics.keys() == before

    on_virtual_clock(scene)


def test_a_worker_that_the_group_refuses_makes_no_topic(tmp_path: Path) -> None:
    """With a misspelled output it is of another meaning: it waits, and the misspelled topic is not made."""

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, staged=False)
        connect = connected_to(stage.broker)
        first: LocalWorker = start(stage.deployment, connect=connect)
        await first.live()
        made = set(stage.broker.topics)
        assert made == {stage.deployment.source, stage.deployment.sink, "letters", "duplicates"}
        stage.set(sink={"topic": "misspelled"})
        second = start(stage.deployment, connect=connect)
        await second.logged("group_of_another_configuration")
        await second.stop()
        assert stage.broker.topics.keys() == made

    on_virtual_clock(scene)


def test_the_middle_is_not_made_if_its_owner_may_not_purge(tmp_path: Path) -> None:
    """A middle topic that is there and may not be purged is refused before the others are made."""

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, staged=True)
        worker = start(stage.deployment, connect=connected_to(stage.broker))
        await worker.live(3)
        await worker.stop()
        for name in (stage.deployment.sink, "letters", "duplicates"):
            stage.broker.delete_topic(name)
        there = stage.broker.topics["middle"]
        assert there.topic.rights == RIGHTS_UNKNOWN
        there.topic = replace(there.topic, rights=ALL & ~(1 << DELETE))
        worker = start(stage.deployment, connect=connected_to(stage.broker))
        with pytest.raises(StreamdedupError, match="the right Delete on topic middle is missing"):
            await asyncio.wait_for(worker.task, REFUSED_S_MAX)
        assert stage.broker.topics.keys() == {stage.deployment.source, "middle"}

    on_virtual_clock(scene)


RIGHTS_MISSING = [
    *(
        (staged, *right)
        for staged in (False, True)
        for right in (
            ("output", "Read"),
            ("output", "Write"),
            ("letters", "Write"),
            ("duplicates", "Write"),
        )
    ),
    *((True, "middle", right) for right in RIGHTS),
]


def lacks(stage: Stage, topic: str, right: str) -> str:
    """Take the `right` on a topic that is not there yet; return the topic's name."""
    name = stage.deployment.sink if topic == "output" else topic
    stage.broker.absent_rights[name] = ALL & ~(1 << RIGHTS[right])
    return name


@pytest.mark.parametrize(("staged", "topic", "right"), RIGHTS_MISSING)
def test_a_right_on_a_topic_to_come_is_missed_before_it_is_made(
    tmp_path: Path, topic: str, right: str, *, staged: bool
) -> None:
    """Brokers report the rights on a topic that is not there, too."""

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, staged=staged)
        name = lacks(stage, topic, right)
        before = set(stage.broker.topics)
        worker = start(stage.deployment, connect=connected_to(stage.broker))
        with pytest.raises(StreamdedupError, match=f"the right {right} on topic {name} is missing"):
            await asyncio.wait_for(worker.task, REFUSED_S_MAX)
        assert stage.broker.topics.keys() == before

    on_virtual_clock(scene)


@pytest.mark.parametrize(("staged", "topic", "right"), RIGHTS_MISSING)
def test_what_a_refused_start_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str, right: str, *, staged: bool
) -> None:
    """If the broker reports rights only on topics that are there."""
    monkeypatch.setattr(Topology, "rights_on", lambda *_: RIGHTS_UNKNOWN)

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, staged=staged)
        lacks(stage, topic, right)
        before = set(stage.broker.topics)
        worker = start(stage.deployment, connect=connected_to(stage.broker))
        with pytest.raises(StreamdedupError, match=f"the right {right} on topic") as refusal:
            await asyncio.wait_for(worker.task, REFUSED_S_MAX)
        (line,) = [line for line in str(refusal.value).splitlines() if "this start made" in line]
        assert all(name in line for name in stage.broker.topics.keys() - before)
        assert "delete them only if" in line

    on_virtual_clock(scene)


@pytest.mark.parametrize("error", [GroupAuthorizationFailedError, InvalidSessionTimeoutError])
def test_a_first_stage_that_its_group_refuses_makes_no_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """The middle topic is made once that group has admitted the worker."""
    enter = MemoryMember._enter

    def refusing(self: MemoryMember, now: float) -> str:
        if self._group_id.endswith("-repartition"):
            raise error
        return enter(self, now)

    monkeypatch.setattr(MemoryMember, "_enter", refusing)

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, staged=True)
        worker = start(stage.deployment, connect=connected_to(stage.broker))
        with pytest.raises(StreamdedupError, match=error.__name__):
            await asyncio.wait_for(worker.task, REFUSED_S_MAX)
        assert stage.broker.topics.keys() == {stage.deployment.source}

    on_virtual_clock(scene)


@pytest.mark.parametrize("suffix", ["", "-repartition"])
def test_a_group_that_may_not_be_joined_is_named_before_the_middle_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Of both stages, because the second stage can only join once the middle topic is there."""

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, staged=True)
        refused = f"{stage.deployment.group}{suffix}"

        async def may_join(_self: MemoryCluster, group: str) -> bool:
            return group != refused

        monkeypatch.setattr(MemoryCluster, "may_join", may_join)
        worker = start(stage.deployment, connect=connected_to(stage.broker))
        with pytest.raises(StreamdedupError, match=f"the right Read on group {refused} is missing"):
            await asyncio.wait_for(worker.task, REFUSED_S_MAX)
        assert stage.broker.topics.keys() == {stage.deployment.source}

    on_virtual_clock(scene)


def test_a_first_stage_of_another_configuration_makes_no_topic(tmp_path: Path) -> None:
    """It waits for its group, and the topic of dead letters that it would write to is not made."""

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, staged=True)
        connect = connected_to(stage.broker)
        first: LocalWorker = start(stage.deployment, connect=connect)
        await first.live(3)
        made = set(stage.broker.topics)
        stage.set(sink={"dead_letter_topic": "misspelled"}, key={"normalize": "trim"})
        second = start(stage.deployment, connect=connect)
        await second.logged("group_of_another_configuration")
        await second.stop()
        assert stage.broker.topics.keys() == made

    on_virtual_clock(scene)
