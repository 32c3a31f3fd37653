"""A worker in this process, on a real broker: quick to start, its log kept, its parts within reach of a test.

A test with a loop asks for `start`; one without calls `run_to_the_end`.
"""

import asyncio
import os
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.testing import capture_logs

from streamdedup.delivery.lifecycle import Delivery
from streamdedup.delivery.services import wall_clock_ms
from streamdedup.kafka.base import Connect
from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.keys.hashing import SYSTEM, RandomSource
from streamdedup.metrics.counts import Ledger, Tally
from streamdedup.settings import load
from streamdedup.snapshot.files import FileSystem
from streamdedup.testing import VirtualLoop
from streamdedup.worker.worker import Worker
from tests.broker.base import DEADLINE_S, Broker
from tests.broker.proxy import Cut, Proxy
from tests.broker.topics import GroupOffsets, read_all
from tests.deployment import Deployment, WorkerProcess, keyed

POLL_S = 0.02

Lines = Sequence[Mapping[str, Any]]


class LocalWorker:
    """A worker that runs here, named after its place among those of the test; drained where its context ends."""

    def __init__(self, deployment: Deployment, worker: Worker, name: int, lines: Lines) -> None:
        self._deployment, self._name, self._lines = deployment, name, lines
        self.worker = worker
        self.task = asyncio.create_task(worker.run())

    async def __aenter__(self) -> "LocalWorker":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

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

    async def live(self, partitions: int | None = None) -> None:
        """Wait until it decides on so many partitions, by default on all."""
        count = self._deployment.partitions if partitions is None else partitions
        await self.until(
            lambda: sum(d.busy for d in self.worker.deliveries.values()) == count,
            f"{count} live shards",
        )

    async def consumed(self, count: int) -> None:
        """Wait until so many events are committed, since the worker began."""
        await self.until(lambda: self.tally.consumed >= count, f"{count} consumed")

    async def verified(self) -> None:
        """Wait until the brokers' time is known, which takes a commit with an event for the output."""

        def known() -> bool:
            clocks, serves = self.worker.status.clocks, self.worker.deliveries
            return clocks is not None and bool(serves) and clocks.is_verified(serves)

        await self.until(known, "verified clock")

    async def committed(self, offset: int) -> None:
        """Wait until this input offset of the only partition is committed."""
        await self._committed({0: offset})

    async def caught_up(self) -> None:
        """Wait until the end of the input is committed."""
        await self._committed(await asyncio.to_thread(self._deployment.input_ends))

    async def stopped(self) -> str:
        """Wait until one shard has stopped; what it says."""
        (line,) = await self.logged("shard_stopped")
        return str(line["error"])

    async def through(self, count: int) -> "LocalWorker":
        """Let it decide on all partitions, consume so many events, and drain."""
        async with self:
            await self.live()
            await self.consumed(count)
        return self

    async def to_the_end(self) -> "LocalWorker":
        """Let it decide on all partitions, commit the end of the input, and drain."""
        async with self:
            await self.live()
            await self.caught_up()
        return self

    @property
    def tally(self) -> Tally:
        """What became of the events since it began."""
        return self.worker.tally

    @property
    def ledger(self) -> Ledger:
        """The settled counts of the only partition."""
        return self.worker.status.meters.of(self.delivery.partition).ledger

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

    async def stop(self) -> None:
        """Drain, as at SIGTERM."""
        self.worker.stop()
        await self.task

    async def crash(self, proxy: Proxy) -> None:
        """End so that the broker hears no more of it: the proxy, through which it speaks, lets nothing pass."""
        proxy.rule = lambda _frame: Cut()
        proxy.cut_all()
        await self.stop()

    async def _committed(self, offsets: Mapping[int, int]) -> None:
        there, at = self._deployment, dict[int, int]()
        try:
            async with asyncio.timeout(DEADLINE_S):
                asked = await asyncio.to_thread(
                    GroupOffsets, there.bootstrap, there.group, there.source
                )
                with closing(asked):
                    while (at := await asyncio.to_thread(asked)) != offsets:
                        assert not self.task.done(), self.lines()[-8:]
                        await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise TimeoutError(f"at {at}, not {offsets}: {self.lines()[-8:]}") from None


class Start:
    """Starts workers of a test, whose log is `lines`."""

    def __init__(self, lines: Lines) -> None:
        self._lines, self.started = lines, list[LocalWorker]()

    def __call__(
        self,
        deployment: Deployment,
        proxy: Proxy | None = None,
        connect: Connect = kafka_cluster,
        *,
        fs: FileSystem = os,
        now_ms: Callable[[], int] = wall_clock_ms,
        random: RandomSource = SYSTEM,
        copies: bool = True,
    ) -> LocalWorker:
        """Start one of a deployment, behind a proxy if one is given; it is drained at the end unless it has ended.

        With `source.repartition` it is the second stage alone unless it `copies`.
        """
        options = [f"kafka.bootstrap_servers={proxy.bootstrap_servers}"] if proxy else []
        name = len(self.started)
        with bound_contextvars(worker=name):
            settings = load(deployment.write_config(), options)
            worker = Worker(settings, connect, now_ms, fs, random, copies=copies)
            self.started.append(LocalWorker(deployment, worker, name, self._lines))
        return self.started[-1]


@asynccontextmanager
async def workers() -> AsyncIterator[Start]:
    """Give a way to start workers in this process."""
    with capture_logs([merge_contextvars]) as lines:
        start = Start(lines)
        try:
            yield start
        finally:
            left = [local for local in start.started if not local.task.done()]
            for local in left:
                local.worker.stop()
            ends = await asyncio.gather(*(one.task for one in left), return_exceptions=True)
        for end in filter(None, ends):
            raise end


@pytest.fixture(autouse=True)
def processes_end() -> Iterator[None]:
    """Kill the worker processes that a test has left, as one that fails does."""
    yield
    while WorkerProcess.started:
        WorkerProcess.started.pop().kill()


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """As `workers`."""
    async with workers() as starting:
        yield starting


def on_virtual_clock(scene: Callable[[Start], Coroutine[Any, Any, None]]) -> None:
    """Run `scene`, which may start workers, on a virtual clock: for tests over a broker in memory."""

    async def main() -> None:
        async with workers() as start:
            await scene(start)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def run_to_the_end(deployment: Deployment) -> LocalWorker:
    """Start a worker, let it catch up, drain it: for tests without a loop."""

    async def run() -> LocalWorker:
        async with workers() as start:
            return await start(deployment).to_the_end()

    return asyncio.run(run())


async def until(condition: Callable[[], object], otherwise: Callable[[], object]) -> None:
    """Wait for a true value; TimeoutError saying `otherwise()`."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise TimeoutError(f"{otherwise()} (waited {DEADLINE_S:g} s)") from None


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """One partition, quick to end."""
    return single(broker, tmp_path).create()


def single(broker: Broker, directory: Path) -> Deployment:
    """A deployment of one partition, quick to end, without topics."""
    made = Deployment(broker.bootstrap_servers, directory, partitions=1)
    made.config["delivery"]["drain_s"] = 5
    return made


def output_keys(deployment: Deployment) -> list[bytes | None]:
    """The keys of the output, in order."""
    return [record.key for record in read_all(deployment.bootstrap, deployment.sink)]


def keys_of(numbers: Iterable[int]) -> list[bytes | None]:
    """The keys of `keyed(numbers)`, in one partition."""
    return [key for _, key, *_ in keyed(numbers, 1)]
