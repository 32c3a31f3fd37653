"""A deployment over a broker in memory, with the calls of one on a real broker."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from typing_extensions import override

from streamdedup.commands.audit import Report, audit
from streamdedup.commands.audit.run import SORT_BYTES
from streamdedup.kafka.records.records import Record as Written
from streamdedup.settings import load
from streamdedup.testing import MemoryBroker, connected_to
from tests.broker.topics import Event, Record, unique_name
from tests.deployment import Deployment
from tests.local import LocalWorker, Start, on_virtual_clock


class MemoryDeployment(Deployment):
    """One input, one output, one group, in memory; its workers run on a virtual clock."""

    def __init__(self, directory: Path, partitions: int = 1) -> None:
        super().__init__("memory:1", directory, partitions)
        self.broker = MemoryBroker()
        self.connect = connected_to(self.broker)

    @override
    def create(self, **output: str | int) -> "MemoryDeployment":
        self.broker.create_topic(self.source, self.partitions)
        self.broker.create_topic(self.sink, self.partitions, **output)
        return self

    @override
    def create_side_topic(self, leaf: str, **config: str | int) -> str:
        name = unique_name(leaf.replace("_", "-"))
        self.broker.create_topic(name, self.partitions, **config)
        self.config["sink"][leaf] = name
        return name

    def alter(self, topic: str, **config: str | int) -> None:
        """Change settings of a topic."""
        known = self.broker.topics[topic]
        given = {key.replace("_", "."): str(value) for key, value in config.items()}
        known.topic = replace(known.topic, settings={**known.topic.settings, **given})

    @override
    def feed(self, events: Iterable[Event]) -> None:
        self.produce(self.source, events)

    def produce(self, topic: str, events: Iterable[Event]) -> None:
        """Append events to a topic."""
        for partition, key, value, headers, stamped_ms in events:
            record = Written.of(stamped_ms or self.broker.now_ms(), key, value, headers)
            self.broker.log(topic, partition).append([record])

    def read_all(self, topic: str) -> list[Record]:
        """Return the committed events of a topic, partition by partition."""
        return [
            Record(partition, e.offset, e.key, e.value, tuple(e.headers), e.timestamp)
            for partition, events in enumerate(self.broker.read_all(topic))
            for e in events
        ]

    @override
    def input_ends(self) -> dict[int, int]:
        logs = self.broker.topics[self.source].logs
        return {partition: log.end for partition, log in enumerate(logs)}

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit offsets of the input, as another tool does."""
        self.broker.move_offsets(self.group, self.source, offsets)

    async def work_with(self, start: Start) -> LocalWorker:
        """Start a worker, let it commit the end of the input, drain it."""
        async with start(self, connect=self.connect) as worker:
            await worker.live()
            ends = self.input_ends()
            at = self.broker.committed
            await worker.until(lambda: at(self.group, self.source) == ends, f"offsets {ends}")
        return worker

    def work(self) -> LocalWorker:
        """As `work_with`, for tests without a loop."""
        workers: list[LocalWorker] = []

        async def scene(start: Start) -> None:
            workers.append(await self.work_with(start))

        on_virtual_clock(scene)
        return workers[0]

    def audited(self, size_bytes: int = SORT_BYTES) -> Report:
        """Return the report of an audit."""
        settings = load(self.write_config())
        return asyncio.run(audit(settings, self.connect, size_bytes=size_bytes))


def findings(report: Report) -> dict[str, int | None]:
    """The five findings of the whole."""
    names = ("lost", "missing", "wrongly_dropped", "doubled", "foreign")
    return {name: getattr(report.total, name) for name in names}
