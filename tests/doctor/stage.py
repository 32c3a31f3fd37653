"""A broker in memory, a deployment of two partitions on it, and what doctor says of them."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from streamdedup.commands.doctor import doctor
from streamdedup.doctor import machine
from streamdedup.doctor.lines import Line, Report
from streamdedup.kafka.groups import InForce
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.records import Record
from streamdedup.settings import Settings, load
from streamdedup.settings.meaning import Meaning
from streamdedup.testing import MemoryBroker, connected_to
from streamdedup.testing.cluster import MemoryCluster
from streamdedup.testing.network import Network
from tests.deployment import Deployment

KEY = b"someone@example.com"
EVENTS = 1_000  # of the sample


def wall_ms() -> int:
    """The time, ms since 1970."""
    return round(time.time() * 1000)


class Stage:
    """All is well, but for what a test changes before it asks `look`."""

    def __init__(
        self,
        directory: Path,
        network: Network | None = None,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.broker = MemoryBroker(network, now_ms=now_ms)
        self.there = Deployment("memory:1", directory, 2)
        self.config = self.there.config
        self.source, self.sink, self.group = self.there.source, self.there.sink, self.there.group
        self.broker.create_topic(self.source, 2)
        self.broker.create_topic(self.sink, 2, retention_ms=-1)
        self.there.directory.joinpath("snapshots").mkdir(mode=0o700)

    @property
    def settings(self) -> Settings:
        """As they are written now."""
        return load(self.there.write_config())

    def look(self) -> Report:
        """What doctor finds. It writes less to the disk than for an operator, so that this is quick."""
        with patch.object(machine, "WRITTEN_BYTES", machine.PIECE_BYTES):
            return asyncio.run(doctor(self.settings, EVENTS, connected_to(self.broker)))

    def lines(self, check: str) -> list[Line]:
        """What one check finds."""
        return [line for line in self.look().lines if line.check == check]

    def topic(self, name: str, **changes: Any) -> None:
        """Change what the broker says of a topic; `settings` are added to those that it has."""
        known = self.broker.topics[name]
        if "settings" in changes:
            changes["settings"] = {**known.topic.settings, **changes["settings"]}
        known.topic = replace(known.topic, **changes)

    def feed(self, keys: Iterable[bytes | None], partition: int = 0) -> None:
        """Append events to the input."""
        self.broker.produce(self.source, [(partition, key, b"{}") for key in keys])

    def emit(self, count: int, partition: int = 0) -> None:
        """Append events to the output, without a producer id."""
        self.broker.produce(self.sink, [(partition, b"key%d" % n, b"{}") for n in range(count)])

    def write_open(self, topic: str, stamped_ms: int) -> None:
        """Append an event in a transaction that stays open."""
        self.broker.log(topic, 0).append([Record.of(stamped_ms, KEY, b"{}")], "somebody")

    def commit(self, offset: int, label: int, partition: int = 0, **changes: Any) -> None:
        """Commit an offset of the input, with a note, as a worker does in a transaction."""
        note = Note(
            cluster_id=self.broker.cluster_id,
            input_id=self.broker.topics[self.source].topic.topic_id,
            output_id=self.broker.topics[self.sink].topic.topic_id,
            label=label,
            partitions=2,
            born=2,
            atomic=True,
            meaning=Meaning.of(self.settings).check,
        )
        group = self.broker.group(changes.pop("group", self.group))
        where = InputPartition(self.source, partition)
        group.offsets[where] = offset, replace(note, **changes).encode()

    def has_members(self, monkeypatch: Any, **found: Any) -> None:
        """Let the group have a member; `found` changes what the broker says of it."""
        ours = Meaning.of(self.settings).name
        served = frozenset((self.source, number) for number in range(2))
        known: dict[str, Any] = {"members": ("worker at /10.0.0.7",), "assigned": served}
        told = InForce(**{"assignor": ours, **known, **found})

        async def in_force(_self: MemoryCluster, group: str) -> InForce:
            return told if group == self.group else InForce(None, ())

        monkeypatch.setattr(MemoryCluster, "in_force", in_force)
