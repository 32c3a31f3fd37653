"""Events as columns: consecutive events of one partition, and the verdict on each.

An `EventBatch` holds one buffer, and the positions of the keys, values and headers in it.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from io import BytesIO
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Headers = Sequence[tuple[str, bytes | None]]
Integers = npt.NDArray[np.int64]
Verdicts = npt.NDArray[np.uint8]
SomeBytes = bytes | memoryview

NO_TIMESTAMP = -1  # the timestamp of an event that has none; also of records older than timestamps
NULL = -1  # the size of a key or value that is null, as in Kafka's record format
# In place of the size of a header's value: no header has that name; or only reading all headers of the row decides.
ABSENT, UNREAD = -2, -3
REPLACEMENT = "\ufffd"  # read in place of bytes in the name of a header that are not UTF-8

COPY_PIECE_BYTES = 1 << 20  # copied while a thread holds the GIL: 0.4 ms


def concatenated(parts: Iterable[SomeBytes]) -> bytes:
    """Return `parts` as one. Between two pieces of the copy, other threads get the GIL.

    One copy of 100 MB would hold it for 50 ms, even in a thread.
    """
    every = list(parts)
    if len(every) == 1 and isinstance(every[0], bytes):
        return every[0]
    if sum(map(len, every)) <= COPY_PIECE_BYTES:
        return b"".join(every)
    whole = BytesIO()
    for part in every:
        for at in range(0, len(part), COPY_PIECE_BYTES):
            whole.write(part[at : at + COPY_PIECE_BYTES])
    return whole.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What distinguishes a record batch from any other that could take its place in a log.

    `offset` is the offset of its first record. `producer_id` and `epoch` are -1 if the producer sent none.
    `crc` is the batch's own CRC-32C, which does not cover `offset`. `stamped_ms` is the timestamp of its
    first record, in ms since 1970, for people.
    """

    offset: int
    producer_id: int
    epoch: int
    crc: int
    stamped_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A record batch that cannot be read: what is wrong, all of its bytes, and its offsets, the last one included.

    `is_checked` is whether its checksum is right: then it was written as it is, and no second look helps.
    """

    reason: str
    first_offset: int
    last_offset: int
    raw: memoryview
    is_checked: bool


class Verdict(IntEnum):
    """The decision on an event, one uint8."""

    PASS = 0
    DUPLICATE = 1
    BLOCKED = 2  # it is on the block list, or the operator wants it dropped
    MALFORMED = 3  # it has no key
    REJECTED = 4  # the output would not accept it, or not keep it


@dataclass(frozen=True, slots=True)
class Column:
    """Byte strings or nulls in one buffer.

    `starts` and `sizes` are int64 of shape (n,); the size of a null is -1.
    """

    buffer: bytes
    starts: Integers
    sizes: Integers

    @classmethod
    def of(cls, cells: Sequence[bytes | None]) -> "Column":
        """Return the column that holds `cells`."""
        sizes = np.array([NULL if cell is None else len(cell) for cell in cells], dtype=np.int64)
        taken = np.maximum(sizes, 0)
        return cls(concatenated(filter(None, cells)), np.cumsum(taken) - taken, sizes)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> bytes | None:
        size = self.sizes[row]
        return None if size < 0 else self.buffer[self.starts[row] : self.starts[row] + size]

    def take(self, rows: Integers | slice) -> "Column":
        """Return the cells of `rows`, over the same buffer."""
        return Column(self.buffer, self.starts[rows], self.sizes[rows])

    def nulled(self, rows: Integers) -> "Column":
        """Return the same column with a null in each of `rows`."""
        if not len(rows):
            return self
        sizes = self.sizes.copy()
        sizes[rows] = NULL
        return Column(self.buffer, self.starts, sizes)

    def placed(self, rows: Integers, cells: "Column") -> "Column":
        """Return the column with `cells`, in their order, in the place of `rows`. Both are over the same buffer."""
        starts, sizes = self.starts.copy(), self.sizes.copy()
        starts[rows], sizes[rows] = cells.starts, cells.sizes
        return Column(self.buffer, starts, sizes)

    def replaced(self, rows: Integers, cells: "Column") -> "Column":
        """Return the column with `cells`, in their order, in the place of `rows`.

        Its new buffer also has the bytes that lie between the other cells.
        """
        starts, sizes = self.starts.copy(), self.sizes.copy()
        sizes[rows] = NULL
        kept = sizes >= 0
        first = int(starts[kept].min(initial=len(self.buffer)))
        end = int((starts[kept] + sizes[kept]).max(initial=first))
        starts[kept] -= first
        starts[rows], sizes[rows] = end - first + cells.starts, cells.sizes
        between = memoryview(self.buffer)[first:end]
        return Column(concatenated((between, cells.buffer)), starts, sizes)

    def __iter__(self) -> Iterator[bytes | None]:
        buffer = self.buffer
        for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True):
            yield None if size < 0 else buffer[start : start + size]


class HeaderColumn(Sequence[Headers]):
    """The headers of each event in one buffer. A row is read only if somebody asks for it."""

    @abstractmethod
    def located(self, name: str) -> Column:
        """Return where in each row the value of the last header of that name is.

        Its size is NULL if that value is null, ABSENT if the row has no such header, and UNREAD if only reading the row
        can decide.
        """

    @abstractmethod
    def counts(self) -> Integers:
        """Return the number of headers of each row, (n,)."""

    @property
    @abstractmethod
    def starts(self) -> Integers:
        """Where in the buffer the headers of each row begin, with their count, (n,)."""

    @property
    @abstractmethod
    def sizes(self) -> Integers:
        """The bytes that the headers of each row take in the record, (n,)."""

    @abstractmethod
    def take(self, rows: Integers | slice) -> "HeaderColumn":
        """Return the headers of `rows`, over the same buffer."""


class Origin(NamedTuple):
    """A record batch as it was read. Its events are the rows from `start` to `end`, `end` excluded."""

    start: int
    end: int
    batch: object  # the reference by which `kafka/` knows it


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where each event of a middle topic lay in the input: its topic, partition and offset, (n,) each.

    The topics are the bytes of their names, none of them null.
    """

    topics: Column
    partitions: Integers
    offsets: Integers

    def __len__(self) -> int:
        return len(self.offsets)

    def take(self, rows: Integers | slice) -> "Places":
        """Return those of `rows`."""
        return Places(
            topics=self.topics.take(rows),
            partitions=self.partitions[rows],
            offsets=self.offsets[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """Consecutive events of `topic`/`partition`; every column has one row an event.

    `offsets` ascend, with gaps if the log has them; `timestamps` are in ms since 1970; `next_offset` is the
    offset at which reading goes on. `bodies` are the events in the wire format, from the length of the key on.
    `origins` are the record batches, ascending, of which all events are in this batch. `damage`, in a batch of no
    events, is what was skipped in their place. `places`, in a batch of a middle topic, is where the events lay in the
    input.
    """

    topic: str
    partition: int
    offsets: Integers
    timestamps: Integers
    keys: Column
    values: Column
    headers: HeaderColumn
    bodies: Column
    next_offset: int
    origins: Sequence[Origin] = ()
    damage: Damage | None = None
    places: Places | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def size_bytes(self) -> int:
        """The bytes of keys, values and headers, with their sizes; of what was skipped, all of its bytes."""
        return int(self.bodies.sizes.sum()) if self.damage is None else len(self.damage.raw)

    def place(self, row: int) -> tuple[str, int, int]:
        """Return topic, partition and offset of an event, for people: those in the input if there are `places`."""
        places = self.places
        if places is None:
            return self.topic, self.partition, int(self.offsets[row])
        topic = (places.topics[row] or b"").decode(errors="replace")
        return topic, int(places.partitions[row]), int(places.offsets[row])

    def head(self, count: int) -> "EventBatch":
        """Return the first `count` events; `count` must be less than the number of events."""
        return self._rows(0, count)

    def tail(self, start: int) -> "EventBatch":
        """Return the events from row `start` on; `start` must be less than the number of events."""
        return self._rows(start, len(self))

    def take(self, rows: Integers) -> "EventBatch":
        """Return the events of `rows`, ascending. `next_offset` stays the same."""
        return EventBatch(
            topic=self.topic,
            partition=self.partition,
            offsets=self.offsets[rows],
            timestamps=self.timestamps[rows],
            keys=self.keys.take(rows),
            values=self.values.take(rows),
            headers=self.headers.take(rows),
            bodies=self.bodies.take(rows),
            next_offset=self.next_offset,
            places=None if self.places is None else self.places.take(rows),
        )

    def parts(self, events: int) -> Iterator["EventBatch"]:
        """Yield all events in batches of at most `events` events."""
        if len(self) <= events:
            yield self
            return
        for start in range(0, len(self), events):
            yield self._rows(start, min(start + events, len(self)))

    def _rows(self, start: int, end: int) -> "EventBatch":
        cut = slice(start, end)
        return EventBatch(
            topic=self.topic,
            partition=self.partition,
            offsets=self.offsets[cut],
            timestamps=self.timestamps[cut],
            keys=self.keys.take(cut),
            values=self.values.take(cut),
            headers=self.headers.take(cut),
            bodies=self.bodies.take(cut),
            next_offset=self.next_offset if end == len(self) else int(self.offsets[end]),
            origins=[
                Origin(origin.start - start, origin.end - start, origin.batch)
                for origin in self.origins
                if start <= origin.start and origin.end <= end
            ],
            places=None if self.places is None else self.places.take(cut),
        )
