"""Reads the control topic of a list: all of it before the worker serves, then each message as it arrives.

Each worker reads all partitions, outside of any group. All messages about one key are in one partition, so they keep
their order. An event that is no valid message changes nothing; it is counted, and logged now and then by its offset.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import structlog

from streamdedup.delivery.recipe import Recipe
from streamdedup.errors import ConfigError, DeliveryError, MalformedError, StreamdedupError
from streamdedup.events import EventBatch
from streamdedup.filters.exact.digest_map import warm_up
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.client.connection import describe_error
from streamdedup.kafka.client.patience import is_away
from streamdedup.kafka.log import TrimmedError
from streamdedup.kafka.topics import Topic
from streamdedup.lists.control import read_change
from streamdedup.lists.overlay import CHANGES_MAX, NO_CHANGES, Changes
from streamdedup.logs import RateLimit
from streamdedup.metrics.counts import Meters

LOOK_EVERY_S = 0.5
PARTITIONS_EVERY_S = 10.0
AGAIN_S = 1.0
STALL_S_MAX = 60.0

log = structlog.get_logger(__name__)


class ControlTopic:
    """The changes that the messages of `topic` make to a list.

    `position` is the sum, over all partitions, of the offsets up to which messages were read. `overlay` is the effect
    of all those messages; at the same offsets it is the same on every worker, whenever the worker started. Both are
    replaced as a whole, while a thread applies further messages.
    """

    def __init__(
        self,
        recipe: Recipe,
        cluster: Cluster,
        topic: str,
        *,
        meters: Meters,
        now_ms: Callable[[], int],
    ) -> None:
        self.overlay, self.position = NO_CHANGES, 0
        self._changes = Changes()
        self._cluster, self._topic = cluster, topic
        self._meters, self._now_ms = meters, now_ms
        self._normal, self._hash = recipe.extractor().normalizer, recipe.common_hash
        self._positions: dict[int, int] = {}
        self._newest_ms = 0
        self._malformed, self._trouble = RateLimit(), RateLimit()

    async def catch_up(self) -> None:
        """Read everything that is there now. ConfigError if the topic is missing, or not compacted by key alone."""
        self._changes, self._positions = Changes(), {}
        await asyncio.to_thread(warm_up)
        await self._look_for_partitions()
        await self._read_on()

    async def news(self) -> AsyncIterator[None]:
        """Read on for ever; yield each time that `overlay` has changed.

        Errors are logged, and the read is tried again; the changes that were read before stay in force.
        """
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                if loop.time() - looked_at >= PARTITIONS_EVERY_S:
                    looked_at = loop.time()
                    await self._look_for_partitions()
                came = await self._read_on()
            except TrimmedError:
                self._positions = {}  # start over: compaction deletes a message only if a later one has its key
            except Exception as error:
                if not (is_away(error) or isinstance(error, StreamdedupError)):
                    raise
                self._log_trouble(error)
                await asyncio.sleep(AGAIN_S)
            else:
                if came:
                    yield

    def log_state(self) -> None:
        """Log how many changes are in force now, and how long after its writing the newest message came into force."""
        log.info(
            "list_changed",
            topic=self._topic,
            position=self.position,
            malformed=self._meters.changes_malformed,
            keys_changed=len(self.overlay),
            followed_s=max(0, self._now_ms() - self._newest_ms) / 1000 if self._newest_ms else None,
        )

    async def _look_for_partitions(self) -> None:
        """Read each partition that is new, or was trimmed, from its start."""
        async with asyncio.timeout(ANSWER_S_MAX):
            found = await described(self._cluster, self._topic)
            for partition in {*range(found.partitions)} - self._positions.keys():
                first = await self._cluster.first_offset(self._topic, partition)
                self._positions[partition] = first

    async def _read_on(self) -> bool:
        """Read what has arrived and renew `overlay`; return whether anything had."""
        if not self._positions:
            await self._look_for_partitions()
        for partition, position in self._positions.items():
            async with asyncio.timeout(ANSWER_S_MAX):
                end = await self._cluster.stable_offset(self._topic, partition)
            if end < position:
                raise DeliveryError(
                    f"{self._topic}/{partition} ends at offset {end}, and was read up to {position}: it lost its end,"
                    " or was deleted and created again; if this goes on, restart the worker, which reads it from its"
                    " start"
                )
            if end > position:
                await self._read_part(partition, position, end)
        self._meters.changes_read_at = time.monotonic()
        position = sum(self._positions.values())
        came = position != self.position
        if came:
            overlay = await asyncio.to_thread(self._changes.overlay)
            self.overlay, self.position = overlay, position
        return came

    async def _read_part(self, partition: int, start: int, end: int) -> None:
        reading = self._cluster.committed_events(
            self._topic, partition, start, end, stall_s=STALL_S_MAX
        )
        async for batch in reading:
            await asyncio.to_thread(self._apply, batch)
            self._positions[partition] = batch.next_offset
        self._positions[partition] = end

    def _apply(self, batch: EventBatch) -> None:
        for row in range(len(batch)):
            try:
                change = read_change(batch.keys[row], batch.values[row], self._normal)
            except MalformedError as reason:
                self._log_malformed(batch, row, str(reason))
            else:
                self._changes.apply(self._hash.digests(change.keys), change.change)
        self._newest_ms = max(self._newest_ms, int(batch.timestamps.max(initial=0)))
        if self._changes.more_than(CHANGES_MAX):
            raise ConfigError(
                f"the topic {self._topic} holds more than {CHANGES_MAX:,} changes; build the list again with them, and"
                " write null values for their keys"
            )

    def _log_trouble(self, error: Exception) -> None:
        if self._trouble.due(time.monotonic()):
            log.warning(
                "changes_behind",
                topic=self._topic,
                remedy="still trying, and the changes read before stay in force; check the topic and its brokers",
                **describe_error(error),
            )

    def _log_malformed(self, batch: EventBatch, row: int, reason: str) -> None:
        self._meters.changes_malformed += 1
        if messages := self._malformed.due(time.monotonic()):
            log.warning(
                "change_malformed",
                topic=batch.topic,
                partition=batch.partition,
                offset=int(batch.offsets[row]),
                reason=reason,
                messages=messages,
                note="malformed messages change nothing; write the entry again with `streamdedup lists add`",
            )


async def described(cluster: Cluster, topic: str) -> Topic:
    """Return the control topic `topic`; ConfigError if it is missing, or not compacted by key alone."""
    found = (await cluster.describe([topic])).topics.get(topic)
    if found is None:
        raise ConfigError(
            f"the topic {topic} does not exist or may not be seen; create it with cleanup.policy=compact, or delete"
            " blocklist.control_topic"
        )
    if found.settings and (not found.compacted or found.deletes_by_age):
        raise ConfigError(
            f"the topic {topic} deletes old messages, so changes of the list would be lost; set its cleanup.policy to"
            " compact"
        )
    return found
