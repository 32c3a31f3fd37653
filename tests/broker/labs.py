"""What the claims about a cluster differ in: a real broker, and the one in memory."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count

import pytest
from confluent_kafka import Producer
from typing_extensions import override

from streamdedup.kafka.base import Connect
from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.kafka.records.records import Record
from streamdedup.testing import MemoryBroker, connected_to
from tests.broker.base import DEADLINE_S, Broker, client_config
from tests.broker.needs import AHEAD, FEATURES, served_by
from tests.broker.topics import Event, create_topic, delete_records, produce, unique_name

PARTITIONS = 48  # one for each test
NOW_MS = 1_750_000_000_000
HOUR_MS = 3_600_000


class Lab:
    """What a test does to a cluster beside the seam. Every test has a partition of its own, of shared topics."""

    connect: Connect
    bootstrap: str

    def __init__(self) -> None:
        self.source, self.output = self.create(PARTITIONS), self.create(PARTITIONS)
        self._partitions = count()

    def partition(self) -> int:
        """The next that nobody has written to."""
        return next(self._partitions)

    def create(self, partitions: int, **settings: str | int) -> str:
        """A new topic's name."""
        raise NotImplementedError

    def produce(
        self, topic: str, partition: int, keys: Iterable[bytes], *, abort: bool = False
    ) -> None:
        """Append events."""
        raise NotImplementedError

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Delete what stands before an offset."""
        raise NotImplementedError

    def open_transaction(self, topic: str, partition: int) -> AbstractContextManager[None]:
        """Somebody else's transaction, with one event, which is committed at the end."""
        raise NotImplementedError


class MemoryLab(Lab):
    """In memory."""

    bootstrap = "memory:1"

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.connect = connected_to(self.broker)
        super().__init__()

    @override
    def create(self, partitions: int, **settings: str | int) -> str:
        name = f"topic-{len(self.broker.topics)}"
        self.broker.create_topic(name, partitions, **settings)
        return name

    @override
    def produce(
        self, topic: str, partition: int, keys: Iterable[bytes], *, abort: bool = False
    ) -> None:
        self.broker.produce(topic, [(partition, key, b"value") for key in keys], abort=abort)

    @override
    def trim(self, topic: str, partition: int, before: int) -> None:
        self.broker.log(topic, partition).trim(before)

    @contextmanager
    @override
    def open_transaction(self, topic: str, partition: int) -> Iterator[None]:
        log, transaction = self.broker.log(topic, partition), self.broker.transaction("foreign")
        epoch = transaction.fence(DEADLINE_S)
        transaction.add(epoch, log, asyncio.get_running_loop().time())
        transaction.produce(epoch, log, [Record.of(NOW_MS, b"foreign", None, ())])
        yield
        transaction.end(epoch, commit=True)


class KafkaLab(Lab):
    """On a real broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap, self.connect = bootstrap, kafka_cluster
        limited = FEATURES[AHEAD].is_served(served_by(bootstrap))  # by default from 4.0 on
        self._limits: dict[str, str | int] = {}
        if limited:
            self._limits = {"message_timestamp_after_max_ms": HOUR_MS}
        super().__init__()

    @override
    def create(self, partitions: int, **settings: str | int) -> str:
        name = unique_name("cluster")
        create_topic(self.bootstrap, name, partitions, **{**self._limits, **settings})
        return name

    @override
    def produce(
        self, topic: str, partition: int, keys: Iterable[bytes], *, abort: bool = False
    ) -> None:
        events: list[Event] = [(partition, key, b"value", [], None) for key in keys]
        produce(self.bootstrap, topic, events, unique_name("t") if abort else None, abort)

    @override
    def trim(self, topic: str, partition: int, before: int) -> None:
        delete_records(self.bootstrap, topic, {partition: before})

    @contextmanager
    @override
    def open_transaction(self, topic: str, partition: int) -> Iterator[None]:
        identity = {"transactional.id": unique_name("foreign")}
        producer = Producer(client_config(self.bootstrap) | identity)
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        producer.produce(topic, b"value", b"foreign", partition)
        producer.flush(DEADLINE_S)
        yield
        producer.commit_transaction(DEADLINE_S)


@pytest.fixture(scope="module")
def memory_lab() -> Lab:
    """One for all tests of this process."""
    return MemoryLab()


@pytest.fixture(scope="class")
def kafka_lab(broker: Broker) -> Lab:
    """One for all tests of a class, in this process."""
    return KafkaLab(broker.bootstrap_servers)
