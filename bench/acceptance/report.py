"""A figure with its bounds, a section of them, and the document that they make."""

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.filters.cases import SIGMAS

WIDTH = 118


@dataclass(frozen=True)
class Figure:
    """What is `measured` must lie from `low` to `high`; `paper` and `theory` stand beside it, written by `style`."""

    name: str
    measured: float
    low: float
    high: float
    theory: float | None = None
    paper: float | None = None
    style: str = ".4g"

    @property
    def holds(self) -> bool:
        """Whether it is within its bounds."""
        return self.low <= self.measured <= self.high

    def row(self) -> str:
        """The figure as a row of the table."""
        paper, theory, measured, low, high = (
            "" if value is None else format(value, self.style)
            for value in (self.paper, self.theory, self.measured, self.low, self.high)
        )
        allowed = low if low == high else f"{low} to {high}"
        if math.isinf(self.high):
            allowed = f"at least {low}"
        elif math.isinf(self.low):
            allowed = f"at most {high}"
        out = "" if self.holds else "**out:** "
        return f"| {self.name} | {paper} | {theory} | {out}{measured} | {allowed} |"


@dataclass(frozen=True)
class Section:
    """Figures of one subject, with what they are and where they come from; `more` is a table to follow them."""

    title: str
    text: str
    figures: Sequence[Figure]
    more: str = field(default="", repr=False)

    def markdown(self) -> str:
        """The section as it stands in the document."""
        head = ["| Figure | Paper | Theory | Measured | Allowed |", "|---|---|---|---|---|"]
        rows = [*head, *(figure.row() for figure in self.figures)]
        text = textwrap.fill(" ".join(self.text.split()), WIDTH, break_on_hyphens=False)
        parts = [f"## {self.title}", text, "\n".join(rows), self.more]
        return "\n\n".join(part for part in parts if part)


def near(
    name: str,
    measured: float,
    expected: float,
    *,
    rel: float = 0.0,
    off: float = 0.0,
    theory: float | None = None,
    paper: float | None = None,
    style: str = ".4g",
) -> Figure:
    """A figure that may differ from `expected` by the share `rel` of it, and by `off`."""
    room = rel * expected + off
    return Figure(name, measured, max(0.0, expected - room), expected + room, theory, paper, style)


def share(
    name: str,
    found: int,
    probes: int,
    expected: float,
    *,
    spread: float = 0.0,
    paper: float | None = None,
) -> Figure:
    """How many of `probes` were found, as a share: within five standard deviations of `expected`, on both sides.

    `spread` is the relative standard deviation that `expected` has by itself, as from one filling to another.
    """
    deviation = math.sqrt(expected * (1 - expected) / probes + (spread * expected) ** 2)
    low, high = max(0.0, expected - SIGMAS * deviation), expected + SIGMAS * deviation
    return Figure(name, found / probes, low, high, expected, paper)


def document(sections: Iterable[Section], machine: str, seconds: float) -> str:
    """All of `results/acceptance.md`."""
    sections = list(sections)
    figures = [figure for section in sections for figure in section.figures]
    out = sum(not figure.holds for figure in figures)
    told = "\n".join(f"- {line}" for line in machine.splitlines())
    verdict = "all are within their bounds" if not out else f"**{out} are out of bounds**"
    head = f"""\
# Acceptance

What the literature says of each structure, what theory says, and what this library does, side by side. This page is
written by `python -m bench acceptance`, which ends with status 1 where a figure is out of its bounds.

- {len(figures)} figures, of which {verdict}; measured in {seconds:.0f} s
{told}

Where a figure was counted in a random experiment, it is allowed five standard deviations on either side of what theory
expects, which a sound one exceeds once in a million times; all chance is seeded. Where paper and theory differ, theory
decides. "Error" is the share of keys, never added, that are reported present."""
    return "\n\n".join([head, *(section.markdown() for section in sections)]) + "\n"
