"""A broker in memory: topics with ids, transactions, consumer groups; and what an operator or a test does to them.

A worker's requests go through a `Network`, which may delay or lose them. A test's calls take effect at once.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar
from uuid import UUID

from aiokafka.errors import (
    InvalidTimestampError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)

from streamdedup.delivery.services import wall_clock_ms
from streamdedup.errors import ConfigError
from streamdedup.kafka.brokers import Broker
from streamdedup.kafka.records.records import Record
from streamdedup.kafka.topics import FOREVER, RIGHTS_UNKNOWN, Topic
from streamdedup.testing.groups import Group
from streamdedup.testing.log import Logged, MemoryLog
from streamdedup.testing.network import Connection, DirectNetwork, Network
from streamdedup.testing.transactions import Transactions

T = TypeVar("T")

SETTINGS = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
}
REBALANCE_S = 60.0
FETCH_EVENTS_MAX = 1_000

Event = tuple[int, bytes | None, bytes | None]
"""Partition, key, value."""


@dataclass
class MemoryTopic:
    """A topic, and the logs of its partitions."""

    topic: Topic
    logs: list[MemoryLog] = field(default_factory=list)


class MemoryBroker:
    """A cluster of one broker.

    `now_ms` (ms since 1970) stamps events without a timestamp, and limits the timestamps that are accepted.
    """

    def __init__(
        self, network: Network | None = None, now_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self.network = network or DirectNetwork()
        self.now_ms = now_ms
        self.cluster_id = "memory"
        self.topics: dict[str, MemoryTopic] = {}
        self.groups: dict[str, Group] = {}
        self.transactions: dict[str, Transactions] = {}
        self.rebalance_s = REBALANCE_S
        self.fetch_events_max = FETCH_EVENTS_MAX
        self.lists_groups = True  # whether clients have the right to list all groups
        self.describes_producers = True  # whether it tells who has written to a partition
        self.absent_rights: dict[str, int] = {}  # on topics that are not there, by name
        self.group_rights: dict[str, int] = {}
        self.brokers: list[Broker] = [Broker(node=0, address="memory:1", since="4.1", features={})]
        self.checks_rights: bool | None = False
        self.hidden_transactions: set[str] = set()  # transactional ids that we may not see
        self._ids = count(1)

    def create_topic(self, name: str, partitions: int = 1, **settings: str | int) -> None:
        """Create a topic. `cleanup_policy="compact"` sets `cleanup.policy`. ConfigError if the topic exists."""
        if name in self.topics:
            raise ConfigError(f"the topic {name} exists already; delete it first")
        given = {key.replace("_", "."): str(value) for key, value in settings.items()}
        topic_id = str(UUID(int=next(self._ids)))
        rights = self.absent_rights.get(name, RIGHTS_UNKNOWN)
        topic = Topic(name, topic_id, partitions, 1, rights, {**SETTINGS, **given})
        self.topics[name] = MemoryTopic(topic, [MemoryLog(self.now_ms) for _ in range(partitions)])

    def delete_topic(self, name: str, *, with_offsets: bool = True) -> None:
        """Delete a topic, and the offsets that groups have committed on it.

        A real cluster may delete the offsets later: `with_offsets=False` keeps them.
        """
        del self.topics[name]
        for group in self.groups.values() if with_offsets else ():
            for where in [where for where in group.offsets if where[0] == name]:
                del group.offsets[where]

    def add_partitions(self, name: str, partitions: int) -> None:
        """Increase the number of partitions to `partitions`."""
        known = self.topics[name]
        known.logs += [MemoryLog(self.now_ms) for _ in range(partitions - len(known.logs))]
        old = known.topic
        known.topic = Topic(old.name, old.topic_id, len(known.logs), 1, settings=old.settings)

    def produce(self, topic: str, events: Iterable[Event], *, abort: bool = False) -> None:
        """Append events, stamped now; with `abort`, in a transaction that is then aborted."""
        name = f"test-{next(self._ids)}" if abort else None
        written = set()
        for partition, key, value in events:
            self.log(topic, partition).append([Record.of(self.now_ms(), key, value)], name)
            written.add(partition)
        for partition in sorted(written) if name else ():
            self.log(topic, partition).decide(name or "", committed=False)
            self.log(topic, partition).mark(name or "")

    def read_all(self, topic: str) -> list[list[Logged]]:
        """Return the committed events of each partition."""
        return [log.committed() for log in self.topics[topic].logs]

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the group's committed offset of each partition that has one."""
        offsets = self.group(group).offsets
        return {partition: at[0] for (name, partition), at in offsets.items() if name == topic}

    def members(self, group: str) -> int:
        """Return the number of members of a group whose sessions have not expired."""
        with suppress(RuntimeError):  # raised without a running loop; then no time passes
            self._tick()
        return len(self.group(group).members)

    def move_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set the group's committed offsets. ConfigError while it has members."""
        self._check_empty(group)
        for partition, offset in offsets.items():
            self.group(group).offsets[topic, partition] = (offset, "")

    def delete_group(self, group: str) -> None:
        """Delete all committed offsets of a group. ConfigError while it has members."""
        self._check_empty(group)
        self.group(group).offsets.clear()

    def group(self, name: str) -> Group:
        """Return a group; it is created when it is first asked for."""
        return self.groups.setdefault(name, Group())

    def log(self, topic: str, partition: int) -> MemoryLog:
        """Return a partition's log. UnknownTopicOrPartitionError if there is none."""
        known = self.topics.get(topic)
        if known is None or partition >= len(known.logs):
            raise UnknownTopicOrPartitionError
        return known.logs[partition]

    def transaction(self, transactional_id: str) -> Transactions:
        """Return the coordinator's state of a transactional id."""
        if transactional_id not in self.transactions:
            self.transactions[transactional_id] = Transactions(transactional_id, self.network.later)
        return self.transactions[transactional_id]

    def append(
        self,
        topic: str,
        partition: int,
        records: list[Record],
        writer: tuple[str, int] | None,
    ) -> int:
        """Handle a produce request, all records or none; return the offset of the first.

        `writer` is a transactional id and its epoch. InvalidTimestampError or MessageSizeTooLargeError if a record is
        refused.
        """
        log, limits = self.log(topic, partition), self.topics[topic].topic
        for timestamp, body in records:
            if limits.ahead_ms_max < FOREVER and timestamp > self.now_ms() + limits.ahead_ms_max:
                raise InvalidTimestampError
            if len(body) > limits.bytes_max:
                raise MessageSizeTooLargeError
        if writer is None:
            return log.append(records)
        transactional_id, epoch = writer
        return self.transaction(transactional_id).produce(epoch, log, records)

    def request(
        self, connection: Connection, call: str, act: Callable[[float], T]
    ) -> "asyncio.Future[T]":
        """Run `act` here when the request arrives, with the time of arrival in seconds of the loop's clock."""
        return connection.request(call, lambda: act(self._tick()))

    def _tick(self) -> float:
        """Expire sessions and transactions; return the time."""
        now = asyncio.get_running_loop().time()
        for group in self.groups.values():
            group.expire(now, self.rebalance_s)
        for transaction in self.transactions.values():
            transaction.expire(now)
        return now

    def _check_empty(self, group: str) -> None:
        if members := self.members(group):
            raise ConfigError(f"the group {group} has {members} members; stop them first")
