"""Add, look up and remove the rows of a batch, or one row alone, in a d-left table.

The kernels find the places of ROWS_TOGETHER rows and prefetch their buckets before they work on the first
of them, so that the cache misses overlap.
"""

import numpy as np

from streamdedup.filters.base import Mask
from streamdedup.filters.digest_filter import KEYS
from streamdedup.filters.dleft.buckets import (
    NOWHERE,
    count_down,
    count_up,
    fill_cell,
    find,
    free_cell,
    holding,
    load,
)
from streamdedup.filters.dleft.shape import PERMUTATIONS, DLeftLayout, layout_of
from streamdedup.filters.memory import Counts
from streamdedup.filters.packed_cells import mask
from streamdedup.filters.probes import finalised, high_word
from streamdedup.filters.sizing import DLEFT_TABLES
from streamdedup.filters.stash import (
    COPIES,
    NEW,
    NOT_DONE,
    ROWS,
    SEEN,
    Rows,
    Used,
    stash_add,
    stash_count,
    stash_remove,
    stash_takes,
)
from streamdedup.filters.strain import COUNTS
from streamdedup.instructions import prefetch
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.hashing import Digests

# Index in `counts` of the number of cells in use. At KEYS, `counts` has the number of distinct fingerprints in
# cells.
CELLS = 1
# Index of the number of rows of the stash that hold further copies of a digest which is in a cell, too.
COPIED = COUNTS
ROWS_TOGETHER = 32  # with 4 buckets a row, more words than the processor fetches at once

BUCKET, REMAINDER = 0, 1  # the columns of a place

_63, _56, _48, _16, _7, _6 = (np.uint64(i) for i in (63, 56, 48, 16, 7, 6))
_3, _2, _1, _0 = np.uint64(3), np.uint64(2), np.uint64(1), np.uint64(0)
_PUBLISHED, _NONE = (np.uint64(PERMUTATIONS.index(name)) for name in ("published", "none"))
# The factors a_i of the published permutations: odd, with good spectra (Steele, Vigna 2021; Stafford 2011).
_FACTORS = np.array(
    [0x9E3779B97F4A7C15, 0xD1342543DE82EF95, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB],
    dtype=np.uint64,
)


@kernel
def add_rows(
    words: Words,
    fields: Words,
    table: Rows,
    used: Used,
    counts: Counts,
    digests: Digests,
    once: bool,
    start: int,
    fresh: Mask,
) -> int:
    """Add rows from `start` on. Write into `fresh` whether each was absent. Return the first row that is not done.

    It stops before a row that is refused or for which the stash has no room, and has then changed nothing for
    that row.
    "Insertion correction": all d buckets are searched for the remainder, and the cell that has it is
    counted up. With `once`, a digest that is present is not counted again.
    """
    layout = layout_of(fields)
    places = _places(layout, ROWS_TOGETHER)
    for first in range(start, digests.shape[0], ROWS_TOGETHER):
        stop = min(first + ROWS_TOGETHER, digests.shape[0])
        _locate(words, layout, digests[first:stop], places)
        for i in range(first, stop):
            row = i - first
            known, counted = _counted(words, layout, places, row, once)
            if not counted and used[ROWS] != 0:
                a, b = digests[i, 0], digests[i, 1]
                if stash_count(table, a, b) != _0:
                    known, counted = True, once or stash_add(table, used, a, b)
            if not counted:
                counted = _placed(words, layout, places, row, counts, known)
            if not counted:
                a, b = digests[i, 0], digests[i, 1]
                needed = _needed(layout, used, counts)
                if not stash_takes(table, used, a, b, needed, counts):
                    return i
                if not stash_add(table, used, a, b):
                    return i
                counts[COPIED] += known
            fresh[i] = not known
    return int(digests.shape[0])


@kernel
def contains_rows(
    words: Words, fields: Words, table: Rows, used: Used, digests: Digests, found: Mask
) -> None:
    """Write into `found` whether each digest is present."""
    layout = layout_of(fields)
    places = _places(layout, ROWS_TOGETHER)
    for first in range(0, digests.shape[0], ROWS_TOGETHER):
        stop = min(first + ROWS_TOGETHER, digests.shape[0])
        _locate(words, layout, digests[first:stop], places)
        for i in range(first, stop):
            present = _held(words, layout, places, i - first)
            if not present and used[ROWS] != 0:
                present = stash_count(table, digests[i, 0], digests[i, 1]) != _0
            found[i] = present


@kernel
def remove_rows(
    words: Words,
    fields: Words,
    table: Rows,
    used: Used,
    counts: Counts,
    digests: Digests,
    gone: Mask,
) -> None:
    """Take back one addition of each digest. Write into `gone` whether it was present.

    The stash comes first: its row belongs to this very digest, while another digest of the same fingerprint
    may need the cell.
    """
    layout = layout_of(fields)
    places = _places(layout, ROWS_TOGETHER)
    for first in range(0, digests.shape[0], ROWS_TOGETHER):
        stop = min(first + ROWS_TOGETHER, digests.shape[0])
        _locate(words, layout, digests[first:stop], places)
        for i in range(first, stop):
            rows = used[ROWS]
            taken = rows != 0 and stash_remove(table, used, digests[i, 0], digests[i, 1])
            if used[ROWS] != rows and counts[COPIED] != 0:
                copied = counts[COPIED] - _held(words, layout, places, i - first)
                # Another key with the same fingerprint may have taken the cell that the copies belonged to.
                counts[COPIED] = min(copied, used[ROWS])
            gone[i] = taken or _taken(words, layout, places, i - first, counts)


@kernel
def add_row(words: Words, fields: Words, counts: Counts, once: bool, a: int, b: int) -> int:
    """Add one digest, as `add_rows` does, while the stash is empty. Return SEEN or NEW.

    Returns NOT_DONE, and changes nothing, if no cell is free.
    """
    layout = layout_of(fields)
    places = _places(layout, 1)
    _permute(layout, np.uint64(a), np.uint64(b), places, 0)
    known, counted = _counted(words, layout, places, 0, once)
    if not counted and not _placed(words, layout, places, 0, counts, known):
        return NOT_DONE
    return SEEN if known else NEW


@kernel
def contains_row(words: Words, fields: Words, a: int, b: int) -> bool:
    """Return whether one digest is in a cell. The stash is not searched."""
    layout = layout_of(fields)
    places = _places(layout, 1)
    _permute(layout, np.uint64(a), np.uint64(b), places, 0)
    return _held(words, layout, places, 0)


@kernel
def remove_row(words: Words, fields: Words, counts: Counts, a: int, b: int) -> bool:
    """Take back one addition of one digest while the stash is empty. Return whether it was present."""
    layout = layout_of(fields)
    places = _places(layout, 1)
    _permute(layout, np.uint64(a), np.uint64(b), places, 0)
    return _taken(words, layout, places, 0, counts)


# --- the buckets of a row ---


def one_place() -> Words:
    """Return the memory for the places of one digest of any table."""
    return np.empty((1, DLEFT_TABLES, 2), np.uint64)


@kernel
def _places(layout: DLeftLayout, rows: int) -> Words:
    """Return the memory into which `_locate` writes, shape (rows, d, 2).

    A place is the number of a bucket, counted through all subtables, and a remainder.
    """
    return np.empty((rows, np.int64(layout.tables), 2), np.uint64)


@inlined
def _locate(words: Words, layout: DLeftLayout, digests: Digests, places: Words) -> None:
    """Write the places of each digest into `places`, and prefetch their buckets."""
    for row in range(digests.shape[0]):
        _permute(layout, digests[row, 0], digests[row, 1], places, row)
        _prefetch(words, layout, places, row)


@inlined
def _prefetch(words: Words, layout: DLeftLayout, places: Words, row: int) -> None:
    """Prefetch both ends of each bucket of a row: it may lie in two cache lines."""
    for i in range(layout.tables):
        at = places[row, i, BUCKET] * layout.bucket_bits
        prefetch(words, at >> _6)
        prefetch(words, (at + layout.bucket_bits) >> _6)


@inlined
def _permute(layout: DLeftLayout, a: np.uint64, b: np.uint64, places: Words, row: int) -> None:
    """Write the bucket and the remainder of a digest for each subtable.

    Its fingerprint is (bucket, remainder); each subtable has a permutation of all fingerprints.
    """
    buckets, bits = layout.buckets, layout.remainder_bits
    bucket = high_word(a, buckets)
    remainder = high_word(b, layout.remainders) + ((_1 << bits) - layout.remainders)
    if layout.permutation == _PUBLISHED:
        fingerprint, greatest = (bucket << bits) | remainder, (buckets << bits) - _1
        for i in range(layout.tables):
            permuted = (fingerprint * _FACTORS[i]) & greatest
            places[row, i, BUCKET] = i * buckets + (permuted >> bits)
            places[row, i, REMAINDER] = permuted & mask(bits)
    elif layout.permutation == _NONE:
        for i in range(layout.tables):
            shift = _48 - i * _16
            places[row, i, BUCKET] = i * buckets + ((((a >> shift) & mask(_16)) * buckets) >> _16)
            places[row, i, REMAINDER] = ((b >> shift) & mask(_16)) >> (_16 - bits)
    else:
        places[row, 0, BUCKET], places[row, 0, REMAINDER] = bucket, remainder
        for i in range(_1, layout.tables):
            # With a weaker mixing function than a full finalizer, thousands of 10^8 keys overflow.
            moved = bucket + high_word(finalised(remainder | (i << _56)), buckets)
            # `moved` modulo B is the smaller of the two numbers, since a difference below 0 wraps around to
            # a large one. This avoids a branch that the processor could not predict.
            places[row, i, BUCKET] = i * buckets + min(moved, moved - buckets)
            places[row, i, REMAINDER] = remainder


# --- one row ---


@inlined
def _matching(
    words: Words, layout: DLeftLayout, places: Words, row: int
) -> tuple[np.uint64, np.uint64]:
    """Look for the digest's remainder in its buckets. Return two numbers.

    The first is not 0 if a cell in use has the remainder. The second is not 0 if the remainder is 0 and a
    cell has it, which may be a free one.
    """
    surely = perhaps = _0
    for i in range(layout.tables):
        bucket, remainder = places[row, i, BUCKET], places[row, i, REMAINDER]
        found = holding(words, layout, bucket, remainder)
        surely |= found if remainder != _0 else _0
        perhaps |= found if remainder == _0 else _0
    return surely, perhaps


@inlined
def _search(
    words: Words, layout: DLeftLayout, places: Words, row: int
) -> tuple[np.uint64, np.uint64]:
    """Return the bucket and its cell in use that has the remainder; the cell is NOWHERE if none has it."""
    bucket = cell = NOWHERE
    i = _0
    while i < layout.tables and cell == NOWHERE:
        bucket = places[row, i, BUCKET]
        cell = find(words, layout, bucket, places[row, i, REMAINDER])
        i += _1
    return bucket, cell


@inlined
def _held(words: Words, layout: DLeftLayout, places: Words, row: int) -> bool:
    """Return whether the digest is in a cell."""
    surely, perhaps = _matching(words, layout, places, row)
    held = surely != _0
    if not held and perhaps != _0:
        held = _search(words, layout, places, row)[1] != NOWHERE
    return bool(held)


@inlined
def _counted(
    words: Words, layout: DLeftLayout, places: Words, row: int, once: bool
) -> tuple[bool, bool]:
    """Return whether the digest is in a cell, and whether nothing remains to be done.

    Nothing remains if the cell was counted up, or if the digest is present and `once` is set.
    """
    known = counted = False
    surely, perhaps = _matching(words, layout, places, row)
    if surely | perhaps != _0:
        bucket, cell = _search(words, layout, places, row)
        known = cell != NOWHERE
        counted = known and (once or count_up(words, layout, bucket, cell))
    return known, counted


@inlined
def _placed(
    words: Words, layout: DLeftLayout, places: Words, row: int, counts: Counts, known: bool
) -> bool:
    """Put the digest into the least loaded of its buckets, the leftmost on ties.

    Return False, without any change, if all of them are full.
    """
    least = NOWHERE
    for i in range(layout.tables):
        in_use = load(words, layout, places[row, i, BUCKET])
        least = min(least, (in_use << _3) | np.uint64(i))
    cell, subtable = least >> _3, least & _7
    free = cell < layout.cells
    if free:
        bucket, remainder = places[row, subtable, BUCKET], places[row, subtable, REMAINDER]
        fill_cell(words, layout, bucket, cell, remainder)
        counts[CELLS] += 1
        counts[KEYS] += not known
    return bool(free)


@inlined
def _needed(layout: DLeftLayout, used: Used, counts: Counts) -> int:
    """Return how many rows of the stash random keys may need: one for each copy, and for each key beyond capacity.

    At capacity three quarters of the cells are in use.
    """
    capacity = np.int64((layout.tables * layout.buckets * layout.cells * _3) >> _2)
    beyond = max(np.int64(0), counts[KEYS] + used[ROWS] - capacity)
    return int(beyond + counts[CELLS] - counts[KEYS] + used[COPIES] - used[ROWS])


@inlined
def _taken(words: Words, layout: DLeftLayout, places: Words, row: int, counts: Counts) -> bool:
    """Take back one addition of the digest from its cell. Return False if it is in none."""
    bucket, cell = _search(words, layout, places, row)
    held = cell != NOWHERE
    if held and not count_down(words, layout, bucket, cell):
        free_cell(words, layout, bucket, cell)
        counts[CELLS] -= 1
        single = layout.counter_bits != _0
        gone = single or not _held(words, layout, places, row)
        counts[KEYS] = max(np.int64(0), counts[KEYS] - gone)  # a file may have stated too few
    return bool(held)
