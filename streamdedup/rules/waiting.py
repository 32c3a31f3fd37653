"""Digests that wait for their commit, in the order they passed: a queue, with an open-addressing index over it.

A slot of the index is one word: 32 bits of the digest, which give its home, too, and where it stands in the queue. At
most half of the slots are taken, linear probing finds them, and what leaves closes its gap (Knuth 1973, 6.4, R). Who
grows takes a larger table for what comes; the smaller one empties by itself, as what waits leaves in order.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

from streamdedup.events import Verdict, Verdicts
from streamdedup.filters.base import Mask
from streamdedup.filters.keyed import ROWS_A_CALL
from streamdedup.filters.memory import Words
from streamdedup.kernel import inlined, kernel, prefetch
from streamdedup.keys.hashing import Digests, checked

ROWS_MIN = 1024  # 32 KiB, with the index
AHEAD = 16  # rows whose slots are asked for before they are needed

FIRST, COUNT = 0, 1  # in `state`: where the queue begins, how many are in it


class _Table(NamedTuple):
    """A ring of digests (r, 2), r a power of two, and its index (2r,); all that waits in it, from `state` on."""

    slots: Words
    ring: Digests
    state: Words

    @property
    def rows(self) -> int:
        """How many it can hold."""
        return len(self.ring)

    @property
    def waiting(self) -> int:
        """How many it holds."""
        return int(self.state[COUNT])


class Waiting:
    """What waits, each digest once; there is room for `rows` at first.

    Memory is 32 bytes a row, of which there are less than four times as many as waited, or came to be judged, at once.
    Where that was less than a quarter of it between two times at which nothing waited, half is given back.
    """

    def __init__(self, rows: int = ROWS_MIN) -> None:
        self._rows_min = rows
        self.clear()

    def __len__(self) -> int:
        return sum(table.waiting for table in self._tables)

    @property
    def size_bytes(self) -> int:
        """Its memory, in bytes."""
        return sum(part.nbytes for table in self._tables for part in table)

    def judge(self, digests: Digests, known: Mask, most: int) -> Verdicts:
        """The verdicts, shape (m,), of the first m of `digests` (n, 2); what passes waits.

        DUPLICATE is what is `known`, shape (n,), what waits already, and what is equal to a row before it. m is less
        than n only where more than `most` would pass.
        """
        digests, verdicts = checked(digests), np.empty(len(digests), dtype=np.uint8)
        most = min(most, len(known) - int(np.count_nonzero(known)))
        self._make_room(most)
        *older, newest = self._tables
        known = known.copy() if older else known
        end = np.uint64(newest.waiting + most)
        done = 0
        for start in range(0, len(digests), ROWS_A_CALL):
            part = slice(start, min(start + ROWS_A_CALL, len(digests)))
            for table in older:
                _find(table.slots, table.ring, digests[part], known[part])
            done += _put_new(*newest, end, digests[part], known[part], verdicts[part])
            if done < part.stop:
                break
        return verdicts[:done]

    def first(self, rows: int) -> Digests:
        """What waits longest, in its order: at least one and at most `rows`; a view, until the next change."""
        table = self._tables[0]
        start = int(table.state[FIRST])
        return table.ring[start : start + min(rows, table.waiting)]

    def drop(self, rows: int) -> None:
        """The `rows` that wait longest, of which `first` gave all, wait no longer."""
        _drop(*self._tables[0], np.uint64(rows))
        if self._tables[0].waiting:
            return
        if len(self._tables) > 1:
            self._tables.popleft()
        else:
            self._rest()

    def clear(self) -> None:
        """Nothing waits any longer."""
        self._tables = deque([_table_for(self._rows_min)])
        self._rows_asked = 0

    def _make_room(self, rows: int) -> None:
        self._rows_asked = max(self._rows_asked, len(self) + rows)
        newest = self._tables[-1]
        if newest.waiting + rows <= newest.rows:
            return
        if not newest.waiting:
            self._tables.pop()
        self._tables.append(_table_for(max(2 * newest.rows, len(self) + rows)))

    def _rest(self) -> None:
        """Of a table that was hardly used since nothing waited the last time, half is enough."""
        rows = self._tables[0].rows
        if rows > self._rows_min and self._rows_asked < rows // 4:
            self._tables[0] = _table_for(rows // 2)
        self._rows_asked = 0


def warm_up() -> None:
    """Compile, or load from the cache, the kernels of this module."""
    waiting = Waiting(1)
    for word in range(2):  # the second takes another table
        waiting.judge(np.full((1, 2), word, dtype=np.uint64), np.zeros(1, dtype=np.bool_), 1)
    waiting.drop(1)


def _table_for(rows: int) -> _Table:
    rows = 1 << (rows - 1).bit_length()
    ring = np.empty((rows, 2), dtype=np.uint64)
    return _Table(np.zeros(2 * rows, dtype=np.uint64), ring, np.zeros(2, dtype=np.uint64))


_0, _1, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)  # where a row stands, plus one; delivery has 10 million at most
_AHEAD = np.uint64(AHEAD)
_PASS, _DUPLICATE = np.uint8(Verdict.PASS), np.uint8(Verdict.DUPLICATE)


@inlined
def _seek(slots: Words, ring: Digests, a: np.uint64, b: np.uint64) -> np.uint64:
    """The slot of a digest, or the empty one where it belongs."""
    mask = np.uint64(slots.shape[0]) - _1
    at = a & mask
    while slots[at] != _0:
        if (slots[at] ^ (a << _32)) <= _LOW:
            row = (slots[at] & _LOW) - _1
            if ring[row, 0] == a and ring[row, 1] == b:
                break
        at = (at + _1) & mask
    return at


@kernel
def _find(slots: Words, ring: Digests, digests: Digests, known: Mask) -> None:
    """Set `known` of what waits here."""
    rows = digests.shape[0]
    mask = np.uint64(slots.shape[0]) - _1
    for i in range(rows):
        prefetch(slots, digests[min(i + AHEAD, rows - 1), 0] & mask)
        if not known[i]:
            known[i] = slots[_seek(slots, ring, digests[i, 0], digests[i, 1])] != _0


@kernel
def _put_new(
    slots: Words,
    ring: Digests,
    state: Words,
    end: np.uint64,
    digests: Digests,
    known: Mask,
    verdicts: Verdicts,
) -> int:
    """How many rows were judged before one more than `end` would have waited."""
    rows = digests.shape[0]
    mask = np.uint64(slots.shape[0]) - _1
    for i in range(min(rows, AHEAD)):
        prefetch(slots, digests[i, 0] & mask)
    for i in range(rows):
        prefetch(slots, digests[min(i + AHEAD, rows - 1), 0] & mask)
        verdicts[i] = _DUPLICATE
        if known[i]:
            continue
        a, b = digests[i, 0], digests[i, 1]
        at = _seek(slots, ring, a, b)
        if slots[at] != _0:
            continue
        if state[COUNT] == end:
            return i
        row = (state[FIRST] + state[COUNT]) & (np.uint64(ring.shape[0]) - _1)
        ring[row, 0], ring[row, 1] = a, b
        slots[at] = a << _32 | (row + _1)
        state[COUNT] += _1
        verdicts[i] = _PASS
    return int(rows)


@kernel
def _drop(slots: Words, ring: Digests, state: Words, rows: np.uint64) -> None:
    """Take the first rows out of the queue, and close the gaps that they leave in the index."""
    slot_mask, ring_mask = np.uint64(slots.shape[0]) - _1, np.uint64(ring.shape[0]) - _1
    for _ in range(rows):
        row = state[FIRST]
        prefetch(slots, ring[(row + _AHEAD) & ring_mask, 0] & slot_mask)  # whatever stands there
        gap = ring[row, 0] & slot_mask
        while slots[gap] != _0 and slots[gap] & _LOW != row + _1:
            gap = (gap + _1) & slot_mask
        at = (gap + _1) & slot_mask
        while slots[at] != _0:
            home = (slots[at] >> _32) & slot_mask
            if at - home >= at - gap:  # not before its home, also across the end of the slots
                slots[gap] = slots[at]
                gap = at
            at = (at + _1) & slot_mask
        slots[gap] = _0
        state[FIRST] = (row + _1) & ring_mask
        state[COUNT] -= _1
