"""The duplicates rule: a key passes when the filter has not seen it, and once within what is judged together.

What passes waits until its event is known to be in the output; only then is it admitted to the filter. Waiting keys are
consulted, too, so a duplicate is seen before its first is committed. `seal` ends what one transaction will commit.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from streamdedup.events import Integers, Verdicts
from streamdedup.filters.base import Addable, Mask, Removable
from streamdedup.filters.window.protocol import Windowed
from streamdedup.keys.hashing import Digests
from streamdedup.rules.waiting import Waiting

ROWS_A_STEP = 4096  # added at once, where the loop waits for it: below a few ms


class DuplicatesRule(Protocol):
    """Judges keys by what was admitted and what waits. `times` are the events' timestamps, in ms since 1970."""

    @property
    def pending(self) -> int:
        """The number of keys that wait for their commit."""

    @property
    def room(self) -> int:
        """How many keys more may wait or be admitted within the filter's error budget; below 0 beyond it."""

    @property
    def watermark(self) -> int | None:
        """The time that the filter will have reached when all that waits is admitted; None where it has no time."""

    @property
    def late(self) -> int:
        """How many of those that were judged last came too late to be known."""

    def judge(self, digests: Digests, times: Integers, *, within_budget: bool) -> Verdicts:
        """The verdicts, shape (m,), of the first m; what passes waits. m is less than all only at the end of `room`."""

    def seal(self) -> None:
        """What was judged since the last seal is admitted together, after all that was sealed before."""

    def admit(self) -> Iterator[None]:
        """Take what was sealed first into the filter, all where nothing was; gives the loop a turn at each step."""

    def forget(self) -> None:
        """What waits is as if it had not been judged."""

    def fold(self, digests: Digests, times: Integers) -> Iterator[None]:
        """Take in the keys of committed events, in their order; gives the loop a turn at each step."""

    def start_at(self, watermark: int | None) -> Iterator[None]:
        """Have the filter's time reach `watermark`, where it has one, before events are folded."""


class Duplicates:
    """The rule over a filter that forgets nothing."""

    watermark = None
    late = 0

    def __init__(self, seen: Addable) -> None:
        self._seen = seen
        self._add = adder(seen)
        self._waiting = Waiting()
        # How many wait in each transaction, in the order they passed.
        self._sealed: deque[int] = deque()
        self._open = 0

    @property
    def pending(self) -> int:
        """As `DuplicatesRule.pending`."""
        return len(self._waiting)

    @property
    def room(self) -> int:
        """Capacity, less what is in and what waits."""
        return self._seen.capacity - len(self._seen) - self.pending

    def judge(self, digests: Digests, _times: Integers, *, within_budget: bool) -> Verdicts:
        """As `DuplicatesRule.judge`."""
        most = max(self.room, 0) if within_budget else len(digests)
        waited = self.pending
        verdicts = self._waiting.judge(digests, self._seen.contains_many(digests), most)
        self._open += self.pending - waited
        return verdicts

    def seal(self) -> None:
        """As `DuplicatesRule.seal`."""
        self._sealed.append(self._open)
        self._open = 0

    def admit(self) -> Iterator[None]:
        """As `DuplicatesRule.admit`."""
        if not self._sealed:
            self.seal()
        while self._sealed[0]:
            digests = self._waiting.first(min(self._sealed[0], ROWS_A_STEP))
            self._add(digests)
            self._sealed[0] -= len(digests)
            self._waiting.drop(len(digests))
            yield
        self._sealed.popleft()

    def forget(self) -> None:
        """As `DuplicatesRule.forget`."""
        self._sealed.clear()
        self._waiting.clear()
        self._open = 0

    def fold(self, digests: Digests, _times: Integers) -> Iterator[None]:
        """As `DuplicatesRule.fold`."""
        for start in range(0, len(digests), ROWS_A_STEP):
            self._add(digests[start : start + ROWS_A_STEP])
            yield

    def start_at(self, _watermark: int | None) -> Iterator[None]:
        """As `DuplicatesRule.start_at`."""
        yield from ()


def room_of(seen: Addable | Windowed) -> int:
    """How many keys more `seen` can take within its error budget; below 0 beyond it."""
    return seen.room() if isinstance(seen, Windowed) else seen.capacity - len(seen)


def adder(seen: Addable) -> Callable[[Digests], Mask]:
    """What adds keys, one after the other, and tells which are new; without copies in a filter that counts them.

    So the same keys make the same table, in whatever batches, live or folded.
    """
    return seen.add_absent if isinstance(seen, Removable) else seen.add_many


def rows_that_fit(seen: Addable, digests: Digests, room: int) -> int:
    """How many of the first of `digests` (n, 2) can be added before more than `room` of them are new."""
    return len(Waiting().judge(digests, seen.contains_many(digests), max(room, 0)))
