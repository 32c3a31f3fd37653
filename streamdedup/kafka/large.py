"""How many large record batches are in memory, decompressed, at the same time: a bound for the whole process.

A record of 12 kB may decompress to 128 MiB, and each partition may have such a record at the same time.
"""

import asyncio
import time

from streamdedup.kafka.records.decoding import PendingDecode

LARGE_MAX = 2  # of at most 128 MiB each


class LargeBatches:
    """The permits for large record batches: at most `most` are decoded at a time. Each waiter has a name."""

    def __init__(self, most: int = LARGE_MAX) -> None:
        self._free = asyncio.Semaphore(most)
        self._waiting: dict[str, float] = {}

    def waits(self, name: str, above_s: float = 0.0) -> str | None:
        """Return, as text, for how long `name` has waited for a permit.

        None if it does not wait, or has waited for less than `above_s` seconds. Any thread may call this.
        """
        if (since := self._waiting.get(name)) is None:
            return None
        waited_s = time.monotonic() - since
        what = f"waits until fewer large record batches are in memory, for {waited_s:.0f} s now"
        return what if waited_s >= above_s else None

    async def take(self, name: str, unless: asyncio.Event | None = None) -> bool:
        """Take a permit for `name`; return False if `unless` was set before there was one."""
        self._waiting[name] = time.monotonic()
        try:
            if unless is None:
                return await self._free.acquire()
            return await self._take_unless(unless)
        finally:
            del self._waiting[name]

    def release(self) -> None:
        """Give a permit back."""
        self._free.release()

    async def _take_unless(self, unless: asyncio.Event) -> bool:
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


class Permit:
    """The permit of one reader, which has a `name`, for the large record batch that it reads."""

    def __init__(self, permits: LargeBatches, name: str) -> None:
        self._permits, self._name = permits, name
        self._held: PendingDecode | None = None

    async def decode(self, large: PendingDecode, unless: asyncio.Event | None = None) -> None:
        """Decode `large` when there is a permit for it; do nothing if `unless` is set meanwhile.

        Everything that was read of the one before must be done with: it gives its permit back first, so nobody waits in
        a circle.
        """
        self.give_back()
        if await self._permits.take(self._name, unless):
            self._held = large
            await large.done()

    def reaches(self, offset: int) -> bool:
        """Return whether there is a record batch that has the permit, and its last offset is `offset` or later."""
        return self._held is not None and offset <= self._held.last_offset

    def passed(self, offset: int) -> None:
        """Note that everything below `offset` is done with. The permit is given back if the record batch is, too."""
        if self._held is not None and self._held.next_offset <= offset:
            self.give_back()

    def give_back(self) -> None:
        """Give the permit back, if there is one, and drop what was decoded."""
        held, self._held = self._held, None
        if held is not None:
            held.drop(self._permits.release)
