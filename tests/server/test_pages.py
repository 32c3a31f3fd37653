"""What the pages of a worker report, over a broker in memory: the counts are right, the probes true."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamdedup.errors import ConfigError
from streamdedup.kafka.records.records import Record
from streamdedup.kafka.sink import DoubtError
from streamdedup.metrics.catalogue import DOUBTS, TAKEN_BACK
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.testing.writer import MemoryWriter
from streamdedup.worker import worker as worker_module
from tests.broker.topics import Header
from tests.deployment import Deployment, keyed
from tests.local import LocalWorker, Start, on_virtual_clock
from tests.memory_deployment import MemoryDeployment

CANARY = b"jane.doe@example.org"

Samples = Mapping[tuple[str, frozenset[str]], float]


@pytest.fixture
def deployment(tmp_path: Path) -> MemoryDeployment:
    """Two partitions."""
    return MemoryDeployment(tmp_path, partitions=2).create(retention_ms=-1)


def get(worker: LocalWorker, path: str) -> tuple[int, str]:
    """Status and text of a page."""
    page = pages(worker.worker.status, Pulse())[path]()
    return page.status, page.text


async def ready(worker: LocalWorker) -> None:
    """Wait until the worker says so."""
    await worker.until(lambda: get(worker, "/readyz")[0] == 200, "readiness")


def scraped(worker: LocalWorker) -> Samples:
    """Each sample by its name and the values of its labels but the topic."""
    return {
        (
            sample.name,
            frozenset(v for name, v in sample.labels.items() if name != "topic"),
        ): sample.value
        for family in text_string_to_metric_families(get(worker, "/metrics")[1])
        for sample in family.samples
    }


def warnings_of(worker: LocalWorker, topic: str) -> list[str]:
    """What the page warns of about a topic."""
    lines, begins = get(worker, "/readyz")[1].splitlines(), f"warning: {topic}: "
    return [line.removeprefix(begins) for line in lines if line.startswith(begins)]


def of_worker(samples: Samples, name: str) -> float:
    """The value of a metric without labels."""
    return samples[name, frozenset()]


def by_partition(samples: Samples, name: str, *labels: str) -> list[float]:
    """The values of `name` for partitions 0 and 1."""
    return [samples[name, frozenset((*labels, partition))] for partition in "01"]


def is_settled(samples: Samples) -> bool:
    """Whether everything that was read is in the counts, or was taken back."""
    names = ("streamdedup_ledger_difference_events", "streamdedup_in_flight_events")
    return all(by_partition(samples, name) == [0, 0] for name in names)


@pytest.mark.finding("partition-starts", "clock-unverified")
@pytest.mark.finding("partition-starts")
def test_what_is_undecided_in_the_output_keeps_it_from_being_ready(
    deployment: MemoryDeployment,
) -> None:
    """With a foreign transaction open on one partition it says fencing, for that one; when it ends, it is ready."""

    async def scene(start: Start) -> None:
        log = deployment.broker.log(deployment.sink, 1)
        log.append([Record.of(deployment.broker.now_ms(), CANARY, b"v", ())], "foreign")
        async with start(deployment, connect=deployment.connect) as worker:
            await worker.live(1)
            assert get(worker, "/livez")[0] == 200
            assert get(worker, "/readyz") == (503, f"{deployment.source}/1: fencing\n")
            samples = scraped(worker)
            assert by_partition(samples, "streamdedup_shard_state", "fencing") == [0, 1]
            assert of_worker(samples, "streamdedup_ready") == 0
            log.decide("foreign", committed=False)
            log.mark("foreign")
            await ready(worker)
            worker.worker.stop()
            assert get(worker, "/readyz") == (503, "draining\n")

    on_virtual_clock(scene)


def test_a_doubt_is_counted_and_leaves_no_difference(
    deployment: MemoryDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was in hand is taken back under the cause, read again, and counted once."""
    commit, calls = MemoryWriter.commit, []

    async def doubted_once(self: MemoryWriter, *arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 3:  # the first two are births
            raise DoubtError("the answer was lost")
        await commit(self, *arguments)

    monkeypatch.setattr(MemoryWriter, "commit", doubted_once)
    deployment.feed(keyed([*range(0, 200, 2), *range(0, 100, 2)], 2))  # all of partition 0
    samples = scraped(deployment.work())
    doubts = {c: by_partition(samples, "streamdedup_doubts_total", c)[0] for c in DOUBTS}
    assert doubts == {cause: float(cause == "mismatch") for cause in DOUBTS}
    taken = {
        c: by_partition(samples, "streamdedup_events_taken_back_total", c)[0] for c in TAKEN_BACK
    }
    assert {cause for cause, events in taken.items() if events} == {"mismatch"}
    assert 0 < taken["mismatch"] <= 150
    assert by_partition(samples, "streamdedup_events_consumed_total") == [150, 0]
    assert by_partition(samples, "streamdedup_events_total", "pass") == [100, 0]
    assert is_settled(samples)


@pytest.mark.finding("second-writer")
def test_a_stopped_shard_says_why_and_its_lag_grows(
    deployment: MemoryDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not ready as long as it is stopped; nothing reads its partition, and the lag is reported all the same."""
    monkeypatch.setattr(worker_module, "ENDS_EVERY_S", 0.05)

    async def scene(start: Start) -> None:
        deployment.feed(keyed(range(20), 2))
        async with start(deployment, connect=deployment.connect) as worker:
            await worker.consumed(20)
            deployment.produce(deployment.sink, [(1, CANARY, b"v", [], None)])
            deployment.feed(keyed(range(101, 111, 2), 2))
            await worker.until(lambda: worker.worker.deliveries[1].trouble, "trouble")
            code, text = get(worker, "/readyz")
            assert code == 503
            why = f"{deployment.source}/1: stopped: {deployment.sink}/1 has a second"
            assert text.startswith(why)
            assert text.count("\n") == 1
            assert CANARY.decode() not in text
            deployment.feed(keyed(range(201, 221, 2), 2))
            await worker.until(lambda: worker.worker.deliveries[1].lag == 15, "lag of 15")
            samples = scraped(worker)
            assert by_partition(samples, "streamdedup_lag_offsets") == [0, 15]
            assert by_partition(samples, "streamdedup_shard_state", "stopped") == [0, 1]
            taken = by_partition(samples, "streamdedup_events_taken_back_total", "foreign_write")
            assert taken == [0, 5]
            assert is_settled(samples)

    on_virtual_clock(scene)


@pytest.mark.finding("filter-full")
def test_a_full_filter_says_so_and_what_it_could_not_take(deployment: MemoryDeployment) -> None:
    """What was read beyond its room is taken back and stays in the lag; what was decided is in the ledger."""
    deployment.config["filter"] |= {"capacity": 200, "on_full": "stop", "partition_headroom": 0}
    deployment.feed(keyed([*range(300), *range(50)], 2))

    async def scene(start: Start) -> None:
        async with start(deployment, connect=deployment.connect) as worker:
            await worker.until(
                lambda: sum(bool(d.trouble) for d in worker.worker.deliveries.values()) == 2,
                "trouble in both",
            )
            code, text = get(worker, "/readyz")
            samples = scraped(worker)
        assert code == 503
        assert [line.partition("; set")[0] for line in text.splitlines()] == [
            f"{deployment.source}/{p}: full: its filter holds 100 keys of 100" for p in (0, 1)
        ]
        assert by_partition(samples, "streamdedup_events_total", "pass") == [100, 100]
        assert by_partition(samples, "streamdedup_events_consumed_total") == [100, 100]
        assert by_partition(samples, "streamdedup_lag_offsets") == [75, 75]
        assert all(by_partition(samples, "streamdedup_events_taken_back_total", "full"))
        assert is_settled(samples)

    on_virtual_clock(scene)


@pytest.mark.finding("filter-beyond-capacity")
def test_a_filter_beyond_its_capacity_is_a_warning(deployment: MemoryDeployment) -> None:
    """With `filter.on_full: warn` it is ready all the same; the line has each partition's keys and error rate."""
    deployment.config["filter"] |= {
        "kind": "bloom",
        "capacity": 200,
        "error_rate": 1e-3,
        "on_full": "warn",
        "partition_headroom": 0,
    }
    deployment.feed([*keyed(range(0, 300, 2), 2), *keyed(range(1, 401, 2), 2)])

    async def scene(start: Start) -> None:
        async with start(deployment, connect=deployment.connect) as worker:
            await worker.consumed(350)
            code, text = get(worker, "/readyz")
            lines = text.splitlines()[1:]
            samples = scraped(worker)
            filters = [d.shard.filter for d in worker.worker.deliveries.values() if d.shard]
        errors = by_partition(samples, "streamdedup_filter_error_ratio")
        assert code == 200
        for partition, (filter_, error) in enumerate(zip(filters, errors, strict=True)):
            assert len(filter_) > filter_.capacity == 100
            assert error > 1e-3
            assert lines[partition] == (
                f"warning: {deployment.source}/{partition}: its filter has {len(filter_)} keys of 100 and an error rate"
                f" of {error:.2g}, so new events may be dropped wrongly, more of them than filter.error_rate (0.001)"
                " promises (filter.on_full: warn); set filter.on_full: grow, or raise filter.capacity (200 for all"
                " partitions together) and restart: the output is folded again"
            )
        counted = "streamdedup_finding", frozenset(("filter-beyond-capacity", "warning"))
        assert samples[counted] == 2

    on_virtual_clock(scene)


def test_within_its_capacity_a_filter_is_no_warning(deployment: MemoryDeployment) -> None:
    """`filter.on_full: warn` alone is none."""
    deployment.config["filter"] |= {"capacity": 200, "on_full": "warn", "partition_headroom": 0}
    deployment.feed(keyed(range(180), 2))

    async def scene(start: Start) -> None:
        async with start(deployment, connect=deployment.connect) as worker:
            await worker.consumed(180)
            assert "capacity" not in get(worker, "/readyz")[1]

    on_virtual_clock(scene)


def test_a_loaded_snapshot_has_its_age_and_a_fold_its_count(deployment: MemoryDeployment) -> None:
    """After a restart the age is that of the file, and what came since is what was folded."""
    deployment.feed(keyed(range(100), 2))

    async def scene(start: Start) -> None:
        async with start(deployment, connect=deployment.connect) as worker:
            await worker.consumed(100)
            await worker.worker._shards.save()
            deployment.feed(keyed(range(100, 140), 2))
            await worker.consumed(140)
            behind = by_partition(scraped(worker), "streamdedup_snapshot_behind_offsets")
            assert all(20 < offsets < 60 for offsets in behind)  # events, and markers
        deployment.feed(keyed(range(140, 160), 2))
        async with start(deployment, connect=deployment.connect) as worker:
            await worker.consumed(20)
            samples = scraped(worker)
            for delivery in worker.worker.deliveries.values():
                assert delivery.snapshots is not None
                newest = delivery.snapshots.newest
                assert newest is not None
                assert newest.label == delivery.fold.start if delivery.fold else False
        assert by_partition(samples, "streamdedup_fold_events_total") == [0, 0]
        assert by_partition(samples, "streamdedup_snapshots_saved_total") == [0, 0]
        assert all(a > 0 for a in by_partition(samples, "streamdedup_snapshot_age_seconds"))

    on_virtual_clock(scene)


@pytest.mark.finding("verdict-prevails")
def test_a_verdict_that_is_the_rule_is_reported(deployment: MemoryDeployment) -> None:
    """Half of the events without a key, all in one partition: one line in the log, and one on /readyz."""
    dead = [(0, None, b"no key", list[Header](), None)]
    letters = deployment.create_side_topic("dead_letter_topic")
    deployment.feed([*keyed(range(150), 2), *dead * 150])

    async def scene(start: Start) -> None:
        async with start(deployment, connect=deployment.connect) as worker:
            await worker.consumed(300)
            (line,) = await worker.logged("verdict_prevails")
            assert (line["partitions"], line["verdict"], line["events"]) == ([0], "malformed", 150)
            assert line["fate"] == f"they are whole in {letters}"
            warned = warnings_of(worker, deployment.source)
        assert warned == [
            "150 of the last 300 events (50%) are malformed, 150 of them in partition 0: the record key is null; they"
            f" are whole in {letters}; compare the options of `key` with the events:"
            " `streamdedup try` judges the newest, and counts every reason"
        ]

    on_virtual_clock(scene)


def test_a_wrong_field_is_reported_once_a_topic_with_the_reason(
    deployment: MemoryDeployment,
) -> None:
    """In every partition all are malformed, and pass: the page says of which field, and that duplicates pass, too."""
    deployment.config["key"] = {"field": "idd"}
    deployment.feed(
        (n % 2, None, b'{"id": %d}' % (n % 50), list[Header](), None) for n in range(400)
    )
    deployment.feed((n % 2, None, b"", list[Header](), None) for n in range(30))

    async def scene(start: Start) -> None:
        async with start(deployment, connect=deployment.connect) as worker:
            await worker.consumed(430)
            (line,) = await worker.logged("verdict_prevails")
            assert (line["partitions"], line["events"], line["of"]) == (None, 430, 430)
            assert line["reason"] == "the field idd is missing"
            (warned,) = warnings_of(worker, deployment.source)
        assert warned.startswith(
            "430 of the last 430 events (100%) are malformed: for 400 of them, the field idd is missing; they passed"
            " unjudged, so their duplicates pass, too; "
        )

    on_virtual_clock(scene)


async def test_a_port_that_is_taken_is_told_before_the_group_is_joined(
    deployment: MemoryDeployment, start: Start
) -> None:
    """Two workers with one port on one machine: the second ends, naming the option and the remedy."""
    deployment.config["server"] = {"port": 0}
    async with start(deployment, connect=deployment.connect) as worker:
        status = worker.worker.status
        await worker.until(lambda: status.port is not None, "a port")
        deployment.config["server"] = {"port": status.port}
        second = start(deployment, connect=deployment.connect)
        taken = rf"server\.port = {status.port}: cannot listen at .*in use.*; set another port"
        with pytest.raises(ConfigError, match=taken):
            await second.task
    assert not second.lines("connecting")


@pytest.mark.finding("broker-away", "starting")
async def test_before_kafka_is_there_it_lives_and_is_not_ready(
    tmp_path: Path, start: Start
) -> None:
    """A broker that cannot be reached is waited for: alive, not ready, with the reason and since when."""
    async with start(Deployment("127.0.0.1:1", tmp_path)) as worker:
        await worker.until(lambda: worker.worker.status.broker_away_s > 1, "broker away")
        assert get(worker, "/livez") == (200, "alive\n")
        code, text = get(worker, "/readyz")
        away, connecting = text.splitlines()
        assert code == 503
        assert away.startswith("the broker has been away for ")
        assert connecting.startswith("connecting: ")
        samples = scraped(worker)
        assert of_worker(samples, "streamdedup_broker_away_seconds") > 0
        assert of_worker(samples, "streamdedup_ready") == 0
    assert worker.worker.status.broker_away_s == 0
