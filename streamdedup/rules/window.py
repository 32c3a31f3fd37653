"""The duplicates rule over a filter that forgets: a key passes again once it is older than the window.

The window's clock is the greatest time among the events that passed, pending ones included. An event that is older
than the window passes, or is dropped if the operator wants that. In both cases its key is not remembered.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import islice

import numpy as np

from streamdedup.events import Integers, Verdict, Verdicts
from streamdedup.filters.base import Mask
from streamdedup.filters.window.clock import Generations
from streamdedup.filters.window.protocol import Windowed
from streamdedup.filters.window.row_index import keep_first
from streamdedup.filters.window.verdicts import NO_PENDING, PendingRows, WindowVerdicts
from streamdedup.keys.hashing import Digests
from streamdedup.rules.duplicates import ROWS_A_STEP


class DuplicatesWithin:
    """The rule over a window. The contracts are those of `DuplicatesRule`."""

    def __init__(self, filter_: Windowed) -> None:
        self._filter = filter_
        self.late = 0
        self._pending = NO_PENDING._replace(watermark=filter_.watermark)
        # The number of pending rows, and the watermark, at each seal.
        self._sealed: deque[tuple[int, int | None]] = deque()

    @property
    def pending(self) -> int:
        """The number of keys that wait for their commit."""
        return len(self._pending.digests)

    @property
    def room(self) -> int:
        """What the window can still take within its error budget, less the pending keys."""
        return self._filter.room() - self.pending

    @property
    def watermark(self) -> int | None:
        """The window's time once all pending keys are admitted; None before the first event."""
        return self._pending.watermark

    def judge(self, digests: Digests, times: Integers, *, within_budget: bool) -> Verdicts:
        """Return the verdicts of the first events, within `room` if asked; keys that pass become pending."""
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
        self._pending = PendingRows(
            np.concatenate((self._pending.digests, digests[waits])),
            np.concatenate((self._pending.generations, judged.generations[waits])),
            judged.watermark,
        )
        self.late = int(np.count_nonzero(judged.late))
        verdicts = np.where(judged.fresh, Verdict.PASS, Verdict.DUPLICATE).astype(np.uint8)
        # A late event that does not pass is dropped: filter.late is `drop`.
        verdicts[judged.late & ~judged.fresh] = Verdict.BLOCKED
        return verdicts

    def seal(self) -> None:
        """Close the group of keys judged since the last seal."""
        self._sealed.append((self.pending, self.watermark))

    def admit(self) -> Iterator[None]:
        """Admit the group that was sealed first, or all pending keys if none was sealed."""
        if not self._sealed:
            self.seal()
        digests, generations, _ = self._pending
        rows, watermark = self._sealed[0]
        yield from self._take(PendingRows(digests[:rows], generations[:rows], watermark))
        self._pending = self._pending._replace(
            digests=digests[rows:], generations=generations[rows:]
        )
        self._sealed = deque((end - rows, mark) for end, mark in islice(self._sealed, 1, None))

    def forget(self) -> None:
        """Drop all pending keys, and the time that they had reached."""
        self._sealed.clear()
        self._pending = NO_PENDING._replace(watermark=self._filter.watermark)

    def fold(self, digests: Digests, times: Integers) -> Iterator[None]:
        """Admit the keys of committed events, in their order, and drop all pending keys."""
        own = self._own(times)
        yield from self._take(
            PendingRows(digests, *self._filter.folded(len(times) if own is None else own))
        )
        self.forget()

    def start_at(self, watermark: int | None) -> Iterator[None]:
        """Move the window's time to `watermark`, if that is later; drop all pending keys."""
        at = self._filter.watermark
        if watermark is not None and (at is None or watermark > at):
            yield from self._filter.rotate(watermark)
        self.forget()

    def _judged(self, digests: Digests, times: Integers) -> tuple[WindowVerdicts, Mask]:
        """Return the verdicts, and which rows become pending.

        New keys do, and with `refresh` also known keys, once in each generation.
        """
        judged = self._filter.judge(digests, self._own(times), self._pending)
        waits = (judged.fresh | self._filter.refresh) & ~judged.late
        if self._filter.refresh:
            keep_first(digests, judged.generations, waits)
        return judged, waits

    def _fits(self, generations: Generations) -> bool:
        return self._filter.fits(np.concatenate((self._pending.generations, generations)))

    def _own(self, times: Integers) -> Integers | None:
        """Return the times; None if the window counts keys and has no use for them."""
        return None if self._filter.clock.by_count else times

    def _take(self, keys: PendingRows) -> Iterator[None]:
        yield from self._filter.rotate(keys.watermark)
        for start in range(0, len(keys.digests), ROWS_A_STEP):
            part = slice(start, start + ROWS_A_STEP)
            self._filter.put_many(keys.digests[part], keys.generations[part])
            yield
