"""More claims about the processes of either stage: how they begin, and what is not copied."""

import asyncio
import threading
from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from streamdedup.kafka.records import encoding
from streamdedup.settings import load
from streamdedup.testing import connected_to
from streamdedup.testing.cluster import MemoryCluster
from streamdedup.worker.staged import CopyingWorker
from tests.memory import over
from tests.repartition.test_uncopied import looking
from tests.staged import INPUTS, PLACES, MemoryStage, value


@over(MemoryStage)
async def test_no_kernel_is_compiled_in_the_loop(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start takes half a minute for it, in which probes and signals must be answered."""
    threads = list[threading.Thread]()
    warm_up = encoding.warm_up

    def watched() -> None:
        threads.append(threading.current_thread())
        warm_up()

    monkeypatch.setattr(encoding, "warm_up", watched)
    async with stage.start() as worker:
        await worker.live(PLACES)
    assert threads
    assert threading.main_thread() not in threads


@over(MemoryStage)
async def test_a_first_stage_alone_tells_its_progress(stage: MemoryStage) -> None:
    """Once a minute; as a warning, with the reason, while it is paused because nobody reads what it has copied."""
    stage.config["source"]["repartition"]["unread_max"] = 100
    settings = load(stage.deployment.write_config())
    alone = CopyingWorker(settings, connected_to(stage.broker))
    running = asyncio.create_task(alone.run())
    with capture_logs() as lines:
        await asyncio.sleep(65)
        stage.feed(range(1_000))
        await asyncio.sleep(60)
    alone.stop()
    await running
    first, second = (line for line in lines if line["event"] == "progress")
    assert (first["log_level"], first["copied"]) == ("info", 0)
    assert (second["log_level"], second["copied"]) == ("warning", stage.copies())
    assert second["middle_unread"] >= stage.copies() > 100
    assert "unread_max" in second["repartition_paused"]


@over(MemoryStage)
async def test_members_that_copy_slowly_are_not_missing(stage: MemoryStage) -> None:
    """What waits is counted all the same."""
    watch = looking(stage)
    stage.feed(range(10))
    member = watch._cluster.sources([stage.source], "any", group=stage.copying_group)
    await member.start()
    for _ in range(5):
        await watch.look()
        await member.keep_alive(30.0)
    assert (watch.offsets, watch.missing) == (10, None)
    await member.stop(1.0)
    for _ in range(5):
        await watch.look()
        await asyncio.sleep(30.0)
    assert watch.missing is not None


@over(MemoryStage)
async def test_a_stage_that_will_begin_at_the_end_has_nothing_to_copy(stage: MemoryStage) -> None:
    """With `source.start: latest`, before its first commit; a partition that comes later is read from its start."""
    watch = looking(stage, start="latest")
    stage.feed(range(10))
    await watch.look()
    assert watch.offsets == 0
    for partition in range(INPUTS):
        end = stage.broker.log(stage.source, partition).end
        stage.broker.group(stage.copying_group).offsets[stage.source, partition] = (end, "")
    stage.broker.add_partitions(stage.source, INPUTS + 1)
    stage.broker.produce(stage.source, [(INPUTS, None, value("new"))])
    await watch.look()
    assert watch.offsets == 1


@over(MemoryStage)
async def test_a_leader_that_does_not_answer_changes_no_count(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last known one stays. Without any topic there is nothing to copy."""
    watch = looking(stage, topic=None, pattern=stage.source)
    stage.feed(range(10))
    await watch.look()

    async def unanswered(*_: object) -> Mapping[int, int]:
        return {}

    monkeypatch.setattr(MemoryCluster, "stable_offsets", unanswered)
    await watch.look()
    assert watch.offsets == 10
    stage.broker.delete_topic(stage.source)
    await watch.look()
    assert watch.offsets == 0
