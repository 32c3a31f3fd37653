"""`python -m bench.blacklist`: lists of 100 M addresses, built, loaded and asked; the table of results/lists.md.

Each kind is built by `streamdedup lists build` from one file of text, in a process of its own. Ends with status 1 where
an address that is there is not found, or more that are not are found than the error rate explains.
"""

import argparse
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.machine import machine
from bench.report import put_between
from streamdedup import lists
from streamdedup.events import Column
from tests.filters.cases import SIGMAS

DOCUMENT = Path(__file__).parents[1] / "results" / "lists.md"
BEGIN, END = "<!-- written by `python -m bench.blacklist` -->", "<!-- end -->"

PRESENT, ABSENT = 1_000_000, 10_000_000
BATCH = 8_192
CHUNK = 1_000_000
KINDS = {"fuse": 2.0**-8, "blocked": 0.004, "bloom": 0.004, "cuckoo": 0.004, "exact": 1e-6}
EXACT_OF_THE_LITERATURE = 16  # bytes a key: a table of 128-bit digests, full

Addresses = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Row:
    """What one kind takes; seconds, bytes, and how many of PRESENT were missed and of ABSENT were found."""

    kind: str
    error_rate: float
    build_s: float
    build_bytes: int
    size_bytes: int
    load_s: float
    ns: float
    missed: int
    found: int


def main() -> int:
    """Measure all kinds, and write the table; of fewer addresses only print it."""
    parser = argparse.ArgumentParser(prog="python -m bench.blacklist", description=__doc__)
    parser.add_argument("--addresses", type=int, default=100_000_000, metavar="N")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    arguments = parser.parse_args()
    count = arguments.addresses
    with tempfile.TemporaryDirectory(prefix="streamdedup-bench-") as name:
        directory = Path(name)
        written = write(directory / "addresses.txt", count)
        rows = []
        for kind in arguments.kinds:
            rows.append(_measured(directory, kind, count))
            print(rows[-1], flush=True)
    text = "\n".join(_table(rows, count, written))
    print(text)
    if (count, arguments.kinds) == (parser.get_default("addresses"), list(KINDS)):
        put_between(DOCUMENT, BEGIN, END, text)
    wrong = [row.kind for row in rows if row.missed or row.found > _found_max(row.error_rate)]
    print(f"wrong: {', '.join(wrong)}" if wrong else "as promised", file=sys.stderr)
    return 1 if wrong else 0


def addresses(numbers: npt.NDArray[np.int64]) -> Addresses:
    """Those with these numbers, each a row of the same width, with a newline at its end."""
    parts: list[Any] = [b"u", (numbers, 9), b"@mail", (numbers * 7919 % 1000, 3), b".example\n"]
    columns = []
    for part in parts:
        if isinstance(part, bytes):
            columns.append(
                np.broadcast_to(np.frombuffer(part, np.uint8), (len(numbers), len(part)))
            )
        else:
            values, digits = part
            powers = 10 ** np.arange(digits - 1, -1, -1)
            columns.append((values[:, None] // powers % 10 + ord("0")).astype(np.uint8))
    return np.concatenate(columns, axis=1)


def write(path: Path, count: int) -> int:
    """The file of the first `count` addresses, in an order that is not theirs; its size in bytes."""
    with path.open("wb") as file:
        chunks = np.random.default_rng(1).permutation(range(0, count, CHUNK))
        for start in chunks.tolist():
            file.write(addresses(np.arange(start, min(start + CHUNK, count))).tobytes())
    return path.stat().st_size


def _measured(directory: Path, kind: str, count: int) -> Row:
    output = directory / f"{kind}.list"
    build_s, resident = build(directory, kind, output)
    _asked(lists.load(output), np.arange(BATCH))  # compiled, or imported, once
    began = perf_counter()
    built = lists.load(output)
    load_s = perf_counter() - began
    rng = np.random.default_rng(2)
    present = rng.choice(count, min(PRESENT, count), replace=False)
    hits, _ = _asked(built, present)
    missed = len(present) - hits
    found, seconds = _asked(built, np.arange(count, count + ABSENT))
    size_bytes = output.stat().st_size
    output.unlink()
    ns = seconds / ABSENT * 1e9
    rate = built.error_rate
    return Row(kind, rate, build_s, resident, size_bytes, load_s, ns, missed, found)


def build(directory: Path, kind: str, output: Path, *options: str) -> tuple[float, int]:
    """Have the command build a list of what `write` wrote into `directory`: the seconds, and the bytes of memory."""
    command = [
        *(sys.executable, "-m", "streamdedup", "lists", "build", str(directory / "addresses.txt")),
        *("-o", str(output), "--kind", kind, "--error-rate", str(KINDS[kind])),
        *("--normalize", "email", *options),
    ]
    began = perf_counter()
    child = os.posix_spawn(sys.executable, command, os.environ)
    _, status, usage = os.wait4(child, 0)
    build_s = perf_counter() - began
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(command)} failed")
    return build_s, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def batches(numbers: npt.NDArray[np.int64]) -> Iterator[Column]:
    """The addresses with these numbers, as a worker has them."""
    for start in range(0, len(numbers), BATCH):
        rows = addresses(numbers[start : start + BATCH])
        count, width = rows.shape
        yield Column(rows.tobytes(), np.arange(count) * width, np.full(count, width - 1))


def _asked(built: lists.KeyList, numbers: npt.NDArray[np.int64]) -> tuple[int, float]:
    """How many of these addresses are found, and the seconds that hashing and asking took."""
    found, seconds = 0, 0.0
    for column in batches(numbers):
        began = perf_counter()
        digests = built.hash.of_column(column)
        found += int(np.count_nonzero(built.match(column, digests)))
        seconds += perf_counter() - began
    return found, seconds


def _found_max(rate: float) -> float:
    """How many of ABSENT may be found: what is expected, and SIGMAS deviations."""
    expected = rate * ABSENT
    return expected + SIGMAS * math.sqrt(max(expected, 1.0))


def _table(rows: Sequence[Row], count: int, written: int) -> Iterator[str]:
    yield f"{count:,} addresses, {written / 1e9:.2f} GB of text, `--normalize email`."
    yield from (f"{line}." for line in machine("numpy", "numba").splitlines())
    yield ""
    yield (
        "| `--kind` | Error rate | Built in, s | Memory to build, MB | File, MB | Bytes a key | Loaded in, ms"
        f" | Of {PRESENT:,} that are there missed | Of {ABSENT:,} that are not found | Expected | ns to ask |"
    )
    yield "|" + "---|" * 11
    for row in rows:
        yield (
            f"| `{row.kind}` | {row.error_rate:.2g} | {row.build_s:.0f} | {row.build_bytes / 1e6:,.0f}"
            f" | {row.size_bytes / 1e6:,.0f} | {row.size_bytes / count:.2f} | {row.load_s * 1000:.0f} | {row.missed:,}"
            f" | {row.found:,} | at most {_found_max(row.error_rate):,.0f} | {row.ns:.0f} |"
        )
    yield ""
    yield (
        f"An exact table of 128-bit digests would take {EXACT_OF_THE_LITERATURE * count / 1e9:.1f} GB, as the"
        " literature has it. A file is loaded with all of its checksums verified."
    )


if __name__ == "__main__":
    if shutil.disk_usage(tempfile.gettempdir()).free < 8e9:
        sys.exit("8 GB of free space are needed in the directory for temporary files; see TMPDIR")
    sys.exit(main())
