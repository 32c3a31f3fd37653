"""The filter of a worker that only screens: it holds nothing, and keeps nothing of what is added."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from streamdedup.filters.base import Key, Mask
from streamdedup.keys.hashing import Digests, Hash


class Nothing:
    """An empty set, for good; as `Addable` says. Only its `hash` is of use."""

    kind: ClassVar[str] = "none"
    only_sets_bits = True
    layout = capacity = size_bytes = 0
    error_rate = error_rate_now = fill_ratio = 0.0

    def __init__(self, hash_: Hash) -> None:
        self.hash = hash_

    def __len__(self) -> int:
        return 0

    def __contains__(self, key: Key) -> bool:
        return False

    def expected_error(self, _keys: int) -> float:
        """As `Filter.expected_error`."""
        return 0.0

    def digests(self, keys: Any) -> Digests:  # noqa: ANN401 - as `Filter.digests`
        """As `Filter.digests`."""
        return self.hash.digests(keys)

    def contains_many(self, digests: Digests) -> Mask:
        """As `Filter.contains_many`."""
        return np.zeros(len(digests), dtype=np.bool_)

    def add(self, _key: Key) -> bool:
        """As `Addable.add`."""
        return True

    def add_many(self, digests: Digests) -> Mask:
        """As `Addable.add_many`."""
        return np.ones(len(digests), dtype=np.bool_)

    def header(self) -> dict[str, Any]:
        """As `Filter.header`."""
        return {"kind": self.kind, "hash": self.hash.name, "hash_check": self.hash.check}

    def buffers(self) -> list[memoryview]:
        """As `Filter.buffers`."""
        return []

    @classmethod
    def from_parts(
        cls, _header: Mapping[str, Any], _buffers: Sequence[memoryview], hash_: Hash
    ) -> Self:
        """As `Filter.from_parts`."""
        return cls(hash_)
