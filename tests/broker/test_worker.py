"""What the worker does if a part of it fails, in this process, on a real broker."""

import asyncio
import threading
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from streamdedup.kafka.sink import DoubtError, KafkaWriter
from streamdedup.snapshot import Store
from tests.broker.base import DEADLINE_S, Broker
from tests.broker.topics import read_all
from tests.deployment import Deployment, keyed
from tests.local import Start

pytestmark = pytest.mark.broker


@pytest.fixture
def deployment(deployment: Deployment) -> Deployment:
    """It has 100 events."""
    deployment.feed(keyed(range(100), 1))
    return deployment


@pytest.mark.rule(4)
async def test_a_birth_that_fails_is_still_a_birth(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
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
    hanging = threading.Event()
    monkeypatch.setattr(Store, "save", lambda *_arguments, **_more: hanging.wait(DEADLINE_S))
    worker = start(deployment)
    await worker.consumed(100)
    async with asyncio.timeout(DEADLINE_S / 2):
        await worker.stop()
    assert worker.worker.hangs
    hanging.set()


async def test_keys_are_known_by_what_they_are_normalized_to(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """In the input as in the output, which passed as it came: after a restart without snapshots, too."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, 1).create()
    deployment.config["key"]["normalize"] = "lowercase"
    written = [b" Anna", "ÄNNE".encode(), b"anna\t", "änne".encode(), b"BERT", b"\xff"]
    deployment.feed((0, key, b"%d" % n, [], None) for n, key in enumerate(written))
    worker = start(deployment)
    await worker.consumed(6)
    await worker.stop()
    rmtree(deployment.snapshots)
    deployment.feed(
        (0, key, b"again", [], None) for key in (b"ANNA", "Änne ".encode(), b"bert", b"Cleo")
    )
    worker = start(deployment)
    await worker.consumed(4)
    await worker.stop()
    keys = [record.key for record in read_all(deployment.bootstrap, deployment.sink)]
    assert keys == [b" Anna", "ÄNNE".encode(), b"BERT", b"\xff", b"Cleo"]
