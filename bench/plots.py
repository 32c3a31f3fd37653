"""The two plots of results/filters.md, drawn from results/filters.json; and what all plots look like.

White ground, so that they can be read on a dark page, too; colours that colour-blind people can tell apart (Okabe, Ito
2008), each with a mark of its own. Each file names the results that it was drawn from; a test compares.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import harness

RESULTS = harness.RESULTS / "filters.json"
ERRORS = harness.RESULTS / "filters-bits.svg"
TIMES = harness.RESULTS / "filters-ns.svg"
FILLED = 0.999  # what was filled in part only is not shown
STYLES = {
    "bitmap": ("#999999", "x"),
    "blocked": ("#D55E00", "o"),
    "bloom": ("#000000", "s"),
    "counting": ("#E69F00", "^"),
    "cuckoo": ("#0072B2", "D"),
    "dlcbf": ("#56B4E9", "P"),
    "dleft": ("#009E73", "v"),
    "exact": ("#CC79A7", "*"),
    "fuse": ("#8C6D1F", "h"),
    "window": ("#6A3D9A", ">"),
}


def drawn_from(results: Mapping[str, Any]) -> str:
    """What both say of the results that they show."""
    return source("results/filters.json", [results["sizes"], results["errors"]])


def source(name: str, shown: object) -> str:
    """What a plot says of the results that it shows, as a digest."""
    text = json.dumps(shown, sort_keys=True)
    return f"{name} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def draw(results: Mapping[str, Any]) -> None:
    """Write both files; the same results give the same bytes."""
    with style():
        save(_bits_against_error(results), ERRORS, drawn_from(results))
        save(_ns_against_size(results), TIMES, drawn_from(results))


@contextmanager
def style() -> Iterator[None]:
    """What all plots look like, and that they do not depend on the day."""
    import matplotlib as mpl

    mpl.use("svg")
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "streamdedup",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#E4E4E4",
        "lines.linewidth": 1.4,
        "lines.markersize": 5,
    }
    with mpl.rc_context(settings):
        yield


def save(figure: Any, path: Path, of: str) -> None:  # noqa: ANN401 - a figure of matplotlib
    """Write a figure as SVG that says which results it was drawn from."""
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None, "Description": f"drawn from {of}"})
    pyplot.close(figure)
    lines = [line.rstrip() for line in path.read_text("utf-8").splitlines()]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def _bits_against_error(results: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a figure of matplotlib
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8.2, 4.6), layout="constrained")
    for name, points in results["errors"].items():
        colour, mark = STYLES[name]
        seen = [point for point in points if point["measured"] > 0]
        if seen:
            rates, bits = ([point[key] for point in seen] for key in ("measured", "bits_a_key"))
            axes.plot(rates, bits, color=colour, marker=mark, label=name)
        else:  # errors that nobody will meet
            bits_a_key = points[0]["bits_a_key"]
            axes.axhline(bits_a_key, color=colour, linestyle=":", label=f"{name}, no errors")
    limits = [0.2, 5e-6]
    bound = [-math.log2(rate) for rate in limits]
    axes.plot(limits, bound, color="#777777", linestyle="--", label="least possible")
    axes.set(xscale="log", yscale="log", xlabel="measured error, table at capacity")
    axes.set(ylabel="bits a key", title="Bits a key against the error, a million keys")
    axes.set(xlim=(0.25, 4e-6), ylim=(2, 1500))
    _plain_numbers(axes.yaxis, (2, 5, 10, 20, 50, 100, 200, 500, 1000))
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _ns_against_size(results: Mapping[str, Any]) -> Any:  # noqa: ANN401
    from matplotlib import pyplot

    figure, both = pyplot.subplots(1, 2, figsize=(9.6, 4.6), sharey=True, layout="constrained")
    titles = {"add": "Adding, from empty to full", "miss": "Asking for keys that are not there"}
    for axes, (what, title) in zip(both, titles.items(), strict=True):
        for name, (colour, mark) in STYLES.items():
            points = [
                (int(size), table[name]["ns"]["digests"][what])
                for size, table in results["sizes"].items()
                if name in table and table[name]["filled"] > FILLED
            ]
            axes.plot(*zip(*points, strict=True), color=colour, marker=mark, label=name)
        axes.set(xscale="log", yscale="log", title=title, xlabel="keys (capacity, at 1 %)")
        _plain_numbers(axes.yaxis, (2, 5, 10, 20, 50, 100, 200, 500))
    both[0].set_ylabel("ns a key, digests given")
    both[1].legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _plain_numbers(axis: Any, numbers: tuple[int, ...]) -> None:  # noqa: ANN401
    axis.set_ticks(numbers, [str(number) for number in numbers])
    axis.set_ticks([], minor=True)
