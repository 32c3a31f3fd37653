"""Claims about a stream without record keys on a real broker: who uses it is told at each step that duplicates pass."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.broker.base import Broker
from tests.broker.topics import read_all
from tests.deployment import Deployment
from tests.local import Start
from tests.spread import PARTITIONS, spread

pytestmark = pytest.mark.broker


async def test_a_stream_without_record_keys_misleads_nobody(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """60,000 events of 18,956 keys in 6 partitions: `try`, the worker and `audit` say what share of duplicates pass."""
    stream = spread()
    deployment = Deployment(broker.bootstrap_servers, tmp_path, PARTITIONS).create()
    deployment.config["key"] = {"field": "id"}
    await asyncio.to_thread(deployment.feed, stream.events)
    tried = await command(deployment, 3, "try", "--events", "100k")
    assert tried["keys_in_several_partitions"] > 12_000
    assert tried["duplicates_across_partitions"] == stream.passing - stream.distinct
    assert tried["events_without_record_key"] == 60_000
    async with start(deployment) as worker:
        await worker.caught_up()
        assert len(worker.lines("partitioning_unknown")) == 1
        assert await worker.logged("duplicates_across_partitions")
        assert worker.worker.status.watch.unseen == stream.passing - stream.distinct
        assert worker.worker.status.watch.unseen_share == pytest.approx(stream.unseen_share)
    output = await asyncio.to_thread(read_all, deployment.bootstrap, deployment.sink)
    ids = Counter(json.loads(record.value or b"")["id"] for record in output)
    assert (ids.total(), len(ids)) == (stream.passing, stream.distinct)
    plain = await command(deployment, 3, "audit")
    assert plain["fine"] is False
    assert plain["breaches"] == []
    assert plain["across"]["share_of_duplicates"] == pytest.approx(stream.unseen_share)
    across = await command(deployment, 1, "audit", "--across")
    assert across["across"]["keys"] == stream.distinct
    assert across["across"]["doubled"] == stream.passing - stream.distinct
    (breach,) = across["breaches"]
    assert "emitted again in another partition" in breach


async def command(deployment: Deployment, status: int, name: str, *arguments: str) -> Any:
    """Return the report of a command that ends with `status`."""
    config = str(deployment.write_config())
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "streamdedup", name, "-c", config, "--json", *arguments],
        capture_output=True,
        check=False,
    )
    assert ran.returncode == status, ran.stderr
    return json.loads(ran.stdout)
