"""Rules 8 and 9 of delivery, each by a real broker: what is rejected, what is doubt, and that doubt is not success.

Tombstones that pass are not judged, so no fold hides that one was emitted twice. docs/delivery.md tells which test
holds which rule.
"""

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.broker.base import Broker, OwnedBroker
from tests.broker.proxy import Api, Frame, Proxy
from tests.broker.test_rejected_and_doubt import (
    impatient,
    output_numbers,
    tombstones,
)
from tests.broker.topics import produce
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import Start


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """One partition; ten events a transaction, requests that time out after a second."""
    return impatient(broker, tmp_path).create()


FENCINGS = 8  # one in two left a failure behind


@pytest.mark.rule(9)
async def test_a_broker_that_pauses_within_a_transaction(
    private_broker: OwnedBroker, tmp_path: Path, start: Start
) -> None:
    """Nothing answers beyond every deadline: doubt; when it goes on, what was under way is settled exactly."""
    deployment = impatient(private_broker, tmp_path).create()
    with Proxy(deployment.bootstrap) as proxy:
        worker = start(deployment, proxy)
        await worker.live()
        paused = threading.Event()

        def pause_it(frame: Frame) -> None:
            if frame.api == Api.TXN_OFFSET_COMMIT and frame.is_answer and not paused.is_set():
                private_broker.pause()
                paused.set()

        proxy.rule = pause_it
        deployment.feed(tombstones(range(30)))
        await worker.logged("doubt")
        private_broker.resume()
        await worker.committed(30)
        await worker.stop()
    assert paused.is_set()
    assert output_numbers(deployment) == list(range(30))


async def test_a_fencing_leaves_no_failure_that_nobody_looked_at(
    deployment: Deployment, start: Start
) -> None:
    """Asyncio would report each one at level error, with a traceback, although the doubt was logged and settled."""
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unseen.append(context))
    async with start(deployment) as worker:
        await worker.live()
        for turn in range(FENCINGS):
            name = f"{deployment.sink}/0"
            await asyncio.to_thread(produce, deployment.bootstrap, deployment.sink, [], name)
            deployment.feed(keyed(range(100 * turn, 100 * turn + 100), 1))
            await worker.consumed(100 * turn + 100)
    assert worker.worker.status.meters.of(0).doubts["fenced"] >= FENCINGS
    gc.collect()
    assert unseen == []
    assert lost_and_doubled(deployment) == (0, 0, 0)
