"""The layout and the build of one part of a binary fuse filter: the exclusive or of a key's 3 slots is its fingerprint.

A key that is alone in one of its slots is peeled off, which leaves other keys alone in theirs. Once all
keys are off, they are put back in the opposite order, and each sets the slot in which it was alone (Graf,
Lemire 2022). If some keys cannot be peeled off, the next seed is tried. The order of the keys changes
nothing, and every call of a kernel is short.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamdedup.errors import ConfigError
from streamdedup.filters.digest_filter import ROWS_A_CALL
from streamdedup.filters.memory import aligned_words
from streamdedup.filters.packed_cells import read, write
from streamdedup.filters.sizing import fuse_size
from streamdedup.kernel import Words, inlined, kernel

PART_KEYS_MAX = 1 << 26
# Of a segment: the paper's bound. `slots` takes 18 bits from a hash for each of two slots.
LENGTH_MAX = 1 << 18
SEEDS_MAX = 100  # the paper's bound; each seed fails for a small share of all sets of keys
LINE_WORDS = 8

Bytes = npt.NDArray[np.uint8]
Cells = npt.NDArray[np.uint32]
State = npt.NDArray[np.int64]

_SCANNED, _WAITING, _PEELED = 0, 1, 2  # indexes in a `State`


class FusePart(NamedTuple):
    """`keys` distinct keys, hashed with `seed`, in `segments` + 2 segments of `length` slots.

    `table` is in whole cache lines and has one line more, because slots are read two words at a time.
    """

    keys: int
    seed: int
    length: int
    segments: int
    table: Words


def build_part(keys: Words, bits: int, seed: int = 0) -> FusePart:
    """Build the part of `keys` (n,), of which equal ones count once, with fingerprints of `bits` bits.

    `keys` is not changed. `seed` is the first seed that is tried. The build takes 24 bytes a key, and the
    table. Raises ConfigError if there are too many keys, or if no seed works.
    """
    if len(keys) > PART_KEYS_MAX:
        raise ConfigError(
            f"{len(keys)} keys in one part of a list, of at most {PART_KEYS_MAX}; announce a number of keys that is"
            " nearer to the true one"
        )
    for attempt in range(seed, SEEDS_MAX):
        part = _attempt(keys, np.uint64(bits), np.uint64(attempt))
        if part is not None:
            return part
    raise ConfigError(
        f"no filter can be built from {len(keys)} keys that seem to be chosen to prevent it; build the list with"
        " the hash siphash"
    )


def words_of(length: int, segments: int, bits: int) -> int:
    """Return the size of a part's slots in words, rounded up to whole cache lines."""
    slots_bits = (segments + 2) * length * bits if segments else 0
    return -(-slots_bits // (64 * LINE_WORDS)) * LINE_WORDS


def _attempt(keys: Words, bits: np.uint64, seed: np.uint64) -> FusePart | None:
    hashes = _distinct_hashes(keys, seed)
    length, segments = fuse_size(len(hashes))
    table = aligned_words(words_of(length, segments, int(bits)) + LINE_WORDS)
    part = FusePart(len(hashes), int(seed), length, segments, table)
    if not part.keys:
        return part
    wide, first = np.uint64(length), np.uint64(length * segments)
    counts = np.zeros(length * (segments + 2), dtype=np.uint8)
    sums = np.zeros(len(counts), dtype=np.uint64)
    for rows in _slices(part.keys):
        if not _count(hashes[rows], wide, first, counts, sums):
            return None
    order, own = (
        hashes,
        np.empty(part.keys, dtype=np.uint8),
    )  # all that was in `hashes` is in `sums`
    alone = np.empty(len(counts), dtype=np.uint32)
    state: State = np.zeros(3, dtype=np.int64)
    while _peel(ROWS_A_CALL, wide, first, counts, sums, alone, order, own, state):
        pass
    if state[_PEELED] != part.keys:
        return None
    for rows in reversed(list(_slices(part.keys))):
        _assign(order[rows], own[rows], wide, first, bits, table)
    return part


def _distinct_hashes(keys: Words, seed: np.uint64) -> Words:
    """Return the distinct hashes, ascending, so that neighbors have their first slots close together."""
    hashes = np.empty_like(keys)
    for rows in _slices(len(keys)):
        _mix_all(keys[rows], seed, hashes[rows])
    hashes.sort()
    filled = 0
    for rows in _slices(len(keys)):
        filled = _keep_distinct(hashes, rows.start, rows.stop, filled)
    return hashes[:filled]


def _slices(count: int) -> Iterator[slice]:
    for start in range(0, count, ROWS_A_CALL):
        yield slice(start, min(start + ROWS_A_CALL, count))


_1, _18, _32, _33, _64 = map(np.uint64, (1, 18, 32, 33, 64))
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # Steele, Lea, Flood 2014: distance between seeds
_MURMUR_1, _MURMUR_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_ODD = np.uint64(0xD1342543DE82EF95)  # Steele, Vigna 2021: a multiplier with good spectra
_CROWD = 255  # the greatest count that one byte holds


@inlined
def mixed(key: np.uint64, seed: np.uint64) -> np.uint64:
    """Return the hash of a key under a seed: for each seed a bijection, the finalizer of MurmurHash3."""
    state = key + seed * _GOLDEN
    state = (state ^ (state >> _33)) * _MURMUR_1
    state = (state ^ (state >> _33)) * _MURMUR_2
    return state ^ (state >> _33)


@inlined
def slots(
    hash_: np.uint64, length: np.uint64, first: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Return the three slots of a hash, in three consecutive segments of `length` slots.

    `first`, the product of `length` and the number of segments, is above every first slot.
    """
    one = ((hash_ >> _32) * first) >> _32
    two, mask = one + length, length - _1
    return one, two ^ ((hash_ >> _18) & mask), (two + length) ^ (hash_ & mask)


@inlined
def fingerprint(hash_: np.uint64, bits: np.uint64) -> np.uint64:
    """Return the fingerprint of a hash: `bits` bits, 1 to 64.

    The multiplication makes them other bits than those of the slots.
    """
    return (hash_ * _ODD) >> (_64 - bits)


@kernel
def _mix_all(keys: Words, seed: np.uint64, hashes: Words) -> None:
    for i in range(keys.shape[0]):
        hashes[i] = mixed(keys[i], seed)


@kernel
def _keep_distinct(hashes: Words, start: int, stop: int, filled: int) -> int:
    """Move each hash that differs from the one before it down to `filled`.

    Return the new end of the distinct hashes.
    """
    for i in range(start, stop):
        if filled == 0 or hashes[i] != hashes[filled - 1]:
            hashes[filled] = hashes[i]
            filled += 1
    return filled


@kernel
def _count(hashes: Words, length: np.uint64, first: np.uint64, counts: Bytes, sums: Words) -> bool:
    """Count the keys of each slot, and sum their hashes by exclusive or.

    Return False if a slot has more keys than a byte can count.
    """
    for i in range(hashes.shape[0]):
        for slot in slots(hashes[i], length, first):
            if counts[slot] == _CROWD:
                return False
            counts[slot] += 1
            sums[slot] ^= hashes[i]
    return True


@kernel
def _peel(
    budget: int,
    length: np.uint64,
    first: np.uint64,
    counts: Bytes,
    sums: Words,
    alone: Cells,
    order: Words,
    own: Bytes,
    state: State,
) -> bool:
    """Peel keys off, each by a slot in which it is alone, for `budget` steps. Return False once nothing is left.

    The kernel writes the hashes of the keys to `order`, and to `own` which of the key's three slots it was.
    `alone` is a stack of the slots that have come to hold one key. The kernel looks at a slot when its scan
    reaches it, and each time the slot comes to hold one key.
    """
    scanned, waiting, peeled = state[0], state[1], state[2]
    more = True
    for _ in range(budget):
        if waiting > 0:
            waiting -= 1
            at = np.int64(alone[waiting])
        elif scanned < counts.shape[0]:
            at = scanned
            scanned += 1
        else:
            more = False
            break
        if counts[at] != 1:
            continue
        hash_ = sums[at]
        order[peeled] = hash_
        for which, slot in enumerate(slots(hash_, length, first)):
            if np.int64(slot) == at:
                own[peeled] = which
            counts[slot] -= 1
            sums[slot] ^= hash_
            if counts[slot] == 1:
                alone[waiting] = slot
                waiting += 1
        peeled += 1
    state[0], state[1], state[2] = scanned, waiting, peeled
    return more


@kernel
def _assign(
    order: Words, own: Bytes, length: np.uint64, first: np.uint64, bits: np.uint64, table: Words
) -> None:
    """Set the slots, for the last key first, so that the three slots of each key give its fingerprint."""
    for back in range(order.shape[0]):
        i = order.shape[0] - 1 - back
        one, two, three = slots(order[i], length, first)
        target = one if own[i] == 0 else two if own[i] == 1 else three
        value = fingerprint(order[i], bits)
        for slot in (one, two, three):  # its own slot is still 0
            value ^= read(table, slot * bits)
        write(table, target * bits, bits, value)
