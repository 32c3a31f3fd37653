"""Record batches to and from a topic's log, by requests of our own: neither makes an object of an event."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import NotLeaderForPartitionError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest

from streamdedup.kafka.records.codecs import decompress
from streamdedup.kafka.records.wire import record_batches
from tests.broker.topics import create_topic, delete_topic, unique_name

FETCH_BYTES = 8 << 20
WAIT_MS = 200
LED_S_MAX, LED_EVERY_S = 30.0, 0.05
ACKNOWLEDGE_MS = 30_000
READ_COMMITTED = 1


class Batch(NamedTuple):
    """Some records as they stand in the log, decompressed."""

    offset: int
    events: int
    records: bytes


class Fetched(NamedTuple):
    """What one request found in a partition: where to go on, where the log ends, and committed batches."""

    position: int
    end: int
    batches: list[Batch]


class Log:
    """The partitions of one topic. AIOKafka errors where the broker gives one: nothing is tried again."""

    def __init__(self, client: Any, topic: str, leaders: list[int]) -> None:  # noqa: ANN401 - no types
        self._client, self.topic, self._leaders = client, topic, leaders

    @property
    def partitions(self) -> int:
        """How many there are."""
        return len(self._leaders)

    async def led(self) -> None:
        """Wait until every leader knows that it is one: after the topic was made, that takes a moment."""
        everywhere = dict.fromkeys(range(len(self._leaders)), 0)
        async with asyncio.timeout(LED_S_MAX):
            while True:
                with suppress(NotLeaderForPartitionError, UnknownTopicOrPartitionError):
                    await self.fetch(everywhere, wait_ms=0, bytes_max=1)
                    return
                await asyncio.sleep(LED_EVERY_S)

    async def append(self, partition: int, batches: Iterable[tuple[int, bytes]]) -> None:
        """Append batches, each with the offset at which it must come to stand, one request after the other."""
        for offset, content in batches:
            topics = [(self.topic, [(partition, content)])]
            request = ProduceRequest(None, -1, ACKNOWLEDGE_MS, topics)
            answer = await self._client.send(self._leaders[partition], request)
            _partition, code, base, *_ = answer.topics[0][1][0]
            _raise_for(code)
            if base != offset:
                raise SystemExit(
                    f"{self.topic}/{partition}: a batch stands at {base}, not {offset}"
                )

    async def fetch(
        self, positions: Mapping[int, int], wait_ms: int = WAIT_MS, bytes_max: int = FETCH_BYTES
    ) -> dict[int, Fetched]:
        """What is committed from these positions on, by partition; waits so long at most for anything to be there."""
        by_leader: dict[int, list[tuple[int, int, int]]] = {}
        for partition, position in positions.items():
            asked = by_leader.setdefault(self._leaders[partition], [])
            asked.append((partition, position, bytes_max))
        requests = {
            leader: FetchRequest(
                wait_ms, 1, bytes_max * len(asked), READ_COMMITTED, [(self.topic, asked)]
            )
            for leader, asked in by_leader.items()
        }
        answers = await asyncio.gather(*(self._client.send(*item) for item in requests.items()))
        found = {}
        for answer in answers:
            _raise_for(getattr(answer, "error_code", 0))
            for partition, *row in answer.topics[0][1]:
                found[partition] = _parsed(positions[partition], row)
        return found

    async def committed(self, partition: int) -> AsyncIterator[Batch]:
        """All committed batches, to the end of the log; waits until no transaction is open."""
        position, end = 0, 1
        while position < end:
            found = (await self.fetch({partition: position}))[partition]
            for batch in found.batches:
                yield batch
            position, end = found.position, found.end


@contextmanager
def made(bootstrap: str, partitions: int) -> Iterator[tuple[str, str]]:
    """A new input and a new output, deleted at the end."""
    names = unique_name("bench-in"), unique_name("bench-out")
    for topic in names:
        create_topic(bootstrap, topic, partitions)
    yield names
    for topic in names:
        delete_topic(bootstrap, topic)


@asynccontextmanager
async def opened(bootstrap: str, topic: str) -> AsyncIterator[Log]:
    """The log of a topic that exists, once its leaders serve it."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        cluster = await client.fetch_all_metadata()
        count = len(cluster.partitions_for_topic(topic))
        leaders = [cluster.leader_for_partition(TopicPartition(topic, p)) for p in range(count)]
        there = Log(client, topic, leaders)
        await there.led()
        yield there
    finally:
        await client.close()


def _parsed(position: int, row: Sequence[Any]) -> Fetched:
    """What one partition's part of an answer says; its last batch may be cut off, and is left for the next answer."""
    code, end, _stable_end, _start, aborted, *_, content = row
    _raise_for(code)
    begun = sorted((first, producer) for producer, first in aborted or ())
    batches, aborting = list[Batch](), set[int]()
    for found in record_batches(content or b""):
        while begun and begun[0][0] <= found.base_offset:
            aborting.add(begun.pop(0)[1])
        is_aborted = found.is_transactional and found.producer_id in aborting
        if found.is_control:
            aborting.discard(found.producer_id)
        elif found.base_offset >= position and not is_aborted:
            records = bytes(decompress(found.codec, found.records))
            batches.append(Batch(found.base_offset, found.count, records))
        position = found.last_offset + 1
    return Fetched(position, end, batches)


def _raise_for(code: int) -> None:
    if code:
        raise for_code(code)
