"""The origin: the header of a middle topic that names where in the input an event lay, and which deployment copied it.

Its value is text: TOPIC/PARTITION/OFFSET/GROUP, numbers in decimal digits. Only the last header of an event counts, and
it is always ours: an input event that already has a header of that name keeps it, and ours is appended after it. So
`unmarked` gives back the very bytes that `marked` was given, if the count of their headers is written as every client
writes it, in as few bytes as possible.
"""

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from streamdedup.events import NULL, Column, EventBatch, Integers, Places, concatenated
from streamdedup.kafka.records import origin_rows
from streamdedup.kafka.records.headers import COUNT_GROWTH_BYTES, RawHeaders, size_of
from streamdedup.keys.hashing import Bytes, frozen

ORIGIN = "streamdedup-origin"

_NAME = ORIGIN.encode()
_VALUE = re.compile(
    rb"([^/]{1,%d})/(0|[1-9][0-9]{0,9})/(0|[1-9][0-9]{0,18})/(.*)" % origin_rows.TOPIC_BYTES_MAX,
    re.DOTALL,
)
_OFFSET_DIGITS_MAX = 20  # a sign, 19 digits


class _Origin(NamedTuple):
    """What a value says."""

    topic: bytes
    partition: int
    offset: int
    group: bytes


def marked(batch: EventBatch, rows: Integers, group: str) -> EventBatch:
    """Return the events of `rows` (k,), ascending, each with its origin as the last header.

    The origin names the topic, partition and offset of the event, and `group`.

    ValueError if the headers of an event do not lie in its body.
    """
    few = batch if len(rows) == len(batch) else batch.take(rows)
    before, after = f"{batch.topic}/{batch.partition}/".encode(), b"/" + group.encode()
    bodies, heads = few.bodies, few.headers.starts
    longest = size_of(((ORIGIN, before + bytes(_OFFSET_DIGITS_MAX) + after),)) + COUNT_GROWTH_BYTES
    out = np.empty(int(bodies.sizes.sum()) + longest * len(few), dtype=np.uint8)
    starts, sizes = np.empty((2, len(few)), dtype=np.int64)
    done = origin_rows.append(
        *_arguments(bodies, heads),
        _bytes(_SIZED_NAME),
        _bytes(before),
        _bytes(after),
        frozen(few.offsets, np.int64),
        out,
        starts,
        sizes,
    )
    if done < len(few):
        raise ValueError(f"the headers of row {done} do not lie in its body")
    end = int(starts[-1] + sizes[-1]) if len(few) else 0
    buffer = concatenated([out.data[:end]])
    heads = starts + (heads - bodies.starts)
    return _moved(few, starts - bodies.starts, Column(buffer, starts, sizes), heads)


def unmarked(batch: EventBatch, group: str) -> tuple[EventBatch, int | None]:
    """Return the events without their last headers, and with the `places` that these name; no record batch is whole.

    The second result is the offset, in the middle topic, of the first event whose last header is no origin of `group`.
    The batch then ends before that event. It is None if there is no such event. Keys and values must lie in the buffer
    of the bodies, as they were read.
    """
    bodies = batch.bodies
    out = np.empty(int(np.maximum(bodies.sizes, 0).sum()), dtype=np.uint8)
    table = np.empty((origin_rows.COLUMNS, len(batch)), dtype=np.int64)
    done = origin_rows.take_off(
        *_arguments(bodies, batch.headers.starts),
        _bytes(_NAME),
        _bytes(group.encode()),
        out,
        table,
    )
    stranger = None
    if done < len(batch):
        stranger, batch, table = int(batch.offsets[done]), batch.head(done), table[:, :done]
    starts, sizes = table[origin_rows.BODY], table[origin_rows.BODY_SIZE]
    end = int(starts[-1] + sizes[-1]) if done else 0
    buffer = concatenated([out.data[:end]])
    places = Places(
        topics=Column(buffer, table[origin_rows.TOPIC], table[origin_rows.TOPIC_SIZE]),
        partitions=table[origin_rows.PARTITION],
        offsets=table[origin_rows.OFFSET],
    )
    moves, heads = starts - bodies.starts[:done], table[origin_rows.HEADERS]
    stripped = _moved(batch, moves, Column(buffer, starts, sizes), heads)
    return replace(stripped, places=places), stranger


def found_in(batch: EventBatch, row: int, group: str) -> str:
    """Return what stands in place of an origin of `group` at the end of an event, for people."""
    name, value = _last(batch, row)
    if name != ORIGIN:
        return f"no header {ORIGIN} at the end"
    origin = _parsed(value or b"")
    if origin is not None and origin.group != group.encode():
        return f"the origin of group {origin.group.decode(errors='replace')!r}"
    return f"a header {ORIGIN} that names no place of the input"


def group_of(batch: EventBatch, row: int) -> str | None:
    """Return the group that the origin at the end of an event names; None if it ends with no origin."""
    name, value = _last(batch, row)
    origin = _parsed(value or b"") if name == ORIGIN else None
    return None if origin is None else origin.group.decode(errors="replace")


def _last(batch: EventBatch, row: int) -> tuple[str, bytes | None]:
    """Return the last header of an event if it is an origin, valid or not; else any other name.

    However many headers it has, no object is made of them.
    """
    one = batch.headers.take(np.array([row]))
    last = one.located(ORIGIN)
    ends_there = max(int(last.sizes[0]), 0) + last.starts[0] == one.starts[0] + one.sizes[0]
    return (ORIGIN, last[0]) if last.sizes[0] >= NULL and ends_there else ("", None)


def warm_up() -> None:
    """Compile the kernels, or load them from the cache."""
    none = Column(b"\1\1\0", np.zeros(1, np.int64), np.full(1, -1, np.int64))
    batch = EventBatch(
        topic="warm-up",
        partition=0,
        offsets=np.zeros(1, np.int64),
        timestamps=np.zeros(1, np.int64),
        keys=none,
        values=none,
        headers=RawHeaders(Column(none.buffer, np.full(1, 2, np.int64), np.ones(1, np.int64))),
        next_offset=1,
        bodies=Column(none.buffer, none.starts, np.full(1, 3, np.int64)),
    )
    unmarked(marked(batch, np.zeros(1, np.int64), "warm-up"), "warm-up")


def _arguments(
    bodies: Column, header_starts: Integers
) -> tuple[Bytes, Integers, Integers, Integers]:
    """Return the arguments by which each kernel begins: where bodies and headers are."""
    starts, sizes, heads = (
        frozen(column, np.int64) for column in (bodies.starts, bodies.sizes, header_starts)
    )
    return _bytes(bodies.buffer), starts, sizes, heads


def _bytes(text: bytes) -> Bytes:
    return frozen(np.frombuffer(text, dtype=np.uint8), np.uint8)


def _moved(
    batch: EventBatch, moves: Integers, bodies: Column, header_starts: Integers
) -> EventBatch:
    """Return `batch` with these bodies, moved so far (n,), which only differ from its own in their headers."""
    ends = bodies.starts + bodies.sizes
    return replace(
        batch,
        keys=Column(bodies.buffer, batch.keys.starts + moves, batch.keys.sizes),
        values=Column(bodies.buffer, batch.values.starts + moves, batch.values.sizes),
        headers=RawHeaders(Column(bodies.buffer, header_starts, ends - header_starts)),
        bodies=bodies,
        origins=(),
    )


def _parsed(value: bytes) -> _Origin | None:
    found = _VALUE.fullmatch(value)
    if found is None:
        return None
    topic, partition, offset, group = found.groups()
    if int(partition) > origin_rows.PARTITION_MAX or int(offset) > origin_rows.OFFSET_MAX:
        return None
    return _Origin(topic, int(partition), int(offset), group)


_SIZED_NAME = bytes([len(_NAME) << 1]) + _NAME
