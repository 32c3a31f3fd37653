"""Results as text for a terminal and as the tables of results/filters.md, which a test holds equal to the results."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.harness import RESULTS, machine_lines, markdown, put_between, targets_table

PAGE = RESULTS / "filters.md"
AT = "100000000"
END = "<!-- end -->"
WHAT = ("add", "hit", "miss")

Table = Mapping[str, Any]


def of_size(table: Table, skipped: Mapping[str, str]) -> str:
    """One size, ns a key."""
    left = "".join(f"{name} was not measured: {why}\n" for name, why in skipped.items())
    return f"{_kinds(table)}\n{_peers(table)}{left}"


def machine_text(results: Table) -> str:
    """What the figures depend on."""
    load = (
        f"load {results['load'][0]} before, {results['load'][1]} after; in {results['disturbed']:.0%} of"
        f" {results['calls']:,} calls somebody else took the processor; {results['minutes']} minutes"
    )
    return "\n".join([*machine_lines(results["machine"]), load])


def write(results: Table) -> None:
    """Put the tables into the page, each between its comments."""
    for name, table in tables(results).items():
        put_between(PAGE, f"<!-- measured: {name} -->", END, table.rstrip())


def tables(results: Table) -> dict[str, str]:
    """The tables of the page, by name, as markdown."""
    return {
        "machine": _machine(results),
        "kinds": _kinds(results["sizes"][AT]),
        "sizes": _sizes(results),
        "peers": _peers(results["sizes"][AT]),
        "small": _peers(results["sizes"]["100000"]),
        "errors": _errors(results["errors"]),
        "targets": targets_table("What", results["targets"]),
    }


def _machine(results: Table) -> str:
    limits = results["limits_s"]
    lines = [
        f"Measured on {results['measured']}.",
        *machine_text(results).splitlines(),
        f"Time to fill a table, at most: {limits['peers']:g} s for the other libraries at 100,000,000 keys,"
        f" {limits['huge']:g} s for ours at 1,000,000,000, but for `bloom` and `blocked`.",
    ]
    return "\n".join(f"- {line}" for line in lines) + "\n"


def _kinds(table: Table) -> str:
    rows = []
    for name, told in _ours(table).items():
        ns = told["ns"]
        rows.append(
            [f"`{name}`", f"{told['bits_a_key']:.1f}"]
            + [_number(ns["digests"][what]) for what in WHAT]
            + [_number(ns[way][what]) for way in ("column", "list") for what in ("add", "miss")]
            + [_number(ns["single"][what]) for what in ("add", "hit")]
        )
    heads = ["Kind", "Bits a key", "Add", "Hit", "Miss", "Column: add", "miss"]
    return markdown([*heads, "List: add", "miss", "One key: add", "hit"], rows)


def _sizes(results: Table) -> str:
    sizes = results["sizes"]
    names = list(_ours(sizes["100000"]))
    rows = []
    for name in names:
        cells = [f"`{name}`"]
        for size, table in sizes.items():
            if name not in table:
                cells.append(results["not_measured"][size][name])
                continue
            ns, filled = table[name]["ns"]["digests"], table[name]["filled"]
            part = "" if filled > 0.999 else f" (filled {filled:.0%})"
            cells.append(" / ".join(_number(ns[what]) for what in WHAT) + part)
        rows.append(cells)
    return markdown(["Kind", *(f"{int(size):,} keys" for size in sizes)], rows)


def _peers(table: Table) -> str:
    rows = []
    for name, told in table.items():
        if "digests" in told["ns"] and name not in ("bloom", "blocked"):
            continue
        ns, ours = told["ns"], "digests" in told["ns"]
        rows.append(
            [f"`{name}`" if ours else name, f"{told['bits_a_key']:.1f}", f"{told['filled']:.0%}"]
            + [_number(ns[way][what]) for way in ("list", "column", "single") for what in WHAT]
        )
    heads = ["", "Bits a key", "Filled", "List: add", "hit", "miss", "Column: add", "hit", "miss"]
    return markdown([*heads, "One key: add", "hit", "miss"], rows)


def _errors(errors: Mapping[str, Sequence[Table]]) -> str:
    rates = [point["asked"] for point in max(errors.values(), key=len)]
    rows = []
    for name, points in errors.items():
        found = {point["asked"]: point for point in points}
        rows.append(
            [f"`{name}`"]
            + [
                f"{found[rate]['bits_a_key']:.1f}: {found[rate]['measured']:.2g}"
                if rate in found
                else "too large"
                for rate in rates
            ]
        )
    return markdown(["Kind", *(f"{rate:g}" for rate in rates)], rows)


def _ours(table: Table) -> Table:
    return {name: told for name, told in table.items() if "digests" in told["ns"]}


def _number(ns: float | None) -> str:
    if ns is None:
        return "-"
    return f"{ns:.0f}" if ns >= 10 else f"{ns:.1f}"
