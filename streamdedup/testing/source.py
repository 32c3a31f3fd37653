"""One member of a consumer group over a broker in memory: implements `kafka.base.Sources`.

A task of its own keeps the membership, as in aiokafka: it sends heartbeats, and joins again if the group rebalances or
has thrown it out. It only notes the new assignment. A group that refuses it is asked again every few seconds.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from random import uniform
from typing import TypeVar

from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from streamdedup.events import EventBatch
from streamdedup.kafka.base import Membership, Reach
from streamdedup.kafka.client.patience import Patience, start_patiently
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.records import CHUNK_EVENTS
from streamdedup.kafka.source import REJOIN_S_MAX, REJOIN_S_MIN
from streamdedup.testing.broker import MemoryBroker
from streamdedup.testing.groups import Member
from streamdedup.testing.log import Logged, batch_of_logged

T = TypeVar("T")

DEFAULTS = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 3_000}
JOIN_POLL_S = 0.02


class MemoryMember:
    """One member of the group, which reads some topics."""

    def __init__(
        self,
        broker: MemoryBroker,
        options: KafkaOptions,
        topics: Collection[str],
        patience: Patience,
        assignor: str,
        *,
        group: str | None = None,
    ) -> None:
        self.broker, self._options, self._topics = broker, options, frozenset(topics)
        self._group_id = group or options.group_id
        self._patience, self._assignor = patience, assignor
        self._refused_since: float | None = None
        given = {**DEFAULTS, **options.consumer}
        self._session_s = float(given["session_timeout_ms"]) / 1000
        self._heartbeat_s = float(given["heartbeat_interval_ms"]) / 1000
        self._fetching, self._keeping = broker.network.connect(), broker.network.connect()
        self._epoch = 0
        self._assigned: frozenset[InputPartition] | None = None
        self._member: Membership | None = None
        self._name: str | None = None
        self._generation = -1
        self._partitions: dict[str, int] = {}  # of each topic, when we joined
        self._changed = False  # whether other topics were subscribed since
        self.positions: dict[InputPartition, int] = {}
        self.held: set[InputPartition] = set()
        self.ends: dict[InputPartition, int] = {}
        self.stable: dict[InputPartition, int] = {}
        self._membership: asyncio.Task[None] | None = None

    @property
    def epoch(self) -> int:
        """The number of assignments and revocations so far."""
        return self._epoch

    @property
    def assigned(self) -> frozenset[InputPartition] | None:
        """The partitions assigned to this member in this epoch; None while the group rebalances."""
        return self._assigned

    def topics(self) -> dict[str, int]:
        """Return the topics that it reads, each with its number of partitions when it joined."""
        return dict(self._partitions)

    def assign_anew(self) -> bool:
        """Return False: the group in memory compares its assignment with the topics at each heartbeat."""
        return False

    def assigned_of(self, topic: str) -> frozenset[int] | None:
        """Return the numbers of the partitions of `topic` that are assigned; None while the group rebalances."""
        ours = self._assigned
        return None if ours is None else frozenset(p.number for p in ours if p.topic == topic)

    def grown(self, topic: str, partitions: int) -> None:
        """Do nothing: each heartbeat checks the number of partitions."""

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics from now on. The epoch ends, and the group assigns anew."""
        self._topics, self._changed = frozenset(topics), True
        self._revoke()

    @property
    def membership(self) -> Membership | None:
        """Who this member was to the group when `assigned` was; None while the group rebalances."""
        return self._member

    @property
    def refused_since(self) -> float | None:
        """When the group began to refuse us, because its members have another assignor; None if it does not."""
        return self._refused_since

    async def start(self) -> None:
        """Begin to join the group."""
        await start_patiently(
            lambda: self._group("find_coordinator", lambda _: None), "the group", self._patience
        )
        self._membership = asyncio.create_task(self._keep())

    async def stop(self, within_s: float) -> bool:
        """Leave the group; return False if the broker did not learn of it within `within_s` seconds."""
        if self._membership is None:
            return True
        self._membership.cancel()
        if self._options.group_instance_id:  # a static member does not leave: its place is kept
            return True
        try:
            async with asyncio.timeout(within_s):
                await self._group("leave_group", self._leave)
        except (KafkaError, TimeoutError):
            return False
        return True

    async def keep_alive(self, wait_s: float) -> None:
        """Wait for `wait_s` seconds; raise the error that ended the membership, if there is one."""
        if self._membership is not None and self._membership.done():
            self._membership.result()
        await asyncio.sleep(wait_s)

    async def confirms(self, epoch: int) -> bool:
        """Ask the group now; return whether the assignment of `epoch` still holds."""
        if self._epoch != epoch or self._assigned is None:
            return False
        try:
            await self._group("heartbeat", self._beat)
        except (RebalanceInProgressError, UnknownMemberIdError, IllegalGenerationError):
            return False
        return self._epoch == epoch

    def hold(self, where: InputPartition) -> None:
        """Fetch nothing from a partition until `go_to` is called for it."""
        self.held.add(where)

    def go_to(self, where: InputPartition, offset: int) -> None:
        """Continue to read a partition at `offset`."""
        self.positions[where] = offset
        self.held.discard(where)

    async def read(
        self, where: InputPartition, epoch: int, wait_s: float, events_max: int
    ) -> EventBatch | None:
        """Return the next events of a partition; None after `wait_s` seconds, or in another epoch."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        events_max = min(events_max, CHUNK_EVENTS, self.broker.fetch_events_max)
        while True:
            events: list[Logged] = []
            if where in (self._assigned or ()) and where not in self.held:
                events = await self._fetch(where, epoch, events_max)
            if events and self.epoch == epoch:
                return batch_of_logged(*where, events, self.positions[where])
            if self.epoch != epoch or (left_s := until - loop.time()) <= 0:
                await asyncio.sleep(0)
                return None
            await asyncio.wait([self.broker.log(*where).moved()], timeout=left_s)

    def position(self, where: InputPartition) -> int:
        """Return the offset of the next read."""
        return self.positions[where]

    def reach(self, where: InputPartition) -> Reach | None:
        """Return how far a partition is read; None if it is not assigned, or was not fetched yet."""
        if where not in self.positions or where not in self.ends:
            return None
        return Reach(self.positions[where], self.stable[where], self.ends[where])

    async def commit(self, partition: InputPartition, offset: int, metadata: str) -> None:
        """Commit an offset outside of a transaction."""
        name, generation = self._name or "", self._generation

        def act(_now: float) -> None:
            group = self.broker.group(self._group_id)
            try:
                group.check(name, generation)
            except (UnknownMemberIdError, IllegalGenerationError) as error:
                raise CommitFailedError from error
            group.offsets[partition] = (offset, metadata)

        await self._group("offset_commit", act)

    async def _fetch(self, where: InputPartition, epoch: int, events_max: int) -> list[Logged]:
        position = self.positions[where]

        def act(_now: float) -> tuple[list[Logged], int, int, int]:
            log = self.broker.log(*where)
            if not log.start <= position <= log.end:
                raise OffsetOutOfRangeError
            return *log.read(position, events_max), log.end, log.stable

        events, reached, end, stable = await self.broker.request(self._fetching, "fetch", act)
        if self.epoch != epoch or self.positions.get(where) != position:
            return []  # fetched for another assignment, or before a seek
        self.positions[where], self.stable[where], self.ends[where] = reached, stable, end
        return events

    async def _keep(self) -> None:
        """Become a member, and remain one for as long as this object runs."""
        await self._join_again()
        while True:
            await asyncio.sleep(self._heartbeat_s)
            try:
                if self._changed:
                    await self._join_again()
                await self._group("heartbeat", self._beat)
            except RebalanceInProgressError:
                self._revoke()
                await self._join_again()
            except (UnknownMemberIdError, IllegalGenerationError):
                self._name = None
                self._revoke()
                await self._join_again()
            except KafkaError as error:
                if not error.retriable:
                    raise

    def _revoke(self) -> None:
        self._epoch += 1
        self._assigned = self._member = None

    async def _join_again(self) -> None:
        while True:
            try:
                await self._join()
                self._refused_since = None
                return
            except InconsistentGroupProtocolError:
                if self._refused_since is None:
                    self._refused_since = asyncio.get_running_loop().time()
                await asyncio.sleep(uniform(REJOIN_S_MIN, REJOIN_S_MAX))  # noqa: S311 - jitter, not a secret
                continue
            except (UnknownMemberIdError, RebalanceInProgressError):
                self._name = None
            except KafkaError as error:
                if not error.retriable:
                    raise
            await asyncio.sleep(JOIN_POLL_S)

    async def _join(self) -> None:
        self._changed = False
        self._name = await self._group("join_group", self._enter)
        given = await self._group("sync_group", self._sync)
        while given is None:
            await asyncio.sleep(JOIN_POLL_S)
            given = await self._group("sync_group", self._sync)
        self._generation, assigned = given
        self.held, self.positions = set(), {}
        self._epoch += 1
        self._assigned = assigned
        self._member = Membership(
            member_id=self._name,
            generation=self._generation,
            instance_id=self._options.group_instance_id,
        )

    def _enter(self, now: float) -> str:
        group, options = self.broker.group(self._group_id), self._options
        member = Member(
            self._topics,
            self._assignor,
            options.group_instance_id,
            self._session_s,
            now + self._session_s,
        )
        return group.join(self._name, member, now, self.broker.rebalance_s)

    def _sync(self, now: float) -> tuple[int, frozenset[InputPartition]] | None:
        self._partitions = self._counts()
        group = self.broker.group(self._group_id)
        return group.assignment(self._name or "", self._partitions, now)

    def _beat(self, now: float) -> None:
        group, counts = self.broker.group(self._group_id), self._counts()
        if any(counts.get(t, 0) > self._partitions.get(t, 0) for t in self._topics):
            group.begin_anew(now, self.broker.rebalance_s)
        group.heartbeat(self._name or "", self._generation, now)

    def _counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic of the broker's: the leader assigns for other members, too."""
        topics = self.broker.topics
        return {name: len(known.logs) for name, known in topics.items()}

    def _leave(self, now: float) -> None:
        with suppress(UnknownMemberIdError):
            group = self.broker.group(self._group_id)
            group.leave(self._name or "", now, self.broker.rebalance_s)

    def _group(self, call: str, act: Callable[[float], T]) -> "asyncio.Future[T]":
        return self.broker.request(self._keeping, call, act)
