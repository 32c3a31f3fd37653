"""The duplicates rule over a filter that forgets: a key passes again once it is older than the window.

The window's clock is the greatest time among the events that passed, pending ones included. An event that is older
than the window passes, or is dropped if the operator wants that. In both cases its key is not remembered. What time an
event without a timestamp has, `filters.window.clock` says.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from streamdedup.events import NO_TIMESTAMP, Integers, Verdicts
from streamdedup.filters.window.clock import Generations, Marks, followed, untimed_and_ancient
from streamdedup.filters.window.protocol import Windowed
from streamdedup.keys.hashing import Digests
from streamdedup.rules.duplicates import ROWS_A_STEP
from streamdedup.rules.pending_in_time import Loads, PendingKeys

Dated = tuple[int, int] | None
"""How many keys precede the first timed event, and the generation to which undated keys move; None without one."""


class _Group(NamedTuple):
    """The pending keys of a sealed transaction, and the marks at its seal."""

    keys: int
    marks: Marks
    dated: Dated


class DuplicatesWithin:
    """The rule over a window. The contracts are those of `DuplicatesRule`."""

    def __init__(self, filter_: Windowed) -> None:
        self._filter = filter_
        self.untimed = self.ancient = 0
        self._waiting = PendingKeys(filter_.clock)
        self._marks = filter_.marks
        self._sealed: deque[_Group] = deque()
        self._open = 0
        self._dated: Dated = None

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
        return self._waiting.room(self._marks, self._held)

    @property
    def watermark(self) -> int | None:
        """The window's time once all pending keys are admitted; None before the first event."""
        return self._marks.watermark

    def judge(self, digests: Digests, times: Integers, *, within_budget: bool) -> Verdicts:
        """Return the verdicts of the first events, within `room` if asked; keys that pass become pending."""
        waited = self.pending
        verdicts, self._marks = self._waiting.judge_in_time(
            digests,
            self._own(times),
            self._filter.generations_many(digests),
            self._marks,
            self._held if within_budget else None,
            late_passes=self._filter.late == "pass",
            refresh=self._filter.refresh,
        )
        if not self._filter.clock.by_count:
            self.untimed, self.ancient = untimed_and_ancient(times[: len(verdicts)])
        if dated := self._waiting.dated:
            self._dated = dated[0] - waited + self._open, dated[1]
        self._open += self.pending - waited
        return verdicts

    def seal(self) -> None:
        """Close the group of keys judged since the last seal."""
        self._sealed.append(_Group(self._open, self._marks, self._dated))
        self._open, self._dated = 0, None

    def admit(self) -> Iterator[None]:
        """Admit the group that was sealed first, or all pending keys if none was sealed."""
        if not self._sealed:
            self.seal()
        group = self._sealed[0]
        before, generation = group.dated or (0, None)
        yield from self._admit_first(before)
        if generation is not None:
            yield from self._filter.date(generation)
        yield from self._admit_first(group.keys - before)
        yield from self._reach(group.marks)
        self._sealed.popleft()

    def _admit_first(self, left: int) -> Iterator[None]:
        while left:
            digests, generations = self._waiting.first_in_time(min(left, ROWS_A_STEP))
            yield from self._filter.put_many(digests, generations)
            left -= len(digests)
            self._waiting.drop(len(digests))

    def forget(self) -> None:
        """Drop all pending keys, and the time that they had reached."""
        self._sealed.clear()
        self._waiting.clear()
        self._open, self._dated, self._marks = 0, None, self._filter.marks

    def fold(self, digests: Digests, times: Integers) -> Iterator[None]:
        """Admit the keys of committed events, in their order, and drop all pending keys."""
        clock, own = self._filter.clock, self._own(times)
        found = followed(
            clock, self._filter.marks, len(times) if own is None else own, NO_TIMESTAMP
        )
        before, generation = found.dated or (0, None)
        yield from self._put(digests[:before], found.generations[:before])
        if generation is not None:
            yield from self._filter.date(generation)
        yield from self._put(digests[before:], found.generations[before:])
        yield from self._reach(found.marks)
        self.forget()

    def start_at(self, watermark: int | None) -> Iterator[None]:
        """Move the window's time to `watermark`, if that is later; drop all pending keys.

        Then the events that are missing had times of their own, so the next timed event dates those without one. The
        same holds if the time is not known.
        """
        at = self._filter.watermark
        if watermark is None or at is None or watermark > at:
            yield from self._reach(Marks(at if watermark is None else watermark, None))
        self.forget()

    def _put(self, digests: Digests, generations: Generations) -> Iterator[None]:
        for start in range(0, len(digests), ROWS_A_STEP):
            part = slice(start, start + ROWS_A_STEP)
            yield from self._filter.put_many(digests[part], generations[part])

    def _reach(self, marks: Marks) -> Iterator[None]:
        yield from self._filter.rotate(marks.watermark)
        self._filter.set_untimed(marks.untimed)

    @property
    def _held(self) -> Loads:
        return Loads(*self._filter.loads(), self._filter.undated)

    def _own(self, times: Integers) -> Integers | None:
        """Return the times; None if the window counts keys and has no use for them."""
        return None if self._filter.clock.by_count else times
