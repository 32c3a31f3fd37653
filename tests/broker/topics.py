"""Topics written, read and judged through confluent-kafka, which is not the client under test.

Everything waits for its effect with a deadline, so that a test never reads half a story.
"""

import base64
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from uuid import UUID

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.broker.base import DEADLINE_S, admin_client, client_config, wait_until

LINGER_MS = 10_000

_COMMITTED = IsolationLevel.READ_COMMITTED
_EARLIEST: OffsetSpec = cast(Any, OffsetSpec).earliest()
_LATEST: OffsetSpec = cast(Any, OffsetSpec).latest()

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
    """Create a topic with so many replicas; returns when each partition has a leader that answers for it."""
    topic = NewTopic(name, partitions, replicas, config=dict(settings))
    admin = admin_client(bootstrap)
    _result(admin.create_topics([topic])[name])
    wait_until(
        lambda: len(_partitions_led(admin, name)) == partitions,
        DEADLINE_S,
        lambda: f"not every partition of {name} has a leader",
    )
    _offsets(admin, name, range(partitions), _LATEST)  # a leader is listed before it has the log


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic; returns when the cluster does not list it any more, and takes another of its name."""
    admin = admin_client(bootstrap)
    _result(admin.delete_topics([name])[name])

    def is_free() -> bool:
        if name in admin.list_topics(timeout=DEADLINE_S).topics:
            return False
        try:  # with ZooKeeper it is listed no more before it is gone
            _result(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    wait_until(is_free, DEADLINE_S, lambda: f"{name} is still there")


def produce(
    bootstrap: str,
    topic: str,
    events: Iterable[Event],
    transactional_id: str | None = None,
    abort: bool = False,
) -> None:
    """Append `events` in their order, in one transaction if an id is given.

    Those of one call and partition come in as few record batches as can be, so that whoever reads gets them together.
    With `abort` they are first written to the log, then aborted. Returns when the end of the transaction, too, is in
    the log: the broker acknowledges a commit or an abort before it writes the markers.
    """
    if abort and transactional_id is None:
        raise ValueError("abort=True needs a transactional_id")
    deadline_ms = int(DEADLINE_S * 1000)
    # Sent when all are there: `flush` does not wait for the linger.
    config = client_config(bootstrap) | {"message.timeout.ms": deadline_ms, "linger.ms": LINGER_MS}
    if transactional_id is None:
        # One request at a time keeps the order, too; for an idempotent producer's id librdkafka waits half a second.
        _send(Producer(config | {"max.in.flight": 1}), topic, events)
        return
    identity = {"transactional.id": transactional_id, "transaction.timeout.ms": deadline_ms}
    producer = Producer(config | identity)
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    ends = _send(producer, topic, events)
    (producer.abort_transaction if abort else producer.commit_transaction)(DEADLINE_S)
    wait_until_stable(bootstrap, topic, ends)


def wait_until_stable(
    bootstrap: str, topic: str, ends: Mapping[int, int], deadline_s: float = DEADLINE_S
) -> None:
    """Wait until every transaction with an event below these offsets, by partition, has its marker in the log.

    Everybody's transactions count: one that stays open makes this time out.
    """
    admin = admin_client(bootstrap)

    def unstable() -> dict[int, int]:
        stable = _offsets(admin, topic, ends, _LATEST, isolation=_COMMITTED)
        return {partition: at for partition, at in stable.items() if at < ends[partition]}

    wait_until(
        lambda: not unstable(),
        deadline_s,
        lambda: f"{topic} has an open transaction: it is stable up to {unstable()} of {ends}",
    )


def read_all(
    bootstrap: str,
    topic: str,
    isolation: str = "read_committed",
    deadline_s: float = DEADLINE_S,
) -> list[Record]:
    """Read all records that are in the topic now, by partition and offset.

    `read_committed` waits for the transactions that are open now, and leaves out what is aborted; `read_uncommitted`
    waits for none.
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
            "fetch.wait.max.ms": 10,  # the end of a partition is reported after an empty fetch
        }
    )
    try:
        # Asked by this client, which then knows the leaders: else it looks for them only after half a second.
        partitions = set(_partitions(consumer, topic, deadline_s))
        if isolation == "read_committed":
            admin = admin_client(bootstrap)
            ends = _offsets(admin, topic, partitions, _LATEST, deadline_s=deadline_s)
            wait_until_stable(bootstrap, topic, ends, deadline_s)
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


class GroupOffsets:
    """Asks for a group's committed offsets, as often as wanted, by one client: a new one for each answer costs more.

    With `require_stable`, waits while a transaction with offsets is open: its end would change the answer.
    """

    def __init__(
        self, bootstrap: str, group: str, topic: str, *, require_stable: bool = True
    ) -> None:
        # Not the admin client: librdkafka 2.x ends the process where a coordinator that loads answers it.
        isolation = "read_committed" if require_stable else "read_uncommitted"
        config = {"group.id": group, "isolation.level": isolation}
        self._group, self._topic = group, topic
        self._consumer = Consumer(client_config(bootstrap) | config)
        try:
            partitions = _partitions(self._consumer, topic)
        except BaseException:
            self.close()
            raise
        self._asked = [TopicPartition(topic, partition) for partition in partitions]

    def __call__(self) -> dict[int, int]:
        """Return the committed offset of each partition that has one."""
        answer = wait_until(
            lambda: _unless(lambda: self._consumer.committed(self._asked, DEADLINE_S), *_UNSETTLED),
            DEADLINE_S,
            lambda: f"{self._group} has an open transaction on {self._topic}",
        )
        return {p.partition: p.offset for p in answer or () if p.offset != OFFSET_INVALID}

    def close(self) -> None:
        """Let the client go."""
        self._consumer.close()


def committed(
    bootstrap: str, group: str, topic: str, *, require_stable: bool = True
) -> dict[int, int]:
    """Return the group's committed offsets once, as `GroupOffsets` does."""
    with closing(GroupOffsets(bootstrap, group, topic, require_stable=require_stable)) as asked:
        return asked()


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
    """Have the broker delete what stands before an offset, -1 for the end, as retention does.

    Waits until all transactions before it have their markers, so that -1 is behind them; then until the log starts
    there.
    """
    ends = end_offsets(bootstrap, topic)
    wanted = {p: ends[p] if offset == OFFSET_END else offset for p, offset in before.items()}
    wait_until_stable(bootstrap, topic, wanted)
    admin = admin_client(bootstrap)
    asked = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    starts = {
        each.partition: deleted.result(DEADLINE_S).low_watermark
        for each, deleted in admin.delete_records(asked).items()
    }
    wait_until(
        lambda: _offsets(admin, topic, starts, _EARLIEST) == starts,
        DEADLINE_S,
        lambda: f"the logs of {topic} do not start at {starts}",
    )


def end_offsets(bootstrap: str, topic: str, deadline_s: float = DEADLINE_S) -> dict[int, int]:
    """Return the offset behind the last record of each partition, markers and open transactions included."""
    admin = admin_client(bootstrap)
    partitions = [each.id for each in _described(admin, topic, deadline_s)]
    if not partitions:
        raise _no_such(topic)
    return _offsets(admin, topic, partitions, _LATEST, deadline_s=deadline_s)


def alter_topic(bootstrap: str, name: str, **config: str | int) -> None:
    """Set some settings of a topic, as `create_topic` does; returns when the broker reports them."""
    admin = admin_client(bootstrap)
    wanted = {key.replace("_", "."): str(value) for key, value in config.items()}
    _alter(admin, ResourceType.TOPIC, name, wanted)
    asked = ConfigResource(ResourceType.TOPIC, name)
    wait_until(
        lambda: all(
            _result(admin.describe_configs([asked])[asked])[setting].value == value
            for setting, value in wanted.items()
        ),
        DEADLINE_S,
        lambda: f"{name} keeps its old settings",
    )


def alter_broker(bootstrap: str, node: int, setting: str, value: str) -> None:
    """Set a setting of a running broker."""
    admin = admin_client(bootstrap)
    _alter(admin, ResourceType.BROKER, str(node), {setting: value})


def _alter(admin: AdminClient, kind: ResourceType, name: str, config: Mapping[str, str]) -> None:
    entries = [
        ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        for setting, value in config.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    _result(admin.incremental_alter_configs([resource])[resource])


def cluster_id(bootstrap: str) -> str:
    """Return the cluster's id."""
    admin = admin_client(bootstrap)
    found: str = _result(admin.describe_cluster()).cluster_id
    return found


def topic_id(bootstrap: str, name: str) -> str | None:
    """Return the topic's id, in the form of a UUID; None if the broker has no ids."""
    admin = admin_client(bootstrap)
    described = _result(admin.describe_topics(TopicCollection([name]))[name])
    found = UUID(bytes=base64.urlsafe_b64decode(f"{described.topic_id}=="))
    return str(found) if found.int else None


def _partitions(consumer: Consumer, topic: str, deadline_s: float = DEADLINE_S) -> list[int]:
    # By its name, which with other clients may create it: a broker of many tests has thousands of partitions.
    found = consumer.list_topics(topic, timeout=deadline_s).topics[topic]
    if found.error:
        raise _no_such(topic) if found.error.code() in _UNSERVED else KafkaException(found.error)
    return list(found.partitions)


def _described(
    admin: AdminClient, topic: str, deadline_s: float = DEADLINE_S
) -> list[TopicPartitionInfo]:
    """Return the partitions of a topic; none if it is not there."""
    answer = admin.describe_topics(TopicCollection([topic]), request_timeout=deadline_s)[topic]
    try:
        found: list[TopicPartitionInfo] = answer.result().partitions
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return []
    return found


def _partitions_led(admin: AdminClient, topic: str) -> list[int]:
    found = _described(admin, topic)
    return [each.id for each in found if each.leader is not None and each.leader.id >= 0]


def _no_such(topic: str) -> LookupError:
    return LookupError(f"topic {topic} does not exist; create_topic first")


def _offsets(
    admin: AdminClient,
    topic: str,
    partitions: Iterable[int],
    spec: OffsetSpec,
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    deadline_s: float = DEADLINE_S,
) -> dict[int, int]:
    """Return an offset of each partition, once all have leaders that answer."""
    asked = {TopicPartition(topic, partition): spec for partition in partitions}

    def offsets() -> dict[int, int] | None:
        found = admin.list_offsets(asked, isolation_level=isolation)
        try:
            return {
                each.partition: future.result(deadline_s).offset for each, future in found.items()
            }
        except KafkaException as error:
            if error.args[0].code() in _UNSERVED:
                return None
            raise

    if not asked:
        return {}
    return wait_until(offsets, deadline_s, lambda: f"not every leader of {topic} answers") or {}


def _send(producer: Producer, topic: str, events: Iterable[Event]) -> dict[int, int]:
    """Append events; return the offset behind the last one of each partition."""
    failures: list[KafkaError] = []
    ends: dict[int, int] = {}

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error:
            failures.append(error)
        else:
            ends[_known(message.partition())] = _known(message.offset()) + 1

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
    return ends


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


_UNSERVED = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)

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
