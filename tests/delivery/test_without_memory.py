"""Claims about memory that cannot be had, and snapshots that cannot be taken: neither is tried for ever in silence."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from streamdedup.delivery.fold import FoldedMemory
from streamdedup.delivery.lifecycle import MEMORY_TRIES, State
from streamdedup.delivery.snapshots import ShardSnapshots
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.testing import MemoryBroker, VirtualLoop, connected_to
from tests.deployment import Deployment, keyed
from tests.local import LocalWorker, workers

Scene = Callable[[LocalWorker, MemoryBroker, Deployment], Coroutine[Any, Any, None]]


def play(directory: Path, scene: Scene, interval_s: float = 3600) -> None:
    """Run `scene` with a worker of two partitions, on a virtual clock; the output holds events to fold."""

    async def main() -> None:
        async with workers() as start:
            broker, deployment = MemoryBroker(), Deployment("memory:1", directory, partitions=2)
            broker.rebalance_s = 1
            deployment.config["snapshot"]["interval_s"] = interval_s
            for topic in (deployment.source, deployment.sink):
                broker.create_topic(topic, 2)
            feed(broker, deployment.sink, range(100))
            await scene(start(deployment, connect=connected_to(broker)), broker, deployment)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def feed(broker: MemoryBroker, topic: str, numbers: range) -> None:
    """Append events to a topic."""
    broker.produce(topic, [(p, key, value) for p, key, value, *_ in keyed(numbers, 2)])


@pytest.mark.parametrize("times", [MEMORY_TRIES - 1, MEMORY_TRIES, None])
def test_memory_that_cannot_be_had_is_not_asked_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int | None
) -> None:
    """In a fold: after some tries the shard is full, with the remedy; fewer failures only delay it."""
    fold, failed = FoldedMemory._fold_in, list[None]()

    async def scene(worker: LocalWorker, broker: MemoryBroker, deployment: Deployment) -> None:
        if times == MEMORY_TRIES - 1:
            await worker.live(2)
            assert not worker.lines("filter_without_memory")
        else:
            (line,) = await worker.logged("filter_without_memory")
            assert (line["partition"], line["log_level"]) == (0, "error")
            assert "give the worker more memory" in line["remedy"]
            await worker.live(1)
            assert worker.worker.deliveries[0].state is State.FULL
            ready = pages(worker.worker.status, Pulse())["/readyz"]()
            assert ready.status == 503
            assert "give the worker more memory" in ready.text
        feed(broker, deployment.source, range(50, 150))
        await worker.consumed(50 if line_of(worker) else 100)
        await asyncio.sleep(600)
        assert len(failed) == (MEMORY_TRIES if times is None else times)
        assert not worker.task.done()

    async def without_memory(self: FoldedMemory, *arguments: Any) -> Any:
        if self._partition == 0 and (times is None or len(failed) < times):
            failed.append(None)
            raise MemoryError
        return await fold(self, *arguments)

    monkeypatch.setattr(FoldedMemory, "_fold_in", without_memory)
    play(tmp_path, scene)


def line_of(worker: LocalWorker) -> bool:
    """Whether the worker said that it cannot have memory."""
    return bool(worker.lines("filter_without_memory"))


def test_a_snapshot_that_is_postponed_again_and_again_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the third time in a row; one that is saved ends the row."""
    save, fails = ShardSnapshots._save_copy, [True]

    async def postponed(self: ShardSnapshots, *arguments: Any) -> Any:
        return None if fails else await save(self, *arguments)

    async def scene(worker: LocalWorker, broker: MemoryBroker, deployment: Deployment) -> None:
        def levels() -> list[str]:
            lines = worker.lines("snapshot_postponed")
            return [line["log_level"] for line in lines if line["partition"] == 0]

        await worker.live(2)
        await worker.until(lambda: len(levels()) == 4, "4 snapshots that are postponed")
        assert levels() == ["info", "info", "warning", "warning"]
        fails.clear()
        await worker.logged("snapshot_saved", 2)
        fails.append(True)
        feed(broker, deployment.source, range(100, 120))
        await worker.until(lambda: len(levels()) == 5, "one more")
        assert levels()[-1] == "info"

    monkeypatch.setattr(ShardSnapshots, "_save_copy", postponed)
    play(tmp_path, scene, interval_s=10)
