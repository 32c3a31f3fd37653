"""How far a contender is in its input, as seen from outside: by what it commits."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition

from bench.worker.contenders import Clock, Contender, Topics
from bench.worker.events import Part
from tests.broker.base import client_config

ANSWER_S_MAX = 60.0
UNCOMMITTED = {"isolation.level": "read_uncommitted"}  # an end is that of the log, whatever is open

Ends = Callable[[], list[int]]
"""How many events of each partition of the input are done with."""


@contextmanager
def followed(topics: Topics, contender: Contender, inputs: Sequence[Part]) -> Iterator[Ends]:
    """A function that tells it."""
    consumer, copier = (
        Consumer(client_config(topics.bootstrap) | {"group.id": group} | UNCOMMITTED)
        for group in (topics.group, f"{topics.group}-repartition")
    )
    copied = _committed(copier, topics.source, len(inputs))
    match contender.clock:
        case Clock.COMMITTED:
            ends = _committed(consumer, topics.source, len(inputs))
        case Clock.COPIED:
            ends = copied
        case Clock.PASSED:
            ends = _passed(consumer, topics.middle, inputs, copied)
    try:
        yield ends
    finally:
        consumer.close()
        copier.close()


def _committed(consumer: Consumer, topic: str, partitions: int) -> Ends:
    """The group's offsets; 0 where it has none."""
    asked = [TopicPartition(topic, partition) for partition in range(partitions)]

    def ends() -> list[int]:
        answer = consumer.committed(asked, ANSWER_S_MAX)
        return [0 if where.offset == OFFSET_INVALID else where.offset for where in answer]

    return ends


def _passed(consumer: Consumer, middle: str, inputs: Sequence[Part], copied: Ends) -> Ends:
    """All of the input, once both stages are through; else nothing.

    The end of each partition of the middle topic is the mark of the last transaction, which has one offset.
    """
    whole, nothing = [len(part.numbers) for part in inputs], [0] * len(inputs)
    committed = _committed(consumer, middle, len(inputs))

    def ends() -> list[int]:
        if copied() != whole:
            return nothing
        asked = [TopicPartition(middle, partition) for partition in range(len(inputs))]
        tops = [consumer.get_watermark_offsets(each, ANSWER_S_MAX)[1] for each in asked]
        passed = zip(committed(), tops, strict=True)
        return whole if all(offset >= top - 1 for offset, top in passed) else nothing

    return ends
