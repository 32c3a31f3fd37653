"""What a filter with a window can do beside what all filters do."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from streamdedup.filters.base import Addable, Key, Mask, Times
from streamdedup.keys.hashing import Digests

if TYPE_CHECKING:  # they bring numba
    from streamdedup.filters.window.clock import Clock
    from streamdedup.filters.window.judging import Judged, Pending


@runtime_checkable
class Windowed(Addable, Protocol):
    """Forgets by generations what is older than its window, as told by the times of the keys, or by their number.

    Who adds at once uses `add` and `add_many`. Who decides first, and adds what was meanwhile committed, uses `judge`,
    then `rotate`, then `put_many`; from a log of what was added, `folded` in place of `judge` leads to the same state.
    """

    @property
    def clock(self) -> "Clock":
        """The width and number of generations, and how far one key moves the watermark."""

    @property
    def watermark(self) -> int | None:
        """The greatest time of the keys that were added, from which the window reaches back; None before the first."""

    @property
    def refresh(self) -> bool:
        """Whether a key that is found is renewed."""

    def set_policy(self, late: str, refresh: bool) -> None:
        """Another treatment of late keys ("pass" or "drop") and of keys that are found, from now on."""

    def fits(self, generations: npt.NDArray[np.int64]) -> bool:
        """Whether `error_rate` is kept if each of these generations gets a key more."""

    def room(self) -> int:
        """How many keys the current generation can take within `error_rate`; below 0 beyond it."""

    def fullest(self) -> tuple[int, int, int]:
        """The live generation of the most keys, as its number, its keys, and how many one alone can hold."""

    def add(self, key: Key, time: int | None = None) -> bool:
        """Add one key at its event time in ms since 1970, by count without; True where it was not there."""

    def add_many(self, digests: Digests, times: Times | None = None) -> Mask:
        """Add all in order, each at its event time in ms since 1970, by count without; True, shape (n,), where new."""

    def generations_many(self, digests: Digests) -> npt.NDArray[np.unsignedinteger[Any]]:
        """The live generations, shape (n,), that have each digest: generation g is bit g % G."""

    def judge(self, digests: Digests, times: Times | None, pending: "Pending") -> "Judged":
        """What `add_many` would do if `pending` was in; nothing is added."""

    def folded(self, times: Times | int) -> tuple[npt.NDArray[np.int64], int | None]:
        """The generations of keys of these times, by count of so many keys, if each is added; the watermark then."""

    def rotate(self, watermark: int | None) -> Iterator[None]:
        """Advance the watermark at once, and clear what falls out piece by piece, a step each."""

    def put_many(self, digests: Digests, generations: npt.NDArray[np.int64]) -> None:
        """Set each digest in its generation, unless that is not live any more; ValueError where it is to come."""
