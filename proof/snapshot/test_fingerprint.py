"""Snapshots of another log are told by their fingerprint, on real brokers."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamdedup.filters import build
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.cluster import KafkaCluster, kafka_cluster
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.topics import Changes, Topology
from streamdedup.keys.hashing import Hash
from streamdedup.settings import load
from tests.broker.base import DEADLINE_S, OwnedBroker
from tests.broker.process import ProcessBroker
from tests.broker.topics import create_topic, delete_records, delete_topic, produce, read_all
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import Start
from tests.snapshot.test_fingerprint import newest_log, store_of


@asynccontextmanager
async def cluster_of(deployment: Deployment) -> AsyncIterator[Cluster]:
    """A client of the broker."""
    async with kafka_cluster(load(deployment.write_config()).kafka) as cluster:
        yield cluster


@pytest.mark.broker
async def test_the_broker_tells_the_batch_at_an_offset(deployment: Deployment) -> None:
    """That which contains it, markers too; none behind the end or before the log's start."""
    bootstrap, sink = deployment.bootstrap, deployment.sink
    produce(bootstrap, sink, keyed(range(10), 1), transactional_id=sink)
    produce(bootstrap, sink, keyed(range(5), 1), transactional_id=sink, abort=True)
    async with cluster_of(deployment) as cluster, asyncio.timeout(DEADLINE_S):
        batches = [await cluster.batch_at(sink, 0, offset) for offset in range(18)]
        first, marker, aborted, end = batches[0], batches[10], batches[11], batches[16]
        assert first is not None and marker is not None and aborted is not None
        assert batches[:10] == [first] * 10
        assert [batch.offset for batch in (first, marker, aborted, end) if batch] == [0, 10, 11, 16]
        assert marker.producer_id == first.producer_id
        assert len({batch.crc for batch in batches if batch}) == 4
        assert batches[17] is None
        assert await cluster.batch_at(sink, 0, 10**6) is None
        delete_records(bootstrap, sink, {0: 11})
        assert await cluster.batch_at(sink, 0, 10) is None
        assert await cluster.batch_at(sink, 0, 11) == aborted
        assert await cluster.first_offsets(sink, [0]) == {0: 11}


@pytest.mark.broker
async def test_a_snapshot_names_the_last_batch_that_it_folded(
    deployment: Deployment, start: Start
) -> None:
    """Right below its label: the last one that holds events of ours."""
    deployment.feed(keyed(range(100), 1))
    await start(deployment).through(100)
    log = newest_log(deployment)
    assert log.label == 100
    async with cluster_of(deployment) as cluster, asyncio.timeout(DEADLINE_S):
        last = await cluster.batch_at(deployment.sink, 0, 99)
    assert last is not None
    assert log.fingerprint == last


class NamelessCluster(KafkaCluster):
    """A cluster that tells no topic ids, as before Kafka 2.8."""

    async def describe(self, names: Sequence[str]) -> Topology:
        """Without ids."""
        told = await super().describe(names)
        return replace(
            told, topics={n: replace(topic, topic_id=None) for n, topic in told.topics.items()}
        )

    async def changed(self, _known: Topology) -> Changes:
        """Nobody can tell."""
        return Changes()


@asynccontextmanager
async def without_ids(options: KafkaOptions) -> AsyncIterator[Cluster]:
    """Open such a cluster."""
    async with kafka_cluster(options) as cluster:
        assert isinstance(cluster, KafkaCluster)
        yield NamelessCluster(options, cluster._client, cluster.patience)


@pytest.mark.private_broker
@pytest.mark.rule(7)
async def test_without_topic_ids_the_fingerprint_tells_a_topic_that_was_made_again(
    private_broker: OwnedBroker, tmp_path: Path, start: Start
) -> None:
    """Its name, and an end beyond the label, are those of the old one; what the old one held passes again."""
    deployment = Deployment(private_broker.bootstrap_servers, tmp_path, partitions=1).create()
    deployment.feed(keyed(range(100), 1))
    await start(deployment, connect=without_ids).through(100)
    delete_topic(deployment.bootstrap, deployment.sink)
    create_topic(deployment.bootstrap, deployment.sink, 1)
    produce(deployment.bootstrap, deployment.sink, keyed(range(1000, 1300), 1))
    deployment.feed(keyed(range(100), 1))
    worker = await start(deployment, connect=without_ids).through(100)
    (refused,) = worker.lines("snapshot_refused")
    assert "another record batch" in refused["reason"]
    assert lost_and_doubled(deployment) == (0, 0, 300)


@pytest.mark.broker
@pytest.mark.parametrize("on_gap", ["stop", "accept"])
async def test_without_topic_ids_an_output_that_was_deleted_whole_stops(
    deployment: Deployment, start: Start, on_gap: str
) -> None:
    """Nothing is left by which the snapshot could be told from that of a topic that was made again and trimmed.

    With `accept` it goes on, and the keys of what was deleted pass once more.
    """
    deployment.config["sink"]["on_gap"] = on_gap
    deployment.feed(keyed(range(100), 1))
    await start(deployment, connect=without_ids).through(100)
    delete_records(deployment.bootstrap, deployment.sink, {0: -1})
    deployment.feed(keyed(range(105), 1))
    worker = start(deployment, connect=without_ids)
    if on_gap == "accept":
        worker = await worker.through(105)
        assert len(read_all(deployment.bootstrap, deployment.sink)) == 105
    else:
        said = await worker.stopped()
        assert "begins at offset 101" in said
        assert "set sink.on_gap: accept" in said
    (refused,) = worker.lines("snapshot_refused")
    assert "the broker reports no topic ids" in refused["reason"]


@contextmanager
def _down(broker: ProcessBroker) -> Any:
    broker.stop()
    try:
        yield
    finally:
        broker.start()


@pytest.mark.private_broker
@pytest.mark.rule(7)
async def test_a_fail_back_to_an_older_copy_is_noticed(
    private_broker: OwnedBroker, tmp_path: Path, start: Start
) -> None:
    """The broker comes back from a backup and goes on with other events, past the label: only the fingerprint tells.

    What the lost end of the output held is not in the output: so it passes when it comes again.
    """
    if not isinstance(private_broker, ProcessBroker):
        pytest.skip("the broker's files are in a container")
    deployment = Deployment(private_broker.bootstrap_servers, tmp_path, partitions=1).create()
    ours, elsewhere = tmp_path / "snapshots", tmp_path / "elsewhere"
    data, backup = private_broker.data_directory, tmp_path / "backup"
    deployment.feed(keyed(range(100), 1))
    await start(deployment).through(100)
    with _down(private_broker):
        shutil.copytree(data, backup)
    deployment.feed(keyed(range(100, 200), 1))
    await start(deployment).through(100)
    before, lost = store_of(deployment).labels()[::-1]
    with _down(private_broker):
        shutil.rmtree(data)
        shutil.move(backup, data)
    deployment.config["snapshot"]["directory"] = str(elsewhere)
    deployment.feed(keyed(range(1000, 1300), 1))
    await start(deployment).through(300)
    deployment.config["snapshot"]["directory"] = str(ours)
    deployment.feed(keyed(range(200), 1))
    worker = await start(deployment).through(200)
    (refused,) = worker.lines("snapshot_refused")
    assert "fail-back" in refused["reason"]
    assert lost < read_all(deployment.bootstrap, deployment.sink)[-1].offset
    assert [line["label"] for line in worker.lines("snapshot_loaded")] == [before]
    assert lost_and_doubled(deployment) == (0, 0, 0)


@pytest.mark.broker
@pytest.mark.rule(7)
async def test_a_snapshot_of_another_log_is_refused_and_the_one_before_used(
    deployment: Deployment, start: Start
) -> None:
    """Though topic id, label and checksums are right: the output does not have the batch that it says it folded."""
    deployment.feed(keyed(range(100), 1))
    await start(deployment).through(100)
    log, store = newest_log(deployment), store_of(deployment)
    assert log.fingerprint is not None
    drawn = Hash.draw()
    hostile = build({"kind": "bloom", "capacity": 1_200_000, "error_rate": 1e-9}, drawn)
    foreign = replace(log.fingerprint, crc=log.fingerprint.crc ^ 1)
    path = store.save(hostile, log.label, lambda: log.label, log.identity, fingerprint=foreign).path
    deployment.feed(keyed(range(200), 1))
    worker = await start(deployment).through(200)
    (refused,) = worker.lines("snapshot_refused")
    assert refused["path"] == str(path)
    assert "unclean leader election" in refused["reason"]
    assert refused["instead"] == "an older one is used"
    assert lost_and_doubled(deployment) == (0, 0, 0)
