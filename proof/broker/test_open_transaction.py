"""A foreign transaction that is open on the output: nothing is decided before it is, on a real broker."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Producer

from streamdedup.commands.audit import audit
from streamdedup.errors import DeliveryError
from streamdedup.settings import load
from tests.broker.base import DEADLINE_S, client_config
from tests.broker.topics import end_offsets, read_all, unique_name, wait_until_stable
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import Start


@pytest.fixture
async def deployment(deployment: Deployment, start: Start) -> Deployment:
    """50 of its events are emitted, without transactions; a new group would read all again."""
    deployment.config["delivery"] |= {"guarantee": "at_least_once", "open_transaction_s": 1}
    deployment.feed(keyed(range(50), 1))
    await start(deployment).through(50)
    return deployment


def renew(deployment: Deployment) -> None:
    """A new group, exactly once, without snapshots: all it can know is in the output."""
    deployment.group = unique_name("group")
    deployment.config["kafka"]["group_id"] = deployment.group
    deployment.config["delivery"]["guarantee"] = "exactly_once"


@contextmanager
def open_transaction(
    deployment: Deployment, key: bytes, topic: str | None = None
) -> Iterator[Producer]:
    """Somebody else's, with one event in the output, or in `topic`.

    It is aborted at the end unless it ended; then its marker is there.
    """
    topic = topic or deployment.sink
    name = unique_name("foreign")
    producer = Producer({**client_config(deployment.bootstrap), "transactional.id": name})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, b"foreign", key, partition=0)
    producer.flush(DEADLINE_S)
    yield producer
    producer.abort_transaction(DEADLINE_S)
    ends = end_offsets(deployment.bootstrap, topic)
    wait_until_stable(deployment.bootstrap, topic, ends)


@pytest.mark.finding("foreign-transaction")
@pytest.mark.rule(2)
async def test_nothing_is_doubled_over_an_open_transaction(
    deployment: Deployment, start: Start
) -> None:
    """What we emitted above it cannot be folded yet, so the shard waits, then stops by name, and emits nothing."""
    with ExitStack() as foreign:
        async with start(deployment) as worker:
            await worker.live()
            foreign.enter_context(open_transaction(deployment, b"foreign"))
            deployment.feed(keyed(range(50, 100), 1))
            await worker.stopped()  # at the next fence; 50 events stand above the foreign one
        renew(deployment)
        async with start(deployment) as worker:
            message = await worker.stopped()
        everything = read_all(deployment.bootstrap, deployment.sink, "read_uncommitted")
        assert len(everything) == 101
    await start(deployment).through(100)
    assert lost_and_doubled(deployment) == (0, 0, 0)
    (offset,) = [record.offset for record in everything if record.key == b"foreign"]
    where = f"--topic {deployment.sink} --partition 0 --start-offset {offset}"
    assert f"a transaction that is not ours is open from offset {offset} on (producer id" in message
    assert "epoch 0, its first event of 20" in message
    assert f"kafka-transactions.sh --bootstrap-server SERVER abort {where})" in message


async def test_an_audit_waits_for_what_a_killed_worker_left_open(deployment: Deployment) -> None:
    """It fences nobody, so it waits for the time-out of a worker's transaction, and then says whose it may be."""
    deployment.config["kafka"]["producer"] = {"transaction_timeout_ms": 2000}
    settings = load(deployment.write_config())
    with open_transaction(deployment, b"left open"):
        began = asyncio.get_running_loop().time()
        with pytest.raises(
            DeliveryError, match="of another producer, or of a worker that was killed,"
        ):
            await audit(settings)
        assert asyncio.get_running_loop().time() - began > 3
