"""The document of `/api/status`: every number is the worker's, and no key is in it."""

import json
from pathlib import Path
from typing import Any

import pytest

from streamdedup.server.pulse import Pulse
from streamdedup.server.state import document, observe
from tests.deployment import keyed
from tests.local import LocalWorker, Start, on_virtual_clock
from tests.memory_deployment import MemoryDeployment

CANARY = b"jane.doe@example.org"


@pytest.fixture
def deployment(tmp_path: Path) -> MemoryDeployment:
    """Two partitions."""
    return MemoryDeployment(tmp_path, partitions=2).create(retention_ms=-1)


def shown(worker: LocalWorker) -> dict[str, Any]:
    """The document, as those who ask get it."""
    status, pulse = worker.worker.status, Pulse()
    observe(status, pulse)
    read: dict[str, Any] = json.loads(json.dumps(document(status, pulse), allow_nan=False))
    return read


async def settled(worker: LocalWorker, events: int) -> None:
    """Wait until so many events are decided and committed."""
    await worker.until(lambda: worker.worker.tally.consumed == events, f"{events} events")


def test_the_document_counts_what_was_decided(deployment: MemoryDeployment) -> None:
    """Verdicts, keys, capacity, lag and what did not pass are those of the worker, by partition and as a whole."""

    @on_virtual_clock
    async def _(start: Start) -> None:
        deployment.config["filter"] |= {"capacity": 5000, "on_full": "stop"}
        async with start(deployment, connect=deployment.connect) as worker:
            await worker.live()
            before = shown(worker)
            deployment.feed([*keyed(range(10), 2), *keyed(range(10), 2)])
            await settled(worker, 20)
            after = shown(worker)
        assert before["totals"]["verdicts"]["pass"] == 0
        assert [shard["keys"] for shard in before["shards"]] == [0, 0]
        assert after["totals"]["verdicts"] == {
            "pass": 10,
            "duplicate": 10,
            "blocked": 0,
            "malformed": 0,
            "rejected": 0,
        }
        assert after["totals"]["minute"] == after["totals"]["verdicts"]
        assert [shard["keys"] for shard in after["shards"]] == [5, 5]
        # Half of the capacity, and some for chance.
        assert [shard["capacity"] for shard in after["shards"]] == [3000, 3000]
        assert {shard["state"] for shard in after["shards"]} == {"live"}
        assert [shard["lag"] for shard in after["shards"]] == [0, 0]
        assert [shard["oldest_unread_s"] for shard in after["shards"]] == [0, 0]
        assert sum(filter(None, after["minutes"]["pass"])) == 10
        assert len(after["minutes"]["pass"]) == 60
        assert after["ready"]["is"]
        assert after["ready"]["sentence"].startswith("ready: 2 of ")
        assert {each["verdict"] for each in after["not_passed"]} == {"duplicate"}


def test_no_key_is_in_the_document(deployment: MemoryDeployment) -> None:
    """Neither one that passed nor a duplicate."""

    @on_virtual_clock
    async def _(start: Start) -> None:
        deployment.feed([(0, CANARY, CANARY, [], None)] * 3)
        async with start(deployment, connect=deployment.connect) as worker:
            await settled(worker, 3)
            assert "jane" not in json.dumps(shown(worker))
