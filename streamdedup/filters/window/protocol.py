"""What a filter with a window can do beside what all filters do."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from streamdedup.filters.base import Addable, Key, Mask, Times
from streamdedup.keys.hashing import Digests

if TYPE_CHECKING:  # they bring numba
    from streamdedup.filters.window.clock import Clock
    from streamdedup.filters.window.verdicts import PendingRows, WindowVerdicts


@runtime_checkable
class Windowed(Addable, Protocol):
    """A filter that forgets, by generations, the keys that are older than its window.

    Age follows from the times of the keys, or from the number of keys added. A caller that adds keys at once uses `add`
    and `add_many`. A caller that decides first, and adds later what was committed, uses `judge`, then `rotate`, then
    `put_many`. To rebuild the filter from a log of what was added, use `folded` in place of `judge`: it leads to the
    same state.
    """

    @property
    def clock(self) -> "Clock":
        """The width and the number of generations, and how far one key may move the watermark."""

    @property
    def watermark(self) -> int | None:
        """The greatest time of the keys that were added, or None before the first. The window reaches back from it."""

    @property
    def refresh(self) -> bool:
        """Whether a key that is found is renewed."""

    def set_policy(self, late: str, refresh: bool) -> None:
        """Set another treatment of late keys ("pass" or "drop") and of keys that are found, from now on."""

    def fits(self, generations: npt.NDArray[np.int64]) -> bool:
        """Whether `error_rate` still holds if each of these generations gets one more key."""

    def room(self) -> int:
        """How many more keys the current generation can take within `error_rate`; below 0 if it has too many."""

    def fullest(self) -> tuple[int, int, int]:
        """The live generation with the most keys: its number, its keys, and how many keys it could hold alone."""

    @override
    def add(self, key: Key, time: int | None = None) -> bool:
        """Add one key at its event time in ms since 1970; return True if it was absent.

        A window by count takes no `time`.
        """

    @override
    def add_many(self, digests: Digests, times: Times | None = None) -> Mask:
        """Add all of `digests` in order, each at its event time in ms since 1970.

        Returns True, shape (n,), for each that was absent. A window by count takes no `times`.
        """

    def generations_many(self, digests: Digests) -> npt.NDArray[np.unsignedinteger[Any]]:
        """The live generations that hold each digest, shape (n,), as bits: generation g is bit g % G."""

    def judge(
        self, digests: Digests, times: Times | None, pending: "PendingRows"
    ) -> "WindowVerdicts":
        """What `add_many` would do if `pending` were in the filter. Nothing is added."""

    def folded(self, times: Times | int) -> tuple[npt.NDArray[np.int64], int | None]:
        """The generations of keys with these `times` if every key is added, and the watermark after them.

        By count, `times` is the number of keys.
        """

    def rotate(self, watermark: int | None) -> Iterator[None]:
        """Advance the watermark at once, then clear the generations that leave the window, one piece a step."""

    def put_many(self, digests: Digests, generations: npt.NDArray[np.int64]) -> None:
        """Add each digest to its generation. Generations that are no longer live are skipped.

        Raises ValueError if a generation is above the current one.
        """
