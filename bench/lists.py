"""`python -m bench lists`: lists of 100 M addresses, built, loaded and asked; the tables of results/lists.md.

Each kind is built by `streamdedup lists build` from one file of text, in a process of its own. With --exact, one is
built beside its exact store, then asked through it, as a worker asks. Ends with status 1 if an address that is there is
not found, or more that are not are found than the error rate explains, or than none.
"""

import argparse
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.harness import RESULTS, machine_text, markdown, put_between
from bench.samples import digits
from streamdedup import lists
from streamdedup.events import Column
from streamdedup.lists.exact_store import ExactStore, place_of
from streamdedup.lists.verified_list import VerifiedList
from streamdedup.rules.lists import Answer, Match
from tests.filters.cases import SIGMAS

DOCUMENT = RESULTS / "lists.md"
KINDS_PLACE = "<!-- written by `python -m bench lists` -->", "<!-- end -->"
EXACT_PLACE = "<!-- written by `python -m bench lists --exact` -->", "<!-- end of it -->"
HEADS = (
    *("`--kind`", "Error rate", "Built in, s", "Memory to build, MB", "File, MB", "Bytes a key"),
    *("Loaded in, ms", "Of 1,000,000 that are there missed", "Of 10,000,000 that are not found"),
    *("Expected", "ns to ask"),
)
ADDRESSES = 100_000_000
PRESENT, ABSENT, COLD = 1_000_000, 10_000_000, 10_000
BATCH = 8_192
CHUNK = 1_000_000
FREE_BYTES = 8e9
KINDS = {"fuse": 2.0**-8, "blocked": 0.004, "bloom": 0.004, "cuckoo": 0.004, "exact": 1e-6}
STORED = "fuse"
EXACT_OF_THE_LITERATURE = 16  # bytes a key: a table of 128-bit digests, full

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Ask = Callable[[Column], tuple[int, int]]


class Measured(NamedTuple):
    """The lines of a page, and whether the answers were as promised."""

    lines: list[str]
    is_right: bool


class Asked(NamedTuple):
    """How many addresses were found, how many more matched wrongly and passed, and the seconds for each."""

    found: int
    false_positives: int
    each_s: float


def main() -> int:
    """Measure, and write the table; of fewer addresses only print it."""
    parser = argparse.ArgumentParser(prog="python -m bench lists", description=__doc__)
    parser.add_argument("--addresses", type=int, default=ADDRESSES, metavar="N")
    parser.add_argument("--exact", action="store_true", help="a list with its exact store")
    asked = parser.parse_args()
    if asked.addresses >= ADDRESSES and shutil.disk_usage(tempfile.gettempdir()).free < FREE_BYTES:
        sys.exit("8 GB of free space are needed in the directory for temporary files; see TMPDIR")
    measure, place = (_stored, EXACT_PLACE) if asked.exact else (_kinds, KINDS_PLACE)
    with tempfile.TemporaryDirectory(prefix="streamdedup-bench-") as name:
        write(Path(name) / "addresses.txt", asked.addresses)
        measured = measure(Path(name), asked.addresses)
    text = "\n".join(measured.lines)
    print(text)
    if asked.addresses == ADDRESSES:
        put_between(DOCUMENT, *place, text)
    print("as promised" if measured.is_right else "wrong answers", file=sys.stderr)
    return 0 if measured.is_right else 1


def addresses(numbers: Numbers) -> Bytes:
    """Those with these numbers, each a row of the same width, with a newline at its end."""
    parts = (
        *(b"u", digits(numbers)[:, 3:]),
        *(b"@mail", digits(numbers * 7919 % 1000)[:, 9:], b".example\n"),
    )
    columns = [np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part for part in parts]
    rows = [np.broadcast_to(part, (len(numbers), part.shape[-1])) for part in columns]
    return np.concatenate(rows, axis=1)


def write(path: Path, count: int) -> None:
    """The file of the first `count` addresses, in an order that is not theirs."""
    with path.open("wb") as file:
        chunks = np.random.default_rng(1).permutation(range(0, count, CHUNK))
        for start in chunks.tolist():
            file.write(addresses(np.arange(start, min(start + CHUNK, count))).tobytes())


def _build(directory: Path, kind: str, *options: str) -> tuple[Path, float, int]:
    """Have the command build a list of what `write` wrote into `directory`: the seconds, and the bytes of memory."""
    output = directory / f"{kind}.list"
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
    return output, build_s, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _ask(ask: Ask, numbers: Numbers) -> Asked:
    """Ask for these addresses, in batches as a worker has them; hashing counts."""
    found, false_positives, seconds = 0, 0, 0.0
    for start in range(0, len(numbers), BATCH):
        rows = addresses(numbers[start : start + BATCH])
        count, width = rows.shape
        column = Column(rows.tobytes(), np.arange(count) * width, np.full(count, width - 1))
        began = perf_counter()
        more, wrongly = ask(column)
        seconds += perf_counter() - began
        found, false_positives = found + more, false_positives + wrongly
    return Asked(found, false_positives, seconds / len(numbers))


# --- every kind ---


def _kinds(directory: Path, count: int) -> Measured:
    rows, is_right = [], True
    for kind in KINDS:
        row, right = _kind(directory, kind, count)
        print(" | ".join(row), flush=True)
        rows.append(row)
        is_right &= right
    written = (directory / "addresses.txt").stat().st_size
    lines = [
        f"{count:,} addresses, {written / 1e9:.2f} GB of text, `--normalize email`.",
        *(f"{line}." for line in machine_text("numpy", "numba").splitlines()),
        "",
        markdown(HEADS, rows),
        f"An exact table of 128-bit digests would take {EXACT_OF_THE_LITERATURE * count / 1e9:.1f} GB, as the"
        " literature has it. A file is loaded with all of its checksums verified.",
    ]
    return Measured(lines, is_right)


def _kind(directory: Path, kind: str, count: int) -> tuple[Sequence[str], bool]:
    output, build_s, build_bytes = _build(directory, kind)
    _ask(_matches(lists.load(output)), np.arange(BATCH))  # compiled, or imported, once
    began = perf_counter()
    built = lists.load(output)
    load_s, size_bytes = perf_counter() - began, output.stat().st_size
    present = np.random.default_rng(2).choice(count, min(PRESENT, count), replace=False)
    missed = len(present) - _ask(_matches(built), present).found
    absent = _ask(_matches(built), np.arange(count, count + ABSENT))
    output.unlink()
    expected = built.error_rate * ABSENT
    found_max = expected + SIGMAS * math.sqrt(max(expected, 1.0))
    row = [
        *(f"`{kind}`", f"{built.error_rate:.2g}", f"{build_s:.0f}", f"{build_bytes / 1e6:,.0f}"),
        *(f"{size_bytes / 1e6:,.0f}", f"{size_bytes / count:.2f}", f"{load_s * 1000:.0f}"),
        *(f"{missed:,}", f"{absent.found:,}", f"at most {found_max:,.0f}"),
        f"{absent.each_s * 1e9:.0f}",
    ]
    return row, not missed and absent.found <= found_max


def _matches(built: lists.KeyList) -> Ask:
    return lambda column: (
        int(np.count_nonzero(built.match(column, built.hash.of_column(column)))),
        0,
    )


# --- the exact store ---


def _stored(directory: Path, count: int) -> Measured:
    _, plain_s, _ = _build(directory, STORED)
    output, build_s, build_bytes = _build(directory, STORED, "--exact")
    listed = lists.load(output)
    _ask(_verifies(listed, ExactStore.open(place_of(output), listed)), np.arange(BATCH))
    began = perf_counter()
    store = ExactStore.open(place_of(output), listed)
    open_s, ask = perf_counter() - began, _verifies(listed, store)
    present = np.random.default_rng(2).choice(count, min(PRESENT + COLD, count), replace=False)
    there, absent = _ask(ask, present[COLD:]), _ask(ask, np.arange(count, count + ABSENT))
    rows = {
        "Built in, the list alone and with its store": f"{plain_s:.0f} s, {build_s:.0f} s",
        "Memory to build both": f"{build_bytes / 1e6:,.0f} MB",
        "The store": f"{store.size_bytes / 1e6:,.0f} MB, {store.size_bytes / count:.1f} bytes a key",
        "Opened in, all checksums verified": f"{open_s:.2f} s",
        "An address that is on the list, the store in the system's memory": f"{there.each_s * 1e6:.1f} µs",
    }
    if _evicted(store):
        cold_s = _ask(ask, present[:COLD]).each_s
        rows["The same, with nothing of the store in memory"] = f"{cold_s * 1e6:.0f} µs"
    rows |= {
        f"An address that is not, among {ABSENT:,}": f"{absent.each_s * 1e9:.0f} ns",
        "Of these, matched wrongly by the list, and let pass by the store": f"{absent.false_positives:,}",
    }
    lines = [
        f"{count:,} addresses, `--kind {STORED} --error-rate 0.004 --normalize email --exact`.",
        *(f"{line}." for line in machine_text("numpy").splitlines()),
        "",
        markdown(["", ""], rows.items()).rstrip(),
    ]
    return Measured(lines, there.found == len(present[COLD:]) and not absent.found)


def _verifies(listed: lists.KeyList, store: ExactStore) -> Ask:
    verified = VerifiedList(listed, store)

    def ask(column: Column) -> tuple[int, int]:
        matches, answers = verified.verify(column, verified.base.hash.of_column(column))
        blocked = int(np.count_nonzero(matches != Match.NONE))
        return blocked, int(np.count_nonzero(answers == Answer.FALSE_POSITIVE))

    return ask


def _evicted(store: ExactStore) -> bool:
    """Have the system forget what it holds of the store's file; False where it cannot be told to."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with store.path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


if __name__ == "__main__":
    sys.exit(main())
