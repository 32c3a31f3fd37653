"""The first half of a shard's work: read events, decide them, and fill transactions with them.

It runs ahead of the second half (`commit`) by at most `delivery.max_in_flight` transactions. `Memory.lock` keeps the
halves apart at the filter: one decides by it, or the other changes it, never both at once.
"""

import asyncio

import structlog

from streamdedup.delivery.consume import IDLE_WAIT_S, InputReader
from streamdedup.delivery.cross_partition import record_keys_matter
from streamdedup.delivery.emit import Emitter
from streamdedup.delivery.memory import Memory
from streamdedup.delivery.middle import Middle, StrangerError
from streamdedup.delivery.pace import Pace
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.schemas import FRAMED_REMEDY, framed, refuse_unknown
from streamdedup.delivery.services import Services
from streamdedup.delivery.shard import Shard, verdicts_without_rules
from streamdedup.delivery.transactions import DecidedBatch, InFlight, Transaction
from streamdedup.delivery.turns import beside, digests_of, is_large, is_long, keys_of
from streamdedup.events import Column, EventBatch, Integers
from streamdedup.kafka.header_limits import within_limits
from streamdedup.kafka.old_format import OldRecordsError
from streamdedup.kafka.records.decoding import PendingDecode
from streamdedup.kafka.source import UnreadableError
from streamdedup.keys.extract import Keys
from streamdedup.keys.hashing import Digests, Hash
from streamdedup.rules.lists import NOTHING_BLOCKED, BlockedRows, NeedsStore

log = structlog.get_logger(__name__)

IDLE_COMMIT_S = 5.0  # between two commits of a position that moved without events
ANCIENT = (
    "they have a timestamp before the year 2000 (0 is 1970), which the window takes for their time"
)
_UNTIL = "until one has, the window forgets nothing, and may become full"
TIMELESS = f"no event has a timestamp so far, and {_UNTIL}"
TIMELESS_AGAIN = f"no event has had a timestamp for a long time, and {_UNTIL}"
UNTIMED_MANY = 10_000  # events without a timestamp that find the window at one and the same time
TIMES_REMEDY = (
    "have the producers set timestamps, or the input's topic (message.timestamp.type: LogAppendTime); or leave"
    " filter.retention out for a window by count (docs/windows.md)"
)
_COPIED = "so the first stage read it by a registry that had it; set kafka.schema_registry back, and restart"


class Decider:
    """Decides the events of one shard, which has a `name`. `pace` limits how many of them a transaction may take.

    `full` is set if the last `run` ended because the filter is full.
    """

    def __init__(
        self,
        recipe: Recipe,
        services: Services,
        *,
        memory: Memory,
        emitter: Emitter,
        reader: InputReader,
        pace: Pace,
        name: str,
    ) -> None:
        self.full = False
        self._recipe, self._services = recipe, services
        self._name = name
        self._delivery = recipe.settings.delivery
        self._memory, self._emitter = memory, emitter
        self._reader, self._pace = reader, pace
        self._extractor = recipe.extractor()
        self._middle = Middle.read_by(recipe.settings)
        matter = record_keys_matter(recipe.settings.key, recipe.partitions)
        self._record_keys_matter = matter and self._middle is None
        self._departed_offset = 0
        self._departed_at = 0.0
        self._looked = False  # whether keys look framed
        self._time: int | None = None  # the window's, at the last seal
        self._untimed = 0  # events without a timestamp since it moved there

    async def run(
        self, shard: Shard, in_flight: InFlight, closes_s_max: float, leaving: asyncio.Event
    ) -> None:
        """Fill transactions until `leaving` is set, the epoch ends, or the filter is full.

        A transaction waits for further events for at most `closes_s_max` seconds.
        """
        self.full = False
        self._departed(self._reader.next_offset)
        while not leaving.is_set() and self._reader.ours and not self.full:
            batch = await self._read(in_flight)
            if isinstance(batch, PendingDecode):
                await in_flight.all_committed()
                await self._reader.permit.decode(batch, leaving)
            elif batch is not None:
                filling = self._fill(shard, in_flight, batch, closes_s_max, leaving)
                del batch  # so that `_fill` alone holds it
                await filling
            elif in_flight.none:
                await self._commit_position(shard, in_flight)
        in_flight.close()

    async def _read(self, in_flight: InFlight) -> EventBatch | PendingDecode | None:
        try:
            return await self._reader.read(
                IDLE_WAIT_S, min(self._pace.events_max, self._extractor.rows_a_turn)
            )
        except (UnreadableError, StrangerError, OldRecordsError):
            await in_flight.all_committed()  # raised now, it would take back the events before it
            raise

    async def _fill(
        self,
        shard: Shard,
        in_flight: InFlight,
        batch: EventBatch | None,
        closes_s_max: float,
        leaving: asyncio.Event,
    ) -> None:
        """Fill a transaction with `batch` and the events after it, until the interval, events or bytes are used up.

        If it begins with events of a large record batch, it also ends once it has the last of them: others may wait for
        the permit.

        After the interval it still takes events while the transaction before it commits, because it would only wait for
        that commit. So the events that arrive during that commit need no transaction of their own.
        """
        delivery, loop = self._delivery, asyncio.get_running_loop()
        await in_flight.room()
        if not self._reader.ours:
            return
        transaction, whole, events_max = Transaction(), True, self._pace.events_max
        offset = 0  # after the last part
        of_large = self._reader.permit.reaches(self._departed_offset)
        in_flight.depart(transaction)
        latest = loop.time() + closes_s_max
        closes_at = min(latest, loop.time() + delivery.commit_interval_ms / 1000)
        while batch is not None:
            await self._services.turns.mine()
            decided = await self._decide(shard, batch, latest if transaction.is_begun else None)
            if decided is None:
                self._reader.again(offset, "slow")
                break
            part, whole = decided
            transaction.add(part)
            offset = part.batch.next_offset
            del (
                decided,
                part,
                batch,
            )  # megabytes, which this frame would keep while it waits for more
            if not whole or transaction.size_bytes >= delivery.batch_bytes_max:
                break
            if of_large and not self._reader.permit.reaches(offset):
                break
            left = min(events_max - transaction.events, self._extractor.rows_a_turn)
            batch = await self._reader.read_until(closes_at, left, leaving)
            if batch is None and not self._reader.stuck:
                waiting = self._reader.read_until(latest, left, leaving)
                batch = await in_flight.meanwhile(waiting)
        if not whole:
            self._reader.again(offset, "full")
        self._seal(shard, transaction)
        if not whole:
            await in_flight.all_committed()
            # If neither holds, there is room again: pending digests may need more room than they do once admitted.
            self.full = shard.full or not transaction.events

    async def _decide(
        self, shard: Shard, batch: EventBatch, keys_by: float | None = None
    ) -> tuple[DecidedBatch, bool] | None:
        """Decide the events of `batch`; also return whether all are decided. If not, the filter is full.

        Return None if their keys are not extracted by the loop's time `keys_by`. DeliveryError if an event of a middle
        topic lies elsewhere than its key belongs.
        """
        present = self._services.clocks.present(shard.partition)
        letter_ms = self._emitter.letter_ms(present, self._services.now_ms())
        if batch.damage is not None:
            return DecidedBatch.skipped(batch, letter_ms), True
        source = self._recipe.settings.source
        batch, above = await beside(is_large(batch), within_limits, batch, source)
        keys = await self._keys(batch, keys_by)
        if keys is None:
            return None
        self._warn_framed(batch)
        if self._middle is not None:
            refuse_unknown(batch, keys, _COPIED)
            await self._middle.check_placement(batch, keys.keys)
        refused = await self._emitter.rejected(batch, keys, present, self._pace.refused)
        rejected = refused | above | keys.unknown
        before_rules, rows = verdicts_without_rules(keys, list(rejected))
        judged, hash_ = keys.keys.take(rows), shard.filter.hash
        digests = await digests_of(judged, hash_)
        blocked = await self._blocked(rows, judged, digests, hash_)
        async with self._memory.lock:
            await self._memory.ready_for(len(batch))
            verdicts, blocked = shard.decide(
                before_rules, rows, digests, batch.timestamps, blocked, malformed=keys.malformed
            )
        if self._recipe.settings.filter.remembers:
            record_keys = batch.keys if self._record_keys_matter else None
            self._services.watch.look(shard.partition, keys.keys, verdicts, record_keys)
        whole = len(verdicts) == len(batch)
        taken = batch if whole else batch.head(len(verdicts))
        return DecidedBatch(
            batch=taken,
            verdicts=verdicts,
            malformed=keys.malformed,
            rejected=rejected,
            letter_ms=letter_ms,
            blocked=blocked,
        ), whole

    async def _keys(self, batch: EventBatch, by: float | None) -> Keys | None:
        """Return the keys of `batch`; None if they are not extracted by the loop's time `by`.

        What a transaction holds must not wait for them: its commit has a deadline. The keys that begin one have none.
        So they are not extracted, either, if a schema is not known yet.
        """
        if by is not None and self._extractor.awaits(batch):
            return None
        try:
            async with asyncio.timeout_at(by):
                lane, are_known = self._services.threads.keys, by is not None
                return await keys_of(batch, self._extractor, lane, are_known=are_known)
        except TimeoutError:
            return None

    def _warn_framed(self, batch: EventBatch) -> None:
        """Warn at the first batch, and once for all partitions together, if keys change with the id of a schema."""
        if self._looked:
            return
        self._looked = True
        warning = framed(batch, self._extractor)
        if warning and self._services.framed.due(asyncio.get_running_loop().time()):
            log.warning("keys_framed", reason=warning, remedy=FRAMED_REMEDY)

    def _warn_of_times(self, shard: Shard) -> None:
        """Warn, for all partitions together, of a window without a time, or with one that stands still or is odd."""
        counted, services = shard.unsealed, self._services
        if shard.watermark != self._time:
            self._time, self._untimed = shard.watermark, 0
        self._untimed += counted.untimed
        stands = shard.watermark is None or self._untimed >= UNTIMED_MANY
        untimed = counted.untimed if stands else 0
        now_s, topic = asyncio.get_running_loop().time(), self._recipe.settings.source.topic
        if untimed and (events := services.timeless.due(now_s, untimed)):
            log.warning(
                "window_without_time",
                topic=topic,
                partition=shard.partition,
                events=events,
                reason=TIMELESS if shard.watermark is None else TIMELESS_AGAIN,
                remedy=TIMES_REMEDY,
            )
        if counted.ancient and (events := services.ancient.due(now_s, counted.ancient)):
            log.warning(
                "timestamps_implausible",
                topic=topic,
                partition=shard.partition,
                events=events,
                reason=ANCIENT,
                remedy=TIMES_REMEDY,
            )

    async def _blocked(
        self, rows: Integers, keys: Column, digests: Digests, hash_: Hash
    ) -> BlockedRows:
        """Return which of `rows` the lists in force block; beside the loop if that would hold it up.

        The arguments are those of `Lists.ask`.
        """
        lists, threads = self._services.lists.now, self._services.threads
        if lists.block is None:
            return NOTHING_BLOCKED
        if lists.are_mapped:
            what = "the mapped file of a list"
            said = await threads.lists.run(self._name, what, lists.ask, rows, keys, digests, hash_)
        else:
            takes_long = self._extractor.takes_long or is_long(keys)
            said = await beside(takes_long, lists.ask, rows, keys, digests, hash_)
        if not isinstance(said, NeedsStore):
            return said
        what = "the exact store of its block list"
        return await threads.lookups.run(self._name, what, said.verified)

    async def _commit_position(self, shard: Shard, in_flight: InFlight) -> None:
        """Commit the input position now and then while there is no event to read.

        The position moves past markers and aborted events. If the committed offset stayed below them and the broker
        deleted them, that would look like the deletion of events that were not read.
        """
        quiet_s = asyncio.get_running_loop().time() - self._departed_at
        if self._reader.next_offset > self._departed_offset and quiet_s >= IDLE_COMMIT_S:
            transaction = Transaction()
            await in_flight.room()
            in_flight.depart(transaction)
            self._seal(shard, transaction)

    def _seal(self, shard: Shard, transaction: Transaction) -> None:
        """Close `transaction` at the input offset that was reached."""
        self._warn_of_times(shard)
        shard.seal()
        transaction.close(self._reader.next_offset, shard.watermark)
        self._departed(self._reader.next_offset)

    def _departed(self, offset: int) -> None:
        self._departed_offset = offset
        self._departed_at = asyncio.get_running_loop().time()
