"""MurmurHash3 x64 128 with seed 0 (A. Appleby 2011), as a kernel: the digests of all keys of a column."""

import numpy as np
import numpy.typing as npt

from streamdedup.events import Integers
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.words import (
    BYTES_A_CALL,
    Bytes,
    last,
    needs_tag,
    rotated,
    with_tag,
    within,
    word,
)

Digests = npt.NDArray[np.uint64]

C1, C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
ADD1, ADD2 = np.uint64(0x52DCE729), np.uint64(0x38495AB5)
FINAL1, FINAL2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_0, _5, _8, _15, _16, _27, _31, _33 = (np.uint64(n) for n in (0, 5, 8, 15, 16, 27, 31, 33))


@kernel
def fill(
    buffer: Bytes, starts: Integers, ends: Integers, digests: Digests, is_encoded: bool
) -> int:
    """Write the digests (n, 2) of the keys that lie in `buffer` from `starts` to `ends`, both (n,).

    Unless the keys are encoded, those that need a tag get one. The kernel returns how many rows are done. It stops
    before a row that does not lie in the buffer, and once it has read `BYTES_A_CALL` bytes. It reads the first row
    whatever its size.
    """
    taken = done = 0
    some_needs = False
    for row in range(starts.shape[0]):
        start, end = starts[row], ends[row]
        if taken > BYTES_A_CALL or not within(start, end, buffer.shape[0]):
            break
        some_needs |= needs_tag(buffer, start, end)
        digests[row, 0], digests[row, 1] = hashed(buffer, np.uint64(start), np.uint64(end))
        taken += end - start
        done += 1
    if some_needs and not is_encoded:
        _tag(buffer, starts, ends, digests, done)
    return done


@kernel
def _tag(buffer: Bytes, starts: Integers, ends: Integers, digests: Digests, rows: int) -> None:
    """Write the digests of those of the first `rows` keys that need a tag."""
    for row in range(rows):
        if needs_tag(buffer, starts[row], ends[row]):
            key = with_tag(buffer, starts[row], ends[row])
            digests[row, 0], digests[row, 1] = hashed(key, _0, np.uint64(len(key)))


@inlined
def hashed(buffer: Bytes, start: np.uint64, end: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the digest of the key that lies in `buffer` from `start` to `end`."""
    size = end - start
    a = b = _0
    at, blocks_end = start, start + (size & ~_15)
    while at < blocks_end:
        a ^= _first(word(buffer, at))
        a = (rotated(a, _27) + b) * _5 + ADD1
        b ^= _second(word(buffer, at + _8))
        b = (rotated(b, _31) + a) * _5 + ADD2
        at += _16
    rest = size & _15
    if rest > _8:
        a ^= _first(word(buffer, at))
        b ^= _second(last(buffer, end, rest - _8))
    else:
        a ^= _first(last(buffer, end, rest))
    a ^= size
    b ^= size
    a += b
    b += a
    a, b = _final(a), _final(b)
    a += b
    return a, b + a


@inlined
def _first(half: np.uint64) -> np.uint64:
    return rotated(half * C1, _31) * C2


@inlined
def _second(half: np.uint64) -> np.uint64:
    return rotated(half * C2, _33) * C1


@inlined
def _final(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> _33)) * FINAL1
    value = (value ^ (value >> _33)) * FINAL2
    return value ^ (value >> _33)
