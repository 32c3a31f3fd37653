"""`streamdedup pipe`: copy lines; only the first occurrence of each line (or key) passes, or only the others.

Lines are bytes; nothing is decoded, and a last line without an end stays without one. Memory holds the filter, one
chunk, and a line of at most `texts.LINE_BYTES_MAX`.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from streamdedup.commands.lines import Chunk, digests_of
from streamdedup.errors import StreamdedupError
from streamdedup.filters.base import Addable, Growing
from streamdedup.filters.kinds import CELLED
from streamdedup.filters.options import can_grow
from streamdedup.filters.window.protocol import Windowed
from streamdedup.kernel import give_back_compiler
from streamdedup.keys.formats.csv_records import swallowed
from streamdedup.keys.formats.json_kinds import without_place
from streamdedup.keys.formats.line_column import chosen
from streamdedup.rules.duplicates import adder, room_of, rows_that_fit
from streamdedup.units import counted, sized

REASONS_SHOWN = 5
REASONS_MAX = 100  # a reason may have a name of the input in it, so there may be many
OTHER_REASONS = "other reasons"


@dataclass
class Summary:
    """The number of lines, by verdict; of malformed ones by their reason, and the number of the first line of each.

    `of` is what they are called: a record of CSV may take several lines, and counts as one. `fresh` are those whose key
    is new, or that have none. They pass, or, if `repeated`, all others do.
    `at_byte` is how the reason of that first line goes on, if it names a byte. `within` is the number of lines within
    records that could be records, and `first_within` names the first.
    """

    of: str = "line"
    repeated: bool = False
    lines: int = 0
    fresh: int = 0
    malformed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)
    at_byte: dict[str, str] = field(default_factory=dict)
    within: int = 0
    first_within: str = ""
    started: float = field(default_factory=time.monotonic)

    @property
    def passed(self) -> int:
        """The number of lines that pass."""
        return self.lines - self.fresh if self.repeated else self.fresh

    def note(self, chunk: Chunk, malformed: Mapping[int, str]) -> None:
        """Count rows of `chunk` that are malformed, by their reasons, and lines within its records."""
        if chunk.within:
            number = chunk.number(next(iter(chunk.within)))
            self.within += sum(chunk.within.values())
            self.first_within = (
                self.first_within or f"line {number + 1:,}, in the record at line {number:,}"
            )
        self.malformed += len(malformed)
        for row, reason in malformed.items():
            what = without_place(reason)
            if what not in self.first and len(self.first) >= REASONS_MAX:
                what = OTHER_REASONS
            self.reasons[what] += 1
            if what not in self.first:
                self.first[what] = chunk.number(row)
                self.at_byte[what] = reason.removeprefix(what) if what != OTHER_REASONS else ""

    def text(self, filter_: Addable) -> str:
        """Return two lines for a person, and one for each of the most frequent reasons of malformed lines.

        If no line had a key, the last line gives a hint, because then the key is probably wrong, not the lines.
        """
        seconds = max(time.monotonic() - self.started, 1e-9)
        fate, of_others = ("dropped", " passed") if self.repeated else ("passed", "")
        malformed = f" ({self.malformed:,} malformed, {fate} unjudged)" if self.malformed else ""
        others = counted(self.lines - self.fresh, "duplicate") + of_others
        name = filter_.stages if isinstance(filter_, Growing) else filter_.kind
        beyond = " (BEYOND ITS CAPACITY)" if room_of(filter_) < 0 else ""
        held = f"{len(filter_):,} of {filter_.capacity:,} keys"
        if isinstance(filter_, Windowed):
            held = (
                f"remembers {counted(len(filter_), 'key')} (at least the last {filter_.capacity:,})"
            )
        return (
            f"{counted(self.lines, self.of)}: {self.fresh:,} {fate}{malformed}, {others};"
            f" {self.lines / seconds:,.0f} {self.of}s/s\n"
            f"{name}: {held}, {sized(filter_.size_bytes)}, {filter_.fill_ratio:.2%} of {_filled(filter_)},"
            f" estimated error {filter_.error_rate_now:.2g}{beyond}"
            f"{self._reasons()}"
        )

    def _reasons(self) -> str:
        frequent = self.reasons.most_common(REASONS_SHOWN)
        text = "".join(
            f"\nmalformed {counted(count, 'time')}: {reason}; first at line {self.first[reason]:,}"
            f"{self.at_byte[reason]}"
            for reason, count in frequent
        )
        if others := self.malformed - sum(count for _, count in frequent):
            text += f"\nmalformed {counted(others, 'time')}: {OTHER_REASONS}"
        if self.within:
            text += f"\nwarning: {swallowed(self.within, self.first_within)}"
        if 0 < self.lines == self.malformed:
            text += (
                f"\nhint: no {self.of} had the key; in the first, {next(iter(self.first))}; check --key and"
                " --normalize"
            )
        return text


def _filled(filter_: Addable) -> str:
    """Return what the fill ratio is a share of."""
    if isinstance(filter_, Growing):
        return "its greatest size in use"
    return "the bits set" if filter_.only_sets_bits else "the cells in use"


class FullError(StreamdedupError):
    """The filter holds as many keys as its capacity."""


def deduplicate(
    chunks: Iterable[Chunk],
    write: Callable[[bytes | memoryview], object],
    filter_: Addable,
    *,
    on_full: str = "stop",
    summary: Summary,
    warn: Callable[[str], None],
    is_unread: Callable[[], bool] = lambda: False,
    is_loaded: bool = False,
) -> bool:
    """Pass to `write` the lines of `chunks` whose key is not in `filter_`, and add these keys; return True.

    If `summary` is of repeated lines, pass the others that have a key. At capacity, if `on_full` is "stop" or "grow",
    the lines before are written and FullError is raised; otherwise `warn` is called once, when capacity is exceeded.
    FullError, too, if the filter may grow and there is no memory for that.

    What `write` raises is raised as it is. `is_unread` detects that the output's reader has gone, even if nothing is
    written; then False is returned. A filter that `is_loaded` has its options from another run.
    """
    sieve, of = _Sieve(write, filter_, on_full != "warn", summary), summary.of
    for number, chunk in enumerate(chunks):
        if number == 1:  # all kernels are loaded
            give_back_compiler()
        had_room = room_of(filter_) >= 0
        try:
            fits = sieve.pass_fresh(chunk)
        except MemoryError:
            raise FullError(
                f"there is no memory for the filter to grow: it holds {counted(len(filter_), 'key')}, and some"
                f" {of}s after {of} {summary.lines:,} did not pass; give a lower --max-size, so that it ends at a"
                f" {of}, or use a larger machine"
            ) from None
        if not fits:
            raise FullError(
                f"the filter is full: it holds {counted(len(filter_), 'key')}, so {of} {summary.lines + 1:,} and"
                f" those after it did not pass; {_remedy(filter_, on_full, is_loaded=is_loaded)} --on-full warn to go"
                " on with more errors"
            )
        if had_room and room_of(filter_) < 0:
            warn(
                f"the filter is full: by {of} {summary.lines:,} it holds more than {counted(filter_.capacity, 'key')};"
                f" from here on, {_beyond(filter_)}; {_larger(is_loaded=is_loaded)}"
            )
        if is_unread():
            return False
    return True


def _beyond(filter_: Addable) -> str:
    """Return what becomes of a filter beyond its capacity."""
    if filter_.kind in CELLED:
        return "each key takes much more memory and time"
    return "more and more new lines are dropped wrongly"


def _larger(*, is_loaded: bool) -> str:
    return f"{'begin another file with' if is_loaded else 'give'} a larger --capacity"


def _remedy(filter_: Addable, on_full: str, *, is_loaded: bool) -> str:
    if on_full == "grow":
        return "give a larger --max-size, or"
    larger = _larger(is_loaded=is_loaded)
    if is_loaded:
        return f"{larger}, or give"
    if can_grow(filter_.kind, filter_.error_rate):
        return f"{larger}, --on-full grow to take more memory, or"
    return f"{larger}, or"


class _Sieve:
    """Judges and writes lines. A line that has no end, since an input ends with it, gets one if another follows."""

    def __init__(
        self,
        write: Callable[[bytes | memoryview], object],
        filter_: Addable,
        stops_when_full: bool,
        summary: Summary,
    ) -> None:
        self._write, self._filter, self._add = write, filter_, adder(filter_)
        self._stops_when_full, self._summary = stops_when_full, summary
        self._lacks_end = False

    def pass_fresh(self, chunk: Chunk) -> bool:
        """Judge and write the lines of `chunk`. False if the filter became full before the last of them."""
        if chunk.is_header:
            self._put(memoryview(chunk.text), chunk.end)
            return True
        count = len(chunk)
        hashed, rows = digests_of(chunk, self._filter.hash)
        room = room_of(self._filter)
        if self._stops_when_full and len(hashed) > room:
            fitting = rows_that_fit(self._filter, hashed, room)
            if fitting < len(hashed):
                count = int(np.flatnonzero(rows)[fitting])
                hashed, rows = hashed[:fitting], rows[:count]
        fresh = ~rows
        fresh[rows] = self._add(hashed)
        self._summary.lines += count
        self._summary.fresh += int(np.count_nonzero(fresh))
        malformed = chunk.malformed
        if count < len(chunk):
            malformed = {row: reason for row, reason in malformed.items() if row < count}
        self._summary.note(chunk, malformed)
        self._put(
            chosen(chunk.text, chunk.bounds, ~fresh if self._summary.repeated else fresh), chunk.end
        )
        return count == len(chunk)

    def _put(self, lines: memoryview, end: bytes) -> None:
        if lines:
            if self._lacks_end:
                self._write(end)
            self._write(lines)
            self._lacks_end = lines[-1] != end[0]
