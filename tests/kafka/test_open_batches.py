"""The produce seam: what aiokafka stamps on the record batches that we give it."""

from struct import unpack_from
from typing import Any

import numpy as np
import pytest
from aiokafka import TopicPartition
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.record.default_records import DefaultRecordBatch

from streamdedup.kafka.client.open_batches import OpenBatches
from streamdedup.kafka.records.codecs import CODECS
from streamdedup.kafka.records.records import Record, batch_of
from tests.kafka.test_columns import batch, fetched

HERE = TopicPartition("topic", 3)
LAST = 2**31 - 1  # Kafka's greatest sequence number; 0 follows it
SEQUENCE_AT = 53


def copied(count: int) -> Any:
    """A batch of `count` records."""
    [found] = fetched(batch(0, [b"key"] * count), events_max=count)
    batches = OpenBatches(CODECS["none"], transactional=True)
    list(batches.copy("topic", found, np.arange(count), 1 << 20))
    [made] = batches.finish("topic")
    return made


@pytest.mark.parametrize("times", [[-1, 5, 6], [5, -1, 6], [-1, -1], [-1, 5, -1, -1, 7]])
def test_an_event_without_a_time_keeps_none(times: list[int]) -> None:
    """Whatever the times of the events before and after it."""
    batches, made = OpenBatches(CODECS["none"], transactional=True), list[Any]()
    records = [Record.of(at, b"key", b"value") for at in times]
    events = batch_of("in", 0, range(len(times)), records, next_offset=len(times))
    made += batches.copy("topic", events, np.arange(len(times)), 1 << 20)
    made += batches.finish("topic")
    read = [record.timestamp for one in made for record in DefaultRecordBatch(bytes(one._build()))]
    assert read == times


@pytest.mark.parametrize("sent", [0, LAST - 3, LAST, 2 * LAST, 2**32 - 3, 2**32])
async def test_sequence_numbers_go_on_at_0_after_the_last(sent: int) -> None:
    """After `sent` records the producer numbers the next as Kafka does, however far aiokafka has counted."""
    manager = TransactionManager(None, 0)
    manager.set_pid_and_epoch(9, 1)
    for part in (sent // 2, sent - sent // 2):
        manager.increment_sequence_number(HERE, part)
    for count in (3, 2, 4):
        one = copied(count)
        one._set_producer_state(9, 1, manager.sequence_number(HERE))
        manager.increment_sequence_number(HERE, count)
        assert unpack_from(">i", one._build(), SEQUENCE_AT) == (sent % (LAST + 1),)
        sent += count
