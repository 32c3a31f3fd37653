"""Pick a kind, by a rule that a person can follow, and name the cases in which another one is better.

Among the kinds that can do the job, those come first whose snapshots hold up commits for PAUSE_S_MAX at most. The
smallest of these is picked, unless a kind that is larger by a factor of at most MORE_MEMORY_MAX takes at most
LESS_TIME_MAX of its time for a key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from streamdedup.commands.plan.job import Job
from streamdedup.commands.plan.sizes import Size
from streamdedup.commands.plan.speed import Speed

MORE_MEMORY_MAX = 1.25
LESS_TIME_MAX = 0.5
PAUSE_S_MAX = 0.4
# A kind that takes more times the memory is not an alternative. The exception is `exact`, for its low error rate.
INSTEAD_MAX = 3
TAKING = "to which keys can be added"


@dataclass(frozen=True)
class Row:
    """One kind for the job.

    `pause_s` is how long its partition commits nothing during a snapshot; None if a worker does not take this kind.
    """

    kind: str
    size: Size
    abilities: tuple[str, ...]
    speed: Speed
    pause_s: float | None

    @property
    def time_ns(self) -> float:
        """The time for a new key, which is looked up and added."""
        return self.speed.add_ns + self.speed.contains_ns


@dataclass(frozen=True)
class Pick:
    """The kind to take; the reasons; and by kind, when to take another one. Each is a clause without a full stop."""

    kind: str
    because: tuple[str, ...]
    instead: dict[str, str]


def pick(rows: Sequence[Row], job: Job) -> Pick:
    """Choose among `rows`, which must not be empty."""
    adding = [row for row in rows if "add" in row.abilities] or list(rows)
    quiet = [row for row in adding if _is_quiet(row)] or adding
    smallest = min(quiet, key=_bytes)
    small_enough = [row for row in quiet if _bytes(row) <= MORE_MEMORY_MAX * _bytes(smallest)]
    quickest = min(small_enough, key=lambda row: row.time_ns)
    quick = quickest.time_ns <= LESS_TIME_MAX * smallest.time_ns
    picked = quickest if quick else smallest
    able = _because_able(rows, picked, job)
    because = (*able, *_because_of_cost(quiet, picked, smallest, "of those" if able else TAKING))
    return Pick(picked.kind, because, _instead(rows, picked))


def _because_able(rows: Sequence[Row], picked: Row, job: Job) -> tuple[str, ...]:
    if job.window_s is not None:
        return ("it forgets the keys that are older than the window",)
    if job.removable:
        return ("it can remove keys",)
    if _is_quiet(picked) and any(row.pause_s and not _is_quiet(row) for row in rows):
        return (f"its snapshots hold up commits for {PAUSE_S_MAX} s at most",)
    return ()


def _because_of_cost(
    candidates: Sequence[Row], picked: Row, smallest: Row, which: str
) -> tuple[str, ...]:
    if len(candidates) == 1:
        return ("no other kind can do that",)
    if picked is smallest:
        return (f"it is the smallest {which}",)
    more, share = _bytes(picked) / _bytes(smallest) - 1, picked.time_ns / smallest.time_ns
    return (
        f"it takes {more:.0%} more memory than {smallest.kind}, the smallest {which}, but {share:.0%} of its time",
    )


def _instead(rows: Sequence[Row], picked: Row) -> dict[str, str]:
    """Return by kind when it is the better choice."""
    when: dict[str, str] = {}
    for row in rows:
        ratio = _bytes(row) / _bytes(picked)
        if row is picked or (ratio > INSTEAD_MAX and row.kind != "exact"):
            continue
        if "static" in row.abilities:
            when[row.kind] = (
                f"if the keys are a list that never changes ({ratio:.2f} times the memory)"
            )
        elif "add" in row.abilities and ratio < 1:
            stops = ", but each snapshot takes a copy of it" if row.pause_s else ""
            when[row.kind] = f"if memory counts most: {1 - ratio:.0%} less{stops}"
        elif row.kind == "dlcbf" and picked.kind == "cuckoo":
            when[row.kind] = (
                f"if keys are often added again, which takes no extra room there, or if additions to a nearly full"
                f" filter must stay as quick ({ratio:.2f} times the memory)"
            )
        elif row.kind == "exact" and ratio > 1:
            when[row.kind] = (
                f"if almost no errors are allowed: {row.size.error:.1g} ({ratio:.1f} times the memory)"
            )
    return when


def _is_quiet(row: Row) -> bool:
    return row.pause_s is not None and row.pause_s <= PAUSE_S_MAX


def _bytes(row: Row) -> int:
    return row.size.size_bytes
