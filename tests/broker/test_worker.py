"""What the worker does if a part of it fails, in this process, on a real broker."""

import asyncio
import threading
from typing import Any

import pytest

from streamdedup.kafka.sink import DoubtError, KafkaWriter
from streamdedup.snapshot import Store
from tests.broker.base import DEADLINE_S
from tests.broker.topics import read_all
from tests.deployment import Deployment, keyed
from tests.local import Start


@pytest.mark.rule(4)
async def test_a_birth_that_fails_is_still_a_birth(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`start: latest` holds though the commit that resolves it is in doubt at first."""
    deployment.config["source"]["start"] = "latest"
    deployment.feed(keyed(range(100), 1))
    commit, calls = KafkaWriter.commit, []

    async def doubted_once(self: KafkaWriter, *arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            raise DoubtError("the answer was lost")
        await commit(self, *arguments)

    monkeypatch.setattr(KafkaWriter, "commit", doubted_once)
    worker = start(deployment)
    await worker.live()
    deployment.feed(keyed(range(100, 110), 1))
    await worker.consumed(10)
    await worker.stop()
    assert len(calls) > 1
    assert len(read_all(deployment.bootstrap, deployment.sink)) == 10


async def test_a_disk_that_hangs_does_not_hold_up_the_shutdown(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `drain_s` the worker ends, and logs that a thread is left; the events are committed."""
    deployment.config["delivery"]["drain_s"] = 1
    deployment.feed(keyed(range(100), 1))
    hanging = threading.Event()
    monkeypatch.setattr(Store, "save", lambda *_arguments, **_more: hanging.wait(DEADLINE_S))
    worker = start(deployment)
    await worker.consumed(100)
    async with asyncio.timeout(DEADLINE_S / 2):
        await worker.stop()
    assert worker.worker.hangs
    hanging.set()
