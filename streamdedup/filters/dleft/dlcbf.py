"""d-left counting Bloom filter: 4/3 (2 + log2(24/p)) bits a key, half of `counting` (Bonomi et al. 2006).

A d-left table with a counter of two bits in each cell, so a key that is added again takes no other cell. A counter
that has reached 3 stays there: such a key is never forgotten.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from streamdedup.errors import ConfigError
from streamdedup.filters.dleft.dleft import DLeft
from streamdedup.filters.dleft.shape import Shape, shape_for
from streamdedup.filters.keyed import number
from streamdedup.keys.hashing import MURMUR3, Hash

PERMUTATIONS = ("any", "published")
COUNTER_BITS = 2
FINGERPRINT_BITS_MAX = 64  # of what is multiplied modulo its size


class DLCBF(DLeft):
    """A d-left counting Bloom filter for `capacity` keys, at most `error_rate` false positives when that many are in.

    `permutations`: `any` takes any number of buckets; `published`, those of the paper, rounds it up to a power of two.
    """

    kind = "dlcbf"
    copies_max: ClassVar[int] = (1 << COUNTER_BITS) - 1
    sticky: ClassVar[bool] = True

    def __init__(
        self,
        capacity: int,
        error_rate: float = 1e-6,
        *,
        permutations: str = "any",
        hash_: Hash = MURMUR3,
    ) -> None:
        self._permutations = permutations
        super().__init__(capacity, error_rate, hash_=hash_)

    def _shape(self) -> Shape:
        if self._permutations not in PERMUTATIONS:
            raise ConfigError(
                f"filter.permutations {self._permutations!r} is unknown; choose one of: {', '.join(PERMUTATIONS)}"
            )
        return shape_for(self._capacity, self._error_rate, COUNTER_BITS, self._permutations)

    def _fitting(self, shape: Shape) -> Shape:
        bits = shape.fingerprint_bits
        if shape.permutations == "published" and bits > FINGERPRINT_BITS_MAX:
            raise ConfigError(
                f"filter.permutations published: a fingerprint of {bits} bits, of at most {FINGERPRINT_BITS_MAX};"
                ' choose "any"'
            )
        return super()._fitting(shape)

    def header(self) -> dict[str, Any]:
        """Kind, parameters, sizes and the number of fingerprints."""
        return {**super().header(), "permutations": self._permutations}

    def _options_of(self, header: Mapping[str, Any]) -> None:
        self._permutations = header.get("permutations", "")
        if self._permutations not in PERMUTATIONS:
            raise ValueError(f"permutations {self._permutations!r} are unknown")

    def _keys_of(self, header: Mapping[str, Any], cells: int) -> int:
        return number(header, "keys", cells, cells)
