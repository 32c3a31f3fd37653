"""Claims about a member whose client library fails it, on a real broker: it joins its group again, and serves."""

import struct
from collections.abc import Callable
from typing import Any

import pytest

from streamdedup.kafka.source import KafkaMember
from tests.broker.proxy import Action, Api, Frame, Proxy, Replace
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import LocalWorker, Start

UNKNOWN_SERVER_ERROR = struct.pack(">h", -1)


def member(worker: LocalWorker) -> KafkaMember:
    """Its membership."""
    source = worker.worker._source
    assert source is not None
    found = source._member
    assert isinstance(found, KafkaMember)
    return found


def group(consumer: Any) -> Any:
    """The task that takes part in the group."""
    return consumer._coordinator._coordination_task


def fetching(consumer: Any) -> Any:
    """The task that fetches."""
    return consumer._fetcher.error_future


@pytest.mark.parametrize(
    ("task", "what"), [(group, "taking part in its group"), (fetching, "fetching")]
)
async def test_a_consumer_whose_task_ended_is_replaced(
    deployment: Deployment, start: Start, task: Callable[[Any], Any], what: str
) -> None:
    """An error in aiokafka's own task, which would be silent from then on, costs a rebalance, and no event."""
    deployment.feed(keyed(range(100), 1))
    worker = start(deployment)
    await worker.consumed(100)
    died = member(worker)._consumer
    task(died).cancel()
    (line,) = await worker.logged("consumer_trouble")
    assert line["error"] == f"ConsumerDiedError: aiokafka's consumer has stopped {what}"
    await worker.until(lambda: member(worker)._consumer is not died, "another consumer")
    deployment.feed(keyed(range(50, 200), 1))
    await worker.consumed(250)
    await worker.stop()
    assert lost_and_doubled(deployment) == (0, 0, 0)


async def test_topics_that_change_while_they_are_assigned_end_no_worker(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under a pattern: aiokafka then cancels a heartbeat that has not begun, and with it its task for the group."""
    worker = start(deployment)
    await worker.live()
    ours = member(worker)
    died = ours._consumer
    stop = died._coordinator._stop_commit_offsets_refresh_task

    async def changed() -> None:
        await stop()
        monkeypatch.undo()
        ours.subscribe(ours._topics)

    monkeypatch.setattr(died._coordinator, "_stop_commit_offsets_refresh_task", changed)
    died._coordinator.request_rejoin()
    await worker.until(lambda: group(died).cancelled(), "the end of that task")
    await worker.until(lambda: ours._consumer is not died, "another consumer")
    deployment.feed(keyed(range(100), 1))
    await worker.consumed(100)
    await worker.stop()
    assert lost_and_doubled(deployment) == (0, 0, 0)


async def test_an_error_of_a_heartbeat_costs_a_rebalance(
    deployment: Deployment, start: Start
) -> None:
    """Aiokafka sends no heartbeat after it, and raises it at each poll; so the worker joins its group anew."""
    deployment.config["kafka"]["consumer"]["heartbeat_interval_ms"] = 100
    armed = [False]

    def fail_once(frame: Frame) -> Action | None:
        if not (armed[0] and frame.is_answer and frame.api == Api.HEARTBEAT):
            return None
        armed[0] = False
        return Replace(frame.message[:-2] + UNKNOWN_SERVER_ERROR)

    with Proxy(deployment.bootstrap, fail_once) as proxy:
        worker = start(deployment, proxy)
        await worker.live()
        joins, armed[0] = proxy.seen[Api.JOIN_GROUP, True], True
        await worker.logged("consumer_trouble")
        await worker.until(lambda: proxy.seen[Api.JOIN_GROUP, True] > joins, "another join")
        deployment.feed(keyed(range(100), 1))
        await worker.consumed(100)
        await worker.stop()
    assert lost_and_doubled(deployment) == (0, 0, 0)
