"""A producer that feeds a trial's input while faults happen: transactions, some of them aborted, many keys repeated.

It outlives a broker that is away; what it had under way then is in the input or not, which the oracle reads.
"""

import random
import threading
from collections.abc import Iterator

from confluent_kafka import KafkaException, Producer
from typing_extensions import override

from tests.broker.base import DEADLINE_S, client_config
from tests.broker.topics import unique_name

TURN_S = 0.05
ABORTED_SHARE = 0.1
KEYS_PER_EVENT = 0.65  # how fast the room of keys grows from which each event draws one
REPEATED_SHARE = 1 / (1 + KEYS_PER_EVENT)
"""Of many events, those whose key was drawn before.

The key that came in with event t is still not drawn at event n with chance (t / n) ** (1 / KEYS_PER_EVENT); summed over
all t, n * KEYS_PER_EVENT / (1 + KEYS_PER_EVENT) keys are drawn at all.
"""
JOIN_S = DEADLINE_S


class Feeder:
    """Appends about `rate` events a second, in a thread, until `finish`."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, rate: int, chance: random.Random
    ) -> None:
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._rate, self._chance = rate, chance
        self._keys = draw_keys(chance)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """End with a transaction that is decided, so that the input can be read to its end."""
        self._ending.set()
        self._thread.join(JOIN_S)
        assert not self._thread.is_alive(), "the feeder cannot end its last transaction"

    def _event(self, number: int) -> tuple[int, bytes | None, bytes]:
        """The partition, record key and value of an event of key `number`."""
        return number % self._partitions, b"user%d@example.com" % number, b"{}"

    def _run(self) -> None:
        """Feed, and begin with a new producer where the last one failed."""
        name = unique_name("feeder")
        while True:
            try:
                producer = Producer(
                    client_config(self._bootstrap)
                    | {
                        "transactional.id": name,
                        "transaction.timeout.ms": 10_000,
                        "linger.ms": 1,
                        "reconnect.backoff.max.ms": 500,
                    }
                )
                producer.init_transactions(DEADLINE_S)
                while not self._ending.is_set():
                    self._feed(producer)
            except KafkaException:
                self._ending.wait(TURN_S)
                continue
            return

    def _feed(self, producer: Producer) -> None:
        producer.begin_transaction()
        for _ in range(max(1, int(self._rate * TURN_S))):
            partition, key, value = self._event(next(self._keys))
            producer.produce(self._topic, value, key, partition)
        if self._chance.random() < ABORTED_SHARE:
            producer.flush(DEADLINE_S)
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
        self._ending.wait(TURN_S)


class KeylessFeeder(Feeder):
    """Its events have no record key, so those of one key lie in any partition."""

    @override
    def _event(self, number: int) -> tuple[int, bytes | None, bytes]:
        return self._chance.randrange(self._partitions), None, b'{"id": "user%d"}' % number


def draw_keys(chance: random.Random) -> Iterator[int]:
    """The number of each event's key, from a room that grows with the events."""
    room = 1.0
    while True:
        room += KEYS_PER_EVENT
        yield chance.randrange(int(room))
