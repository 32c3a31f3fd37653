"""Claims about a committed offset that counts no more: where reading begins instead is logged and committed at once.

On a broker in memory. No event comes, so nothing but the start can have been committed.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.testing import MemoryBroker, VirtualLoop, connected_to
from tests.deployment import Deployment, keyed
from tests.lists.files import list_file
from tests.local import LocalWorker, Start, workers

FED = 30

KINDS = pytest.mark.parametrize("kind", ["bloom", "none"])
GUARANTEES = pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])


class Stage:
    """A broker in memory and a deployment of one partition, of which FED events were emitted."""

    def __init__(self, directory: Path, start: Start) -> None:
        self.deployment = Deployment("memory:1", directory, partitions=1)
        self.broker = MemoryBroker()
        for topic in (self.deployment.source, self.deployment.sink):
            self.broker.create_topic(topic, 1)
        self._start = start

    def start(self) -> LocalWorker:
        """One more worker."""
        return self._start(self.deployment, connect=connected_to(self.broker))

    def feed(self, first: int, count: int) -> None:
        """Append events to the input."""
        events = [(p, key, value) for p, key, value, *_ in keyed(range(first, first + count), 1)]
        self.broker.produce(self.deployment.source, events)

    async def emit(self) -> None:
        """Let a worker emit FED events, and end it."""
        self.feed(0, FED)
        worker = self.start()
        await worker.consumed(FED)
        await worker.stop()

    async def begins(self) -> tuple[LocalWorker, int]:
        """Start a worker, and wait until it is live; the offset that is committed then."""
        worker = self.start()
        await worker.live(1)
        committed = self.broker.committed(self.deployment.group, self.deployment.source)
        return worker, committed[0]


def play(
    directory: Path, kind: str, guarantee: str, scene: Callable[[Stage], Coroutine[Any, Any, None]]
) -> None:
    """Run `scene` on a virtual clock."""

    async def main() -> None:
        async with workers() as start:
            stage = Stage(directory, start)
            stage.deployment.config["delivery"]["guarantee"] = guarantee
            if kind == "none":
                screen = list_file(directory / "block.list", [b"nobody"])
                stage.deployment.config["blocklist"] = {"file": str(screen)}
                stage.deployment.config["filter"] = {"kind": "none"}
                del stage.deployment.config["snapshot"]
            await scene(stage)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


@KINDS
@GUARANTEES
def test_what_was_deleted_unread_is_reported(tmp_path: Path, kind: str, guarantee: str) -> None:
    """With `source.on_gap: skip`: from which offset to which, how many, in the log and in the metric; once."""

    async def scene(stage: Stage) -> None:
        stage.deployment.config["source"]["on_gap"] = "skip"
        await stage.emit()
        stage.feed(FED, 20)
        stage.broker.log(stage.deployment.source, 0).trim(FED + 20)
        worker, committed = await stage.begins()
        assert committed == FED + 20
        (line,) = worker.lines("input_gap_skipped")
        assert (line["log_level"], line["partition"]) == ("warning", 0)
        assert (line["from_offset"], line["to_offset"], line["offsets"]) == (FED, FED + 20, 20)
        page = pages(worker.worker.status, Pulse())["/metrics"]().text
        (metric,) = [m for m in page.splitlines() if m.startswith("streamdedup_gap_offsets_total{")]
        assert float(metric.split()[1]) == 20
        await worker.stop()
        second, _ = await stage.begins()
        assert not second.lines("input_gap_skipped")

    play(tmp_path, kind, guarantee, scene)


@KINDS
@GUARANTEES
@pytest.mark.parametrize("of", ["input", "cluster"])
def test_an_offset_of_another_log_is_reported(
    tmp_path: Path, kind: str, guarantee: str, of: str
) -> None:
    """With the offset at which reading begins instead, which is committed at once."""

    async def scene(stage: Stage) -> None:
        await stage.emit()
        source = stage.deployment.source
        if of == "cluster":
            stage.broker.cluster_id = "another"
        else:
            stage.broker.delete_topic(source, with_offsets=False)
            stage.broker.create_topic(source, 1)
            stage.feed(0, FED)
        stage.broker.log(source, 0).trim(
            FED
        )  # so that nothing is read before the start is committed
        worker, committed = await stage.begins()
        (line,) = worker.lines("input_begun_anew")
        assert (line["log_level"], line["offset"], committed) == ("warning", FED, FED)
        assert of in line["reason"]
        await worker.stop()
        second, _ = await stage.begins()
        assert not second.lines("input_begun_anew")

    play(tmp_path, kind, guarantee, scene)
