"""What a window decides about events, exactly, one by one: an independent reading of docs/windows.md.

Verdicts need the keys that are held, so this takes a dict entry for each; `audit` follows a window by sorting.
"""

from streamdedup.events import NO_TIMESTAMP
from streamdedup.filters.window.clock import NEVER, UNDATED, Clock, clipped


class WindowTrial:
    """The window of one partition, from its first event on."""

    def __init__(self, clock: Clock, *, late_passes: bool, refresh: bool) -> None:
        self._clock, self._late_passes, self._refresh = clock, late_passes, refresh
        self._mark: int | None = None  # the window's time
        self._newest = dict[
            bytes, int
        ]()  # the newest generation of each key; UNDATED without a time

    def judge(self, digest: bytes, time: int) -> tuple[bool, bool]:
        """Return whether the next event, with a key of this `digest` at `time`, in ms, passes, and whether it is late.

        A late event is older than the window, and its key is not known.
        """
        clock, mark = self._clock, self._mark
        if not clock.by_count and mark is None and time == NO_TIMESTAMP:
            is_new = digest not in self._newest
            self._newest[digest] = UNDATED
            return is_new, False
        moment = self._moment(time)
        own = moment // clock.slot
        if mark is None:
            now = own
            self._newest = dict.fromkeys(self._newest, own)
        else:
            now = mark // clock.slot
        reach, held = max(own, now), self._newest.get(digest, NEVER)
        is_held, is_late = held > reach - clock.generations, own <= now - clock.generations
        renews = self._refresh and not (clock.by_count and held == reach)
        if not is_late and (renews or not is_held):
            ahead = moment if mark is None else max(mark, min(moment, mark + clock.max_jump))
            self._mark = ahead
            self._newest[digest] = max(held, min(own, ahead // clock.slot))
        return not is_held and (self._late_passes or not is_late), is_late and not is_held

    def _moment(self, time: int) -> int:
        """The time of the next event: by count, the number of keys before it; without its own, the window's."""
        if self._clock.by_count:
            return 0 if self._mark is None else self._mark + 1
        if time == NO_TIMESTAMP and self._mark is not None:
            return self._mark
        return clipped(time)
