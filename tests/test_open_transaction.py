"""A foreign transaction that is open on the output: nothing is decided before it is, on a real broker."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from structlog.testing import capture_logs

from streamdedup.settings import load
from streamdedup.worker import Worker
from tests.broker.base import Broker, client_config
from tests.broker.topics import read_all, unique_name
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.in_process import at_work, run_through, run_until_stopped, stopped
from tests.test_worker import consumed

pytestmark = pytest.mark.broker


@pytest.fixture
async def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """One partition, of which 50 events are emitted, without transactions; a new group would read all again."""
    made = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    made.config["delivery"] |= {"guarantee": "at_least_once", "open_transaction_s": 1}
    made.feed(keyed(range(50), 1))
    await run_through(made, 50)
    return made


def renew(deployment: Deployment) -> None:
    """A new group, exactly once, without snapshots: all it can know is in the output."""
    deployment.group = unique_name("group")
    deployment.config["kafka"]["group_id"] = deployment.group
    deployment.config["delivery"]["guarantee"] = "exactly_once"


@contextmanager
def open_transaction(deployment: Deployment, key: bytes) -> Iterator[Producer]:
    """Somebody else's, with one event in the output; aborted at the end unless it ended."""
    name = unique_name("foreign")
    producer = Producer({**client_config(deployment.bootstrap), "transactional.id": name})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(deployment.sink, b"foreign", key, partition=0)
    producer.flush(20)
    yield producer
    producer.abort_transaction(20)


async def test_nothing_is_doubled_over_an_open_transaction(deployment: Deployment) -> None:
    """What we emitted above it cannot be folded yet, so the shard waits, then stops by name, and emits nothing."""
    with ExitStack() as foreign:
        with capture_logs() as lines:
            async with at_work(deployment):
                foreign.enter_context(open_transaction(deployment, b"foreign"))
                deployment.feed(keyed(range(50, 100), 1))
                await stopped(lines)  # at the next fence; 50 events stand above the foreign one
        renew(deployment)
        message = await run_until_stopped(deployment)
        everything = read_all(deployment.bootstrap, deployment.sink, "read_uncommitted")
        assert len(everything) == 101
    await run_through(deployment, 100)
    assert lost_and_doubled(deployment) == (0, 0, 0)
    (offset,) = [record.offset for record in everything if record.key == b"foreign"]
    where = f"--topic {deployment.sink} --partition 0 --start-offset {offset}"
    assert f"a transaction that is not ours is open from offset {offset} on (producer id" in message
    assert "epoch 0, its first event of 20" in message
    assert f"kafka-transactions.sh --bootstrap-server SERVER abort {where})" in message


@pytest.mark.parametrize("how", ["committed", "aborted"])
async def test_a_transaction_that_ends_in_time_is_waited_for(
    deployment: Deployment, how: str
) -> None:
    """Then all of the output is folded, its event too if it was committed, and nothing is emitted twice."""
    deployment.config["delivery"]["open_transaction_s"] = 30
    deployment.feed(keyed(range(50, 100), 1))
    renew(deployment)
    worker = Worker(load(deployment.write_config()))
    (foreign,) = keyed([99], 1)
    with open_transaction(deployment, foreign[1] or b"") as producer:
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(30):
            while 0 not in worker.deliveries or worker.deliveries[0].state != "fencing":
                await asyncio.sleep(0.02)
        assert worker.tally.consumed == 0
        (producer.commit_transaction if how == "committed" else producer.abort_transaction)(20)
        await consumed(worker, 100)
        worker.stop()
        await running
        producer.begin_transaction()  # for the end of the context
    assert lost_and_doubled(deployment) == (0, 0, 0)
    assert len(read_all(deployment.bootstrap, deployment.sink)) == 100
