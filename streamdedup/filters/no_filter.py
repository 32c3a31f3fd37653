"""The filter of a worker that only screens: it holds nothing, and keeps nothing that is added."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from streamdedup.filters.base import Key, Mask
from streamdedup.keys.hashing import Digests, Hash


class NoFilter:
    """A set that stays empty. It has all methods of `Addable`, but only its `hash` is of use."""

    kind: ClassVar[str] = "none"
    only_sets_bits = True
    strained = overfull = False
    layout = capacity = size_bytes = 0
    error_rate = error_rate_now = fill_ratio = 0.0

    def __init__(self, hash_: Hash) -> None:
        self.hash = hash_

    def __len__(self) -> int:
        return 0

    def __contains__(self, key: Key, /) -> bool:
        return False

    def expected_error(self, _keys: int) -> float:
        """0, for any number of keys."""
        return 0.0

    def digests(self, keys: Any) -> Digests:  # noqa: ANN401 - see `Hash.digests`
        """The digests of `keys`, as `Hash.digests` makes them."""
        return self.hash.digests(keys)

    def contains_many(self, digests: Digests) -> Mask:
        """False for each digest, shape (n,)."""
        return np.zeros(len(digests), dtype=np.bool_)

    def add(self, _key: Key, /) -> bool:
        """True: the key was absent. It is not kept."""
        return True

    def add_many(self, digests: Digests) -> Mask:
        """True for each digest, shape (n,). None is kept."""
        return np.ones(len(digests), dtype=np.bool_)

    def header(self) -> dict[str, Any]:
        """The kind, and the name and check value of the hash."""
        return {"kind": self.kind, "hash": self.hash.name, "hash_check": self.hash.check}

    def buffers(self) -> list[memoryview]:
        """No buffers, since there is no table."""
        return []

    @classmethod
    def from_parts(
        cls, _header: Mapping[str, Any], _buffers: Sequence[memoryview], hash_: Hash
    ) -> Self:
        """An empty set with this hash. The header and the buffers hold nothing else."""
        return cls(hash_)
