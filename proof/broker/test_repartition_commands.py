"""Claims about `reset` with `source.repartition` on a real broker; the others: tests/commands/test_reset_staged.py."""

import asyncio
from pathlib import Path

import pytest

from streamdedup.commands.reset import move, plan
from streamdedup.commands.reset_plan import ResetPlan, target_of
from streamdedup.delivery.services import wall_clock_ms
from streamdedup.errors import DeliveryError
from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.settings import load
from tests.broker.base import Broker
from tests.broker.topics import committed, produce
from tests.local import Start
from tests.spread import PARTITIONS, spread
from tests.staged import Staged

pytestmark = pytest.mark.broker

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
        left = await staged.left_open(cluster)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await move(settings, what)
        finally:
            await left.drop()
        assert loop.time() - began > 1.0
    assert copied(staged) == dict.fromkeys(range(PARTITIONS), 0)
