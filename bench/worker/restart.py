"""Restart: from the start of the process to the first event that a reader of committed events has.

The output holds so many keys before; it is written by us, since the worker's memory is the fold of its output. Once all
of it is folded, once it is in the snapshot that the worker wrote at its end.
"""

import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.worker import log
from bench.worker.batches import encode, of_part
from bench.worker.cases import BASE, Case
from bench.worker.contenders import Topics, worker_command
from bench.worker.events import Part
from bench.worker.measuring import contending
from tests.broker.topics import unique_name

ROUNDS = 3
FIRST_S_MAX = 1800.0
HEADROOM = 1.1  # of the capacity, so that nothing is full
PARTITIONS = range(BASE.partitions)


def restart(bootstrap: str, keys: int, *, rounds: int = ROUNDS) -> dict[str, Any]:
    """Seconds to the first event out, from a fold alone and from a snapshot, in turn."""
    with (
        log.made(bootstrap, BASE.partitions) as (source, sink),
        tempfile.TemporaryDirectory(prefix="bench-") as name,
    ):
        topics, directory = Topics(bootstrap, unique_name("bench"), source, sink), Path(name)
        asyncio.run(_fill(topics, keys))
        folded_s, loaded_s = [], []
        for number in range(rounds):
            shutil.rmtree(directory / "snapshots", ignore_errors=True)
            folded_s.append(round(_started_s(topics, keys, directory, 2 * number), 2))
            loaded_s.append(round(_started_s(topics, keys, directory, 2 * number + 1), 2))
    return {
        "keys": keys,
        "folded_s": folded_s,
        "loaded_s": loaded_s,
        "folded_median_s": median(folded_s),
        "loaded_median_s": median(loaded_s),
    }


def _started_s(topics: Topics, keys: int, directory: Path, starts: int) -> float:
    """Start a worker, wait for the first of the new events, end the worker: how long that event took."""
    ends = asyncio.run(_feed(topics, keys, starts))
    case = Case(capacity=int(keys * HEADROOM))
    command = worker_command(case, topics, directory)
    began = time.monotonic()
    with contending(command, directory) as worker:
        asyncio.run(_first_behind(topics, ends))
        took_s = time.monotonic() - began
        worker.wait_for("shard_live", BASE.partitions, FIRST_S_MAX)
        worker.end()
    return took_s


async def _fill(topics: Topics, keys: int) -> None:
    """Put the keys into the output."""
    numbers = [np.arange(p, keys, BASE.partitions) for p in PARTITIONS]
    model = [Part(each, np.ones(len(each), dtype=np.bool_)) for each in numbers]
    async with log.opened(topics.bootstrap, topics.sink) as there:
        made = [there.append(p, of_part(BASE.form, part, "none")) for p, part in enumerate(model)]
        await asyncio.gather(*made)


async def _feed(topics: Topics, keys: int, starts: int) -> dict[int, int]:
    """Put a new event into each partition of the input; return the ends of the output before."""
    async with log.opened(topics.bootstrap, topics.source) as there:
        for partition in PARTITIONS:
            number = keys + starts * BASE.partitions + partition
            made = encode(BASE.form, np.array([number], dtype=np.int64), starts)
            await there.append(partition, [(starts, made)])
    async with log.opened(topics.bootstrap, topics.sink) as there:
        found = await there.fetch(dict.fromkeys(PARTITIONS, 0))
    return {partition: each.end for partition, each in found.items()}


async def _first_behind(topics: Topics, ends: dict[int, int]) -> None:
    async with (
        asyncio.timeout(FIRST_S_MAX),
        log.opened(topics.bootstrap, topics.sink) as there,
    ):
        while not any(each.batches for each in (await there.fetch(ends)).values()):
            pass
