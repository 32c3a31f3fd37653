"""Workers in the process of the test, with their log: quicker to start than a process, and open to be looked into."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from structlog.testing import capture_logs

from streamdedup.kafka.base import Connect
from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.settings import load
from streamdedup.worker import Worker
from tests.deployment import Deployment
from tests.test_worker import consumed, live

Lines = Sequence[Any]  # of the log, as structlog has them


@asynccontextmanager
async def at_work(
    deployment: Deployment, connect: Connect = kafka_cluster
) -> AsyncIterator[Worker]:
    """A worker whose shard decides; drained at the end."""
    worker = Worker(load(deployment.write_config()), connect)
    running = asyncio.create_task(worker.run())
    try:
        await live(worker)
        yield worker
    finally:
        worker.stop()
        await running


async def run_through(
    deployment: Deployment, events: int, connect: Connect = kafka_cluster
) -> Lines:
    """Let a worker consume so many events and drain; its log."""
    with capture_logs() as lines:
        async with at_work(deployment, connect) as worker:
            await consumed(worker, events)
    return lines


async def run_until_stopped(deployment: Deployment) -> str:
    """Run a worker until its shard stops; what it says."""
    worker = Worker(load(deployment.write_config()))
    with capture_logs() as lines:
        running = asyncio.create_task(worker.run())
        message = await stopped(lines)
        worker.stop()
        await running
    return message


async def stopped(lines: Lines) -> str:
    """Wait for the line of a shard that stopped; what it says."""
    async with asyncio.timeout(30):
        while not (found := named(lines, "shard_stopped")):
            await asyncio.sleep(0.05)
    return str(found[0]["error"])


def named(lines: Lines, name: str) -> Lines:
    """The lines of one event."""
    return [line for line in lines if line["event"] == name]
