"""More claims about the process, on a real broker: what it collects, cancels, and saves at its end."""

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import pytest

from streamdedup.errors import DeliveryError
from streamdedup.kafka.source import KafkaMember
from streamdedup.snapshot import Store
from streamdedup.worker import worker as worker_module
from tests.broker.base import DEADLINE_S, Broker
from tests.deployment import Deployment, keyed
from tests.local import Start


async def test_a_full_collection_does_not_visit_what_was_there_at_the_start(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules and compiled code are frozen before the first event is read."""
    monkeypatch.setattr(worker_module, "gc", gc)
    worker = start(deployment)
    await worker.live()
    frozen, kept = gc.get_freeze_count(), len(gc.get_objects())
    await worker.stop()
    gc.unfreeze()
    assert frozen > 10 * kept


async def test_a_cancel_from_within_is_an_error(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that cancels its caller does not end the worker as if it had been asked to end."""
    keep_alive = KafkaMember.keep_alive

    async def cancelling(self: KafkaMember, wait_s: float) -> None:
        await keep_alive(self, wait_s)
        raise asyncio.CancelledError

    monkeypatch.setattr(KafkaMember, "keep_alive", cancelling)
    with pytest.raises(DeliveryError, match="cancelled from within"):
        await start(deployment).task


async def test_a_save_at_the_end_waits_for_the_one_under_way(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shutdown during a periodic snapshot does not trip over our own lock: the last label is saved."""
    deployment.config["snapshot"]["interval_s"] = 0.1
    deployment.feed(keyed(range(100), 1))
    save, under_way, go_on = Store.save, threading.Event(), threading.Event()

    def slow(self: Store, *arguments: Any, **more: Any) -> Any:
        under_way.set()
        go_on.wait(DEADLINE_S)
        return save(self, *arguments, **more)

    monkeypatch.setattr(Store, "save", slow)
    worker = start(deployment)
    await worker.consumed(100)
    await asyncio.to_thread(under_way.wait, DEADLINE_S)
    deployment.feed(keyed(range(100, 200), 1))
    await worker.consumed(200)
    worker.worker.stop()
    await asyncio.sleep(0)
    go_on.set()
    await worker.task
    store = Store(
        deployment.directory / "snapshots",
        group=deployment.group,
        topic=deployment.sink,
        partition=0,
    )
    assert store.labels()[0] == worker.label


async def test_a_slow_save_of_what_leaves_stops_nothing(
    broker: Broker, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that goes to another member is saved in the background: what stays, and what comes, goes on."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    deployment.config["delivery"]["drain_s"] = 1
    hanging = threading.Event()
    monkeypatch.setattr(Store, "save", lambda *_arguments, **_more: hanging.wait(DEADLINE_S * 2))
    deployment.feed(keyed(range(100), 2))
    first = start(deployment)
    await first.consumed(100)
    second = start(deployment)
    await second.live(1)
    deployment.feed(keyed(range(100, 200), 2))
    await first.until(lambda: first.tally.consumed + second.tally.consumed >= 200, "200 consumed")
    await asyncio.gather(first.stop(), second.stop())
    hanging.set()
