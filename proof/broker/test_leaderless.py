"""A partition whose only broker is gone while the others answer: the worker says so, and goes on when it is back."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from proof.chaos.brokers import ThreeBrokers
from streamdedup.worker import leader_watch, topic_watch
from tests.broker.base import DEADLINE_S, admin_client
from tests.broker.topics import create_topic
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import Start
from tests.memory import page


@pytest.fixture
def three() -> Iterator[ThreeBrokers]:
    """Three nodes; topics without replicas have each partition on one of them."""
    with closing(ThreeBrokers()) as started:
        yield started


@pytest.mark.broker
@pytest.mark.needs_broker("clusters without ZooKeeper")
async def test_a_partition_without_a_leader_is_named(
    three: ThreeBrokers, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the log and at `/readyz`; nothing is lost or doubled when its broker is back."""
    monkeypatch.setattr(leader_watch, "AFTER_S", 2.0)
    monkeypatch.setattr(topic_watch, "EVERY_S", 1.0)
    deployment = Deployment(three.bootstrap_servers, tmp_path, partitions=3)
    for topic in (deployment.source, deployment.sink):
        # Before Kafka 4.0, a broker asks for two replicas in sync of a topic that has one.
        create_topic(deployment.bootstrap, topic, 3, min_insync_replicas=1)
    deployment.feed(keyed(range(300), 3))
    listed = admin_client(three.bootstrap_servers).list_topics(timeout=DEADLINE_S)
    node = three.nodes[listed.topics[deployment.source].partitions[0].leader - 1]
    async with start(deployment) as worker:
        await worker.until(lambda: deployment.committed_so_far() == 300, "all of it")
        node.kill()
        await worker.until(
            lambda: deployment.source in str(worker.lines("partition_without_leader")), "the line"
        )
        assert f"warning: {deployment.source}/0: it has no leader" in page(worker).text
        node.start()
        await worker.logged("partition_has_leader")
        deployment.feed(keyed(range(200, 400), 3))
        await worker.until(lambda: deployment.committed_so_far() == 500, "the rest")
    assert lost_and_doubled(deployment) == (0, 0, 0)
