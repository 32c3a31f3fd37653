"""The second half of a shard's work: emit what was decided, commit it with the input offset, admit it to the filter.

One transaction after the other, in their order. Whatever fails is raised, and leaves the outcome to the next fencing.
"""

import asyncio
from collections.abc import Callable

from streamdedup.delivery.emit import Emission
from streamdedup.delivery.fold import Folding
from streamdedup.delivery.pace import Pace
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.services import Services
from streamdedup.delivery.shard import Shard
from streamdedup.delivery.transactions import Flights, Transaction
from streamdedup.delivery.turns import in_turns
from streamdedup.errors import DeliveryError
from streamdedup.kafka.base import Writer
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.sink import ForeignWriteError, RefusedError
from streamdedup.kafka.topics import Topology


class Committing:
    """Commits the transactions of one partition."""

    def __init__(
        self,
        recipe: Recipe,
        services: Services,
        partition: int,
        writer: Writer,
        *,
        emission: Emission,
        folding: Folding,
        pace: Pace,
        passed: Callable[[Transaction], None],
    ) -> None:
        self.output_end: int | None = 0
        """The output offset where our next event must come to stand: behind the marker of our last transaction.

        None where others may write, too, since nothing is folded.
        """
        self.ours_end = 0
        """The output offset behind our last event, which every note tells: what is above it is none of ours."""
        self.foreign: tuple[int, int] | None = None
        """Where others wrote in between: offsets of the output, from the first up to, without, the second."""
        self.born: int | None = None
        """How many partitions the input had when the group began."""
        self.floor: int | None = None
        """The output offset below which all is forgotten; `since`: the input offset where reading began then."""
        self.since: int | None = None
        self._recipe, self._services = recipe, services
        self._settings, self._partition = recipe.settings, partition
        self._writer, self._emission, self._folding = writer, emission, folding
        self._pace, self._passed = pace, passed

    async def run(self, shard: Shard, topology: Topology, flights: Flights) -> None:
        """Commit what comes, until no more does."""
        async for transaction in flights.arrivals():
            await self.commit(shard, topology, transaction)

    async def commit(self, shard: Shard, topology: Topology, transaction: Transaction) -> None:
        """Commit one: what was decided up to the shard's first seal."""
        loop = asyncio.get_running_loop()
        await transaction.begun()
        async with asyncio.timeout(self._writer.transaction_s_max):
            begun_at = loop.time()
            await self._writer.begin()
            async for part in transaction.parts():
                await self._emission.emit(part)
            end = await self._settle(shard, transaction)
            self.ours_end = self.ours_end if end is None else end
            await self._commit(topology, transaction)
        if end is not None and self.output_end is not None:
            self.output_end = end + self._recipe.exactly_once
        if transaction.events:
            self._services.meters.transactions.observe(loop.time() - begun_at)
        async with self._folding.turn:
            await in_turns(shard.admit(shard.label if end is None else end))
        self._passed(transaction)

    async def _settle(self, shard: Shard, transaction: Transaction) -> int | None:
        """Wait until the broker has taken everything; the output offset behind our last event, None without any.

        That is the label which the commit will make true. It leaves out the transaction's own marker: whatever a
        second writer puts between our last event and that will be folded, and found.
        """
        try:
            return await self._writer.settle(self.output_end)
        except ForeignWriteError as error:
            if self._recipe.exactly_once:
                self.foreign = (shard.label, error.found)
                await self._writer.abort()
            raise
        except RefusedError as error:
            self._refused(error, transaction)
            raise

    def _refused(self, error: RefusedError, transaction: Transaction) -> None:
        """Look for the event that was refused among fewer. DeliveryError where even its rejection is."""
        if transaction.last_offset in self._pace.refused:
            source = self._settings.source.topic
            raise DeliveryError(
                f"{source}/{self._partition} offset {transaction.last_offset}: {error.topic} refuses what we make of it"
                f" ({error.reason}); look at the settings of {error.topic}"
            ) from error
        self._pace.halve(transaction, f"refused by {error.topic}: {error.reason}")

    async def _commit(self, topology: Topology, transaction: Transaction) -> None:
        settings, offset = self._settings, transaction.next_offset
        source = settings.source.topic
        note = Note(
            topology.cluster_id,
            topology[source].topic_id,
            topology[settings.sink.topic].topic_id,
            self.ours_end,
            transaction.watermark,
            topology[source].partitions,
            self.born,
            atomic=self._recipe.exactly_once,
            floor=self.floor,
            since=self.since,
        ).encode()
        if self._recipe.exactly_once:
            await self._writer.commit(source, offset, note, settings.kafka.group_id)
        else:
            await self._services.source.commit(self._partition, offset, note)
