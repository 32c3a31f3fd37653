"""The part of results/benchmarks.md that `python -m bench full` measures."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.harness import Found, machine_lines, markdown, verdict
from bench.worker import plots, results
from bench.worker.contenders import COPY, OURS
from bench.worker.saving import LATE_S, RATE

RESTART_S_MAX, RESTART_KEYS = 2.0, 100_000_000
STALL_MS_MAX = 1000 * LATE_S
HELD_S_MAX = 0.4
GROWTH_BYTES_MAX = 10_000_000
RESTART_HEADS = ("Keys", "From a snapshot", "From a fold alone", "Target")
GROWTH_HEADS = (
    *("streamdedup, k events/s", "copy", "ratio"),
    *("µs an event", "MB", "of these filters"),
)
GROWTH = {
    "capacity": "Keys of capacity",
    "partitions": "Partitions",
    "size": "Bytes of an event",
}

PEERS_HOW = """\
Kafka Streams in the base case: each variant in rounds of streamdedup, the copy and itself, and its output checked like
theirs. It chooses the partitions of its output by itself, so its events may be in any partition, but each must be
there once, byte for byte, and nothing else. It compiles its code as it runs, so its time begins when it is warm, or
after half of the input.
"""


def sections(full: Found) -> Iterator[str]:
    """Restart, snapshot, memory, latency, growth, peers."""
    cells = full["cells"]
    yield "## Restart, snapshots, memory, latency, growth, peers\n"
    yield _circumstances(full)
    yield "### Restart\n"
    yield (
        "From the start of the process to the first event that a reader of committed events receives, in seconds,"
        "\nwith 4 partitions: from a snapshot, and from a fold of the output alone. The kernel's cache is warm.\n"
    )
    yield _table(RESTART_HEADS, _below(cells, "restart/"), _restarted)
    yield "### Snapshots\n"
    yield _snapshot(_below(cells, "snapshot/"))
    yield "### Memory over time\n"
    yield _memory(cells["memory"])
    yield "### Latency\n"
    yield (
        "From the moment an event is due to be sent, in batches of 5 ms, to the moment a reader of committed events"
        "\nreceives it; 4 partitions, exactly once, in milliseconds.\n"
    )
    yield _latency(_below(cells, "latency/"))
    yield f"![Percentiles of latency against the commit interval]({plots.LATENCY.name})\n"
    for axis, head in GROWTH.items():
        yield f"### {head}\n"
        yield _table([head, *GROWTH_HEADS], _below(cells, f"growth/{axis}/"), _grown)
    yield (
        "Filters are empty at the start; all else is as in the base case. In the cases of capacity, the clock\n"
        "begins when all partitions are live and the memory of their filters is in place, because a virtual\n"
        "machine may get its memory only when it touches it, as slowly as its host decides.\n"
    )
    yield f"![Rate against capacity, partitions and size of an event]({plots.GROWTH.name})\n"
    yield "### Peers\n"
    yield PEERS_HOW
    peers = _below(cells, "peers/")
    yield _peers(peers)
    yield _configured(peers)
    if bound := _streams_bound(full["machine"]["cores"], cells):
        yield bound


def _circumstances(full: Found) -> str:
    return (
        f"Measured by `python -m bench full`, last on {full['measured']}, at commit {_commits(full['cells'])}:\n"
        f"{machine_lines(full['machine'])[0]}; broker: {full['broker']}.\n"
    )


def _commits(cells: Found) -> str:
    """Which sections were measured at which."""
    measured: dict[str, dict[str, None]] = {}
    for name, cell in cells.items():
        measured.setdefault(cell["commit"], {})[name.partition("/")[0]] = None
    if len(measured) == 1:
        return "".join(f"`{commit}`" for commit in measured)
    return " and ".join(f"`{commit}` ({', '.join(names)})" for commit, names in measured.items())


def _below(cells: Found, prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): cell for name, cell in cells.items() if name.startswith(prefix)
    }


def _table(heads: Sequence[str], found: Found, row: Callable[[str, Found], Sequence[str]]) -> str:
    """A row for each cell, begun by a number; of one that was left out, the reason."""
    rows = []
    for name, cell in found.items():
        left_out = f"left out: {cell.get('left_out')}", *[""] * (len(heads) - 2)
        rows.append([f"{int(name):,}", *(left_out if "left_out" in cell else row(name, cell))])
    return markdown(heads, rows)


def _restarted(keys: str, cell: Found) -> Sequence[str]:
    wanted = ""
    if int(keys) == RESTART_KEYS:
        wanted = _met(cell["loaded_median_s"] < RESTART_S_MAX, f"below {RESTART_S_MAX:g} s")
    return results.spread(cell["loaded_s"]), results.spread(cell["folded_s"]), wanted


def _snapshot(cells: Mapping[str, Found]) -> str:
    rows = [[f"`{kind}`", *_saved(cell)] for kind, cell in cells.items() if "left_out" not in cell]
    heads = [
        "Filter",
        "Size",
        "Seconds",
        "MB/s",
        "Commits held",
        "Stalls with one",
        "Stalls between",
        "Target",
    ]
    return (
        f"{markdown(heads, rows)}\nOne partition, at {RATE:,} events a second. A timer of the loop is due 50"
        f" times a second. The table counts\nthe beats that came more than {STALL_MS_MAX:g} ms late, with an upper"
        " bound of the latest, in the seconds in which a snapshot was\nwritten and in the seconds between. Commits are"
        " held while a filter whose cells move is copied. Feeder and broker take their share of the\nprocessors in"
        " both.\n"
    )


def _saved(cell: Found) -> list[str]:
    beats, held_s = cell["beats_with"], max(cell["held_s"])
    return [
        f"{cell['filter_bytes'] / 2**30:.2f} GiB",
        results.spread(cell["seconds"]),
        f"{statistics.median(cell['mb_a_s']):,.0f}",
        f"at most {held_s:.2f} s",
        _stalls(beats),
        _stalls(cell["beats_between"]),
        _met(
            not beats["late"] and held_s <= HELD_S_MAX,
            f"below {STALL_MS_MAX:g} ms, held {HELD_S_MAX:g} s at most",
        ),
    ]


def _stalls(beats: Found) -> str:
    return f"{beats['late']:,} of {beats['beats']:,}, at most {beats['at_most_ms']:g} ms"


def _memory(cell: Found) -> str:
    if "left_out" in cell:
        return f"Left out: {cell['left_out']}.\n"
    growth = cell["last_bytes"] - cell["first_bytes"]
    by_minute: dict[int, list[int]] = {}
    for at, size in cell["resident"]:
        by_minute.setdefault(int(at // 60) + 1, []).append(size)
    rows = [
        [str(minute), f"{statistics.median(sizes) / 1e6:,.1f}", f"{max(sizes) / 1e6:,.1f}"]
        for minute, sizes in by_minute.items()
    ]
    return (
        f"Resident memory, in MB, while {cell['rate']:,} events a second come in, {cell['events']:,} in all, each of"
        f" which was judged.\nThe filters take {cell['filter_bytes'] / 1e6:,.0f} MB, and snapshots are written.\n\n"
        f"{markdown(['Minute', 'Median', 'Most'], rows)}\n"
        f"From the {cell['span_s']:g} s after the first {cell['warm_s']:g} s to the last {cell['span_s']:g} s it grew"
        f" by {growth / 1e6:.1f} MB; {_met(growth <= GROWTH_BYTES_MAX, f'at most {GROWTH_BYTES_MAX / 1e6:g} MB')}.\n"
    )


def _latency(found: Found) -> str:
    rows = []
    for cell in found.values():
        percentiles = [f"{value:,.1f}" for value in cell["percentiles_ms"].values()]
        load = "not told" if cell["other_load"] is None else f"{cell['other_load']:.1%}"
        rate = f"{cell['rate']:,}"
        rows.append(
            [rate, f"{cell['commit_interval_ms']} ms", *percentiles, f"{cell['max_ms']:,.1f}", load]
        )
    heads = ["Events a second", "`commit_interval_ms`", "p50", "p99", "p99.9", "most", "Other load"]
    return markdown(heads, rows)


def _grown(_value: str, cell: Found) -> Sequence[str]:
    rounds = cell["rounds"]
    return (
        *(f"{results.rate(rounds, name) / 1000:,.0f}" for name in (OURS, COPY)),
        f"{statistics.median(results.ratios(rounds, COPY)):.2f}",
        f"{results.cpu_us(rounds, OURS):.2f}",
        f"{results.rss_bytes(rounds, OURS) / 1e6:,.0f}",
        f"{results.filter_bytes(rounds) / 1e6:,.1f}",
    )


def _peers(found: Found) -> str:
    rows = []
    for name, cell in found.items():
        about = [cell["what"], cell["version"], cell["guarantee"]]
        if "left_out" in cell:
            reason = cell["left_out"].replace("|", "\\|")
            rows.append([*about, f"left out: {reason}", "", "", "", "", ""])
            continue
        rounds = cell["rounds"]
        rows.append(
            [
                *about,
                f"{results.rate(rounds, name) / 1000:,.0f}",
                results.spread(results.ratios(rounds, name), digits=1),
                f"{statistics.median(results.ratios(rounds, COPY, of=name)):.2f}",
                f"{results.cpu_us(rounds, name):.1f}",
                f"{results.rss_bytes(rounds, name) / 1e6:,.0f}",
                results.other_load(rounds, "not told"),
            ]
        )
    heads = [
        "Peer",
        "Version",
        "Guarantee",
        "k events/s",
        "streamdedup's rate by its (all rounds)",
        "its rate by the copy's",
        "µs an event",
        "MB",
        "Other load, at most",
    ]
    return markdown(heads, rows)


def _streams_bound(processors: int, cells: Found) -> str | None:
    """Why the target was missed, where it was."""
    target = results.streams_target(cells)
    if target is None or target["met"]:
        return None
    fastest = max(
        results.STREAMS, key=lambda name: results.rate(cells[f"peers/{name}"]["rounds"], name)
    )
    rounds = cells[f"peers/{fastest}"]["rounds"]
    ours_us, broker_us = results.cpu_us(rounds, OURS), results.broker_us(rounds, OURS)
    if broker_us is None:
        return None
    wanted = results.STREAMS_RATIO_MIN * results.rate(rounds, fastest)
    both_us = ours_us + broker_us
    return (
        f"Ten times Kafka Streams would be {wanted / 1000:,.0f} thousand events a second. For each event of"
        f" streamdedup, the broker takes {broker_us:.2f} µs\nof processor and streamdedup {ours_us:.2f}, so that would"
        f" need {wanted * both_us / 1e6:.1f} processors; there are {processors}, and both share them. Kafka Streams"
        " was tuned as\nits line says. How either uses more processors was not measured.\n"
    )


def _configured(found: Found) -> str:
    """A line for each."""
    lines = []
    for cell in found.values():
        warm = (
            f"after {cell['warm_s']:g} s of warming up"
            if cell["warm_s"]
            else "from its first event on"
        )
        measured = f"measured for {cell['seconds_max']:g} s at most, {warm}"
        lines.append(f"- **{cell['what']}**: {cell['configured']}; {measured}.\n")
    return "".join(lines)


def _met(met: bool, wanted: str) -> str:
    return f"{wanted}: {verdict(met)}"
