"""The second half of a shard's work: emit decided events, commit them with the input offset, admit their digests.

It takes one transaction after the other, in order. It raises every error; the next fencing then finds out whether the
transaction was committed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from streamdedup.delivery.emit import Emitter
from streamdedup.delivery.memory import Memory
from streamdedup.delivery.not_passed import KEPT_MAX, NotPassed
from streamdedup.delivery.pace import Pace
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.second_writer import ForeignRange
from streamdedup.delivery.services import Services
from streamdedup.delivery.shard import Shard
from streamdedup.delivery.transactions import InFlight, Transaction
from streamdedup.delivery.turns import in_turns
from streamdedup.errors import DeliveryError
from streamdedup.kafka.base import Writer
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.sink import ForeignWriteError, RefusedError
from streamdedup.kafka.topics import Topology

# The broker's default of replica.lag.time.max.ms: an event may be in the log for this long before a reader sees it.
UNSEEN_S_MAX = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The facts that a fencing established. Every commit until the next fencing relies on them."""

    output_end: int | None
    """The output offset that our next event must get; None if others may write, too, since nothing is folded."""
    ours_end: int
    """The output offset after our last event, as far as it is known: no event of ours lies beyond it."""
    born: int
    """How many partitions the input had when the group began."""
    floor: int | None
    """The output offset below which everything is forgotten; None if nothing is."""
    since: int | None
    """The input offset at which reading began when everything below `floor` was forgotten; None if unknown."""


class Committer:
    """Commits the transactions of one partition, from one fencing to the next.

    `passed` is called for each transaction once it is committed and admitted.
    """

    def __init__(
        self,
        recipe: Recipe,
        services: Services,
        partition: int,
        writer: Writer,
        ground: Ground,
        *,
        emitter: Emitter,
        memory: Memory,
        pace: Pace,
        passed: Callable[[Transaction], None],
    ) -> None:
        self.foreign: ForeignRange | None = None
        """Where another writer wrote to the output; the next fold looks for it there."""
        self.unended: tuple[int, float] | None = None
        """The output offset from which the transaction under way writes, and when it began by the loop's clock."""
        self.confirmed_end: int | None = None
        """The output offset after our last event of the commits that the broker has confirmed; None without any."""
        self._input_end: tuple[int, float] | None = None  # where and when we last stood at it
        self._ground = ground
        self._output_end, self._ours_end = ground.output_end, ground.ours_end
        self._recipe, self._services = recipe, services
        self._settings, self._partition = recipe.settings, partition
        self._writer, self._emitter, self._memory = writer, emitter, memory
        self._pace, self._passed = pace, passed

    async def run(self, shard: Shard, topology: Topology, in_flight: InFlight) -> None:
        """Commit the transactions as they depart, until `in_flight` is closed."""
        async for transaction in in_flight.arrivals():
            await self.commit(shard, topology, transaction)

    async def commit(self, shard: Shard, topology: Topology, transaction: Transaction) -> None:
        """Commit `transaction`, then admit its digests, which are the oldest sealed group.

        It sends each part as soon as it is decided, while the transaction is still being filled.
        """
        loop, held = asyncio.get_running_loop(), deque[NotPassed](maxlen=KEPT_MAX)
        await transaction.begun()
        async with asyncio.timeout(self._writer.transaction_s_max):
            begun_at = loop.time()
            if self._output_end is not None:
                self.unended = self._output_end, begun_at
            await self._writer.begin()
            async for part in transaction.parts():
                held.extend(await self._emitter.emit(part))
                del part  # megabytes, which nobody needs while the broker takes what was sent
            asked_s = loop.time()
            end = await self._settle(shard, transaction)
            self._ours_end = self._ours_end if end is None else end
            await self._commit(topology, transaction)
        self.unended, self.confirmed_end = None, self._ours_end
        self._note_stamp(topology, transaction, end, asked_s)
        if end is not None and self._output_end is not None:
            self._output_end = end + self._recipe.exactly_once
        if transaction.events:
            self._services.meters.transactions.observe(loop.time() - begun_at)
        async with self._memory.still, self._memory.lock:
            await in_turns(shard.admit(shard.label if end is None else end))
        self._services.not_passed.add(held)
        self._passed(transaction)

    async def _settle(self, shard: Shard, transaction: Transaction) -> int | None:
        """Wait until the broker has acknowledged everything; return the output offset after our last event.

        Return None if nothing went to the output. The result becomes the label after the commit. It lies before the
        transaction's own marker: so if a second writer puts an event between our last event and the marker, the next
        fold reads that event, and finds the second writer.
        """
        try:
            return await self._writer.settle(self._output_end)
        except ForeignWriteError as error:
            if self._recipe.exactly_once:
                self.foreign = ForeignRange(shard.label, error.found, self._writer.producer_id)
                await self._writer.abort()
            raise
        except RefusedError as error:
            self._refused(error, transaction)
            raise

    def _refused(self, error: RefusedError, transaction: Transaction) -> None:
        """Have the next transactions take fewer events, to find the one that was refused.

        DeliveryError if the broker also refuses the record by which we reject that event, such as its dead letter, for
        another reason than our timestamp.
        """
        if self._emitter.unstamp_letters(error):
            return
        offset = self._refused_letter(error, transaction)
        if offset is not None:
            source = self._settings.source.topic
            raise DeliveryError(
                f"{source}/{self._partition} offset {offset}: {error.topic} refuses the record that"
                f" reports this event ({error.reason})",
                remedy=f"check the settings of {error.topic}",
                finding="letter-refused",
            ) from error
        self._pace.halve(transaction, f"refused by {error.topic}: {error.reason}")

    def _refused_letter(self, error: RefusedError, transaction: Transaction) -> int | None:
        """Return the input offset whose letter was refused; None if it takes smaller transactions to find out."""
        if transaction.last_offset in self._pace.refused:
            return transaction.last_offset
        is_letter = error.topic == self._settings.sink.dead_letter_topic
        return transaction.skipped_offset if is_letter and transaction.events <= 1 else None

    def _note_stamp(
        self, topology: Topology, transaction: Transaction, end: int | None, asked_s: float
    ) -> None:
        """Note where to read the brokers' clocks: at the marker of this commit, or in an input with LogAppendTime.

        The marker stands at `end`, right after our last event. An event of the input was stamped after we stood at an
        end of the input that does not include it.
        """
        clocks, partition = self._services.clocks, self._partition
        input_ = topology[self._settings.source.topic]
        if self._recipe.exactly_once:
            if end is not None:
                clocks.committed(partition, end, asked_s)
        elif transaction.events and not input_.stamped_by_producer:
            if self._input_end and transaction.last_offset >= self._input_end[0]:
                after_s = self._input_end[1] - UNSEEN_S_MAX
                clocks.appended(input_.name, partition, transaction.last_offset, after_s)
            input_end = self._services.source.stands_at_end(partition)
            if input_end is not None:
                self._input_end = input_end, asyncio.get_running_loop().time()

    async def _commit(self, topology: Topology, transaction: Transaction) -> None:
        settings, offset = self._settings, transaction.next_offset
        source = settings.source.topic
        input_ = topology[source]
        note = Note(
            cluster_id=topology.cluster_id,
            input_id=input_.topic_id,
            output_id=topology[settings.sink.topic].topic_id,
            label=self._ours_end,
            watermark=transaction.watermark,
            partitions=input_.partitions,
            born=self._ground.born,
            atomic=self._recipe.exactly_once,
            floor=self._ground.floor,
            since=self._ground.since,
            meaning=self._recipe.meaning.check,
            placed=input_.partitions if settings.source.repartition else None,
        ).encode()
        if self._recipe.exactly_once:
            await self._writer.commit(source, offset, note, settings.kafka.group_id)
        else:
            await self._services.source.commit(self._partition, offset, note)
