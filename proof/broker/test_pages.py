"""What a worker reports over HTTP, on a real broker: the counts are right, the probes true."""

import asyncio
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from streamdedup.events import Verdict
from streamdedup.kafka.sink import DoubtError, KafkaWriter
from streamdedup.metrics.catalogue import DOUBTS, METRICS, TAKEN_BACK
from streamdedup.server import kept
from streamdedup.worker import worker as worker_module
from tests.broker.base import DEADLINE_S, Broker, client_config
from tests.broker.topics import create_topic, produce, unique_name
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


@pytest.mark.broker
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


@pytest.mark.broker
async def test_what_is_undecided_in_the_output_keeps_it_from_being_ready(
    deployment: Deployment, start: Start
) -> None:
    """With a foreign transaction open on one partition it says fencing, for that one; when it ends, it is ready."""
    foreign = Producer(
        client_config(deployment.bootstrap) | {"transactional.id": unique_name("foreign")}
    )
    foreign.init_transactions(DEADLINE_S)
    foreign.begin_transaction()
    foreign.produce(deployment.sink, b"v", CANARY, partition=1)
    assert foreign.flush(DEADLINE_S) == 0
    async with start(deployment) as worker:
        assert (await get(worker, "/livez"))[0] == 200
        await worker.live(1)
        code, text = await get(worker, "/readyz")
        assert (code, text) == (503, f"{deployment.source}/1: fencing\n")
        samples = await scraped(worker)
        assert by_partition(samples, "streamdedup_shard_state", "fencing") == [0, 1]
        assert of_worker(samples, "streamdedup_ready") == 0
        await asyncio.to_thread(foreign.abort_transaction, DEADLINE_S)
        await ready(worker)
        worker.worker.stop()
        assert await get(worker, "/readyz") == (503, "draining\n")


@pytest.mark.broker
async def test_a_doubt_is_counted_and_leaves_no_difference(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was in hand is taken back under the cause, read again, and counted once."""
    commit, calls = KafkaWriter.commit, []

    async def doubted_once(self: KafkaWriter, *arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 3:  # the first two are births
            raise DoubtError("the answer was lost")
        await commit(self, *arguments)

    monkeypatch.setattr(KafkaWriter, "commit", doubted_once)
    deployment.feed(keyed([*range(0, 200, 2), *range(0, 100, 2)], 2))  # all of partition 0
    async with start(deployment) as worker:
        await worker.consumed(150)
        samples = await scraped(worker)
    doubts = {c: by_partition(samples, "streamdedup_doubts_total", c)[0] for c in DOUBTS}
    assert doubts == {cause: float(cause == "mismatch") for cause in DOUBTS}
    taken = {
        c: by_partition(samples, "streamdedup_events_taken_back_total", c)[0] for c in TAKEN_BACK
    }
    assert {cause for cause, events in taken.items() if events} == {"mismatch"}
    assert 0 < taken["mismatch"] <= 150
    assert by_partition(samples, "streamdedup_events_consumed_total") == [150, 0]
    assert by_partition(samples, "streamdedup_ledger_difference_events") == [0, 0]
    assert by_partition(samples, "streamdedup_in_flight_events") == [0, 0]
    assert by_partition(samples, "streamdedup_events_total", "pass") == [100, 0]


@pytest.mark.broker
async def test_a_stopped_shard_says_why_and_its_lag_grows(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not ready as long as it is stopped; nothing reads its partition, and the lag is reported all the same."""
    monkeypatch.setattr(worker_module, "ENDS_EVERY_S", 0.05)
    deployment.feed(keyed(range(20), 2))
    async with start(deployment) as worker:
        await worker.consumed(20)
        produce(deployment.bootstrap, deployment.sink, [(1, CANARY, b"v", [], None)])
        deployment.feed(keyed(range(101, 111, 2), 2))
        await worker.until(lambda: worker.worker.deliveries[1].trouble, "trouble")
        code, text = await get(worker, "/readyz")
        assert code == 503
        assert text.startswith(f"{deployment.source}/1: stopped: {deployment.sink}/1 has a second")
        assert text.count("\n") == 1
        assert CANARY.decode() not in text
        deployment.feed(keyed(range(201, 221, 2), 2))
        await worker.until(lambda: worker.worker.deliveries[1].lag == 15, "lag of 15")
        samples = await scraped(worker)
        assert by_partition(samples, "streamdedup_lag_offsets") == [0, 15]
        assert by_partition(samples, "streamdedup_shard_state", "stopped") == [0, 1]
        taken = by_partition(samples, "streamdedup_events_taken_back_total", "foreign_write")
        assert taken == [0, 5]
        assert by_partition(samples, "streamdedup_ledger_difference_events") == [0, 0]


@pytest.mark.broker
async def test_a_full_filter_says_so_and_what_it_could_not_take(
    deployment: Deployment, start: Start
) -> None:
    """What was read beyond its room is taken back and stays in the lag; what was decided is in the ledger."""
    deployment.config["filter"] |= {"capacity": 200, "on_full": "stop", "partition_headroom": 0}
    deployment.feed(keyed([*range(300), *range(50)], 2))
    async with start(deployment) as worker:
        await worker.until(
            lambda: sum(bool(d.trouble) for d in worker.worker.deliveries.values()) == 2,
            "trouble in both",
        )
        code, text = await get(worker, "/readyz")
        samples = await scraped(worker)
    assert code == 503
    assert [line.partition(": set")[0] for line in text.splitlines()] == [
        f"{deployment.source}/{p}: full: its filter holds 100 keys of 100" for p in (0, 1)
    ]
    assert by_partition(samples, "streamdedup_events_total", "pass") == [100, 100]
    assert by_partition(samples, "streamdedup_events_consumed_total") == [100, 100]
    assert by_partition(samples, "streamdedup_lag_offsets") == [75, 75]
    assert all(by_partition(samples, "streamdedup_events_taken_back_total", "full"))
    assert by_partition(samples, "streamdedup_in_flight_events") == [0, 0]
    assert by_partition(samples, "streamdedup_ledger_difference_events") == [0, 0]


@pytest.mark.broker
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


@pytest.mark.broker
async def test_a_loaded_snapshot_has_its_age_and_a_fold_its_count(
    deployment: Deployment, start: Start
) -> None:
    """After a restart the age is that of the file, and what came since is what was folded."""
    deployment.feed(keyed(range(100), 2))
    async with start(deployment) as worker:
        await worker.consumed(100)
        await worker.worker._shards.save()
        deployment.feed(keyed(range(100, 140), 2))
        await worker.consumed(140)
        behind = by_partition(await scraped(worker), "streamdedup_snapshot_behind_offsets")
        assert all(20 < offsets < 60 for offsets in behind)  # events, and markers of transactions
    deployment.feed(keyed(range(140, 160), 2))
    async with start(deployment) as worker:
        await worker.consumed(20)
        samples = await scraped(worker)
        for delivery in worker.worker.deliveries.values():
            assert delivery.snapshots is not None
            newest = delivery.snapshots.newest
            assert newest is not None
            assert newest.label == delivery.fold.start if delivery.fold else False
    assert by_partition(samples, "streamdedup_fold_events_total") == [0, 0]
    assert by_partition(samples, "streamdedup_snapshots_saved_total") == [0, 0]
    assert all(a > 0 for a in by_partition(samples, "streamdedup_snapshot_age_seconds"))


@pytest.mark.broker
def test_a_port_that_is_taken_is_told_before_the_group_is_joined(deployment: Deployment) -> None:
    """Two workers with one port on one machine: the second ends with status 2, naming the option and the remedy."""
    with deployment.running() as worker:
        (line,) = worker.wait_for("server_listens")
        config = deployment.directory / "config.yaml"
        command = [sys.executable, "-m", "streamdedup", "run", "-c", str(config)]
        done = subprocess.run(
            [*command, "--set", f"server.port={line['port']}"],
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )
    said = done.stderr.decode()
    assert done.returncode == 2, said
    assert f"server.port = {line['port']}: cannot listen" in said
    assert "set another port" in said
    assert "connecting" not in said


async def test_before_kafka_is_there_it_lives_and_is_not_ready(
    tmp_path: Path, start: Start
) -> None:
    """A broker that cannot be reached is waited for: alive, not ready, with the reason and since when."""
    deployment = Deployment("127.0.0.1:1", tmp_path)
    deployment.config["server"] = {"port": 0}
    async with start(deployment) as worker:
        await worker.until(lambda: worker.worker.status.broker_away_s > 1, "broker away")
        assert (await get(worker, "/livez")) == (200, "alive\n")
        code, text = await get(worker, "/readyz")
        away, connecting = text.splitlines()
        assert code == 503
        assert away.startswith("the broker has been away for ")
        assert connecting.startswith("connecting: ")
        samples = await scraped(worker)
        assert of_worker(samples, "streamdedup_broker_away_seconds") > 0
        assert of_worker(samples, "streamdedup_ready") == 0
    assert worker.worker.status.broker_away_s == 0
