"""Deployments with `source.repartition`: on a real broker, and over one in memory."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from streamdedup.delivery.services import wall_clock_ms
from streamdedup.kafka.base import Cluster, GroupWriter
from streamdedup.kafka.group_sink import KafkaGroupWriter
from streamdedup.kafka.partitions import InputPartition
from streamdedup.settings import load
from streamdedup.testing import connected_to
from streamdedup.worker.staged import CopyingWorker
from tests.broker.topics import create_topic, read_all, unique_name
from tests.deployment import Deployment, WorkerProcess
from tests.local import LocalWorker, Start
from tests.memory import OverMemory
from tests.spread import PARTITIONS

INPUTS, PLACES = 3, 4


class Staged(Deployment):
    """A deployment whose input is repartitioned; its workers make the middle topic and the output."""

    def __init__(self, bootstrap: str, directory: Path, partitions: int = PARTITIONS) -> None:
        super().__init__(bootstrap, directory, partitions)
        self.middle = unique_name("middle")
        self.config["source"]["repartition"] = {"topic": self.middle, "partitions": PLACES}
        self.config["key"] = {"field": "id"}
        self.config["sink"]["create_topics"] = True
        create_topic(bootstrap, self.source, partitions)

    def ids(self) -> Counter[str]:
        """How often each key is in the output, which the workers may not have made yet."""
        try:
            output = read_all(self.bootstrap, self.sink)
        except LookupError:
            return Counter()
        return Counter(json.loads(record.value or b"")["id"] for record in output)

    def stage(self, stage: str, config: Path, number: int = 0) -> WorkerProcess:
        """Start a process that runs one stage alone."""
        log = self.directory / f"{stage}-{number}.log"
        return WorkerProcess(config, log, arguments=("--stage", stage))

    async def left_open(self, cluster: Cluster, timeout_ms: int = 3000) -> GroupWriter:
        """Begin a transaction as a member of the first stage, with offsets of each partition in it.

        The broker aborts it after `timeout_ms`. The member has left the group by then, but does not know it.
        """
        group = f"{self.group}-repartition"
        settings = load(self.write_config())
        source = cluster.source(self.source, "streamdedup-test", group=group)
        await source.start()
        while (membership := source.membership) is None:
            await source.keep_alive(0.1)
        writer = cluster.group_writer(f"{self.middle}/left", settings.sink, timeout_ms=timeout_ms)
        await writer.start()
        await writer.begin()
        every = [InputPartition(self.source, number) for number in range(self.partitions)]
        offsets = dict.fromkeys(every, (1, ""))
        assert isinstance(writer, KafkaGroupWriter) and writer._offsets
        member = (membership.generation, membership.member_id, membership.instance_id)
        assert await writer._offsets.add(group, member, offsets) is None
        assert await source.stop(5.0)
        return writer


class MemoryStage(OverMemory):
    """An input of `INPUTS` partitions, and workers that make the middle topic and the output."""

    def __init__(self, directory: Path, start: Start) -> None:
        super().__init__(directory, start, INPUTS)
        self.middle = "middle"
        self.config["source"]["repartition"] = {"topic": self.middle, "partitions": PLACES}
        self.config["key"] = {"field": "id"}
        self.config["sink"]["create_topics"] = True
        self.broker.rebalance_s = 1
        self.broker.create_topic(self.source, INPUTS)
        self._chance = random.Random(1)

    @property
    def copying_group(self) -> str:
        """The group of the first stage."""
        return f"{self.deployment.group}-repartition"

    def start(
        self,
        now_ms: Callable[[], int] = wall_clock_ms,
        *,
        copies: bool = True,
        **sections: dict[str, Any],
    ) -> LocalWorker:
        """One more worker, with that clock, and more in the sections of its configuration.

        It runs the second stage alone unless it `copies`.
        """
        config = self.deployment.config
        given = dict(config)
        for name, options in sections.items():
            given[name] = {**given.get(name, {}), **options}
        self.deployment.config = given
        connect = connected_to(self.broker)
        worker = self._start(self.deployment, connect=connect, now_ms=now_ms, copies=copies)
        self.deployment.config = config
        return worker

    @asynccontextmanager
    async def copying(self) -> AsyncIterator[None]:
        """Run the first stage alone; it is drained at the end."""
        settings = load(self.deployment.write_config())
        worker = CopyingWorker(settings, connected_to(self.broker))
        task = asyncio.create_task(worker.run())
        yield
        worker.stop()
        await task

    def feed(self, ids: Iterable[object]) -> None:
        """Append an event of each id, in a partition by chance."""
        self.broker.produce(
            self.source,
            [(self._chance.randrange(INPUTS), None, value(number)) for number in ids],
        )

    async def judge(self, ids: Sequence[object]) -> None:
        """Append an event of each id, have a worker judge them, and drain it."""
        self.feed(ids)
        async with self.start() as worker:
            await worker.consumed(len(ids))

    def copies(self) -> int:
        """How many events the middle topic has, or had."""
        return sum(len(events) for events in self.broker.read_all(self.middle))

    def ids(self) -> Counter[str]:
        """How often each id is in the output, if a worker has made it."""
        if self.deployment.sink not in self.broker.topics:
            return Counter()
        output = self.broker.read_all(self.deployment.sink)
        return Counter(
            str(json.loads(event.value or b"")["id"]) for events in output for event in events
        )


def value(number: object) -> bytes:
    """Return the value of an event with that id."""
    return json.dumps({"id": number}).encode()
