"""Reads the control topic of a list: all of it before the worker serves, then each message as it arrives.

Each worker reads all partitions, outside of any group. The messages about one key are in one partition, and keep their
order; after partitions were added, their timestamps decide between two of them (`lists.overlay`). An event that is no
valid message changes nothing; it is counted, and logged now and then by its offset. Whatever happens to the topic is
reported, and tried again: the changes that were read stay in force, and events flow.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog

from streamdedup.delivery.recipe import Recipe
from streamdedup.errors import DeliveryError, MalformedError
from streamdedup.events import EventBatch
from streamdedup.filters.exact.digest_map import warm_up
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.client.connection import describe_error
from streamdedup.kafka.client.patience import Backoff
from streamdedup.kafka.log import TrimmedError
from streamdedup.kafka.partitions import abort_command
from streamdedup.keys.hashing import Hash
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.lists.control import Change, control_topic, read_change, refuse_too_many
from streamdedup.lists.overlay import (
    NO_CHANGES,
    Changes,
    Overlay,
)
from streamdedup.logs import RateLimit
from streamdedup.metrics.counts import Meters
from streamdedup.threads import Lane
from streamdedup.worker.tasks import is_cancelled

LOOK_EVERY_S = 0.5
TOPIC_EVERY_S = 10.0
ENDS_S_MAX = 10.0
LEADER_S_MAX = 2.0  # for a partition without a leader: the others wait for its answer, too
AGAIN_S = 1.0  # after an error, then twice that, and so on
AGAIN_S_MAX = 15.0
STALL_S_MAX = 60.0
ROWS_A_TURN = 64

log = structlog.get_logger(__name__)


class _End(NamedTuple):
    """The end of a partition, and the offset below which everything in it is decided."""

    stable: int
    end: int


class _Trouble(NamedTuple):
    """An error, and the partition that it is about; None if it is about the topic."""

    error: Exception
    partition: int | None = None


@dataclass
class _Rest:
    """A partition in trouble is left alone `until` that time of the loop, while the others are read."""

    until: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(AGAIN_S, AGAIN_S_MAX))


class ControlTopic:
    """The changes that the messages of `topic` make to a list.

    `position` is the sum, over all partitions, of the offsets up to which messages were read. `overlay` is the effect
    of all those messages; at the same offsets it is the same on every worker, whenever the worker started. Both are
    replaced as a whole, once all that arrived has been read.
    """

    def __init__(
        self,
        recipe: Recipe,
        cluster: Cluster,
        topic: str,
        *,
        meters: Meters,
        keys: Lane,
        now_ms: Callable[[], int],
    ) -> None:
        self.overlay, self.position = NO_CHANGES, 0
        self._changes = Changes()
        self._cluster, self._topic = cluster, topic
        self._meters, self._keys, self._now_ms = meters, keys, now_ms
        self._normal, self._hash = recipe.extractor().normalizer, recipe.common_hash
        self._open_s_max = recipe.settings.delivery.open_transaction_s
        self._topic_id: str | None = None
        self._partitions = 0
        # By partition; without those that are to be read from their start.
        self._positions: dict[int, int] = {}
        self._resting: dict[int, _Rest] = {}  # the partitions in trouble
        self._looks_at = 0.0  # when to look at the topic again, by the loop's clock
        self._is_new = False  # whether no overlay was made since the topic was read from its start
        self._newest_ms = 0
        self._malformed, self._trouble, self._open = RateLimit(), RateLimit(), RateLimit()
        self._last_trouble: type[Exception] | None = None

    async def catch_up(self) -> None:
        """Read everything that is there now. ConfigError if the topic is missing, or not compacted by key alone."""
        self._begin_anew()
        await asyncio.to_thread(_warm_up, self._hash)
        await self._look_at_topic()
        self._meters.changes_read_at = time.monotonic()
        _came, trouble = await self._read_on()
        if trouble:
            raise trouble.error

    async def news(self) -> AsyncIterator[None]:
        """Read on for ever; yield each time that `overlay` has changed.

        Errors are logged, and the read is tried again, with back-off; the changes that were read before stay in force.
        """
        backoff = Backoff(AGAIN_S, AGAIN_S_MAX)
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                if asyncio.get_running_loop().time() >= self._looks_at:
                    await self._look_at_topic()
                came, trouble = await self._read_on()
            except Exception as error:
                came, trouble = False, _Trouble(error)
            if came:
                yield
            if is_cancelled():
                return
            if trouble is None:
                backoff.reset()
                self._last_trouble = self._last_trouble if self._resting else None
                continue
            self._log_trouble(trouble)
            self._looks_at = 0.0  # the topic may say why
            if trouble.partition is None:
                await asyncio.sleep(backoff.next_s())

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

    def _begin_anew(self) -> None:
        self._changes, self._positions, self._is_new = Changes(), {}, True
        self._resting = {}

    async def _look_at_topic(self) -> None:
        """Note how many partitions it has. If it is another topic of the same name, drop all that was read."""
        async with asyncio.timeout(ANSWER_S_MAX):
            found = await control_topic(self._cluster, self._topic)
        self._partitions = found.partitions
        known, self._topic_id = self._topic_id, found.topic_id or self._topic_id
        if known not in (None, self._topic_id):
            log.warning(
                "control_topic_remade",
                topic=self._topic,
                before=known,
                now=self._topic_id,
                keys_changed=len(self.overlay),
                reason="the topic was deleted and created again: the changes that were read from it are dropped, and"
                " what it holds now is read from its start",
                remedy="write the changes again that are still wanted",
            )
            self._begin_anew()
        self._looks_at = asyncio.get_running_loop().time() + TOPIC_EVERY_S

    async def _read_on(self) -> tuple[bool, _Trouble | None]:
        """Read what has arrived and renew `overlay`; return whether anything had, and the first error.

        A partition in trouble does not keep the others from being read.
        """
        while True:
            ends, troubles, trimmed = await self._read_parts()
            position, topic_id = sum(self._positions.values()), self._topic_id
            came = self._is_new or position != self.position
            if came or troubles:
                # What was read between two looks at the same topic is of that topic: an id never comes back.
                await self._look_at_topic()
            if self._topic_id == topic_id and not trimmed:
                break
        if came:
            self.overlay = await asyncio.to_thread(self._renewed)
            self.position, self._is_new = position, False
        if not self._resting:
            await self._note_unread(ends)
        return came, troubles[0] if troubles else None

    async def _read_parts(self) -> tuple[Mapping[int, _End], list[_Trouble], bool]:
        """Read each partition that does not rest, up to what is decided.

        Return their ends, what kept some from being read, and whether one was trimmed and is to be read from its start.
        """
        loop, trimmed = asyncio.get_running_loop(), False
        resting = {p for p, rest in self._resting.items() if loop.time() < rest.until}
        partitions = [p for p in range(self._partitions) if p not in resting]
        answers = await asyncio.gather(*map(self._end_of, partitions), return_exceptions=True)
        ends, troubles = dict[int, _End](), list[_Trouble]()
        for partition, answer in zip(partitions, answers, strict=True):
            try:
                if isinstance(answer, BaseException):
                    raise answer
                ends[partition] = answer
                await self._read_part(partition, answer.stable)
            except TrimmedError:  # compaction deletes a message only if a later one has its key
                del self._positions[partition]
                trimmed = True
            except Exception as error:
                rest = self._resting.setdefault(partition, _Rest())
                rest.until = loop.time() + rest.backoff.next_s()
                troubles.append(_Trouble(error, partition))
            else:
                self._resting.pop(partition, None)
        return ends, troubles, trimmed

    async def _end_of(self, partition: int) -> _End:
        leader = self._cluster.leader(self._topic, partition)
        try:
            async with asyncio.timeout(ENDS_S_MAX if leader is not None else LEADER_S_MAX):
                if partition not in self._positions:
                    first = await self._cluster.first_offset(self._topic, partition)
                    self._positions[partition] = first
                end = await self._cluster.end_offset(self._topic, partition)
                return _End(await self._cluster.stable_offset(self._topic, partition), end)
        except TimeoutError:
            raise TimeoutError("the partition has no leader, or it does not answer") from None

    async def _read_part(self, partition: int, end: int) -> None:
        start = self._positions[partition]
        if end < start:
            raise DeliveryError(
                f"{self._topic}/{partition} ends at offset {end}, and was read up to {start}: it lost its end, or, if"
                " the broker reports no topic ids, was deleted and created again; if this goes on, restart the worker,"
                " which reads it from its start"
            )
        reading = self._cluster.committed_events(
            self._topic, partition, start, end, stall_s=STALL_S_MAX
        )
        try:
            async for batch in reading:
                for part in batch.parts(ROWS_A_TURN):
                    await self._apply(part)
                    await asyncio.sleep(0)
                self._positions[partition] = batch.next_offset
                if self._changes.ripe:
                    await asyncio.to_thread(self._merge)
                # They would keep a large record batch in memory while the next is read.
                del batch, part
        finally:
            await reading.aclose()
        self._positions[partition] = end

    async def _apply(self, batch: EventBatch) -> None:
        """Apply the messages of `batch`, which has few: each takes Python, and the loop waits."""
        keys, changes, stamps, reasons = list[bytes](), list[int](), list[int](), list[str]()
        for row, change in enumerate(await self._read_changes(batch)):
            if isinstance(change, MalformedError):
                self._log_malformed(batch, row, str(change))
            else:
                keys += change.keys
                changes += [change.change] * len(change.keys)
                stamps += [int(batch.timestamps[row])] * len(change.keys)
                reasons += [change.reason] * len(change.keys)
        self._changes.apply(self._hash.digests(keys), changes, stamps, batch.partition, reasons)
        self._newest_ms = max(self._newest_ms, int(batch.timestamps.max(initial=0)))

    async def _read_changes(self, batch: EventBatch) -> list[Change | MalformedError]:
        """Return what each message of `batch` asks for, or what is wrong with it; in a thread if that takes long."""
        if self._normal is None or not self._normal.takes_long:
            return _changes_of(batch, self._normal)
        what = "the keys of its messages"
        return await self._keys.run(self._topic, what, _changes_of, batch, self._normal)

    def _merge(self) -> None:
        self._changes.merge()
        refuse_too_many(self._changes, self._topic)

    def _renewed(self) -> Overlay:
        refuse_too_many(self._changes, self._topic)
        return self._changes.overlay()

    async def _note_unread(self, ends: Mapping[int, _End]) -> None:
        """Note when all was last read; warn of an open transaction, after which nothing can be read."""
        now_s, meters = time.monotonic(), self._meters
        unread = [p for p, end in ends.items() if self._positions[p] < end.end]
        if not unread:
            meters.changes_read_at = now_s
        elif now_s - (meters.changes_read_at or now_s) >= self._open_s_max and self._open.due(
            now_s
        ):
            await self._warn_open(unread[0], self._positions[unread[0]])

    async def _warn_open(self, partition: int, offset: int) -> None:
        async with asyncio.timeout(ENDS_S_MAX):
            first = await self._cluster.batch_at(self._topic, partition, offset)
        writer = {"producer_id": first.producer_id, "epoch": first.epoch} if first else {}
        self._behind(
            f"a transaction is open from offset {offset} of partition {partition} on: what is written after that cannot"
            " be read before it ends",
            f"wait for its end, or end it ({abort_command(self._topic, partition, offset)})",
            partition=partition,
            offset=offset,
            **writer,
        )

    def _log_trouble(self, trouble: _Trouble) -> None:
        """Log the first error of its kind, and then one line a minute."""
        error, partition = trouble
        if self._trouble.due(time.monotonic()) or type(error) is not self._last_trouble:
            details = describe_error(error)
            self._behind(
                details.pop("error"),
                "still trying, and the changes read before stay in force; check the topic and its brokers",
                partition=partition,
                **details,
            )
        self._last_trouble = type(error)

    def _behind(self, error: str, remedy: str, **details: Any) -> None:  # noqa: ANN401 - of a log line
        log.warning("changes_behind", topic=self._topic, error=error, remedy=remedy, **details)

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
                note="it changes nothing: an earlier change of its entry stays in force here, but a worker that starts"
                " once that is compacted away does not find it; write the entry again (`streamdedup lists add`,"
                " `remove` or `undo`)",
            )


def _changes_of(batch: EventBatch, normal: Normalizer | None) -> list[Change | MalformedError]:
    found = list[Change | MalformedError]()
    for entry, value in zip(batch.keys, batch.values, strict=True):
        try:
            found.append(read_change(entry, value, normal))
        except MalformedError as reason:
            found.append(reason.with_traceback(None))
    return found


def _warm_up(hash_: Hash) -> None:
    warm_up()
    hash_.warm_up()
