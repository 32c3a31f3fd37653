"""Consumers of the new group protocol (KIP-848) in the worker's group, on a real broker."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from streamdedup.commands.reset import plan
from streamdedup.commands.reset_plan import Target
from streamdedup.errors import DeliveryError
from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.settings import load
from streamdedup.worker import group_watch
from tests.broker.base import DEADLINE_S, Broker, client_config, wait_until
from tests.deployment import Deployment
from tests.local import Start
from tests.memory import page

pytestmark = pytest.mark.needs_broker("the group protocol of KIP-848")

CLIENT = "somebody-else"


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """Two partitions."""
    return Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()


@contextmanager
def member(deployment: Deployment) -> Iterator[Consumer]:
    """Another program, which has joined the group by the new protocol and has partitions."""
    config = client_config(deployment.bootstrap) | {
        "group.id": deployment.group,
        "group.protocol": "consumer",
        "client.id": CLIENT,
        "enable.auto.commit": False,
    }
    consumer = Consumer(config)
    consumer.subscribe([deployment.source])

    def has_partitions() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    try:
        wait_until(has_partitions, DEADLINE_S, lambda: "no partitions for the new protocol")
        yield consumer
    finally:
        consumer.close()


async def test_a_member_of_the_new_protocol_is_seen(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes partitions while we are ready: a line names it, and `/readyz` warns; our own are not counted."""
    monkeypatch.setattr(group_watch, "LOOK_EVERY_S", 1.0)
    async with start(deployment) as worker:
        await worker.live()
        context = member(deployment)
        await asyncio.to_thread(context.__enter__)
        try:
            line = (await worker.logged("group_of_another_protocol"))[0]
            assert line["members"] == 1
            assert line["among_them"][0].startswith(f"{CLIENT} at ")
            await worker.live(1)
            ready = page(worker)
            text = "warning: 1 member of the new group protocol (KIP-848) took partitions"
            assert (ready.status, text in ready.text) == (200, True)
        finally:
            await asyncio.to_thread(context.__exit__, None, None, None)
        await worker.live(2)
        await worker.until(lambda: not worker.worker.status.group_shared_with, "end of it")


async def test_reset_counts_members_of_the_new_protocol(deployment: Deployment) -> None:
    """Nothing is moved under a consumer, by whichever protocol it joined."""
    settings = load(deployment.write_config())
    context = member(deployment)
    await asyncio.to_thread(context.__enter__)
    try:
        with pytest.raises(DeliveryError, match="has 1 member: stop all workers first"):
            await plan(settings, Target("earliest"), forget=False)
        async with kafka_cluster(settings.kafka) as cluster:
            found = await cluster.in_force(deployment.group)
        assert (found.assignor, found.members) == (None, ())
        assert found.newer[0].startswith(f"{CLIENT} at ")
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)
    assert len((await plan(settings, Target("earliest"), forget=False)).steps) == 2
