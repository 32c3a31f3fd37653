"""`python -m bench filters`: every kind against the libraries that people use today, in less than a quarter of an hour.

At capacities of 10^5 to 10^9 keys and an error rate of 1 %; see `bench.measure` for how, `bench.contenders` for whom.
Prints the tables and which targets are met, writes results/filters.json, and draws from it the plots and the
tables of results/filters.md.
"""

import argparse
import gc
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import clock, contenders, errors, measure, report, targets

RESULTS = Path(__file__).parents[1] / "results" / "filters.json"
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
    started, before = time.monotonic(), clock.load()
    watch = clock.Clock()
    contenders.compile_kernels()
    sizes: dict[str, Any] = {}
    skipped: dict[str, dict[str, str]] = {}
    for capacity in arguments.sizes:
        print(f"{capacity:,} keys, load {clock.load()}", flush=True)
        sizes[str(capacity)], skipped[str(capacity)] = _size(capacity, watch)
        print(report.text_table(sizes[str(capacity)], skipped[str(capacity)]), flush=True)
    results: dict[str, Any] = {
        "measured": datetime.now(UTC).date().isoformat(),
        "machine": clock.machine(),
        "limits_s": {"peers": PEER_FILL_S, "huge": HUGE_FILL_S},
        "minutes": 0.0,
        "load": [before, clock.load()],
        "calls": watch.calls,
        "disturbed": 0.0,
        "sizes": sizes,
        "not_measured": skipped,
        "errors": errors.measured(),
    }
    results["targets"] = targets.judged(results) if targets.SIZE in sizes else []
    results["minutes"] = round((time.monotonic() - started) / 60, 1)
    results["load"] = [before, clock.load()]
    results["disturbed"] = round(watch.disturbed / max(1, watch.calls), 3)
    print(report.machine_text(results))
    print(report.targets_text(results["targets"]))
    if arguments.output:
        arguments.output.parent.mkdir(exist_ok=True)
        arguments.output.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
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


def _size(capacity: int, watch: clock.Clock) -> tuple[dict[str, Any], dict[str, str]]:
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
