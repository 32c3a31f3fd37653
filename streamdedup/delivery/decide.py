"""The first half of a shard's work: read events, decide them, and fill transactions with them.

It runs ahead of the second half, which commits, by as many transactions as may be in flight. The filter is judged and
changed in turns, never both at once.
"""

import asyncio

from streamdedup.delivery.consume import IDLE_WAIT_S, InputReader
from streamdedup.delivery.emit import Emitter
from streamdedup.delivery.memory import Memory
from streamdedup.delivery.pace import Pace
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.services import Services
from streamdedup.delivery.shard import Shard, screen
from streamdedup.delivery.transactions import DecidedBatch, InFlight, Transaction
from streamdedup.delivery.turns import keys_of
from streamdedup.events import EventBatch
from streamdedup.kafka.source import UnreadableError
from streamdedup.keys.extract import Keys
from streamdedup.rules.lists import Lists, NeedsStore, ScreenResult

IDLE_COMMIT_S = 5.0


class Decider:
    """Decides the events of one shard; `pace` says how many a transaction may take."""

    def __init__(
        self,
        recipe: Recipe,
        services: Services,
        *,
        memory: Memory,
        emitter: Emitter,
        reader: InputReader,
        pace: Pace,
    ) -> None:
        self.full = False
        self._recipe, self._services = recipe, services
        self._delivery = recipe.settings.delivery
        self._memory, self._emitter = memory, emitter
        self._reader, self._pace = reader, pace
        self._extractor = recipe.extractor()
        self._departed_offset = 0
        self._departed_at = 0.0

    async def run(
        self, shard: Shard, in_flight: InFlight, closes_s_max: float, leaving: asyncio.Event
    ) -> None:
        """Fill transactions, each within `closes_s_max`, until `leaving`, the epoch's end, or a full filter."""
        self.full = False
        self._departed(self._reader.next_offset)
        while not leaving.is_set() and self._reader.ours and not self.full:
            try:
                batch = await self._reader.read(
                    IDLE_WAIT_S, min(self._pace.events_max, self._extractor.rows_a_turn)
                )
            except UnreadableError:
                await in_flight.all_committed()  # it must not take back what was read before it
                raise
            if batch is not None:
                await self._fill(shard, in_flight, batch, closes_s_max, leaving)
            elif in_flight.none:
                await self._commit_position(shard, in_flight)
        in_flight.close()

    async def _fill(
        self,
        shard: Shard,
        in_flight: InFlight,
        batch: EventBatch | None,
        closes_s_max: float,
        leaving: asyncio.Event,
    ) -> None:
        """A transaction of `batch` and what follows it, until the interval, the events or the bytes are reached.

        While the one before commits it would only wait: so it goes on being filled, and comes the sooner for it.
        """
        delivery, loop = self._delivery, asyncio.get_running_loop()
        await in_flight.room()
        if not self._reader.ours:
            return
        transaction, whole, events_max = Transaction(), True, self._pace.events_max
        in_flight.depart(transaction)
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
            batch = await self._reader.read_until(closes_at, left, leaving)
            if batch is None and not self._reader.stuck:
                waiting = self._reader.read_until(latest, left, leaving)
                batch = await in_flight.meanwhile(waiting)
        if not whole:
            self._reader.again(offset)
        self._seal(shard, transaction)
        if not whole:
            await in_flight.all_committed()
            self.full = (
                shard.full or not transaction.events
            )  # else what waited took more room than it does now

    async def _decide(self, shard: Shard, batch: EventBatch) -> tuple[DecidedBatch, bool]:
        """Decide the events of `batch`, and whether they are all: they are not where the filter is full."""
        now_ms = self._services.now_ms()
        keys = await keys_of(batch, self._extractor)
        rejected = self._emitter.rejected(batch, keys, now_ms, self._pace.refused)
        lists = await self._lists(shard.partition, keys, list(rejected))
        async with self._memory.turn:
            await self._memory.ready_for(len(batch))
            verdicts, blocked = shard.decide(keys, batch.timestamps, list(rejected), lists)
        whole = len(verdicts) == len(batch)
        taken = batch if whole else batch.head(len(verdicts))
        return DecidedBatch(
            batch=taken,
            verdicts=verdicts,
            malformed=keys.malformed,
            rejected=rejected,
            now_ms=now_ms,
            blocked=blocked,
        ), whole

    async def _lists(self, partition: int, keys: Keys, rejected: list[int]) -> Lists | ScreenResult:
        """Those in force, for the whole batch; what they say of it, where they are better asked beside the loop."""
        lists = self._services.lists.now
        takes_long = lists.block is not None and self._extractor.takes_long
        if not (takes_long or lists.ask_a_disk):
            return lists
        said = await asyncio.to_thread(screen, keys, rejected, lists, self._recipe.hash)
        if not isinstance(said, NeedsStore):
            return said
        name = f"{self._recipe.settings.source.topic}/{partition}"
        what = "the exact store of its block list"
        return await self._services.threads.lookups.run(name, what, said.verified)

    async def _commit_position(self, shard: Shard, in_flight: InFlight) -> None:
        """Nothing to read: commit, now and then, that markers and aborted events are behind us.

        Otherwise their deletion would look like that of events which were not read.
        """
        quiet_s = asyncio.get_running_loop().time() - self._departed_at
        if self._reader.next_offset > self._departed_offset and quiet_s >= IDLE_COMMIT_S:
            transaction = Transaction()
            await in_flight.room()
            in_flight.depart(transaction)
            self._seal(shard, transaction)

    def _seal(self, shard: Shard, transaction: Transaction) -> None:
        """Close `transaction` at the offset that was reached."""
        shard.seal()
        transaction.close(self._reader.next_offset, shard.watermark)
        self._departed(self._reader.next_offset)

    def _departed(self, offset: int) -> None:
        self._departed_offset = offset
        self._departed_at = asyncio.get_running_loop().time()
