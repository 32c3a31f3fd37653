"""Events without some of their parts: without headers, without value, without all that is their own.

The parts of columns are cut by their places alone, and no header is read. What is left gets a buffer of its own, so
that it does not keep the bytes of what was cut in memory.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from streamdedup.events import Column, EventBatch, Integers, SomeBytes, concatenated
from streamdedup.kafka.records.headers import RawHeaders

_NULL = b"\x01"  # the size of a null
_NO_HEADERS = b"\0"
_NOTHING = _NULL + _NULL + _NO_HEADERS


def without_headers(batch: EventBatch, rows: Integers) -> EventBatch:
    """Return `batch` with no headers in `rows` (k,), ascending.

    Keys, values and bodies of the events must lie in one buffer, in ascending order, as they were read.
    """
    bodies, raw = batch.bodies, batch.headers
    view, heads, ends = memoryview(bodies.buffer), raw.starts, bodies.starts + bodies.sizes
    ends[rows] = heads[rows]
    is_cut = np.zeros(len(batch), dtype=np.bool_)
    is_cut[rows] = True
    moves, parts, at = np.empty(len(batch), dtype=np.int64), list[SomeBytes](), 0
    for first, end in _runs(rows, len(batch)):
        start, stop = int(bodies.starts[first]), int(ends[end - 1])
        moves[first:end] = at - start
        parts.append(view[start:stop])
        at += stop - start
        if is_cut[first]:
            parts.append(_NO_HEADERS)
            at += len(_NO_HEADERS)
    ends[rows] += len(_NO_HEADERS)
    buffer, heads, ends = concatenated(parts), heads + moves, ends + moves
    starts = bodies.starts + moves
    return replace(
        batch,
        keys=Column(buffer, batch.keys.starts + moves, batch.keys.sizes),
        values=Column(buffer, batch.values.starts + moves, batch.values.sizes),
        headers=RawHeaders(Column(buffer, heads, ends - heads)),
        bodies=Column(buffer, starts, ends - starts),
        origins=[
            origin for origin in batch.origins if np.equal(*np.searchsorted(rows, origin[:2]))
        ],
    )


def _runs(rows: Integers, count: int) -> Sequence[tuple[int, int]]:
    """Return the ranges that `rows` divide `count` rows into: each of `rows` alone, and those between two of them."""
    borders = np.unique(np.concatenate(([0, count], rows, rows + 1))).tolist()
    return list(pairwise(borders))


def without_values(batch: EventBatch) -> EventBatch:
    """Return `batch` with a null in place of each value; the bytes lie as in `without_headers`."""
    bodies, raw = batch.bodies, batch.headers
    values = batch.values.nulled(np.arange(len(batch)))
    view = memoryview(bodies.buffer)
    key_ends = batch.keys.starts + np.maximum(batch.keys.sizes, 0)
    ends = bodies.starts + bodies.sizes
    places = zip(*(c.tolist() for c in (bodies.starts, key_ends, raw.starts, ends)), strict=True)
    cut = Column.of(
        [concatenated((view[a:key_end], _NULL, view[head:z])) for a, key_end, head, z in places]
    )
    heads = cut.starts + key_ends - bodies.starts + len(_NULL)
    headers = RawHeaders(Column(cut.buffer, heads, cut.starts + cut.sizes - heads))
    return replace(batch, values=values, headers=headers, bodies=cut, origins=())


def emptied(batch: EventBatch) -> EventBatch:
    """Return `batch` without any key, value and header."""
    every = np.arange(len(batch))
    keys, values = batch.keys.nulled(every), batch.values.nulled(every)
    bodies = Column.of([_NOTHING] * len(batch))
    heads = bodies.starts + len(_NOTHING) - len(_NO_HEADERS)
    headers = RawHeaders(Column(bodies.buffer, heads, np.ones(len(batch), dtype=np.int64)))
    return replace(batch, keys=keys, values=values, headers=headers, bodies=bodies, origins=())
