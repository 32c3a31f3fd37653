"""What every filter can do. A filter is a set of digests that may say "present" wrongly, never "absent" wrongly.

Filters do no I/O, read no clock and hold no locks.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from streamdedup.keys.hashing import Digests

Mask = npt.NDArray[np.bool_]


class Filter(Protocol):
    """A set of digests of shape (n, 2), dtype uint64."""

    kind: str

    @property
    def capacity(self) -> int:
        """The number of keys up to which `error_rate` holds."""

    @property
    def error_rate(self) -> float:
        """The probability that a key which was never added is reported present, at capacity."""

    @property
    def error_rate_now(self) -> float:
        """The same at the present fill."""

    @property
    def fill_ratio(self) -> float:
        """The share of the memory that is in use, 0 to 1."""

    @property
    def size_bytes(self) -> int:
        """The memory of the table, in bytes."""

    def __len__(self) -> int:
        """The number of additions that were new."""

    def expected_error(self, keys: int) -> float:
        """The error rate that theory gives for this table with `keys` keys in it."""

    def add_many(self, digests: Digests) -> Mask:
        """Add all; True, shape (n,), where it was not there. Equal digests see one another in order."""

    def contains_many(self, digests: Digests) -> Mask:
        """True, shape (n,), where present."""

    def header(self) -> dict[str, Any]:
        """All but the table, as plain JSON values."""

    def buffers(self) -> list[memoryview]:
        """The live table, as contiguous bytes."""

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], buffers: Sequence[memoryview]) -> Self:
        """A copy of the filter that gave these parts. Raises ValueError where they do not fit together."""
