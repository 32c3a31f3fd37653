"""Results as text for a terminal and as the tables of results/filters.md, which a test holds equal to the results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "results" / "filters.md"
AT = "100000000"
WAYS = {"digests": "digests", "column": "column", "list": "list", "single": "one key"}
END = "<!-- end -->"
WHAT = ("add", "hit", "miss")

Table = Mapping[str, Any]


def put_between(document: Path, begin: str, end: str, text: str) -> None:
    """Put `text` into `document`, in the place of what stands between these two lines."""
    before, _, rest = document.read_text("utf-8").partition(begin)
    after = rest.partition(end)[2]
    document.write_text("\n\n".join([before + begin, text, end + after]), "utf-8")


def text_table(table: Table, skipped: Mapping[str, str]) -> str:
    """One size, ns a key."""
    head = f"{'':14}{'bits':>8}{'filled':>8}" + "".join(f"{way:>24}" for way in WAYS)
    lines = [head, f"{'ns a key':30}" + "".join(f"{what:>8}" for _ in WAYS for what in WHAT)]
    for name, told in table.items():
        cells = [_number(told["ns"].get(way, {}).get(what)) for way in WAYS for what in WHAT]
        line = f"{name:14}{told['bits_a_key']:8.1f}{told['filled']:8.0%}"
        lines.append(line + "".join(f"{cell:>8}" for cell in cells))
    lines += [f"{name:14}not measured: {why}" for name, why in skipped.items()]
    return "\n".join(lines) + "\n"


def machine_text(results: Table) -> str:
    """What the figures depend on."""
    found = results["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    return (
        f"{found['processor']}, {found['cores']} cores, L2 {found['l2_bytes'] / 2**20:.0f} MiB, L3"
        f" {found['l3_bytes'] / 2**20:.0f} MiB, {found['memory_bytes'] / 2**30:.0f} GiB of memory, huge pages"
        f" {found['huge_pages']}\n{found['platform']}, Python {found['python']}, {versions}\n"
        f"load {results['load'][0]} before, {results['load'][1]} after; in {results['disturbed']:.0%} of"
        f" {results['calls']:,} calls somebody else took the processor; {results['minutes']} minutes"
    )


def targets_text(targets: Sequence[Table]) -> str:
    """Which are met."""
    return "\n".join(
        f"{'met   ' if target['met'] else 'MISSED'}  {target['claim']}: {target['wanted']}; {_ratios(target)}"
        for target in targets
    )


def write(results: Table) -> None:
    """Put the tables into the page, each between its comments."""
    text = PAGE.read_text("utf-8")
    for name, table in tables(results).items():
        begin = f"<!-- measured: {name} -->\n"
        before, _, rest = text.partition(begin)
        text = before + begin + "\n" + table + "\n" + rest[rest.index(END) :]
    PAGE.write_text(text, "utf-8")


def tables(results: Table) -> dict[str, str]:
    """The tables of the page, by name, as markdown."""
    return {
        "machine": _machine(results),
        "kinds": _kinds(results["sizes"][AT]),
        "sizes": _sizes(results),
        "peers": _peers(results["sizes"][AT]),
        "small": _peers(results["sizes"]["100000"]),
        "errors": _errors(results["errors"]),
        "targets": _targets(results["targets"]),
    }


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


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


def _targets(targets: Sequence[Table]) -> str:
    rows = [
        [told["claim"], told["wanted"], _ratios(told), "met" if told["met"] else "**missed**"]
        for told in targets
    ]
    return markdown(["What", "Wanted", "Measured", ""], rows)


def _ours(table: Table) -> Table:
    return {name: told for name, told in table.items() if "digests" in told["ns"]}


def _ratios(target: Table) -> str:
    return ", ".join(f"{what} {value:g}" for what, value in target["measured"].items())


def _number(ns: float | None) -> str:
    if ns is None:
        return "-"
    return f"{ns:.0f}" if ns >= 10 else f"{ns:.1f}"
