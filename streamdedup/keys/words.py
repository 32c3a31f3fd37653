"""Little-endian words of a key, at any address of a buffer, for the hashes. Only bytes of the buffer are read.

A key that begins as one with a tag gets a tag of its own, as `keys.encoding` states.
"""

import numpy as np
import numpy.typing as npt

from streamdedup.kernel import inlined, kernel
from streamdedup.keys.encoding import OF_BYTES, TAG_BYTES

Bytes = npt.NDArray[np.uint8]
Readable = Bytes | bytes  # a single key is passed to a kernel as it is

BYTES_A_CALL = 1 << 22  # bytes in one call of a kernel: below 5 ms with the slower hash

TAG, LETTER_OF_BYTES = (np.uint8(byte) for byte in OF_BYTES)

_0, _1, _2, _3, _4, _5, _6, _7, _8 = (np.uint64(number) for number in range(9))
_16, _24, _32, _40, _48, _56, _64 = (np.uint64(number) for number in range(16, 65, 8))


@inlined
def word(buffer: Readable, at: np.uint64) -> np.uint64:
    """Return the eight bytes from `at` on. The compiler makes one load of them."""
    return (
        np.uint64(buffer[at])
        | np.uint64(buffer[at + _1]) << _8
        | np.uint64(buffer[at + _2]) << _16
        | np.uint64(buffer[at + _3]) << _24
        | np.uint64(buffer[at + _4]) << _32
        | np.uint64(buffer[at + _5]) << _40
        | np.uint64(buffer[at + _6]) << _48
        | np.uint64(buffer[at + _7]) << _56
    )


@inlined
def last(buffer: Readable, end: np.uint64, count: np.uint64) -> np.uint64:
    """Return the `count` bytes, 0 to 8, before `end`, with zeros above them.

    If the buffer has eight bytes before `end`, they are read at once, and the bytes that precede the key
    are shifted out.
    """
    if count == _0:
        return _0
    if end >= _8:
        return word(buffer, end - _8) >> (_64 - (count << _3))
    found, at = _0, end
    while at > end - count:
        at -= _1
        found = found << _8 | np.uint64(buffer[at])
    return found


@inlined
def rotated(value: np.uint64, by: np.uint64) -> np.uint64:
    """Return `value` with its bits rotated up by `by`, 1 to 63."""
    return value << by | value >> (_64 - by)


@inlined
def holds(buffer: Bytes, start: int, size: int) -> bool:
    """Return whether a cell from `start` on, of `size` bytes, is no null, and lies in the buffer.

    It is asked without start + size, which may overflow.
    """
    return size >= 0 and 0 <= start <= buffer.shape[0] - size


@inlined
def within(start: int, end: int, size: int) -> bool:
    """Return whether a key from `start` to `end` lies in a buffer of `size` bytes."""
    return 0 <= start <= end <= size


@inlined
def needs_tag(buffer: Bytes, start: int, end: int) -> bool:
    """Return whether a key that lies in the buffer begins as a tag, so that it gets one unless it is encoded."""
    return start < end and buffer[np.uint64(start)] == TAG


@kernel
def with_tag(buffer: Bytes, start: int, end: int) -> Bytes:
    """Return the key that lies in `buffer` from `start` to `end`, after the tag of bytes that begin as a tag."""
    key = np.empty(TAG_BYTES + end - start, np.uint8)
    key[0], key[1] = TAG, LETTER_OF_BYTES
    key[TAG_BYTES:] = buffer[start:end]
    return key
