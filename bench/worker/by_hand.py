"""De-duplication as one would write it by hand, with confluent-kafka and a set: consume, look, produce, commit.

Exactly once a batch of at most 20,000 events is a transaction, at least once it is flushed before its offsets are
committed. The set is only in memory: unlike the worker, it knows nothing after a restart.
"""

import signal
from typing import Any

import orjson
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Message, Producer

from bench.worker.asked import Asked, asked, tell_assigned

BATCH_EVENTS = 20_000
WAIT_S = 0.1
QUEUE_EVENTS = 1_000_000
ANSWER_S = 60.0


class Loop:
    """One consumer, one producer, one set."""

    def __init__(self, job: Asked) -> None:
        self._job, self._seen, self._stopped = job, set[Any](), False
        self._consumer = Consumer(
            {
                "bootstrap.servers": job.bootstrap,
                "group.id": job.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        transactional = {"transactional.id": job.group} if job.exactly_once else {}
        self._producer = Producer(
            {
                "bootstrap.servers": job.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": job.compression,
                "queue.buffering.max.messages": QUEUE_EVENTS,
                **transactional,
            }
        )
        if job.exactly_once:
            self._producer.init_transactions(ANSWER_S)

    def run(self) -> None:
        """Work until SIGTERM."""
        signal.signal(signal.SIGTERM, self._stop)
        self._consumer.subscribe(
            [self._job.source],
            on_assign=lambda _, found: tell_assigned(where.partition for where in found),
        )
        while not self._stopped:
            if messages := self._consumer.consume(BATCH_EVENTS, timeout=WAIT_S):
                self._pass_on(messages)
        self._consumer.close()

    def _pass_on(self, messages: list[Message]) -> None:
        """First occurrences, in one transaction or before one commit."""
        if self._job.exactly_once:
            self._producer.begin_transaction()
        seen, by_json = self._seen, self._job.key == "json"
        for message in messages:
            if error := message.error():
                raise KafkaException(error)
            value = message.value()
            key = orjson.loads(value or b"")["email"] if by_json else message.key()
            if key not in seen:
                seen.add(key)
                self._produce(message, value)
        if not self._job.exactly_once:
            self._producer.flush(ANSWER_S)
            self._consumer.commit(asynchronous=False)
            return
        read = self._consumer.position(self._consumer.assignment())
        self._producer.send_offsets_to_transaction(
            [where for where in read if where.offset != OFFSET_INVALID],
            self._consumer.consumer_group_metadata(),
        )
        self._producer.commit_transaction(ANSWER_S)

    def _produce(self, message: Message, value: bytes | None) -> None:
        _, timestamp_ms = message.timestamp()
        partition = message.partition() or 0
        self._producer.produce(
            self._job.sink, value, message.key(), partition, timestamp=timestamp_ms
        )

    def _stop(self, *_: object) -> None:
        self._stopped = True


if __name__ == "__main__":
    Loop(asked()).run()
