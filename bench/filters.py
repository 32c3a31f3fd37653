"""`python -m bench filters`: every kind against the libraries that people use today, in less than a quarter of an hour.

At capacities of 10^5 to 10^9 keys and an error rate of 1 %; see `bench.measure` for how, `bench.contenders` for whom.
Prints the tables and which targets are met, writes results/filters.json, and draws from it the plots and the
tables of results/filters.md.
"""

import argparse
import gc
import sys
import time
from typing import Any

from bench import contenders, harness, measure, report, targets
from bench.harness import Clock, load
from bench.plots import RESULTS

PACKAGES = (
    *("numba", "numpy", "mmh3", "pyarrow"),
    *("rbloom", "fastbloom-rs", "pybloom-live", "pyprobables"),
)
SIZES = (100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
WITH_PEERS = (100_000, 100_000_000)
PEER_FILL_S = 15.0  # at 10^8; the slow ones would take up to 50 minutes
HUGE = 1_000_000_000
HUGE_FILL_S = 15.0  # of one kind; but `bloom` and `blocked` are filled
HUGE_FILLED = ("bloom", "blocked")
TABLE_BYTES_MAX = 6 << 30  # of one table: more may not be free


def main() -> int:
    """Run all, print, write and draw."""
    arguments = _arguments()
    gc.disable()  # nothing here has cycles, and a collection would fall on whoever's turn it is
    started, before = time.monotonic(), load()
    watch = Clock()
    contenders.compile_kernels()
    sizes: dict[str, Any] = {}
    skipped: dict[str, dict[str, str]] = {}
    for capacity in arguments.sizes:
        print(f"{capacity:,} keys, load {load()}", flush=True)
        sizes[str(capacity)], skipped[str(capacity)] = _size(capacity, watch)
        print(report.of_size(sizes[str(capacity)], skipped[str(capacity)]), flush=True)
    results: dict[str, Any] = {
        "measured": harness.today(),
        "machine": harness.machine(PACKAGES),
        "limits_s": {"peers": PEER_FILL_S, "huge": HUGE_FILL_S},
        "minutes": 0.0,
        "load": [before, load()],
        "calls": watch.calls,
        "disturbed": 0.0,
        "sizes": sizes,
        "not_measured": skipped,
        "errors": measure.errors(),
    }
    results["targets"] = targets.judged(results) if targets.SIZE in sizes else []
    results["minutes"] = round((time.monotonic() - started) / 60, 1)
    results["load"] = [before, load()]
    results["disturbed"] = round(watch.disturbed / max(1, watch.calls), 3)
    print(report.machine_text(results))
    print(harness.targets_table("What", results["targets"]))
    if arguments.output:
        harness.write(arguments.output, results)
        from bench import plots

        plots.draw(results)
        report.write(results)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(float(size)) for size in text.split(",")],
        default=SIZES,
        help="capacities, with commas between; nothing is written unless all of them are measured",
    )
    arguments = parser.parse_args()
    arguments.output = RESULTS if tuple(arguments.sizes) == SIZES else None
    return arguments


def _size(capacity: int, watch: Clock) -> tuple[dict[str, Any], dict[str, str]]:
    """One size: what was measured, and what was not and why."""
    names, skipped = [], {}
    for name in contenders.KINDS:
        size = contenders.size_bytes(name, capacity)
        if size > TABLE_BYTES_MAX:
            skipped[name] = f"a table of {size / 1e9:.1f} GB"
        elif name == "fuse" and capacity >= HUGE:
            skipped[name] = "building it takes 8 GB and minutes"
        else:
            names.append(name)
    if capacity in WITH_PEERS:
        names += contenders.PEERS
    limits = dict.fromkeys(contenders.PEERS, PEER_FILL_S)
    if capacity < HUGE:
        return measure.at_size(names, capacity, limits, watch), skipped
    found: dict[str, Any] = {}
    for name in names:  # one after the other: together they may not fit into memory
        limits = {} if name in HUGE_FILLED else {name: HUGE_FILL_S}
        found |= measure.at_size([name], capacity, limits, watch)
        gc.collect()
    return found, skipped


if __name__ == "__main__":
    sys.exit(main())
