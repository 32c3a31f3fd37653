"""Events that come in steadily, for as long as one likes: which key each has is decided as it is sent."""

import asyncio
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.worker import log
from bench.worker.batches import encode, events_max
from bench.worker.cases import BASE
from bench.worker.events import Integers


class Feed:
    """`filling` events as fast as they go, then `rate` a second for some `seconds`, in so many batches a second.

    `BASE.duplicates` of them have the key of an earlier one of their partition.
    """

    def __init__(
        self,
        rate: int,
        seconds: float,
        *,
        partitions: int = BASE.partitions,
        filling: int = 0,
        batches_a_second: int = 50,
    ) -> None:
        self._rate, self._seconds, self._filling = rate, seconds, filling
        self._ticks_a_second = batches_a_second
        self._chance = np.random.default_rng(1)
        self._at, self._keys = [0] * partitions, [0] * partitions
        self.steady, self.began = asyncio.Event(), 0.0

    @property
    def sent(self) -> int:
        """How many events there were so far."""
        return sum(self._at)

    @property
    def new(self) -> int:
        """How many of them had a new key."""
        return sum(self._keys)

    def due_s(self, positions: Integers) -> npt.NDArray[np.float64]:
        """How long after it `began` each event of a partition was due, whenever it was sent; without a filling."""
        events = (positions + 1) * len(self._at)
        return np.ceil(events * self._ticks_a_second / self._rate) / self._ticks_a_second

    async def run(self, there: log.Log) -> None:
        """Send all that is due at each tick, for so many seconds."""
        await self._send(there, self._filling)
        self.steady.set()
        self.began, tick = time.monotonic(), 0
        while tick < (last := int(self._seconds * self._ticks_a_second)):
            await asyncio.sleep(self.began + (tick + 1) / self._ticks_a_second - time.monotonic())
            tick = min(last, int((time.monotonic() - self.began) * self._ticks_a_second))
            await self._send(there, self._filling + self._rate * tick // self._ticks_a_second)

    async def _send(self, there: log.Log, events: int) -> None:
        """Go on until there were so many."""
        until = events // len(self._at)
        await asyncio.gather(*(self._send_to(there, p, until) for p in range(len(self._at))))

    async def _send_to(self, there: log.Log, partition: int, until: int) -> None:
        partitions, most = len(self._at), events_max(BASE.form)
        while (first := self._at[partition]) < until:
            numbers = self._numbers(self._keys[partition], min(most, until - first))
            self._keys[partition] = int(max(self._keys[partition], numbers.max() + 1))
            batch = encode(BASE.form, numbers * partitions + partition, first)
            await there.append(partition, [(first, batch)])
            self._at[partition] += len(numbers)

    def _numbers(self, keys: int, count: int) -> Any:  # noqa: ANN401 - an array
        """Of `count` events after the first `keys` keys, the number of each one's key within its partition."""
        chance = self._chance.random(count)
        first = chance >= BASE.duplicates
        first[0] |= keys == 0
        seen = keys + np.cumsum(first)
        return np.where(first, seen - 1, (chance / BASE.duplicates * (seen - first)).astype(int))
