"""Claims about a full filter that a worker foresees; over a broker in memory."""

import asyncio
from pathlib import Path

from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.testing import MemoryBroker, connected_to
from tests.deployment import Deployment
from tests.local import LocalWorker, Start, on_virtual_clock

NAME = "streamdedup_filter_full_in_seconds{"


def left_s(worker: LocalWorker) -> list[float]:
    """What the metrics say, of each partition."""
    page = pages(worker.worker.status, Pulse())["/metrics"]().text
    return [float(line.split()[1]) for line in page.splitlines() if line.startswith(NAME)]


def test_a_full_filter_is_foreseen(tmp_path: Path) -> None:
    """From the rate of the last hour, and not from the fold that filled it."""

    async def scene(start: Start) -> None:
        broker, deployment = MemoryBroker(), Deployment("memory:1", tmp_path, partitions=1)
        deployment.config["filter"] = {"capacity": 1000, "on_full": "stop"}
        for name in (deployment.source, deployment.sink):
            broker.create_topic(name)
        broker.produce(deployment.sink, [(0, b"old%d" % n, b"") for n in range(500)])
        worker = start(deployment, connect=connected_to(broker))
        await worker.live(1)
        assert left_s(worker) == []
        await asyncio.sleep(1800)
        assert left_s(worker) == [float("inf")]
        broker.produce(deployment.source, [(0, b"%d" % n, b"") for n in range(100)])
        await worker.consumed(100)
        await asyncio.sleep(1770)
        [left] = left_s(worker)
        assert abs(left - 4 * 3600) < 0.05 * 4 * 3600  # 400 places, at 100 an hour

    on_virtual_clock(scene)
