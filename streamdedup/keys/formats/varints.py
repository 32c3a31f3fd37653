"""Integers of a variable number of bytes, seven bits in each, the lowest first, as Avro and Protobuf write them.

A position is NOWHERE if the bytes end before, or are wrong; every function accepts it, and reads no byte then.
"""

import numpy as np

from streamdedup.kernel import inlined
from streamdedup.keys.formats.json_text import NOWHERE as _NOWHERE
from streamdedup.keys.words import Bytes

NOWHERE = _NOWHERE
BITS_MAX = np.uint64(63)  # below the last bit of 64, which the tenth byte has

_0, _1, _7, _127, _128 = (np.uint64(number) for number in (0, 1, 7, 127, 128))


@inlined
def varint(buffer: Bytes, at: np.uint64, end: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the position after the integer at `at`, and its 64 bits; NOWHERE and 0 if there is none."""
    found, shift = _0, _0
    while at < end:
        part = np.uint64(buffer[at])
        at += _1
        found |= (part & _127) << shift
        if part < _128:
            if shift == BITS_MAX and part > _1:
                break
            return at, found
        shift += _7
        if shift > BITS_MAX:
            break
    return NOWHERE, _0


@inlined
def unzigzagged(raw: np.uint64) -> np.int64:
    """Return the signed integer that `raw` stands for: 0, -1, 1, -2, ..."""
    return np.int64(raw >> _1) ^ -np.int64(raw & _1)


@inlined
def past(at: np.uint64, end: np.uint64, count: np.int64) -> np.uint64:
    """Return the position `count` bytes after `at`; NOWHERE if that is beyond `end`, or the count is negative."""
    if at > end or count < 0 or np.uint64(count) > end - at:
        return NOWHERE
    return at + np.uint64(count)
