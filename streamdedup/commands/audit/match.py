"""Compare input and output, digest by digest. Pure: from sorted rows to counts and offsets."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamdedup.commands.audit.rows import (
    DROPPED,
    DUE,
    DUE_UNJUDGED,
    EMITTED,
    EMITTED_UNJUDGED,
    KINDS,
    KNOWN,
    UNLETTERED,
    WITHHELD,
    Rows,
)
from streamdedup.events import Integers
from streamdedup.filters.base import Mask

EXAMPLES_MAX = 5
PIECE_ROWS = 1 << 16  # compared at once; this needs little memory beside the rows
NOWHERE = np.iinfo(np.int64).max
APART = 1 << 62  # the reach of an event that no window has seen; its generation is as far below 0


@dataclass
class Matches:
    """Findings of one partition. `keys`, `missing` and `wrongly_dropped` count keys, the others count events.

    `examples` are the least offsets of each finding, in the input or, for `doubled` and `foreign`, in the output.
    """

    keys: int = 0
    missing: int = 0  # due, but not emitted
    wrongly_dropped: int = 0  # of the missing keys, those in the topic of duplicates
    lost: int = 0  # events that pass unjudged, or must become dead letters, and are in no topic
    doubled: int = 0
    foreign: int = 0
    wrongly_rejected: int = 0  # by their time, although the output takes them by the broker's clock
    # Of a window: events of keys that were emitted before, and that it had forgotten; and those of them that were late.
    due_again: int = 0
    late_again: int = 0
    # Events of emitted keys that are due, but neither in the output nor among the duplicates.
    unaccounted: int = 0
    examples: dict[str, list[int]] = field(default_factory=dict)

    def note(self, name: str, events: int, offsets: Integers) -> None:
        """Add `events` to a finding, and keep its least offsets."""
        setattr(self, name, getattr(self, name) + events)
        if len(offsets):
            known = [*self.examples.get(name, []), *np.sort(offsets)[:EXAMPLES_MAX].tolist()]
            self.examples[name] = sorted(known)[:EXAMPLES_MAX]


@dataclass(frozen=True)
class _Groups:
    """The rows of one part, by digest: arrays of shape (KINDS, groups)."""

    count: Integers
    first: Integers
    last: Integers

    @classmethod
    def of(cls, rows: Rows) -> "_Groups":
        group = group_numbers(rows)
        shape = (KINDS, int(group[-1]) + 1 if len(group) else 0)
        made = cls(
            np.zeros(shape, dtype=np.int64), np.full(shape, NOWHERE), np.full(shape, -1, np.int64)
        )
        at = (rows["kind"], group)
        np.add.at(made.count, at, rows["count"])
        np.minimum.at(made.first, at, rows["first"])
        np.maximum.at(made.last, at, rows["last"])
        return made


def first_read(parts: Iterable[Rows]) -> int:
    """Return the greatest offset at which reading may have begun: the least of the last offsets of the emitted keys.

    It is for a group that began at the end of its input and not at a known offset. Each emitted key has an event at or
    after the offset at which reading began.
    """
    begun = NOWHERE
    for rows in pieces(parts):
        groups = _Groups.of(rows)
        emitted = (groups.count[DUE] > 0) & (groups.count[EMITTED] > 0)
        begun = int(groups.last[DUE][emitted].min(initial=begun))
    return begun


def match(
    parts: Iterable[Rows],
    *,
    due_from: int = 0,
    generations: int | None = None,
) -> Matches:
    """Compare all rows. A key whose events are all below the input offset `due_from` need not be emitted.

    `generations`: how many a window keeps; it may emit a key again after it has forgotten it. None: keys are never
    forgotten.
    """
    found = Matches()
    for rows in pieces(parts):
        groups = _Groups.of(rows)
        _match_keys(found, groups, due_from)
        _match_unjudged(found, groups, due_from)
        if generations is None:
            again = groups.count[EMITTED] > 1
            extra = int((groups.count[EMITTED][again] - 1).sum())
            found.note("doubled", extra, groups.last[EMITTED][again])
        else:
            emitted = rows[rows["kind"] == EMITTED]
            again, forgotten = _again(emitted, generations)
            found.note("doubled", int(np.count_nonzero(again)), emitted["first"][again])
            late = forgotten & (emitted["generation"] <= emitted["reach"] - generations)
            found.due_again += int(np.count_nonzero(forgotten))
            found.late_again += int(np.count_nonzero(late))
    return found


def pieces(parts: Iterable[Rows]) -> Iterator[Rows]:
    """Cut the parts into pieces of about PIECE_ROWS rows. The rows of a digest stay in one piece."""
    for rows in parts:
        start = 0
        while start < len(rows):
            last = min(start + PIECE_ROWS, len(rows)) - 1
            stop = int(rows["high"].searchsorted(rows["high"][last], side="right"))
            yield rows[start:stop]
            start = stop


def _match_keys(found: Matches, groups: _Groups, due_from: int) -> None:
    due = (groups.count[DUE] > 0) & (groups.last[DUE] >= due_from)
    emitted, dropped = groups.count[EMITTED], groups.count[DROPPED]
    # Events that shadow mode marked as blocked. If one of such a key is lost, it looks like another blocked one.
    withheld = groups.count[WITHHELD]
    missing = due & (emitted + withheld == 0)
    wrongly = missing & (dropped > 0)
    foreign = (emitted > 0) & (groups.count[DUE] + groups.count[KNOWN] == 0)
    found.keys += int(np.count_nonzero(due))
    found.note("missing", int(np.count_nonzero(missing)), groups.first[DUE][missing])
    found.note("wrongly_dropped", int(np.count_nonzero(wrongly)), groups.first[DUE][wrongly])
    found.note("foreign", int(emitted[foreign].sum()), groups.first[EMITTED][foreign])
    short = np.maximum(groups.count[DUE] - emitted - dropped - withheld, 0)[due & (emitted > 0)]
    found.unaccounted += int(short.sum())


def _match_unjudged(found: Matches, groups: _Groups, due_from: int) -> None:
    """Compare events that pass unjudged. The output may have a copy for each reading of the input."""
    due = np.where(groups.last[DUE_UNJUDGED] >= due_from, groups.count[DUE_UNJUDGED], 0)
    emitted = groups.count[EMITTED_UNJUDGED]
    short = np.maximum(due - emitted, 0)
    if due_from:  # of several equal events, some may be below `due_from`
        short = np.where(emitted > 0, 0, np.minimum(short, 1))
    found.note("lost", int(short.sum()), groups.last[DUE_UNJUDGED][short > 0])
    # In shadow mode, such events pass instead of becoming dead letters.
    unlettered = np.maximum(groups.count[UNLETTERED] - emitted, 0)
    letters = np.where(groups.last[UNLETTERED] >= due_from, unlettered, 0)
    found.note("lost", int(letters.sum()), groups.last[UNLETTERED][letters > 0])
    known = groups.count[DUE_UNJUDGED] + groups.count[KNOWN] + groups.count[UNLETTERED]
    foreign = (emitted > 0) & (known == 0)
    found.note("foreign", int(emitted[foreign].sum()), groups.first[EMITTED_UNJUDGED][foreign])


def _again(emitted: Rows, generations: int) -> tuple[Mask, Mask]:
    """Return which rows have a key of an earlier row that the window still held, and which one that it had forgotten.

    Rows are sorted by digest and offset. The window held the key if an earlier row of the same digest has a generation
    less than `generations` below the row's reach (window_time.py has the terms). Rows that are `APART` are neither.
    """
    if not len(emitted):
        return np.zeros(0, dtype=np.bool_), np.zeros(0, dtype=np.bool_)
    group, rows = group_numbers(emitted), len(emitted)
    ages, rank = np.unique(emitted["generation"], return_inverse=True)
    newest = np.maximum.accumulate(group * rows + rank)  # the newest generation of the group so far
    again = np.zeros(rows, dtype=np.bool_)
    again[1:] = group[1:] == group[:-1]
    before = ages[np.where(again, np.roll(newest, 1) - group * rows, 0)]
    held = before > emitted["reach"] - generations
    in_window = (before > -APART) & (emitted["reach"] < APART)
    return np.asarray(again & held), np.asarray(again & ~held & in_window)


def group_numbers(rows: Rows) -> npt.NDArray[np.int64]:
    """Number the digests of sorted rows, from 0; return the number for each row."""
    other = np.zeros(len(rows), dtype=np.int64)
    high, low = rows["high"], rows["low"]
    other[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return np.cumsum(other)
