"""The input of one shard, event batch by event batch, each right behind the one before.

What cannot be parsed is read one event at a time, so that all before it is delivered; then its offset is told.
"""

import asyncio

from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.services import Services
from streamdedup.errors import DeliveryError
from streamdedup.events import EventBatch
from streamdedup.kafka.sink import DoubtError
from streamdedup.kafka.source import UnreadableError

IDLE_WAIT_S = 0.2
UNREADABLE_TRIES = 3
ONE_BY_ONE_EVENTS = 100_000  # more than one fetch holds, so that what was unreadable is behind


class InputReader:
    """Reads one partition, in one epoch of the group's assignments at a time."""

    def __init__(self, recipe: Recipe, services: Services, partition: int) -> None:
        self._source, self._topic = services.source, recipe.settings.source.topic
        self._meters = services.meters.of(partition)
        self._partition = partition
        self._epoch = 0
        self.next_offset = 0
        self.stuck = False
        """Whether `read_until` came upon what cannot be read; `read` tells of it."""
        self._one_by_one = 0  # how many events are still to be read so
        self._tries = 0

    def begin(self, epoch: int, offset: int) -> None:
        """Read on at `offset`, as long as `epoch` lasts."""
        self._epoch, self.next_offset = epoch, offset
        self._source.go_to(self._partition, offset)

    def again(self, offset: int) -> None:
        """What was read from `offset` on was not taken: the filter has no room for it now."""
        self._meters.take_back("full", offset)
        self.next_offset = offset
        if self.ours:
            self._source.go_to(self._partition, offset)

    def passed(self) -> None:
        """What was read is delivered: what cannot be read later is another event."""
        self._tries = 0

    @property
    def ours(self) -> bool:
        """Whether the epoch lasts: else another member may have the partition."""
        return self._source.epoch == self._epoch

    async def read(self, wait_s: float, events_max: int) -> EventBatch | None:
        """The next events, at most `events_max`; None after `wait_s` or where the epoch is over.

        UnreadableError where they cannot be parsed; DeliveryError where that is so for one event alone.
        """
        if not self.ours:
            return None
        position = self._source.position(self._partition)
        if position != self.next_offset:
            raise DoubtError(f"the consumer stands at offset {position}, not {self.next_offset}")
        one_by_one, self.stuck = self._one_by_one > 0, False
        try:
            batch = await self._source.read(
                self._partition, self._epoch, wait_s, 1 if one_by_one else events_max
            )
        except UnreadableError as error:
            if one_by_one and self._tries >= UNREADABLE_TRIES:
                raise DeliveryError(
                    f"{self._topic}/{self._partition} offset {self.next_offset} cannot be read ({error}):"
                    " its record batch is damaged, above a limit, or not as Kafka's format wants it;"
                    " move the group's offset behind it"
                ) from None
            self._tries = self._tries + 1 if one_by_one else 0
            self._one_by_one = ONE_BY_ONE_EVENTS
            raise
        if batch is not None:
            self._one_by_one = max(0, self._one_by_one - len(batch))
            self.next_offset = batch.next_offset
            self._meters.read(batch)
        elif self.ours:
            self.next_offset = self._source.position(self._partition)
        return batch

    async def read_until(
        self, ends_at: float, events_max: int, leaving: asyncio.Event
    ) -> EventBatch | None:
        """The next events, waited for until the loop's time is `ends_at`; None where the wait is over.

        It may be cancelled: no event is lost by that.
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
            except UnreadableError:  # it must not take back what was read before it
                self.stuck = True
                return None
            if batch is not None:
                return batch
        return None
