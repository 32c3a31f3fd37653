"""Finds the keys of a column of JSON texts in place, without a copy, as far as they are plain.

The kernel checks the whole text by RFC 8259, so it accepts no text that the exact reader (`json_exact`)
refuses. It leaves a null for each row that is not plain, is wrong, or has no key. The exact reader then
decides what its key is, or why it has none.
"""

from collections.abc import Sequence
from functools import cache, partial
from itertools import accumulate
from typing import NamedTuple

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
from streamdedup.keys.words import BYTES_A_CALL, Bytes, holds

# The deepest nesting that the kernel follows: `objects` has a bit for each level. The exact reader goes deeper.
DEPTH_MAX = np.uint64(64)
# The most names in all paths together, of which each has a bit in `seen`. More are left to the exact reader.
NODES_MAX = 64

_0, _1 = np.uint64(0), np.uint64(1)


class Paths(NamedTuple):
    """The names of several paths as a tree, for the kernel. The root is node 0, and no node is before its parent.

    Node n + 1 has the name `names[ends[n] : ends[n + 1]]`, and its parent is `parents[n + 1]`. The children of node n
    are those from `children[n]` to `children[n + 1]`. The path that ends at it is `path[n]`; -1 if none does.
    """

    names: Bytes
    ends: Integers
    parents: Integers
    children: Integers
    path: Integers


def located(steps: Sequence[str], texts: Column) -> Column:
    """Return where in `texts` the key at the path of `steps` is, over the same buffer, as `located_all` does."""
    (found,) = located_all([steps], texts)
    return found


def located_all(paths: Sequence[Sequence[str]], texts: Column) -> list[Column]:
    """Return where in `texts` the key of each path of steps is, over the same buffer. Each text is read once.

    A key is a string without escapes, or an integer, as it is written. Rows that the exact reader must read are null.
    ValueError if two paths are the same.
    """
    starts, sizes = np.empty((2, len(texts), len(paths)), dtype=np.int64)
    tree = _tree(tuple(map(tuple, paths)))
    if tree is None:
        sizes[:] = NULL
    else:
        cells.pass_over(texts, partial(fill, *tree), starts, sizes)
    return [
        Column(texts.buffer, *map(np.ascontiguousarray, (starts[:, path], sizes[:, path])))
        for path in range(len(paths))
    ]


def warm_up() -> None:
    """Compile the kernel or load it from the cache. Called at set-up, so that no batch waits for it."""
    located(("",), Column.of([b""]))


@cache
def _tree(paths: tuple[tuple[str, ...], ...]) -> Paths | None:
    """Return paths in the form that `fill` takes; None if they have too many names.

    A name that has no UTF-8 becomes bytes that no text contains.
    """
    if len(set(paths)) < len(paths):
        raise ValueError("two of the paths are the same")
    depths = range(max(map(len, paths)) + 1)
    # Level by level, and in each by parent, so that the children of a node are together.
    nodes: list[tuple[str, ...]] = [()]
    for depth in depths[1:]:
        level = dict.fromkeys(steps[:depth] for steps in paths if len(steps) >= depth)
        nodes += sorted(level, key=lambda node: nodes.index(node[:-1]))
    if len(nodes) > NODES_MAX:
        return None
    number = {node: at for at, node in enumerate(nodes)}
    names = [node[-1].encode("utf-8", "surrogatepass") for node in nodes[1:]]
    parents = [0, *(number[node[:-1]] for node in nodes[1:])]
    families = [parents[1:].count(at) for at in range(len(nodes))]
    return Paths(
        frozen(np.frombuffer(b"".join(names), dtype=np.uint8), np.uint8),
        *(
            frozen(np.array(numbers), np.int64)
            for numbers in (
                [*accumulate(map(len, names), initial=0)],
                parents,
                [*accumulate(families, initial=1)],
                [paths.index(node) if node in paths else -1 for node in nodes],
            )
        ),
    )


@kernel
def fill(
    names: Bytes,
    ends: Integers,
    parents: Integers,
    children: Integers,
    path: Integers,
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    key_starts: Integers,
    key_sizes: Integers,
) -> int:
    """Write where the keys are in the texts at `starts`, of `sizes` bytes; a size of NULL if the kernel cannot decide.

    The first five arguments are `Paths`. The last two have shape (rows, paths). The kernel returns how many rows are
    done, at least one: it stops once it has read `BYTES_A_CALL` bytes.
    """
    taken = 0
    for row in range(starts.shape[0]):
        start, size = starts[row], sizes[row]
        if taken > BYTES_A_CALL:
            return row
        key_starts[row], key_sizes[row] = 0, NULL
        if holds(buffer, start, size):
            end = np.uint64(start + size)
            if not _found(
                names,
                ends,
                parents,
                children,
                path,
                buffer,
                np.uint64(start),
                end,
                row,
                key_starts,
                key_sizes,
            ):
                key_sizes[row] = NULL
            taken += size
    return len(starts)


@inlined
def _found(
    names: Bytes,
    ends: Integers,
    parents: Integers,
    children: Integers,
    path: Integers,
    buffer: Bytes,
    at: np.uint64,
    end: np.uint64,
    row: int,
    key_starts: Integers,
    key_sizes: Integers,
) -> bool:
    """Write where the keys are in the text from `at` to `end`; return False if the kernel cannot decide.

    `objects` has a bit for each container that is open, the innermost lowest: 1 is an object. `node` is the last name
    of the paths that leads to the current container or one around it, `matched` how many names do. `seen` has a bit for
    each node whose name was found: a second one means that the exact reader must decide.
    """
    depth, objects, matched, seen, node = _0, _0, _0, _0, 0
    at = past_blanks(buffer, at, end)
    while True:
        key = -1
        if objects & _1:
            name, (after, escaped) = at + _1, string(buffer, at, end)
            name_end, at = after - _1, past_colon(buffer, after, end)
            if depth == matched + _1:
                child = _child(names, ends, children, node, buffer, name, name_end)
                if escaped or at >= NOWHERE or seen >> np.uint64(child) & _1:
                    return False
                if child:
                    seen |= _1 << np.uint64(child)
                    node, key = child, path[child]
                    matched += _1
        first = byte(buffer, at, end)
        if first in (OPEN_OBJECT, OPEN_ARRAY):
            if key >= 0 or depth == DEPTH_MAX:
                return False
            depth += _1
            objects = objects << _1 | np.uint64(first == OPEN_OBJECT)
            at = past_blanks(buffer, at + _1, end)
            if byte(buffer, at, end) != closing(objects):
                continue
        elif key >= 0:
            start, stop, at = _key(buffer, at, end)
            key_starts[row, key], key_sizes[row, key] = np.int64(start), np.int64(stop - start)
        else:
            at = past_scalar(buffer, at, end)
        at, depth, objects = _to_next(buffer, at, end, depth, objects)
        if depth == _0 or at >= NOWHERE:
            return bool(at == end)
        while matched >= depth:
            matched -= _1
            node = parents[node]


@inlined
def _child(
    names: Bytes,
    ends: Integers,
    children: Integers,
    node: int,
    buffer: Bytes,
    start: np.uint64,
    end: np.uint64,
) -> int:
    """Return the child of `node` whose name is the one from `start` to `end`, which has no escapes; 0 if none is."""
    for child in range(children[node], children[node + 1]):
        if is_step(names, ends, np.uint64(child - 1), buffer, start, end):
            return child
    return 0


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

    The last is from NOWHERE on if the key is not plain.
    """
    if byte(buffer, at, end) == QUOTE:
        after, escaped = string(buffer, at, end)
        return (NOWHERE, NOWHERE, NOWHERE) if escaped else (at + _1, after - _1, after)
    stop = past_integer(buffer, at, end)
    is_minus_zero = byte(buffer, at, end) == MINUS and byte(buffer, at + _1, end) == ZERO
    return (NOWHERE, NOWHERE, NOWHERE) if is_minus_zero else (at, stop, stop)
