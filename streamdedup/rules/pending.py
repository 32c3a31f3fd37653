"""Digests that wait for their commit, in the order in which they passed: a queue, with an open-addressing index.

A slot of the index is one word: 32 secret bits of the digest (`keys.multilinear`), which also give its home, and its
place in the queue. Nobody can choose keys that meet in few homes, whatever the hash. At most half of the slots are
taken; probing is linear, and a removal closes its gap (Knuth 1973, 6.4, R). To grow, a larger table takes what comes;
the smaller one empties by itself, because digests leave in order.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

from streamdedup.events import Verdict, Verdicts
from streamdedup.filters.base import Mask
from streamdedup.filters.digest_filter import ROWS_A_CALL
from streamdedup.filters.window.clock import Generations
from streamdedup.instructions import prefetch
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.hashing import Digests, checked
from streamdedup.keys.multilinear import SecretWords, drawn_words, secret_bits, words_of

ROWS_MIN = 1024  # 32 KiB, with the index
AHEAD = 16  # slots are prefetched this many rows before their use; a power of two

FIRST, COUNT = 0, 1  # the elements of `state`: where the queue begins, how many digests it holds


class PendingTable(NamedTuple):
    """A ring of digests (r, 2), r a power of two; an index (2r,) over them; in `state`, which rows of the ring wait.

    `secret` (5,) has the random words of this table. `generations` (r,), or (0,), are for a window.
    """

    secret: Words
    slots: Words
    ring: Digests
    generations: Generations
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
    rows from one moment when the queue is empty to the next. Each table draws a secret of its own.
    """

    in_time = False
    """Whether each digest waits with a generation, which takes 8 bytes more."""

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
                _find(table, digests[part], known[part])
            done += _put_new(newest, end, digests[part], known[part], verdicts[part])
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
        _drop(self._tables[0], np.uint64(rows))
        if self._tables[0].waiting:
            return
        if len(self._tables) > 1:
            self._tables.popleft()
        else:
            self._rest()

    def clear(self) -> None:
        """Remove all digests."""
        self._tables = deque([self._table_for(self._rows_min)])
        self._rows_asked = 0

    def _make_room(self, rows: int) -> None:
        self._rows_asked = max(self._rows_asked, len(self) + rows)
        newest = self._tables[-1]
        if newest.waiting + rows <= newest.rows:
            return
        if not newest.waiting:
            self._tables.pop()
        self._tables.append(self._table_for(max(2 * newest.rows, len(self) + rows)))

    def _rest(self) -> None:
        """Halve the table if few of its rows were needed since the last time that nothing waited."""
        rows = self._tables[0].rows
        if rows > self._rows_min and self._rows_asked < rows // 4:
            self._tables[0] = self._table_for(rows // 2)
        self._rows_asked = 0

    def _table_for(self, rows: int) -> PendingTable:
        rows = 1 << (rows - 1).bit_length()
        return PendingTable(
            secret=drawn_words(),
            slots=np.zeros(2 * rows, dtype=np.uint64),
            ring=np.empty((rows, 2), dtype=np.uint64),
            generations=np.empty(rows if self.in_time else 0, dtype=np.int64),
            state=np.zeros(2, dtype=np.uint64),
        )


def warm_up() -> None:
    """Compile, or load from the cache, the kernels of this module."""
    waiting = PendingDigests(1)
    for word in range(2):  # the second digest needs another table
        waiting.judge(np.full((1, 2), word, dtype=np.uint64), np.zeros(1, dtype=np.bool_), 1)
    waiting.drop(1)


_0, _1, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)  # the number of a row plus one; delivery has at most 10 million rows
_TURN = AHEAD - 1
_PASS, _DUPLICATE = np.uint8(Verdict.PASS), np.uint8(Verdict.DUPLICATE)


@inlined
def seek(slots: Words, ring: Digests, tag: np.uint64, a: np.uint64, b: np.uint64) -> np.uint64:
    """The slot of a digest with these secret bits, or the empty slot where it belongs."""
    mask = np.uint64(slots.shape[0]) - _1
    at = tag & mask
    while slots[at] != _0:
        if slots[at] >> _32 == tag:
            row = (slots[at] & _LOW) - _1
            if ring[row, 0] == a and ring[row, 1] == b:
                break
        at = (at + _1) & mask
    return at


@inlined
def begin(words: SecretWords, slots: Words, digests: Digests, tags: Words) -> None:
    """Write the secret bits of the first rows into `tags`, and prefetch their slots."""
    for i in range(min(AHEAD, digests.shape[0])):
        tags[i] = secret_bits(words, digests[i, 0], digests[i, 1])
        prefetch(slots, tags[i] & (np.uint64(slots.shape[0]) - _1))


@inlined
def next_of(words: SecretWords, slots: Words, digests: Digests, tags: Words, i: int) -> np.uint64:
    """Return the secret bits of row `i`, and do for the row AHEAD of it what `begin` did."""
    at = i & _TURN
    tag, ahead = tags[at], min(i + AHEAD, digests.shape[0] - 1)
    tags[at] = secret_bits(words, digests[ahead, 0], digests[ahead, 1])
    prefetch(slots, tags[at] & (np.uint64(slots.shape[0]) - _1))
    return np.uint64(tag)


@kernel
def _find(table: PendingTable, digests: Digests, known: Mask) -> None:
    """Set `known` for each digest that waits here."""
    slots, ring = table.slots, table.ring
    words, tags = words_of(table.secret), np.empty(AHEAD, dtype=np.uint64)
    begin(words, slots, digests, tags)
    for i in range(digests.shape[0]):
        tag = next_of(words, slots, digests, tags, i)
        if not known[i]:
            known[i] = slots[seek(slots, ring, tag, digests[i, 0], digests[i, 1])] != _0


@kernel
def _put_new(
    table: PendingTable,
    end: np.uint64,
    digests: Digests,
    known: Mask,
    verdicts: Verdicts,
) -> int:
    """Judge rows; what passes waits. Returns how many rows were judged before more than `end` would have waited."""
    slots, ring, state = table.slots, table.ring, table.state
    words, tags = words_of(table.secret), np.empty(AHEAD, dtype=np.uint64)
    begin(words, slots, digests, tags)
    for i in range(digests.shape[0]):
        tag = next_of(words, slots, digests, tags, i)
        verdicts[i] = _DUPLICATE
        if known[i]:
            continue
        a, b = digests[i, 0], digests[i, 1]
        at = seek(slots, ring, tag, a, b)
        if slots[at] != _0:
            continue
        if state[COUNT] == end:
            return i
        row = (state[FIRST] + state[COUNT]) & (np.uint64(ring.shape[0]) - _1)
        ring[row, 0], ring[row, 1] = a, b
        slots[at] = tag << _32 | (row + _1)
        state[COUNT] += _1
        verdicts[i] = _PASS
    return int(digests.shape[0])


@kernel
def _drop(table: PendingTable, rows: np.uint64) -> None:
    """Take the first rows out of the queue, which do not go round the ring; close the gaps they leave in the index.

    A row whose digest waits again, in a later generation, has left the index before.
    """
    slots, ring, state = table.slots, table.ring, table.state
    mask, first = np.uint64(slots.shape[0]) - _1, state[FIRST]
    words, tags = words_of(table.secret), np.empty(AHEAD, dtype=np.uint64)
    leaving = ring[first : first + rows]
    begin(words, slots, leaving, tags)
    for i in range(leaving.shape[0]):
        gap = next_of(words, slots, leaving, tags, i) & mask
        row = first + np.uint64(i)
        while slots[gap] != _0 and slots[gap] & _LOW != row + _1:
            gap = (gap + _1) & mask
        if slots[gap] == _0:
            continue
        at = (gap + _1) & mask
        while slots[at] != _0:
            home = (slots[at] >> _32) & mask
            # Move no entry to a slot before its home. This also holds across the end of the slots.
            if at - home >= at - gap:
                slots[gap] = slots[at]
                gap = at
            at = (at + _1) & mask
        slots[gap] = _0
    state[FIRST] = (first + rows) & (np.uint64(ring.shape[0]) - _1)
    state[COUNT] -= rows
