"""Claims about `streamdedup audit` on a real broker: each breach is found, and nothing else is taken for one."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from streamdedup.audit import Report, audit
from streamdedup.settings import load
from tests.broker.base import Broker
from tests.broker.topics import Event, delete_records, move_offsets, produce
from tests.deployment import Deployment, keyed, lost_and_doubled

pytestmark = pytest.mark.broker

UNMADE = {"lost": None, "missing": None, "wrongly_dropped": None}


@pytest.fixture
def forged(broker: Broker, tmp_path: Path) -> Deployment:
    """One partition; what the worker would have written is forged, and so are the offsets."""
    return Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()


def emit(deployment: Deployment, events: Iterable[Event], committed_at: int) -> None:
    """Put events into the output, and commit the input up to an offset."""
    produce(deployment.bootstrap, deployment.sink, events)
    move_offsets(deployment.bootstrap, deployment.group, {0: committed_at}, deployment.source)


def audited(deployment: Deployment, *overrides: str, **options: Any) -> Report:
    """The report."""
    return asyncio.run(audit(load(deployment.write_config(), overrides), **options))


def findings(report: Report) -> dict[str, int | None]:
    """The five findings of the whole."""
    total = report.total
    return {
        "lost": total.lost,
        "missing": total.missing,
        "wrongly_dropped": total.wrongly_dropped,
        "doubled": total.doubled,
        "foreign": total.foreign,
    }


def test_a_clean_run_is_fine(broker: Broker, tmp_path: Path) -> None:
    """Of a worker that ran, everything is counted and nothing found; the exact model agrees."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path).create()
    duplicates = deployment.create_side_topic("duplicates_topic")
    deployment.feed(keyed([*range(4000), *range(1000)]))
    deployment.feed([(0, b"gone", None, [], None), (0, b"gone", None, [], None)])
    deployment.run_to_the_end()
    assert lost_and_doubled(deployment)[0] == 0
    report = audited(deployment)
    assert report.fine, report.as_text()
    assert findings(report) == dict.fromkeys(findings(report), 0)
    total = report.total
    assert (total.read, total.keys, total.emitted, total.duplicates) == (5002, 4000, 4002, 1000)
    assert total.unjudged == 2
    assert [c.partition for c in report.partitions] == [0, 1, 2, 3]
    assert report.as_text().endswith("the promise holds\n")
    assert duplicates


def test_it_works_while_a_worker_does(broker: Broker, tmp_path: Path) -> None:
    """What is committed or emitted while it reads is neither lost nor foreign."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path).create()
    deployment.config["delivery"] |= {"batch_events_max": 200, "commit_interval_ms": 10}
    deployment.config["kafka"]["consumer"]["max_partition_fetch_bytes"] = 16_384
    deployment.feed(keyed(range(30_000)))
    behind = 0
    with deployment.running() as worker:
        worker.wait_for("shard_live", deployment.partitions)
        for _ in range(3):
            report = audited(deployment)
            assert findings(report) == {**findings(report), "missing": 0, "doubled": 0, "foreign": 0}
            behind += report.total.read < 30_000
    assert behind, "the worker was done before the first audit"
