"""What a worker goes by while brokers, members and disks come and go around it; over a broker in memory."""

import asyncio
from pathlib import Path

import pytest
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    NodeNotReadyError,
    RequestTimedOutError,
)

from streamdedup.delivery.lifecycle import State
from streamdedup.errors import DeliveryError
from streamdedup.kafka import topics
from streamdedup.kafka.topics import Changes, Topology
from streamdedup.testing.cluster import MemoryCluster
from streamdedup.testing.writer import MemoryWriter
from streamdedup.worker import topic_watch
from tests import memory
from tests.deployment import keyed
from tests.local import Start
from tests.memory import over


class Stage(memory.Stage):
    """Two partitions, and workers of one group, which rebalances soon."""

    def __init__(self, directory: Path, start: Start) -> None:
        super().__init__(directory, start, 2)
        self.broker.rebalance_s = 1


@pytest.mark.parametrize("on_gap", ["stop", "accept"])
@over(Stage)
async def test_a_newer_snapshot_of_another_worker_outdoes_a_filter_in_memory(
    stage: Stage, on_gap: str
) -> None:
    """Kept over a rebalance, while the events that it misses were deleted from the output: none is emitted again."""
    stage.config["sink"]["on_gap"] = on_gap
    first = stage.start()
    await first.live(2)
    second = stage.start()
    await second.live(1)
    (moved,) = second.worker.deliveries
    events = [(moved, key, value) for _, key, value, *_ in keyed(range(20), 1)]
    stage.broker.produce(stage.source, events)
    await second.consumed(20)
    await second.stop()  # its snapshot lies where the first one's are
    output = stage.broker.log(stage.sink, moved)
    output.trim(output.end)
    stage.broker.produce(stage.source, events)
    await first.consumed(20)
    assert output.committed() == []
    assert first.lines("memory_outdone")


@pytest.mark.finding("input-trimmed")
@over(Stage)
async def test_a_shard_that_stopped_waits_for_no_broker(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker was away before, and came back: `give_up_after_s` does not end the worker for it."""
    away: list[bool] = []
    begin = MemoryWriter.begin

    async def began(writer: MemoryWriter) -> None:
        if away:
            raise KafkaConnectionError("away")
        await begin(writer)

    monkeypatch.setattr(MemoryWriter, "begin", began)
    stage.config["kafka"]["give_up_after_s"] = 20
    worker = stage.start()
    await worker.live(2)
    away.append(True)
    stage.feed([0])
    await worker.logged("broker_away")
    source = stage.broker.log(stage.source, 0)
    source.trim(source.end)  # which stops the shard that has not read it
    away.clear()
    await worker.stopped()
    assert worker.worker.status.broker_away_s == 0
    await asyncio.sleep(60)
    assert not worker.task.done()
    states = {delivery.state for delivery in worker.worker.deliveries.values()}
    assert states == {State.STOPPED, State.LIVE}


@over(Stage)
async def test_a_broker_that_hangs_holds_up_no_assignment(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nobody answers whether the topics are still the same, a rebalance is followed."""
    asked = asyncio.Event()

    async def hang(_cluster: MemoryCluster, _known: Topology) -> Changes:
        asked.set()
        await asyncio.sleep(1e6)
        return Changes()

    monkeypatch.setattr(MemoryCluster, "changed", hang)
    monkeypatch.setattr(topic_watch, "EVERY_S", 0.1)
    first = stage.start()
    await first.live(2)
    await asked.wait()
    second = stage.start()
    await second.live(1)
    await first.live(1)


@pytest.mark.parametrize("for_s", [8, 60])
@over(Stage)
async def test_a_topic_is_deleted_if_it_stays_missing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, for_s: int
) -> None:
    """A broker with ZooKeeper that has just started lists no topic for a moment: that ends no worker."""
    missing: list[str] = []

    async def changed(_cluster: MemoryCluster, _known: Topology) -> Changes:
        return Changes(missing=[*missing])

    monkeypatch.setattr(MemoryCluster, "changed", changed)
    monkeypatch.setattr(topic_watch, "EVERY_S", 1.0)
    worker = stage.start()
    await worker.live(2)
    for _ in range(2):
        missing.append(stage.source)
        await asyncio.wait([worker.task], timeout=for_s)
        missing.clear()
        await asyncio.wait([worker.task], timeout=5)
    assert worker.task.done() == (for_s == 60)
    if worker.task.done():
        with pytest.raises(DeliveryError, match=f"worker ran: {stage.source};"):
            await worker.task


@pytest.mark.rule(12)
@over(Stage)
async def test_a_topic_that_was_made_again_ends_the_worker(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at once and names the topic, whose offsets may be those of before."""
    remade: list[str] = []

    async def changed(_cluster: MemoryCluster, _known: Topology) -> Changes:
        return Changes(remade=[*remade])

    monkeypatch.setattr(MemoryCluster, "changed", changed)
    monkeypatch.setattr(topic_watch, "EVERY_S", 1.0)
    worker = stage.start()
    await worker.live(2)
    remade.append(stage.source)
    await asyncio.wait([worker.task], timeout=5)
    assert worker.task.done()
    with pytest.raises(
        DeliveryError, match=f"created again, while the worker ran: {stage.source};"
    ):
        await worker.task


@pytest.mark.parametrize("error", [NodeNotReadyError, RequestTimedOutError, KafkaConnectionError])
async def test_settings_that_a_broker_did_not_tell_are_asked_for_again(
    error: type[Exception],
) -> None:
    """An answer that may still come is not taken for none: a compacted output would pass for a fitting one."""
    with pytest.raises(error):
        await topics._settings(Silent(error), ["out"])


async def test_settings_that_a_broker_will_not_tell_are_done_without() -> None:
    """Without the right to see them."""
    assert await topics._settings(Silent(GroupAuthorizationFailedError), ["out"]) == {}


class Silent:
    """A client whose every request fails."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    def get_random_node(self) -> int:
        """Any."""
        return 0

    async def send(self, _node: int, _request: object) -> object:
        """Fails."""
        raise self._error
