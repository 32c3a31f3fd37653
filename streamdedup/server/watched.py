"""What the pages are made of. All of it is read by other threads while the loop changes it, and without a lock.

That is safe because only numbers and values that are replaced as a whole are looked at, and dictionaries are copied
before they are gone through, which no other thread can come into the middle of. Two numbers may be of two moments,
where one page shows both; what must fit together is one value (`meters.Ledger`).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from streamdedup.delivery import Delivery
from streamdedup.meters import Meters


class Phase(StrEnum):
    """Where a worker stands in its life."""

    CONNECTING = "connecting"
    JOINING = "joining"
    SERVING = "serving"
    DRAINING = "draining"


class Watched(Protocol):
    """A worker, as its pages see it."""

    @property
    def phase(self) -> Phase:
        """Where it stands in its life."""

    @property
    def topic(self) -> str:
        """The input."""

    @property
    def assigned(self) -> frozenset[int] | None:
        """The partitions that it serves; None while the group settles who gets which."""

    @property
    def deliveries(self) -> Mapping[int, Delivery]:
        """What is known of every partition that is, or was last, its own."""

    @property
    def meters(self) -> Meters:
        """What was counted."""

    @property
    def broker_away_s(self) -> float:
        """For how many seconds something has waited for a broker that is away."""
