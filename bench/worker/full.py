"""`python -m bench full`: restart, memory, latency, growth, peers, an hour or more; it goes on where it was ended.

Each cell is written to results/worker-full.json as it is measured, with the commit, and not measured again until
the code changes, unless it was left out; results/benchmarks.md is written anew with each. `python -m bench full
restart latency` measures these parts only.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import psutil

from bench.entry import add_names
from bench.harness import commit, read
from bench.peers import streams
from bench.peers.streams import PEERS
from bench.worker import broker, lasting, page, results
from bench.worker.cases import BASE, Case
from bench.worker.contenders import CONTENDERS, COPY, OURS, Contender
from bench.worker.latency import latency
from bench.worker.restart import restart
from bench.worker.rounds import Round, Rounds
from bench.worker.saving import saving
from proof.chaos.results import code_id
from streamdedup.filters.sizing import bloom_size
from tests.broker.base import Unavailable

ROUNDS = 3
EVENTS_MAX = 4_000_000
INPUT_BYTES_MAX = 1_500_000_000
CAPACITY = "capacity"
CAPACITIES = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
PARTITIONS = (1, 4, 16, 64, 128)
SIZES = (120, 300, 1000, 3000, 10_000)
RATES = (10_000, 100_000)
SAVED = ("bloom", "cuckoo")  # one that is written as it is, and one that is copied
INTERVALS_MS = (10, 50, 100, 500)
KEYS = (10_000_000, 100_000_000)
CODE = ("streamdedup", "bench/worker")

Play = Callable[[str], dict[str, Any]]


@dataclass(frozen=True)
class Cell:
    """One thing that is measured; `bytes_needed` of memory must be free, else it is left out, with that reason.

    `beside` is the code of what runs beside the worker, for what its results depend on, too.
    """

    name: str
    play: Play
    bytes_needed: int = 0
    beside: str = ""

    @property
    def code(self) -> str:
        """Changes with all that its results depend on."""
        return " ".join(filter(None, (code_id(CODE), self.beside)))

    def is_in(self, found: Mapping[str, Any]) -> bool:
        """Whether it was measured, with the code as it is, and not left out."""
        told = found.get(self.name, {"left_out": "not there"})
        return "left_out" not in told and told["code"] == self.code


def main() -> int:
    """Measure what is not there yet."""
    parser = argparse.ArgumentParser(prog="python -m bench full", description=__doc__)
    add_names(parser, "SECTION", page.SECTIONS)
    names = parser.parse_args().names
    found = {"cells": {}, **read(page.FULL)}
    wanted = [
        cell
        for name in names or page.SECTIONS
        for cell in cells(name)
        if not cell.is_in(found["cells"])
    ]
    if not wanted:
        print(f"all there is was measured: {page.FULL}")
        return 0
    at, what = broker.found()
    try:
        # Not counted: the broker's code is compiled as it runs.
        latency(at.bootstrap_servers, max(RATES), max(INTERVALS_MS))
        found |= results.circumstances(what)
        for cell in wanted:
            found["cells"][cell.name] = _told(cell, at.bootstrap_servers)
            print(f"{cell.name}: {found['cells'][cell.name]}", flush=True)
            page.write(page.FULL, found)
    finally:
        at.close()
    return 0


def cells(section: str) -> Iterator[Cell]:
    """What a section measures."""
    if section == "restart":
        for keys in KEYS:
            yield Cell(f"restart/{keys}", partial(restart, keys=keys), 2 * _filter_bytes(keys))
    elif section == "snapshot":
        for kind in SAVED:
            yield Cell(f"snapshot/{kind}", partial(saving, kind=kind), 4 << 30)
    elif section == "memory":
        yield Cell("memory", lasting.lasting, _filter_bytes(lasting.EVENTS))
    elif section == "latency":
        for rate in RATES:
            for interval_ms in INTERVALS_MS:
                play = partial(latency, rate=rate, commit_interval_ms=interval_ms)
                yield Cell(f"latency/{rate}/{interval_ms}", play)
    elif section == "peers":
        for name in PEERS:
            yield Cell(f"peers/{name}", partial(beside, name), beside=streams.code_id())
    else:
        for case in growth_cases():
            yield Cell(f"growth/{case.name}", partial(_grown, case), _filter_bytes(case.capacity))


def growth_cases() -> Iterator[Case]:
    """The base case with one thing growing; never more new keys than its capacity."""
    for capacity in CAPACITIES:
        events = min(INPUT_BYTES_MAX // BASE.size, capacity)
        yield replace(BASE, name=f"{CAPACITY}/{capacity}", capacity=capacity, events=events)
    for partitions in PARTITIONS:
        yield replace(BASE, name=f"partitions/{partitions}", partitions=partitions)
    for size in SIZES:
        events = min(EVENTS_MAX, INPUT_BYTES_MAX // size)
        yield replace(BASE, name=f"size/{size}", size=size, events=events)


def beside(name: str, bootstrap: str, case: Case = BASE, rounds: int = ROUNDS) -> dict[str, Any]:
    """Rounds of the worker, the copy and a peer; the peer is left out where it cannot be had."""
    peer = PEERS[name]
    told = {
        "what": peer.what,
        "version": peer.version,
        "guarantee": peer.guarantee,
        "configured": peer.configured,
        "seconds_max": peer.seconds_max,
        "warm_s": peer.warm_s,
    }
    try:
        streams.prepare()
    except Unavailable as error:
        return {**told, "left_out": " ".join(str(error).split())}
    contenders = [CONTENDERS[OURS], CONTENDERS[COPY], peer]
    return {**told, "case": asdict(case), "rounds": _rounds(case, contenders, bootstrap, rounds)}


def _filter_bytes(capacity: int) -> int:
    return math.ceil(bloom_size(capacity, 1e-6)[0] / 8 * 1.5)


def _told(cell: Cell, bootstrap: str) -> dict[str, Any]:
    half = psutil.virtual_memory().available // 2
    if cell.bytes_needed > half:
        needed_gb, half_gb = cell.bytes_needed / 1e9, half / 1e9
        reason = (
            f"it needs {needed_gb:.1f} GB of memory, and half of what is free is {half_gb:.1f} GB"
        )
        told = {"left_out": reason}
    else:
        told = cell.play(bootstrap)
    return {**told, "code": cell.code, "commit": commit()}


def _grown(case: Case, bootstrap: str) -> dict[str, Any]:
    ours = replace(CONTENDERS[OURS], timed_live=case.name.startswith(CAPACITY))
    contenders = [ours, CONTENDERS[COPY]]
    return {"case": asdict(case), "rounds": _rounds(case, contenders, bootstrap, ROUNDS)}


def _rounds(
    case: Case, contenders: Sequence[Contender], bootstrap: str, count: int
) -> Sequence[Round]:
    playing = Rounds(bootstrap, contenders, math.inf, partial(print, flush=True))
    playing.play([case], count)
    playing.close()
    return playing.found[case.name]


if __name__ == "__main__":
    sys.exit(main())
