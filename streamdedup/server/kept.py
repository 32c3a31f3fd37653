"""What takes long to make: made at most once at a time, beside the loop, and kept for `KEPT_S`."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

KEPT_S = 1.0  # a scraper asks every 10 s or less often; whoever asks more often costs no more

T = TypeVar("T")


class Kept(Generic[T]):
    """Serves one value to all who ask for it, on one loop. `make` runs in a thread; `clock` returns seconds."""

    def __init__(self, make: Callable[[], T], clock: Callable[[], float]) -> None:
        self._make, self._clock = make, clock
        self._making: asyncio.Task[T] | None = None
        self._made_at = 0.0

    async def get(self) -> T:
        """Return the value that is being made, or was made at most `KEPT_S` ago; else make it. Raises what `make` does.

        If the caller is cancelled, the making goes on for the others.
        """
        if self._making is None or (self._making.done() and self._is_old):
            self._making = asyncio.create_task(self._made())
        return await asyncio.shield(self._making)

    @property
    def _is_old(self) -> bool:
        return self._clock() - self._made_at >= KEPT_S

    async def _made(self) -> T:
        try:
            return await asyncio.to_thread(self._make)
        finally:
            self._made_at = self._clock()
