"""Reads the input of one shard, batch by batch; each batch starts where the one before it ended.

If a fetch cannot be parsed, the events are read one at a time. So everything before the damaged event is delivered, and
the error then names its offset. With `source.on_damaged: skip`, a record batch that cannot be read is passed on as a
batch of no events, so the transaction that covers its offsets accounts for it. In a middle topic, everything before the
first event that is no copy of ours is delivered (`middle`).
"""

import asyncio
from dataclasses import replace

from streamdedup.delivery.middle import REMEDY, Middle, StrangerError
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.services import Services
from streamdedup.errors import DeliveryError
from streamdedup.events import NO_TIMESTAMP, Damage, EventBatch
from streamdedup.kafka.large import Permit
from streamdedup.kafka.old_format import OldRecordsError
from streamdedup.kafka.records.decoding import PendingDecode
from streamdedup.kafka.records.records import skipped
from streamdedup.kafka.sink import DoubtError
from streamdedup.kafka.source import UnreadableError

IDLE_WAIT_S = 0.2  # for events, before a reader looks again whether it should end
UNREADABLE_TRIES = 3  # further fetches of bytes that cannot be parsed, before they count as damaged
ONE_BY_ONE_EVENTS = 100_000  # more events than a fetch can hold, so by then we are past the damage


class InputReader:
    """Reads one partition, in one epoch of the group's assignments at a time."""

    def __init__(self, recipe: Recipe, services: Services, partition: int) -> None:
        self._source, self._topic = services.source, recipe.settings.source.topic
        self._middle = Middle.read_by(recipe.settings)
        # The middle topic holds our own copies, so to skip a damaged batch of it would lose events.
        self._skips = recipe.settings.source.on_damaged == "skip" and self._middle is None
        self._meters = services.meters.of(partition)
        self._partition = partition
        self._epoch = 0
        self.next_offset = 0
        self.stuck = False
        """Whether the last `read_until` met what it does not return: the next `read` does, or raises the error.

        That is a large record batch, bytes that cannot be parsed, or an event of a middle topic that is not ours.
        """
        self.large: PendingDecode | None = None
        """The large record batch that the last read met; the next read meets it again, unless `permit` decodes it."""
        self.read_ms: int | None = None
        """The time of the event that was read last, ms since 1970; None before one with a time was read."""
        self.permit = Permit(services.cluster.large, f"{self._topic}/{partition}")
        # Everything below the first offset was returned, everything below the second is delivered.
        self._read_to = self._passed_to = 0
        self._one_by_one = 0  # how many more events are read one at a time
        self._tries = 0

    def begin(self, epoch: int, offset: int) -> None:
        """Read on at `offset`, for as long as `epoch` lasts."""
        self._epoch, self.next_offset = epoch, offset
        self._read_to = self._passed_to = offset
        self._source.go_to(self._partition, offset)

    def again(self, offset: int, cause: str) -> None:
        """Read again from `offset` on; `cause`, one of `catalogue.TAKEN_BACK`, says why."""
        self._meters.take_back(cause, offset)
        self.next_offset = self._read_to = offset
        if self.ours:
            self._source.go_to(self._partition, offset)

    def passed(self, offset: int) -> None:
        """Note that everything below `offset` is delivered: an event that cannot be read from now on is another one."""
        self._tries, self._passed_to = 0, offset
        self.permit.passed(offset)

    @property
    def ours(self) -> bool:
        """Whether the epoch still lasts. Once it is over, another member may own the partition."""
        return self._source.epoch == self._epoch

    async def read(self, wait_s: float, events_max: int) -> EventBatch | PendingDecode | None:
        """Return the next events, at most `events_max`; None if none arrived within `wait_s` or the epoch is over.

        Return a large record batch as it is; its events come once it is decoded.

        A batch with `damage` has no events. UnreadableError if the fetched bytes cannot be parsed. DeliveryError if
        they hold one event alone, and it cannot be parsed at the last of several tries. StrangerError if the next event
        of a middle topic is no copy of ours. DoubtError if the consumer does not stand where the last read ended.
        """
        if not self.ours:
            return None
        position = self._source.position(self._partition)
        if position != self.next_offset:
            raise DoubtError(f"the consumer stands at offset {position}, not {self.next_offset}")
        one_by_one, self.stuck, self.large = self._one_by_one > 0, False, None
        try:
            batch = await self._source.read(
                self._partition, self._epoch, wait_s, 1 if one_by_one else events_max
            )
        except OldRecordsError:
            self._stay()
            raise
        except asyncio.CancelledError:
            # The consumer may have passed aborted events meanwhile; what it stands at then is no doubt.
            self._stay()
            raise
        except UnreadableError as error:
            is_last_try = one_by_one and self._tries >= UNREADABLE_TRIES
            reached = self._source.position(self._partition) if self.ours else self.next_offset
            damage = self._in_our_way(error.damage)
            if self._skips and damage is not None and (damage.is_checked or is_last_try):
                return self._skipped(damage, reached)
            self._stay()
            if is_last_try:
                raise DeliveryError(
                    f"{self._topic}/{self._partition} offset {self.next_offset} cannot be read: {error}",
                    remedy=self._remedy(damage),
                    finding="batch-unreadable",
                ) from None
            self._tries = self._tries + 1 if one_by_one else 0
            self._one_by_one = ONE_BY_ONE_EVENTS
            raise
        if isinstance(batch, EventBatch):
            batch = await self._ours_of(batch)
            if len(batch):
                self._pass_empty(int(batch.offsets[0]))
                if (last_ms := int(batch.timestamps[-1])) != NO_TIMESTAMP:
                    self.read_ms = last_ms
            self._one_by_one = max(0, self._one_by_one - len(batch))
            self.next_offset = self._read_to = batch.next_offset
            self._meters.read(batch)
        elif self.ours:
            self.next_offset = self._source.position(self._partition)
            self.large = batch
            self._pass_empty(self.next_offset)
        return batch

    def _pass_empty(self, offset: int) -> None:
        """Give the permit back if the large record batch below `offset` has no event: then no delivery does."""
        if self._passed_to >= self._read_to:
            self.permit.passed(offset)

    def _stay(self) -> None:
        """Have the consumer stand where the last read ended, if the epoch lasts."""
        if self.ours and self._source.position(self._partition) != self.next_offset:
            self._source.go_to(self._partition, self.next_offset)

    async def _ours_of(self, batch: EventBatch) -> EventBatch:
        """Return the events as they lay in the input, if this is the middle topic; none from a stranger on.

        If it raises, or is cancelled, or a stranger is left, the consumer stands before what is not returned.
        """
        if self._middle is None:
            return batch
        reached = self.next_offset
        try:
            ours = await self._middle.stripped(batch)
            reached = ours.next_offset
        finally:
            if reached != batch.next_offset and self.ours:
                self._source.go_to(self._partition, reached)
        return ours

    def _remedy(self, damage: Damage | None) -> str:
        """Return what to do about bytes that cannot be read."""
        if self._middle is not None:
            return f"{self._topic} holds this deployment's own copies, of which none is skipped: {REMEDY}"
        move = "move the group's offset past it"
        return move if damage is None else f"set source.on_damaged: skip, or {move}"

    def _in_our_way(self, damage: Damage | None) -> Damage | None:
        """Return the part of `damage` from the next offset on; None if there is none, or the epoch is over."""
        if damage is None or not self.ours or damage.last_offset < self.next_offset:
            return None
        return replace(damage, first_offset=max(damage.first_offset, self.next_offset))

    def _skipped(self, damage: Damage, reached: int) -> EventBatch:
        """Return what stands for `damage`; reading goes on at `reached`, or right after it if that is later."""
        if reached <= damage.last_offset:
            reached = damage.last_offset + 1
            self._source.go_to(self._partition, reached)
        self.next_offset = self._read_to = reached
        self._tries = self._one_by_one = 0
        self._meters.skip(damage)
        return skipped(self._topic, self._partition, damage, reached)

    async def read_until(
        self, ends_at: float, events_max: int, leaving: asyncio.Event
    ) -> EventBatch | None:
        """Return the next events; None if none arrived before the loop's time `ends_at`.

        It also returns None if the shard is leaving, the epoch is over, or it is `stuck`. A cancellation loses no
        event.
        """
        loop = asyncio.get_running_loop()
        while (
            events_max > 0
            and (left_s := ends_at - loop.time()) > 0
            and not leaving.is_set()
            and self.ours
        ):
            try:
                batch = await self.read(min(left_s, IDLE_WAIT_S), events_max)
            except (UnreadableError, StrangerError, OldRecordsError):
                # Raised here, it would take back the events that were read before; so the next `read` raises it.
                self.stuck = True
                return None
            if isinstance(batch, PendingDecode):
                # To wait for a permit with events in hand would hold up their commit.
                self.stuck = True
                return None
            if batch is not None:
                return batch
        return None
