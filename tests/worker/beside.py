"""Plays scenes beside what a worker runs beside its events."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from structlog.testing import capture_logs

from streamdedup.testing import VirtualLoop


class Watched(Protocol):
    """What a watch looks at; `watch` is a task of the worker that runs until it is cancelled."""

    watch: Any


W = TypeVar("W", bound=Watched)


def lines_beside(
    make: Callable[[], W], scene: Callable[[W], Coroutine[Any, Any, None]]
) -> list[Any]:
    """Run `scene` with a new `make()`, beside its watch, on a virtual clock. Return the lines of the log."""

    async def main() -> None:
        made = make()
        watching = asyncio.create_task(made.watch.run())
        await scene(made)
        assert not watching.done()
        watching.cancel()

    with capture_logs() as lines, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    return lines
