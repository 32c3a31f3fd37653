"""What every window does in time, over a table that `Window` or a window that grows has made."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from typing_extensions import override

from streamdedup.filters.base import Key, Mask, Times
from streamdedup.filters.digest_filter import CAPACITY_MAX, DigestFilter
from streamdedup.filters.memory import Counts
from streamdedup.filters.window.clock import (
    NEVER,
    UNDATED,
    Clock,
    Generations,
    Marks,
    checked_time,
    clipped,
    followed,
    given_times,
)
from streamdedup.filters.window.rules import Rules
from streamdedup.keys.hashing import Digests, checked


class TableInTime(Protocol):
    """The keys of a window, with their generations. `WindowTable` documents the contracts."""

    rules: Rules
    clock: Clock

    @property
    def waits(self) -> bool:
        """Whether the current generation is that of undated keys."""

    def obey(self, rules: Rules) -> None:
        """Apply `rules`, which have the same clock, from now on."""

    @property
    def watermark(self) -> int | None:
        """The greatest time of the keys that were added; None before the first."""

    @property
    def current(self) -> int:
        """The newest live generation; while the table `waits`, that of the undated keys."""

    @property
    def oldest(self) -> int | None:
        """The oldest live generation at the watermark; None before the first key."""

    @property
    def keys(self) -> int:
        """The keys in live generations."""

    @property
    def loads(self) -> Counts:
        """The keys of each live generation, shape (G,), the oldest first; without the undated keys."""

    @property
    def undated(self) -> int:
        """How many keys are undated."""

    @property
    def strained(self) -> bool:
        """Whether keys have taken so long that more of them are soon refused."""

    @property
    def overfull(self) -> bool:
        """Whether further keys take ever more memory, and time to move."""

    def add(self, digests: Digests, moments: Times) -> Mask:
        """Add digests at `moments`, and return which were absent."""

    def add_one(self, a: int, b: int, moment: int) -> bool:
        """Add one digest, given as signed integers."""

    def find(self, digests: Digests) -> Generations:
        """The live generation of each digest, or NEVER."""

    def contains_one(self, a: int, b: int) -> bool:
        """Whether one digest is present."""

    def put(self, digests: Digests, generations: Generations) -> Iterator[None]:
        """Add digests to their generations, in steps."""

    def date(self, generation: int) -> Iterator[None]:
        """Move the undated keys to a generation, in steps."""

    def rotate(self, watermark: int | None) -> Iterator[None]:
        """Advance the watermark, in steps."""


class InTime(DigestFilter):
    """The methods of a window that only its table and its capacity decide."""

    _table: TableInTime
    # The time of untimed keys. After a gap it is not the watermark, until a later event than those before the gap came.
    _since_gap: int | None = None
    _has_gap = False

    @property
    def clock(self) -> Clock:
        """The width and the number of generations, and how far one key may move the watermark."""
        return self._table.clock

    @property
    def retention(self) -> int | None:
        """For how long a key is certainly remembered, in ms; None by count."""
        return self._table.rules.retention

    @property
    def late(self) -> str:
        """What happens to a key that is older than the window: "pass" or "drop"."""
        return self._table.rules.late

    @property
    def refresh(self) -> bool:
        """Whether a key that is found is renewed."""
        return self._table.rules.refresh

    def set_policy(self, late: str, refresh: bool) -> None:
        """Set another `late` and `refresh`, from now on. Raises ConfigError if a value is unknown."""
        self._table.obey(self._table.rules.with_policy(late, refresh))

    @property
    def watermark(self) -> int | None:
        """The greatest time of the keys that were added, within `max_jump`; by count, their number minus one.

        None before the first key.
        """
        return self._table.watermark

    @property
    def marks(self) -> Marks:
        """The watermark, and the time of untimed keys, which differs from it only after a gap (see `clock`)."""
        watermark = self.watermark
        return Marks(watermark, self._since_gap if self._has_gap else watermark)

    def set_untimed(self, time: int | None) -> None:
        """Set the time of untimed keys, which is not after the watermark; None if no timed event came since a gap."""
        self._since_gap, self._has_gap = time, time != self.watermark

    @property
    def undated(self) -> int:
        """How many keys wait for the time of a first timed event. They count as live."""
        return self._table.undated

    def _time(self) -> dict[str, Any]:
        """The fields of a header that say what time it is: `untimed` only after a gap, `undated` only if keys are."""
        table = self._table
        return {
            "watermark": self.watermark,
            "oldest": table.oldest,
            **({"untimed": self._since_gap} if self._has_gap else {}),
            **({"undated": True} if table.waits else {}),
        }

    @property
    @override
    def strained(self) -> bool:
        return self._table.strained

    @property
    @override
    def overfull(self) -> bool:
        return self._table.overfull

    @override
    def __len__(self) -> int:
        """The keys in the live generations, each in the newest that holds it."""
        return self._table.keys

    def room(self) -> int:
        """How many more keys can be live within `error_rate`; below 0 if there are too many. CAPACITY_MAX by count."""
        return CAPACITY_MAX if self.clock.by_count else self.capacity - len(self)

    def loads(self) -> tuple[int, Counts, int]:
        """The current generation; the keys of each live one, shape (G,), int64, the oldest first; the most in all."""
        most = CAPACITY_MAX if self.clock.by_count else self.capacity
        return self._table.current - self._table.waits, self._table.loads, most

    @override
    def add(self, key: Key, /, time: int | None = None) -> bool:
        """Add one key at its `time` in ms since 1970; by count there is none.

        Returns True if the key was absent; if it is also late, only if `late` is "pass". Raises ConfigError if `time`
        does not fit, for example if it is beyond the year 9999.
        """
        a, b = self._hash.signed(key)
        return self._table.add_one(a, b, checked_time(self._table.clock, time))

    def add_many(self, digests: Digests, times: Times | None = None) -> Mask:
        """Add all of `digests` (n, 2), in order, at their `times` (n,), int64, ms since 1970; by count there are none.

        Returns True, shape (n,), for each that was absent; for a late one only if `late` is "pass". Raises ConfigError,
        and adds nothing, if `times` do not fit. Times beyond the year 9999 do not fit, because they cannot be ms.
        """
        digests = checked(digests)
        return self._table.add(digests, given_times(self.clock, times, len(digests)))

    def contains_many(self, digests: Digests) -> Mask:
        """Whether each of `digests` (n, 2) is present, shape (n,)."""
        present: Mask = self._table.find(digests) != NEVER
        return present

    def generations_many(self, digests: Digests) -> Generations:
        """The live generation that holds each of `digests` (n, 2), shape (n,), int64; NEVER for one that is absent.

        That of an undated key is UNDATED.
        """
        found = self._table.find(digests)
        if self._table.waits:
            found[found == self._table.current] = UNDATED
        return found

    def folded(self, times: Times | int) -> tuple[Generations, int | None]:
        """The generations (n,) of keys with these `times` if every key is added, and the watermark after them.

        By count, `times` is the number of keys. A late key gets a generation that `put_many` skips.
        """
        found = followed(self.clock, self.marks, times)
        return found.generations, found.marks.watermark

    def put_many(self, digests: Digests, generations: Generations) -> Iterator[None]:
        """Add `digests` (n, 2) to their `generations` (n,), int64, in order, in steps; between two others may work.

        A key that is present keeps the later generation. A generation above the current one becomes current: the window
        moves on to it at that row, and what leaves it is swept. Generations that are no longer live are skipped. The
        watermark stays until `rotate`. So the table depends on all that was put, in its order, and not on the batches;
        and to put the same again, from the same watermark on, changes nothing.

        If one of `generations` is UNDATED, all must be. From then on no other key may be put before `date`.
        """
        digests = checked(digests)
        if not isinstance(generations, np.ndarray) or generations.dtype != np.int64:
            raise TypeError(f"generations are int64, shape (n,), not {type(generations).__name__}")
        if generations.shape != (len(digests),):
            raise TypeError(f"{len(digests)} digests, but generations of shape {generations.shape}")
        return self._table.put(digests, generations)

    def date(self, generation: int) -> Iterator[None]:
        """Move all undated keys to `generation`, in steps like `put_many`. If it is not live, they are forgotten."""
        return self._table.date(generation)

    def rotate(self, watermark: int | None) -> Iterator[None]:
        """Advance the watermark, whatever `max_jump` is, and sweep what leaves the window, in steps like `put_many`.

        None changes nothing if there is no watermark. Raises ValueError if the window would go back.
        """
        return self._table.rotate(watermark)

    @override
    def _add_one(self, a: int, b: int) -> bool:
        return self._table.add_one(a, b, 0)

    @override
    def _contains_one(self, a: int, b: int) -> bool:
        return self._table.contains_one(a, b)


def is_undated(generations: Generations) -> bool:
    """Whether these are generations of undated keys: all of them are, or none."""
    return bool(len(generations) and generations[0] == UNDATED)


def not_behind(table: TableInTime, watermark: int | None) -> int:
    """The watermark that `table` may move to, within the limits of times. Raises ValueError if it would go back."""
    before = table.watermark
    if (
        watermark is None
        or (before is not None and watermark < before)
        or table.clock.generation(watermark) < table.current - table.waits
    ):
        raise ValueError(f"the watermark is {before} and cannot go back to {watermark}")
    return clipped(watermark)
