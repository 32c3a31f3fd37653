"""Claims about `reset` with `source.repartition` on a real broker; the others: tests/commands/test_reset_staged.py."""

import asyncio
from pathlib import Path

import pytest

from proof.broker.staged import Staged
from streamdedup.commands.reset import move, plan
from streamdedup.commands.reset_plan import ResetPlan, target_of
from streamdedup.delivery.services import wall_clock_ms
from streamdedup.errors import DeliveryError
from streamdedup.kafka.base import Cluster, GroupWriter
from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.kafka.group_sink import KafkaGroupWriter
from streamdedup.kafka.partitions import InputPartition
from streamdedup.settings import load
from tests.broker.base import Broker
from tests.broker.topics import committed, produce
from tests.local import Start
from tests.spread import PARTITIONS, spread

STREAM = spread(3_000, 1_000)


async def worked(broker: Broker, directory: Path, start: Start) -> Staged:
    """A deployment that has judged the stream, and has no worker now."""
    staged = Staged(broker.bootstrap_servers, directory)
    await asyncio.to_thread(staged.feed, STREAM.events)
    async with start(staged) as worker:
        await worker.consumed(len(STREAM.events))
    return staged


async def planned(staged: Staged, *, forget: bool = False) -> ResetPlan:
    """What a reset to the start would do."""
    target = target_of("earliest", wall_clock_ms())
    return await plan(load(staged.write_config()), target, forget=forget)


def copied(staged: Staged) -> dict[int, int]:
    """The offsets of the first stage."""
    return committed(staged.bootstrap, f"{staged.group}-repartition", staged.source)


async def test_neither_group_may_have_members(broker: Broker, tmp_path: Path, start: Start) -> None:
    """Each is named; nothing is moved."""
    staged = await worked(broker, tmp_path, start)
    before = copied(staged)
    config = staged.write_config()
    for stage, ready, group in (
        ("repartition", "repartition_live", f"{staged.group}-repartition"),
        ("deduplicate", "shard_live", staged.group),
    ):
        worker = staged.stage(stage, config)
        try:
            await asyncio.to_thread(worker.wait_for, ready)
            for forget in (False, True):
                with pytest.raises(DeliveryError, match=f"the group {group} has 1 member"):
                    await planned(staged, forget=forget)
            assert await asyncio.to_thread(worker.interrupt) == 0
        finally:
            worker.kill()
    assert copied(staged) == before


async def test_a_killed_first_stage_is_waited_for(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """A transaction that it left open, with offsets in it, would undo the reset if it ended later."""
    staged = await worked(broker, tmp_path, start)
    what = await planned(staged)
    settings = load(staged.write_config())
    produce(staged.bootstrap, staged.source, STREAM.events[:10])
    async with kafka_cluster(settings.kafka) as cluster:
        left = await left_open(staged, cluster)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await move(settings, what)
        finally:
            await left.drop()
        assert loop.time() - began > 1.0
    assert copied(staged) == dict.fromkeys(range(PARTITIONS), 0)


async def left_open(staged: Staged, cluster: Cluster, timeout_ms: int = 3000) -> GroupWriter:
    """Begin a transaction as a member of the first stage, with offsets of each partition in it.

    The broker aborts it after `timeout_ms`. The member has left the group by then, but does not know it.
    """
    group = f"{staged.group}-repartition"
    settings = load(staged.write_config())
    source = cluster.sources([staged.source], "streamdedup-test", group=group)
    await source.start()
    while (membership := source.membership) is None:
        await source.keep_alive(0.1)
    writer = cluster.group_writer(f"{staged.middle}/left", settings.sink, timeout_ms=timeout_ms)
    await writer.start()
    await writer.begin()
    every = [InputPartition(staged.source, number) for number in range(staged.partitions)]
    offsets = dict.fromkeys(every, (1, ""))
    assert isinstance(writer, KafkaGroupWriter) and writer._offsets
    member = (membership.generation, membership.member_id, membership.instance_id)
    assert await writer._offsets.add(group, member, offsets) is None
    assert await source.stop(5.0)
    return writer
