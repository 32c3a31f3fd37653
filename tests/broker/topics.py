"""Topics written, read and judged through confluent-kafka, which is not the client under test.

Everything waits for its effect with a deadline, so that a test never reads half a story.
"""

import base64
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from uuid import UUID

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.broker.base import admin_client, client_config, wait_until

DEADLINE_S = 60.0

Header = tuple[str, bytes | None]
Event = tuple[int, bytes | None, bytes | None, list[Header], int | None]
"""Partition, key, value, headers, timestamp in ms (None or 0: now)."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it stands in the log."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int | None


def unique_name(prefix: str) -> str:
    """Make a name for a topic, group or transactional id that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def create_topic(bootstrap: str, name: str, partitions: int = 1, **config: str | int) -> None:
    """Create a topic with one replica; `cleanup_policy="compact"` sets `cleanup.policy`."""
    settings = {key.replace("_", "."): str(value) for key, value in config.items()}
    create_replicated(bootstrap, name, partitions, 1, settings)


def create_replicated(
    bootstrap: str, name: str, partitions: int, replicas: int, settings: Mapping[str, str]
) -> None:
    """Create a topic with so many replicas; returns when each partition has a leader."""
    topic = NewTopic(name, partitions, replicas, config=dict(settings))
    admin = admin_client(bootstrap)
    _result(admin.create_topics([topic])[name])
    wait_until(
        lambda: len(_partitions_led(admin, name)) == partitions,
        DEADLINE_S,
        lambda: f"not every partition of {name} has a leader",
    )


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic; returns when the cluster does not list it any more."""
    admin = admin_client(bootstrap)
    _result(admin.delete_topics([name])[name])
    wait_until(
        lambda: name not in admin.list_topics(timeout=DEADLINE_S).topics,
        DEADLINE_S,
        lambda: f"{name} is still listed",
    )


def produce(
    bootstrap: str,
    topic: str,
    events: Iterable[Event],
    transactional_id: str | None = None,
    abort: bool = False,
) -> None:
    """Append `events` in their order, in one transaction if an id is given.

    With `abort` they are first written to the log, then aborted.
    """
    if abort and transactional_id is None:
        raise ValueError("abort=True needs a transactional_id")
    config = client_config(bootstrap) | {"message.timeout.ms": int(DEADLINE_S * 1000)}
    if transactional_id is None:
        # One request at a time keeps the order, too; for an idempotent producer's id librdkafka waits half a second.
        _send(Producer(config | {"max.in.flight": 1}), topic, events)
        return
    producer = Producer({**config, "transactional.id": transactional_id})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    _send(producer, topic, events)
    (producer.abort_transaction if abort else producer.commit_transaction)(DEADLINE_S)


def read_all(
    bootstrap: str,
    topic: str,
    isolation: str = "read_committed",
    deadline_s: float = DEADLINE_S,
) -> list[Record]:
    """Read all records of the topic, by partition and offset.

    `read_committed` ends at the last stable offset, `read_uncommitted` at the high watermark.
    """
    consumer = Consumer(
        client_config(bootstrap)
        | {
            "group.id": unique_name("read-all"),
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 10,  # the end of a partition is told after an empty fetch
        }
    )
    try:
        # Asked by this client, which then knows the leaders: else it looks for them only after half a second.
        partitions = set(_partitions(consumer, topic, deadline_s))
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        records: list[Record] = []

        def ended() -> bool:
            for message in consumer.consume(10_000, timeout=0.02):
                if error := message.error():
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    partitions.discard(_known(message.partition()))
                else:
                    records.append(_record(message))
            return not partitions

        wait_until(ended, deadline_s, lambda: f"{topic}: no end of partitions {sorted(partitions)}")
    finally:
        consumer.close()
    return sorted(records, key=lambda record: (record.partition, record.offset))


def committed(
    bootstrap: str, group: str, topic: str, *, require_stable: bool = True
) -> dict[int, int]:
    """Return the group's committed offset of each partition that has one.

    With `require_stable`, waits while a transaction with offsets is open: its end would change the
    answer.
    """
    # Not by the admin client: librdkafka 2.x ends the process where a coordinator that loads answers it.
    isolation = "read_committed" if require_stable else "read_uncommitted"
    consumer = Consumer(
        client_config(bootstrap) | {"group.id": group, "isolation.level": isolation}
    )
    try:
        asked = [TopicPartition(topic, partition) for partition in _partitions(consumer, topic)]
        answer = wait_until(
            lambda: _unless(lambda: consumer.committed(asked, DEADLINE_S), *_UNSETTLED),
            DEADLINE_S,
            lambda: f"{group} has an open transaction on {topic}",
        )
    finally:
        consumer.close()
    return {p.partition: p.offset for p in answer or () if p.offset != OFFSET_INVALID}


def move_offsets(bootstrap: str, group: str, offsets: Mapping[int, int], topic: str) -> None:
    """Set the group's committed offsets; waits until the group has no members."""
    admin = admin_client(bootstrap)
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]

    def moved() -> list[TopicPartition] | None:
        request = ConsumerGroupTopicPartitions(group, wanted)
        futures = admin.alter_consumer_group_offsets([request])
        return _unless(
            lambda: cast(list[TopicPartition], _result(futures[group]).topic_partitions),
            KafkaError.UNKNOWN_MEMBER_ID,
            KafkaError.NON_EMPTY_GROUP,
        )

    wait_until(moved, DEADLINE_S, lambda: f"{group} still has members")


def delete_records(bootstrap: str, topic: str, before: Mapping[int, int]) -> None:
    """Have the broker delete what stands before an offset, as retention does."""
    admin = admin_client(bootstrap)
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    for deleted in admin.delete_records(wanted).values():
        deleted.result(DEADLINE_S)


def alter_topic(bootstrap: str, name: str, **config: str | int) -> None:
    """Set some settings of a topic, as `create_topic` does; returns when the broker tells them."""
    admin = admin_client(bootstrap)
    entries = [
        ConfigEntry(key.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    _result(admin.incremental_alter_configs([resource])[resource])
    asked = ConfigResource(ResourceType.TOPIC, name)
    wait_until(
        lambda: all(
            _result(admin.describe_configs([asked])[asked])[entry.name].value == entry.value
            for entry in entries
        ),
        DEADLINE_S,
        lambda: f"{name} keeps its old settings",
    )


def cluster_id(bootstrap: str) -> str:
    """Return the cluster's id."""
    admin = admin_client(bootstrap)
    found: str = _result(admin.describe_cluster()).cluster_id
    return found


def topic_id(bootstrap: str, name: str) -> str:
    """Return the topic's id, in the form of a UUID."""
    admin = admin_client(bootstrap)
    described = _result(admin.describe_topics(TopicCollection([name]))[name])
    return str(UUID(bytes=base64.urlsafe_b64decode(f"{described.topic_id}==")))


def _partitions(
    client: AdminClient | Consumer, topic: str, deadline_s: float = DEADLINE_S
) -> list[int]:
    # All topics: asking for one by its name may create it.
    topics = client.list_topics(timeout=deadline_s).topics
    if topic not in topics:
        raise LookupError(f"topic {topic} does not exist; create_topic first")
    return list(topics[topic].partitions)


def _partitions_led(admin: AdminClient, topic: str) -> list[int]:
    found = admin.list_topics(timeout=DEADLINE_S).topics.get(topic)
    return [p.id for p in found.partitions.values() if p.leader >= 0] if found else []


def _send(producer: Producer, topic: str, events: Iterable[Event]) -> None:
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error:
            failures.append(error)

    for partition, key, value, headers, timestamp_ms in events:
        append = partial(
            producer.produce,
            topic,
            value,
            key,
            partition,
            on_delivery=on_delivery,
            timestamp=timestamp_ms or 0,
            headers=[*headers],
        )
        while not _appended(append):
            producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(DEADLINE_S)
    if failures or left:
        raise KafkaException(failures[0] if failures else KafkaError(KafkaError._MSG_TIMED_OUT))


def _appended(append: Callable[[], None]) -> bool:
    try:
        append()
    except BufferError:  # the client's queue is full: wait for deliveries
        return False
    return True


def _record(message: Message) -> Record:
    timestamp_type, timestamp_ms = message.timestamp()
    return Record(
        partition=_known(message.partition()),
        offset=_known(message.offset()),
        key=message.key(),
        value=message.value(),
        headers=tuple(cast(list[Header], message.headers() or [])),
        timestamp_ms=timestamp_ms if timestamp_type else None,
    )


def _known(number: int | None) -> int:
    assert number is not None
    return number


def _result(future: "Future[Any]") -> Any:
    return future.result(DEADLINE_S)


_UNSETTLED = (
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


def _unless(ask: Callable[[], list[TopicPartition]], *passing: int) -> list[TopicPartition] | None:
    """Return the group's partitions; None if the error is one of those that pass."""
    try:
        partitions = ask()
        for partition in partitions:
            if partition.error:
                raise KafkaException(partition.error)
    except KafkaException as error:
        if error.args[0].code() in passing:
            return None
        raise
    return partitions
