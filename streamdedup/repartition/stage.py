"""The first stage: it copies each event, byte for byte, to the partition of the middle topic that its key chooses.

It has no memory. Copies and input offsets are one transaction, so its way back from any doubt is the committed offset.
"""

# Theory of operation
# ===================
#
# One process has one transactional producer, `MIDDLE/INSTANCE`, and reads those partitions of all inputs that the group
# GROUP-repartition assigned to it. It is fenced by the generation of that group (KIP-447): a commit names the member,
# and the generation under which its events were read, and the coordinator refuses any other. The next owner of a
# partition asks for the committed offset in a way that waits for open transactions on it (stable OffsetFetch). So no
# event is copied twice, and none is left out, at whatever moment a process dies.
#
# An assignment is served in three steps (`_serve`):
#   1. The producer is started if it is not: that ends what an earlier transaction of it has left open.
#   2. `_starts` reads the committed offsets, and `resume` decides where to go on. If a partition has none, or one that
#      no longer counts, the start is committed before anything is read, so that a crash cannot move it.
#   3. One reader for each partition makes pieces (`pieces`), and `Transfer` copies them, one transaction after the
#      other. Readers go on while a transaction commits; what they may hold is bounded.
# It ends when the group rebalances or the stage leaves: readers end, and what is queued is still committed if the
# generation lasts. Every failure is a doubt: the producer is dropped, and the assignment is served again.
#
# Nothing waits inside a transaction, because an open one holds back the last stable offset of all partitions of the
# middle: nothing would be read there, and nothing purged. So the stage pauses for `unread_max` between two
# transactions, and a partition that is too far ahead in event time (`skew`) waits before it makes a piece.
#
# A partition of the input stops by itself if only an operator can settle what is wrong with it (damage, a gap, another
# meaning); the others go on. The stage as a whole stops if the middle topic does not suit any more.

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import structlog

from streamdedup.delivery.consume import IDLE_WAIT_S, InputReader
from streamdedup.delivery.lifecycle import warn_of_start
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.resume import Resume
from streamdedup.delivery.services import Services
from streamdedup.delivery.transactions import run_together
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.events import EventBatch, Integers
from streamdedup.kafka.base import ANSWER_S_MAX, GroupWriter, Membership
from streamdedup.kafka.client.connection import describe_error, fatal_of
from streamdedup.kafka.client.patience import Backoff, is_away, is_topic_unknown
from streamdedup.kafka.doubt_causes import IF_REPEATED, doubt_cause
from streamdedup.kafka.offsets import Committed
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.decoding import PendingDecode
from streamdedup.kafka.sink import RefusedError
from streamdedup.kafka.source import UnreadableError
from streamdedup.kafka.topics import Topology, sink_topics
from streamdedup.metrics import findings
from streamdedup.metrics.findings import Finding
from streamdedup.repartition.heads import Heads
from streamdedup.repartition.inputs import Inputs
from streamdedup.repartition.lost_markers import finish_copies, finish_offsets
from streamdedup.repartition.middle import (
    check,
    input_problems,
    never_held,
    options_of,
    refuse,
    written_problems,
)
from streamdedup.repartition.offsets import decided, found_in, partitions_of
from streamdedup.repartition.pieces import Piece, Pieces, piece_of
from streamdedup.repartition.resume import input_offset
from streamdedup.repartition.skew import NO_TIMES, Wait, heads_of
from streamdedup.repartition.transfer import LeavesError, PartitionStoppedError, Transfer
from streamdedup.repartition.unread import Unread

log = structlog.get_logger(__name__)

BACKOFF_S, BACKOFF_S_MAX = 0.1, 10.0
TURN_S = 0.2  # between two looks at the assignment while there is nothing to copy
IDLE_COMMIT_S = 5.0  # between two commits of a position that moved without events
POLL_S = 0.2  # between two questions whether the first member has committed the births
AHEAD_S = 0.01  # for a batch behind one that would wait
STOPPED = "stopped"
HELD_S = 0.2  # between two looks of a partition that waits, if no other one moves


class Stage:
    """Copies the partitions of the inputs that the group assigns to this process."""

    def __init__(
        self,
        recipe: Recipe,
        services: Services,
        inputs: Inputs,
        writer: GroupWriter,
        unread: Unread,
        *,
        deployment: str,
        heads: Heads | None = None,
    ) -> None:
        """`deployment` is the group of the second stage, which the origins name.

        `heads` keeps the partitions together in event time; None if that does not matter.
        """
        self._deployment = deployment
        self._recipe, self._services, self._settings = recipe, services, recipe.settings
        options = options_of(self._settings)
        self._inputs, self._sources = inputs, inputs.sources
        self._middle, self._partitions = options.topic, options.partitions
        self.trouble: Finding | None = None
        """Why the whole stage is stopped; else None."""
        self.stopped: dict[InputPartition, Finding] = {}
        """The partitions that are stopped, and why."""
        self.waits: str | None = None
        """What it waits for before it can begin; None if it does not wait."""
        self._writer, self._unread = writer, unread
        self._transfer = Transfer(recipe, services, inputs, writer, unread, heads=heads)
        self._heads = heads
        # How far each of our partitions stands in event time.
        self._head: dict[InputPartition, int] = {}
        self._extractor = recipe.extractor()
        self._leaving = asyncio.Event()
        self._backoff = Backoff(BACKOFF_S, BACKOFF_S_MAX)
        self._in_doubt = True
        self._epoch = -1  # the last that was served
        self.copying = False
        """Whether the partitions that are assigned are read, apart from those that are stopped."""
        self._log = log.bind(middle=self._middle)

    @property
    def lag(self) -> int:
        """How many offsets of the inputs are not copied yet, of the partitions that are assigned."""
        return self._inputs.lag

    @property
    def paused(self) -> str | None:
        """Why it copies nothing now, as text; None if it copies."""
        return self._unread.reason

    @property
    def held(self) -> str | None:
        """Which of our partitions wait for slower ones, and for which, as text; None if none does."""
        return self._heads.reason if self._heads else None

    @property
    def held_partitions(self) -> int:
        """How many of our partitions wait for slower ones."""
        return self._heads.held if self._heads else 0

    def leave(self) -> None:
        """Ask `run` to end after the transaction in hand."""
        self._leaving.set()
        self._transfer.leave()

    async def run(self) -> None:
        """Serve each assignment until `leave` is called."""
        source = self._sources
        while not self._leaving.is_set():
            epoch, assigned = source.epoch, source.assigned
            if not assigned or self.trouble:
                await self._pause(TURN_S)
                continue
            commits = self._transfer.commits
            try:
                await self._serve(epoch, assigned)
            except LeavesError:
                self._in_doubt = True
            except PartitionStoppedError as error:
                self._in_doubt = True
                self.stop_partition(error.partition, error)
            except Exception as error:
                self._in_doubt = True
                if (fatal := fatal_of(error)) is not None:
                    self._stop(fatal)
                    continue
                if self._transfer.commits > commits or source.epoch != epoch:
                    self._backoff.reset()
                if source.epoch != epoch:
                    continue  # the group has a new generation, and refuses what is of the one before
                self._note_doubt(error)
                if not isinstance(error, RefusedError):  # then fewer events are taken at once
                    # An open transaction would hold back the second stage during the pause.
                    await self._writer.give_up()
                    await self._pause(self._backoff.next_s())
            finally:
                self.copying = False
                for partition in assigned:
                    self._inputs.meters(partition).take_back("left")
            if source.epoch == epoch and not self._in_doubt:  # every partition has stopped
                await self._pause(TURN_S)
        await self._end()

    async def _end(self) -> None:
        if self._in_doubt:
            await self._writer.drop()
        else:
            await self._writer.give_up()

    async def drop(self) -> None:
        """Release the producer, whatever it is doing."""
        await self._writer.drop()

    def _stop(self, error: Exception) -> None:
        self.trouble = findings.of_error(
            error,
            findings.STAGE_STOPPED,
            f"{self._settings.source.shown} to {self._middle}",
            STOPPED,
        )
        for partition in self._sources.assigned or ():
            self._inputs.hold(partition)
        self._log.error(
            "repartition_stopped", error=str(error), remedy="resolve that, then restart the worker"
        )

    def _note_doubt(self, error: Exception) -> None:
        name = "repartition"
        if is_away(error) and not is_topic_unknown(error):
            self._services.cluster.patience.away(name, error)
        else:
            self._log.warning(
                "repartition_doubt",
                cause=doubt_cause(error),
                remedy=IF_REPEATED,
                **describe_error(error),
            )

    async def _serve(self, epoch: int, assigned: Collection[InputPartition]) -> None:
        """Copy the partitions of this assignment until it ends. Any error but those that stop is a doubt."""
        source, cluster, topics = self._sources, self._services.cluster, self._inputs.topics
        if epoch != self._epoch:  # a new assignment tries every partition again
            self._epoch, self.stopped = epoch, {}
        for partition in assigned:
            self._inputs.hold(partition)
        if self._in_doubt:
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._writer.start()
            await finish_copies(
                cluster,
                self._writer,
                self._middle,
                range(self._partitions),
                self._settings.kafka.group_id,
            )
            self._in_doubt = False
        async with asyncio.timeout(ANSWER_S_MAX):
            topology = await cluster.describe([*topics, *sink_topics(self._settings.sink)])
        if self._settings.source.pattern is None:
            check(topology, self._settings, topics)
        else:
            # A topic that was deleted is no input any more.
            topics = tuple(name for name in topics if name in topology.topics)
            refuse(written_problems(topology, self._settings))
            self._stop_unsuited(topology, assigned)
        membership = source.membership
        if membership is None or source.epoch != epoch:
            return
        every = partitions_of(topology, topics)
        starts = await self._starts(topology, epoch, every, membership)
        if starts is None or source.epoch != epoch:
            return
        cluster.patience.back("repartition")
        left = {p: start for p, start in starts.items() if p not in self.stopped}
        for partition, start in left.items():
            self._inputs.reader(partition).begin(epoch, start.offset)
        if self._heads:
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._heads.begin(every, self.stopped)
        self.copying = True
        if not left:
            while source.epoch == epoch and not self._leaving.is_set():
                await self._pause(TURN_S)
            return
        self._log.info(
            "repartition_live", partitions=[str(partition) for partition in sorted(left)]
        )
        self._transfer.begin(epoch, topology, membership, len(left))
        await self._copy(left)

    async def _copy(self, partitions: Collection[InputPartition]) -> None:
        """Read and copy these partitions until the assignment ends."""
        pieces, readers = Pieces(), [self._inputs.reader(partition) for partition in partitions]
        try:
            await run_together(self._read_all(partitions, pieces), self._transfer.run(pieces))
        finally:
            for reader in readers:
                reader.permit.give_back()

    async def _read_all(self, partitions: Collection[InputPartition], pieces: Pieces) -> None:
        await run_together(*(self._read(partition, pieces) for partition in partitions))
        await pieces.close()

    async def _read(self, partition: InputPartition, pieces: Pieces) -> None:
        """Make pieces of one partition until the epoch ends, the stage leaves, or the partition stops."""
        reader, loop = self._inputs.reader(partition), asyncio.get_running_loop()
        moved_at, put_to, is_first = loop.time(), reader.next_offset, True
        ahead: EventBatch | None = None  # what was read ahead
        while reader.ours and not self._leaving.is_set() and partition not in self.stopped:
            before = reader.next_offset if ahead is None else put_to
            try:
                batch = await self._next(reader) if ahead is None else ahead
            except UnreadableError:
                await pieces.settled()  # raised now, it would take back the events before it
                raise
            except DeliveryError as error:
                await pieces.settled()
                reader.permit.give_back()
                self.stop_partition(partition, error)
                return
            if self._heads and is_first and batch is not None:
                await self._heads.refresh()
            is_first, ahead = batch is None, None  # the next one is the first after a pause
            if isinstance(batch, PendingDecode):
                await pieces.settled()
                await reader.permit.decode(batch, self._leaving)
                continue
            if batch is not None:
                ahead, held = await self._put_in_turn(batch, before, pieces)
                put_to, batch = batch.next_offset, None  # what waits keeps no large record batch
                if held is not None:
                    await self._wait_without_permit(held, pieces)
            elif reader.next_offset > put_to and loop.time() - moved_at >= IDLE_COMMIT_S:
                await pieces.put(self._position(partition, reader.next_offset))
            else:
                continue
            moved_at = loop.time()
            if ahead is None:
                put_to = reader.next_offset

    async def _next(self, reader: InputReader) -> EventBatch | PendingDecode | None:
        return await reader.read(IDLE_WAIT_S, self._events_max)

    @property
    def _events_max(self) -> int:
        delivery = self._settings.delivery
        return min(
            self._transfer.events_max, delivery.batch_events_max, self._extractor.rows_a_turn
        )

    async def _put(self, batch: EventBatch, pieces: Pieces) -> None:
        piece = await piece_of(
            batch,
            self._extractor,
            self._services.threads.keys,
            partitions=self._partitions,
            group=self._deployment,
            head=self._head.get(_partition_of(batch)),
        )
        await pieces.put(piece)
        await asyncio.sleep(0)  # prefetched events come without a wait

    def _position(self, partition: InputPartition, next_offset: int) -> Piece:
        """Return a piece without events."""
        return Piece(partition=partition, next_offset=next_offset, head=self._head.get(partition))

    async def _put_in_turn(
        self, batch: EventBatch, before: int, pieces: Pieces
    ) -> tuple[EventBatch | None, Wait | None]:
        """Put `batch`, which was read from offset `before` on, as slower partitions allow.

        Return the batch that follows, if it had to be read ahead. If some events of a large record batch must wait,
        return their wait: they are read again, with all that follows. Nothing more is put once the assignment ends, or
        the stage leaves.
        """
        heads, partition = self._heads, _partition_of(batch)
        if heads is None or not len(batch):
            await self._put(batch, pieces)
            return None, None
        wait, ahead = await self._wait_and_ahead(batch, heads)
        reader, events = self._inputs.reader(partition), heads.events(wait)
        if events < len(batch) and reader.permit.reaches(int(batch.offsets[events])):
            reader.again(int(batch.offsets[events]), "held")
            wait.passed(events)
            if events:
                await self._put(batch.head(events), pieces)
            return None, wait
        while events := await self._wait_for_slower(wait, heads, before, pieces):
            if events == len(batch):
                await self._put(batch, pieces)
                break
            await self._put(batch.head(events), pieces)
            batch = batch.tail(events)
            before = int(batch.offsets[0])
            wait.passed(events)
            self._head[partition] = wait.head
        return ahead, None

    async def _wait_without_permit(self, wait: Wait, pieces: Pieces) -> None:
        """Wait for slower partitions, which may need the permit of the large record batch that waits."""
        reader = self._inputs.reader(wait.partition)
        await pieces.settled()
        reader.permit.give_back()
        self._head[wait.partition] = wait.head
        if self._heads is not None:
            await self._wait_for_slower(wait, self._heads, reader.next_offset, pieces)

    async def _wait_and_ahead(
        self, batch: EventBatch, heads: Heads
    ) -> tuple[Wait, EventBatch | None]:
        """Return the wait of a batch that is next in its partition, and the batch after it, if that had to be read."""
        partition = _partition_of(batch)
        known = self._head.get(partition)
        wait = self._wait_of(batch, heads, known)
        if heads.events(wait) == len(batch):
            return wait, None
        ahead, after = await self._read_ahead(partition)
        return self._wait_of(batch, heads, known, after), ahead

    async def _read_ahead(self, partition: InputPartition) -> tuple[EventBatch | None, Integers]:
        """Return the next batch if it has arrived, and the times of what has arrived, as far as they are known.

        Of a large record batch, which is not read here, that is the time of its first event. What cannot be read is
        left: what is raised here is raised again in its turn.
        """
        soon = asyncio.get_running_loop().time() + AHEAD_S
        reader = self._inputs.reader(partition)
        with suppress(DeliveryError):
            ahead = await reader.read_until(soon, self._events_max, self._leaving)
            if ahead is not None:
                return ahead, ahead.timestamps
            if reader.large is not None:
                return None, reader.large.times
        return None, NO_TIMES

    async def _wait_for_slower(self, wait: Wait, heads: Heads, before: int, pieces: Pieces) -> int:
        """Wait until some events of `wait`, whose first follows offset `before`, may be copied; return how many.

        Meanwhile, publish how far their partition stands. Return 0 if the assignment ends, or the stage leaves.
        """
        reader, is_published = self._inputs.reader(wait.partition), False
        while reader.ours and not self._leaving.is_set():
            if events := heads.events(wait):
                return events
            if not is_published and heads.must_publish(wait):
                is_published = True
                await pieces.put(self._position(wait.partition, before))
            else:
                await heads.moved(HELD_S)
        heads.let_go(wait.partition)
        return 0

    def _wait_of(
        self, batch: EventBatch, heads: Heads, before: int | None, after: Integers = NO_TIMES
    ) -> Wait:
        """Return the wait of a batch that is next in its partition, and note how far the partition stands with it.

        `before` is how far it stood before, `after` are the times of the events that follow, as far as they are read.
        """
        partition = _partition_of(batch)
        wait = Wait(partition, heads_of(batch.timestamps, before, after), heads.max_skew_ms)
        self._head[partition] = wait.head
        return wait

    def stop_partition(self, partition: InputPartition, error: Exception) -> None:
        """Read nothing more of `partition`: only an operator can settle what is wrong with it."""
        self.stopped[partition] = findings.of_error(
            error, findings.STAGE_PARTITION_STOPPED, str(partition), STOPPED
        )
        self._inputs.hold(partition)
        self._log.error(
            "repartition_partition_stopped",
            topic=partition.topic,
            partition=partition.number,
            error=str(error),
            remedy="resolve that, then restart the worker; the other partitions go on",
        )

    def _stop_unsuited(self, topology: Topology, assigned: Collection[InputPartition]) -> None:
        """Stop our partitions of topics that do not suit any more, until the pattern leaves these out."""
        problems = {
            topic: input_problems(topology, self._settings, topic)
            for topic in {partition.topic for partition in assigned}
            if topic in topology.topics
        }
        for partition in sorted(assigned):
            if (its := problems.get(partition.topic)) and partition not in self.stopped:
                self.stop_partition(partition, ConfigError("; ".join(its)))

    async def _starts(
        self,
        topology: Topology,
        epoch: int,
        every: Sequence[InputPartition],
        membership: Membership,
    ) -> Mapping[InputPartition, Resume] | None:
        """Return where to go on in each partition of ours; commit each new start. None if the assignment ended.

        `every` are the partitions of all inputs. A partition that cannot go on is stopped, and left out.
        """
        assigned = [p for p in every if p in (self._sources.assigned or ())]
        committed = await self._committed(every)
        is_birth = not committed and not await self._was_used(topology)
        if is_birth and every and self._settings.source.start == "latest":
            # One member resolves it for all partitions: after a first commit, others could no longer see the birth.
            if every[0] not in assigned:
                await self._wait_for_birth(epoch, every)
                return None
            assigned = list(every)
        starts = dict[InputPartition, Resume]()
        for partition in (p for p in assigned if p not in self.stopped):
            async with asyncio.timeout(ANSWER_S_MAX):
                found = await found_in(
                    self._settings,
                    self._services.cluster,
                    topology,
                    partition,
                    committed.get(partition),
                )
            try:
                starts[partition] = input_offset(
                    found,
                    partition,
                    self._settings.source,
                    self._middle,
                    self._recipe.meaning,
                    is_birth=is_birth,
                )
            except DeliveryError as error:
                self.stop_partition(partition, error)
        changed = {p: start for p, start in starts.items() if start.birth or start.anew}
        if changed:
            offsets = {
                p: (start.offset, self._transfer.note(topology, p.topic))
                for p, start in changed.items()
            }
            await self._transfer.commit_offsets(offsets, membership)
            self._report(changed)
        ours = self._sources.assigned or ()
        self._head = {
            p: head
            for p, start in starts.items()
            if (head := _head_at(committed.get(p), start)) is not None
        }
        return {p: start for p, start in starts.items() if p in ours}

    def _report(self, changed: Mapping[InputPartition, Resume]) -> None:
        for partition, start in changed.items():
            line = self._log.bind(topic=partition.topic, partition=partition.number)
            warn_of_start(line, self._inputs.meters(partition), start)
            if not start.anew:
                line.info("repartition_begins", reason=start.why, offset=start.offset)

    async def _committed(
        self, partitions: Collection[InputPartition]
    ) -> dict[InputPartition, Committed]:
        """Return the group's offsets on the inputs, once no transaction on one of them is open any more."""
        group = self._settings.kafka.group_id
        return await decided(
            self._settings,
            self._services.cluster,
            partitions,
            lambda: finish_offsets(self._writer, group),
        )

    async def _was_used(self, topology: Topology) -> bool:
        """Return whether the group has worked before: it has offsets on former inputs, or the middle held an event.

        Events that were purged count, too.
        """
        cluster = self._services.cluster
        async with asyncio.timeout(ANSWER_S_MAX):
            if await cluster.topics_of(self._settings.kafka.group_id):
                return True
            return not await never_held(cluster, topology[self._middle])

    async def _wait_for_birth(self, epoch: int, partitions: Sequence[InputPartition]) -> None:
        """Wait until the member that has the first partition has committed where all begin, or the epoch ends."""
        source = self._sources
        self.waits = (
            f"waits for the member that has {partitions[0]} to commit where all partitions begin"
        )
        try:
            while source.epoch == epoch and not self._leaving.is_set():
                if await self._committed(partitions):
                    return
                await self._pause(POLL_S)
        finally:
            self.waits = None

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._leaving.wait()


def _partition_of(batch: EventBatch) -> InputPartition:
    return InputPartition(batch.topic, batch.partition)


def _head_at(committed: Committed | None, start: Resume) -> int | None:
    """Return how far a partition stood in event time at its commit, if it goes on there; None if that is not known."""
    goes_on = committed is not None and committed.offset == start.offset and not start.anew
    return committed.note.head if goes_on and committed and committed.note else None
