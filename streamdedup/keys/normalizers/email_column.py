"""The plain ASCII addresses of a column, checked and normalized by a kernel, with the same results as `email`.

The kernel leaves a null for all others, which `email` then reads: other letters, Punycode, quotes, reserved
domains, and what is not an address. So the kernel's grammar is a part of email-validator's: it may accept
less, but never with another result.
"""

from functools import cache, partial
from typing import NamedTuple

import numpy as np
from email_validator import SPECIAL_USE_DOMAIN_NAMES

from streamdedup.events import NULL, Column, Integers
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.cells import written
from streamdedup.keys.hashing import frozen
from streamdedup.keys.normalizers.address_limits import ADDRESS_BYTES_MAX, LOCAL_BYTES_MAX
from streamdedup.keys.normalizers.ascii_text import stripped
from streamdedup.keys.normalizers.providers import providers
from streamdedup.keys.options import EmailRules
from streamdedup.keys.words import BYTES_A_CALL, Bytes, holds

DOMAIN_BYTES_MAX, LABEL_BYTES_MAX = 253, np.uint64(63)
NOWHERE = np.uint64(1 << 63)

_0, _1, _3, _8 = (np.uint64(number) for number in (0, 1, 3, 8))
_AT, _POINT, _DASH, _CAPITAL_A, _A, _Z = (np.uint8(ord(char)) for char in "@.-Aaz")
_LETTERS, _TO_LOWER, _NO_TAG = np.uint8(26), np.uint8(0x20), np.uint8(0)
_FNV_START, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)

_ATOM, _HOST = np.uint8(1), np.uint8(2)
_LETTERS_AND_DIGITS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_USES: Bytes = np.zeros(256, dtype=np.uint8)  # in which parts of an address a byte may be
_USES[list(_LETTERS_AND_DIGITS + b"!#$%&'*+-/=?^_`{|}~")] |= _ATOM  # RFC 5322, 3.2.3
_USES[list(_LETTERS_AND_DIGITS)] |= _HOST  # RFC 1123, 2.1; a dash only inside of a label

_FROM, _SIZE, _TO, _TO_SIZE, _TAG, _IGNORES_DOTS, _SUBDOMAINS = range(7)  # the columns of `rules`


class _ProviderTable(NamedTuple):
    """The providers as the kernel looks them up.

    `slots`, a hash table by the domain's hash, has the number of a row of `rules`, or -1. A row has the
    position and size in `names` of the domain, and of the mailbox domain; the byte that begins a tag, or 0; 1 if dots
    do not count; and 1 if mailboxes have domains below it.
    """

    names: Bytes
    rules: Integers
    slots: Integers


def plain(keys: Column, rules: EmailRules) -> Column:
    """Return the plain addresses, normalized, over a new buffer that has nothing else.

    Rows that only `email` can read are null.
    """
    table, special = _table(rules), _special()
    longer = int((table.rules[:, _TO_SIZE] - table.rules[:, _SIZE]).max(initial=0))
    taken = int(np.minimum(np.maximum(keys.sizes, 0), ADDRESS_BYTES_MAX).sum())
    out = np.empty(taken + longer * len(keys), dtype=np.uint8)
    return written(keys, partial(fill, *table, special), out)


def warm_up() -> None:
    """Compile the kernel or load it from the cache. Called at set-up, so that no batch waits for it."""
    plain(Column.of([b""]), EmailRules.of("provider"))


@cache
def _table(rules: EmailRules) -> _ProviderTable:
    found = providers(rules)
    names, rows = bytearray(), []
    for domain, provider in found.items():
        row = [len(names), len(domain), len(names) + len(domain), len(provider.domain)]
        names += (domain + provider.domain).encode()
        switches = int(provider.ignores_dots), int(provider.has_subdomains)
        rows.append([*row, *(provider.tag.encode() or b"\0"), *switches])
    size = 1 << max(1, 2 * len(found)).bit_length()  # a power of two, of which at most half is used
    slots: Integers = np.full(size, -1, dtype=np.int64)
    for number, domain in enumerate(found):
        slot = _fnv(domain.encode()) % size
        while slots[slot] >= 0:
            slot = (slot + 1) % size
        slots[slot] = number
    table = np.array(rows, dtype=np.int64).reshape(-1, 7)
    return _ProviderTable(
        frozen(np.frombuffer(bytes(names), dtype=np.uint8), np.uint8),
        frozen(table, np.int64),
        frozen(slots, np.int64),
    )


def _fnv(name: bytes) -> int:
    hashed = int(_FNV_START)
    for byte in name:
        hashed = (hashed ^ byte) * int(_FNV_PRIME) % (1 << 64)
    return hashed


@cache
def _special() -> Words:
    """Return the last labels of the domains that no address may have, each as its last eight bytes.

    Other labels may end in the same eight bytes; their addresses are left to `email`, too.
    """
    labels = {name.rpartition(".")[2].encode()[-8:] for name in SPECIAL_USE_DOMAIN_NAMES}
    words = [int.from_bytes(label, "big") for label in sorted(labels)]
    return frozen(np.array(words, dtype=np.uint64), np.uint64)


@kernel
def fill(
    names: Bytes,
    rules: Integers,
    slots: Integers,
    special: Words,
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    out: Bytes,
    end: Integers,
    to_starts: Integers,
    to_sizes: Integers,
) -> int:
    """Append the normalized addresses to `out`, from `end[0]` on, and write where each is.

    The addresses are at `starts`, of `sizes` bytes each. The size of an address that is not plain is NULL.
    `out` must have room for all addresses of at most ADDRESS_BYTES_MAX bytes, each with the most that a
    rule makes it longer. The kernel returns how many rows are done, at least one: it stops once it has read
    `BYTES_A_CALL` bytes.
    """
    taken = 0
    for row in range(starts.shape[0]):
        start, size = starts[row], sizes[row]
        if taken > BYTES_A_CALL:
            return row
        to_starts[row], to_sizes[row] = 0, NULL
        if holds(buffer, start, size):
            at, last = stripped(buffer, np.uint64(start), np.uint64(start + size))
            taken += size
            if np.int64(last - at) <= ADDRESS_BYTES_MAX:
                sign = _sign(buffer, at, last)
                if sign != NOWHERE and np.int64(last - sign) - 1 <= DOMAIN_BYTES_MAX:
                    hashed, points = _host(buffer, sign + _1, last, special)
                    rule = -1
                    if points > _0:
                        rule = _rule(names, rules, slots, buffer, sign + _1, last, hashed)
                    if points > _1 and rule < 0:
                        first = _parent(buffer, sign + _1, last)
                        above = _rule(
                            names, rules, slots, buffer, first, last, _hash(buffer, first, last)
                        )
                        if above >= 0 and rules[above, _SUBDOMAINS] == 1:
                            points = _0  # the name of the mailbox is in the domain
                    if points > _0:
                        to = np.uint64(end[0])
                        longest = np.int64(last - at)
                        if rule >= 0:
                            longest += max(rules[rule, _TO_SIZE] - rules[rule, _SIZE], 0)
                        if not 0 <= longest <= out.shape[0] - end[0]:
                            continue  # a buffer that is too small is the caller's fault; nothing is written beyond it
                        to_starts[row] = end[0]
                        to = _write(names, rules, rule, buffer, at, sign, last, out, to)
                        to_sizes[row] = np.int64(to) - end[0]
                        end[0] = np.int64(to)
    return len(starts)


@inlined
def _sign(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position of the @ that follows a dot-atom at `at`; NOWHERE if there is none."""
    first, before = at, _POINT  # as if a dot came before: so no dot may come first
    while at < end:
        found = buffer[at]
        if found == _AT:
            is_long = np.int64(at - first) > LOCAL_BYTES_MAX
            return NOWHERE if before == _POINT or is_long else at
        if found == _POINT:
            if before == _POINT:
                return NOWHERE
        elif not _USES[found] & _ATOM:
            return NOWHERE
        before = found
        at += _1
    return NOWHERE


@inlined
def _host(
    buffer: Bytes, at: np.uint64, end: np.uint64, special: Words
) -> tuple[np.uint64, np.uint64]:
    """Return the hash of a domain in lowercase, and how many dots it has; none if no address may have it."""
    hashed, label, word, points, before = _FNV_START, _0, _0, _0, _POINT
    while at < end:
        found = _lower(buffer[at])
        if found == _POINT:
            if before in (_POINT, _DASH):
                return hashed, _0
            label, word, points = _0, _0, points + _1
        else:
            # A dash may not come first in a label. Dashes as its third and fourth byte mark Punycode and the
            # like, which `email` reads.
            if found == _DASH:
                if before == _POINT or (label == _3 and before == _DASH):
                    return hashed, _0
            elif not _USES[found] & _HOST:
                return hashed, _0
            label, word = label + _1, word << _8 | np.uint64(found)
            if label > LABEL_BYTES_MAX:
                return hashed, _0
        hashed = (hashed ^ np.uint64(found)) * _FNV_PRIME
        before = found
        at += _1
    for i in range(special.shape[0]):
        if word == special[i]:
            return hashed, _0
    return hashed, points if _A <= before <= _Z else _0


@inlined
def _parent(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position after the first dot of a domain that has one."""
    while at < end and buffer[at] != _POINT:
        at += _1
    return at + _1


@inlined
def _hash(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the hash of a domain in lowercase."""
    hashed = _FNV_START
    while at < end:
        hashed = (hashed ^ np.uint64(_lower(buffer[at]))) * _FNV_PRIME
        at += _1
    return hashed


@inlined
def _rule(
    names: Bytes,
    rules: Integers,
    slots: Integers,
    buffer: Bytes,
    at: np.uint64,
    end: np.uint64,
    hashed: np.uint64,
) -> int:
    """Return the row of `rules` for a domain; -1 if there is none."""
    last = np.uint64(slots.shape[0]) - _1
    slot = hashed & last
    while slots[slot] >= 0:
        row = slots[slot]
        if rules[row, _SIZE] == np.int64(end - at):
            start, i = np.uint64(rules[row, _FROM]), _0
            while at + i < end and _lower(buffer[at + i]) == names[start + i]:
                i += _1
            if at + i == end:
                return int(row)
        slot = (slot + _1) & last
    return -1


@inlined
def _write(
    names: Bytes,
    rules: Integers,
    rule: int,
    buffer: Bytes,
    at: np.uint64,
    sign: np.uint64,
    end: np.uint64,
    out: Bytes,
    to: np.uint64,
) -> np.uint64:
    """Write an address, by the row `rule` of `rules` if that is not -1. Return the position after it."""
    tag = np.uint8(rules[rule, _TAG]) if rule >= 0 else _NO_TAG
    ignores_dots = rule >= 0 and rules[rule, _IGNORES_DOTS] == 1
    start = to
    while at < sign:
        found = _lower(buffer[at])
        at += _1
        if found == tag:
            if to > start and out[to - _1] != _POINT:
                break
            tag = _NO_TAG  # the tag stays, since nothing of the local part would be left
        if found != _POINT or not ignores_dots:
            out[to] = found
            to += _1
    out[to] = _AT
    to += _1
    if rule >= 0:
        at = np.uint64(rules[rule, _TO])
        last = at + np.uint64(rules[rule, _TO_SIZE])
        while at < last:
            out[to] = names[at]
            at, to = at + _1, to + _1
        return to
    at = sign + _1
    while at < end:
        out[to] = _lower(buffer[at])
        at, to = at + _1, to + _1
    return to


@inlined
def _lower(byte: np.uint8) -> np.uint8:
    return byte | _TO_LOWER if np.uint8(byte - _CAPITAL_A) < _LETTERS else byte
