"""Events as columns: consecutive events of one partition, and the verdict on each.

An `EventBatch` holds one buffer and where in it the keys and values are; nothing above `kafka/` needs to know whether
it was cut from raw record batches or joined from record objects.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Headers = Sequence[tuple[str, bytes | None]]
Integers = npt.NDArray[np.int64]
Verdicts = npt.NDArray[np.uint8]

NULL = -1  # the size of a key or value that is null, as in Kafka's record format


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What tells a record batch from any other that could stand in its place in a log.

    `offset` is that of its first record; `producer_id` and `epoch` are -1 where the producer gave none; `crc` is the
    CRC-32C of all but these; `stamped_ms`, since 1970, is the time of its first record, for people.
    """

    offset: int
    producer_id: int
    epoch: int
    crc: int
    stamped_ms: int


class Verdict(IntEnum):
    """What was decided of an event: one uint8."""

    PASS = 0
    DUPLICATE = 1
    BLOCKED = 2  # it is on the block list, or the operator asked for it to be dropped
    MALFORMED = 3  # it has no key
    REJECTED = 4  # the output would not take it, or not keep it


@dataclass(frozen=True, slots=True)
class Column:
    """Byte strings, or nulls, in one buffer: `starts` and `sizes` are int64 of shape (n,), a null has size -1."""

    buffer: bytes
    starts: Integers
    sizes: Integers

    @classmethod
    def of(cls, cells: Sequence[bytes | None]) -> "Column":
        """The column that holds `cells`."""
        sizes = np.array([NULL if cell is None else len(cell) for cell in cells], dtype=np.int64)
        taken = np.maximum(sizes, 0)
        return cls(b"".join(filter(None, cells)), np.cumsum(taken) - taken, sizes)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> bytes | None:
        size = self.sizes[row]
        return None if size < 0 else self.buffer[self.starts[row] : self.starts[row] + size]

    def take(self, rows: Integers | slice) -> "Column":
        """The cells of `rows`, over the same buffer."""
        return Column(self.buffer, self.starts[rows], self.sizes[rows])

    def nulled(self, rows: Integers) -> "Column":
        """The same with a null in each of `rows`."""
        if not len(rows):
            return self
        sizes = self.sizes.copy()
        sizes[rows] = NULL
        return Column(self.buffer, self.starts, sizes)

    def replaced(self, rows: Integers, cells: "Column") -> "Column":
        """The same, but with `cells` in place of `rows`, their order; a new buffer has what lies between the others."""
        starts, sizes = self.starts.copy(), self.sizes.copy()
        sizes[rows] = NULL
        kept = sizes >= 0
        first = int(starts[kept].min(initial=len(self.buffer)))
        end = int((starts[kept] + sizes[kept]).max(initial=first))
        starts[kept] -= first
        starts[rows], sizes[rows] = end - first + cells.starts, cells.sizes
        return Column(self.buffer[first:end] + cells.buffer, starts, sizes)

    def __iter__(self) -> Iterator[bytes | None]:
        buffer = self.buffer
        for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True):
            yield None if size < 0 else buffer[start : start + size]


class HeaderColumn(Sequence[Headers]):
    """The headers of each event where they are in one buffer, read where somebody asks for them."""

    @abstractmethod
    def located(self, name: str) -> Column:
        """Where in each row the value of the last header of that name is; null where only reading the row tells."""

    @abstractmethod
    def take(self, rows: Integers | slice) -> "HeaderColumn":
        """The headers of `rows`, over the same buffer."""


class Origin(NamedTuple):
    """A record batch as it was read, and that its events are the rows from `start` to `end`, without."""

    start: int
    end: int
    batch: object  # what `kafka/` knows it by


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """Consecutive events of `topic`/`partition`; every column has one row an event.

    `offsets` ascend, with gaps where the log has them; `timestamps` are ms since 1970; `next_offset` is where reading
    goes on. `headers` are a HeaderColumn where they were cut from raw record batches. `bodies` are the events as the
    wire has them, from the length of the key on, None where they were made of objects; `origins` are those record
    batches, ascending, all of whose events are here.
    """

    topic: str
    partition: int
    offsets: Integers
    timestamps: Integers
    keys: Column
    values: Column
    headers: Sequence[Headers]
    next_offset: int
    bodies: Column | None = None
    origins: Sequence[Origin] = ()

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def size_bytes(self) -> int:
        """The bytes of keys, values and headers, as near as the events tell without being looked into."""
        if self.bodies is not None:
            return int(self.bodies.sizes.sum())
        columns = sum(int(np.maximum(c.sizes, 0).sum()) for c in (self.keys, self.values))
        headers = (cell for cells in self.headers for cell in cells)
        return columns + sum(len(name) + len(value or b"") for name, value in headers)

    def head(self, count: int) -> "EventBatch":
        """The first `count` events, which must be fewer than all."""
        return self._rows(0, count)

    def take(self, rows: Integers) -> "EventBatch":
        """The events of `rows`, ascending; reading goes on where it did."""
        headers = self.headers
        return EventBatch(
            topic=self.topic,
            partition=self.partition,
            offsets=self.offsets[rows],
            timestamps=self.timestamps[rows],
            keys=self.keys.take(rows),
            values=self.values.take(rows),
            headers=headers.take(rows)
            if isinstance(headers, HeaderColumn)
            else [headers[row] for row in rows.tolist()],
            next_offset=self.next_offset,
            bodies=None if self.bodies is None else self.bodies.take(rows),
        )

    def parts(self, events: int) -> Iterator["EventBatch"]:
        """All of it in batches of at most so many events."""
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
            headers=self.headers[cut],
            next_offset=self.next_offset if end == len(self) else int(self.offsets[end]),
            bodies=None if self.bodies is None else self.bodies.take(cut),
            origins=[
                Origin(origin.start - start, origin.end - start, origin.batch)
                for origin in self.origins
                if start <= origin.start and origin.end <= end
            ],
        )
