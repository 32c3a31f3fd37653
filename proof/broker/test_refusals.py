"""What the worker refuses, by name and with the remedy, instead of guessing, on a real broker."""

from pathlib import Path

import pytest

from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.kafka.cluster import KafkaCluster
from tests.broker.base import Broker, OwnedBroker
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import Start


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """Topics are not made yet."""
    return Deployment(broker.bootstrap_servers, tmp_path)


async def refused(deployment: Deployment, start: Start) -> str:
    """What the refused worker says."""
    with pytest.raises(ConfigError) as refusal:
        await start(deployment).task
    return str(refusal.value)


def test_a_broker_restart_loses_and_doubles_nothing(
    private_broker: OwnedBroker, tmp_path: Path
) -> None:
    """The broker is killed under load and comes back: the worker waits, fences, folds and goes on.

    Kafka from 4.1 on often loses the markers of transactions then, which `delivery.lost_markers` mends.
    """
    deployment = Deployment(private_broker.bootstrap_servers, tmp_path).create()
    deployment.config["delivery"] |= {"batch_events_max": 200, "commit_interval_ms": 20}
    deployment.config["kafka"]["consumer"]["max_partition_fetch_bytes"] = 32_768
    deployment.feed(keyed([*range(30_000), *range(10_000)]))
    with deployment.running() as worker:
        worker.wait_for("shard_live", deployment.partitions)
        private_broker.kill()
        private_broker.start()
        deployment.catch_up(worker)
        assert worker.interrupt() == 0
    assert lost_and_doubled(deployment) == (0, 0, 0)


TOO_LONG_MS = 1_000_000  # the brokers' default limit is 900,000


async def test_a_transaction_time_out_above_the_brokers_is_refused(
    deployment: Deployment, start: Start
) -> None:
    """Before the group is joined, with both numbers."""
    deployment.create()
    deployment.config["kafka"]["producer"] = {"transaction_timeout_ms": TOO_LONG_MS}
    text = await refused(deployment, start)
    assert "transaction.max.timeout.ms is 900000" in text
    assert f"kafka.producer.transaction_timeout_ms is {TOO_LONG_MS}" in text


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
async def test_a_transaction_time_out_that_cannot_be_compared_stops_by_name(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    """Without the right to read the brokers' settings, their refusal (error 50) is no doubt: it never passes."""

    async def nobody_reports(_cluster: KafkaCluster) -> None:
        return None

    monkeypatch.setattr(KafkaCluster, "transaction_ms_max", nobody_reports)
    deployment.partitions = 1
    deployment.create()
    deployment.config["delivery"]["guarantee"] = guarantee
    deployment.config["kafka"]["producer"] = {"transaction_timeout_ms": TOO_LONG_MS}
    async with start(deployment) as worker:
        text = await worker.stopped()
    assert "kafka.producer.transaction_timeout_ms" in text
    assert "transaction.max.timeout.ms" in text
    assert worker.lines("doubt") == []


async def test_a_session_that_the_brokers_do_not_allow_ends_the_worker(
    deployment: Deployment, start: Start
) -> None:
    """By both names: the group would refuse it for ever."""
    deployment.create()
    deployment.config["kafka"]["consumer"] = {
        "session_timeout_ms": 100,
        "heartbeat_interval_ms": 30,
    }
    with pytest.raises(DeliveryError, match=r"session_timeout_ms .* group\.min\.session\.timeout"):
        await start(deployment).task
