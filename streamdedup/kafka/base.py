"""What the worker asks of Kafka: the interface that a real cluster and the one in `streamdedup.testing` both implement.

It has six roles: the cluster, asked by a client outside of any group; one member of a consumer group; what it reads of
one topic; the writer of one output partition; the writer of any partition for what a group's member has read; and the
function that connects to a cluster by the settings.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from streamdedup.events import EventBatch, Fingerprint, Integers
from streamdedup.kafka.broker_clock import Stamp
from streamdedup.kafka.brokers import Broker
from streamdedup.kafka.client.patience import Patience
from streamdedup.kafka.groups import InForce
from streamdedup.kafka.large import LargeBatches
from streamdedup.kafka.offsets import Committed, Note
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.partitions import InputPartition, LastWrite
from streamdedup.kafka.records.decoding import PendingDecode
from streamdedup.kafka.records.records import CHUNK_EVENTS
from streamdedup.kafka.topics import Changes, Topic, Topology

ANSWER_S_MAX = 60.0  # the time-out that callers set on a question to the cluster
AWAY_S_MAX = 6.0  # how long a command waits for a broker or a registry: with its own start, a person waits 10 s


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The identity of a member in one generation of its group, by which the group's offsets are fenced (KIP-447).

    Each rebalance makes another generation. `instance_id` is `kafka.group_instance_id`; None if that is not set.
    """

    member_id: str
    generation: int
    instance_id: str | None


class Member(Protocol):
    """One member of a consumer group."""

    @property
    def epoch(self) -> int:
        """The number of assignments and revocations so far."""

    @property
    def membership(self) -> Membership | None:
        """The identity of this member in the group, as of `assigned`; None while the group rebalances.

        It is set and withdrawn with `assigned` and `epoch`, in one step. So take it together with the epoch under which
        events are read, and commit their offsets with it: if the group has gone on meanwhile, it refuses them.
        """

    @property
    def refused_since(self) -> float | None:
        """When the group began to refuse us, because its members have another assignor; None if it does not.

        By the loop's clock. The member asks again every few seconds, for as long as that takes.
        """

    async def start(self) -> None:
        """Join the group, also again. This may last until the members that have another assignor have left it."""

    async def stop(self, within_s: float) -> bool:
        """Leave the group; return False if the broker did not learn of it within `within_s` seconds."""

    async def keep_alive(self, wait_s: float) -> None:
        """Stay a member for `wait_s` seconds; raise any error that the group has reported for this member."""

    async def confirms(self, epoch: int) -> bool:
        """Ask the group now, and return whether it confirms that the assignment of `epoch` still holds."""

    def topics(self) -> Mapping[str, int]:
        """Return the topics that it reads, each with its number of partitions, as of the last metadata."""

    def assign_anew(self) -> bool:
        """Have the group assign its partitions anew; return False if its leader does so by itself."""


class Reach(NamedTuple):
    """How far a partition is read, as of the last fetch.

    `position` is the offset of the next read. It lies after the events read so far, and after the markers and aborted
    events that follow them. `stable` is the last stable offset, `end` the end of the log.
    """

    position: int
    stable: int
    end: int


class Sources(Member, Protocol):
    """One member of a consumer group, which reads several topics."""

    @property
    def assigned(self) -> frozenset[InputPartition] | None:
        """The partitions assigned to this member in this epoch; None while the group rebalances."""

    def assigned_of(self, topic: str) -> frozenset[int] | None:
        """Return the numbers of the partitions of `topic` that are assigned; None while the group rebalances."""

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics from now on. The epoch ends, and the group assigns anew."""

    def grown(self, topic: str, partitions: int) -> None:
        """Note that `topic` has `partitions` partitions now; have the group assign the new ones, once."""

    def hold(self, where: InputPartition) -> None:
        """Fetch nothing from a partition until `go_to` is called for it."""

    def go_to(self, where: InputPartition, offset: int) -> None:
        """Continue to read a partition at `offset`."""

    async def read(
        self, where: InputPartition, epoch: int, wait_s: float, events_max: int
    ) -> EventBatch | PendingDecode | None:
        """Return the next events of a partition, at most `events_max` of them; or a large record batch in their place.

        The latter is returned until it is decoded; then its events are. Return None if none arrived within `wait_s`
        seconds, or if the current epoch is no longer `epoch`. Raise UnreadableError if the fetched bytes cannot be
        parsed: the position is then before the damage, or after it. Raise OldRecordsError if they are of a format from
        before Kafka 0.11.
        """

    def position(self, where: InputPartition) -> int:
        """Return the offset of the next read, as in `Reach`."""

    def reach(self, where: InputPartition) -> Reach | None:
        """Return how far a partition is read; None if it is not assigned, or was not fetched yet."""

    async def commit(self, where: InputPartition, offset: int, metadata: str) -> None:
        """Commit an offset outside of a transaction."""


class Source:
    """What one member of a consumer group reads of one topic; in all else, that member."""

    def __init__(self, member: Sources, topic: str) -> None:
        self._member, self._topic = member, topic
        self.start, self.stop, self.keep_alive = member.start, member.stop, member.keep_alive
        self.confirms, self.topics, self.assign_anew = (
            member.confirms,
            member.topics,
            member.assign_anew,
        )

    @property
    def epoch(self) -> int:
        """The number of assignments and revocations so far."""
        return self._member.epoch

    @property
    def assigned(self) -> frozenset[int] | None:
        """The partitions assigned to this member in this epoch; None while the group rebalances."""
        return self._member.assigned_of(self._topic)

    @property
    def membership(self) -> Membership | None:
        """That of the member."""
        return self._member.membership

    @property
    def refused_since(self) -> float | None:
        """That of the member."""
        return self._member.refused_since

    def grown(self, partitions: int) -> None:
        """Note that the topic has `partitions` partitions now; have the group assign the new ones, once."""
        self._member.grown(self._topic, partitions)

    def hold(self, partition: int) -> None:
        """Fetch nothing from `partition` until `go_to` is called for it."""
        self._member.hold(self._at(partition))

    def go_to(self, partition: int, offset: int) -> None:
        """Continue to read `partition` at `offset`."""
        self._member.go_to(self._at(partition), offset)

    async def read(
        self, partition: int, epoch: int, wait_s: float, events_max: int = CHUNK_EVENTS
    ) -> EventBatch | PendingDecode | None:
        """Return what `Sources.read` does."""
        return await self._member.read(self._at(partition), epoch, wait_s, events_max)

    def position(self, partition: int) -> int:
        """Return the offset of the next read, as in `Reach`."""
        return self._member.position(self._at(partition))

    def lag(self, partition: int) -> int:
        """Return the number of offsets between the position and the end of the input, as of the last fetch."""
        reach = self._member.reach(self._at(partition))
        return 0 if reach is None else max(0, reach.end - reach.position)

    def held_at(self, partition: int) -> int | None:
        """Return the position if an open transaction keeps the next events back, as of the last fetch; else None."""
        reach = self._member.reach(self._at(partition))
        held = reach is not None and reach.stable <= reach.position < reach.end
        return reach.position if reach is not None and held else None

    def stands_at_end(self, partition: int) -> int | None:
        """Return the position if it is the end of the input, as of the last fetch; None if it is not, or unknown."""
        reach = self._member.reach(self._at(partition))
        return reach.end if reach is not None and reach.position == reach.end else None

    async def commit(self, partition: int, offset: int, metadata: str) -> None:
        """Commit an offset outside of a transaction."""
        await self._member.commit(self._at(partition), offset, metadata)

    def _at(self, partition: int) -> InputPartition:
        return InputPartition(self._topic, partition)


class Sender(Protocol):
    """Appends to one partition of the topics that are written."""

    async def copy(self, topic: str, batch: EventBatch, rows: Integers, bytes_max: int) -> None:
        """Append the events of `rows` (ascending) of `batch` to this partition of `topic`, byte for byte.

        The topic takes record batches of at most `bytes_max` bytes.
        """


class Writer(Sender, Protocol):
    """Writes one partition of the output and of the side topics."""

    @property
    def transaction_s_max(self) -> float:
        """The deadline of a commit, in seconds."""

    @property
    def producer_id(self) -> int:
        """The id of the producer in each of its record batches; -1 before the fence, and without one."""

    async def fence(self) -> None:
        """Fence every earlier writer of this partition, and end the transaction that it left open."""

    async def mark_again(self, group: str, *, commit: bool) -> None:
        """End an empty transaction with that outcome, in this partition of each topic and in the group's offsets.

        This gives the same outcome to what the brokers left undecided of the one before.
        """

    async def begin(self) -> None:
        """Begin what the next commit will end."""

    async def settle(self, expected: int | None) -> int | None:
        """Wait until the broker has acknowledged every record; return the output offset after our last event.

        Return None if nothing was sent to the output. Raise ForeignWriteError unless our events in the output follow
        `expected` without a gap; if `expected` is None, a gap is allowed.
        """

    async def commit(self, source: str, offset: int, metadata: str, group: str) -> None:
        """Commit what was sent together with the input offset, and end the transaction."""

    async def abort(self) -> None:
        """Abort what was sent since `begin`."""

    async def give_up(self) -> None:
        """Abort what was sent, if the broker still answers, and release the producer."""

    async def drop(self) -> None:
        """Release the producer at once, whatever is under way."""


class GroupWriter(Protocol):
    """Writes any partition of any topic, one transaction at a time, fenced by the generation of a group (KIP-447).

    A transaction may hold the offsets of several input partitions. The group's coordinator takes them from a member of
    the current generation only. So no name of an input partition is needed as a fence, and a process needs one writer
    only. After any error but RefusedError the outcome is in doubt: `start` again, and ask the group for its offsets.
    """

    @property
    def transaction_s_max(self) -> float:
        """The deadline of a transaction, in seconds, from `begin` to the end of `commit`; the caller sets it.

        It is shorter than the time-out after which the broker aborts the transaction and fences us.
        """

    @property
    def producer_id(self) -> int:
        """The id of the producer in each of its record batches; -1 before `start`."""

    async def start(self) -> None:
        """Fence every earlier writer with this transactional id, and end the transaction that it left open.

        May be called again: it drops the producer first. This waits for brokers that are away, without end.
        """

    async def mark_again(
        self, partitions: Mapping[str, Collection[int]], group: str, *, commit: bool
    ) -> None:
        """End an empty transaction with that outcome, in `partitions`, by topic, and in the group's offsets.

        This gives the same outcome to what the brokers left undecided of the one before. Call it right after
        `start`; the caller sets a time-out.
        """

    async def begin(self) -> None:
        """Begin a transaction. The one before must have ended."""

    async def copy(
        self, topic: str, partition: int, batch: EventBatch, rows: Integers, bytes_max: int
    ) -> None:
        """Append the events of `rows` (ascending) of `batch` to `partition` of `topic`, byte for byte.

        The topic takes record batches of at most `bytes_max` bytes.
        """

    async def settle(self) -> None:
        """Wait until the broker has acknowledged every record.

        Raise RefusedError if a record is at fault, and nothing else is: then `start` again, which aborts the
        transaction, and send it without that record. Any other error is doubt.
        """

    async def commit(
        self,
        group: str,
        offsets: Mapping[InputPartition, tuple[int, str]],
        membership: Membership,
    ) -> None:
        """Commit what was sent together with the group's offsets, and end the transaction.

        `offsets`: input partition -> (offset, metadata); not empty. Call it after `settle`. Raise StaleGenerationError,
        a DoubtError, if the group takes no offsets of `membership` (any more). Nothing is committed then, and the
        transaction is still open, so `abort` it. Anything else that this raises is doubt.
        """

    async def abort(self) -> None:
        """Abort what was sent since `begin`."""

    async def give_up(self) -> None:
        """Abort what was sent, if the broker still answers, and release the producer."""

    async def drop(self) -> None:
        """Release the producer at once, whatever is under way."""


class Cluster(Protocol):
    """The cluster, asked by a client outside of any group.

    A question waits while a partition's leader moves, so the caller sets a time-out on each.
    """

    @property
    def patience(self) -> Patience:
        """The record of what waits for brokers that are away."""

    def sources(
        self, topics: Collection[str], assignor: str, *, group: str | None = None
    ) -> Sources:
        """Return a new member of the group, which joins when it is started, under the assignor of that name.

        It reads `topics`. `group` is another group than `kafka.group_id`.
        """

    def writer(self, sink: SinkOptions, partition: int, *, exactly_once: bool) -> Writer:
        """Return a new writer, which may write once it has fenced all others."""

    def group_writer(
        self, transactional_id: str, sink: SinkOptions, *, timeout_ms: int
    ) -> GroupWriter:
        """Return a new writer of any partition, which may write once it is started.

        Of `sink`, only `compression` matters. The broker aborts a transaction that lasts longer than `timeout_ms`.
        """

    @property
    def large(self) -> LargeBatches:
        """The permits for large record batches, of all that is read of this cluster."""

    async def describe(self, names: Sequence[str]) -> Topology:
        """Return those topics of `names` that exist."""

    async def topic_names(self) -> list[str]:
        """Return the names of all topics that we may see."""

    async def changed(self, known: Topology) -> Changes:
        """Return which topics are missing, or were deleted and created again, since `known`."""

    async def create(self, topics: Collection[Topic]) -> list[str]:
        """Create the `topics` with their settings; return the names of those that did not exist.

        Raise ConfigError, with the broker's reasons, if it refuses one: then none is created, as far as it knew before.
        """

    async def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, str]:
        """Delete the records below the offset `before` of each partition; return what failed, by partition.

        That is the name of the error, as `TopicAuthorizationFailedError`, or that of the error of a leader that did not
        answer. Every partition is tried, whatever becomes of the others. An offset at or below the start of the log
        deletes nothing, and one above its end is an error of that partition. ValueError if one is negative.
        """

    async def may_join(self, group: str) -> bool:
        """Return whether we have the right Read on `group`; True if the broker does not report rights."""

    async def group_rights(self, group: str) -> int:
        """Return our rights on `group`, a bit for each operation; RIGHTS_UNKNOWN if the broker does not report them."""

    async def brokers(self) -> Sequence[Broker]:
        """Return all brokers, by their ids. One that does not answer is among them, with its failure."""

    async def checks_rights(self) -> bool | None:
        """Return whether the brokers check rights at all; None if that is not known."""

    async def may_see_transactions(self, transactional_id: str) -> bool:
        """Return whether we may see this transactional id: whoever may not has no right Write on it either.

        Only with brokers that check rights: they make their own topic of transactions when they are first asked.
        """

    async def transaction_ms_max(self) -> int | None:
        """Return the longest time-out of a transaction, in ms, that all brokers accept; None if none reports it."""

    async def in_force(self, group: str) -> InForce:
        """Return what the group goes by now: its assignor and its members."""

    async def supports_stable_offsets(self, group: str, topic: str) -> bool:
        """Return whether the brokers support stable OffsetFetch.

        It never returns an offset while a transaction on it is undecided.
        """

    async def committed_all(
        self, group: str, topic: str, partitions: Collection[int], *, stable: bool = True
    ) -> dict[int, Committed]:
        """Return the committed offsets of those `partitions` that have one, in one request.

        Raise UndecidedError if `stable` is asked while a transaction on one of them has not ended.
        """

    async def topics_of(self, group: str) -> frozenset[str]:
        """Return the topics on which the group has committed offsets, decided or not."""

    async def groups_on(self, topic: str, besides: Collection[str]) -> frozenset[str] | None:
        """Return the groups, without those in `besides`, that have committed offsets on `topic`.

        Return None if we may not list all groups, and find none among those that we see. At most
        `groups.GROUPS_ASKED_MAX` are asked, in the order of their names; one that we may not ask counts as one without
        offsets.
        """

    async def middles(self, besides: Collection[str]) -> Mapping[str, str]:
        """Return the topics that groups, without those in `besides`, read as the middle of `source.repartition`.

        Each with a group that reads it so, by the notes of its offsets. Groups are asked as by `groups_on`; none is
        found if we may not list groups.
        """

    async def writers(self, output_id: str, besides: Collection[str]) -> frozenset[str]:
        """Return the groups, without those in `besides`, whose workers have written to the output of that id.

        By the notes of their offsets, as far as we may list groups and read these.
        """

    async def notes(self, group: str, topic: str, partitions: int) -> dict[int, Note]:
        """Return the notes of the group's committed offsets, by partition, decided or not."""

    async def move(self, group: str, topic: str, moved: Mapping[int, tuple[int, str]]) -> None:
        """Commit offsets, partition -> (offset, metadata), all or none. DeliveryError if the group has members."""

    async def first_offset(self, topic: str, partition: int) -> int:
        """Return the offset at which the log starts."""

    async def first_offsets(self, topic: str, partitions: Collection[int]) -> Mapping[int, int]:
        """Return the offsets at which the logs start, of those partitions that answer at once.

        This costs one request to each leader.
        """

    async def end_offsets(self, topic: str, partitions: Collection[int]) -> Mapping[int, int]:
        """Return the high watermarks of those partitions that answer at once; one request to each leader."""

    async def stable_offsets(self, topic: str, partitions: Collection[int]) -> Mapping[int, int]:
        """Return the last stable offsets of those partitions that answer at once; one request to each leader."""

    async def is_old(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether the log holds `offset` in a format from before Kafka 0.11."""

    async def batch_at(self, topic: str, partition: int, offset: int) -> Fingerprint | None:
        """Return the fingerprint of the record batch that contains `offset`, whether it is decided or not.

        A transaction marker is a record batch, too. Return None if the log no longer holds that offset, or not yet, or
        holds it in a format before Kafka 0.11.
        """

    async def producer_at(self, topic: str, partition: int, offset: int) -> int | None:
        """Return the id of the producer that wrote the event at `offset`; None if the log does not hold it.

        -1 if the producer sent none.
        """

    async def last_writes(self, topic: str, partition: int) -> Sequence[LastWrite] | None:
        """Return the last write of each producer with an id that wrote to the partition lately, ours included.

        A producer without an id, which is neither idempotent nor transactional, is not among them. Return None if the
        broker does not tell: it is older than 2.8, or we lack the right Read on the topic.
        """

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the node id of the partition's leader, as far as it is known without asking."""

    async def stamp(self, topic: str, partition: int, start: int, end: int) -> Stamp | None:
        """Return the first stamp by the leader's own clock at offsets from `start` to `end` (exclusive); None without.

        A leader stamps transaction markers, and with LogAppendTime every record batch.
        """

    async def end_offset(self, topic: str, partition: int) -> int:
        """Return the high watermark: everything below it is replicated."""

    async def offset_of_time(self, topic: str, partition: int, time_ms: int) -> int | None:
        """Return the offset of the first event from `time_ms` (ms since 1970) on; None if there is none.

        A transaction marker counts as an event, of the time when it was written.
        """

    async def stable_offset(self, topic: str, partition: int) -> int:
        """Return the last stable offset: everything below it is decided."""

    def committed_events(
        self, topic: str, partition: int, start: int, end: int, *, stall_s: float
    ) -> AsyncGenerator[EventBatch]:
        """Yield the events of committed transactions at offsets from `start` to `end` (exclusive).

        Those of a large one hold a permit of `large` until the next events are asked for: so keep none of them,
        and close the generator. Raise TimeoutError if no progress is made for `stall_s` seconds, and TrimmedError if
        the log no longer holds an offset that is needed.
        """


class Connect(Protocol):
    """A function that connects to a cluster."""

    def __call__(self, options: KafkaOptions) -> AbstractAsyncContextManager[Cluster]:
        """Connect to the cluster that `options` name; the connection is closed when the context ends."""
