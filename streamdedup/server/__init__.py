"""What a worker serves over HTTP: /metrics for Prometheus, and the probes /livez and /readyz.

It answers from a thread of its own, so that it can report an event loop that stands still. It only reads: see `Status`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog

from streamdedup.server.listener import Listener
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import TAKES_LONG, pages
from streamdedup.server.state import observe
from streamdedup.server.status import Phase, Status
from streamdedup.settings import ServerOptions

__all__ = ["Phase", "Status", "serving"]

log = structlog.get_logger(__name__)

ENDS_S_MAX = 1.0
LOOK_S = 1.0


@asynccontextmanager
async def serving(options: ServerOptions, status: Status) -> AsyncIterator[None]:
    """Serve pages about `status` if `options` name a port. ConfigError if nothing can listen there."""
    if options.port is None:
        yield
        return
    pulse = Pulse()
    made = pages(status, pulse)
    listener = await asyncio.to_thread(Listener, options.host, options.port, made, TAKES_LONG)
    beside = [asyncio.create_task(pulse.beat()), asyncio.create_task(_watch(status, pulse))]
    status.port = listener.port
    log.info("server_listens", host=options.host, port=listener.port, pages=list(made))
    try:
        yield
    finally:
        for task in beside:
            task.cancel()
        listener.close()
        # For its end the thread needs another one, which cannot start once the interpreter ends.
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDS_S_MAX):
                await asyncio.to_thread(listener.join, ENDS_S_MAX)


async def _watch(status: Status, pulse: Pulse) -> None:
    """Look at findings and counts every second, so that their times are known, whoever asks, until cancelled."""
    while True:
        await asyncio.to_thread(
            observe, status, pulse
        )  # of many partitions it takes as long as a page
        await asyncio.sleep(LOOK_S)
