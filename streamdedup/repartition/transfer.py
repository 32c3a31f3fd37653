"""Transfers: pieces are copied to the middle topic and committed with their input offsets, in one transaction each.

A transaction takes what is queued, and what comes within the commit interval. An event that the middle refuses is found
by halving, as in a shard (`delivery.pace`). Once it is alone in its transaction, it becomes a dead letter, or its
partition stops.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import structlog

from streamdedup.delivery.emit import Emitter
from streamdedup.delivery.not_passed import KEPT_MAX, NotPassed
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.services import Services
from streamdedup.delivery.transactions import DecidedBatch
from streamdedup.errors import DeliveryError, StreamdedupError
from streamdedup.events import EventBatch, Integers, Verdict
from streamdedup.kafka.base import GroupWriter, Membership
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.sink import RefusedError
from streamdedup.kafka.topics import Topology
from streamdedup.repartition.heads import Heads
from streamdedup.repartition.inputs import Inputs
from streamdedup.repartition.pieces import Piece, Pieces
from streamdedup.repartition.unread import Unread
from streamdedup.settings import Settings

log = structlog.get_logger(__name__)

NO_LABEL = 0  # the stage folds nothing
# A transaction may be as large as those of this many shards together: it has the events of all our partitions.
SHARES_MAX = 8


def note_of(
    topology: Topology, topic: str, settings: Settings, meaning: int, head: int | None = None
) -> Note:
    """Return the note of an offset on the input `topic`, given the stage's `settings` and the check of their meaning.

    `head` is how far the partition stands in event time (`skew`); None if that does not matter.
    """
    input_ = topology[topic]
    return Note(
        cluster_id=topology.cluster_id,
        input_id=input_.topic_id,
        output_id=topology[settings.sink.topic].topic_id,
        label=NO_LABEL,
        partitions=input_.partitions,
        atomic=True,
        meaning=meaning,
        head=head,
    )


class LeavesError(StreamdedupError):
    """The stage leaves, or its assignment ended, while nothing could be copied: what is queued is read again."""


class PartitionStoppedError(DeliveryError):
    """Only an operator can settle what is wrong with `partition`."""

    def __init__(self, partition: InputPartition, why: DeliveryError) -> None:
        super().__init__(why.sentence, remedy=why.remedy, finding=why.finding)
        self.partition = partition


class _PartitionWriter:
    """Writes one partition of the dead letters' topic, for `Emitter`; the copies go another way."""

    def __init__(self, writer: GroupWriter, partition: int) -> None:
        self._writer, self._partition = writer, partition

    async def copy(self, topic: str, batch: EventBatch, rows: Integers, bytes_max: int) -> None:
        if len(rows):
            await self._writer.copy(topic, self._partition, batch, rows, bytes_max)


class Transfer:
    """Commits pieces, one transaction after the other."""

    def __init__(
        self,
        recipe: Recipe,
        services: Services,
        inputs: Inputs,
        writer: GroupWriter,
        unread: Unread,
        *,
        heads: Heads | None = None,
    ) -> None:
        self._inputs, self._heads = inputs, heads
        self._recipe, self._services, self._settings = recipe, services, recipe.settings
        self._writer, self._unread = writer, unread
        self._sources, self._delivery = inputs.sources, self._settings.delivery
        self._events_most = self.events_max = self._delivery.batch_events_max
        self._bytes_most = self._delivery.batch_bytes_max
        self._refused: dict[tuple[InputPartition, int], str] = {}  # by partition and offset
        self._emitters: dict[InputPartition, Emitter] = {}
        self._warned_tombstones = False
        self._copied: dict[int, int] = {}  # in this transaction, by partition of the middle
        self._held = deque[NotPassed](maxlen=KEPT_MAX)  # in this transaction, what does not pass
        self.commits = 0
        """How many transactions with events, or with positions, were committed since the start."""
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        """Have a transfer that waits for room end."""
        self._leaving.set()

    def begin(
        self,
        epoch: int,
        topology: Topology,
        membership: Membership,
        partitions: int,
    ) -> None:
        """Copy for the assignment of `epoch`: this number of `partitions`, by the generation in `membership`."""
        shares, is_narrow = min(partitions, SHARES_MAX), self.events_max < self._events_most
        # So one transaction exceeds `unread_max` by at most as much again.
        self._events_most = min(shares * self._delivery.batch_events_max, self._unread.most)
        self._bytes_most = shares * self._delivery.batch_bytes_max
        if not is_narrow:
            self.events_max = self._events_most
        self._epoch, self._topology, self._membership = epoch, topology, membership
        self._notes: dict[str, str] = {}  # by topic, of pieces without a head
        self._bytes_max = topology[self._settings.sink.topic].bytes_max

    def note(self, topology: Topology, topic: str, head: int | None = None) -> str:
        """Return the metadata of a commit on `topic`: the logs that it belongs to, and the partition's `head`."""
        return note_of(topology, topic, self._settings, self._recipe.meaning.check, head).encode()

    async def commit_offsets(
        self, offsets: Mapping[InputPartition, tuple[int, str]], membership: Membership
    ) -> None:
        """Commit offsets without events."""
        async with asyncio.timeout(self._writer.transaction_s_max):
            await self._writer.begin()
            await self._writer.settle()
            await self._commit(offsets, membership)

    async def run(self, pieces: Pieces) -> None:
        """Commit all pieces until they are closed. Any error but PartitionStoppedError is a doubt.

        LeavesError if the stage leaves, or the assignment ends, while it waits for the second stage.
        """
        while (first := await pieces.next()) is not None:
            await self._room()
            taken, closed = list[Piece](), False
            self._copied = {}
            self._held.clear()
            loop = asyncio.get_running_loop()
            begun_at = loop.time()
            try:
                async with asyncio.timeout(self._writer.transaction_s_max):
                    await self._writer.begin()
                    closed = await self._fill(first, pieces, taken)
                    await self._writer.settle()
                    await self._commit(self._offsets(taken), self._membership)
            except RefusedError as error:
                self._narrow(error, taken)
                raise
            self._services.meters.transactions.observe(loop.time() - begun_at)
            self._unread.add(self._copied)
            self._passed(taken)
            pieces.committed(len(taken))
            if closed:
                return
            del first, taken  # megabytes, which this frame would keep while it waits for more

    async def _room(self) -> None:
        """Wait until the second stage has read enough of the middle. This holds no transaction open."""
        while self._unread.reason is not None:
            if self._leaving.is_set() or self._sources.epoch != self._epoch:
                raise LeavesError(
                    "nothing could be copied, because too much of the middle is unread"
                )
            await asyncio.sleep(self._unread.TURN_S)

    async def _fill(self, first: Piece, pieces: Pieces, taken: list[Piece]) -> bool:
        """Send `first` and what follows it until the interval, the events or the bytes are used up.

        `taken` gets all of them. Return whether the pieces are closed.
        """
        loop = asyncio.get_running_loop()
        closes_at = loop.time() + self._delivery.commit_interval_ms / 1000
        piece: Piece | None = first
        events = size_bytes = 0
        closed = False
        while piece is not None:
            taken.append(piece)
            events, size_bytes = events + piece.events, size_bytes + piece.size_bytes
            await self._send(piece)
            await asyncio.sleep(0)
            if events >= self.events_max or size_bytes >= self._bytes_most:
                break
            if self._leaving.is_set():
                closes_at = loop.time()
            piece, closed = await pieces.next_until(closes_at)
        return closed

    async def _send(self, piece: Piece) -> None:
        """Send each event of `piece` to its place, and what was refused to the dead letters."""
        batch, copies = piece.batch, piece.copies
        if batch is not None and batch.damage is not None:
            skipped = partial(DecidedBatch.skipped, batch)
            await self._emit(piece.partition, skipped)
        if batch is None or copies is None:
            return
        if piece.tombstones and not self._warned_tombstones:
            self._warn_tombstones(batch)
        rows = np.arange(len(batch))
        refused = {**self._refused_in(batch), **piece.unknown}
        if refused:
            rows = np.delete(rows, list(refused))
            await self._emit(piece.partition, partial(_rejected, batch, refused))
        for place, at in piece.by_place(rows):
            self._copied[place] = self._copied.get(place, 0) + len(at)
            await self._writer.copy(self._settings.sink.topic, place, copies, at, self._bytes_max)

    def _refused_in(self, batch: EventBatch) -> dict[int, str]:
        """Return row -> reason for the events that the middle has refused before."""
        if not self._refused:
            return {}
        partition = InputPartition(batch.topic, batch.partition)
        ours = {at: why for (p, at), why in self._refused.items() if p == partition}
        rows = np.flatnonzero(np.isin(batch.offsets, list(ours))).tolist()
        return {row: ours[int(batch.offsets[row])] for row in rows}

    async def _emit(
        self, partition: InputPartition, part_at: Callable[[int], DecidedBatch]
    ) -> None:
        """Report rejected events, or a record batch that was skipped, in the dead letters.

        `part_at` returns them with the time by which the letters are stamped, in ms since 1970.
        """
        emitter = self._emitters.get(partition)
        if emitter is None:
            letters = self._settings.sink.dead_letter_topic
            topics = self._topology.topics
            count = topics[letters].partitions if letters else 1
            writer = _PartitionWriter(self._writer, partition.number % count)
            emitter = self._emitters[partition] = Emitter(self._settings, writer)
        emitter.observe(self._topology)
        try:
            part = part_at(emitter.letter_ms(None, self._services.now_ms()))
            self._held.extend(await emitter.emit(part))
        except DeliveryError as error:
            raise PartitionStoppedError(partition, error) from error

    def _narrow(self, error: RefusedError, taken: list[Piece]) -> None:
        """Take fewer events, to find the one that was refused; or name it, if it was alone."""
        if any(emitter.unstamp_letters(error) for emitter in self._emitters.values()):
            return
        events = sum(piece.events for piece in taken)
        self.events_max = max(1, min(self.events_max, events) // 2)
        if events > 1:
            return
        is_letter = error.topic != self._settings.sink.topic
        for piece in taken:
            if (batch := piece.batch) is None or not (len(batch) or is_letter):
                continue
            damaged_at = batch.damage.first_offset if batch.damage else 0
            offset = int(batch.offsets[0]) if len(batch) else damaged_at
            where = piece.partition, offset
            if is_letter or where in self._refused:
                raise PartitionStoppedError(
                    piece.partition,
                    DeliveryError(
                        f"{piece.partition} offset {offset}: {error.topic} refuses the record that reports this event"
                        f" ({error.reason})",
                        remedy=f"check the settings of {error.topic}",
                        finding="letter-refused",
                    ),
                ) from error
            self._refused[where] = f"refused by {error.topic}: {error.reason}"

    def _offsets(self, taken: list[Piece]) -> dict[InputPartition, tuple[int, str]]:
        last = {piece.partition: piece for piece in taken}
        return {
            partition: (piece.next_offset, self._note_of(piece))
            for partition, piece in last.items()
        }

    def _note_of(self, piece: Piece) -> str:
        topic = piece.partition.topic
        if piece.head is not None:
            return self.note(self._topology, topic, piece.head)
        if topic not in self._notes:
            self._notes[topic] = self.note(self._topology, topic)
        return self._notes[topic]

    async def _commit(
        self, offsets: Mapping[InputPartition, tuple[int, str]], membership: Membership
    ) -> None:
        await self._writer.commit(self._settings.kafka.group_id, offsets, membership)

    def _passed(self, taken: list[Piece]) -> None:
        self.commits += 1
        self._services.not_passed.add(self._held)
        self.events_max = min(self._events_most, self.events_max * 2)
        for piece in taken:
            self._inputs.meters(piece.partition).commit(piece.next_offset)
            self._inputs.reader(piece.partition).passed(piece.next_offset)
            if self._heads:
                self._heads.committed(piece.partition, piece.next_offset, piece.head)
        if self._refused:
            reached = {piece.partition: piece.next_offset for piece in taken}
            self._refused = {
                (p, at): why for (p, at), why in self._refused.items() if at >= reached.get(p, 0)
            }

    def _warn_tombstones(self, batch: EventBatch) -> None:
        self._warned_tombstones = True
        log.warning(
            "tombstones_by_record_key",
            topic=batch.topic,
            partition=batch.partition,
            reason="events with a null value are not judged, so they go by their record keys: a reader of the output"
            " may see one before or after the values of its key",
            remedy="none if nobody relies on their order; else set source.tombstones: judge, or drop",
        )


def _rejected(batch: EventBatch, refused: Mapping[int, str], letter_ms: int) -> DecidedBatch:
    """Return the events of the rows that are `refused`, with the reasons."""
    rows = np.array(sorted(refused), dtype=np.int64)
    return DecidedBatch(
        batch=batch.take(rows),
        verdicts=np.full(len(rows), Verdict.REJECTED, dtype=np.uint8),
        malformed={},
        rejected=dict(enumerate(refused[row] for row in rows.tolist())),
        letter_ms=letter_ms,
    )
