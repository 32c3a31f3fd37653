"""SipHash-2-4 with 128-bit output (Aumasson, Bernstein 2012; the output's second half 2014), as a kernel.

It does two rounds a word, and four before each half of the output. Without its key nobody can make digests
collide. Keys of a batch are hashed eight at once (`sip_lanes`). If one of eight is longer than `WORDS_MAX` words, all
eight are hashed one by one, as are the last few of a batch.
"""

import numpy as np
import numpy.typing as npt

from streamdedup.events import Integers
from streamdedup.instructions import prefetch
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys import sip_lanes
from streamdedup.keys.sip_lanes import LANES, hash_lanes
from streamdedup.keys.words import (
    BYTES_A_CALL,
    TAG,
    Bytes,
    Readable,
    last,
    needs_tag,
    rotated,
    with_tag,
    within,
    word,
)

Digests = npt.NDArray[np.uint64]
Secret = npt.NDArray[np.uint64]
State = tuple[np.uint64, np.uint64, np.uint64, np.uint64]

A, B, C, D = (np.uint64(number) for number in sip_lanes.INITIAL)
LONG, SECOND = np.uint64(sip_lanes.LONG), np.uint64(sip_lanes.SECOND)
AHEAD = 16  # rows between the prefetch of a key and its use: keys may lie a record apart
WORDS_MAX = 16  # words, with the last one, of a key that is hashed with others: up to 127 bytes
_0, _1, _3, _7, _8, _13, _16, _17 = (np.uint64(number) for number in (0, 1, 3, 7, 8, 13, 16, 17))
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
    is_encoded: bool,
) -> int:
    """Write the digests (n, 2), under `secret`, of the keys that lie in `buffer` from `starts` to `ends`, both (n,).

    Unless the keys are encoded, those that need a tag get one. The kernel returns how many rows are done. It stops
    before a row that does not lie in the buffer, and once it has read `BYTES_A_CALL` bytes. It reads the first row
    whatever its size.
    """
    words, counts = np.empty(WORDS_MAX * LANES, np.uint64), np.empty(LANES, np.uint64)
    taken = row = alone = 0  # rows below `alone` are hashed one by one
    while row < starts.shape[0] and taken <= BYTES_A_CALL:
        if row >= alone and row + LANES <= starts.shape[0]:
            for ahead in range(row + AHEAD, min(row + AHEAD + LANES, starts.shape[0])):
                prefetch(buffer, np.uint64(starts[ahead]))
            if _laid_out(buffer, starts, ends, row, words, counts):
                hash_lanes(words, counts, counts.max() + _1, secret, digests, np.uint64(row))
                if not is_encoded and _some_needs_tag(words):
                    _tag(secret, buffer, starts, ends, digests, row, row + LANES)
                taken += int(np.int64((counts.sum() + np.uint64(LANES)) << _3))
                row += LANES
                continue
            alone = row + LANES
        start, end = starts[row], ends[row]
        if not within(start, end, buffer.shape[0]):
            break
        digests[row, 0], digests[row, 1] = hashed(secret, buffer, np.uint64(start), np.uint64(end))
        if not is_encoded and needs_tag(buffer, start, end):
            _tag(secret, buffer, starts, ends, digests, row, row + 1)
        taken += end - start
        row += 1
    return row


@inlined
def _laid_out(
    buffer: Bytes, starts: Integers, ends: Integers, row: int, words: Words, counts: Words
) -> bool:
    """Write the words of LANES keys from `row` on as `hash_lanes` takes them.

    Return False if one of the keys does not lie in the buffer, or has too many words.
    """
    for lane in range(LANES):
        start, end = starts[row + lane], ends[row + lane]
        size = np.uint64(end - start)
        if not within(start, end, buffer.shape[0]) or size >> _3 >= np.uint64(WORDS_MAX):
            return False
        counts[lane], to = size >> _3, lane
        for at in range(start, end - 7, 8):
            words[to] = word(buffer, np.uint64(at))
            to += LANES
        words[to] = size << _56 | last(buffer, np.uint64(end), size & _7)
    return True


@inlined
def _some_needs_tag(words: Words) -> bool:
    """Return whether a key that was laid out begins as a tag. Of an empty one, the only word is 0."""
    some = False
    for lane in range(LANES):
        some |= np.uint8(words[lane]) == TAG
    return some


@kernel
def _tag(
    secret: Secret,
    buffer: Bytes,
    starts: Integers,
    ends: Integers,
    digests: Digests,
    first: int,
    after: int,
) -> None:
    """Write the digests of the keys that need a tag, in the rows from `first` on, before `after`."""
    for row in range(first, after):
        if needs_tag(buffer, starts[row], ends[row]):
            key = with_tag(buffer, starts[row], ends[row])
            digests[row, 0], digests[row, 1] = hashed(secret, key, _0, np.uint64(len(key)))


@kernel
def signed(secret: Secret, key: bytes) -> tuple[int, int]:
    """Return the digest of one key as two signed integers."""
    a, b = hashed(secret, key, _0, np.uint64(len(key)))
    return int(np.int64(a)), int(np.int64(b))


@inlined
def hashed(
    secret: Secret, buffer: Readable, start: np.uint64, end: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Return the digest, under `secret`, of the key that lies in `buffer` from `start` to `end`."""
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


@inlined
def _taken_in(a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64, word: np.uint64) -> State:
    a, b, c, d = _round(a, b, c, d ^ word)
    a, b, c, d = _round(a, b, c, d)
    return a ^ word, b, c, d


@inlined
def _four_rounds(a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64) -> State:
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    return a, b, c, d


@inlined
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
