"""What the filters are to reach, at 10^8 keys and 1 %; the worst of adding, finding and not finding counts."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.harness import target

SIZE = "100000000"
WHAT = ("add", "hit", "miss")
SINGLE_US_MAX = 1.5

Figures = Mapping[str, float]


def judged(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each target with what was measured, and whether that is enough."""
    table = results["sizes"][SIZE]

    def ns(name: str, way: str, what: str) -> float:
        return float(table[name]["ns"][way][what])

    def times(first: tuple[str, str], second: tuple[str, str], what: Sequence[str]) -> Figures:
        return {each: ns(*first, each) / ns(*second, each) for each in what}

    def faster(ours: str, theirs: str, way: str, least: float) -> dict[str, Any]:
        given = {"digests": "digests given", "column": "from a column", "list": "from a list"}
        claim = f"`{ours}` against {theirs}, {given[way]}"
        found = times((theirs, way), (ours, way), WHAT)
        return _target(claim, f"at least {least:g} times as fast", found, least=least)

    def slower(ours: str, most: float) -> dict[str, Any]:
        claim = f"`{ours}` against `bloom`, additions from empty to full"
        found = times((ours, "digests"), ("bloom", "digests"), ["add"])
        return _target(claim, f"at most {most:g} times the time", found, most=most)

    singles = {
        f"{name} {what}": told["ns"]["single"][what] / 1000
        for name, told in table.items()
        if "digests" in told["ns"]
        for what in WHAT
        if told["ns"]["single"][what]
    }
    worst = max(singles, key=lambda name: singles[name])
    middle = sorted(singles.values())[len(singles) // 2]
    found = {worst: singles[worst], "median": middle}
    return [
        faster("bloom", "rbloom, mmh3", "column", 4),
        faster("blocked", "rbloom, mmh3", "column", 7),
        faster("bloom", "pybloom-live", "list", 10),
        faster("blocked", "bloom", "digests", 3),
        slower("dlcbf", 2),
        slower("cuckoo", 3),
        _target("a single key, every kind", "below 1.5 µs", found, most=SINGLE_US_MAX),
    ]


def _target(
    claim: str, wanted: str, found: Figures, least: float | None = None, most: float | None = None
) -> dict[str, Any]:
    """One of several figures, of which the worst counts."""
    met = all(target(claim, each, least=least, most=most)["met"] for each in found.values())
    measured = {what: round(value, 2) for what, value in found.items()}
    return {"claim": claim, "wanted": wanted, "measured": measured, "met": met}
