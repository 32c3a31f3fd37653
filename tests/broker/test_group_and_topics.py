"""Rules 11 to 19 of delivery, each by a real broker: membership, topics, side topics, folds, shutdown, at least once.

docs/delivery.md tells which test holds which rule.
"""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, Producer

from streamdedup.commands.demo import MockBroker
from streamdedup.delivery.lifecycle import State
from streamdedup.errors import ConfigError
from streamdedup.kafka.source import KafkaMember
from tests.broker.base import DEADLINE_S, Broker, client_config
from tests.broker.proxy import Action, Api, Frame, Hold, Proxy
from tests.broker.topics import (
    alter_topic,
    delete_records,
    produce,
    read_all,
)
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import LocalWorker, Start, output_keys, until

# --- rule 11: membership ---


@pytest.mark.parametrize("state", ["live", "folding", "full", "stopped"])
@pytest.mark.rule(11)
async def test_no_state_costs_the_membership(
    deployment: Deployment, start: Start, state: str
) -> None:
    """Idle, folding, full or stopped far beyond `max_poll_interval_ms`, the member stays in its group."""
    consumer = {
        "max_poll_interval_ms": 2000,
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 30_000,
    }
    deployment.config["kafka"]["consumer"] |= consumer
    if state == "full":
        deployment.config["filter"] |= {"capacity": 100, "on_full": "stop"}
        deployment.feed(keyed(range(1000), 1))
    if state != "live":
        produce(deployment.bootstrap, deployment.sink, keyed([10**6], 1))
    if state == "stopped":
        produce(deployment.bootstrap, deployment.sink, keyed([10**6], 1))
        delete_records(deployment.bootstrap, deployment.sink, {0: 1})

    def hold_the_fold(frame: Frame) -> Action | None:
        folds = frame.api == Api.FETCH and deployment.sink.encode() in frame.message
        return Hold(threading.Event()) if folds and state == "folding" else None

    with Proxy(deployment.bootstrap, hold_the_fold) as proxy:
        worker = start(deployment, proxy)
        await worker.until(
            lambda: worker.worker.deliveries and worker.delivery.state == State(state), state
        )
        beats, joins = proxy.seen[Api.HEARTBEAT, True], proxy.seen[Api.JOIN_GROUP, True]
        await worker.until(lambda: proxy.seen[Api.HEARTBEAT, True] >= beats + 50, "heartbeats")
        assert worker.delivery.state == State(state)
        assert len(worker.lines("assigned")) == 1
        assert proxy.seen[Api.JOIN_GROUP, True] == joins
        await worker.stop()


@pytest.mark.rule(11)
async def test_a_stale_assignments_events_are_dropped(
    broker: Broker, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was polled before a rebalance and comes after it belongs to nobody: it is read again by the new owner."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    deployment.config["delivery"]["drain_s"] = 5
    poll, read = KafkaMember.poll, KafkaMember.read
    polled = asyncio.Event()
    readers, given = list[object](), list[bool]()

    async def slow_poll(self: KafkaMember, *arguments: Any) -> Any:
        epoch = self.epoch
        records = await poll(self, *arguments)
        if records and not polled.is_set():
            polled.set()
            async with asyncio.timeout(DEADLINE_S):
                while self.epoch == epoch:
                    await asyncio.sleep(0.01)
            readers.append(asyncio.current_task())
        return records

    async def watched_read(self: KafkaMember, *arguments: Any) -> Any:
        batch = await read(self, *arguments)
        if asyncio.current_task() in readers and not given:
            given.append(batch is None)
        return batch

    monkeypatch.setattr(KafkaMember, "poll", slow_poll)
    monkeypatch.setattr(KafkaMember, "read", watched_read)
    deployment.feed(keyed(range(100), 2))
    first = start(deployment)
    await until(polled.is_set, first.lines)
    second = start(deployment)
    await first.until(lambda: first.tally.consumed + second.tally.consumed >= 100, "100 consumed")
    assert given == [True]
    assert lost_and_doubled(deployment) == (0, 0, 0)


@pytest.mark.rule(11)
async def test_partitions_stay_with_their_members(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """If one of three leaves, the others keep what they have, and with it their filters in memory."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=6).create()
    deployment.config["delivery"]["drain_s"] = 5
    three = [start(deployment) for _ in range(3)]
    await three[0].until(  # at the same moment: one that was alone for a while had more before
        lambda: all([d.busy for d in w.worker.deliveries.values()] == [True] * 2 for w in three),
        "two live shards each",
    )
    had = {worker: set(worker.worker.deliveries) for worker in three}
    leaver = min(three, key=lambda worker: min(had[worker]))
    await leaver.stop()
    for worker in set(three) - {leaver}:
        await worker.live(3)
        assert had[worker] < set(worker.worker.deliveries)


# --- rule 12: offsets and topics are ours to decide ---


@pytest.mark.rule(12)
async def test_an_input_trimmed_under_a_running_worker_is_no_jump(
    deployment: Deployment, start: Start
) -> None:
    """The consumer never chooses an offset by itself: what is deleted before it was fetched stops the shard by name."""
    go = threading.Event()

    def hold_fetches(frame: Frame) -> Action | None:
        ours = frame.api == Api.FETCH and deployment.source.encode() in frame.message
        return Hold(go) if armed.is_set() and ours and not frame.is_answer else None

    armed = threading.Event()
    with Proxy(deployment.bootstrap, hold_fetches) as proxy:
        worker = start(deployment, proxy)
        deployment.feed(keyed(range(10), 1))
        await worker.consumed(10)
        armed.set()
        await worker.until(lambda: proxy.acted, "a fetch")
        deployment.feed(keyed(range(10, 30), 1))
        delete_records(deployment.bootstrap, deployment.source, {0: 20})
        go.set()
        assert "source.on_gap: skip" in await worker.stopped()
        assert "stands at offset" not in str(worker.lines("doubt"))  # another check found a jump
        assert worker.tally.consumed in (10, 20)  # what the fetch under way had brought
        await worker.stop()


# --- rule 13: side topics, and what is refused ---


@pytest.mark.rule(13)
async def test_side_topics_are_in_the_transaction(deployment: Deployment, start: Start) -> None:
    """Killed before the commit, an owner leaves nothing in any topic; the next emits each event once everywhere."""
    deployment.config["key"] = {"from": "json", "field": "id"}
    deployment.config["kafka"]["consumer"]["session_timeout_ms"] = 1000
    deployment.config["delivery"]["drain_s"] = 1
    duplicates = deployment.create_side_topic("duplicates_topic")
    letters = deployment.create_side_topic("dead_letter_topic")
    texts = [b'{"id": 1}', b"bad", b'{"id": 1, "again": 1}']
    deployment.feed([(0, None, text, [], None) for text in texts])
    with Proxy(deployment.bootstrap, _hold_the_end) as proxy:
        first = start(deployment, proxy)
        await until(lambda: proxy.acted, first.lines)
        await first.crash(proxy)
    assert len(read_all(deployment.bootstrap, letters, "read_uncommitted")) == 1
    second = start(deployment)
    await second.consumed(3)
    for topic, text in zip((deployment.sink, letters, duplicates), texts, strict=True):
        assert [r.value for r in read_all(deployment.bootstrap, topic)] == [text]


def _hold_the_end(frame: Frame) -> Action | None:
    """The end of the first transaction with events: that of the birth has none."""
    ends = frame.api == Api.END_TXN and not frame.is_answer
    return Hold(threading.Event()) if ends and frame.number > 1 else None


@pytest.mark.rule(13)
async def test_an_output_that_came_to_be_compacted_is_refused_at_the_next_fencing(
    deployment: Deployment, start: Start
) -> None:
    """Settings are looked at whenever a shard begins again: from then on the broker may forget what we emitted."""
    worker = start(deployment)
    deployment.feed(keyed(range(10), 1))
    await worker.consumed(10)
    alter_topic(deployment.bootstrap, deployment.sink, cleanup_policy="compact")
    name = f"{deployment.sink}/0"
    await asyncio.to_thread(produce, deployment.bootstrap, deployment.sink, [], name)  # fences us
    deployment.feed(keyed(range(10, 20), 1))
    assert "is compacted (cleanup.policy=compact)" in await worker.stopped()


# --- rule 15: folding again ---


@pytest.mark.parametrize("kind", ["bloom", "cuckoo", "dlcbf"])
@pytest.mark.rule(15)
async def test_a_fold_makes_the_table_that_was_alive(
    deployment: Deployment, start: Start, kind: str
) -> None:
    """Bit for bit under one secret, whatever the borders of batches: no false positive or repeated key adds twice."""

    def random(size: int) -> bytes:
        return bytes(range(size))

    deployment.config["filter"] = {"kind": kind, "capacity": 2000, "error_rate": 0.01}
    deployment.config["delivery"]["batch_events_max"] = 70
    deployment.feed(keyed([*range(700), *range(500), *range(400, 1000)], 1))
    first = start(deployment, random=random)
    await first.consumed(1800)
    alive = _table(first)
    await first.stop()
    deployment.delete_snapshots()
    second = start(deployment, random=random)
    await second.live()
    assert second.lines("output_folded")[0]["start"] == 0
    assert _table(second) == alive


def _table(worker: LocalWorker) -> list[bytes]:
    assert worker.delivery.shard is not None
    return [bytes(part) for part in worker.delivery.shard.filter.buffers()]


# --- rule 17: shutdown ---


@pytest.mark.rule(17)
async def test_a_successor_need_not_wait(deployment: Deployment, start: Start) -> None:
    """A worker that drains commits all, leaves the group, saves last: the next begins at once, from that snapshot."""
    deployment.config["kafka"]["consumer"]["session_timeout_ms"] = 120_000
    first = start(deployment)
    deployment.feed(keyed(range(100), 1))
    await first.consumed(100)
    await first.stop()
    (saved,) = first.lines("snapshot_saved")
    began = time.monotonic()
    second = start(deployment)
    (folded,) = await second.logged("output_folded")
    assert time.monotonic() - began < 60  # far below the session
    assert folded["start"] == saved["label"] == folded["end"] - 1 == 100  # the marker


# --- rule 18: at least once ---


@pytest.mark.rule(18)
async def test_at_least_once_fences_once_at_the_assignment(
    deployment: Deployment, start: Start
) -> None:
    """A transaction that a former owner left open is aborted, and neither its events nor aborted ones are folded."""
    deployment.config["delivery"]["guarantee"] = "at_least_once"
    config = client_config(deployment.bootstrap) | {"transactional.id": f"{deployment.sink}/0"}
    zombie: Any = Producer(config)
    zombie.init_transactions(DEADLINE_S)
    zombie.begin_transaction()
    zombie.produce(deployment.sink, b"v", key=b"user1@example.com", partition=0)
    zombie.flush(DEADLINE_S)
    deployment.feed(keyed(range(3), 1))
    worker = start(deployment)
    await worker.consumed(3)
    with pytest.raises(KafkaException):
        zombie.commit_transaction(DEADLINE_S)
    assert lost_and_doubled(deployment) == (0, 0, 0)


@pytest.mark.rule(18)
async def test_at_least_once_folds_a_foreign_event_and_goes_on(
    deployment: Deployment, start: Start
) -> None:
    """No transaction could take our events back: what came between is folded, and its key counts as emitted."""
    deployment.config["delivery"]["guarantee"] = "at_least_once"
    worker = start(deployment)
    deployment.feed(keyed(range(10), 1))
    await worker.consumed(10)
    produce(deployment.bootstrap, deployment.sink, keyed([15], 1))
    deployment.feed(keyed(range(10, 12), 1))
    await worker.logged("doubt")
    deployment.feed(keyed(range(10, 20), 1))
    await worker.committed(22)
    assert worker.lines("shard_stopped") == []
    keys = output_keys(deployment)
    assert len(keys) == len(set(keys)) == 20


# --- rule 19: the least broker ---


@pytest.mark.rule(19)
async def test_a_broker_without_transactions_is_refused_exactly_once(
    tmp_path: Path, start: Start
) -> None:
    """Librdkafka's mock has no stable OffsetFetch: a configuration error names the remedy before anything is read."""
    with MockBroker(confluent_kafka) as cluster:
        deployment = Deployment(cluster.address, tmp_path, partitions=1)
        cluster.make(deployment.source)
        cluster.make(deployment.sink)
        with pytest.raises(ConfigError, match=r"set delivery\.guarantee: at_least_once"):
            await start(deployment).task
