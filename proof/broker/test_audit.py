"""Claims about `streamdedup audit` on a real broker; those about each breach: tests/commands/test_audit.py."""

import asyncio
from pathlib import Path

from streamdedup.commands.audit import Report, audit
from streamdedup.settings import load
from tests.broker.base import Broker
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import run_to_the_end
from tests.memory_deployment import findings


def audited(deployment: Deployment) -> Report:
    """The report."""
    return asyncio.run(audit(load(deployment.write_config())))


def test_a_clean_run_is_fine(broker: Broker, tmp_path: Path) -> None:
    """Of a worker that ran, everything is counted and nothing found; the exact model agrees."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path).create()
    duplicates = deployment.create_side_topic("duplicates_topic")
    deployment.feed(keyed([*range(4000), *range(1000)]))
    deployment.feed([(0, b"gone", None, [], None), (0, b"gone", None, [], None)])
    run_to_the_end(deployment)
    assert lost_and_doubled(deployment)[0] == 0
    report = audited(deployment)
    assert report.fine, report.as_text()
    assert findings(report) == dict.fromkeys(findings(report), 0)
    total = report.total
    assert (total.read, total.keys, total.emitted, total.duplicates) == (5002, 4000, 4002, 1000)
    assert total.unjudged == 2
    assert [c.partition for c in report.partitions] == [0, 1, 2, 3]
    assert report.as_text().endswith("the promise holds as far as can be known\n")
    (note,) = report.notes
    assert note.startswith("all partitions: each partition is judged by itself")
    assert {tuple(c.as_json()["limits"]) for c in report.partitions} == {
        ("keys_across_partitions",)
    }
    header, _, *_, whole = report.as_text().split("\n\n")[1].splitlines()
    assert " unjudged " in header
    assert whole.split()[:7] == ["all", "5,002", "4,000", "4,002", "0", "0", "2"]
    assert duplicates


def test_it_works_while_a_worker_does(broker: Broker, tmp_path: Path) -> None:
    """What is committed or emitted while it reads is neither lost nor foreign."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path).create()
    deployment.config["delivery"] |= {"batch_events_max": 20, "commit_interval_ms": 10}
    deployment.config["kafka"]["consumer"]["max_partition_fetch_bytes"] = 16_384
    deployment.feed(keyed(range(30_000)))
    behind = 0
    with deployment.running() as worker:
        worker.wait_for("shard_live", deployment.partitions)
        for _ in range(3):
            report = audited(deployment)
            assert findings(report) == {
                **findings(report),
                "missing": 0,
                "doubled": 0,
                "foreign": 0,
            }
            behind += report.total.read < 30_000
    assert behind, "the worker was done before the first audit"
