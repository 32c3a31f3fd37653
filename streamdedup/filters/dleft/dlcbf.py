"""d-left counting Bloom filter: 4/3 (2 + log2(24/p)) bits a key, half of what `counting` takes (Bonomi et al. 2006).

It is a d-left table with a 2-bit counter in each cell, so a key that a multiset gets again takes no further cell.
A counter that reaches 3 stays at 3: such a key can never be removed.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from typing_extensions import override

from streamdedup.errors import ConfigError
from streamdedup.filters.digest_filter import number
from streamdedup.filters.dleft import kinds
from streamdedup.filters.dleft.dleft import DLeft
from streamdedup.filters.dleft.shape import Shape, shape_for
from streamdedup.keys.hashing import MURMUR3, Hash

PERMUTATIONS = ("any", "published")


class DLCBF(DLeft):
    """A d-left counting Bloom filter for `capacity` keys, with at most `error_rate` false positives at capacity.

    `permutations` is `any`, for any number of buckets, or `published`, for the paper's permutations, which
    round the number of buckets up to a power of two.
    """

    kind = "dlcbf"
    copies_max: ClassVar[int] = (1 << kinds.COUNTER_BITS) - 1
    sticky: ClassVar[bool] = True

    def __init__(
        self,
        capacity: int,
        error_rate: float = 1e-6,
        *,
        permutations: str = "any",
        multiset: bool = False,
        hash_: Hash = MURMUR3,
    ) -> None:
        self._permutations = permutations
        super().__init__(capacity, error_rate, multiset=multiset, hash_=hash_)

    @override
    def _shape(self) -> Shape:
        if self._permutations not in PERMUTATIONS:
            raise ConfigError(
                f"filter.permutations {self._permutations!r} is unknown; choose one of: {', '.join(PERMUTATIONS)}"
            )
        sizes = self._capacity, self._error_rate
        kinds.DLCBF.check(*sizes, permutations=self._permutations)
        return shape_for(*sizes, kinds.COUNTER_BITS, self._permutations)

    @override
    def header(self) -> dict[str, Any]:
        return {**super().header(), "permutations": self._permutations}

    @override
    def _options_of(self, header: Mapping[str, Any]) -> None:
        self._permutations = header.get("permutations", "")
        if self._permutations not in PERMUTATIONS:
            raise ValueError(f"permutations {self._permutations!r} are unknown")

    @override
    def _keys_of(self, header: Mapping[str, Any], cells: int) -> int:
        return number(header, "keys", cells, cells)
