"""A transaction of ours that has ended, and of which the group's offset knows nothing, on a real broker.

It is made by committing an offset in a transaction that does not include the group: so its marker never comes there.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.protocol.transaction import TxnOffsetCommitRequest

from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.settings import load
from tests.broker.base import OwnedBroker
from tests.broker.process import NODE
from tests.broker.topics import alter_broker
from tests.broker.versions import wanted
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import Start


@pytest.mark.parametrize("ends", ["commit", "abort"])
async def test_what_lacks_its_marker_in_the_offset_is_finished(
    private_broker: OwnedBroker, tmp_path: Path, start: Start, ends: str
) -> None:
    """The next worker goes on, and each event is in the output once."""
    take_unverified(private_broker)
    deployment = Deployment(private_broker.bootstrap_servers, tmp_path, partitions=1).create()
    deployment.feed(keyed(range(1), 1))
    await start(deployment).to_the_end()
    deployment.feed(keyed(range(1, 2), 1))
    await leave_undecided(deployment, ends)
    async with start(deployment) as worker:
        (line,) = await worker.logged("transaction_finished")
        await worker.until(lambda: deployment.committed_so_far() == 2, "the end")
    assert line["outcome"] == ("committed" if ends == "commit" else "aborted")
    assert lost_and_doubled(deployment) == (0, 0, 0)


def take_unverified(broker: OwnedBroker) -> None:
    """Have it take an offset in a transaction that does not include the group, as brokers before 3.6 do."""
    if wanted().is_from("3.6"):
        setting = "transaction.partition.verification.enable"
        alter_broker(broker.bootstrap_servers, NODE, setting, "false")


async def leave_undecided(deployment: Deployment, ends: str) -> None:
    """Emit the second event as our producer would; commit its offset where nobody will tell of the end."""
    name, source, group = f"{deployment.sink}/0", deployment.source, deployment.group
    async with kafka_cluster(load(deployment.write_config()).kafka) as cluster:
        own = (await cluster.committed_all(group, source, [0]))[0]
        assert own.note is not None
        end = await cluster.end_offset(deployment.sink, 0) + 1
        note = replace(own.note, label=end).encode()
    async with AIOKafkaProducer(
        bootstrap_servers=deployment.bootstrap, transactional_id=name
    ) as producer:
        await producer.begin_transaction()
        ((_partition, key, value, *_),) = keyed(range(1, 2), 1)
        await producer.send_and_wait(deployment.sink, value, key, partition=0)
        own_id = producer._txn_manager
        request = TxnOffsetCommitRequest(
            name,
            group,
            own_id.producer_id,
            own_id.producer_epoch,
            [(source, [(0, 2, note)])],
        )
        node = await producer.client.coordinator_lookup(CoordinationType.GROUP, group)
        answer = await producer.client.send(node, request, group=ConnectionGroup.COORDINATION)
        assert answer.errors == [(source, [(0, 0)])]
        await getattr(producer, f"{ends}_transaction")()
