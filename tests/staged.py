"""A deployment with `source.repartition`, over a broker in memory."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from streamdedup.delivery.services import wall_clock_ms
from streamdedup.errors import ConfigError
from streamdedup.settings import load
from streamdedup.testing import connected_to
from streamdedup.worker.staged import CopyingWorker
from tests.local import LocalWorker, Start
from tests.memory import OverMemory

INPUTS, PLACES = 3, 4


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

    async def refused(self, why: str) -> str:
        """The error by which a worker ends at its start; it has joined no group."""
        worker = self.start()
        with pytest.raises(ConfigError, match=why) as error:
            async with asyncio.timeout(60):
                await worker.task
        assert not worker.lines("joining")
        return str(error.value)

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
