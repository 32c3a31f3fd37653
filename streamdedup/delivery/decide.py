"""The first half of a shard's work: read events, decide them, and fill transactions with them.

It runs ahead of the second half, which commits, by as many transactions as may be in flight. The filter is judged and
changed in turns, never both at once.
"""

import asyncio

from streamdedup.delivery.consume import IDLE_WAIT_S, Reading
from streamdedup.delivery.emit import Emission
from streamdedup.delivery.memory import Memory
from streamdedup.delivery.pace import Pace
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.services import Services
from streamdedup.delivery.shard import Shard, screened
from streamdedup.delivery.transactions import Flights, Part, Transaction
from streamdedup.delivery.turns import keys_of
from streamdedup.events import EventBatch
from streamdedup.kafka.source import UnreadableError
from streamdedup.keys.extract import Keys
from streamdedup.rules.listed import Lists, Screened, Suspected

IDLE_COMMIT_S = 5.0


class Deciding:
    """Decides the events of one shard; `pace` says how many a transaction may take."""

    def __init__(
        self,
        recipe: Recipe,
        services: Services,
        *,
        memory: Memory,
        emission: Emission,
        reading: Reading,
        pace: Pace,
    ) -> None:
        self.full = False
        self._recipe, self._services = recipe, services
        self._delivery = recipe.settings.delivery
        self._memory, self._emission = memory, emission
        self._reading, self._pace = reading, pace
        self._extractor = recipe.extractor()
        self._departed_offset = 0
        self._departed_at = 0.0

    async def run(
        self, shard: Shard, flights: Flights, closes_s_max: float, leaving: asyncio.Event
    ) -> None:
        """Fill transactions, each within `closes_s_max`, until `leaving`, the epoch's end, or a full filter."""
        self.full = False
        self._departed(self._reading.next_offset)
        while not leaving.is_set() and self._reading.ours and not self.full:
            try:
                batch = await self._reading.read(
                    IDLE_WAIT_S, min(self._pace.events_max, self._extractor.rows_a_turn)
                )
            except UnreadableError:
                await flights.all_committed()  # it must not take back what was read before it
                raise
            if batch is not None:
                await self._fill(shard, flights, batch, closes_s_max, leaving)
            elif flights.none:
                await self._commit_position(shard, flights)
        flights.close()

    async def _fill(
        self,
        shard: Shard,
        flights: Flights,
        batch: EventBatch | None,
        closes_s_max: float,
        leaving: asyncio.Event,
    ) -> None:
        """A transaction of `batch` and what follows it, until the interval, the events or the bytes are reached.

        While the one before commits it would only wait: so it goes on being filled, and comes the sooner for it.
        """
        delivery, loop = self._delivery, asyncio.get_running_loop()
        await flights.room()
        if not self._reading.ours:
            return
        transaction, whole, events_max = Transaction(), True, self._pace.events_max
        flights.depart(transaction)
        latest = loop.time() + closes_s_max
        closes_at = min(latest, loop.time() + delivery.commit_interval_ms / 1000)
        while batch is not None:
            part, whole = await self._decide(shard, batch)
            transaction.add(part)
            offset = part.batch.next_offset
            await asyncio.sleep(0)  # what is prefetched comes without waiting
            if not whole or transaction.size_bytes >= delivery.batch_bytes_max:
                break
            left = min(events_max - transaction.events, self._extractor.rows_a_turn)
            batch = await self._reading.read_until(closes_at, left, leaving)
            if batch is None and not self._reading.stuck:
                waiting = self._reading.read_until(latest, left, leaving)
                batch = await flights.meanwhile(waiting)
        if not whole:
            self._reading.again(offset)
        self._seal(shard, transaction)
        if not whole:
            await flights.all_committed()
            self.full = (
                shard.full or not transaction.events
            )  # else what waited took more room than it does now

    async def _decide(self, shard: Shard, batch: EventBatch) -> tuple[Part, bool]:
        """Decide the events of `batch`, and whether they are all: they are not where the filter is full."""
        now_ms = self._services.now_ms()
        keys = await keys_of(batch, self._extractor)
        rejected = self._emission.rejected(batch, keys, now_ms, self._pace.refused)
        lists = await self._lists(shard.partition, keys, list(rejected))
        async with self._memory.turn:
            await self._memory.ready_for(len(batch))
            verdicts, blocked = shard.decide(keys, batch.timestamps, list(rejected), lists)
        whole = len(verdicts) == len(batch)
        taken = batch if whole else batch.head(len(verdicts))
        return Part(
            batch=taken,
            verdicts=verdicts,
            malformed=keys.malformed,
            rejected=rejected,
            now_ms=now_ms,
            blocked=blocked,
        ), whole

    async def _lists(self, partition: int, keys: Keys, rejected: list[int]) -> Lists | Screened:
        """Those in force, for the whole batch; what they say of it, where they are better asked beside the loop."""
        lists = self._services.lists.now
        takes_long = lists.block is not None and self._extractor.takes_long
        if not (takes_long or lists.ask_a_disk):
            return lists
        said = await asyncio.to_thread(screened, keys, rejected, lists, self._recipe.hash)
        if not isinstance(said, Suspected):
            return said
        name = f"{self._recipe.settings.source.topic}/{partition}"
        what = "the exact store of its block list"
        return await self._services.threads.lookups.run(name, what, said.verified)

    async def _commit_position(self, shard: Shard, flights: Flights) -> None:
        """Nothing to read: commit, now and then, that markers and aborted events are behind us.

        Otherwise their deletion would look like that of events which were not read.
        """
        quiet_s = asyncio.get_running_loop().time() - self._departed_at
        if self._reading.next_offset > self._departed_offset and quiet_s >= IDLE_COMMIT_S:
            transaction = Transaction()
            await flights.room()
            flights.depart(transaction)
            self._seal(shard, transaction)

    def _seal(self, shard: Shard, transaction: Transaction) -> None:
        """Close `transaction` at the offset that was reached."""
        shard.seal()
        transaction.close(self._reading.next_offset, shard.watermark)
        self._departed(self._reading.next_offset)

    def _departed(self, offset: int) -> None:
        self._departed_offset = offset
        self._departed_at = asyncio.get_running_loop().time()
