"""Which keys of a column belong to a sample, decided by a few bytes of each key: equal keys are sampled alike.

It is much cheaper than a digest. It is no secret: whoever chooses keys can keep them all out of the sample, or all in
it, so the caller bounds the work for each batch.
"""

import numpy as np

from streamdedup.events import Column, Integers
from streamdedup.kernel import kernel
from streamdedup.keys.hashing import frozen
from streamdedup.keys.words import Bytes, last, within, word

# A key is sampled if these bits of what its bytes are mixed to, the low 12, are all zero.
SAMPLED = np.uint64(0xFFF)
SIZE_MAX = 4096  # longer keys are never sampled: a digest of them would take long

_0, _1, _4, _8, _32 = (np.uint64(number) for number in (0, 1, 4, 8, 32))
# Odd numbers from the fractions of the square roots of 2, 3 and 5.
_M1, _M2, _M3 = (
    np.uint64(0x6A09E667F3BCC909),
    np.uint64(0xBB67AE8584CAA73B),
    np.uint64(0x3C6EF372FE94F82B),
)


def sampled(keys: Column, most: int) -> Integers:
    """Return the rows of at most `most` sampled keys, ascending. A null, or a key above SIZE_MAX, is never sampled."""
    rows = np.empty(most, dtype=np.int64)
    buffer = frozen(np.frombuffer(keys.buffer, dtype=np.uint8), np.uint8)
    found = pick(buffer, frozen(keys.starts, np.int64), frozen(keys.sizes, np.int64), rows)
    return rows[:found]


def warm_up() -> None:
    """Compile the kernel, or load it from the cache."""
    sampled(Column.of([b"warm up"]), 1)


@kernel
def pick(buffer: Bytes, starts: Integers, sizes: Integers, rows: Integers) -> int:
    """Fill `rows` (m,) with the first m rows whose keys in `buffer` are sampled; return how many there are."""
    found = 0
    for row in range(starts.shape[0]):
        start, size = starts[row], sizes[row]
        if size > SIZE_MAX or not within(start, start + size, buffer.shape[0]):
            continue
        if _mixed(buffer, np.uint64(start), np.uint64(size)) & SAMPLED != _0:
            continue
        if found == rows.shape[0]:
            return found
        rows[found] = row
        found += 1
    return found


@kernel
def _mixed(buffer: Bytes, start: np.uint64, size: np.uint64) -> np.uint64:
    """Mix the size, and eight bytes each from the beginning, the middle and the end of a key."""
    end = start + size
    if size < _8:
        mixed = (last(buffer, end, size) ^ size) * _M1
    else:
        mixed = (word(buffer, start) ^ size) * _M1
        mixed = (mixed ^ (mixed >> _32) ^ word(buffer, start + (size >> _1) - _4)) * _M2
        mixed = (mixed ^ (mixed >> _32) ^ word(buffer, end - _8)) * _M3
    mixed ^= mixed >> _32
    return mixed * _M2 >> _32
