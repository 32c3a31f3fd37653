"""Digests: 128 bits a key, two little-endian uint64, from MurmurHash3 x64 128 with seed 0.

A filter lives as long as its hash stays the same, so the hash carries a check value that snapshots store. The seed is
no secret: whoever chooses the keys can make them collide.
"""

from collections.abc import Sequence

import mmh3
import numpy as np
import numpy.typing as npt

Digests = npt.NDArray[np.uint64]

HASH_ID = "murmur3_x64_128/0"
HASH_CHECK = mmh3.mmh3_x64_128_digest(b"streamdedup").hex()


def digests(keys: Sequence[bytes]) -> Digests:
    """The digests of `keys`, shape (n, 2), dtype uint64."""
    joined = bytearray(b"".join(map(mmh3.mmh3_x64_128_digest, keys)))
    return np.frombuffer(joined, dtype="<u8").reshape(-1, 2)


def checked(array: Digests) -> Digests:
    """`array`, contiguous; TypeError where it holds no digests.

    A kernel would compile for any other type or shape, too, and miss the keys that are there.
    """
    if array.dtype != np.uint64 or array.shape[1:] != (2,):
        raise TypeError(f"digests are uint64, shape (n, 2), not {array.dtype}, shape {array.shape}")
    return np.ascontiguousarray(array)
