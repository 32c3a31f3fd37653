"""What of a key stands on a list, and who can tell: the part of the rules that a list has to know."""

from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from streamdedup.events import Column
from streamdedup.keys.hashing import Digests

Matches = npt.NDArray[np.uint8]


class Match(IntEnum):
    """What of a key stands on a list: one uint8."""

    NONE = 0
    ADDRESS = 1  # the whole key
    DOMAIN = 2  # the domain of an address, or one above it


class Matcher(Protocol):
    """A list of keys, in one version. It may match a key wrongly, and never misses one that is on it."""

    @property
    def name(self) -> str:
        """What people call it; it stands in headers, logs and metrics."""

    @property
    def version(self) -> str:
        """Another one wherever the entries may be others."""

    def match(self, keys: Column, digests: Digests) -> Matches:
        """A `Match` for each key, shape (n,), dtype uint8. `digests` (n, 2) are of `keys`, of which none is null."""
