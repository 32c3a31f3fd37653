"""What becomes of a transaction while Python code reads the keys of the next events for very long."""

import asyncio
from pathlib import Path

from streamdedup.testing import MemoryBroker, VirtualLoop, connected_to
from tests.deployment import Deployment
from tests.local import workers

PLAIN, DEAR = 300, 1_000


def test_a_transaction_waits_for_no_keys_that_take_long(tmp_path: Path) -> None:
    """It commits before its deadline, without those; they begin the next one, which no deadline ends before them."""
    deployment = Deployment("memory:1", tmp_path, partitions=1)
    deployment.config["key"] = {"from": "key", "normalize": "email"}
    deployment.config["delivery"] = {"commit_interval_ms": 5000}
    broker, call_s = MemoryBroker(), [0.0]
    broker.fetch_events_max = 10_000
    for name in (deployment.source, deployment.sink):
        broker.create_topic(name, 1)
    source, group = deployment.source, deployment.config["kafka"]["group_id"]

    def committed() -> int:
        return broker.committed(group, source).get(0, 0)

    async def scene() -> None:
        async with workers() as start:
            worker = start(deployment, connect=connected_to(broker))
            await worker.live()
            keys = [b"plain%d@example.com" % number for number in range(PLAIN)]
            broker.produce(source, [(0, key, b"{}") for key in keys])
            await asyncio.sleep(2)
            assert committed() == 0  # they are in a transaction that is open
            call_s[0] = 2.0  # for each call in a thread, so 64 s for these addresses
            dear = [f"dear{number}@bücher.example.org".encode() for number in range(DEAR)]
            broker.produce(source, [(0, key, b"{}") for key in dear])
            await worker.until(lambda: committed() == PLAIN + DEAR, "all")
            assert not worker.lines("doubt")
            taken = worker.worker.status.meters.of(0).taken_back
            assert taken["slow"] == DEAR
            assert len(broker.read_all(deployment.sink)[0]) == PLAIN + DEAR

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(lambda: call_s[0])) as runner:
        runner.run(scene())
