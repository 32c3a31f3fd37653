"""The log of one partition: its ends, single record batches, and its committed events between two offsets.

Each question goes to the partition's leader, and is repeated while the leader moves. So the caller sets a time-out.
Records are deleted from several logs at once; that is tried once.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    StaleMetadata,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.admin import DeleteRecordsRequest

from streamdedup.errors import DeliveryError
from streamdedup.events import EventBatch, Fingerprint
from streamdedup.kafka.broker_clock import Stamp
from streamdedup.kafka.client.closing import close_consumer, starting
from streamdedup.kafka.client.columns import ColumnarConsumer
from streamdedup.kafka.client.connection import asked_again, client_arguments, raise_for
from streamdedup.kafka.client.creation import never_creating
from streamdedup.kafka.client.protocol import (
    READ_UNCOMMITTED,
    DescribeProducers,
    fetch_one,
    list_offsets,
)
from streamdedup.kafka.large import LargeBatches, Permit
from streamdedup.kafka.old_format import OldRecordsError
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.partitions import LastWrite
from streamdedup.kafka.records.decoding import CHUNK_BYTES, PendingDecode
from streamdedup.kafka.records.wire import (
    HEAD,
    MAGIC,
    OldFormatError,
    is_old_format,
    record_batches,
)

RETRY_S = 0.05
DELETE_MS_MAX = 10_000  # a leader answers once all replicas have deleted, or after this time
STAMP_BYTES = 1 << 16  # fetched at once while a stamp is looked for: a marker is 78 bytes

T = TypeVar("T")


class TrimmedError(DeliveryError):
    """The log no longer holds an offset that is needed."""


async def naming_trims(
    events: AsyncGenerator[EventBatch], instead: str
) -> AsyncGenerator[EventBatch]:
    """Yield `events`, and close them. If they are trimmed meanwhile, the TrimmedError says `instead`, too."""
    try:
        async for batch in events:
            yield batch
    except TrimmedError as error:
        raise TrimmedError(f"{error}: {instead}") from None
    finally:
        await events.aclose()


async def offset_at(
    client: Any,
    topic: str,
    partition: int,
    which: int,
    isolation: int,
) -> int:
    """Return the EARLIEST or the LATEST offset, or that of the first event from a time on (`which`, in ms since 1970).

    For a time, -1 if there is no such event.
    """

    def offset_in(response: Any) -> int:
        _partition, code, _timestamp, offset = response.topics[0][1][0]
        raise_for(code)
        return int(offset)

    request = list_offsets(topic, [partition], which, isolation)
    _, offset = await _of_leader(client, topic, partition, request, offset_in)
    return offset


async def offsets_at(
    client: Any,
    topic: str,
    partitions: Collection[int],
    which: int,
    isolation: int = READ_UNCOMMITTED,
) -> dict[int, int]:
    """Return the EARLIEST or LATEST offsets of those partitions whose leaders answer at once; one request a leader."""
    by_leader: dict[int, list[int]] = {}
    for partition in partitions:
        leader = leader_of(client, topic, partition)
        if leader is not None:
            by_leader.setdefault(leader, []).append(partition)
    answers = await asyncio.gather(
        *(
            client.send(leader, list_offsets(topic, its, which, isolation))
            for leader, its in by_leader.items()
        ),
        return_exceptions=True,
    )
    rows = [
        row
        for answer in answers
        if not isinstance(answer, BaseException)
        for row in answer.topics[0][1]
    ]
    if len(rows) < len(partitions) or any(row[1] for row in rows):
        client.force_metadata_update()  # in the background, for the next time
    return {partition: offset for partition, code, _timestamp, offset in rows if code == 0}


async def delete_records(client: Any, topic: str, before: Mapping[int, int]) -> dict[int, str]:
    """Delete the records below the offset `before` of each partition; return the names of the errors, by partition.

    Every leader is asked once, whatever the others answer: aiokafka's admin client raises the first error, and asks no
    further. A leader in trouble is asked again when the caller tries again. ValueError for a negative offset: Kafka
    takes -1 for the end.
    """
    if min(before.values(), default=0) < 0:
        raise ValueError(f"{topic}: an offset below which records are deleted is negative")
    if any(leader_of(client, topic, partition) is None for partition in before):
        await client.force_metadata_update()
    by_leader: dict[int | None, dict[int, int]] = {}
    for partition, offset in before.items():
        by_leader.setdefault(leader_of(client, topic, partition), {})[partition] = offset
    failed = dict.fromkeys(by_leader.pop(None, ()), LeaderNotAvailableError.__name__)
    answers = await asyncio.gather(
        *(
            client.send(leader, DeleteRecordsRequest([(topic, its.items())], DELETE_MS_MAX))
            for leader, its in by_leader.items()
        ),
        return_exceptions=True,
    )
    for its, answer in zip(by_leader.values(), answers, strict=True):
        if not isinstance(answer, BaseException):
            rows = answer.topics[0][1]
            failed |= {row[0]: for_code(row[2]).__name__ for row in rows if row[2]}
        elif isinstance(answer, KafkaError):
            failed |= dict.fromkeys(its, type(answer).__name__)
        else:
            raise answer
    if failed:
        client.force_metadata_update()  # in the background, for the next time
    return failed


async def is_old(client: Any, topic: str, partition: int, offset: int) -> bool:
    """Return whether the log holds `offset` in a format from before Kafka 0.11."""
    _, content = await _fetched(client, topic, partition, offset, HEAD.size)
    return is_old_format(content)


async def batch_at(client: Any, topic: str, partition: int, offset: int) -> Fingerprint | None:
    """Return the fingerprint of the record batch that contains `offset`.

    Return None if the log does not hold that offset, or holds it in a format other than v2.
    """
    _, content = await _fetched(client, topic, partition, offset, HEAD.size)
    return parse_head(content[: HEAD.size], offset)


def parse_head(head: bytes, offset: int) -> Fingerprint | None:
    """Return the fingerprint of the record batch that begins with `head`.

    Return None if that is no head of format v2, or if the batch does not contain `offset`.
    """
    if len(head) < HEAD.size:
        return None
    base, _length, _leader, magic, crc, _attributes, last, stamped_ms, _, *rest = HEAD.unpack(head)
    producer_id, epoch, *_ = rest
    if magic != MAGIC or not base <= offset <= base + last:
        return None
    return Fingerprint(
        offset=base, producer_id=producer_id, epoch=epoch, crc=crc, stamped_ms=stamped_ms
    )


async def last_writes(client: Any, topic: str, partition: int) -> Sequence[LastWrite] | None:
    """Return the last write of each producer with an id that wrote to a partition lately.

    The leader forgets a producer some days after its last write (`producer.id.expiration.ms`,
    `transactional.id.expiration.ms`). Return None if it does not answer that: brokers before 2.8 do not, nor do others
    without the right Read on the topic.
    """

    def written(response: Any) -> list[LastWrite]:
        _partition, code, _message, producers, *_ = response.topics[0][1][0]
        raise_for(code)
        return [LastWrite(number, epoch, at_ms) for number, epoch, _last, at_ms, *_ in producers]

    try:
        request = DescribeProducers(topic, partition)
        return (await _of_leader(client, topic, partition, request, written))[1]
    except (IncompatibleBrokerVersion, NotImplementedError, TopicAuthorizationFailedError):
        return None


async def stamp(client: Any, topic: str, partition: int, start: int, end: int) -> Stamp | None:
    """Return the first stamp by the leader's own clock at offsets from `start` to `end` (exclusive).

    Return None if there is none, or not yet, or if the log no longer holds `start`.
    """
    while start < end:
        found = await _first_stamp(client, topic, partition, start)
        if not isinstance(found, int):
            return found if found is not None and found.offset < end else None
        start = found
    return None


async def _first_stamp(client: Any, topic: str, partition: int, start: int) -> Stamp | int | None:
    """Return the first stamp in one fetch from `start`; without one the next offset, None at the end of the log."""
    leader, content = await _fetched(client, topic, partition, start, STAMP_BYTES)
    after = None
    for batch in record_batches(content):
        if batch.last_offset >= start and (batch.is_control or batch.is_appended):
            return Stamp(leader, batch.last_offset, batch.last_ms)
        after = batch.last_offset + 1
    return after


def leader_of(client: Any, topic: str, partition: int) -> int | None:
    """Return the node id of the leader, as the last metadata have it; None if there is none."""
    leader = client.cluster.leader_for_partition(TopicPartition(topic, partition))
    return None if leader in (None, -1) else int(leader)


async def _fetched(
    client: Any, topic: str, partition: int, offset: int, bytes_max: int
) -> tuple[int, bytes]:
    """Return the leader, and the log's bytes from the record batch with `offset` on; none if it does not hold that."""

    def content_in(response: Any) -> bytes:
        raise_for(getattr(response, "error_code", 0))
        _partition, code, *_, content = response.topics[0][1][0]
        if for_code(code) is OffsetOutOfRangeError:
            return b""
        raise_for(code)
        return bytes(content or b"")

    request = fetch_one(topic, partition, offset, bytes_max)
    return await _of_leader(client, topic, partition, request, content_in)


async def _of_leader(
    client: Any, topic: str, partition: int, request: Any, answer_in: Callable[[Any], T]
) -> tuple[int, T]:
    """Return the leader, and what `answer_in` finds in its response; repeat both if a new leader may help."""

    async def ask() -> tuple[int, T]:
        leader = leader_of(client, topic, partition)
        if leader is None:
            raise StaleMetadata
        return leader, answer_in(await client.send(leader, request))

    return await asked_again(client, ask, RETRY_S)


async def committed_events(
    options: KafkaOptions,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    stall_s: float,
    large: LargeBatches,
) -> AsyncGenerator[EventBatch]:
    """Yield the events of committed transactions at offsets from `start` to `end` (exclusive).

    Raise TrimmedError if the log no longer holds an offset that is needed, and TimeoutError if no progress is made for
    `stall_s` seconds.
    """
    if start >= end:
        return
    where = TopicPartition(topic, partition)
    consumer = never_creating(
        ColumnarConsumer(
            **await client_arguments(options),
            isolation_level="read_committed",
            auto_offset_reset="none",
            enable_auto_commit=False,
            max_partition_fetch_bytes=CHUNK_BYTES,
        )
    )
    permit = Permit(large, f"{topic}/{partition}")
    try:
        with starting():
            await consumer.start()
        consumer.assign([where])
        consumer.seek(where, start)
        position, loop = start, asyncio.get_running_loop()
        moved_at = loop.time()
        while position < end:
            try:
                batch = await consumer.next_batch(where, 200)
            except OffsetOutOfRangeError:
                raise TrimmedError(
                    f"{topic}/{partition} no longer holds offset {position}"
                ) from None
            except OldFormatError as error:
                raise OldRecordsError(topic, partition, error.offset) from None
            if isinstance(batch, PendingDecode):
                await permit.decode(batch)
                moved_at = loop.time()
                continue
            reached = await consumer.position(where)
            if batch and (below_end := int(batch.offsets.searchsorted(end))):
                yield batch if below_end == len(batch) else batch.head(below_end)
            del batch  # it may be of a large one, which gives its permit back now
            permit.passed(reached)
            if reached > position:
                position, moved_at = reached, loop.time()
            elif loop.time() - moved_at > stall_s:
                raise TimeoutError(
                    f"{topic}/{partition}: nothing could be read at offset {position} for {stall_s:g} s"
                )
            await asyncio.sleep(0)  # give the loop a turn: prefetched events come at once
    finally:
        permit.give_back()
        await close_consumer(consumer)
