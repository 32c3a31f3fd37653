"""What the worker asks of Kafka: the seam behind which a real cluster stands, or that of `streamdedup.testing`.

Four roles: the cluster as a client of no group sees it, one member of the group, the writer of one output partition,
and whoever opens a cluster from the settings.
"""

from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from streamdedup.events import EventBatch, Fingerprint, Integers
from streamdedup.kafka.client.patience import Patience
from streamdedup.kafka.offsets import Committed, Note
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.records.records import Record
from streamdedup.kafka.topics import Topic, Topology

ANSWER_S_MAX = 60.0  # what a caller gives a cluster for an answer


class Source(Protocol):
    """One member of the group, reading one topic."""

    @property
    def epoch(self) -> int:
        """Counts assignments and revocations."""

    @property
    def assigned(self) -> frozenset[int] | None:
        """The partitions that are ours in this epoch; None while the group settles who gets which."""

    async def start(self) -> None:
        """Join the group."""

    async def stop(self, within_s: float) -> bool:
        """Leave the group; False where the broker did not hear of it in time."""

    async def keep_alive(self, wait_s: float) -> None:
        """Tell the group that we live; raises what the group has against us."""

    async def confirms(self, epoch: int) -> bool:
        """Whether the group says, asked now, that the assignment of `epoch` holds."""

    def grown(self, partitions: int) -> None:
        """The topic has so many partitions: have the group assign those that are new, once."""

    def hold(self, partition: int) -> None:
        """Fetch nothing of `partition` until `go_to`."""

    def go_to(self, partition: int, offset: int) -> None:
        """Read on at `offset`."""

    async def read(
        self, partition: int, epoch: int, wait_s: float, events_max: int = ...
    ) -> EventBatch | None:
        """The next events of `partition`, at most `events_max`; None after `wait_s` or in another epoch.

        UnreadableError where what was fetched cannot be parsed.
        """

    def position(self, partition: int) -> int:
        """The offset at which reading goes on: behind the markers and aborted events that follow what was read."""

    def lag(self, partition: int) -> int:
        """How many offsets lie between what was read and the end of the input."""

    async def commit(self, partition: int, offset: int, metadata: str) -> None:
        """Commit an offset by itself, outside of a transaction."""


class Writer(Protocol):
    """Writes one partition of the output and the side topics."""

    @property
    def transaction_s_max(self) -> float:
        """The deadline of a commit."""

    async def fence(self) -> None:
        """Shut out every earlier writer of this partition, and settle what it left open."""

    async def begin(self) -> None:
        """Open what the next commit will close."""

    async def copy(self, topic: str, batch: EventBatch, rows: Integers, bytes_max: int) -> None:
        """Append the events of `rows`, ascending, as they are; otherwise as `send`."""

    async def send(self, topic: str, records: Iterable[Record], bytes_max: int) -> None:
        """Append `records` to the partition of `topic`, which takes record batches of `bytes_max`."""

    async def settle(self, label: int | None) -> int | None:
        """Wait until the broker has taken every record; the output offset after our last, None without any.

        Raises ForeignWriteError unless our events in the output follow `label` without a gap; None where they need not.
        """

    async def commit(self, source: str, offset: int, metadata: str, group: str) -> None:
        """End the transaction: what was sent and the input offset, together."""

    async def abort(self) -> None:
        """Take back what was sent since `begin`."""

    async def give_up(self) -> None:
        """Take back what was sent, where the broker still listens, and let go."""

    async def drop(self) -> None:
        """Let go, whatever is under way."""


class Cluster(Protocol):
    """The cluster, asked by a client of no group; it waits where a leader moves, so bound each question in time."""

    @property
    def patience(self) -> Patience:
        """Who waits for brokers that are away."""

    def source(self, topic: str) -> Source:
        """A new member of the group; it joins when it is started."""

    def writer(self, sink: SinkOptions, partition: int, *, exactly_once: bool) -> Writer:
        """A new writer; it may write once it has fenced all others."""

    async def describe(self, names: Sequence[str]) -> Topology:
        """Those of the topics `names` that exist."""

    async def changed(self, known: Topology) -> list[str]:
        """The names of topics that are gone, or were made again, since `known`."""

    async def create_missing(
        self, sink: SinkOptions, source: Topic, known: Topology, retention_ms_min: int
    ) -> list[str]:
        """Create the sink's topics that are not there, like `source`; their names."""

    async def tells_stable_offsets(self, group: str, topic: str) -> bool:
        """Whether the brokers can be asked for offsets of which no transaction is undecided."""

    async def committed(
        self, group: str, topic: str, partition: int, *, stable: bool
    ) -> Committed | None:
        """The committed offset; None where there is none."""

    async def notes(self, group: str, topic: str, partitions: int) -> dict[int, Note]:
        """The notes of the group's committed offsets, by partition, whether they are decided or not."""

    async def first_offset(self, topic: str, partition: int) -> int:
        """The offset at which the log starts."""

    async def first_offsets(self, topic: str, partitions: Collection[int]) -> Mapping[int, int]:
        """The offsets at which the logs start, of those partitions that answer at once; one question to each leader."""

    async def batch_at(self, topic: str, partition: int, offset: int) -> Fingerprint | None:
        """Of the record batch that contains `offset`, decided or not, a transaction's marker included.

        None where the log does not hold that offset any more, or not yet, or in a format before Kafka 0.11.
        """

    async def end_offset(self, topic: str, partition: int) -> int:
        """The high watermark: all below it is replicated."""

    async def stable_offset(self, topic: str, partition: int) -> int:
        """The last stable offset: all below it is decided."""

    def committed_events(
        self, topic: str, partition: int, start: int, end: int, *, stall_s: float
    ) -> AsyncGenerator[EventBatch]:
        """The events of committed transactions at offsets from `start` up to, without, `end`."""


class Connect(Protocol):
    """Opens a cluster; closed at the end of the context."""

    def __call__(self, options: KafkaOptions) -> AbstractAsyncContextManager[Cluster]:
        """Open it."""
