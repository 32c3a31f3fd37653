"""What the worker promises, on a real broker: exact output, byte for byte, through drains and restarts."""

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
from tests.broker.topics import committed, create_topic, read_all, unique_name
from tests.deployment import PARTITIONS, Deployment, keyed, lost_and_doubled
from tests.local import Start, keys_of, output_keys, run_to_the_end


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """Input and output of four partitions."""
    return Deployment(broker.bootstrap_servers, tmp_path).create()


REQUEST_S = 40.0  # so long aiokafka waits for an answer, by default


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


@pytest.mark.parametrize("is_gone", [False, True], ids=["silent", "gone"])
@pytest.mark.rule(17)
def test_a_drain_ends_in_time_without_the_broker(
    private_broker: OwnedBroker, tmp_path: Path, is_gone: bool
) -> None:
    """A broker that is away holds nobody up beyond `drain_s`; the status is 0 all the same, and snapshots are taken."""
    deployment = Deployment(private_broker.bootstrap_servers, tmp_path).create()
    deployment.config["delivery"]["drain_s"] = 3
    deployment.feed(keyed(range(400)))
    with deployment.running() as worker:
        deployment.catch_up(worker)
        (private_broker.kill if is_gone else private_broker.pause)()
        try:
            worker.process.send_signal(signal.SIGTERM)
            assert worker.process.wait(REQUEST_S / 2) == 0
        finally:
            (private_broker.start if is_gone else private_broker.resume)()
    assert worker.events("stopped")
    assert len(worker.events("snapshot_saved")) == deployment.partitions


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
        deployment.delete_snapshots()  # a killed worker had saved none
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
    deployment.delete_snapshots()
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
    deployment.delete_snapshots()
    deployment.feed(keyed([*range(900)], 1))
    run_to_the_end(deployment)
    assert lost_and_doubled(deployment) == (0, 0, 0)


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


def test_batches_are_cut_to_what_each_topic_takes(broker: Broker, tmp_path: Path) -> None:
    """Many small events at once, for topics that take small batches only: each gets several, none is refused."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1)
    deployment.create(max_message_bytes=3000)
    letters, duplicates = unique_name("letters"), unique_name("duplicates")
    create_topic(broker.bootstrap_servers, letters, 1, max_message_bytes=2000)
    create_topic(broker.bootstrap_servers, duplicates, 1, max_message_bytes=3000)
    deployment.config["sink"] |= {"dead_letter_topic": letters, "duplicates_topic": duplicates}
    deployment.config["key"] = {"from": "json", "field": "id"}
    keys = [*range(2000), *range(2000)]
    deployment.feed([(0, None, b'{"id": %d}' % key, [], None) for key in keys])
    deployment.feed([(0, None, b"bad", [], None)] * 500)
    worker = run_to_the_end(deployment)

    def values(topic: str) -> list[bytes | None]:
        return [record.value for record in read_all(deployment.bootstrap, topic)]

    assert len(values(deployment.sink)) == len(values(duplicates)) == 2000
    assert values(letters) == [b"bad"] * 500
    assert worker.lines("doubt") == []
