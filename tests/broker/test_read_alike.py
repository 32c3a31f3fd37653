"""What our consumer reads of a real broker as columns is what aiokafka's own reads as objects: that is the oracle."""

import asyncio

from tests.broker.reading import Reader, producer, put, sample
from tests.broker.topics import delete_records, unique_name


async def test_only_committed_events_are_read(reader: Reader) -> None:
    """Of transactions that interleave, some aborted, and of a writer without; markers take offsets."""
    topic, records = reader.topic(), sample(300)
    bootstrap = reader.bootstrap
    async with (
        producer(bootstrap, transactional_id=unique_name("t")) as first,
        producer(bootstrap, transactional_id=unique_name("t")) as second,
        producer(bootstrap) as plain,
    ):
        for number in range(10):
            part = records[30 * number : 30 * number + 30]
            await first.begin_transaction()
            await second.begin_transaction()
            await put(first, topic, part[:5])
            await put(second, topic, part[5:10])
            await put(plain, topic, part[10:15])
            await put(first, topic, part[15:20])
            await put(second, topic, part[20:25])
            await (first.abort_transaction() if number % 3 else first.commit_transaction())
            await put(plain, topic, part[25:])
            await (second.abort_transaction() if number % 2 else second.commit_transaction())
    found = await reader.same(topic)
    assert len(found) == 10 * 10 + 4 * 10 + 5 * 10
    for start in (1, 7, 31, 100, 215):
        assert await reader.same(topic, start) == [e for e in found if e.offset >= start]


async def test_what_was_deleted_in_front_is_not_read(reader: Reader) -> None:
    """From the first offset that is left, in the middle of a batch."""
    topic = reader.topic()
    async with producer(reader.bootstrap) as sender:
        await put(sender, topic, sample(100))
    await asyncio.to_thread(delete_records, reader.bootstrap, topic, {0: 42})
    assert [event.offset for event in await reader.same(topic, 42)] == list(range(42, 100))
