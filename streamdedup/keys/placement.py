"""Placement: the partition of a topic in which the events of a key lie, by Kafka's own rule for record keys.

That is `murmur2(key) & 0x7fffffff` modulo the number of partitions, with the murmur2 of Kafka's clients: MurmurHash2 of
32 bits (A. Appleby 2008) with a seed of theirs. The default partitioners of all Java clients place a key there, too.
"""

import numpy as np

from streamdedup.events import Column, Integers
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.cells import pass_over
from streamdedup.keys.words import BYTES_A_CALL, Bytes

NOWHERE = -1  # the partition of a null key

_SEED, _M = np.uint64(0x9747B28C), np.uint64(0x5BD1E995)
_LOW, _POSITIVE = np.uint64(0xFFFFFFFF), np.uint64(0x7FFFFFFF)
_0, _1, _2, _3, _4, _8, _13, _15, _16, _24 = (
    np.uint64(n) for n in (0, 1, 2, 3, 4, 8, 13, 15, 16, 24)
)


def partitions_of(keys: Column, partitions: int) -> Integers:
    """Return the partition, of `partitions` (at least 1), in which each key belongs, (n,); NOWHERE for a null key.

    ValueError if a key does not lie within the column's buffer.
    """
    placed = np.empty(len(keys), dtype=np.int64)
    pass_over(keys, _fill, placed, whole=(partitions,))
    return placed


def partitions_by_records(keys: Column, input_partition: int, partitions: int) -> Integers:
    """Return the partition for each event without a judged key, (n,), by its record key in `keys`.

    An event without a record key goes where its partition of the input leads, so those of one partition stay together.
    """
    placed = partitions_of(keys, partitions)
    placed[placed == NOWHERE] = input_partition % partitions
    return placed


def warm_up() -> None:
    """Compile the kernels, or load them from the cache."""
    partitions_of(Column.of([b"warm up", None]), 1)


@kernel
def _fill(
    buffer: Bytes, starts: Integers, sizes: Integers, partitions: int, placed: Integers
) -> int:
    """Write the partition of each key to `placed` (n,); return how many rows are done.

    The kernel stops before a row that does not lie in the buffer, and once it has read `BYTES_A_CALL` bytes. It reads
    the first row whatever its size.
    """
    taken, modulus = 0, np.uint64(partitions)
    for row in range(starts.shape[0]):
        start, size = starts[row], sizes[row]
        placed[row] = NOWHERE
        if size < 0:
            continue
        if taken > BYTES_A_CALL or not 0 <= start <= buffer.shape[0] - size:
            return row
        hashed = _murmur2(buffer, np.uint64(start), np.uint64(size))
        placed[row] = np.int64((hashed & _POSITIVE) % modulus)
        taken += size
    return len(starts)


@inlined
def _murmur2(buffer: Bytes, at: np.uint64, size: np.uint64) -> np.uint64:
    """Return the hash as an unsigned number of 32 bits."""
    value, blocks_end = _SEED ^ (size & _LOW), at + (size & ~_3)
    while at < blocks_end:
        block = (
            np.uint64(buffer[at])
            | np.uint64(buffer[at + _1]) << _8
            | np.uint64(buffer[at + _2]) << _16
            | np.uint64(buffer[at + _3]) << _24
        )
        block = block * _M & _LOW
        block = (block ^ block >> _24) * _M
        value = (value * _M ^ block) & _LOW
        at += _4
    rest = size & _3
    if rest == _3:
        value ^= np.uint64(buffer[at + _2]) << _16
    if rest >= _2:
        value ^= np.uint64(buffer[at + _1]) << _8
    if rest >= _1:
        value = (value ^ np.uint64(buffer[at])) * _M & _LOW
    value = (value ^ value >> _13) * _M & _LOW
    return value ^ value >> _15
