"""The cells of a window: a fingerprint and the tag of a generation, packed to the bit, in buckets of 8.

The tag is the generation modulo a power of two, in the lowest bits of a cell. A cell is free if it is 0, or if its
generation has left the window. The cells of a group, as many as fit into one word, are looked at together and without
branches. If a cell has 32 bits, a bucket is four whole words, of which the compiler looks at several together.
"""

from typing import NamedTuple

import numpy as np

from streamdedup.filters.packed_cells import NOWHERE, lanes_set, mask, read, write
from streamdedup.filters.probes import high_word
from streamdedup.filters.sizing import WINDOW_CELLS, WINDOW_WHOLE_BITS
from streamdedup.kernel import Words, inlined

CELLS = np.uint64(WINDOW_CELLS)
WHOLE_BITS = np.uint64(WINDOW_WHOLE_BITS)
_31, _4, _2, _1, _0 = (np.uint64(number) for number in (31, 4, 2, 1, 0))


class WindowLayout(NamedTuple):
    """The sizes of a table, and its cells as of one current generation. A lane is a cell of a group."""

    buckets: np.uint64
    bits: np.uint64  # the width of a cell
    tag_bits: np.uint64
    group: np.uint64  # how many cells a group has: 4, 2 or 1
    ones: np.uint64  # the lowest bit of each lane
    generations: np.uint64  # how many are live
    searched: np.uint64  # no search begins if this many cells are in use
    capacity: np.uint64  # how many cells are in use at capacity
    current: np.int64


def layout_fields(
    buckets: int, bits: int, tag_bits: int, generations: int, searched: int, capacity: int
) -> Words:
    """The fields of a `WindowLayout` but the last, as an array."""
    group = next(n for n in (4, 2, 1) if n * bits <= 64)
    ones = sum(1 << i * bits for i in range(group))
    fields = [buckets, bits, tag_bits, group, ones, generations, searched, capacity]
    return np.array(fields, dtype=np.uint64)


@inlined
def layout_at(fields: Words, current: int) -> WindowLayout:
    """The `WindowLayout` of these fields, as of the generation `current`."""
    return WindowLayout(
        fields[0],
        fields[1],
        fields[2],
        fields[3],
        fields[4],
        fields[5],
        fields[6],
        fields[7],
        np.int64(current),
    )


@inlined
def fingerprint_of(b: np.uint64, layout: WindowLayout) -> np.uint64:
    """The fingerprint of a digest, from its second word: 1 to 2^f - 1, each equally likely."""
    return high_word(b, mask(layout.bits - layout.tag_bits)) + _1


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
    return read(words, cell * layout.bits) & mask(layout.bits)


@inlined
def put(words: Words, layout: WindowLayout, cell: np.uint64, content: np.uint64) -> None:
    """Overwrite a cell."""
    write(words, cell * layout.bits, layout.bits, content)


@inlined
def held_in(words: Words, layout: WindowLayout, bucket: np.uint64, mark: np.uint64) -> np.uint64:
    """The live cell of a bucket that holds `mark`, or NOWHERE. There is at most one."""
    if layout.bits == WHOLE_BITS:
        held = _0
        for i in range(4):
            group = words[bucket * _4 + np.uint64(i)]
            held |= _holding(layout, group, mark) & ~_free(layout, group)
        return _in_whole(words, layout, bucket, mark) if held != _0 else NOWHERE
    cell, found = bucket * CELLS, NOWHERE
    end = cell + CELLS
    while cell < end:
        group = read(words, cell * layout.bits)
        holding = _holding(layout, group, mark)
        if holding != _0:
            holding &= ~_free(layout, group)
            found = cell + _first(layout, holding) if holding != _0 else found
        cell += layout.group
    return np.uint64(found)


@inlined
def look(
    words: Words, layout: WindowLayout, bucket: np.uint64, mark: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """What `held_in` returns, and how many cells of the bucket are free."""
    if layout.bits == WHOLE_BITS:
        held, free = _0, _0
        for i in range(4):
            group = words[bucket * _4 + np.uint64(i)]
            lanes = _free(layout, group)
            held |= _holding(layout, group, mark) & ~lanes
            free += lanes >> _31
        found = _in_whole(words, layout, bucket, mark) if held != _0 else NOWHERE
        return found, (free >> WHOLE_BITS) + (free & mask(WHOLE_BITS))
    cell, found, count = bucket * CELLS, NOWHERE, _0
    end = cell + CELLS
    while cell < end:
        group = read(words, cell * layout.bits)
        lanes = _free(layout, group)
        count += lanes_set(lanes, layout.ones, layout.bits, layout.group)
        holding = _holding(layout, group, mark) & ~lanes
        if holding != _0:
            found = cell + _first(layout, holding)
        cell += layout.group
    return found, count


@inlined
def has_free(words: Words, layout: WindowLayout, bucket: np.uint64) -> bool:
    """Whether a cell of a bucket is free."""
    if layout.bits == WHOLE_BITS:
        free = _0
        for i in range(4):
            free |= _free(layout, words[bucket * _4 + np.uint64(i)])
        return bool(free != _0)
    cell, lanes = bucket * CELLS, _0
    end = cell + CELLS
    while cell < end:
        lanes |= _free(layout, read(words, cell * layout.bits))
        cell += layout.group
    return bool(lanes != _0)


@inlined
def first_free(words: Words, layout: WindowLayout, bucket: np.uint64) -> np.uint64:
    """The first free cell of a bucket, or NOWHERE."""
    first, found = bucket * CELLS, NOWHERE
    cell = first + CELLS
    while cell > first:  # from the last group to the first, so that the first free cell wins
        cell -= layout.group
        lanes = _free(layout, read(words, cell * layout.bits))
        at = cell + _first(layout, lanes)
        found = at if lanes != _0 else found
    return np.uint64(found)


@inlined
def _in_whole(words: Words, layout: WindowLayout, bucket: np.uint64, mark: np.uint64) -> np.uint64:
    """The live cell of a bucket that holds `mark`, which one does; a cell has 32 bits."""
    cell, holding = bucket * CELLS, _0
    while holding == _0:
        group = words[cell >> _1]
        holding = _holding(layout, group, mark) & ~_free(layout, group)
        cell += _2
    return cell - (_1 if holding >> WHOLE_BITS else _2)


@inlined
def _first(layout: WindowLayout, lanes: np.uint64) -> np.uint64:
    """The number of the first lane whose highest bit is set in `lanes`."""
    before = ((lanes & (~lanes + _1)) - _1) & (layout.ones << (layout.bits - _1))
    return lanes_set(before, layout.ones, layout.bits, layout.group)


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
