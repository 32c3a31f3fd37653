"""Claims about a process of the second stage alone: it reports what waits while nobody copies."""

import asyncio

import pytest

from streamdedup.kafka.client.patience import Patience
from streamdedup.kafka.offsets import Note
from streamdedup.repartition.uncopied import MISSING_S, Uncopied
from streamdedup.settings import load
from streamdedup.testing.cluster import MemoryCluster
from tests.memory import measured, over, page
from tests.staged import INPUTS, MemoryStage, value

EPISODE_S = MISSING_S + 2 * Uncopied.TURN_S  # in which a warning comes, if there is a reason


@pytest.mark.finding("repartition-missing")
@over(MemoryStage)
async def test_a_first_stage_that_is_missing_is_reported(stage: MemoryStage) -> None:
    """By the lag at once, and after a minute by one warning, the page and each line of progress; until it is back."""
    async with stage.copying():
        stage.feed(range(30))
        worker = stage.start(copies=False)
        await worker.consumed(30)
        await asyncio.sleep(Uncopied.TURN_S)
        assert measured(worker, "pipeline_lag_offsets") == [0]
    stage.feed(range(30, 80))
    await asyncio.sleep(Uncopied.TURN_S + 1)
    assert measured(worker, "pipeline_lag_offsets") == [50]
    assert measured(worker, "repartition_missing") == [0]
    await asyncio.sleep(2 * EPISODE_S)
    (line,) = worker.lines("repartition_missing")
    assert (line["log_level"], line["group"]) == ("warning", stage.copying_group)
    assert (line["input_lag"], line["inputs"]) == (50, stage.source)
    assert "run --stage repartition" in line["remedy"]
    ready = page(worker)
    assert ready.status == 200
    assert (
        f"warning: 50 offsets of {stage.source} wait to be copied, and the group"
        f" {stage.copying_group} has no members; start the first stage" in ready.text
    )
    assert measured(worker, "repartition_missing") == [1]
    last = worker.lines("progress")[-1]
    assert (last["log_level"], last["lag"], last["input_lag"]) == ("warning", 50, 50)
    async with stage.copying():
        await worker.consumed(80)
        await worker.logged("repartition_found")
        assert page(worker).text.startswith("ready")
        assert "to be copied" not in page(worker).text
        assert measured(worker, "pipeline_lag_offsets") == [0]
        assert measured(worker, "repartition_missing") == [0]
    await worker.stop()


@over(MemoryStage)
async def test_a_first_stage_that_restarts_is_not_missing(stage: MemoryStage) -> None:
    """Events may wait for less than a minute; and nobody is missed as long as nothing waits."""
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
    assert "to be copied" not in page(worker).text
    await worker.stop()


@over(MemoryStage)
async def test_a_worker_with_both_stages_has_no_such_watch(stage: MemoryStage) -> None:
    """It reports its own first stage; the metric is absent."""
    async with stage.start() as worker:
        await worker.logged("repartition_live")
        assert worker.worker.status.uncopied is None
        assert measured(worker, "repartition_missing") == []


def looking(stage: MemoryStage, **source: object) -> Uncopied:
    """A watch of the inputs, with more in `source`."""
    stage.config["source"] |= source
    settings = load(stage.deployment.write_config())
    return Uncopied(settings, MemoryCluster(stage.broker, settings.kafka, Patience(None)))


@over(MemoryStage)
async def test_what_counts_as_uncopied(stage: MemoryStage) -> None:
    """From the committed offset on, or from the first event that is left; offsets of another log do not count."""
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
