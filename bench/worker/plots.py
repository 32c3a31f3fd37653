"""The plots of results/benchmarks.md; each file names the results that it was drawn from, and a test compares."""

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import plots
from bench.worker import results
from bench.worker.contenders import CONTENDERS, COPY, LOOP, OURS

DIRECTORY = results.DIRECTORY
CASES = DIRECTORY / "benchmarks-cases.svg"
LATENCY = DIRECTORY / "benchmarks-latency.svg"
GROWTH = DIRECTORY / "benchmarks-growth.svg"
STYLES = {OURS: ("#0072B2", "o"), COPY: ("#E69F00", "s"), LOOP: ("#009E73", "^")}
AXES = {"capacity": "keys of capacity", "partitions": "partitions", "size": "bytes of an event"}

Found = Mapping[str, Any]


def drawn_from(shown: object) -> str:
    """What a plot says of the results that it shows."""
    return "results " + hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:16]


def shown(throughput: Found, full: Found) -> dict[Path, Any]:
    """The results that each plot shows; a plot without any is not drawn."""
    cells = full.get("cells", {})
    all_of_them = {
        CASES: throughput.get("cases", {}),
        LATENCY: {name: cell for name, cell in cells.items() if name.startswith("latency/")},
        GROWTH: {name: cell for name, cell in cells.items() if name.startswith("growth/")},
    }
    return {path: found for path, found in all_of_them.items() if found}


def draw(throughput: Found, full: Found, directory: Path = DIRECTORY) -> None:
    """Write the files of all plots that have results; the same results give the same bytes."""
    makers = {CASES: _cases, LATENCY: _latency, GROWTH: _growth}
    with plots.style():
        for path, found in shown(throughput, full).items():
            plots.save(makers[path](found), directory / path.name, drawn_from(found))


def _cases(cases: Found) -> Any:  # noqa: ANN401 - a figure of matplotlib
    from matplotlib import pyplot

    names = [told["case"]["what"].replace("`", "") for told in cases.values()]
    figure, axes = pyplot.subplots(figsize=(8.2, 0.5 * len(names) + 1.6), layout="constrained")
    for place, (name, contender) in enumerate(CONTENDERS.items()):
        rates = [
            statistics.median(results.rates(told["rounds"], name)) / 1000 for told in cases.values()
        ]
        at = [row + 0.27 * (place - 1) for row in range(len(names))]
        axes.barh(at, rates, height=0.25, color=STYLES[name][0], label=contender.what)
    axes.set_axisbelow(True)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlabel="thousand events a second, median", title="One thing changed at a time")
    axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3)
    return figure


def _latency(cells: Found) -> Any:  # noqa: ANN401
    from matplotlib import pyplot

    rates = sorted({cell["rate"] for cell in cells.values()})
    figure, row = pyplot.subplots(
        1, len(rates), figsize=(9.6, 4.2), sharey=True, layout="constrained", squeeze=False
    )
    for axes, rate in zip(row[0], rates, strict=True):
        of_rate = [cell for cell in cells.values() if cell["rate"] == rate]
        for style, percentile in zip(STYLES.values(), of_rate[0]["percentiles_ms"], strict=True):
            points = [(c["commit_interval_ms"], c["percentiles_ms"][percentile]) for c in of_rate]
            _line(axes, points, style, f"p{percentile}")
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="commit_interval_ms",
            title=f"{rate:,} events a second",
        )
    row[0][0].set_ylabel("latency, ms")
    row[0][-1].legend(frameon=False, fontsize=9)
    return figure


def _growth(cells: Found) -> Any:  # noqa: ANN401
    from matplotlib import pyplot

    figure, row = pyplot.subplots(
        1, len(AXES), figsize=(11, 4.2), sharey=True, layout="constrained"
    )
    for axes, (axis, label) in zip(row, AXES.items(), strict=True):
        below = {
            int(name.rpartition("/")[2]): cell["rounds"]
            for name, cell in cells.items()
            if name.startswith(f"growth/{axis}/") and "rounds" in cell
        }
        for name in (OURS, COPY):
            points = [
                (value, statistics.median(results.rates(rounds, name)) / 1000)
                for value, rounds in below.items()
            ]
            _line(axes, points, STYLES[name], CONTENDERS[name].what)
        axes.set(xscale="log", xlabel=label, ylim=(0, None))
    row[0].set_ylabel("thousand events a second")
    row[-1].legend(frameon=False, fontsize=9)
    return figure


def _line(
    axes: Any,  # noqa: ANN401
    points: Sequence[tuple[float, float]],
    style: tuple[str, str],
    label: str,
) -> None:
    xs, ys = [point[0] for point in points], [point[1] for point in points]
    axes.plot(xs, ys, color=style[0], marker=style[1], label=label)
