"""How many large record batches are in memory, decompressed, at the same time: a bound for the whole process.

A record of 12 kB may decompress to 128 MiB, and each partition may have such a record at the same time.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streamdedup.kafka.records.decoding import PendingDecode

LARGE_MAX = 2  # of at most 128 MiB each


class LargeBatches:
    """The places for large record batches: at most `most` are decoded at a time. Each waiter has a name."""

    def __init__(self, most: int = LARGE_MAX) -> None:
        self._free = asyncio.Semaphore(most)
        self._waiting: dict[str, float] = {}

    def waits(self, name: str, above_s: float = 0.0) -> str | None:
        """Return, as text, for how long `name` has waited for a place.

        None if it does not wait, or has waited for less than `above_s` seconds. Any thread may call this.
        """
        if (since := self._waiting.get(name)) is None:
            return None
        waited_s = time.monotonic() - since
        what = f"waits until fewer large record batches are in memory, for {waited_s:.0f} s now"
        return what if waited_s >= above_s else None

    @asynccontextmanager
    async def decoded(
        self, name: str, large: PendingDecode, unless: asyncio.Event | None = None
    ) -> AsyncIterator[bool]:
        """Decode `large` when there is a place for it, and drop it when the context ends: it gives its place back.

        The context has False, and nothing is decoded, if `unless` was set while `name` waited. Everything that was read
        of `large` must be done with by the end of the context. The context must hold no place already.
        """
        if not await self._place(name, unless):
            yield False
            return
        try:
            await large.done()
            yield True
        finally:
            large.drop(self._free.release)

    async def _place(self, name: str, unless: asyncio.Event | None) -> bool:
        """Take a place; return False if `unless` was set before there was one."""
        self._waiting[name] = time.monotonic()
        try:
            if unless is None:
                return await self._free.acquire()
            return await self._place_unless(unless)
        finally:
            del self._waiting[name]

    async def _place_unless(self, unless: asyncio.Event) -> bool:
        taking = asyncio.create_task(self._free.acquire())
        ending = asyncio.create_task(unless.wait())
        try:
            await asyncio.wait((taking, ending), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if taking.done():
                self._free.release()
            raise
        finally:
            taking.cancel()
            ending.cancel()
        return taking.done()
