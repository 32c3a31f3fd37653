"""SipHash-2-4 with 128-bit output (Aumasson, Bernstein 2012; the output's second half 2014), as a kernel.

It does two rounds a word, and four before each half of the output. Without its key nobody can make digests
collide.
"""

import numpy as np
import numpy.typing as npt

from streamdedup.events import Integers
from streamdedup.kernel import kernel
from streamdedup.keys.words import BYTES_A_CALL, Bytes, Readable, last, rotated, within, word

Digests = npt.NDArray[np.uint64]
Secret = npt.NDArray[np.uint64]
State = tuple[np.uint64, np.uint64, np.uint64, np.uint64]

A, B = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D)
C, D = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)
LONG, SECOND = np.uint64(0xEE), np.uint64(0xDD)  # the constants that distinguish the 128-bit form
_0, _7, _8, _13, _16, _17 = (np.uint64(number) for number in (0, 7, 8, 13, 16, 17))
_21, _32, _56 = (np.uint64(number) for number in (21, 32, 56))


def secret(key: bytes) -> Secret:
    """Return the two words of a key of 16 bytes, shape (2,), read-only, as the kernels take them."""
    return np.frombuffer(key, dtype="<u8").astype(np.uint64, copy=False)


@kernel
def fill(
    secret: Secret,
    buffer: Bytes,
    starts: Integers,
    ends: Integers,
    digests: Digests,
) -> int:
    """Write the digests (n, 2), under `secret`, of the keys that lie in `buffer` from `starts` to `ends`, both (n,).

    The kernel returns how many rows are done. It stops before a row that does not lie in the buffer, and
    once it has read `BYTES_A_CALL` bytes. It reads the first row whatever its size.
    """
    taken = 0
    for row in range(starts.shape[0]):
        start, end = starts[row], ends[row]
        if taken > BYTES_A_CALL or not within(start, end, buffer.shape[0]):
            return row
        digests[row, 0], digests[row, 1] = _hashed(secret, buffer, np.uint64(start), np.uint64(end))
        taken += end - start
    return len(starts)


@kernel
def signed(secret: Secret, key: bytes) -> tuple[int, int]:
    """Return the digest of one key as two signed integers."""
    a, b = _hashed(secret, key, _0, np.uint64(len(key)))
    return int(np.int64(a)), int(np.int64(b))


@kernel
def _hashed(
    secret: Secret, buffer: Readable, start: np.uint64, end: np.uint64
) -> tuple[np.uint64, np.uint64]:
    size = end - start
    a, b, c, d = A ^ secret[0], B ^ secret[1] ^ LONG, C ^ secret[0], D ^ secret[1]
    at, words_end = start, start + (size & ~_7)
    while at < words_end:
        a, b, c, d = _taken_in(a, b, c, d, word(buffer, at))
        at += _8
    a, b, c, d = _taken_in(a, b, c, d, size << _56 | last(buffer, end, size & _7))
    a, b, c, d = _four_rounds(a, b, c ^ LONG, d)
    first = a ^ b ^ c ^ d
    a, b, c, d = _four_rounds(a, b ^ SECOND, c, d)
    return first, a ^ b ^ c ^ d


@kernel
def _taken_in(a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64, word: np.uint64) -> State:
    a, b, c, d = _round(a, b, c, d ^ word)
    a, b, c, d = _round(a, b, c, d)
    return a ^ word, b, c, d


@kernel
def _four_rounds(a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64) -> State:
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    return a, b, c, d


@kernel
def _round(a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64) -> State:
    a += b
    c += d
    b = rotated(b, _13) ^ a
    d = rotated(d, _16) ^ c
    a = rotated(a, _32)
    c += b
    a += d
    b = rotated(b, _17) ^ c
    d = rotated(d, _21) ^ a
    return a, b, rotated(c, _32), d
