"""Digests that wait for their commit, in the order in which they passed: a queue, with an open-addressing index.

A slot of the index is one word: 32 bits of a mark, which also give its home, and its place in the queue. At most half
of the slots are taken; probing is linear, and a removal closes its gap (Knuth 1973, 6.4, R). To grow, a larger table
takes what comes; the smaller one empties by itself, because digests leave in order.

The mark is made of the digest and of numbers that nobody outside knows. Without them, whoever chooses keys could choose
those of one home: under murmur3 there is a key for each digest, and 20,000 such keys would take a second to judge.
"""

import secrets
from collections import deque
from typing import NamedTuple

import numpy as np

from streamdedup.events import Verdict, Verdicts
from streamdedup.filters.base import Mask
from streamdedup.filters.digest_filter import ROWS_A_CALL
from streamdedup.filters.memory import Words
from streamdedup.kernel import inlined, kernel, prefetch, upper_half
from streamdedup.keys.hashing import Digests, checked

ROWS_MIN = 1024  # 32 KiB, with the index
AHEAD = 16  # slots are prefetched this many rows before their use

# The elements of `state`: where the queue begins, how many digests it holds, and two secrets, of which marks are made.
FIRST, COUNT, SECRET_A, SECRET_B = range(4)


class _PendingTable(NamedTuple):
    """A ring of digests (r, 2), r a power of two; an index (2r,) over them; in `state`, which rows of it wait."""

    slots: Words
    ring: Digests
    state: Words

    @property
    def rows(self) -> int:
        """How many digests it can hold."""
        return len(self.ring)

    @property
    def waiting(self) -> int:
        """How many digests it holds."""
        return int(self.state[COUNT])


class PendingDigests:
    """The digests that wait, each once. There is room for `rows` at first.

    A row takes 32 bytes of memory. The table has fewer than four rows for each digest of the largest load, which is
    what waits plus what is being judged. Half of the memory is given back if the load stays below a quarter of the
    rows from one moment when the queue is empty to the next.
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
        """The verdicts, shape (m,), of the first m of `digests` (n, 2). Those that pass wait from now on.

        A digest is a DUPLICATE if it is `known`, shape (n,), if it waits already, or if it equals an earlier row. m is
        less than n only if more than `most` digests would pass.
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
                _find(*table, digests[part], known[part])
            done += _put_new(*newest, end, digests[part], known[part], verdicts[part])
            if done < part.stop:
                break
        return verdicts[:done]

    def first(self, rows: int) -> Digests:
        """The digests that have waited longest, in order: at least one and at most `rows`.

        The result is a view, valid until the next change.
        """
        table = self._tables[0]
        start = int(table.state[FIRST])
        return table.ring[start : start + min(rows, table.waiting)]

    def drop(self, rows: int) -> None:
        """Remove the `rows` digests that have waited longest. One call of `first` must have returned all of them."""
        _drop(*self._tables[0], np.uint64(rows))
        if self._tables[0].waiting:
            return
        if len(self._tables) > 1:
            self._tables.popleft()
        else:
            self._rest()

    def clear(self) -> None:
        """Remove all digests."""
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
        """Halve the table if few of its rows were needed since the last time that nothing waited."""
        rows = self._tables[0].rows
        if rows > self._rows_min and self._rows_asked < rows // 4:
            self._tables[0] = _table_for(rows // 2)
        self._rows_asked = 0


def warm_up() -> None:
    """Compile, or load from the cache, the kernels of this module."""
    waiting = PendingDigests(1)
    for word in range(2):  # the second digest needs another table
        waiting.judge(np.full((1, 2), word, dtype=np.uint64), np.zeros(1, dtype=np.bool_), 1)
    waiting.drop(1)


def _table_for(rows: int) -> _PendingTable:
    rows = 1 << (rows - 1).bit_length()
    ring = np.empty((rows, 2), dtype=np.uint64)
    state = np.array([0, 0, secrets.randbits(64), secrets.randbits(64)], dtype=np.uint64)
    return _PendingTable(np.zeros(2 * rows, dtype=np.uint64), ring, state)


_0, _1, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)  # the number of a row plus one; delivery has at most 10 million rows
_AHEAD = np.uint64(AHEAD)
_PASS, _DUPLICATE = np.uint8(Verdict.PASS), np.uint8(Verdict.DUPLICATE)


@inlined
def _mark(state: Words, a: np.uint64, b: np.uint64) -> np.uint64:
    """The mark of a digest: 32 bits, of which the lower ones are its home."""
    a ^= state[SECRET_A]
    b ^= state[SECRET_B]
    return (upper_half(a, b) ^ a * b) >> _32


@inlined
def _seek(slots: Words, ring: Digests, mark: np.uint64, a: np.uint64, b: np.uint64) -> np.uint64:
    """The slot of a digest, or the empty slot where it belongs."""
    mask = np.uint64(slots.shape[0]) - _1
    at = mark & mask
    while slots[at] != _0:
        if (slots[at] ^ (mark << _32)) <= _LOW:
            row = (slots[at] & _LOW) - _1
            if ring[row, 0] == a and ring[row, 1] == b:
                break
        at = (at + _1) & mask
    return at


@kernel
def _find(slots: Words, ring: Digests, state: Words, digests: Digests, known: Mask) -> None:
    """Set `known` for each digest that waits here."""
    rows = digests.shape[0]
    mask = np.uint64(slots.shape[0]) - _1
    for i in range(rows):
        ahead = min(i + AHEAD, rows - 1)
        prefetch(slots, _mark(state, digests[ahead, 0], digests[ahead, 1]) & mask)
        if not known[i]:
            a, b = digests[i, 0], digests[i, 1]
            known[i] = slots[_seek(slots, ring, _mark(state, a, b), a, b)] != _0


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
    """Judge rows; what passes waits. Returns how many rows were judged before more than `end` would have waited."""
    rows = digests.shape[0]
    mask = np.uint64(slots.shape[0]) - _1
    for i in range(min(rows, AHEAD)):
        prefetch(slots, _mark(state, digests[i, 0], digests[i, 1]) & mask)
    for i in range(rows):
        ahead = min(i + AHEAD, rows - 1)
        prefetch(slots, _mark(state, digests[ahead, 0], digests[ahead, 1]) & mask)
        verdicts[i] = _DUPLICATE
        if known[i]:
            continue
        a, b = digests[i, 0], digests[i, 1]
        mark = _mark(state, a, b)
        at = _seek(slots, ring, mark, a, b)
        if slots[at] != _0:
            continue
        if state[COUNT] == end:
            return i
        row = (state[FIRST] + state[COUNT]) & (np.uint64(ring.shape[0]) - _1)
        ring[row, 0], ring[row, 1] = a, b
        slots[at] = mark << _32 | (row + _1)
        state[COUNT] += _1
        verdicts[i] = _PASS
    return int(rows)


@kernel
def _drop(slots: Words, ring: Digests, state: Words, rows: np.uint64) -> None:
    """Take the first rows out of the queue, and close the gaps that they leave in the index."""
    slot_mask, ring_mask = np.uint64(slots.shape[0]) - _1, np.uint64(ring.shape[0]) - _1
    for _ in range(rows):
        row = state[FIRST]
        # If that row does not wait, any digest may be in it: prefetching its slot is of no use, but harmless.
        ahead = (row + _AHEAD) & ring_mask
        prefetch(slots, _mark(state, ring[ahead, 0], ring[ahead, 1]) & slot_mask)
        gap = _mark(state, ring[row, 0], ring[row, 1]) & slot_mask
        while slots[gap] != _0 and slots[gap] & _LOW != row + _1:
            gap = (gap + _1) & slot_mask
        at = (gap + _1) & slot_mask
        while slots[at] != _0:
            home = (slots[at] >> _32) & slot_mask
            # Move no entry to a slot before its home. This also holds across the end of the slots.
            if at - home >= at - gap:
                slots[gap] = slots[at]
                gap = at
            at = (at + _1) & slot_mask
        slots[gap] = _0
        state[FIRST] = (row + _1) & ring_mask
        state[COUNT] -= _1
