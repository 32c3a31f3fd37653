"""What a worker reports over HTTP, on a real broker: the counts are right; more in tests/server/test_pages.py."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamdedup.events import Verdict
from streamdedup.metrics.catalogue import METRICS
from streamdedup.server import kept
from tests.broker.base import DEADLINE_S, Broker
from tests.broker.topics import create_topic, unique_name
from tests.deployment import Deployment, keyed
from tests.lists.files import list_file
from tests.local import LocalWorker, Start

CANARY = b"jane.doe@example.org"

Samples = Mapping[tuple[str, frozenset[str]], float]


@pytest.fixture(autouse=True)
def always_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared with what just happened must not be a second old."""
    monkeypatch.setattr(kept, "KEPT_S", 0.0)


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """Two partitions; the worker serves its pages at any port that is free."""
    made = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    made.config["server"] = {"port": 0}
    return made


async def get(worker: LocalWorker, path: str) -> tuple[int, str]:
    """Status and text of a page, once the worker serves any."""
    status = worker.worker.status
    await worker.until(lambda: status.port is not None, "a port")

    def ask() -> tuple[int, str]:
        try:
            url = f"http://127.0.0.1:{status.port}{path}"
            with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(ask)


async def ready(worker: LocalWorker) -> None:
    """Wait until the worker says so."""
    async with asyncio.timeout(DEADLINE_S):
        while (await get(worker, "/readyz"))[0] != 200:
            await asyncio.sleep(0.02)


async def scraped(worker: LocalWorker) -> Samples:
    """Each sample by its name and the values of its labels but the topic."""
    _, text = await get(worker, "/metrics")
    return {
        (
            sample.name,
            frozenset(v for name, v in sample.labels.items() if name != "topic"),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of_worker(samples: Samples, name: str) -> float:
    """The value of a metric without labels."""
    return samples[name, frozenset()]


def by_partition(samples: Samples, name: str, *labels: str) -> list[float]:
    """The values of `name` for partitions 0 and 1."""
    return [samples[name, frozenset((*labels, partition))] for partition in "01"]


async def test_a_known_stream_is_told_right(deployment: Deployment, start: Start) -> None:
    """Every metric is there, none is more, all parse, and each says what happened."""
    letters = deployment.create_side_topic("dead_letter_topic")
    lists = list_file(deployment.directory / "block.list", [b"nobody"])
    control = unique_name("control")
    create_topic(deployment.bootstrap, control, 1, cleanup_policy="compact")
    deployment.config["blocklist"] = {"file": str(lists), "control_topic": control}
    deployment.feed(keyed([*range(300), *range(100)], 2))
    deployment.feed([(0, None, b"no key", [], None), (1, CANARY, b"x", [], None)])
    async with start(deployment) as worker:
        await worker.consumed(402)
        await worker.verified()  # a metric is absent until a marker was seen, soon after its commit
        await worker.worker._shards.save()
        await ready(worker)
        _, text = await get(worker, "/metrics")
        samples = await scraped(worker)
    resident = of_worker(samples, "process_resident_memory_bytes")
    assert (
        abs(resident / psutil.Process().memory_info().rss - 1) < 0.2
    )  # the worker is in this process
    families = list(text_string_to_metric_families(text))
    types = {line.split()[2]: line.split()[3] for line in text.splitlines() if "# TYPE" in line}
    helps = [line.split()[2] for line in text.splitlines() if "# HELP" in line]
    kinds = {metric.name: metric.kind.replace("info", "gauge") for metric in METRICS}
    assert types == kinds
    assert sorted(helps) == sorted(kinds)
    # Those of `source.repartition` have samples with it alone; tests/repartition/test_transfer.py looks at them. The
    # time to a full filter needs minutes of traffic (tests/worker/test_foreseen.py).
    empty = {family.name for family in families if not family.samples}
    absent = {m.name for m in METRICS if "repartition" in m.name or "full_in" in m.name}
    assert empty == {name.removesuffix("_total") for name in absent}
    labelled = {s.name: set(s.labels) - {"le"} for f in families for s in f.samples}
    for metric in (metric for metric in METRICS if metric.name not in absent):
        name = metric.name + "_count" * (metric.kind == "histogram")
        assert labelled[name] == set(metric.labels), metric.name

    verdicts = {
        v.name.lower(): by_partition(samples, "streamdedup_events_total", v.name.lower())
        for v in Verdict
    }
    assert verdicts == {
        "pass": [150, 151],
        "duplicate": [50, 50],
        "blocked": [0, 0],
        "malformed": [1, 0],
        "rejected": [0, 0],
    }
    for name, values in {
        "streamdedup_events_consumed_total": [201, 201],
        "streamdedup_ledger_difference_events": [0, 0],
        "streamdedup_in_flight_events": [0, 0],
        "streamdedup_lag_offsets": [0, 0],
        "streamdedup_pending_keys": [0, 0],
        "streamdedup_filter_keys": [150, 151],
        "streamdedup_snapshots_saved_total": [1, 1],
        "streamdedup_snapshot_behind_offsets": [0, 0],
        "streamdedup_fold_progress_ratio": [1, 1],
    }.items():
        assert by_partition(samples, name) == values, name
    assert by_partition(samples, "streamdedup_shard_state", "live") == [1, 1]
    assert sum(v for (name, _), v in samples.items() if name == "streamdedup_shard_state") == 2
    sizes = [p.stat().st_size for n in "01" for p in (deployment.snapshots / n).glob("*.snapshot")]
    assert by_partition(samples, "streamdedup_snapshot_size_bytes") == sizes
    assert all(0 <= age < 60 for age in by_partition(samples, "streamdedup_snapshot_age_seconds"))
    assert all(0 < fill < 0.01 for fill in by_partition(samples, "streamdedup_filter_fill_ratio"))
    transactions = of_worker(samples, "streamdedup_transaction_seconds_count")
    assert 2 <= transactions <= 402
    assert 0 < of_worker(samples, "streamdedup_transaction_seconds_sum") < DEADLINE_S * transactions
    assert of_worker(samples, "streamdedup_loop_stall_seconds_count") > 0
    assert of_worker(samples, "streamdedup_ready") == 1
    assert CANARY.decode() not in text
    assert letters not in text


async def test_counts_do_not_fall_when_partitions_move(
    deployment: Deployment, start: Start
) -> None:
    """One that went to another member stays in the counts; a member without any is ready; coming back goes on."""
    deployment.feed(keyed([*range(100), *range(100)], 2))
    async with start(deployment) as first:
        await first.consumed(200)
        async with start(deployment) as second, start(deployment) as third:
            members = (first, second, third)
            await first.until(
                lambda: sorted(len(w.worker.status.assigned or ()) for w in members) == [0, 1, 1],
                "one partition each",
            )
            for worker in members:
                await ready(worker)
            (idle,) = (w for w in members if not w.worker.status.assigned)
            assert "more workers than partitions" in (await get(idle, "/readyz"))[1]
            moved = await scraped(first)
            assert by_partition(moved, "streamdedup_events_total", "pass") == [50, 50]
            assert by_partition(moved, "streamdedup_events_consumed_total") == [100, 100]
            held = {
                label
                for name, labels in moved
                if name == "streamdedup_filter_keys"
                for label in labels
            }
            assert held == {str(partition) for partition in first.worker.status.assigned or ()}
        deployment.feed(keyed(range(150), 2))
        await first.consumed(350)
        back = await scraped(first)
        assert by_partition(back, "streamdedup_events_total", "pass") == [75, 75]
        assert by_partition(back, "streamdedup_events_total", "duplicate") == [100, 100]
        assert by_partition(back, "streamdedup_ledger_difference_events") == [0, 0]
