"""The mark: a header of the output that names the verdict on an event.

Events are marked if those with a verdict other than PASS are emitted, too. A fold leaves out events that are marked
with another verdict. Only the last header of that name counts, and it is always ours: if an event already brings one,
ours is appended after it. So no producer of the input can keep a key out of the filter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from streamdedup.events import (
    ABSENT,
    Column,
    EventBatch,
    HeaderColumn,
    Headers,
    Integers,
    Verdict,
    Verdicts,
)
from streamdedup.kafka.options import MARK
from streamdedup.kafka.records.headers import appended as appended_headers

NO_NUMBERS: Mapping[str, Integers] = {}
# Of the headers of an event that has one, besides its name: their count, two sizes.
HEADERS_BYTES_MIN = 3
MARK_BYTES_MAX = 1024  # of all headers together that are appended to one event


def mark(verdict: Verdict) -> Headers:
    """Return the header that names `verdict`."""
    return ((MARK, _TEXTS[verdict]),)


def marks_of(headers: HeaderColumn) -> Verdicts:
    """Return the verdicts (n,) that events of an output are marked with.

    It is PASS for an event without a mark, and for one whose mark names no verdict.
    """
    cells, verdicts = headers_of(headers, MARK), np.full(len(headers), Verdict.PASS, dtype=np.uint8)
    if (cells.sizes < 0).all():
        return verdicts
    for verdict, text in _TEXTS.items():
        verdicts[_equal(cells, text)] = verdict
    return verdicts


def headers_of(headers: HeaderColumn, name: str) -> Column:
    """Return the value of the last header `name` of each row; null if there is none."""
    if headers.sizes.max(initial=0) < HEADERS_BYTES_MIN + len(name):  # in most batches
        none = np.zeros(len(headers), dtype=np.int64)
        return Column(b"", none, none + ABSENT)
    return headers.located(name)


def marked_rows(headers: HeaderColumn) -> Integers:
    """Return the rows of events with a mark, ascending, whatever the mark names; a null value is no mark."""
    return np.flatnonzero(headers_of(headers, MARK).sizes >= 0)


def appended(
    batch: EventBatch,
    rows: Integers,
    tails: Sequence[Headers],
    which: Integers,
    numbers: Mapping[str, Integers] = NO_NUMBERS,
) -> EventBatch:
    """Return `batch` with headers appended to the events of `rows` (k,), which ascend.

    Row `rows[i]` gets `tails[which[i]]`, and then one header for each of `numbers`, whose value is the i-th number in
    decimal digits.
    """
    if not len(rows):
        return batch
    bodies, raw = appended_headers(batch.bodies, batch.headers.starts, rows, tails, which, numbers)
    untouched = [origin for origin in batch.origins if np.equal(*np.searchsorted(rows, origin[:2]))]
    return replace(batch, headers=raw, bodies=bodies, origins=untouched)


_TEXTS = {verdict: verdict.name.lower().encode() for verdict in Verdict}


def _equal(cells: Column, text: bytes) -> Integers:
    """Return the rows of the cells that are equal to `text`."""
    rows = np.flatnonzero(cells.sizes == len(text))
    buffer = np.frombuffer(cells.buffer, dtype=np.uint8)
    found = buffer[cells.starts[rows, None] + np.arange(len(text))]
    same = (found == np.frombuffer(text, dtype=np.uint8)).all(axis=1)
    return np.asarray(rows[same])
