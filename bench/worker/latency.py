"""Latency: from the moment an event is sent to the moment a reader of committed events has it.

Events are sent in batches on a schedule, and counted from when they were due, whether or not the broker was ready for
them: a queue in front of it is part of the latency. Sender and reader are one process beside the worker's.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.worker import log
from bench.worker.batches import encode, events_max
from bench.worker.cases import BASE
from bench.worker.checking import missing_max, positions_of
from bench.worker.events import Form, Integers, Part, parts
from bench.worker.load import OtherLoad, Tree
from bench.worker.measuring import ERROR_RATE, running

TICK_S = 0.005
WARM_S, MEASURED_S, DRAIN_S = 5.0, 20.0, 10.0
PERCENTILES = (50.0, 99.0, 99.9)

Seconds = npt.NDArray[np.float64]


def latency(
    bootstrap: str,
    rate: int,
    commit_interval_ms: int,
    *,
    warm_s: float = WARM_S,
    measured_s: float = MEASURED_S,
) -> dict[str, Any]:
    """Percentiles in ms over the events due after `warm_s`, `rate` events a second in all."""
    model = parts(int(rate * (warm_s + measured_s)), BASE.partitions, BASE.duplicates)
    case = replace(BASE, worker={"delivery": {"commit_interval_ms": commit_interval_ms}})
    with running(bootstrap, case) as (worker, source, sink):
        other = OtherLoad(bootstrap, Tree(worker.process))
        schedule = _Schedule(model, rate, time.monotonic() + TICK_S)
        asyncio.run(schedule.play(bootstrap, source, sink, BASE.form))
        load = other.share()
    waited_ms = 1000 * schedule.waited_s(warm_s)
    values = np.percentile(waited_ms, PERCENTILES)
    named = zip(PERCENTILES, values, strict=True)
    return {
        "rate": rate,
        "commit_interval_ms": commit_interval_ms,
        "events": len(waited_ms),
        "percentiles_ms": {f"{at:g}": round(float(value), 2) for at, value in named},
        "max_ms": round(float(waited_ms.max()), 2),
        "other_load": load,
    }


class _Schedule:
    """When each event is due, by partition and position, and when which of them were read from the output."""

    def __init__(self, model: Sequence[Part], rate: int, begins: float) -> None:
        self._model, self._begins = model, begins
        a_tick = rate * TICK_S / len(model)
        ticks = [np.floor(np.arange(len(part.numbers)) / a_tick) for part in model]
        self._due = [begins + TICK_S * (1 + each) for each in ticks]
        self._ends = max(float(due[-1]) for due in self._due) + DRAIN_S
        self._read: list[list[tuple[float, Integers]]] = [[] for _ in model]

    async def play(self, bootstrap: str, source: str, sink: str, form: Form) -> None:
        """Send and read everything; SystemExit where more is missing than a filter may drop."""
        async with (
            log.opened(bootstrap, source) as there,
            log.opened(bootstrap, sink) as here,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(self._collect(here, form))
            for partition in range(len(self._model)):
                tasks.create_task(self._send(there, partition, form))
        expected = sum(int(part.first.sum()) for part in self._model)
        found = sum(len(positions) for read in self._read for _, positions in read)
        if expected - found > missing_max(expected, ERROR_RATE):
            raise SystemExit(
                f"{expected - found:,} of {expected:,} events were not read {DRAIN_S:g} s after the last was sent"
            )

    def waited_s(self, warm_s: float) -> Seconds:
        """Of each event that was read, and was due after `warm_s`."""
        waited = [
            (at - self._due[partition][positions])[
                self._due[partition][positions] >= self._begins + warm_s
            ]
            for partition, read in enumerate(self._read)
            for at, positions in read
        ]
        return np.concatenate(waited)

    async def _send(self, there: log.Log, partition: int, form: Form) -> None:
        numbers, due, sent = self._model[partition].numbers, self._due[partition], 0
        while sent < len(numbers):
            now = time.monotonic()
            stop = min(int(np.searchsorted(due, now, side="right")), sent + events_max(form))
            if stop == sent:
                await asyncio.sleep(float(due[sent]) - now)
                continue
            await there.append(partition, [(sent, encode(form, numbers[sent:stop], sent))])
            sent = stop

    async def _collect(self, here: log.Log, form: Form) -> None:
        """One request for all partitions: one that waits would hold up the next on its connection."""
        left = sum(int(part.first.sum()) for part in self._model)
        positions = dict.fromkeys(range(len(self._model)), 0)
        while left > 0 and time.monotonic() < self._ends:
            fetched = await here.fetch(positions)
            at = time.monotonic()
            for partition, found in fetched.items():
                positions[partition] = found.position
                for batch in found.batches:
                    told = np.empty(batch.events, dtype=np.int64)
                    records = np.frombuffer(batch.records, dtype=np.uint8)
                    positions_of(records, batch.events, len(form.value), told)
                    self._read[partition].append((at, told))
                    left -= batch.events
