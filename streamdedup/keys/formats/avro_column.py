"""Finds the keys of a column of Avro values, each framed by the id of its schema, by a kernel.

It runs the program of the value's schema (`avro_schema`) over the whole value, so a value that does not fit its schema
to the last byte has no key. The time is linear in the bytes, whatever they are: each item of an array that is counted
has a byte at least, and those without bytes are not walked.
"""

import numpy as np

from streamdedup.events import Integers
from streamdedup.instructions import copy_bytes
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.formats.avro_schema import Op
from streamdedup.keys.formats.framed_kinds import (
    KEY,
    MISSING,
    NOT_UTF8,
    TOO_DEEP,
    UNFIT,
    FramedKinds,
)
from streamdedup.keys.formats.framing import entry_of
from streamdedup.keys.formats.key_text import digits, has_room, is_utf8, symbol, uuid_text
from streamdedup.keys.formats.schema import ROW_BYTES
from streamdedup.keys.formats.varints import NOWHERE, past, unzigzagged, varint
from streamdedup.keys.words import BYTES_A_CALL, Bytes

DEPTH_MAX = 64  # of records and blocks in each other

(
    _END,
    _SKIP,
    _VARINT,
    _BYTES,
    _UNION,
    _JUMP,
    _CALL,
    _RETURN,
    _BLOCKS,
    _NEXT,
    _EVEN_BLOCKS,
    _KIND,
) = (int(op) for op in list(Op)[:12])
_KEY_TEXT, _KEY_BYTES, _KEY_INT, _KEY_LONG, _KEY_ENUM, _KEY_FIXED, _KEY_UUID = (
    int(op) for op in list(Op)[12:]
)
_INT_MAX = (1 << 31) - 1
_NO_ITEMS = np.int64(0)


@kernel
def fill(
    program: Integers,
    ids: Integers,
    entries: Integers,
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    out: Bytes,
    key_starts: Integers,
    key_sizes: Integers,
    kinds: FramedKinds,
) -> int:
    """Write the keys of the values at `starts`, of `sizes` bytes, to `out`; and for each row its key's place and kind.

    The programs of all schemas are in `program`: that of `ids[i]`, ascending, begins at `entries[i]`. A row without a
    key has 0 bytes. The kernel returns how many rows are done, at least one: it stops once it has read `BYTES_A_CALL`
    bytes. `out` should have room for `ROW_BYTES` and a symbol a row, besides all bytes of the values: a key that does
    not fit into `out` is not written, and its row is UNFIT, whatever the program is.
    """
    returns = np.empty(DEPTH_MAX, dtype=np.int64)
    lefts = np.empty(DEPTH_MAX, dtype=np.int64)
    taken, to = 0, np.uint64(0)
    for row in range(starts.shape[0]):
        start, size = starts[row], sizes[row]
        if taken > BYTES_A_CALL:
            return row
        at, end, entry, kind = entry_of(ids, entries, buffer, start, size)
        begun = to
        if entry >= 0:
            to, kind = _walk(program, entry, returns, lefts, buffer, at, end, out, to)
            taken += size
        if kind != KEY:
            to = begun
        key_starts[row], key_sizes[row], kinds[row] = np.int64(begun), np.int64(to - begun), kind
    return len(starts)


@inlined
def _walk(
    program: Integers,
    entry: np.int64,
    returns: Integers,
    lefts: Integers,
    buffer: Bytes,
    at: np.uint64,
    end: np.uint64,
    out: Bytes,
    begun: np.uint64,
) -> tuple[np.uint64, np.uint8]:
    """Run the program at `entry` over the value from `at` to `end`; return where its key ends in `out`, and its kind.

    The key begins at `begun` in `out`: if a program takes several, each replaces the one before. The stack has a frame
    for each call and for each array or map: where to go on, and the items that are left of the block. A position is
    NOWHERE if the value does not fit.
    """
    kind, depth, pc, to = MISSING, 0, entry, begun
    while at <= end:
        op = program[pc]
        if op == _VARINT:
            at, _ = varint(buffer, at, end)
            pc += 1
        elif op == _BYTES:
            at, count = _length(buffer, at, end)
            at = past(at, end, count)
            pc += 1
        elif op == _SKIP:
            at = past(at, end, program[pc + 1])
            pc += 2
        elif op == _UNION:
            at, raw = varint(buffer, at, end)
            branch = unzigzagged(raw)
            if not 0 <= branch < program[pc + 1]:
                return to, UNFIT
            pc = entry + program[pc + 2 + branch]
        elif op == _JUMP:
            pc = entry + program[pc + 1]
        elif op == _CALL:
            if depth == DEPTH_MAX:
                return to, TOO_DEEP
            returns[depth] = pc + 2
            depth += 1
            pc = entry + program[pc + 1]
        elif op == _RETURN:
            if depth == 0:
                return to, UNFIT
            depth -= 1
            pc = returns[depth]
        elif op == _BLOCKS:
            if depth == DEPTH_MAX:
                return to, TOO_DEEP
            at, count = _items(buffer, at, end)
            returns[depth], lefts[depth] = pc + 2, count
            depth += 1
            pc += 2
            if count == 0:
                depth -= 1
                pc = entry + program[pc - 1]
        elif op == _NEXT:
            if depth == 0:
                return to, UNFIT
            top = depth - 1
            lefts[top] -= 1
            if lefts[top] == 0:
                at, lefts[top] = _items(buffer, at, end)
            pc = returns[top]
            if lefts[top] == 0:
                depth = top
                pc = entry + program[pc - 1]
        elif op == _EVEN_BLOCKS:
            at = _past_even(buffer, at, end, program[pc + 1])
            pc += 2
        elif op == _KIND:
            kind = np.uint8(program[pc + 1])
            pc += 2
        elif op == _END:
            return to, kind if at == end else UNFIT
        else:
            at, to, kind, pc = _take(program, entry, op, pc, buffer, at, end, out, begun)
    return to, UNFIT


@inlined
def _take(
    program: Integers,
    entry: np.int64,
    op: np.int64,
    pc: np.int64,
    buffer: Bytes,
    at: np.uint64,
    end: np.uint64,
    out: Bytes,
    to: np.uint64,
) -> tuple[np.uint64, np.uint64, np.uint8, np.int64]:
    """Write the key at `at` to `out`; return where both go on, its kind, and the next instruction.

    The position is NOWHERE if `out` has no room for the key.
    """
    kind = KEY
    if op in (_KEY_TEXT, _KEY_BYTES, _KEY_FIXED):
        if op == _KEY_FIXED:
            count, pc = program[pc + 1], pc + 1
        else:
            at, count = _length(buffer, at, end)
        after = past(at, end, count)
        if after <= end and not has_room(out, to, count):
            after = NOWHERE
        if after <= end:
            copy_bytes(buffer, at, np.uint64(count), out, to)
            to += np.uint64(count)
            if op == _KEY_TEXT and not is_utf8(buffer, at, after):
                kind = NOT_UTF8
        return after, to, kind, pc + 1
    if op == _KEY_UUID:
        after = past(at, end, np.int64(16))
        if after <= end and not has_room(out, to, ROW_BYTES):
            after = NOWHERE
        if after <= end:
            to = uuid_text(buffer, at, out, to)
        return after, to, kind, pc + 1
    at, raw = varint(buffer, at, end)
    number = unzigzagged(raw)
    if op == _KEY_ENUM:
        if not 0 <= number < program[pc + 1]:
            return NOWHERE, to, kind, pc
        to = symbol(program, entry + program[pc + 2 + number], out, to)
        return at if to != NOWHERE else to, to, kind, pc + 2 + program[pc + 1]
    if op == _KEY_INT and not -_INT_MAX - 1 <= number <= _INT_MAX:
        return NOWHERE, to, kind, pc
    if not has_room(out, to, ROW_BYTES):
        return NOWHERE, to, kind, pc
    return at, digits(number, out, to), kind, pc + 1


@inlined
def _length(buffer: Bytes, at: np.uint64, end: np.uint64) -> tuple[np.uint64, np.int64]:
    at, raw = varint(buffer, at, end)
    return at, unzigzagged(raw)


@inlined
def _items(buffer: Bytes, at: np.uint64, end: np.uint64) -> tuple[np.uint64, np.int64]:
    """Return where the next items are that have to be walked, and their count; it is 0 after the last block.

    A block with a negative count says how many bytes it has, so it is skipped.
    """
    while True:
        at, count = _length(buffer, at, end)
        if count >= 0:
            # Each item has a byte at least. At NOWHERE, the count is 0.
            if count == 0 or np.uint64(count) <= end - at:
                return at, count
            return NOWHERE, _NO_ITEMS
        at, size = _length(buffer, at, end)
        at = past(at, end, size)


@inlined
def _past_even(buffer: Bytes, at: np.uint64, end: np.uint64, item: np.int64) -> np.uint64:
    """Return the position after an array whose items have `item` bytes each, which may be 0."""
    while True:
        at, count = _length(buffer, at, end)
        if count == 0:  # at NOWHERE, too
            return at
        if count < 0:
            at, size = _length(buffer, at, end)
            at = past(at, end, size)
        elif item > 0:
            if np.uint64(count) > (end - at) // np.uint64(item):
                return NOWHERE
            at += np.uint64(count * item)
