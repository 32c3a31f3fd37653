"""The duplicates rule over a filter that forgets: a key passes again once it is older than the window.

The window's clock is the greatest time among the events that passed, pending ones included. An event that is older
than the window passes, or is dropped if the operator wants that. In both cases its key is not remembered.
"""

from collections import deque
from collections.abc import Iterator

from streamdedup.events import Integers, Verdicts
from streamdedup.filters.window.protocol import Windowed
from streamdedup.keys.hashing import Digests
from streamdedup.rules.duplicates import ROWS_A_STEP
from streamdedup.rules.pending_in_time import Held, PendingKeys


class DuplicatesWithin:
    """The rule over a window. The contracts are those of `DuplicatesRule`."""

    def __init__(self, filter_: Windowed) -> None:
        self._filter = filter_
        self._waiting = PendingKeys(filter_.clock)
        self._watermark = filter_.watermark
        # The number of pending keys of each sealed transaction, in their order, and the watermark at its seal.
        self._sealed: deque[tuple[int, int | None]] = deque()
        self._open = 0

    @property
    def pending(self) -> int:
        """The number of keys that wait for their commit."""
        return len(self._waiting)

    @property
    def late(self) -> int:
        """How many events of the last `judge` came too late for the window to know their keys."""
        return self._waiting.late

    @property
    def room(self) -> int:
        """What the window can still take within its error budget, less the pending keys."""
        return self._waiting.room(self._watermark, self._held)

    @property
    def watermark(self) -> int | None:
        """The window's time once all pending keys are admitted; None before the first event."""
        return self._watermark

    def judge(self, digests: Digests, times: Integers, *, within_budget: bool) -> Verdicts:
        """Return the verdicts of the first events, within `room` if asked; keys that pass become pending."""
        waited = self.pending
        verdicts, self._watermark = self._waiting.judge_in_time(
            digests,
            self._own(times),
            self._filter.generations_many(digests),
            self._watermark,
            self._held if within_budget else None,
            late_passes=self._filter.late == "pass",
            refresh=self._filter.refresh,
        )
        self._open += self.pending - waited
        return verdicts

    def seal(self) -> None:
        """Close the group of keys judged since the last seal."""
        self._sealed.append((self._open, self._watermark))
        self._open = 0

    def admit(self) -> Iterator[None]:
        """Admit the group that was sealed first, or all pending keys if none was sealed."""
        if not self._sealed:
            self.seal()
        left, watermark = self._sealed[0]
        while left:
            digests, generations = self._waiting.first_in_time(min(left, ROWS_A_STEP))
            yield from self._filter.put_many(digests, generations)
            left -= len(digests)
            self._waiting.drop(len(digests))
        yield from self._filter.rotate(watermark)
        self._sealed.popleft()

    def forget(self) -> None:
        """Drop all pending keys, and the time that they had reached."""
        self._sealed.clear()
        self._waiting.clear()
        self._open, self._watermark = 0, self._filter.watermark

    def fold(self, digests: Digests, times: Integers) -> Iterator[None]:
        """Admit the keys of committed events, in their order, and drop all pending keys."""
        own = self._own(times)
        generations, watermark = self._filter.folded(len(times) if own is None else own)
        for start in range(0, len(digests), ROWS_A_STEP):
            part = slice(start, start + ROWS_A_STEP)
            yield from self._filter.put_many(digests[part], generations[part])
        yield from self._filter.rotate(watermark)
        self.forget()

    def start_at(self, watermark: int | None) -> Iterator[None]:
        """Move the window's time to `watermark`, if that is later; drop all pending keys."""
        at = self._filter.watermark
        if watermark is not None and (at is None or watermark > at):
            yield from self._filter.rotate(watermark)
        self.forget()

    @property
    def _held(self) -> Held:
        return Held(*self._filter.loads())

    def _own(self, times: Integers) -> Integers | None:
        """Return the times; None if the window counts keys and has no use for them."""
        return None if self._filter.clock.by_count else times
