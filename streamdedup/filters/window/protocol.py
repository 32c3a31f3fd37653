"""What a filter with a window can do beside what all filters do."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from streamdedup.filters.base import Addable, Key, Mask, Times
from streamdedup.filters.memory import Counts
from streamdedup.keys.hashing import Digests

if TYPE_CHECKING:
    from streamdedup.filters.window.clock import Clock, Marks


@runtime_checkable
class Windowed(Addable, Protocol):
    """A filter that forgets, by generations, the keys that are older than its window.

    Age follows from the times of the keys, or from the number of keys added. A caller that adds keys at once uses `add`
    and `add_many`. A caller that decides first, and adds later what was committed, asks `generations_many`, then uses
    `put_many`, `date` and `rotate`. To rebuild the filter from a log of what was added, `clock.followed` gives the
    generations: that leads to the same state.
    """

    @property
    def clock(self) -> "Clock":
        """The width and the number of generations, and how far one key may move the watermark."""

    @property
    def watermark(self) -> int | None:
        """The greatest time of the keys that were added, or None before the first. The window reaches back from it."""

    @property
    def late(self) -> str:
        """What happens to a key that is older than the window: "pass" or "drop"."""

    @property
    def refresh(self) -> bool:
        """Whether a key that is found is renewed."""

    @property
    def marks(self) -> "Marks":
        """The watermark, and the time that an untimed key has."""

    def set_untimed(self, time: int | None) -> None:
        """Set the time of untimed keys, which is not after the watermark; None if no timed event came since a gap."""

    @property
    def undated(self) -> int:
        """How many keys wait for the time of a first timed event."""

    def set_policy(self, late: str, refresh: bool) -> None:
        """Set another treatment of late keys ("pass" or "drop") and of keys that are found, from now on."""

    def room(self) -> int:
        """How many more keys can be live within `error_rate`; below 0 if there are too many."""

    def loads(self) -> tuple[int, Counts, int]:
        """The current generation; the keys of each live one, shape (G,), int64, the oldest first; the most in all."""

    @override
    def add(self, key: Key, /, time: int | None = None) -> bool:
        """Add one key at its event time in ms since 1970; return True if it was absent.

        A window by count takes no `time`.
        """

    @override
    def add_many(self, digests: Digests, /, times: Times | None = None) -> Mask:
        """Add all of `digests` in order, each at its event time in ms since 1970.

        Returns True, shape (n,), for each that was absent. A window by count takes no `times`.
        """

    def generations_many(self, digests: Digests, /) -> npt.NDArray[np.int64]:
        """The live generation that holds each digest, shape (n,).

        `clock.NEVER` for one that is absent, `clock.UNDATED` for one that waits for a first time.
        """

    def folded(self, times: Times | int) -> tuple[npt.NDArray[np.int64], int | None]:
        """The generations of keys with these `times` if every key is added, and the watermark after them.

        By count, `times` is the number of keys.
        """

    def put_many(self, digests: Digests, /, generations: npt.NDArray[np.int64]) -> Iterator[None]:
        """Add each digest to its generation, in order, in steps. Generations that are no longer live are skipped.

        A generation above the current one moves the window on. The watermark stays until `rotate`. If the generations
        are `clock.UNDATED`, all of them are; then only such keys may be put until `date`.
        """

    def date(self, generation: int) -> Iterator[None]:
        """Move all undated keys to `generation`, in steps like `put_many`."""

    def rotate(self, watermark: int | None) -> Iterator[None]:
        """Advance the watermark, and the window with it, in steps like `put_many`."""
