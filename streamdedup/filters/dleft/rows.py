"""What is done with the rows of a batch in a d-left table: add, look up, remove; and the same for one row alone.

The places of some rows are found, and their buckets asked for, before the first of them is worked on: so the processor
waits for many words of memory at once.
"""

import numpy as np

from streamdedup.filters.base import Mask
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
from streamdedup.filters.dleft.shape import PERMUTATIONS, Layout, layout_of
from streamdedup.filters.keyed import KEYS
from streamdedup.filters.memory import Counts, Words
from streamdedup.filters.packing import mask
from streamdedup.filters.probing import finalised, high_word
from streamdedup.filters.stash import (
    NEW,
    NOT_DONE,
    ROWS,
    SEEN,
    Rows,
    Used,
    stash_add,
    stash_count,
    stash_remove,
)
from streamdedup.kernel import inlined, kernel, prefetch
from streamdedup.keys.hashing import Digests

CELLS = 1  # in `counts`, after the keys (distinct fingerprints in cells): cells in use
ROWS_TOGETHER = 32  # of a batch: with 4 buckets each as many words as are fetched at once, and more

BUCKET, REMAINDER = 0, 1  # what stands in a place

_63, _56, _48, _16, _7, _6 = (np.uint64(i) for i in (63, 56, 48, 16, 7, 6))
_3, _1, _0 = np.uint64(3), np.uint64(1), np.uint64(0)
_PUBLISHED, _NONE = (np.uint64(PERMUTATIONS.index(name)) for name in ("published", "none"))
# The a_i of the published permutations: odd, with good spectra (Steele, Vigna 2021; Stafford 2011).
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
    """Add from row `start` on; the row at which the stash had no room, with nothing changed, or their number.

    "Insertion correction": all d buckets are searched for the remainder, and it is counted up where it is; with `once`
    nothing is.
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
            if not counted and not stash_add(table, used, digests[i, 0], digests[i, 1]):
                return i
            fresh[i] = not known
    return int(digests.shape[0])


@kernel
def contains_rows(
    words: Words, fields: Words, table: Rows, used: Used, digests: Digests, found: Mask
) -> None:
    """Whether each is present."""
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
    """From the stash first: what is there is this very digest's, while another of its fingerprint may need the cell."""
    layout = layout_of(fields)
    places = _places(layout, ROWS_TOGETHER)
    for first in range(0, digests.shape[0], ROWS_TOGETHER):
        stop = min(first + ROWS_TOGETHER, digests.shape[0])
        _locate(words, layout, digests[first:stop], places)
        for i in range(first, stop):
            taken = used[ROWS] != 0 and stash_remove(table, used, digests[i, 0], digests[i, 1])
            gone[i] = taken or _taken(words, layout, places, i - first, counts)


@kernel
def add_row(words: Words, fields: Words, counts: Counts, a: int, b: int) -> int:
    """As `add_rows` while the stash is empty: SEEN or NEW, or NOT_DONE where no cell is free."""
    layout = layout_of(fields)
    places = _places(layout, 1)
    _permute(layout, np.uint64(a), np.uint64(b), places, 0)
    known, counted = _counted(words, layout, places, 0, False)
    if not counted and not _placed(words, layout, places, 0, counts, known):
        return NOT_DONE
    return SEEN if known else NEW


@kernel
def contains_row(words: Words, fields: Words, a: int, b: int) -> bool:
    """Whether one digest is in a cell."""
    layout = layout_of(fields)
    places = _places(layout, 1)
    _permute(layout, np.uint64(a), np.uint64(b), places, 0)
    return _held(words, layout, places, 0)


@kernel
def remove_row(words: Words, fields: Words, counts: Counts, a: int, b: int) -> bool:
    """As `remove_rows` while the stash is empty."""
    layout = layout_of(fields)
    places = _places(layout, 1)
    _permute(layout, np.uint64(a), np.uint64(b), places, 0)
    return _taken(words, layout, places, 0, counts)


# --- where a row may be ---


@kernel
def _places(layout: Layout, rows: int) -> Words:
    """Where `_locate` writes, shape (rows, d, 2): a bucket, of all, and a remainder."""
    return np.empty((rows, np.int64(layout.tables), 2), np.uint64)


@inlined
def _locate(words: Words, layout: Layout, digests: Digests, places: Words) -> None:
    """Find the places of each digest, and ask for both ends of their buckets, which may lie in two cache lines."""
    for row in range(digests.shape[0]):
        _permute(layout, digests[row, 0], digests[row, 1], places, row)
        for i in range(layout.tables):
            at = places[row, i, BUCKET] * layout.bucket_bits
            prefetch(words, at >> _6)
            prefetch(words, (at + layout.bucket_bits) >> _6)


@inlined
def _permute(layout: Layout, a: np.uint64, b: np.uint64, places: Words, row: int) -> None:
    """Write the bucket and the remainder of a digest in each subtable, by its permutations of the two."""
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
            # A weaker mixture than a full finaliser makes thousands of 10^8 keys overflow.
            moved = bucket + high_word(finalised(remainder | (i << _56)), buckets)
            # The smaller of the two is that modulo B, without a branch that nobody can foresee: below 0 is large.
            places[row, i, BUCKET] = i * buckets + min(moved, moved - buckets)
            places[row, i, REMAINDER] = remainder


# --- one row ---


@inlined
def _matching(words: Words, layout: Layout, places: Words, row: int) -> tuple[np.uint64, np.uint64]:
    """Not 0 where a cell in use has its remainder; not 0 where one has, in use or free, since the remainder is 0."""
    surely = perhaps = _0
    for i in range(layout.tables):
        bucket, remainder = places[row, i, BUCKET], places[row, i, REMAINDER]
        found = holding(words, layout, bucket, remainder)
        surely |= found if remainder != _0 else _0
        perhaps |= found if remainder == _0 else _0
    return surely, perhaps


@inlined
def _search(words: Words, layout: Layout, places: Words, row: int) -> tuple[np.uint64, np.uint64]:
    """The bucket and the cell of it that is in use and has the remainder; NOWHERE where none has it."""
    bucket = cell = NOWHERE
    i = _0
    while i < layout.tables and cell == NOWHERE:
        bucket = places[row, i, BUCKET]
        cell = find(words, layout, bucket, places[row, i, REMAINDER])
        i += _1
    return bucket, cell


@inlined
def _held(words: Words, layout: Layout, places: Words, row: int) -> bool:
    """Whether it is in a cell."""
    surely, perhaps = _matching(words, layout, places, row)
    held = surely != _0
    if not held and perhaps != _0:
        held = _search(words, layout, places, row)[1] != NOWHERE
    return bool(held)


@inlined
def _counted(
    words: Words, layout: Layout, places: Words, row: int, once: bool
) -> tuple[bool, bool]:
    """Whether it is in a cell, and whether that now counts it once more, or with `once` need not."""
    known = counted = False
    surely, perhaps = _matching(words, layout, places, row)
    if surely | perhaps != _0:
        bucket, cell = _search(words, layout, places, row)
        known = cell != NOWHERE
        counted = known and (once or count_up(words, layout, bucket, cell))
    return known, counted


@inlined
def _placed(
    words: Words, layout: Layout, places: Words, row: int, counts: Counts, known: bool
) -> bool:
    """Put it into the least loaded of its buckets, leftmost on ties; False, and no change, where all are full."""
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
def _taken(words: Words, layout: Layout, places: Words, row: int, counts: Counts) -> bool:
    """Take one addition out of its cell; False where it is in none."""
    bucket, cell = _search(words, layout, places, row)
    held = cell != NOWHERE
    if held and not count_down(words, layout, bucket, cell):
        free_cell(words, layout, bucket, cell)
        counts[CELLS] -= 1
        single = layout.counter_bits != _0
        counts[KEYS] -= single or not _held(words, layout, places, row)
    return bool(held)
