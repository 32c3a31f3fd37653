"""Events that come in steadily, for as long as one likes: which key each has is decided as it is sent."""

import asyncio
import time
from typing import Any

import numpy as np

from bench.worker import log
from bench.worker.batches import encode, events_max
from bench.worker.cases import BASE

TICK_S = 0.02


class Feed:
    """`filling` events as fast as they go, then `rate` a second for some `seconds`.

    `BASE.duplicates` of them have the key of an earlier one of their partition.
    """

    def __init__(
        self, rate: int, seconds: float, *, partitions: int = BASE.partitions, filling: int = 0
    ) -> None:
        self._rate, self._seconds, self._filling = rate, seconds, filling
        self._chance = np.random.default_rng(1)
        self._at, self._keys = [0] * partitions, [0] * partitions
        self.steady = asyncio.Event()

    @property
    def sent(self) -> int:
        """How many events there were so far."""
        return sum(self._at)

    @property
    def new(self) -> int:
        """How many of them had a new key."""
        return sum(self._keys)

    async def run(self, there: log.Log) -> None:
        """All that is due by now, every `TICK_S`, for so many seconds."""
        await self._send(there, self._filling)
        self.steady.set()
        began = time.monotonic()
        while (passed_s := time.monotonic() - began) < self._seconds:
            await self._send(there, self._filling + int(self._rate * passed_s))
            await asyncio.sleep(TICK_S)

    async def _send(self, there: log.Log, events: int) -> None:
        """Go on until there were so many."""
        partitions, most = len(self._at), events_max(BASE.form)
        for partition, at in enumerate(self._at):
            for first in range(at, events // partitions, most):
                count = min(most, events // partitions - first)
                numbers = self._numbers(self._keys[partition], count)
                self._keys[partition] = int(max(self._keys[partition], numbers.max() + 1))
                batch = encode(BASE.form, numbers * partitions + partition, first)
                await there.append(partition, [(first, batch)])
                self._at[partition] += count

    def _numbers(self, keys: int, count: int) -> Any:  # noqa: ANN401 - an array
        """Of `count` events after the first `keys` keys, the number of each one's key within its partition."""
        chance = self._chance.random(count)
        first = chance >= BASE.duplicates
        first[0] |= keys == 0
        seen = keys + np.cumsum(first)
        return np.where(first, seen - 1, (chance / BASE.duplicates * (seen - first)).astype(int))
