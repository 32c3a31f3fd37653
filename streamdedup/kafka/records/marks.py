"""The mark: a header of the output that tells the verdict on an event, where events pass that were not judged PASS.

A fold leaves out what is marked otherwise. Only the last header of that name counts, and it is always ours: an event
that brings one along gets another behind it, so that nobody who writes the input keeps a key out of the filter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from streamdedup.events import (
    Column,
    EventBatch,
    HeaderColumn,
    Headers,
    Integers,
    Verdict,
    Verdicts,
)
from streamdedup.kafka.options import MARK
from streamdedup.kafka.records.headers import RawHeaders

NO_NUMBERS: Mapping[str, Integers] = {}
MARK_BYTES_MAX = 1024  # of all headers that are appended to one event


def mark(verdict: Verdict) -> Headers:
    """The header that tells it."""
    return ((MARK, _TEXTS[verdict]),)


def marks_of(headers: Sequence[Headers]) -> Verdicts:
    """The verdicts (n,) that events of an output are marked with; PASS where there is no mark, or one of no verdict."""
    cells, verdicts = headers_of(headers, MARK), np.full(len(headers), Verdict.PASS, dtype=np.uint8)
    if (cells.sizes < 0).all():
        return verdicts
    for verdict, text in _TEXTS.items():
        verdicts[_equal(cells, text)] = verdict
    return verdicts


def headers_of(headers: Sequence[Headers], name: str) -> Column:
    """The last header of that name in each row; null where there is none."""
    if isinstance(headers, HeaderColumn):
        return headers.located(name)
    return Column.of([_last(cells, name) if cells else None for cells in headers])


def marked_rows(headers: Sequence[Headers]) -> Integers:
    """The rows of events that have a mark, whatever it tells, ascending; a null is none."""
    return np.flatnonzero(headers_of(headers, MARK).sizes >= 0)


def is_marked(headers: Headers) -> bool:
    """Whether an event of these has a mark."""
    return _last(headers, MARK) is not None


def appended(
    batch: EventBatch,
    rows: Integers,
    tails: Sequence[Headers],
    which: Integers,
    numbers: Mapping[str, Integers] = NO_NUMBERS,
) -> EventBatch:
    """`batch`, but behind the headers of each of `rows` (k,), ascending, stand others.

    They are `tails[which[i]]`, and then `numbers`: of each name the i-th, in decimal digits.
    """
    if not len(rows):
        return batch
    if batch.bodies is None or not isinstance(batch.headers, RawHeaders):
        headers, digits = list(batch.headers), [column.tolist() for column in numbers.values()]
        for row, tail, *told in zip(rows.tolist(), which.tolist(), *digits, strict=True):
            texts = (b"%d" % number for number in told)
            headers[row] = (*headers[row], *tails[tail], *zip(numbers, texts, strict=True))
        return replace(batch, headers=headers)
    bodies, raw = batch.headers.appended(batch.bodies, rows, tails, which, numbers)
    untouched = [origin for origin in batch.origins if np.equal(*np.searchsorted(rows, origin[:2]))]
    return replace(batch, headers=raw, bodies=bodies, origins=untouched)


_TEXTS = {verdict: verdict.name.lower().encode() for verdict in Verdict}


def _last(headers: Headers, wanted: str) -> bytes | None:
    return next((value for name, value in reversed(headers) if name == wanted), None)


def _equal(cells: Column, text: bytes) -> Integers:
    """The rows of those that are `text`."""
    rows = np.flatnonzero(cells.sizes == len(text))
    buffer = np.frombuffer(cells.buffer, dtype=np.uint8)
    found = buffer[cells.starts[rows, None] + np.arange(len(text))]
    same = (found == np.frombuffer(text, dtype=np.uint8)).all(axis=1)
    return np.asarray(rows[same])
