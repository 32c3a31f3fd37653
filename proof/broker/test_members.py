"""What holds among the members of a group, and while topics and brokers change under them, on a real broker."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from streamdedup.delivery.fold import FoldedMemory
from streamdedup.kafka.sink import KafkaWriter
from streamdedup.settings import load
from streamdedup.settings.meaning import Meaning
from streamdedup.worker import group_watch
from tests.broker.base import DEADLINE_S, Broker, admin_client
from tests.broker.test_members import grow
from tests.broker.topics import create_topic
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import LocalWorker, Start


@pytest.mark.parametrize("static", [False, True])
async def test_a_leader_that_assigns_another_topic_ends_no_worker(
    broker: Broker, tmp_path: Path, start: Start, static: bool
) -> None:
    """Another program under the name of our assignor: the worker reports it, and serves once that has left."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    if static:
        deployment.config["kafka"]["group_instance_id"] = "worker-0"
    deployment.feed(keyed(range(100), 2))
    name = Meaning.of(load(deployment.write_config())).name

    class Rogue(StickyPartitionAssignor):  # type: ignore[misc] # aiokafka has no types
        @classmethod
        def assign(cls, _cluster: Any, members: Any) -> dict[str, Any]:
            everything = [("another-topic", [0]), (deployment.source, [0, 1])]
            return {
                member: ConsumerProtocolMemberAssignment(
                    0, [] if member.startswith("rogue") else everything, b""
                )
                for member in members
            }

    Rogue.name = name
    rogue = AIOKafkaConsumer(
        deployment.source,
        client_id="rogue",
        bootstrap_servers=broker.bootstrap_servers,
        group_id=deployment.group,
        partition_assignment_strategy=(Rogue,),
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
    )
    await rogue.start()
    async with start(deployment) as worker:
        try:
            (line, *_) = await worker.logged("consumer_trouble")
            assert (line["log_level"], line["error"]) == ("warning", "AssertionError")
            assert "stop those that are no workers" in line["remedy"]
            await asyncio.sleep(2)
            assert not worker.task.done()
        finally:
            await rogue.stop()
        await worker.consumed(100)
    assert lost_and_doubled(deployment) == (0, 0, 0)


async def test_partitions_that_come_back_are_still_in_memory(
    broker: Broker, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What went to another member with one assignment and returns with the next is folded on, not restored anew."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    restored: list[int] = []
    restore = FoldedMemory._restore

    async def counted(self: FoldedMemory, *arguments: Any) -> Any:
        restored.append(self._partition)
        return await restore(self, *arguments)

    monkeypatch.setattr(FoldedMemory, "_restore", counted)
    deployment.feed(keyed(range(200), 2))
    async with start(deployment) as stays:
        await stays.consumed(200)
        async with start(deployment) as guest:
            await guest.live(1)
            deployment.feed(keyed(range(100, 300), 2))
            await stays.until(
                lambda: stays.tally.consumed + guest.tally.consumed == 400, "400 consumed"
            )
        await stays.live()
        deployment.feed(keyed(range(400), 2))
        await stays.until(
            lambda: stays.tally.consumed + guest.tally.consumed == 800, "800 consumed"
        )
        assert sorted(restored)[0:2] == [0, 0] or sorted(restored)[1:] == [1, 1]
        assert len(restored) == 3, "the shard that came back was restored"
    assert lost_and_doubled(deployment) == (0, 0, 0)


@pytest.mark.parametrize("when", ["while it runs", "while it is away"])
async def test_static_members_get_new_partitions(
    broker: Broker, tmp_path: Path, start: Start, when: str
) -> None:
    """One that came back leads its group without knowing: aiokafka's own watch over the topic does not begin anew."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    deployment.config["source"]["on_growth"] = "accept"
    deployment.config["kafka"]["group_instance_id"] = "worker-0"
    deployment.config["kafka"]["consumer"] |= {
        "session_timeout_ms": 30_000,
        "metadata_max_age_ms": 500,
    }
    deployment.feed(keyed(range(100), 2))
    await start(deployment).through(100)
    if when == "while it is away":
        grow(broker, deployment, 3)
    async with start(deployment) as worker:
        if when == "while it runs":
            await worker.live(2)
            grow(broker, deployment, 3)
        deployment.feed((2, b"new%d" % number, b"", [], None) for number in range(50))
        await worker.consumed(50)
    assert lost_and_doubled(deployment) == (0, 0, 0)


async def test_static_members_that_were_assigned_nothing_serve_again(
    broker: Broker, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back within its session, a static member is given what it had: nothing, if the input was missing (KIP-345)."""
    monkeypatch.setattr(group_watch, "LOOK_EVERY_S", 1.0)
    monkeypatch.setattr(group_watch, "UNSERVED_S_MAX", 2.0)
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    deployment.config["kafka"]["group_instance_id"] = "worker-0"
    deployment.config["kafka"]["consumer"] |= {
        "session_timeout_ms": 30_000,
        "metadata_max_age_ms": 500,
    }
    async with start(deployment) as worker:
        await worker.live(2)
        admin = admin_client(broker.bootstrap_servers)
        admin.delete_topics([deployment.source])[deployment.source].result(DEADLINE_S)
        source = worker.worker.status.source
        await worker.until(lambda: source is not None and source.assigned == frozenset(), "nothing")
    create_topic(broker.bootstrap_servers, deployment.source, 2)
    async with start(deployment) as worker:
        (line,) = await worker.logged("partitions_unserved")
        assert (line["partitions"], line["members"]) == (2, 1)
        await worker.live(2)
        await worker.until(lambda: not worker.worker.status.unserved, "the end of the warning")


def decided(worker: LocalWorker, keys: int) -> bool:
    """Whether so many keys of the only partition are in transactions that are not committed."""
    shard = worker.delivery.shard
    return shard is not None and shard.pending == keys


async def test_a_transaction_is_filled_while_the_one_before_commits(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would only wait: so it takes what comes until then, however short the interval."""
    deployment.config["delivery"] |= {"commit_interval_ms": 1}
    commit, asked, gate = KafkaWriter.commit, list[int](), asyncio.Event()

    async def held(self: KafkaWriter, source: str, offset: int, *arguments: Any) -> None:
        if offset:  # 0 is where the group is born
            asked.append(offset)
            await gate.wait()
        await commit(self, source, offset, *arguments)

    monkeypatch.setattr(KafkaWriter, "commit", held)
    async with start(deployment) as worker:
        await worker.live()
        for number in range(4):
            deployment.feed(keyed([number], 1))
            await worker.until(partial(decided, worker, number + 1), "event")
            await worker.until(lambda: asked, "commit")
        gate.set()
        await worker.consumed(4)
    assert asked == [1, 4]
