"""The duplicates rule: a key passes if it is neither in the filter nor pending, and once among keys judged together.

A key that passes is pending until its event is known to be in the output. Only then is it admitted to the filter.
Pending keys are consulted, too, so a duplicate is found before the first event of its key is committed. `seal` ends
the group of keys that one transaction will commit.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from streamdedup.events import Integers, Verdicts
from streamdedup.filters.base import Addable, Mask, Removable
from streamdedup.filters.window.protocol import Windowed
from streamdedup.keys.hashing import Digests
from streamdedup.rules.pending import PendingDigests

# Keys added in one step, while the event loop waits: at most a few ms. Beyond the capacity of a `cuckoo` filter, the
# search for a cell looks at up to 500 buckets for each key.
ROWS_A_STEP = 4096
ROWS_A_STEP_BEYOND = 256


class DuplicatesRule(Protocol):
    """Judges keys by the admitted and the pending keys.

    `digests` are (n, 2), `times` the events' timestamps (n,), in ms since 1970. A method that returns an iterator
    works in steps, and must be iterated to its end; between two steps the event loop can get a turn.
    """

    @property
    def pending(self) -> int:
        """The number of keys that wait for their commit."""

    @property
    def room(self) -> int:
        """How many more keys may become pending or be admitted within the filter's error budget; below 0 beyond it."""

    @property
    def watermark(self) -> int | None:
        """The filter's time once all pending keys are admitted; None if the filter has no time."""

    @property
    def late(self) -> int:
        """How many events of the last `judge` came too late for the filter to know their keys."""

    @property
    def untimed(self) -> int:
        """How many events of the last `judge` had no timestamp, which the filter needs."""

    @property
    def ancient(self) -> int:
        """How many of them had a time before the year 2000, which the filter takes for theirs."""

    def judge(self, digests: Digests, times: Integers, *, within_budget: bool) -> Verdicts:
        """Return the verdicts (m,) of the first m events; keys that pass become pending.

        With `within_budget`, m is less than n if `room` ends before; otherwise m is n.
        """

    def seal(self) -> None:
        """Close the group of keys judged since the last seal.

        The keys of a group are admitted together, after all groups sealed before.
        """

    def admit(self) -> Iterator[None]:
        """Admit the group that was sealed first, or all pending keys if none was sealed; works in steps."""

    def forget(self) -> None:
        """Drop all pending keys, as if they had not been judged."""

    def fold(self, digests: Digests, times: Integers) -> Iterator[None]:
        """Admit the keys of committed events, in their order; works in steps."""

    def start_at(self, watermark: int | None) -> Iterator[None]:
        """Move the filter's time to `watermark`, if the filter has a time, before events are folded; works in steps."""


class Duplicates:
    """The rule over a filter that never forgets a key."""

    watermark = None
    late = untimed = ancient = 0

    def __init__(self, filter_: Addable) -> None:
        self._filter = filter_
        self._add = adder(filter_)
        self._waiting = PendingDigests()
        # The number of pending keys of each sealed transaction, in the order in which they passed.
        self._sealed: deque[int] = deque()
        self._open = 0

    @property
    def pending(self) -> int:
        """The number of keys that wait for their commit."""
        return len(self._waiting)

    @property
    def room(self) -> int:
        """The capacity, less the admitted and the pending keys."""
        return self._filter.capacity - len(self._filter) - self.pending

    def judge(self, digests: Digests, _times: Integers, *, within_budget: bool) -> Verdicts:
        """Return the verdicts of the first events, within `room` if asked; keys that pass become pending."""
        most = max(self.room, 0) if within_budget else len(digests)
        waited = self.pending
        verdicts = self._waiting.judge(digests, self._filter.contains_many(digests), most)
        self._open += self.pending - waited
        return verdicts

    def seal(self) -> None:
        """Close the group of keys judged since the last seal."""
        self._sealed.append(self._open)
        self._open = 0

    def admit(self) -> Iterator[None]:
        """Admit the group that was sealed first, or all pending keys if none was sealed."""
        if not self._sealed:
            self.seal()
        while self._sealed[0]:
            digests = self._waiting.first(min(self._sealed[0], self._rows_a_step))
            self._add(digests)
            self._sealed[0] -= len(digests)
            self._waiting.drop(len(digests))
            yield
        self._sealed.popleft()

    def forget(self) -> None:
        """Drop all pending keys."""
        self._sealed.clear()
        self._waiting.clear()
        self._open = 0

    def fold(self, digests: Digests, _times: Integers) -> Iterator[None]:
        """Admit the keys of committed events, in their order."""
        start = 0
        while start < len(digests):
            stop = start + self._rows_a_step
            self._add(digests[start:stop])
            start = stop
            yield

    def start_at(self, _watermark: int | None) -> Iterator[None]:
        """Do nothing: this filter has no time."""
        yield from ()

    @property
    def _rows_a_step(self) -> int:
        within = len(self._filter) <= self._filter.capacity
        return ROWS_A_STEP if within else ROWS_A_STEP_BEYOND


def room_of(filter_: Addable | Windowed) -> int:
    """Return how many more keys `filter_` can take within its error budget; below 0 beyond it."""
    return filter_.room() if isinstance(filter_, Windowed) else filter_.capacity - len(filter_)


def adder(filter_: Addable) -> Callable[[Digests], Mask]:
    """Return the method that adds keys one after the other and returns which of them are new.

    A filter that counts copies of a key adds only absent keys. So the same keys make the same table, in whatever
    batches they come, live or folded.
    """
    return filter_.add_absent if isinstance(filter_, Removable) else filter_.add_many


def rows_that_fit(filter_: Addable, digests: Digests, room: int) -> int:
    """Return how many of the first `digests` (n, 2) can be added before more than `room` of them are new."""
    return len(PendingDigests().judge(digests, filter_.contains_many(digests), max(room, 0)))
