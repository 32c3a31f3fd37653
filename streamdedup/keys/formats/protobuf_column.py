"""Finds the keys of a column of Protobuf messages, each framed by the id of its schema and the indexes of its type.

A kernel walks the whole message by tags and lengths, and into the messages of the path alone (`protobuf_schema`). As
every reader of Protobuf does, it takes the last value of a field, merges a message that comes in parts, and has a later
member of a oneof unset the others. A field whose bytes are of another type than the schema says counts as unknown.
"""

import numpy as np

from streamdedup.events import Integers
from streamdedup.instructions import copy_bytes
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.formats.framed_kinds import (
    KEY,
    MISSING,
    NOT_UTF8,
    TOO_DEEP,
    UNFIT,
    FramedKinds,
)
from streamdedup.keys.formats.framing import entry_of
from streamdedup.keys.formats.key_text import digits, has_room, is_utf8, symbol, unsigned_digits
from streamdedup.keys.formats.protobuf_files import NUMBER_MAX
from streamdedup.keys.formats.protobuf_schema import ANY_WIRE, Op, Wire
from streamdedup.keys.formats.schema import ROW_BYTES
from streamdedup.keys.formats.varints import NOWHERE, past, unzigzagged, varint
from streamdedup.keys.words import BYTES_A_CALL, Bytes

DEPTH_MAX = 64  # of messages in each other on the path, and of groups

_DESCEND, _KIND, _TEXT, _BYTES, _INT32, _INT64, _UINT32, _UINT64, _SINT32, _SINT64, _ENUM = map(
    int, Op
)
_VARINT, _EIGHT, _LENGTH, _GROUP, _END_GROUP, _FOUR = (np.uint64(wire) for wire in Wire)
_0, _1, _3, _7, _8 = (np.uint64(number) for number in (0, 1, 3, 7, 8))
_TAG_MAX = np.uint64(NUMBER_MAX << 3 | 7)
_LOW_32, _SIGN_32, _ABOVE_32 = (np.uint64(bits) for bits in (0xFFFFFFFF, 1 << 31, 0xFFFFFFFF << 32))


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
    """Do what `avro_column.fill` does, with messages."""
    ends, levels, groups = np.empty((3, DEPTH_MAX), dtype=np.int64)
    taken, to = 0, np.uint64(0)
    for row in range(starts.shape[0]):
        start, size = starts[row], sizes[row]
        if taken > BYTES_A_CALL:
            return row
        at, end, entry, kind = entry_of(ids, entries, buffer, start, size)
        begun = to
        if entry >= 0:
            at, level = _level_of(program, entry, buffer, at, end)
            kind = UNFIT
            if at <= end:
                to, kind = _walk(
                    program, entry, level, ends, levels, groups, buffer, at, end, out, to
                )
            taken += size
        if kind != KEY:
            to = begun
        key_starts[row], key_sizes[row], kinds[row] = np.int64(begun), np.int64(to - begun), kind
    return len(starts)


@inlined
def _level_of(
    program: Integers, entry: np.int64, buffer: Bytes, at: np.uint64, end: np.uint64
) -> tuple[np.uint64, np.int64]:
    """Return where the message begins, and the level of its type, which the indexes before it name.

    They are counted; of no index, the first message of the file is meant.
    """
    at, raw = varint(buffer, at, end)
    count, table = unzigzagged(raw), entry
    if at > end or count < 0:
        return NOWHERE, entry
    is_first = count == 0
    while count > 0 or is_first:
        index = np.int64(0)
        if not is_first:
            at, raw = varint(buffer, at, end)
            index = unzigzagged(raw)
        if at > end or not 0 <= index < program[table + 1]:
            return NOWHERE, entry
        table = entry + program[table + 2 + index]
        count, is_first = count - 1, False
    return at, entry + program[table]


@inlined
def _walk(
    program: Integers,
    entry: np.int64,
    level: np.int64,
    ends: Integers,
    levels: Integers,
    groups: Integers,
    buffer: Bytes,
    at: np.uint64,
    end: np.uint64,
    out: Bytes,
    to: np.uint64,
) -> tuple[np.uint64, np.uint8]:
    """Walk the message from `at` to `end`; return where its key ends in `out`, and its kind.

    `ends` and `levels` are those of the messages around the one that is walked. What was found last is at `found`, of
    `size` bytes, or the number `raw`; it is written once all is read.
    """
    kind, op, operand, found, size, raw = MISSING, np.int64(_KIND), np.int64(0), at, _0, _0
    stop, depth = end, 0
    while True:
        while at == stop and depth > 0:
            depth -= 1
            stop, level = np.uint64(ends[depth]), levels[depth]
        if at == stop:
            break
        at, tag = varint(buffer, at, stop)
        number, wire = np.int64(tag >> _3), tag & _7
        if at > stop or number == 0 or tag > _TAG_MAX:
            return to, UNFIT
        is_ours = number == program[level] and program[level + 1] in (ANY_WIRE, np.int64(wire))
        if not is_ours and _has(program, level + 4, np.int64(tag)):
            kind = MISSING
        value, bits = at, _0
        if wire == _GROUP:
            at = _past_group(buffer, at, stop, number, groups)
        else:
            at, value, bits = _value(buffer, at, stop, wire)
        if at > stop:
            return to, UNFIT
        if not is_ours:
            continue
        step, argument = program[level + 2], program[level + 3]
        if step == _DESCEND:
            if depth == DEPTH_MAX:
                return to, TOO_DEEP
            ends[depth], levels[depth] = np.int64(stop), level
            depth += 1
            stop, at, level = at, value, entry + argument
        elif step == _KIND:
            kind = np.uint8(argument)
        else:
            kind, op, operand, found, size, raw = (
                KEY,
                step,
                argument,
                value,
                at - value,
                bits,
            )
    if kind != KEY:
        return to, kind
    if op in (_TEXT, _BYTES):
        if not has_room(out, to, np.int64(size)):
            return to, UNFIT
        if op == _TEXT and not is_utf8(buffer, found, found + size):
            return to, NOT_UTF8
        copy_bytes(buffer, found, size, out, to)
        return to + size, kind
    after = _number(program, entry, op, operand, raw, out, to)
    return (after, kind) if after != NOWHERE else (to, UNFIT)


@inlined
def _value(
    buffer: Bytes, at: np.uint64, end: np.uint64, wire: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Return the position after the value at `at`, the position of its first byte, and its bits if it is a number.

    The first position is NOWHERE if the value ends beyond `end`, or is a group.
    """
    if wire == _VARINT:
        after, bits = varint(buffer, at, end)
        return after, at, bits
    if wire == _LENGTH:
        begin, size = varint(buffer, at, end)
        return past(begin, end, np.int64(size)), begin, _0
    if wire not in (_EIGHT, _FOUR):
        return NOWHERE, at, _0
    width = np.int64(8 if wire == _EIGHT else 4)
    after = past(at, end, width)
    return after, at, _little(buffer, at, width) if after <= end else _0


@inlined
def _number(
    program: Integers,
    entry: np.int64,
    op: np.int64,
    operand: np.int64,
    raw: np.uint64,
    out: Bytes,
    to: np.uint64,
) -> np.uint64:
    """Write the text of a number or an enum at `to`, and return where it ends; NOWHERE if `out` has no room for it."""
    if not has_room(out, to, ROW_BYTES):
        return NOWHERE
    if op == _UINT64:
        return unsigned_digits(raw, out, to)
    if op == _SINT64:
        return digits(unzigzagged(raw), out, to)
    if op == _INT64:
        return digits(np.int64(raw), out, to)
    raw &= _LOW_32
    if op == _UINT32:
        return unsigned_digits(raw, out, to)
    if op == _SINT32:
        return digits(unzigzagged(raw), out, to)
    number = np.int64(raw | _ABOVE_32 if raw & _SIGN_32 else raw)
    if op == _ENUM:
        address = _symbol(program, entry + operand, number)
        if address >= 0:
            return symbol(program, entry + address, out, to)
    return digits(number, out, to)


@inlined
def _symbol(program: Integers, table: np.int64, number: np.int64) -> np.int64:
    """Return the address of the symbol of `number`; -1 if it has none."""
    low, high = np.int64(0), program[table]
    while low < high:
        middle = (low + high) >> 1
        if program[table + 1 + 2 * middle] < number:
            low = middle + 1
        else:
            high = middle
    if low < program[table] and program[table + 1 + 2 * low] == number:
        return np.int64(program[table + 2 + 2 * low])
    return np.int64(-1)


@inlined
def _has(program: Integers, table: np.int64, number: np.int64) -> bool:
    """Return whether `number` is in the table, which is its count and numbers that ascend."""
    low, high = np.int64(0), program[table]
    while low < high:
        middle = (low + high) >> 1
        if program[table + 1 + middle] < number:
            low = middle + 1
        else:
            high = middle
    return bool(low < program[table] and program[table + 1 + low] == number)


@inlined
def _little(buffer: Bytes, at: np.uint64, width: np.int64) -> np.uint64:
    """Return the integer of `width` bytes at `at`, the lowest first."""
    found, after = _0, at + np.uint64(width)
    while after > at:
        after -= _1
        found = found << _8 | np.uint64(buffer[after])
    return found


@inlined
def _past_group(
    buffer: Bytes, at: np.uint64, end: np.uint64, number: np.int64, groups: Integers
) -> np.uint64:
    """Return the position after the group of that number whose tag ended at `at`; `groups` takes the open ones."""
    groups[0], depth = number, 1
    while depth > 0:
        at, tag = varint(buffer, at, end)
        number, wire = np.int64(tag >> _3), tag & _7
        if at > end or number == 0 or tag > _TAG_MAX:
            return NOWHERE
        if wire == _GROUP:
            if depth == DEPTH_MAX:
                return NOWHERE
            groups[depth] = number
            depth += 1
        elif wire == _END_GROUP:
            depth -= 1
            if groups[depth] != number:
                return NOWHERE
        else:
            at, _, _ = _value(buffer, at, end, wire)
    return at
