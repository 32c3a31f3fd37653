"""A worker in this process, on a real broker: quick to start, its log kept, its parts within reach of a test."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaProducer
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.testing import capture_logs

from streamdedup.delivery import Delivery, State
from streamdedup.settings import load
from streamdedup.worker import Worker
from tests.broker.proxy import Cut, Proxy
from tests.broker.topics import Event, committed
from tests.deployment import Deployment

DEADLINE_S = 40.0
POLL_S = 0.02

Lines = Sequence[Mapping[str, Any]]


async def until(condition: Callable[[], object], otherwise: Callable[[], object]) -> None:
    """Wait for a true value; TimeoutError saying `otherwise()`."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise TimeoutError(f"{otherwise()} (waited {DEADLINE_S:g} s)") from None


async def append(bootstrap: str, topic: str, events: Iterable[Event]) -> None:
    """As `produce` without a transaction, in a tenth of its time."""
    producer: Any = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await producer.start()
    try:
        for partition, key, value, headers, timestamp_ms in events:
            await producer.send(topic, value, key, partition, timestamp_ms, headers)
    finally:
        await producer.stop()


async def feed(deployment: Deployment, events: Iterable[Event]) -> None:
    """Append events to the input."""
    await append(deployment.bootstrap, deployment.source, events)


class LocalWorker:
    """A worker that runs here, named after its place among those of the test."""

    def __init__(self, deployment: Deployment, name: int, lines: Lines) -> None:
        self._deployment, self._name, self._lines = deployment, name, lines
        with bound_contextvars(worker=name):
            self.worker = Worker(load(deployment.write_config()))
            self.task = asyncio.create_task(self.worker.run())

    def lines(self, event: str | None = None) -> Lines:
        """What it logged, or that of one event."""
        ours = [line for line in self._lines if line.get("worker") == self._name]
        return [line for line in ours if event in (None, line["event"])]

    async def logged(self, event: str, count: int = 1) -> Lines:
        """Wait until there are `count` lines of `event`."""
        await self.until(lambda: len(self.lines(event)) >= count, f"{count} {event}")
        return self.lines(event)

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition while the worker runs."""
        await until(
            lambda: condition() or self.task.done(), lambda: f"no {what}: {self.lines()[-8:]}"
        )
        if self.task.done():
            await self.task
        assert condition(), f"the worker ended before there was {what}: {self.lines()[-8:]}"

    async def live(self) -> None:
        """Wait until all partitions are decided on."""
        await self.until(
            lambda: (
                len(found := self.worker.deliveries) == self._deployment.partitions
                and all(delivery.state is State.LIVE for delivery in found.values())
            ),
            "live shards",
        )

    async def consumed(self, count: int) -> None:
        """Wait until so many events are committed, since the worker began."""
        await self.until(lambda: self.worker.tally.consumed >= count, f"{count} consumed")

    async def committed(self, offset: int) -> None:
        """Wait until this input offset of the only partition is committed."""
        there, at = self._deployment, dict[int, int]()
        try:
            async with asyncio.timeout(DEADLINE_S):
                while at.get(0) != offset:
                    at = await asyncio.to_thread(
                        committed, there.bootstrap, there.group, there.source
                    )
                    assert not self.task.done(), self.lines()[-8:]
        except TimeoutError:
            raise TimeoutError(f"at {at}, not {offset}: {self.lines()[-8:]}") from None

    @property
    def delivery(self) -> Delivery:
        """That of the only partition."""
        (found,) = self.worker.deliveries.values()
        return found

    @property
    def label(self) -> int:
        """The label of the only partition."""
        assert self.delivery.shard is not None
        return self.delivery.shard.label

    async def feed(self, events: Iterable[Event]) -> None:
        """Append events to the input."""
        await feed(self._deployment, events)

    async def stop(self) -> None:
        """Drain, as at SIGTERM."""
        self.worker.stop()
        await self.task

    async def crash(self, proxy: Proxy) -> None:
        """End so that the broker hears no more of it: the proxy, through which it speaks, lets nothing pass."""
        proxy.rule = lambda _frame: Cut()
        proxy.cut_all()
        await self.stop()


class Start(Protocol):
    """Starts a worker of a deployment, behind a proxy if one is given."""

    def __call__(self, deployment: Deployment, proxy: Proxy | None = None) -> LocalWorker:
        """It is drained at the end of the test, unless it has ended by then."""


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Give a way to start workers in this process."""
    started: list[LocalWorker] = []
    with capture_logs([merge_contextvars]) as lines:

        def starting(deployment: Deployment, proxy: Proxy | None = None) -> LocalWorker:
            bootstrap = proxy.bootstrap_servers if proxy else deployment.bootstrap
            deployment.config["kafka"]["bootstrap_servers"] = bootstrap
            started.append(LocalWorker(deployment, len(started), lines))
            return started[-1]

        yield starting
        for local in started:
            if not local.task.done():
                await local.stop()
