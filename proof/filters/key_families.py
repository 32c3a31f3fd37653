"""Three families of keys that tell hashes apart: without structure, sequential, and of one suffix."""

from collections.abc import Callable, Mapping
from functools import cache
from hashlib import blake2b

import numpy as np

from streamdedup.keys.hashing import Digests, Hash

PIECE = 1 << 17


def _random(number: int) -> str:
    return blake2b(b"%d" % number, digest_size=12).hexdigest()


FAMILIES: Mapping[str, Callable[[int], str]] = {  # the key of each number
    "random": _random,
    "sequential": lambda number: f"{1_000_000 + number}",
    "suffix": lambda number: f"user{number}@example.com",
}


def keys_of(family: str, count: int, start: int = 0) -> list[str]:
    """So many keys of a family, no two of them equal."""
    return list(map(FAMILIES[family], range(start, start + count)))


@cache
def digests_of(family: str, hash_: Hash, count: int) -> Digests:
    """The digests, shape (count, 2), of so many keys of a family; read-only, and made once in a session."""
    pieces = (keys_of(family, min(PIECE, count - at), at) for at in range(0, count, PIECE))
    made = np.concatenate([hash_.digests(piece) for piece in pieces])
    made.flags.writeable = False
    return made
