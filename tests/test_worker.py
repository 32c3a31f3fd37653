"""What the worker does where a part of it fails, in this process, on a real broker."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from streamdedup.errors import DeliveryError
from streamdedup.kafka.sink import DoubtError, KafkaWriter
from streamdedup.kafka.source import KafkaSource
from streamdedup.settings import load
from streamdedup.snapshot import Store
from streamdedup.worker import Worker
from tests.broker.base import Broker
from tests.broker.topics import read_all
from tests.deployment import Deployment, keyed

pytestmark = pytest.mark.broker

DEADLINE_S = 40.0


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """One partition with 100 events."""
    made = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    made.feed(keyed(range(100), 1))
    return made


def worker_of(deployment: Deployment) -> Worker:
    """A worker that is not running yet."""
    return Worker(load(deployment.write_config()))


async def consumed(worker: Worker, count: int) -> None:
    """Wait until `count` events are committed."""
    async with asyncio.timeout(DEADLINE_S):
        while worker.tally.consumed < count:
            await asyncio.sleep(0.02)


async def live(worker: Worker) -> None:
    """Wait until the shard decides."""
    async with asyncio.timeout(DEADLINE_S):
        while not any(delivery.busy for delivery in worker.deliveries.values()):
            await asyncio.sleep(0.02)


async def test_a_birth_that_fails_is_still_a_birth(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`start: latest` holds though the commit that resolves it is in doubt at first."""
    deployment.config["source"]["start"] = "latest"
    commit, calls = KafkaWriter.commit, []

    async def doubted_once(self: KafkaWriter, *arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            raise DoubtError("the answer was lost")
        await commit(self, *arguments)

    monkeypatch.setattr(KafkaWriter, "commit", doubted_once)
    worker = worker_of(deployment)
    running = asyncio.create_task(worker.run())
    await live(worker)
    deployment.feed(keyed(range(100, 110), 1))
    await consumed(worker, 10)
    worker.stop()
    await running
    assert len(calls) > 1
    assert len(read_all(deployment.bootstrap, deployment.sink)) == 10


async def test_a_cancel_from_within_is_an_error(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that cancels its caller does not end the worker as if it had been asked to end."""
    keep_alive = KafkaSource.keep_alive

    async def cancelling(self: KafkaSource, wait_s: float) -> None:
        await keep_alive(self, wait_s)
        raise asyncio.CancelledError

    monkeypatch.setattr(KafkaSource, "keep_alive", cancelling)
    with pytest.raises(DeliveryError, match="cancelled from within"):
        await worker_of(deployment).run()


async def test_a_disk_that_hangs_does_not_hold_up_the_shutdown(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `drain_s` the worker ends, and tells that a thread is left; the events are committed."""
    deployment.config["delivery"]["drain_s"] = 1
    hanging = threading.Event()
    monkeypatch.setattr(Store, "save", lambda *_arguments, **_more: hanging.wait(DEADLINE_S))
    worker = worker_of(deployment)
    running = asyncio.create_task(worker.run())
    await consumed(worker, 100)
    worker.stop()
    async with asyncio.timeout(5):
        await running
    assert worker.hangs
    hanging.set()


async def test_a_save_at_the_end_waits_for_the_one_under_way(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shutdown during a periodic snapshot does not trip over our own lock: the last label is saved."""
    deployment.config["snapshot"]["interval_s"] = 0.1
    save, under_way, go_on = Store.save, threading.Event(), threading.Event()

    def slow(self: Store, *arguments: Any, **more: Any) -> Any:
        under_way.set()
        go_on.wait(DEADLINE_S)
        return save(self, *arguments, **more)

    monkeypatch.setattr(Store, "save", slow)
    worker = worker_of(deployment)
    running = asyncio.create_task(worker.run())
    await consumed(worker, 100)
    await asyncio.to_thread(under_way.wait, DEADLINE_S)
    deployment.feed(keyed(range(100, 200), 1))
    await consumed(worker, 200)
    worker.stop()
    await asyncio.sleep(0)
    go_on.set()
    await running
    store = Store(
        deployment.directory / "snapshots",
        group=deployment.group,
        topic=deployment.sink,
        partition=0,
    )
    (delivery,) = worker.deliveries.values()
    assert delivery.shard is not None
    assert store.labels()[0] == delivery.shard.label


async def test_a_slow_save_of_what_leaves_stops_nothing(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that goes to another member is saved in the background: what stays, and what comes, goes on."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    deployment.config["delivery"]["drain_s"] = 1
    hanging = threading.Event()
    monkeypatch.setattr(Store, "save", lambda *_arguments, **_more: hanging.wait(DEADLINE_S * 2))
    deployment.feed(keyed(range(100), 2))
    first, second = worker_of(deployment), worker_of(deployment)
    running = [asyncio.create_task(first.run())]
    await consumed(first, 100)
    running.append(asyncio.create_task(second.run()))
    await live(second)
    deployment.feed(keyed(range(100, 200), 2))
    async with asyncio.timeout(DEADLINE_S):
        while first.tally.consumed + second.tally.consumed < 200:
            await asyncio.sleep(0.02)
    first.stop()
    second.stop()
    await asyncio.gather(*running)
    hanging.set()
