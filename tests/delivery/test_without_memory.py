"""Claims about memory that cannot be had, which is not asked for for ever in silence."""

import asyncio
from functools import partial
from typing import Any

import pytest

from streamdedup.delivery.fold import FoldedMemory
from streamdedup.delivery.lifecycle import MEMORY_TRIES, State
from tests.deployment import keyed
from tests.memory import Stage, over, page


def feed(stage: Stage, topic: str, numbers: range) -> None:
    """Append events to a topic."""
    stage.broker.produce(topic, [event[:3] for event in keyed(numbers, 2)])


@pytest.mark.parametrize(
    "times",
    [
        MEMORY_TRIES - 1,
        pytest.param(MEMORY_TRIES, marks=pytest.mark.finding("filter-without-memory")),
        pytest.param(None, marks=pytest.mark.finding("filter-without-memory")),
    ],
)
@over(partial(Stage, partitions=2))
async def test_memory_that_cannot_be_had_is_not_asked_for_for_ever(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, times: int | None
) -> None:
    """In a fold: after some tries the shard is full, with the remedy; fewer failures only delay it."""
    fold, failed, goes_on = FoldedMemory._fold_in, list[None](), times == MEMORY_TRIES - 1

    async def without_memory(self: FoldedMemory, *arguments: Any) -> Any:
        if self._partition == 0 and (times is None or len(failed) < times):
            failed.append(None)
            raise MemoryError
        return await fold(self, *arguments)

    monkeypatch.setattr(FoldedMemory, "_fold_in", without_memory)
    stage.broker.rebalance_s = 1
    feed(stage, stage.sink, range(100))
    worker = stage.start()
    if goes_on:
        await worker.live(2)
        assert not worker.lines("filter_without_memory")
    else:
        (line,) = await worker.logged("filter_without_memory")
        assert (line["partition"], line["log_level"]) == (0, "error")
        assert "give the worker more memory" in line["remedy"]
        await worker.live(1)
        assert worker.worker.deliveries[0].state is State.FULL
        ready = page(worker)
        assert ready.status == 503
        assert "give the worker more memory" in ready.text
    feed(stage, stage.source, range(50, 150))
    await worker.consumed(100 if goes_on else 50)
    await asyncio.sleep(600)
    assert len(failed) == (MEMORY_TRIES if times is None else times)
    assert not worker.task.done()
