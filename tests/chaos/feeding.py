"""A producer that feeds a trial's input while faults happen: transactions, some of them aborted, many keys repeated.

It outlives a broker that is away; what it had under way then is in the input or not, which the oracle reads.
"""

import random
import threading

from confluent_kafka import KafkaException, Producer

from tests.broker.base import client_config
from tests.broker.topics import DEADLINE_S, unique_name

TURN_S = 0.05
ABORTED_SHARE = 0.1
KEYS_A_SECOND = 0.65  # of the events' number: the rest repeat one of them
JOIN_S = 90.0


class Feeder:
    """Appends about `rate` events a second, in a thread, until `finish`."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, rate: int, chance: random.Random
    ) -> None:
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._rate, self._chance = rate, chance
        self._keys = 1.0  # how many different ones there are by now
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """End with a transaction that is decided, so that the input can be read to its end."""
        self._ending.set()
        self._thread.join(JOIN_S)
        assert not self._thread.is_alive(), "the feeder cannot end its last transaction"

    def _run(self) -> None:
        """Feed, and begin with a new producer where the last one failed."""
        name = unique_name("feeder")
        while True:
            try:
                producer = Producer(
                    client_config(self._bootstrap)
                    | {"transactional.id": name, "transaction.timeout.ms": 10_000, "linger.ms": 1}
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
            self._keys += KEYS_A_SECOND
            number = self._chance.randrange(int(self._keys))
            key = b"user%d@example.com" % number
            producer.produce(self._topic, b"{}", key, number % self._partitions)
        if self._chance.random() < ABORTED_SHARE:
            producer.flush(DEADLINE_S)
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
        self._ending.wait(TURN_S)
