"""`python -m bench pipe`: `streamdedup pipe` beside huniq, awk and another checkout of ours, by turns.

All copy the same lines, from a file to a file, and from a pipe to a pipe. What each lets pass is counted before its
time counts. huniq (`cargo install huniq`) keeps 64 bits a line in memory, awk the lines. With `--beside DIR`, the
checkout there, with its own .venv, has its turn, too.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from bench.harness import RESULTS, ROOT, machine_text, markdown, target, targets_table, today, turns
from bench.samples import digits

LINES = 20_000_000
SIZE_BYTES = 26  # of a line
CHUNK = 1_000_000
LACKING_MAX = 40  # lines of 8.65 M, at an error rate of 1e-6
ROUNDS = 3
PAGE = RESULTS / "pipe.md"
ABOUT = """Made by `python -m bench pipe`: lines of 26 bytes, drawn from half as many, so that 43 % of them are new.
Each command copies the first of equal lines, from a file to a file, and from a pipe to a pipe; the median of {rounds}
rounds in which they take turns. CPU is that of the command alone, and memory the most that its process took.
`streamdedup pipe` runs with its defaults: SipHash under a secret, a filter of 10M keys at an error rate of 1e-6, which
dropped {lacking} of {new:,} new lines wrongly, at most. huniq errs where two of its hashes of 64 bits are equal. It
calls the system for each line that it writes."""


@dataclass(frozen=True)
class Contender:
    """A command that copies lines, and the directory that it runs in."""

    command: Sequence[str]
    directory: Path = ROOT


class Took(NamedTuple):
    """What one run took."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


class Measured(NamedTuple):
    """What each run took, by its way and name; the number of new lines, and how many of them did not pass, at most."""

    took: Mapping[tuple[str, str], list[Took]]
    new: int
    lacking: int


def main() -> int:
    """Print the tables, and write the page if all lines were copied; status 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench pipe", description=__doc__)
    parser.add_argument("--lines", type=int, default=LINES, metavar="N")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--beside", type=Path, metavar="DIR", help="another checkout")
    parser.add_argument("--without", nargs="*", default=[], metavar="NAME")
    asked = parser.parse_args()
    found = {
        name: one for name, one in contenders(asked.beside).items() if name not in asked.without
    }
    with tempfile.TemporaryDirectory(prefix="streamdedup-bench-") as name:
        lines, out = Path(name) / "lines.txt", Path(name) / "out.txt"
        measured = rounds(found, lines, out, asked.rounds, write(lines, asked.lines))
    targets = list(judged(measured.took))
    text = page(measured, targets, asked.lines, asked.rounds)
    print(text, end="")
    if asked.lines == LINES and not (asked.beside or asked.without):
        PAGE.write_text(text, "utf-8")
    return not all(told["met"] for told in targets)


def contenders(beside: Path | None) -> dict[str, Contender]:
    """Those that are installed."""
    ours = ("-m", "streamdedup", "pipe")
    found = {"streamdedup pipe": Contender((sys.executable, *ours))}
    if beside is not None:
        found["the other checkout"] = Contender((str(beside / ".venv/bin/python"), *ours), beside)
    others = {"huniq": ("huniq",), "awk": ("awk", "!seen[$0]++")}
    return found | {
        name: Contender(command) for name, command in others.items() if shutil.which(command[0])
    }


def write(path: Path, count: int) -> int:
    """The file of so many lines; returns how many of them are new."""
    drawn, known = np.random.default_rng(1), np.zeros(count // 2, np.bool_)
    with path.open("wb") as file:
        for start in range(0, count, CHUNK):
            numbers = drawn.integers(len(known), size=min(CHUNK, count - start))
            known[numbers] = True
            row = np.empty((len(numbers), SIZE_BYTES), np.uint8)
            row[:] = np.frombuffer(b"u000000000000@example.org\n", np.uint8)
            row[:, 1:13] = digits(numbers * 7919 % 10**12)
            file.write(row.tobytes())
    return int(np.count_nonzero(known))


def rounds(
    found: Mapping[str, Contender], lines: Path, out: Path, number: int, new: int
) -> Measured:
    """Measure all by turns. The first run of each, which may compile, does not count."""
    took: dict[tuple[str, str], list[Took]] = {}
    lacking = 0
    for one in found.values():
        subprocess.run(
            one.command, cwd=one.directory, input=b"a\nb\na\n", capture_output=True, check=True
        )
    for turn in range(number):
        for name in turns([*found], turn):
            took.setdefault(("file", name), []).append(from_file(found[name], lines, out))
            lacks = new - out.stat().st_size // SIZE_BYTES
            if not 0 <= lacks <= LACKING_MAX:
                raise SystemExit(f"{name} let other lines pass: {lacks} of {new} are missing")
            lacking = max(lacking, lacks)
            took.setdefault(("pipe", name), []).append(from_pipe(found[name], lines))
    return Measured(took, new, lacking)


def from_file(one: Contender, lines: Path, out: Path) -> Took:
    """Copy the file."""
    with lines.open("rb") as source, out.open("wb") as sink:
        return timed(one, source.fileno(), sink.fileno())


def from_pipe(one: Contender, lines: Path) -> Took:
    """Copy what `cat` writes, to another one."""
    (read, fed), (drained, written) = os.pipe(), os.pipe()
    with (
        subprocess.Popen(["cat", lines], stdout=fed) as source,
        subprocess.Popen(["cat"], stdin=drained, stdout=subprocess.DEVNULL) as sink,
    ):
        for end in (fed, drained):
            os.close(end)
        took = timed(one, read, written)
        for end in (read, written):
            os.close(end)
    if source.returncode or sink.returncode:
        raise SystemExit("cat failed")
    return took


def timed(one: Contender, source: int, sink: int) -> Took:
    """Run the command once."""
    began = perf_counter()
    with subprocess.Popen(
        one.command, cwd=one.directory, stdin=source, stdout=sink, stderr=subprocess.DEVNULL
    ) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    wall_s = perf_counter() - began
    if child.returncode:
        raise SystemExit(f"{' '.join(one.command)} ended in {child.returncode}")
    return Took(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def median(took: Sequence[Took]) -> Took:
    """Of each figure."""
    return Took(*(statistics.median(figures) for figures in zip(*took, strict=True)))


def judged(measured: Mapping[tuple[str, str], list[Took]]) -> Iterator[dict[str, Any]]:
    """What is to be reached, beside whatever took part."""
    ours = "streamdedup pipe"
    for (way, name), took in measured.items():
        if name == ours:
            continue
        most = 1 / 1.6 if name == "the other checkout" else 1.0
        mine, theirs = median(measured[way, ours]), median(took)
        for what, figure in zip(("wall time", "CPU"), range(2), strict=True):
            yield target(f"{what} of {name}'s, {way}", mine[figure] / theirs[figure], most=most)
        yield target(f"memory of {name}'s, {way}", mine.peak_bytes / theirs.peak_bytes, most=1.0)


def page(measured: Measured, targets: Sequence[dict[str, Any]], lines: int, number: int) -> str:
    """What was measured, as a page."""
    rows = []
    for (way, name), took in measured.took.items():
        one = median(took)
        speed = f"{one.cpu_s / lines * 1e9:.0f}", f"{lines / one.wall_s:,.0f}"
        memory = f"{one.peak_bytes / 1e6:.0f}"
        rows.append([name, way, f"{one.wall_s:.1f}", f"{one.cpu_s:.1f}", *speed, memory])
    heads = ["Command", "From and to a", "Wall s", "CPU s", "CPU ns a line", "Lines a second", "MB"]
    parts = [
        "# Lines, as measured",
        ABOUT.format(rounds=number, new=measured.new, lacking=measured.lacking),
        machine_text("numba", "numpy"),
        f"Measured on {today()}: {lines:,} lines.",
        markdown(heads, sorted(rows, key=lambda row: row[1])),
        targets_table("Ratio", targets),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
