"""The duplicates rule over a filter that forgets: a key passes again once its window has gone by.

The window's clock is the greatest time among the events that passed, those that wait included. What is later than the
window passes, or is dropped where the operator asks for that; either way it is not remembered.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import islice

import numpy as np

from streamdedup.events import Integers, Verdict, Verdicts
from streamdedup.filters.base import Mask
from streamdedup.filters.window.clock import Generations
from streamdedup.filters.window.equals import keep_first
from streamdedup.filters.window.judging import NOTHING, Judged, Pending
from streamdedup.filters.window.protocol import Windowed
from streamdedup.keys.hashing import Digests
from streamdedup.rules.duplicates import ROWS_A_STEP


class DuplicatesWithin:
    """The rule over a window; as `DuplicatesRule` says."""

    def __init__(self, seen: Windowed) -> None:
        self._seen = seen
        self.late = 0
        self._pending = NOTHING._replace(watermark=seen.watermark)
        self._sealed: deque[tuple[int, int | None]] = (
            deque()
        )  # the rows pending and the watermark at each seal

    @property
    def pending(self) -> int:
        """As `DuplicatesRule.pending`."""
        return len(self._pending.digests)

    @property
    def room(self) -> int:
        """As `DuplicatesRule.room`."""
        return self._seen.room() - self.pending

    @property
    def watermark(self) -> int | None:
        """As `DuplicatesRule.watermark`."""
        return self._pending.watermark

    def judge(self, digests: Digests, times: Integers, *, within_budget: bool) -> Verdicts:
        """As `DuplicatesRule.judge`."""
        judged, waits = self._judged(digests, times)
        if within_budget and not self._fits(judged.generations[waits]):
            rows = np.flatnonzero(waits)
            fitting = bisect_left(
                range(1, len(rows) + 1),
                True,
                key=lambda count: not self._fits(judged.generations[rows[:count]]),
            )
            digests, times = digests[: rows[fitting]], times[: rows[fitting]]
            judged, waits = self._judged(digests, times)
        self._pending = Pending(
            np.concatenate((self._pending.digests, digests[waits])),
            np.concatenate((self._pending.generations, judged.generations[waits])),
            judged.watermark,
        )
        self.late = int(np.count_nonzero(judged.late))
        verdicts = np.where(judged.fresh, Verdict.PASS, Verdict.DUPLICATE).astype(np.uint8)
        verdicts[judged.late & ~judged.fresh] = Verdict.BLOCKED  # as the operator asked for
        return verdicts

    def seal(self) -> None:
        """As `DuplicatesRule.seal`."""
        self._sealed.append((self.pending, self.watermark))

    def admit(self) -> Iterator[None]:
        """As `DuplicatesRule.admit`."""
        if not self._sealed:
            self.seal()
        digests, generations, _ = self._pending
        rows, watermark = self._sealed[0]
        yield from self._take(Pending(digests[:rows], generations[:rows], watermark))
        self._pending = self._pending._replace(
            digests=digests[rows:], generations=generations[rows:]
        )
        self._sealed = deque((end - rows, mark) for end, mark in islice(self._sealed, 1, None))

    def forget(self) -> None:
        """As `DuplicatesRule.forget`."""
        self._sealed.clear()
        self._pending = NOTHING._replace(watermark=self._seen.watermark)

    def fold(self, digests: Digests, times: Integers) -> Iterator[None]:
        """As `DuplicatesRule.fold`."""
        own = self._own(times)
        yield from self._take(
            Pending(digests, *self._seen.folded(len(times) if own is None else own))
        )
        self.forget()

    def start_at(self, watermark: int | None) -> Iterator[None]:
        """As `DuplicatesRule.start_at`."""
        at = self._seen.watermark
        if watermark is not None and (at is None or watermark > at):
            yield from self._seen.rotate(watermark)
        self.forget()

    def _judged(self, digests: Digests, times: Integers) -> tuple[Judged, Mask]:
        """The verdicts, and which rows wait: what is new, and of what is renewed once a generation."""
        judged = self._seen.judge(digests, self._own(times), self._pending)
        waits = (judged.fresh | self._seen.refresh) & ~judged.late
        if self._seen.refresh:
            of_generation = digests.copy()
            of_generation[:, 1] += judged.generations.view(np.uint64)
            keep_first(of_generation, waits)
        return judged, waits

    def _fits(self, generations: Generations) -> bool:
        return self._seen.fits(np.concatenate((self._pending.generations, generations)))

    def _own(self, times: Integers) -> Integers | None:
        """None by count."""
        return None if self._seen.clock.by_count else times

    def _take(self, keys: Pending) -> Iterator[None]:
        yield from self._seen.rotate(keys.watermark)
        for start in range(0, len(keys.digests), ROWS_A_STEP):
            part = slice(start, start + ROWS_A_STEP)
            self._seen.put_many(keys.digests[part], keys.generations[part])
            yield
