"""`python -m bench.exact_store`: the exact store of a list of 100 M addresses; its table in results/lists.md.

Built beside a list by `streamdedup lists build --exact`, then asked through the list, as a worker asks. Ends with
status 1 where an address that is there passes, or one that is not is blocked.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import numpy.typing as npt

from bench.blacklist import BATCH, DOCUMENT, batches, build, write
from bench.machine import machine
from bench.report import put_between
from streamdedup import lists
from streamdedup.lists.exact_store import ExactStore, place_of
from streamdedup.lists.verified_list import VerifiedList
from streamdedup.rules.lists import Answer, Match

BEGIN, END = "<!-- written by `python -m bench.exact_store` -->", "<!-- end of it -->"
KIND = "fuse"
PRESENT, ABSENT, COLD = 1_000_000, 10_000_000, 10_000


@dataclass(frozen=True)
class Found:
    """What a store takes; seconds and bytes. Lookups are in seconds for each, `_cold` with nothing of it in memory."""

    plain_s: float
    build_s: float
    build_bytes: int
    size_bytes: int
    open_s: float
    lookup_s: float
    lookup_cold_s: float | None
    absent_s: float
    missed: int
    wrong: int
    false_positives: int


def main() -> int:
    """Measure it, and write the table; of fewer addresses only print it."""
    parser = argparse.ArgumentParser(prog="python -m bench.exact_store", description=__doc__)
    parser.add_argument("--addresses", type=int, default=100_000_000, metavar="N")
    count = parser.parse_args().addresses
    with tempfile.TemporaryDirectory(prefix="streamdedup-bench-") as name:
        write(Path(name) / "addresses.txt", count)
        found = _measured(Path(name), count)
    text = "\n".join(_table(found, count))
    print(text)
    if count == parser.get_default("addresses"):
        put_between(DOCUMENT, BEGIN, END, text)
    is_right = not (found.missed or found.wrong)
    print("as promised" if is_right else f"wrong: {found}", file=sys.stderr)
    return 0 if is_right else 1


def _measured(directory: Path, count: int) -> Found:
    output = directory / "block.list"
    plain_s, _ = build(directory, KIND, output)
    build_s, build_bytes = build(directory, KIND, output, "--exact")
    listed = lists.load(output)
    _asked(VerifiedList(listed, ExactStore.open(place_of(output), listed)), np.arange(BATCH))
    began = perf_counter()
    store = ExactStore.open(place_of(output), listed)
    open_s = perf_counter() - began
    verified = VerifiedList(listed, store)
    present = np.random.default_rng(2).choice(count, min(PRESENT + COLD, count), replace=False)
    hits, _, seconds = _asked(verified, present[COLD:])
    asked = len(present[COLD:])
    blocked, false_positives, absent_s = _asked(verified, np.arange(count, count + ABSENT))
    cold_s = None
    if _evicted(store):
        cold_s = _asked(verified, present[:COLD])[2] / len(present[:COLD])
    return Found(
        plain_s=plain_s,
        build_s=build_s,
        build_bytes=build_bytes,
        size_bytes=store.size_bytes,
        open_s=open_s,
        lookup_s=seconds / asked,
        lookup_cold_s=cold_s,
        absent_s=absent_s / ABSENT,
        missed=asked - hits,
        wrong=blocked,
        false_positives=false_positives,
    )


def _asked(verified: VerifiedList, numbers: npt.NDArray[np.int64]) -> tuple[int, int, float]:
    """How many of these addresses are blocked, how many false positives pass, and the seconds of all of it."""
    blocked, false_positives, seconds = 0, 0, 0.0
    for column in batches(numbers):
        began = perf_counter()
        digests = verified.base.hash.of_column(column)
        matches, answers = verified.verify(column, digests)
        seconds += perf_counter() - began
        blocked += int(np.count_nonzero(matches != Match.NONE))
        false_positives += int(np.count_nonzero(answers == Answer.FALSE_POSITIVE))
    return blocked, false_positives, seconds


def _evicted(store: ExactStore) -> bool:
    """Have the system forget what it holds of the store's file; False where it cannot be told to."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with store.path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def _table(found: Found, count: int) -> Iterator[str]:
    yield f"{count:,} addresses, `--kind {KIND} --error-rate 0.004 --normalize email --exact`."
    yield from (f"{line}." for line in machine("numpy").splitlines())
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| Built in, the list alone and with its store | {found.plain_s:.0f} s, {found.build_s:.0f} s |"
    yield f"| Memory to build both | {found.build_bytes / 1e6:,.0f} MB |"
    yield f"| The store | {found.size_bytes / 1e6:,.0f} MB, {found.size_bytes / count:.1f} bytes a key |"
    yield f"| Opened in, all checksums verified | {found.open_s:.2f} s |"
    yield f"| An address that is on the list, the store in the system's memory | {found.lookup_s * 1e6:.1f} µs |"
    if found.lookup_cold_s is not None:
        yield f"| The same, with nothing of the store in memory | {found.lookup_cold_s * 1e6:.0f} µs |"
    yield f"| An address that is not, among {ABSENT:,} | {found.absent_s * 1e9:.0f} ns |"
    yield f"| Of these, matched wrongly by the list, and let pass by the store | {found.false_positives:,} |"


if __name__ == "__main__":
    sys.exit(main())
