"""Claims about how the processes of either stage begin, over a broker in memory."""

import asyncio
from collections import Counter

import pytest

from streamdedup.errors import ConfigError
from tests.memory import over, page
from tests.staged import PLACES, MemoryStage

IDS = [number % 70 for number in range(200)]


@over(MemoryStage)
async def test_a_second_stage_alone_waits_for_its_input(stage: MemoryStage) -> None:
    """Which the first stage makes: whoever made it by hand, as an error might ask for, would make a wrong one."""
    async with stage.start(copies=False) as alone:
        await asyncio.sleep(30)
        assert not alone.task.done()
        stage.feed(IDS)
        async with stage.start() as worker:
            await worker.logged("joining")
            await worker.until(lambda: len(stage.ids()) == 70, "all ids")
    assert stage.ids() == Counter({str(number): 1 for number in range(70)})


@over(MemoryStage)
async def test_a_second_stage_alone_looks_at_its_input(stage: MemoryStage) -> None:
    """A middle topic that somebody has made otherwise is refused, as by the first stage."""
    stage.broker.create_topic(stage.middle, PLACES + 1)
    with pytest.raises(ConfigError, match=r"middle has 5 partitions.*\n.*retention\.ms"):
        await stage.start(copies=False).task


@over(MemoryStage)
async def test_what_a_second_stage_waits_for_is_on_its_page(stage: MemoryStage) -> None:
    """Not only in the log: a pod has nothing else to show. It can be stopped while it waits."""
    async with stage.start(copies=False) as second:
        await asyncio.sleep(5)
        ready = page(second)
    assert ready.status == 503
    assert f"waits for the first stage, which makes the middle topic {stage.middle}" in ready.text
