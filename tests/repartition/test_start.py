"""Claims about how the processes of either stage begin, over a broker in memory."""

import asyncio
from collections import Counter

import pytest

from streamdedup.errors import ConfigError
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.settings import load
from streamdedup.testing import connected_to
from streamdedup.worker.worker import Worker
from tests.memory import over
from tests.staged import PLACES, MemoryStage

IDS = [number % 70 for number in range(200)]


@over(MemoryStage)
async def test_a_second_stage_alone_waits_for_its_input(stage: MemoryStage) -> None:
    """Which the first stage makes: whoever made it by hand, as an error might ask for, would make a wrong one."""
    alone = _second_stage(stage)
    running = asyncio.create_task(alone.run())
    await asyncio.sleep(30)
    assert not running.done()
    stage.feed(IDS)
    async with stage.start() as worker:
        await worker.logged("joining")
        await worker.until(lambda: len(stage.ids()) == 70, "all ids")
    alone.stop()
    await running
    assert stage.ids() == Counter({str(number): 1 for number in range(70)})


@over(MemoryStage)
async def test_a_second_stage_that_waits_can_be_stopped(stage: MemoryStage) -> None:
    """It ends without an error."""
    alone = _second_stage(stage)
    running = asyncio.create_task(alone.run())
    await asyncio.sleep(5)
    alone.stop()
    await running


@over(MemoryStage)
async def test_a_second_stage_alone_looks_at_its_input(stage: MemoryStage) -> None:
    """A middle topic that somebody has made otherwise is refused, as by the first stage."""
    stage.broker.create_topic(stage.middle, PLACES + 1)
    with pytest.raises(ConfigError, match=r"middle has 5 partitions.*\n.*retention\.ms"):
        await _second_stage(stage).run()


def _second_stage(stage: MemoryStage) -> Worker:
    settings = load(stage.deployment.write_config())
    return Worker(settings, connected_to(stage.broker), copies=False)


@over(MemoryStage)
async def test_what_a_second_stage_waits_for_is_on_its_page(stage: MemoryStage) -> None:
    """Not only in the log: a pod has nothing else to show."""
    second = _second_stage(stage)
    running = asyncio.create_task(second.run())
    await asyncio.sleep(5)
    page = pages(second.status, Pulse())["/readyz"]()
    assert page.status == 503
    assert f"waits for the first stage, which makes the middle topic {stage.middle}" in page.text
    second.stop()
    await running
