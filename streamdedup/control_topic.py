"""The control topic of a list, as a worker reads it: all of it before it serves, then what comes.

Each worker reads all partitions, in no group. The messages of one key are in one partition, so their order holds; what
is no message is counted, told now and then by its offset, and changes nothing.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator

import structlog

from streamdedup.context import Context
from streamdedup.errors import ConfigError, MalformedError
from streamdedup.events import EventBatch
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.patience import is_away
from streamdedup.kafka.topics import Topic
from streamdedup.lists.control import read_change
from streamdedup.lists.overlay import CHANGES_MAX, Changes

LOOK_EVERY_S = 0.5
AGAIN_S = 1.0  # where the brokers are away
STALL_S_MAX = 60.0
TELL_EVERY_S = 60.0

log = structlog.get_logger(__name__)


class ControlTopic:
    """What the messages of `topic` say of keys. `messages` counts them."""

    def __init__(self, context: Context, topic: str) -> None:
        self.changes = Changes()
        self.messages = 0
        self._context, self._cluster, self._topic = context, context.cluster, topic
        self._normal, self._hash = context.extractor().normalizer, context.hash
        self._positions: dict[int, int] = {}
        self._newest_ms = 0
        self._untold, self._tell_at = 0, -math.inf

    async def catch_up(self) -> None:
        """Read all that is there now. ConfigError where the topic is missing, or forgets otherwise than by key."""
        async with asyncio.timeout(ANSWER_S_MAX):
            found = await described(self._cluster, self._topic)
            for partition in range(found.partitions):
                first = await self._cluster.first_offset(self._topic, partition)
                self._positions[partition] = first
        await self._read_on()

    async def news(self) -> AsyncIterator[None]:
        """Go on for ever, and give the loop back each time that something came; waits where the brokers are away."""
        patience = self._cluster.patience
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                came = await self._read_on()
            except Exception as error:
                if not is_away(error):
                    raise
                patience.away(self._topic, error)
                await asyncio.sleep(AGAIN_S)
                continue
            patience.back(self._topic)
            if came:
                yield

    def tell(self) -> None:
        """How many changes are in force now, and how old the newest message was when it was."""
        log.info(
            "list_changed",
            topic=self._topic,
            messages=self.messages,
            malformed=self._context.meters.changes_malformed,
            keys_changed=len(self.changes),
            followed_s=max(0, self._context.now_ms() - self._newest_ms) / 1000
            if self.messages
            else None,
        )

    async def _read_on(self) -> bool:
        """Read what came; whether anything did."""
        before = self.messages
        for partition, position in self._positions.items():
            async with asyncio.timeout(ANSWER_S_MAX):
                end = await self._cluster.stable_offset(self._topic, partition)
            if end > position:
                await self._read(partition, position, end)
        await asyncio.to_thread(self.changes.overlay)  # kept there, for whoever asks next
        return self.messages > before

    async def _read(self, partition: int, start: int, end: int) -> None:
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
                self._tell_malformed(batch, row, str(reason))
            else:
                self.changes.apply(self._hash.digests(change.keys), change.change)
        self.messages += len(batch)
        self._newest_ms = max(self._newest_ms, int(batch.timestamps.max(initial=0)))
        if len(self.changes) > CHANGES_MAX:
            raise ConfigError(
                f"the topic {self._topic} holds more than {CHANGES_MAX:,} changes; build the list again with them, and"
                " write null values for their keys"
            )

    def _tell_malformed(self, batch: EventBatch, row: int, reason: str) -> None:
        """At once, then once in a while."""
        self._context.meters.changes_malformed += 1
        self._untold += 1
        if time.monotonic() >= self._tell_at:
            log.warning(
                "change_malformed",
                topic=batch.topic,
                partition=batch.partition,
                offset=int(batch.offsets[row]),
                reason=reason,
                messages=self._untold,
                note="such messages change nothing; write the entry again as `streamdedup lists add` does",
            )
            self._untold, self._tell_at = 0, time.monotonic() + TELL_EVERY_S


async def described(cluster: Cluster, topic: str) -> Topic:
    """A control topic; ConfigError where it is missing, or forgets otherwise than by key."""
    found = (await cluster.describe([topic])).topics.get(topic)
    if found is None:
        raise ConfigError(
            f"the topic {topic} does not exist or may not be seen; create it with cleanup.policy=compact, or delete"
            " blocklist.control_topic"
        )
    if found.settings and not found.compacted:
        raise ConfigError(
            f"the topic {topic} deletes what is old, so changes of the list would be forgotten; set its"
            " cleanup.policy to compact"
        )
    return found
