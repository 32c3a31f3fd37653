"""Record batches to and from a topic's log, by requests of our own: neither makes an object of an event."""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from aiokafka.errors import for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest

FETCH_BYTES = 8 << 20
WAIT_MS = 200
ACKNOWLEDGE_MS = 30_000
READ_COMMITTED = 1

# Base offset, length, attributes, last offset's delta, producer id, count; the rest is skipped.
HEAD = struct.Struct(">qi9xhi16xq6xi")
LENGTH_ENDS = 12
CODEC, CONTROL, TRANSACTIONAL = 7, 1 << 5, 1 << 4
DECODE = {0: bytes, 1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}


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

    async def fetch(self, positions: Mapping[int, int]) -> dict[int, Fetched]:
        """What is committed from these positions on, by partition; waits 200 ms at most for anything to be there."""
        by_leader: dict[int, list[tuple[int, int, int]]] = {}
        for partition, position in positions.items():
            asked = by_leader.setdefault(self._leaders[partition], [])
            asked.append((partition, position, FETCH_BYTES))
        answers = await asyncio.gather(*(self._fetch(*item) for item in by_leader.items()))
        return {
            partition: _parsed(positions[partition], row)
            for answer in answers
            for partition, *row in answer.topics[0][1]
        }

    async def _fetch(self, leader: int, asked: list[tuple[int, int, int]]) -> Any:  # noqa: ANN401
        bytes_max = FETCH_BYTES * len(asked)
        request = FetchRequest(WAIT_MS, 1, bytes_max, READ_COMMITTED, [(self.topic, asked)])
        answer = await self._client.send(leader, request)
        _raise_for(getattr(answer, "error_code", 0))
        return answer

    async def committed(self, partition: int) -> AsyncIterator[Batch]:
        """All committed batches, to the end of the log; waits until no transaction is open."""
        position, end = 0, 1
        while position < end:
            found = (await self.fetch({partition: position}))[partition]
            for batch in found.batches:
                yield batch
            position, end = found.position, found.end


@asynccontextmanager
async def opened(bootstrap: str, topic: str) -> AsyncIterator[Log]:
    """The log of a topic that exists."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        cluster = await client.fetch_all_metadata()
        count = len(cluster.partitions_for_topic(topic))
        leaders = [cluster.leader_for_partition(TopicPartition(topic, p)) for p in range(count)]
        yield Log(client, topic, leaders)
    finally:
        await client.close()


def _parsed(position: int, row: Sequence[Any]) -> Fetched:
    """What one partition's part of an answer says; its last batch may be cut off, and is left for the next answer."""
    code, end, _stable_end, _start, aborted, *_, content = row
    _raise_for(code)
    content, at, aborting = content or b"", 0, set[int]()
    begun = sorted((first, producer) for producer, first in aborted or ())
    batches: list[Batch] = []
    while at + HEAD.size <= len(content):
        base, length, attributes, last, producer, count = HEAD.unpack_from(content, at)
        stop = at + LENGTH_ENDS + length
        if stop > len(content):
            break
        while begun and begun[0][0] <= base:
            aborting.add(begun.pop(0)[1])
        if attributes & CONTROL:
            aborting.discard(producer)
        elif base >= position and not (attributes & TRANSACTIONAL and producer in aborting):
            records = DECODE[attributes & CODEC](content[at + HEAD.size : stop])
            batches.append(Batch(base, count, records))
        position, at = base + last + 1, stop
    return Fetched(position, end, batches)


def _raise_for(code: int) -> None:
    if code:
        raise for_code(code)
