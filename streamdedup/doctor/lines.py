"""The lines of a report: each says what a check found, and what to do about it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from streamdedup.errors import StreamdedupError
from streamdedup.metrics.findings import KINDS, Kind
from streamdedup.units import counted

LINES_MAX = 10  # of one check; the others are counted


class Status(StrEnum):
    """What a line says of its thing, the worst first."""

    FAILURE = "failure"  # a worker would not start, or would stop, or its promise is broken
    WARNING = "warning"  # events would be decided, but perhaps not as the operator wants
    UNKNOWN = "unknown"  # there was no answer, or no right to see it
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a check found. No part of it holds a key.

    `sentence` says what was found, and `remedy` what to do; None if nobody need act. `place` is a topic, partition or
    file; None if it is the whole deployment. `finding` is the kind of the finding that a worker reports of the same, if
    there is one. `check` is the id of the check, which the caller sets.
    """

    status: Status
    sentence: str
    remedy: str | None = None
    place: str | None = None
    finding: Kind | None = None
    check: str = ""

    @property
    def text(self) -> str:
        """The line for a person."""
        found = f" [{self.finding.id}]" if self.finding else ""
        is_said = not self.place or self.sentence.startswith(f"{self.place} ")
        place = "" if is_said else f"{self.place}: "
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.status:<8} {self.check}{found}: {place}{self.sentence}{remedy}"

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "check": self.check,
            "status": self.status.value,
            "place": self.place,
            "finding": self.finding and self.finding.id,
            "sentence": self.sentence,
            "remedy": self.remedy,
        }


def ok(sentence: str, place: str | None = None) -> Line:
    """Return the line of something that is as it should be."""
    return Line(Status.OK, sentence, place=place)


def warning(
    sentence: str, remedy: str, place: str | None = None, finding: Kind | None = None
) -> Line:
    """Return the line of something that a worker goes on with."""
    return Line(Status.WARNING, sentence, remedy, place, finding)


def failure(
    sentence: str, remedy: str, place: str | None = None, finding: Kind | None = None
) -> Line:
    """Return the line of something that stops a worker, or breaks its promise."""
    return Line(Status.FAILURE, sentence, remedy, place, finding)


def unknown(sentence: str, remedy: str, place: str | None = None) -> Line:
    """Return the line of something that could not be found out."""
    return Line(Status.UNKNOWN, sentence, remedy, place)


def of_error(error: StreamdedupError, place: str | None = None) -> Iterator[Line]:
    """Yield a failure for `error`; if it lists several problems, one a line, a failure for each."""
    kind = KINDS.get(error.finding or "")
    if error.remedy:
        yield failure(error.sentence, error.remedy, place, kind)
        return
    for problem in error.sentence.splitlines():
        sentence, _, remedy = problem.partition("; ")  # each problem has its own remedy
        yield failure(sentence, remedy or "resolve that, and run this again", place, kind)


def bounded(lines: Iterable[Line]) -> list[Line]:
    """Return the first LINES_MAX lines of each status, and a line for the rest of them."""
    kept, met = list[Line](), Counter[Status]()
    for line in lines:
        met[line.status] += 1
        if met[line.status] <= LINES_MAX:
            kept.append(line)
    for status, count in met.items():
        if (more := count - LINES_MAX) > 0:
            kept.append(Line(status, f"{counted(more, 'more line')} of this kind", "as above"))
    return kept


@dataclass(frozen=True)
class Report:
    """What all checks found. `answered` says whether a broker answered at all. It took `seconds`."""

    lines: tuple[Line, ...]
    answered: bool
    seconds: float

    @property
    def counts(self) -> Mapping[Status, int]:
        """How many lines there are of each status."""
        found = Counter(line.status for line in self.lines)
        return {status: found[status] for status in Status}

    @property
    def exit_status(self) -> int:
        """1 if no broker answered; else 2 for failures, 3 for warnings, 0 without either."""
        if not self.answered:
            return 1
        counts = self.counts
        return 2 if counts[Status.FAILURE] else 3 if counts[Status.WARNING] else 0

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "answered": self.answered,
            "exit_status": self.exit_status,
            "counts": {status.value: count for status, count in self.counts.items()},
            "seconds": round(self.seconds, 1),
            "lines": [line.as_json() for line in self.lines],
        }

    def as_text(self) -> str:
        """Return it for a person: what is well first, and at the end what is not."""
        worst = sorted(_together(self.lines), key=lambda line: -list(Status).index(line.status))
        return "".join(f"{line.text}\n" for line in worst) + f"{self.summary}\n"

    @property
    def summary(self) -> str:
        """The counts in words, with the checks that found something."""
        parts = []
        for status in Status:
            checks = dict.fromkeys(line.check for line in self.lines if line.status is status)
            if count := self.counts[status]:
                shown = (
                    ", ".join(checks) if len(checks) <= LINES_MAX else counted(len(checks), "check")
                )
                named = f" ({shown})" if status is not Status.OK else ""
                few = status in (Status.FAILURE, Status.WARNING)
                what = counted(count, status.value) if few else f"{count:,} {status.value}"
                parts.append(f"{what}{named}")
        return "; ".join(parts) + f"; in {self.seconds:.1f} s"


def _together(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the lines; of those that many checks have alike, as without a broker, one."""
    alike = Counter(replace(line, check="") for line in lines)
    shown = set[Line]()
    for line in lines:
        common = replace(line, check="")
        if alike[common] <= LINES_MAX:
            yield line
        elif common not in shown:
            shown.add(common)
            yield replace(line, check=counted(alike[common], "check"))


def checked_by(check: str, lines: Iterable[Line]) -> list[Line]:
    """Return the lines, with the id of the check that found them."""
    return [replace(line, check=check) for line in lines]
