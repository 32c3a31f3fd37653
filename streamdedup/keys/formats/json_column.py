"""The keys of a column of JSON texts, found where they stand, without a copy: what is plain, and nothing else.

The whole text is checked by RFC 8259, so that nothing counts which the exact reader refuses. Rows that are not plain,
or wrong, or without the key, are left to that reader: it alone says what a key is, and why there is none.
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

DEPTH_MAX = np.uint64(64)  # of nesting: a bit each; the exact reader goes deeper
INTEGER_BYTES_MAX = np.uint64(308)  # of a key: of 308 digits none is beyond the largest double

_0, _1 = np.uint64(0), np.uint64(1)


def located(steps: Sequence[str], texts: Column) -> Column:
    """Where in `texts` the key at the path of `steps` is, over the same buffer; null where the exact reader must say.

    What is given is a string without escapes, or an integer as it is written, of at most 308 characters.
    """
    return cells.located(texts, partial(fill, *_names(tuple(steps))))


def warm_up() -> None:
    """Compile the kernel, or load it from the cache: at set-up, so that no batch waits for it."""
    located(("",), Column.of([b""]))


@cache
def _names(steps: tuple[str, ...]) -> tuple[Bytes, Integers]:
    """The names of a path as `fill` is given them; what no UTF-8 has is never found."""
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
    """Write where the keys are of the texts at `starts`, of `sizes` bytes; a size of NULL where that is not known.

    The names of the path are in `names`, each from its entry in `name_ends` (steps + 1,) to the next. Gives the number
    of rows that are done, at least one: it stops once it has read `BYTES_A_CALL` bytes.
    """
    taken = 0
    for row in range(starts.shape[0]):
        start, size = starts[row], sizes[row]
        if taken > BYTES_A_CALL:
            return row
        key_starts[row], key_sizes[row] = 0, NULL
        # In the buffer? Without start + size, which may overflow.
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
    """From where to where the key is in the text from `at` to `end`; NOWHERE twice where the exact reader must say.

    `objects` has a bit for each container we are in, the innermost lowest: 1 is an object. Of the path, `matched` steps
    lead to where we are; `seen` has a bit for each step whose name came before, which may come once.
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
                if _is_step(names, name_ends, matched, buffer, name, name_end):
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
            if byte(buffer, at, end) != _closing(objects):
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
    """From behind a value to where the next member or element begins, or behind the text; what we are in then."""
    at = past_blanks(buffer, at, end)
    while depth > _0:
        found = byte(buffer, at, end)
        if found == COMMA:
            return past_blanks(buffer, at + _1, end), depth, objects
        if found != _closing(objects):
            return NOWHERE, depth, objects
        depth -= _1
        objects >>= _1
        at = past_blanks(buffer, at + _1, end)
    return at, depth, objects


@inlined
def _closing(objects: np.uint64) -> np.uint8:
    return CLOSE_OBJECT if objects & _1 else CLOSE_ARRAY


@inlined
def _is_step(
    names: Bytes,
    name_ends: Integers,
    step: np.uint64,
    buffer: Bytes,
    start: np.uint64,
    end: np.uint64,
) -> bool:
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
    """From where to where the key that begins at `at` is, and what is behind it; NOWHERE where it is not plain."""
    if byte(buffer, at, end) == QUOTE:
        stop, escaped = string(buffer, at, end)
        return (NOWHERE, NOWHERE, NOWHERE) if escaped else (at + _1, stop, stop + _1)
    stop = past_integer(buffer, at, end)
    is_minus_zero = byte(buffer, at, end) == MINUS and byte(buffer, at + _1, end) == ZERO
    if stop - at > INTEGER_BYTES_MAX or is_minus_zero:
        return NOWHERE, NOWHERE, NOWHERE
    return at, stop, stop
