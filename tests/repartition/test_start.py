"""Claims about how the processes of either stage begin, over a broker in memory."""

import asyncio
import threading
from collections import Counter
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streamdedup.errors import ConfigError
from streamdedup.kafka.records import encoding
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.settings import load
from streamdedup.testing import connected_to
from streamdedup.worker.staged import CopyingWorker
from streamdedup.worker.worker import Worker
from tests.staged import PLACES, MemoryStage, play

IDS = [number % 70 for number in range(200)]


def test_a_second_stage_alone_waits_for_its_input(tmp_path: Path) -> None:
    """Which the first stage makes: whoever made it by hand, as an error might ask for, would make a wrong one."""

    async def scene(stage: MemoryStage) -> None:
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

    play(tmp_path, scene)


def test_a_second_stage_that_waits_can_be_stopped(tmp_path: Path) -> None:
    """It ends without an error."""

    async def scene(stage: MemoryStage) -> None:
        alone = _second_stage(stage)
        running = asyncio.create_task(alone.run())
        await asyncio.sleep(5)
        alone.stop()
        await running

    play(tmp_path, scene)


def test_a_second_stage_alone_looks_at_its_input(tmp_path: Path) -> None:
    """A middle topic that somebody has made otherwise is refused, as by the first stage."""

    async def scene(stage: MemoryStage) -> None:
        stage.broker.create_topic(stage.middle, PLACES + 1)
        with pytest.raises(ConfigError, match=r"middle has 5 partitions.*\n.*retention\.ms"):
            await _second_stage(stage).run()

    play(tmp_path, scene)


def test_no_kernel_is_compiled_in_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first start takes half a minute for it, in which probes and signals must be answered."""
    threads = list[threading.Thread]()
    warm_up = encoding.warm_up

    def watched() -> None:
        threads.append(threading.current_thread())
        warm_up()

    monkeypatch.setattr(encoding, "warm_up", watched)

    async def scene(stage: MemoryStage) -> None:
        async with stage.start() as worker:
            await worker.live(PLACES)

    play(tmp_path, scene)
    assert threads
    assert threading.main_thread() not in threads


def _second_stage(stage: MemoryStage) -> Worker:
    settings = load(stage.deployment.write_config())
    return Worker(settings, connected_to(stage.broker), copies=False)


def test_what_a_second_stage_waits_for_is_on_its_page(tmp_path: Path) -> None:
    """Not only in the log: a pod has nothing else to show."""

    async def scene(stage: MemoryStage) -> None:
        second = _second_stage(stage)
        running = asyncio.create_task(second.run())
        await asyncio.sleep(5)
        page = pages(second.status, Pulse())["/readyz"]()
        assert page.status == 503
        assert (
            f"waits for the first stage, which makes the middle topic {stage.middle}" in page.text
        )
        second.stop()
        await running

    play(tmp_path, scene)


def test_a_first_stage_alone_tells_its_progress(tmp_path: Path) -> None:
    """Once a minute; as a warning, with the reason, while it is paused because nobody reads what it has copied."""

    async def scene(stage: MemoryStage) -> None:
        stage.deployment.config["source"]["repartition"]["unread_max"] = 100
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

    play(tmp_path, scene)
