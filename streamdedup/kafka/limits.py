"""Which events a topic would refuse, or delete at once.

This is checked before an event is decided, because a refusal by the broker fails the whole batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamdedup.events import NO_TIMESTAMP, EventBatch, Integers
from streamdedup.kafka.broker_clock import Span
from streamdedup.kafka.client.open_batches import loop_bytes_max
from streamdedup.kafka.records.codecs import CODECS, NONE
from streamdedup.kafka.records.encoding import BatchEncoder
from streamdedup.kafka.topics import FOREVER, Topic

TOO_LARGE = "too large"
ENVELOPE_BYTES_MAX = 128  # a batch's header (61) and a record's own fields, at their longest
SEVERAL_BYTES = 128  # more than a header of ours takes whose value is one word
RETENTION_MARGIN_MS = 60_000  # an event must outlive its transaction and a snapshot
_EARLIEST, _LATEST = -(1 << 63), (1 << 63) - 1  # what a timestamp can be


def _nothing(batch: EventBatch) -> EventBatch:
    return batch


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one topic: the bytes of a record batch, and how far timestamps may lie from the present.

    `ahead_ms_max` counts from now into the future, `behind_ms_max` into the past; FOREVER is no limit.
    """

    topic: str
    bytes_max: int
    ahead_ms_max: int
    behind_ms_max: int
    codec: int

    @classmethod
    def of(cls, topic: Topic, compression: str) -> "Limits":
        """Return the limits that the broker reports for `topic`, or its defaults if it reports none."""
        kept_ms = topic.behind_ms_max
        if topic.stamped_by_producer and topic.deletes_by_age:
            kept_ms = min(kept_ms, topic.retention_ms)
        margin_ms = 0 if kept_ms == FOREVER else min(RETENTION_MARGIN_MS, kept_ms // 2)
        return cls(
            topic.name,
            topic.bytes_max,
            topic.ahead_ms_max,
            kept_ms - margin_ms,
            CODECS[compression],
        )

    def rejected(
        self,
        batch: EventBatch,
        present: Span | None,
        added: Callable[[EventBatch], EventBatch] = _nothing,
        added_bytes_max: int = SEVERAL_BYTES,
    ) -> dict[int, str]:
        """Return row -> reason, for the events of `batch` that the topic would refuse, or would delete at once.

        `present` is the time on the broker, ms since 1970: only what is certain by it is returned, and nothing is
        judged by time if it is None. `added` appends the headers that the events will be sent with, in all at most
        `added_bytes_max` bytes an event.
        """
        reasons = {} if present is None else self._untimely(batch, present)
        if len(rows := self._perhaps_too_large(batch, added_bytes_max)):
            too_large = rows[~self.fitting(added(batch.take(rows)))]
            reasons |= dict.fromkeys(too_large.tolist(), TOO_LARGE)
        return reasons

    def takes_long_for(self, batch: EventBatch) -> bool:
        """Return whether `rejected` and `fitting` may hold up the loop: they compress the events that may be too large.

        Call them in a thread then.
        """
        if self.codec == NONE:
            return False
        compressed = batch.bodies.sizes[self._perhaps_too_large(batch, SEVERAL_BYTES)]
        return int(compressed.sum()) > loop_bytes_max(self.codec)

    def earliest_ms(self, now_ms: int) -> int:
        """Return the oldest timestamp that the topic takes and keeps at `now_ms`.

        A broker computes the distance in 64 bits: what is further back than these hold is ahead for it.
        """
        if self.behind_ms_max < FOREVER:
            return now_ms - self.behind_ms_max
        return _EARLIEST if self.ahead_ms_max >= FOREVER else now_ms - _LATEST

    def latest_ms(self, now_ms: int) -> int:
        """Return the timestamp furthest in the future that the topic takes at `now_ms`."""
        return _LATEST if self.ahead_ms_max >= FOREVER else now_ms + self.ahead_ms_max

    def fitting(self, batch: EventBatch) -> npt.NDArray[np.bool_]:
        """Return which events are small enough if each is alone in a record batch, as a mask (n,).

        Sizes alone decide it for most. The others are encoded, byte for byte as they would be sent; no header is read.
        """
        bodies = batch.bodies
        fits = np.asarray(bodies.sizes + ENVELOPE_BYTES_MAX <= self.bytes_max)
        unsure = ~fits if self.codec != NONE else ~fits & (bodies.sizes < self.bytes_max)
        for row in np.flatnonzero(unsure).tolist():
            encoder = BatchEncoder(codec=self.codec, transactional=False, bytes_max=0)
            alone = slice(row, row + 1)
            encoder.add(bodies.take(alone), batch.timestamps[alone])
            fits[row] = all(len(made.data) <= self.bytes_max for made in encoder.finish())
        return fits

    def _untimely(self, batch: EventBatch, present: Span) -> dict[int, str]:
        ahead = np.flatnonzero(batch.timestamps > self.latest_ms(present.latest))
        stamped = batch.timestamps != NO_TIMESTAMP
        behind = np.flatnonzero(stamped & (batch.timestamps < self.earliest_ms(present.earliest)))
        reasons = dict.fromkeys(ahead.tolist(), ahead_reason(self.topic))
        return reasons | dict.fromkeys(behind.tolist(), behind_reason(self.topic))

    def _perhaps_too_large(self, batch: EventBatch, added_bytes_max: int) -> Integers:
        besides = ENVELOPE_BYTES_MAX + added_bytes_max
        return np.flatnonzero(batch.bodies.sizes + besides > self.bytes_max)


def ahead_reason(topic: str) -> str:
    """Return the reason of an event whose timestamp is too far in the future for `topic`."""
    return f"stamped further ahead than {topic} allows"


def behind_reason(topic: str) -> str:
    """Return the reason of an event that is too old for `topic`, or for its retention."""
    return f"older than {topic} takes or keeps"
