"""What the filters are to reach, at 10^8 keys and 1 %; the worst of adding, finding and not finding counts."""

from collections.abc import Mapping
from typing import Any

SIZE = "100000000"
WHAT = ("add", "hit", "miss")
SINGLE_NS_MAX = 1500


def judged(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each target with what was measured, and whether that is enough."""
    table = results["sizes"][SIZE]

    def ns(name: str, way: str, what: str) -> float:
        return float(table[name]["ns"][way][what])

    def faster(ours: str, theirs: str, way: str, times: float) -> dict[str, Any]:
        ratios = {what: ns(theirs, way, what) / ns(ours, way, what) for what in WHAT}
        given = {"digests": "digests given", "column": "from a column", "list": "from a list"}
        claim = f"`{ours}` against {theirs}, {given[way]}"
        return _target(claim, f"at least {times:g} times as fast", ratios, min, times)

    def slower(ours: str, times: float) -> dict[str, Any]:
        ratio = {"add": ns(ours, "digests", "add") / ns("bloom", "digests", "add")}
        claim = f"`{ours}` against `bloom`, additions from empty to full"
        return _target(claim, f"at most {times:g} times the time", ratio, max, times)

    singles = {
        f"{name} {what}": told["ns"]["single"][what] / 1000
        for name, told in table.items()
        if "digests" in told["ns"]
        for what in WHAT
        if told["ns"]["single"][what]
    }
    worst = max(singles, key=lambda name: singles[name])
    return [
        faster("bloom", "rbloom, mmh3", "column", 4),
        faster("blocked", "rbloom, mmh3", "column", 7),
        faster("bloom", "pybloom-live", "list", 10),
        faster("blocked", "bloom", "digests", 3),
        slower("dlcbf", 2),
        slower("cuckoo", 3),
        _target(
            "a single key, every kind",
            "below 1.5 µs",
            {worst: singles[worst], "median": sorted(singles.values())[len(singles) // 2]},
            max,
            SINGLE_NS_MAX / 1000,
        ),
    ]


def _target(
    claim: str,
    wanted: str,
    measured: Mapping[str, float],
    worst: Any,  # noqa: ANN401 - min or max
    bound: float,
) -> dict[str, Any]:
    reached = worst(measured.values())
    return {
        "claim": claim,
        "wanted": wanted,
        "measured": {what: round(value, 2) for what, value in measured.items()},
        "met": bool(reached >= bound if worst is min else reached <= bound),
    }
