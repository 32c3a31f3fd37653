"""Claims about a process of the second stage alone: it reports what waits while nobody copies."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from streamdedup.kafka.client.patience import Patience
from streamdedup.kafka.offsets import Note
from streamdedup.repartition.uncopied import MISSING_S, Uncopied
from streamdedup.server.listener import Page
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.settings import load
from streamdedup.testing.cluster import MemoryCluster
from tests.local import LocalWorker
from tests.staged import INPUTS, MemoryStage, play, value

EPISODE_S = MISSING_S + 2 * Uncopied.TURN_S  # in which a warning comes, if there is a reason


def page(worker: LocalWorker, path: str) -> Page:
    """A page of its server."""
    return pages(worker.worker.status, Pulse())[path]()


def measured(worker: LocalWorker, name: str) -> float:
    """The value of a metric without labels."""
    lines = page(worker, "/metrics").text.splitlines()
    (line,) = [line for line in lines if line.startswith(f"streamdedup_{name} ")]
    return float(line.split()[1])


def test_a_first_stage_that_is_missing_is_reported(tmp_path: Path) -> None:
    """By the lag at once, and after a minute by one warning, the page and each line of progress; until it is back."""

    async def scene(stage: MemoryStage) -> None:
        async with stage.copying():
            stage.feed(range(30))
            worker = stage.start(copies=False)
            await worker.consumed(30)
            await asyncio.sleep(Uncopied.TURN_S)
            assert measured(worker, "pipeline_lag_offsets") == 0
        stage.feed(range(30, 80))
        await asyncio.sleep(Uncopied.TURN_S + 1)
        assert measured(worker, "pipeline_lag_offsets") == 50
        assert measured(worker, "repartition_missing") == 0
        await asyncio.sleep(2 * EPISODE_S)
        (line,) = worker.lines("repartition_missing")
        assert (line["log_level"], line["group"]) == ("warning", stage.copying_group)
        assert (line["input_lag"], line["inputs"]) == (50, stage.source)
        assert "run --stage repartition" in line["remedy"]
        ready = page(worker, "/readyz")
        assert ready.status == 200
        assert (
            f"warning: 50 offsets of {stage.source} wait to be copied, and the group"
            f" {stage.copying_group} has no members; start the first stage" in ready.text
        )
        assert measured(worker, "repartition_missing") == 1
        last = worker.lines("progress")[-1]
        assert (last["log_level"], last["lag"], last["input_lag"]) == ("warning", 50, 50)
        async with stage.copying():
            await worker.consumed(80)
            await worker.logged("repartition_found")
            assert page(worker, "/readyz").text.startswith("ready")
            assert "to be copied" not in page(worker, "/readyz").text
            assert measured(worker, "pipeline_lag_offsets") == 0
            assert measured(worker, "repartition_missing") == 0
        await worker.stop()

    play(tmp_path, scene)


def test_a_first_stage_that_restarts_is_not_missing(tmp_path: Path) -> None:
    """Events may wait for less than a minute; and nobody is missed as long as nothing waits."""

    async def scene(stage: MemoryStage) -> None:
        async with stage.copying():
            worker = stage.start(copies=False)
            await worker.live(4)
        await asyncio.sleep(2 * EPISODE_S)
        for number in range(5):
            stage.feed([number])
            await asyncio.sleep(MISSING_S - 10)
            async with stage.copying():
                await worker.consumed(number + 1)
                await asyncio.sleep(Uncopied.TURN_S + 1)
        assert not worker.lines("repartition_missing")
        assert not worker.lines("repartition_found")
        assert "to be copied" not in page(worker, "/readyz").text
        await worker.stop()

    play(tmp_path, scene)


def test_a_worker_with_both_stages_has_no_such_watch(tmp_path: Path) -> None:
    """It reports its own first stage; the metric is absent."""

    async def scene(stage: MemoryStage) -> None:
        async with stage.start() as worker:
            await worker.logged("repartition_live")
            assert worker.worker.status.uncopied is None
            assert "\nstreamdedup_repartition_missing " not in page(worker, "/metrics").text

    play(tmp_path, scene)


def looking(stage: MemoryStage, **source: object) -> Uncopied:
    """A watch of the inputs, with more in `source`."""
    stage.deployment.config["source"] |= source
    settings = load(stage.deployment.write_config())
    return Uncopied(settings, MemoryCluster(stage.broker, settings.kafka, Patience(None)))


def test_members_that_copy_slowly_are_not_missing(tmp_path: Path) -> None:
    """What waits is counted all the same."""

    async def scene(stage: MemoryStage) -> None:
        watch = looking(stage)
        stage.feed(range(10))
        member = watch._cluster.source(stage.source, "any", group=stage.copying_group)
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

    play(tmp_path, scene)


def test_what_counts_as_uncopied(tmp_path: Path) -> None:
    """From the committed offset on, or from the first event that is left; offsets of another log do not count."""

    async def scene(stage: MemoryStage) -> None:
        watch, broker = looking(stage), stage.broker
        offsets = broker.group(stage.copying_group).offsets
        broker.produce(stage.source, [(p, None, value(n)) for p in range(INPUTS) for n in range(9)])
        await watch.look()
        assert watch.offsets == 27
        offsets[stage.source, 0] = (4, "")
        await watch.look()
        assert watch.offsets == 23
        broker.log(stage.source, 0).trim(6)
        await watch.look()
        assert watch.offsets == 21
        note = Note(cluster_id=None, input_id="another", output_id=None, label=0, meaning=1)
        offsets[stage.source, 1] = (9, note.encode())
        await watch.look()
        assert watch.offsets == 21

    play(tmp_path, scene)


def test_a_stage_that_will_begin_at_the_end_has_nothing_to_copy(tmp_path: Path) -> None:
    """With `source.start: latest`, before its first commit; a partition that comes later is read from its start."""

    async def scene(stage: MemoryStage) -> None:
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

    play(tmp_path, scene)


def test_a_leader_that_does_not_answer_changes_no_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last known one stays. Without any topic there is nothing to copy."""

    async def scene(stage: MemoryStage) -> None:
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

    play(tmp_path, scene)
