"""Restart: from the start of the process to the first event that a reader of committed events has.

The output holds so many keys before; it is written by us, since the worker's memory is the fold of its output. Once all
of it is folded, once it is in the snapshot that the worker wrote at its end.
"""

import asyncio
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.worker import log
from bench.worker.batches import encode, of_part
from bench.worker.cases import BASE, Case
from bench.worker.contenders import run_command
from bench.worker.events import Part
from bench.worker.measuring import contending
from tests.broker.topics import create_topic, delete_topic, unique_name

ROUNDS = 3
FIRST_S_MAX = 1800.0
HEADROOM = 1.1  # of the capacity, so that nothing is full


class _Place:
    """An output of `keys` keys, an input that gets one new event a partition for each start, and snapshots."""

    def __init__(self, bootstrap: str, keys: int, directory: Path) -> None:
        self._bootstrap, self._keys, self._directory = bootstrap, keys, directory
        self.source, self.sink = unique_name("bench-in"), unique_name("bench-out")
        self._group, self._starts = unique_name("bench"), 0
        for topic in (self.source, self.sink):
            create_topic(bootstrap, topic, BASE.partitions)

    async def fill(self) -> None:
        """Put the keys into the output."""
        keys = [np.arange(p, self._keys, BASE.partitions) for p in range(BASE.partitions)]
        model = [Part(numbers, np.ones(len(numbers), dtype=np.bool_)) for numbers in keys]
        async with log.opened(self._bootstrap, self.sink) as there:
            made = [
                there.append(p, of_part(BASE.form, part, "none")) for p, part in enumerate(model)
            ]
            await asyncio.gather(*made)

    def started_s(self) -> float:
        """Start a worker, wait for the first of the new events, end the worker: how long that event took."""
        asyncio.run(self._feed())
        ends = asyncio.run(self._ends())
        settings = Case(capacity=int(self._keys * HEADROOM)).settings(
            self._bootstrap, self._group, self.source, self.sink
        )
        settings["snapshot"] = {"directory": str(self._directory / "snapshots")}
        began = time.monotonic()
        with contending(run_command(settings, self._directory), self._directory) as worker:
            asyncio.run(self._first_behind(ends))
            took_s = time.monotonic() - began
            worker.wait_for("shard_live", BASE.partitions, FIRST_S_MAX)
            worker.end()
        return took_s

    def forget(self) -> None:
        """Without snapshots, the next start folds everything."""
        shutil.rmtree(self._directory / "snapshots", ignore_errors=True)

    def close(self) -> None:
        """Remove the topics."""
        for topic in (self.source, self.sink):
            delete_topic(self._bootstrap, topic)

    async def _feed(self) -> None:
        first = self._keys + self._starts * BASE.partitions
        async with log.opened(self._bootstrap, self.source) as there:
            for partition in range(BASE.partitions):
                numbers = np.array([first + partition], dtype=np.int64)
                made = encode(BASE.form, numbers, self._starts)
                await there.append(partition, [(self._starts, made)])
        self._starts += 1

    async def _ends(self) -> dict[int, int]:
        async with log.opened(self._bootstrap, self.sink) as there:
            found = await there.fetch(dict.fromkeys(range(BASE.partitions), 0))
        return {partition: each.end for partition, each in found.items()}

    async def _first_behind(self, ends: dict[int, int]) -> None:
        async with asyncio.timeout(FIRST_S_MAX), log.opened(self._bootstrap, self.sink) as there:
            while not any(each.batches for each in (await there.fetch(ends)).values()):
                pass


def restart(bootstrap: str, keys: int, *, rounds: int = ROUNDS) -> dict[str, Any]:
    """Seconds to the first event out, from a fold alone and from a snapshot, in turn."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        place = _Place(bootstrap, keys, Path(name))
        asyncio.run(place.fill())
        folded_s, loaded_s = [], []
        for _ in range(rounds):
            place.forget()
            folded_s.append(round(place.started_s(), 2))
            loaded_s.append(round(place.started_s(), 2))
        place.close()
    return {
        "keys": keys,
        "folded_s": folded_s,
        "loaded_s": loaded_s,
        "folded_median_s": statistics.median(folded_s),
        "loaded_median_s": statistics.median(loaded_s),
    }
