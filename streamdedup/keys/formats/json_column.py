"""Finds the keys of a column of JSON texts in place, without a copy, as far as they are plain.

The kernel checks the whole text by RFC 8259, so it accepts no text that the exact reader (`json_exact`)
refuses. It leaves a null for each row that is not plain, is wrong, or has no key. The exact reader then
decides what its key is, or why it has none.
"""

from collections.abc import Sequence
from functools import cache, partial

import numpy as np

from streamdedup.events import NULL, Column, Integers
from streamdedup.kernel import inlined, kernel
from streamdedup.keys import cells
from streamdedup.keys.formats.json_text import (
    CLOSE_ARRAY,
    CLOSE_OBJECT,
    COMMA,
    MINUS,
    NOWHERE,
    OPEN_ARRAY,
    OPEN_OBJECT,
    QUOTE,
    ZERO,
    byte,
    past_blanks,
    past_colon,
    past_integer,
    past_scalar,
    string,
)
from streamdedup.keys.hashing import frozen
from streamdedup.keys.words import BYTES_A_CALL, Bytes

# The deepest nesting that the kernel follows: `objects` has a bit for each level. The exact reader goes deeper.
DEPTH_MAX = np.uint64(64)
# The longest integer that the kernel accepts: none of 308 digits is beyond the largest double.
INTEGER_BYTES_MAX = np.uint64(308)

_0, _1 = np.uint64(0), np.uint64(1)


def located(steps: Sequence[str], texts: Column) -> Column:
    """Return where in `texts` the key at the path of `steps` is, over the same buffer.

    The key is a string without escapes, or an integer of at most 308 characters, as it is written. Rows
    that the exact reader must read are null.
    """
    return cells.located(texts, partial(fill, *_names(tuple(steps))))


def warm_up() -> None:
    """Compile the kernel or load it from the cache. Called at set-up, so that no batch waits for it."""
    located(("",), Column.of([b""]))


@cache
def _names(steps: tuple[str, ...]) -> tuple[Bytes, Integers]:
    """Return the names of a path in the form that `fill` takes.

    A name that has no UTF-8 becomes bytes that no text contains.
    """
    names = [step.encode("utf-8", "surrogatepass") for step in steps]
    name_bytes = frozen(np.frombuffer(b"".join(names), dtype=np.uint8), np.uint8)
    return name_bytes, frozen(np.cumsum([0, *map(len, names)]), np.int64)


@kernel
def fill(
    names: Bytes,
    name_ends: Integers,
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    key_starts: Integers,
    key_sizes: Integers,
) -> int:
    """Write where the keys are in the texts at `starts`, of `sizes` bytes; a size of NULL if the kernel cannot decide.

    The names of the path are in `names`, each from its entry in `name_ends`, shape (steps + 1,), to the
    next. The kernel returns how many rows are done, at least one: it stops once it has read `BYTES_A_CALL`
    bytes.
    """
    taken = 0
    for row in range(starts.shape[0]):
        start, size = starts[row], sizes[row]
        if taken > BYTES_A_CALL:
            return row
        key_starts[row], key_sizes[row] = 0, NULL
        # Is the cell in the buffer? Asked without start + size, which may overflow.
        if size >= 0 and 0 <= start <= buffer.shape[0] - size:
            end = np.uint64(start + size)
            key, key_end = _found(names, name_ends, buffer, np.uint64(start), end)
            if key_end < NOWHERE:
                key_starts[row], key_sizes[row] = np.int64(key), np.int64(key_end - key)
            taken += size
    return len(starts)


@inlined
def _found(
    names: Bytes, name_ends: Integers, buffer: Bytes, at: np.uint64, end: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Return the start and end of the key in the text from `at` to `end`, NOWHERE twice if the kernel cannot decide.

    `objects` has a bit for each container that is open, the innermost lowest: 1 is an object. `matched` is
    how many steps of the path lead to the current container. `seen` has a bit for each step whose name was
    found: a second one means that the exact reader must decide.
    """
    steps = np.uint64(name_ends.shape[0]) - _1
    key, key_end = NOWHERE, NOWHERE
    depth, objects, matched, seen = _0, _0, _0, _0
    at = past_blanks(buffer, at, end)
    while True:
        is_key = False
        if objects & _1:
            name, (name_end, escaped) = at + _1, string(buffer, at, end)
            at = past_colon(buffer, name_end + _1, end)
            if depth == matched + _1:
                if escaped or at >= NOWHERE:
                    return NOWHERE, NOWHERE
                if is_step(names, name_ends, matched, buffer, name, name_end):
                    if seen >> matched & _1:
                        return NOWHERE, NOWHERE
                    seen |= _1 << matched
                    matched += _1
                    is_key = matched == steps
        first = byte(buffer, at, end)
        if first in (OPEN_OBJECT, OPEN_ARRAY):
            if is_key or depth == DEPTH_MAX:
                return NOWHERE, NOWHERE
            depth += _1
            objects = objects << _1 | np.uint64(first == OPEN_OBJECT)
            at = past_blanks(buffer, at + _1, end)
            if byte(buffer, at, end) != closing(objects):
                continue
        elif is_key:
            key, key_end, at = _key(buffer, at, end)
        else:
            at = past_scalar(buffer, at, end)
        at, depth, objects = _to_next(buffer, at, end, depth, objects)
        if depth == _0 or at >= NOWHERE:
            return (key, key_end) if at == end else (NOWHERE, NOWHERE)
        matched = min(matched, depth - _1)


@inlined
def _to_next(
    buffer: Bytes, at: np.uint64, end: np.uint64, depth: np.uint64, objects: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Go from the end of a value to the start of the next member or element, or to the end of the text.

    Return that position, and the `depth` and `objects` there.
    """
    at = past_blanks(buffer, at, end)
    while depth > _0:
        found = byte(buffer, at, end)
        if found == COMMA:
            return past_blanks(buffer, at + _1, end), depth, objects
        if found != closing(objects):
            return NOWHERE, depth, objects
        depth -= _1
        objects >>= _1
        at = past_blanks(buffer, at + _1, end)
    return at, depth, objects


@inlined
def closing(objects: np.uint64) -> np.uint8:
    """Return what closes the innermost container, whose bit is the lowest of `objects`: 1 is an object."""
    return CLOSE_OBJECT if objects & _1 else CLOSE_ARRAY


@inlined
def is_step(
    names: Bytes,
    name_ends: Integers,
    step: np.uint64,
    buffer: Bytes,
    start: np.uint64,
    end: np.uint64,
) -> bool:
    """Return whether the name from `start` to `end`, which has no escapes, is that of the step."""
    at, stop = np.uint64(name_ends[step]), np.uint64(name_ends[step + _1])
    if end - start != stop - at:
        return False
    while at < stop:
        if names[at] != buffer[start]:
            return False
        at += _1
        start += _1
    return True


@inlined
def _key(buffer: Bytes, at: np.uint64, end: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Return the start and end of the key that begins at `at`, and the position after it.

    All three are NOWHERE if the key is not plain.
    """
    if byte(buffer, at, end) == QUOTE:
        stop, escaped = string(buffer, at, end)
        return (NOWHERE, NOWHERE, NOWHERE) if escaped else (at + _1, stop, stop + _1)
    stop = past_integer(buffer, at, end)
    is_minus_zero = byte(buffer, at, end) == MINUS and byte(buffer, at + _1, end) == ZERO
    if stop - at > INTEGER_BYTES_MAX or is_minus_zero:
        return NOWHERE, NOWHERE, NOWHERE
    return at, stop, stop
