"""The cells of a window: a fingerprint and the tag of a generation, packed to the bit, in buckets of 8.

The tag is the generation modulo a power of two, in the lowest bits of a cell. A cell is free if it is 0, or if its
generation has left the window. The cells of a group, as many as fit into one word, are looked at together and without
branches. If a cell has 32 bits, so are all eight cells of a bucket. Functions that look at a bucket return its cells as
the bits of a word, the lowest for the first cell.
"""

from typing import NamedTuple

import numpy as np

from streamdedup.filters.packed_cells import mask, read, write
from streamdedup.filters.places import reach_of
from streamdedup.filters.sizing import WINDOW_CELLS, WINDOW_WHOLE_BITS
from streamdedup.instructions import bits_set, lanes_within
from streamdedup.kernel import Words, inlined, unpacked

CELLS = np.uint64(WINDOW_CELLS)
WHOLE_BITS = np.uint64(WINDOW_WHOLE_BITS)
_ALL, _5, _4, _1, _0 = (np.uint64(number) for number in (255, 5, 4, 1, 0))


GENERATIONS = 6  # the element of `layout_fields` that says how many generations are live


class WindowLayout(NamedTuple):
    """The sizes of a table, and its cells as of one current generation. A lane is a cell of a group."""

    buckets: np.uint64
    bits: np.uint64  # the width of a cell
    tag_bits: np.uint64
    group: np.uint64  # how many cells a group has: 4, 2 or 1
    ones: np.uint64  # the lowest bit of each lane
    gather: np.uint64  # the factor that brings the highest bits of the lanes side by side
    generations: np.uint64  # how many are live
    searched: np.uint64  # no search begins if this many cells are in use
    capacity: np.uint64  # how many cells are in use at capacity
    bucket_bits: np.uint64  # these three as in `places.Buckets`
    reach: np.uint64
    marks: np.uint64
    current: np.int64


FIELDS = len(WindowLayout._fields) - 1


def layout_fields(
    buckets: int, bits: int, tag_bits: int, generations: int, searched: int, capacity: int
) -> Words:
    """The fields of a `WindowLayout` but the last, as an array."""
    group = next(n for n in (4, 2, 1) if n * bits <= 64)
    ones = sum(1 << i * bits for i in range(group))
    gather = sum(1 << (group - 1 - i) * bits + i for i in range(group))
    fields = [buckets, bits, tag_bits, group, ones, gather, generations, searched, capacity]
    reach = 0 if bits == WINDOW_WHOLE_BITS else reach_of(WINDOW_CELLS, bits)
    of_buckets = WINDOW_CELLS * bits, reach, (1 << bits - tag_bits) - 1
    return np.array([*fields, *of_buckets], dtype=np.uint64)


@inlined
def layout_at(fields: Words, current: int) -> WindowLayout:
    """The `WindowLayout` of these fields, as of the generation `current`."""
    # mypy takes a tuple of any length for one that fills all fields.
    return WindowLayout(*unpacked(fields, FIELDS), np.int64(current))  # type: ignore[call-arg]


@inlined
def tag_of(generation: int, layout: WindowLayout) -> np.uint64:
    """The tag of a generation."""
    return np.uint64(generation) & mask(layout.tag_bits)


@inlined
def tag_in(content: np.uint64, layout: WindowLayout) -> int:
    """The tag of a cell's content, as an index."""
    return int(np.int64(content & mask(layout.tag_bits)))


@inlined
def generation_in(content: np.uint64, layout: WindowLayout) -> int:
    """The generation of a cell's content, or of a tag: the newest one, up to the current, that has the tag."""
    tags = mask(layout.tag_bits)
    age = (np.uint64(layout.current) - (content & tags)) & tags
    return int(layout.current - np.int64(age))


@inlined
def get(words: Words, layout: WindowLayout, cell: np.uint64) -> np.uint64:
    """The content of a cell: its fingerprint above its tag."""
    if layout.bits == WHOLE_BITS:
        return np.uint64(words[cell >> _1] >> ((cell & _1) << _5) & mask(WHOLE_BITS))
    return read(words, cell * layout.bits) & mask(layout.bits)


@inlined
def put(words: Words, layout: WindowLayout, cell: np.uint64, content: np.uint64) -> None:
    """Overwrite a cell."""
    if layout.bits == WHOLE_BITS:
        shift = (cell & _1) << _5
        words[cell >> _1] = words[cell >> _1] & ~(mask(WHOLE_BITS) << shift) | content << shift
    else:
        write(words, cell * layout.bits, layout.bits, content)


@inlined
def held_in(words: Words, layout: WindowLayout, bucket: np.uint64, mark: np.uint64) -> np.uint64:
    """The cell of a bucket that is live and holds `mark`, at most one. Takes less time than `look`."""
    if layout.bits == WHOLE_BITS:
        return np.uint64(look(words, layout, bucket, mark)[0])
    cell, held = bucket * CELLS, _0
    end = cell + CELLS
    while end > cell:
        end -= layout.group
        group = read(words, end * layout.bits)
        holding = _holding(layout, group, mark)
        held <<= layout.group
        if holding != _0:
            held |= _gathered(layout, holding & ~_free(layout, group))
    return held


@inlined
def look(
    words: Words, layout: WindowLayout, bucket: np.uint64, mark: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """The cell of a bucket that is live and holds `mark`, at most one; and its free cells."""
    if layout.bits == WHOLE_BITS:
        free = free_in(words, layout, bucket)
        holding = lanes_within(
            words, bucket * _4, mark << layout.tag_bits, _0, _1 << layout.tag_bits
        )
        return holding & ~free, free
    cell, held, free = bucket * CELLS, _0, _0
    end = cell + CELLS
    while end > cell:
        end -= layout.group
        group = read(words, end * layout.bits)
        lanes = _free(layout, group)
        free = free << layout.group | _gathered(layout, lanes)
        held = held << layout.group | _gathered(layout, _holding(layout, group, mark) & ~lanes)
    return held, free


@inlined
def free_in(words: Words, layout: WindowLayout, bucket: np.uint64) -> np.uint64:
    """The free cells of a bucket."""
    if layout.bits == WHOLE_BITS:
        above = WHOLE_BITS - layout.tag_bits
        oldest = np.uint64(layout.current) - layout.generations + _1
        live = lanes_within(words, bucket * _4, oldest, above, layout.generations << above)
        return lanes_within(words, bucket * _4, _0, _0, _1 << layout.tag_bits) | (live ^ _ALL)
    cell, free = bucket * CELLS, _0
    end = cell + CELLS
    while end > cell:
        end -= layout.group
        lanes = _free(layout, read(words, end * layout.bits))
        free = free << layout.group | _gathered(layout, lanes)
    return free


@inlined
def first_cell(bucket: np.uint64, cells: np.uint64) -> np.uint64:
    """The first of some cells of a bucket, which are given as bits; its first cell if no bit is set."""
    return bucket * CELLS + (bits_set(~cells & (cells - _1)) & CELLS - _1)


@inlined
def _gathered(layout: WindowLayout, tops: np.uint64) -> np.uint64:
    """The highest bits of the lanes, side by side. The product has them in its highest lane."""
    last = layout.group - _1
    side_by_side = (tops >> (layout.bits - _1)) * layout.gather >> (last * layout.bits)
    return side_by_side & mask(layout.group)


@inlined
def _holding(layout: WindowLayout, group: np.uint64, mark: np.uint64) -> np.uint64:
    """The highest bit of each lane with the fingerprint `mark`, whatever its tag (Lamport 1975)."""
    tags = layout.ones * mask(layout.tag_bits)
    differing = (group ^ ((mark << layout.tag_bits) * layout.ones)) & ~tags
    highest = layout.ones << (layout.bits - _1)
    lower = highest - layout.ones
    return ~(((differing & lower) + lower) | differing) & highest


@inlined
def _free(layout: WindowLayout, group: np.uint64) -> np.uint64:
    """The highest bit of each free lane.

    The age of a lane is the current tag less its own, modulo their number 2^t. A lane has one bit more than a tag, so
    neither the difference, taken from 2^t more, nor the sum with 2^t - `generations` reaches into the next lane.
    """
    tags, whole = mask(layout.tag_bits), _1 << layout.tag_bits
    now = (np.uint64(layout.current) & tags) | whole
    ages = (now * layout.ones - (group & (layout.ones * tags))) & (layout.ones * tags)
    gone = (ages + (whole - layout.generations) * layout.ones) >> layout.tag_bits & layout.ones
    return (gone << (layout.bits - _1)) | _holding(layout, group, _0)
