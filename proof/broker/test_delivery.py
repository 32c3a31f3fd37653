"""What the worker promises, on a real broker: exact output, byte for byte, through drains and restarts."""

import shutil
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import pytest
from aiokafka import AIOKafkaProducer
from crc32c import crc32c

from streamdedup.filters.options import Kind
from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.kafka.options import KafkaOptions
from tests.broker.base import DEADLINE_S, Broker, OwnedBroker
from tests.broker.proxy import Action, Api, Frame, Hold, Proxy
from tests.broker.test_delivery import some_events
from tests.broker.topics import committed, read_all
from tests.deployment import PARTITIONS, Deployment, keyed, lost_and_doubled
from tests.local import Start, keys_of, output_keys, run_to_the_end

pytestmark = pytest.mark.broker


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """Input and output of four partitions."""
    return Deployment(broker.bootstrap_servers, tmp_path).create()


REQUEST_S = 40.0  # so long aiokafka waits for an answer, by default


def test_a_restart_folds_only_what_came_after_the_snapshot(deployment: Deployment) -> None:
    """With a snapshot, the fold fetches the output from the snapshot's label on, and nothing below."""
    deployment.feed(keyed(range(4000)))
    first = run_to_the_end(deployment)
    labels = {e["partition"]: e["label"] for e in first.lines("snapshot_saved")}
    assert sorted(labels) == [0, 1, 2, 3]
    deployment.feed(keyed(range(4000, 4400)))
    with deployment.running("second.log") as second:
        deployment.catch_up(second)
        second.kill()  # no snapshot of what came since
    third = run_to_the_end(deployment)
    for folded in third.lines("output_folded"):
        fetched = folded["first_offset"], folded["last_offset"], folded["events"]
        label = labels[folded["partition"]]
        assert folded["start"] == label
        assert fetched == (label + 1, label + 100, 100), folded  # behind the marker
    assert len(third.lines("output_folded")) == deployment.partitions


@pytest.mark.private_broker
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.rule(17)
def test_a_second_interrupt_exits_at_once(
    private_broker: OwnedBroker, tmp_path: Path, number: signal.Signals
) -> None:
    """While a drain waits for a broker that does not answer, a second SIGTERM gives 143, a second SIGINT 130."""
    deployment = Deployment(private_broker.bootstrap_servers, tmp_path).create()
    deployment.config["delivery"]["drain_s"] = 2 * DEADLINE_S
    with deployment.running() as worker:
        worker.wait_for("shard_live", deployment.partitions)
        private_broker.pause()
        try:
            worker.process.send_signal(number)
            worker.wait_for("draining")
            worker.process.send_signal(number)
            assert worker.process.wait(DEADLINE_S) == 128 + number
        finally:
            private_broker.resume()


@pytest.mark.private_broker
@pytest.mark.rule(17)
def test_a_drain_ends_in_time_without_the_broker(
    private_broker: OwnedBroker, tmp_path: Path
) -> None:
    """A broker that does not answer holds nobody up beyond `drain_s`; the status is 0 all the same."""
    deployment = Deployment(private_broker.bootstrap_servers, tmp_path).create()
    deployment.config["delivery"]["drain_s"] = 3
    deployment.feed(keyed(range(400)))
    with deployment.running() as worker:
        deployment.catch_up(worker)
        private_broker.pause()
        try:
            worker.process.send_signal(signal.SIGTERM)
            assert worker.process.wait(REQUEST_S / 2) == 0
        finally:
            private_broker.resume()
    assert worker.events("stopped")


@pytest.mark.rule(18)
async def test_at_least_once_repeats_nothing_that_reached_the_output(
    deployment: Deployment, start: Start
) -> None:
    """Without transactions, too, a crash between output and commit repeats nothing: the output is folded."""
    deployment.config["delivery"] |= {"guarantee": "at_least_once", "batch_events_max": 100}
    deployment.config["delivery"]["drain_s"] = 1
    deployment.feed(keyed(some_events(4000)))
    for _ in range(3):
        with Proxy(deployment.bootstrap, _hold_a_commit) as proxy:
            worker = start(deployment, proxy)
            await worker.until(lambda proxy=proxy: proxy.acted, "commit")  # type: ignore[misc]
            await worker.crash(proxy)
        at = committed(deployment.bootstrap, deployment.group, deployment.source)
        read = read_all(deployment.bootstrap, deployment.source)
        known = {record.key for record in read if record.offset < at.get(record.partition, 0)}
        assert {*output_keys(deployment)} - known, "nothing is in the output that is not committed"
        shutil.rmtree(deployment.snapshots, ignore_errors=True)  # a killed worker had saved none
    await start(deployment).to_the_end()
    assert lost_and_doubled(deployment) == (0, 0, 0)


def _hold_a_commit(frame: Frame) -> Action | None:
    """Of offsets of events: the first four may be those of births."""
    commits = frame.api == Api.OFFSET_COMMIT and not frame.is_answer
    return Hold(threading.Event()) if commits and frame.number > PARTITIONS else None


@pytest.mark.parametrize("kind", ["bloom", "cuckoo"])
async def test_a_filter_grows_until_its_memory_is_spent(
    broker: Broker, tmp_path: Path, start: Start, kind: str
) -> None:
    """By default a filter takes further stages; a restart, from a snapshot or the output, goes on with all of them."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    deployment.config["filter"] = {"kind": kind, "capacity": 1000, "error_rate": 1e-8}
    deployment.feed(keyed([*range(3000), *range(3000)], 1))
    first = await start(deployment).to_the_end()
    sizes = [line["size_bytes"] for line in first.lines("filter_grown")]
    assert sizes
    assert sizes == sorted(set(sizes))
    deployment.feed(keyed(range(3000), 1))
    idle = await start(deployment).to_the_end()
    assert not idle.lines("filter_grown")
    deployment.feed(keyed(range(5000), 1))
    second = await start(deployment).to_the_end()
    assert len(second.lines("snapshot_loaded")) == 1
    shutil.rmtree(deployment.snapshots)
    deployment.config["filter"]["max_size"] = (
        "30kB"  # the stages that there are by then, no further
    )
    deployment.feed(keyed(range(9000), 1))
    async with start(deployment) as third:
        (full,) = await third.logged("filter_full")
        assert "filter.max_size" in full["remedy"]
    deployment.config["filter"]["max_size"] = "1MB"
    fourth = await start(deployment).to_the_end()
    refused = fourth.lines("snapshot_refused")  # a fold had to fill it beyond its promise
    assert ["errs too often" in line["reason"] for line in refused] == [True] * (kind == "bloom")
    assert lost_and_doubled(deployment) == (0, 0, 0)
    for worker in (first, second):
        assert not worker.lines("filter_full")


async def test_going_beyond_the_capacity_has_an_end(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """Keys without a cell take 24 bytes each: the partition stops, again after a restart, until the filter may grow."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    deployment.config["filter"] = {"kind": "cuckoo", "capacity": 1000, "on_full": "warn"}
    deployment.config["delivery"] |= {"batch_events_max": 2000, "max_in_flight": 2}
    deployment.feed(keyed(range(60_000), 1))
    for _ in range(2):
        async with start(deployment) as worker:
            (full,) = await worker.logged("filter_full")
            assert full["reason"].endswith("and has no cells for more")
            assert full["remedy"].startswith("set filter.on_full: grow, or raise filter.capacity")
    assert 32_768 < len(read_all(deployment.bootstrap, deployment.sink)) < 60_000
    deployment.config["filter"] |= {"on_full": "grow", "max_size": "1MB"}
    await start(deployment).to_the_end()
    assert lost_and_doubled(deployment) == (0, 0, 0)


async def test_a_header_that_is_no_text_is_copied_as_columns(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """No part of an event that cannot hold its key is looked at: it goes on byte for byte."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    await _write_unreadable(deployment.bootstrap, deployment.source)
    deployment.feed(keyed(range(100), 1))
    async with start(deployment) as worker:
        await worker.consumed(101)
    [batch, *_] = [raw async for raw in _raw_batches(deployment.bootstrap, deployment.sink)]
    assert b"\xff\xfe\xff\xfe" in batch


async def _raw_batches(bootstrap: str, topic: str) -> AsyncIterator[bytes]:
    """The bodies of the events, as the log has them."""
    options = KafkaOptions(bootstrap_servers=bootstrap, group_id="group")
    async with kafka_cluster(options) as cluster:
        end = await cluster.end_offset(topic, 0)
        async for batch in cluster.committed_events(topic, 0, 0, end, stall_s=30):
            for body in batch.bodies:
                yield body or b""


async def _write_unreadable(bootstrap: str, topic: str) -> None:
    """Append one event with a header name that is no UTF-8, as a client in C may do."""
    producer: Any = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        batch = producer.create_batch()
        batch.append(timestamp=None, key=b"k", value=b"v", headers=[("name", b"h")])
        batch.close()
        content = bytearray(batch._build())
        at = content.index(b"name")
        content[at : at + 4] = b"\xff\xfe\xff\xfe"
        content[17:21] = crc32c(bytes(content[21:])).to_bytes(4, "big")
        batch._buffer = content
        await (await producer.send_batch(batch, topic, partition=0))
    finally:
        await producer.stop()


@pytest.mark.parametrize("kind", sorted(get_args(Kind)))
def test_every_kind_serves_the_worker(broker: Broker, tmp_path: Path, kind: str) -> None:
    """By one word of configuration: exact output, a snapshot, a restart from it, and a fold without it."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    rate = 1e-4 if kind == "bitmap" else 1e-8
    deployment.config["filter"] = {"kind": kind, "capacity": 5000, "error_rate": rate}
    deployment.feed(keyed([*range(500), *range(250)], 1))
    run_to_the_end(deployment)
    deployment.feed(keyed([*range(300, 800), *range(600, 800)], 1))
    second = run_to_the_end(deployment)
    assert len(second.lines("snapshot_loaded")) == 1
    shutil.rmtree(deployment.snapshots)
    deployment.feed(keyed([*range(900)], 1))
    run_to_the_end(deployment)
    assert lost_and_doubled(deployment) == (0, 0, 0)


def test_a_keyed_hash_serves_the_worker(broker: Broker, tmp_path: Path) -> None:
    """A restart goes on from its snapshot; under another key it is refused, and the output is folded instead."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    secret, keys = tmp_path / "hash-key", ["0123456789abcdef" * 2, "fedcba9876543210" * 2]
    options = {"kind": "bloom", "hash": "siphash", "hash_key_file": str(secret), "probe": "double"}
    deployment.config["filter"] |= options
    runs = []
    for number, key in enumerate([keys[0], keys[0], keys[1]]):
        secret.write_text(key)
        deployment.feed(keyed([*range(200 * number, 200 * number + 300), *range(300)], 1))
        runs.append(run_to_the_end(deployment))
    assert [len(run.lines("snapshot_loaded")) for run in runs] == [0, 1, 0]
    (refused,) = runs[2].lines("snapshot_refused")
    assert "hash_check" in refused["reason"]
    assert lost_and_doubled(deployment) == (0, 0, 0)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != secret]
    assert not any(key.encode() in path.read_bytes() for path in written for key in keys)
    assert not any(key in str(run.lines()) for run in runs for key in keys)


@pytest.mark.rule(4)
async def test_start_latest_is_resolved_once(deployment: Deployment, start: Start) -> None:
    """`source.start: latest` skips what is there at the birth, and a crash does not skip again."""
    deployment.config["source"]["start"] = "latest"
    deployment.feed(keyed(range(1000)))
    deployment.config["delivery"]["drain_s"] = 1
    with Proxy(deployment.bootstrap) as proxy:
        worker = start(deployment, proxy)
        await worker.live()
        await worker.crash(proxy)
    deployment.feed(keyed(range(1000, 1400)))
    await start(deployment).to_the_end()
    assert {*output_keys(deployment)} == {*keys_of(range(1000, 1400))}
