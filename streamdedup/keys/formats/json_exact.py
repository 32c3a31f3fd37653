"""Finds every key that a column of JSON texts has, and says of every other text why it has none, by kernels.

`json_column` is twice as fast, and takes what most texts are; this takes what it leaves. A text is right if it meets
the grammar of `json_text`, and no value is nested deeper than `DEPTH_MAX`. A byte order mark before it does not count.
If a name comes twice in one object, the last one counts. The time is linear in the bytes of the texts whatever they
hold, no Python code runs for a row, and the GIL is released. So a text that costs its sender nothing costs us little.
"""

import re
from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from streamdedup.events import NULL, Column, Integers
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys import cells
from streamdedup.keys.formats.json_column import closing, is_step
from streamdedup.keys.formats.json_kinds import DEPTH_MAX as LEVELS_MAX
from streamdedup.keys.formats.json_kinds import Kind, Kinds
from streamdedup.keys.formats.json_text import (
    COMMA,
    DEEP,
    MINUS,
    NO_COMMA,
    NOWHERE,
    OPEN_ARRAY,
    OPEN_OBJECT,
    PLACE_BITS,
    QUOTE,
    REST,
    ZERO,
    byte,
    fault,
    past_blanks,
    past_colon,
    past_integer,
    past_mark,
    past_scalar,
    string,
    unescaped,
)
from streamdedup.keys.hashing import frozen
from streamdedup.keys.words import BYTES_A_CALL, Bytes, holds

DEPTH_MAX = np.uint64(LEVELS_MAX)

_0, _1, _6, _8 = (np.uint64(number) for number in (0, 1, 6, 8))  # 1 << 6 bits are in a word
_N, _T, _F = (np.uint8(ord(char)) for char in "ntf")
_PLACE, _KIND = np.uint64((1 << PLACE_BITS) - 1), np.uint64(0x7F)
_NO_INDEX = ~_0  # of a step that is not written as an index: no element has it
_PASSED = np.uint64(1 << 62)  # in place of an element's index after the one into which the path led
_WORDS = int(DEPTH_MAX) // 64
_IN_WORD = np.uint64(63)
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")  # RFC 6901: no leading zeros


(
    _PLAIN,
    _ESCAPED,
    _MISSING,
    _NULL,
    _BOOLEAN,
    _NOT_INTEGER,
    _ARRAY,
    _OBJECT,
    _NO_TEXT,
    _EMPTY,
    _TOO_SHORT,
) = (np.uint8(kind) for kind in range(Kind.TOO_SHORT + 1))


class Path(NamedTuple):
    """The steps to a key, for the kernel: name i is `names[ends[i] : ends[i + 1]]`, `indexes[i]` its element."""

    names: Bytes
    ends: Integers
    indexes: Words


def read(steps: Sequence[str], texts: Column) -> tuple[Column, Kinds, Integers]:
    """Return where in `texts` the key at the path of `steps` is, over the same buffer, and the `Kind` of each row.

    A step is a name, and the index of an element if it is written as one. A row without a key is null. A key
    that is ESCAPED is as it is written in the text, without its quotes. The third result (n,) is, for each text that is
    no JSON, the byte at which that shows, counted from 1; otherwise, and if the text is empty, 0.
    """
    starts, sizes, places = np.empty((3, len(texts)), dtype=np.int64)
    kinds = np.empty(len(texts), dtype=np.uint8)
    cells.pass_over(texts, partial(fill, *_path(tuple(steps))), starts, sizes, kinds, places)
    return Column(texts.buffer, starts, sizes), kinds, places


def decoded(strings: Column) -> Column:
    """Return the texts of `strings`, each the inside of a JSON string that `read` found to be right."""
    out = np.empty(int(strings.sizes.sum()), dtype=np.uint8)  # no text is longer than its string
    return cells.written(strings, decode, out)


def warm_up() -> None:
    """Compile the kernels or load them from the cache. Called at set-up, so that no batch waits for it."""
    decoded(read(("",), Column.of([b'{"":"\\n"}']))[0])


@cache
def _path(steps: tuple[str, ...]) -> Path:
    """Return a path in the form that `fill` takes.

    A name that has no UTF-8 becomes bytes that no text contains.
    """
    names = [step.encode("utf-8", "surrogatepass") for step in steps]
    indexes = [int(step) if _INDEX.fullmatch(step) else _NO_INDEX for step in steps]
    return Path(
        frozen(np.frombuffer(b"".join(names), dtype=np.uint8), np.uint8),
        frozen(np.cumsum([0, *map(len, names)]), np.int64),
        frozen(np.array(indexes, dtype=np.uint64), np.uint64),
    )


@kernel
def fill(
    names: Bytes,
    name_ends: Integers,
    indexes: Words,
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    key_starts: Integers,
    key_sizes: Integers,
    kinds: Kinds,
    places: Integers,
) -> int:
    """Write where the keys are in the texts at `starts`, of `sizes` bytes, and the kind of each row.

    The first three arguments are a `Path`. If there is no key, its size is NULL. `places` are those that `read`
    returns. The kernel returns how many rows are done, at least one: it stops once it has read `BYTES_A_CALL` bytes.
    """
    opened = np.empty(_WORDS, dtype=np.uint64)
    taken = 0
    for row in range(starts.shape[0]):
        start, size = starts[row], sizes[row]
        if taken > BYTES_A_CALL:
            return row
        key_starts[row], key_sizes[row], places[row] = 0, NULL, 0
        kind = _NO_TEXT if size < 0 else _TOO_SHORT
        if holds(buffer, start, size):
            at, end = np.uint64(start), np.uint64(start + size)
            key, key_end, kind, wrong = _found(names, name_ends, indexes, opened, buffer, at, end)
            if wrong >= NOWHERE:
                kind, place = np.uint8(wrong >> PLACE_BITS & _KIND), wrong & _PLACE
                kind = _TOO_SHORT if place >= end else kind
                places[row] = np.int64(place) - start + 1
            elif kind <= _ESCAPED:
                key_starts[row], key_sizes[row] = np.int64(key), np.int64(key_end - key)
            taken += size
        kinds[row] = kind
    return len(starts)


@kernel
def decode(
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    out: Bytes,
    ends: Integers,
    to_starts: Integers,
    to_sizes: Integers,
) -> int:
    """Append the texts of the JSON strings at `starts`, of `sizes` bytes, to `out`, from `ends[0]` on.

    The strings are right, and `out` has room for their bytes at least. The kernel returns how many rows are done, at
    least one: it stops once it has read `BYTES_A_CALL` bytes.
    """
    taken, to, room = 0, np.uint64(ends[0]), np.uint64(out.shape[0])
    for row in range(starts.shape[0]):
        if taken > BYTES_A_CALL:
            return row
        at, end, begun = np.uint64(starts[row]), np.uint64(starts[row] + sizes[row]), to
        while at < end:
            word, count, at = unescaped(buffer, at, end)
            for _ in range(count):
                if to < room:
                    out[to] = np.uint8(word)
                    to += _1
                word >>= _8
        to_starts[row], to_sizes[row] = np.int64(begun), np.int64(to - begun)
        ends[0] = np.int64(to)
        taken += sizes[row]
    return len(starts)


@inlined
def _found(
    names: Bytes,
    name_ends: Integers,
    indexes: Words,
    opened: Words,
    buffer: Bytes,
    at: np.uint64,
    end: np.uint64,
) -> tuple[np.uint64, np.uint64, np.uint8, np.uint64]:
    """Return the start and end of the key in the text from `at` to `end`, its kind, and the fault if there is one.

    `objects` has a bit for each of the innermost containers that are open, the innermost lowest: 1 is an object. After
    every 64 levels `opened` has the word that was reached. `matched` is how many steps of the path lead to the current
    container. If that is an array, `element` is the index of the next element, or `_PASSED`.
    """
    steps = np.uint64(name_ends.shape[0]) - _1
    key, key_end, kind = _0, _0, _MISSING
    depth, objects, matched, element = _0, _0, _0, _0
    at = past_blanks(buffer, past_mark(buffer, at, end), end)
    if at == end:
        return key, key_end, _EMPTY, _0
    while True:
        leads, is_on_path = False, bool(depth == matched + _1 and matched < steps)
        if objects & _1:
            at, leads = _past_name(names, name_ends, matched, is_on_path, buffer, at, end)
        elif is_on_path:
            leads = element == indexes[matched]
            element += _1
        if leads:
            matched += _1
            kind = _MISSING  # what an earlier member of the same name led to does not count
        is_key = leads and matched == steps
        first = byte(buffer, at, end)
        if first in (OPEN_OBJECT, OPEN_ARRAY):
            if depth == DEPTH_MAX:
                return key, key_end, kind, fault(DEEP, at)
            kind = _kind_of_container(first) if is_key else kind
            element = _0 if depth == matched else element
            objects = _opened(opened, depth, objects, first)
            depth += _1
            at = past_blanks(buffer, at + _1, end)
            if byte(buffer, at, end) != closing(objects):
                continue
        elif is_key:
            key, key_end, kind, at = _key(buffer, at, end)
        else:
            at = past_scalar(buffer, at, end)
        at, depth, objects = _to_next(opened, buffer, at, end, depth, objects)
        if depth == _0 or at >= NOWHERE:
            return key, key_end, kind, _0 if at == end else fault(REST, at)
        if matched >= depth:
            matched = depth - _1
            element = _PASSED


@inlined
def _past_name(
    names: Bytes,
    name_ends: Integers,
    step: np.uint64,
    is_on_path: bool,
    buffer: Bytes,
    at: np.uint64,
    end: np.uint64,
) -> tuple[np.uint64, bool]:
    """Return the position of the value after the name at `at`, and whether the name is that of the step on the path."""
    name, (after, escaped) = at + _1, string(buffer, at, end)
    name_end, at = after - _1, past_colon(buffer, after, end)
    if not is_on_path or at >= NOWHERE:
        return at, False
    if escaped:
        return at, _is_escaped_step(names, name_ends, step, buffer, name, name_end)
    return at, is_step(names, name_ends, step, buffer, name, name_end)


@inlined
def _opened(opened: Words, depth: np.uint64, objects: np.uint64, first: np.uint8) -> np.uint64:
    """Return `objects` after the container that begins with `first`, `depth` levels deep."""
    if depth & _IN_WORD == _IN_WORD:
        opened[depth >> _6] = objects
    return objects << _1 | np.uint64(first == OPEN_OBJECT)


@inlined
def _kind_of_container(first: np.uint8) -> np.uint8:
    return _OBJECT if first == OPEN_OBJECT else _ARRAY


@inlined
def _to_next(
    opened: Words,
    buffer: Bytes,
    at: np.uint64,
    end: np.uint64,
    depth: np.uint64,
    objects: np.uint64,
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
            return fault(NO_COMMA, at), depth, objects
        depth -= _1
        objects >>= _1
        if depth & _IN_WORD == _IN_WORD:
            objects = opened[depth >> _6]
        at = past_blanks(buffer, at + _1, end)
    return at, depth, objects


@inlined
def _is_escaped_step(
    names: Bytes,
    name_ends: Integers,
    step: np.uint64,
    buffer: Bytes,
    start: np.uint64,
    end: np.uint64,
) -> bool:
    """Return whether the name from `start` to `end`, once it is decoded, is that of the step."""
    at, stop = np.uint64(name_ends[step]), np.uint64(name_ends[step + _1])
    while start < end:
        word, count, start = unescaped(buffer, start, end)
        for _ in range(count):
            if at == stop or names[at] != np.uint8(word):
                return False
            word >>= _8
            at += _1
    return bool(at == stop)


@inlined
def _key(
    buffer: Bytes, at: np.uint64, end: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint8, np.uint64]:
    """Return the start and end of the key that the scalar at `at` is, its kind, and the position after it."""
    first = byte(buffer, at, end)
    if first == QUOTE:
        after, escaped = string(buffer, at, end)
        return at + _1, after - _1, _ESCAPED if escaped else _PLAIN, after
    stop = past_scalar(buffer, at, end)
    if first in (_N, _T, _F):
        return at, at, _NULL if first == _N else _BOOLEAN, stop
    if past_integer(buffer, at, end) != stop:  # also of NaN, which has none
        return at, at, _NOT_INTEGER, stop
    is_minus_zero = first == MINUS and byte(buffer, at + _1, end) == ZERO
    return at + np.uint64(is_minus_zero), stop, _PLAIN, stop
