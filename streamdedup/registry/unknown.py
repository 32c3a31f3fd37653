"""What the registry does not have: how long events may wait for one of its schemas, and which are given up.

Whoever writes events may name any schema. So all waiting together has one allowance: while any event waits, it shrinks
by the time that passes, and otherwise it grows again by a tenth of that. No clock: the caller brings the time.
"""

from streamdedup.keys.formats.schemas import GIVEN_UP_MAX

UNKNOWN_S = 60.0  # for which an id is asked for again, and the most that the allowance holds
SHARE = 0.1  # of the time for which all partitions may wait in the long run


class Unknown:
    """The allowance, and the ids that were given up."""

    def __init__(self) -> None:
        self._left_s, self._as_of, self._waiting = UNKNOWN_S, float("-inf"), 0
        self._given_up: dict[int | str, None] = {}

    def left_s(self, now: float) -> float:
        """Return for how long events may wait from `now` on."""
        if self._as_of == float("-inf"):
            return UNKNOWN_S
        passed_s = now - self._as_of
        change_s = -passed_s if self._waiting else passed_s * SHARE
        return min(max(self._left_s + change_s, 0.0), UNKNOWN_S)

    def is_given_up(self, number: int | str) -> bool:
        """Whether an id was given up before."""
        return number in self._given_up

    def give_up(self, number: int | str) -> None:
        """Note that an id was given up; of very many, forget the first."""
        self._given_up[number] = None
        if len(self._given_up) > GIVEN_UP_MAX:
            del self._given_up[next(iter(self._given_up))]

    def found(self, number: int | str) -> None:
        """Note that the registry has an id after all."""
        self._given_up.pop(number, None)

    def begin(self, now: float) -> float:
        """Begin to wait for an id; return until when. `end` must follow."""
        self._settle(now, 1)
        return now + self._left_s

    def end(self, now: float) -> None:
        """Wait for it no longer."""
        self._settle(now, -1)

    def _settle(self, now: float, more: int) -> None:
        self._left_s, self._as_of = self.left_s(now), now
        self._waiting += more
