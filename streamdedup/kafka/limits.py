"""Which events a topic would refuse, or delete at once.

This is checked before an event is decided, because a refusal by the broker fails the whole batch.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from streamdedup.events import EventBatch, Headers, Integers
from streamdedup.kafka.records.codecs import CODECS
from streamdedup.kafka.records.records import NO_TIMESTAMP, Record
from streamdedup.kafka.topics import FOREVER, Topic

TOO_LARGE = "too large"
ENVELOPE_BYTES_MAX = 128  # a batch's header (61) and a record's own fields, at their longest
SEVERAL_BYTES = 128  # more than a header of ours takes whose value is one word
HEADER_BYTES_MAX = 10  # the two lengths of a record header, at their longest
RETENTION_MARGIN_MS = 60_000  # an event must outlive its transaction and a snapshot


def _nothing(_headers: Headers) -> Headers:
    return ()


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one topic: the bytes of a record batch, and how far timestamps may lie from the present.

    `ahead_ms_max` counts from now into the future, `behind_ms_max` into the past.
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
        now_ms: int,
        added: Callable[[Headers], Headers] = _nothing,
        added_bytes_max: int = SEVERAL_BYTES,
    ) -> dict[int, str]:
        """Return row -> reason, for the events of `batch` that the topic would refuse, or would delete at once.

        `now_ms` is in ms since 1970. `added` returns the headers that will be appended to those of an event, in all at
        most `added_bytes_max` bytes.
        """
        ahead = np.flatnonzero(batch.timestamps > now_ms + self.ahead_ms_max)
        stamped = batch.timestamps != NO_TIMESTAMP
        behind = np.flatnonzero(stamped & (batch.timestamps < now_ms - self.behind_ms_max))
        reasons = dict.fromkeys(ahead.tolist(), f"stamped further ahead than {self.topic} allows")
        reasons |= dict.fromkeys(behind.tolist(), f"older than {self.topic} takes or keeps")
        for row in self._perhaps_too_large(batch, added_bytes_max):
            headers = batch.headers[row]
            record = (0, batch.keys[row], batch.values[row], (*headers, *added(headers)))
            if not self.takes(record):
                reasons[row] = TOO_LARGE
        return reasons

    def takes(self, record: Record) -> bool:
        """Return whether a record batch of this record alone is small enough."""
        timestamp, key, value, headers = record
        size = len(key or b"") + len(value or b"") + _header_bytes(headers)
        if size + ENVELOPE_BYTES_MAX <= self.bytes_max:
            return True
        batch = DefaultRecordBatchBuilder(2, self.codec, 1, -1, -1, 0, self.bytes_max)
        batch.append(0, timestamp=timestamp, key=key, value=value, headers=list(headers))
        return len(batch.build()) <= self.bytes_max

    def _perhaps_too_large(self, batch: EventBatch, added_bytes_max: int) -> Iterable[int]:
        besides = ENVELOPE_BYTES_MAX + added_bytes_max
        return np.flatnonzero(_record_bytes(batch) + besides > self.bytes_max).tolist()


def _record_bytes(batch: EventBatch) -> Integers:
    """Return the most bytes that each event takes in a record batch, without its envelope, (n,)."""
    if batch.bodies is not None:
        return batch.bodies.sizes
    sizes = np.maximum(batch.keys.sizes, 0) + np.maximum(batch.values.sizes, 0)
    if any(batch.headers):
        sizes = sizes + np.fromiter(map(_header_bytes, batch.headers), np.int64, len(batch))
    return sizes


def _header_bytes(headers: Iterable[tuple[str, bytes | None]]) -> int:
    return sum(4 * len(name) + len(value or b"") + HEADER_BYTES_MAX for name, value in headers)
