"""Claims about how soon the first stage goes on after a doubt, over a broker in memory."""

import asyncio

from aiokafka.errors import KafkaConnectionError
from typing_extensions import override

from streamdedup.kafka.records.records import Record
from streamdedup.testing import MemoryBroker
from tests.memory import over
from tests.staged import INPUTS, PLACES, MemoryStage

DOUBTS = 6  # enough for a wait that doubles each time to last longer
SOON_S = 3.0


class FailingBroker(MemoryBroker):
    """Fails to append to the middle topic as often as `failures` says."""

    failures = 0

    @override
    def append(
        self, topic: str, partition: int, records: list[Record], writer: tuple[str, int] | None
    ) -> int:
        if topic == "middle" and self.failures:
            self.failures -= 1
            raise KafkaConnectionError
        return super().append(topic, partition, records, writer)


def failing(stage: MemoryStage) -> FailingBroker:
    """Have the stage over such a broker."""
    stage.broker = broker = FailingBroker()
    broker.create_topic(stage.source, INPUTS)
    return broker


@over(MemoryStage)
async def test_the_last_of_many_doubts_is_over_as_soon_as_the_first(stage: MemoryStage) -> None:
    """A process that lives for months has many. Only those that follow one another make it wait for longer."""
    loop, broker = asyncio.get_running_loop(), failing(stage)
    async with stage.start() as worker:
        await worker.live(PLACES)
        for number in range(DOUBTS):
            broker.failures = 1
            stage.feed([number])
            began = loop.time()
            await worker.until(lambda count=number: stage.copies() > count, "a copy")  # type: ignore[misc]
            assert loop.time() - began < SOON_S, number
        assert len(worker.lines("repartition_doubt")) + len(worker.lines("broker_away")) > 0


@over(MemoryStage)
async def test_no_transaction_is_open_while_it_waits(stage: MemoryStage) -> None:
    """An open one would hold back the second stage, in all partitions, for as long as the doubts last."""
    broker = failing(stage)
    async with stage.start() as worker:
        await worker.live(PLACES)
        stage.feed(range(100))
        await worker.until(lambda: stage.copies() == 100, "copies")
        broker.failures = 1_000
        stage.feed(range(100, 200))
        (transaction,) = [
            state for name, state in broker.transactions.items() if name.startswith("middle/")
        ]
        looks = list[bool]()
        for _ in range(200):
            await asyncio.sleep(0.1)
            looks.append(transaction.open)
        assert sum(looks) < len(looks) / 10
        broker.failures = 0
        await worker.until(lambda: len(stage.ids()) == 200, "the others")
