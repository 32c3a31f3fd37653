"""What a worker serves over HTTP: its page, /metrics for Prometheus, and the probes /livez and /readyz.

It answers from a thread of its own, so that it can report an event loop that stands still. It only reads: see `Status`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import structlog

from streamdedup.server.acting import acting_routes
from streamdedup.server.asking import asking_routes
from streamdedup.server.doing import Doing
from streamdedup.server.gate import Gate
from streamdedup.server.listener import Listener
from streamdedup.server.pulse import Pulse
from streamdedup.server.questions import Questions
from streamdedup.server.route import Route, Routes
from streamdedup.server.routes import Served, all_routes, probes
from streamdedup.server.state import observe
from streamdedup.server.status import Phase, Status
from streamdedup.server.token import Token
from streamdedup.settings import ServerOptions

__all__ = ["Phase", "Status", "serving"]

log = structlog.get_logger(__name__)

ENDS_S_MAX = 1.0
LOOK_S = 1.0


@asynccontextmanager
async def serving(
    options: ServerOptions, status: Status, doing: Doing | None = None
) -> AsyncIterator[None]:
    """Serve pages about `status` if `options` name a port, and do what is asked for, by `doing`, on this loop.

    ConfigError if nothing can listen there.
    """
    if options.port is None and options.probe_port is None:
        yield
        return
    questions = Questions(doing.answering) if doing else None
    token_routes = _token_routes(doing, questions) if doing and questions else ()
    served = Served(status, Pulse(), token_routes, options)
    token = await asyncio.to_thread(Token, options.token_file) if options.token_file else None
    async with AsyncExitStack() as stack:
        if options.port is not None:
            everything = Routes(all_routes(served), Gate(options.hosts, token))
            status.port = await stack.enter_async_context(
                _listening(options.host, options.port, everything, "server.port")
            )
        if options.probe_port is not None:
            await stack.enter_async_context(
                _listening(
                    options.host, options.probe_port, Routes(probes(served)), "server.probe_port"
                )
            )
        if questions is not None:
            stack.callback(questions.close)
        for beside in (served.pulse.beat(), _watch(served, token, questions)):
            stack.callback(asyncio.create_task(beside).cancel)
        yield


def _token_routes(doing: Doing, questions: Questions) -> list[Route]:
    """Return the routes for those who have the token."""
    submit = partial(asyncio.run_coroutine_threadsafe, loop=asyncio.get_running_loop())
    return [*asking_routes(questions, doing.check), *acting_routes(doing, submit)]


@asynccontextmanager
async def _listening(host: str, port: int, routes: Routes, option: str) -> AsyncIterator[int]:
    """Serve these routes; yield the port."""
    listener = await asyncio.to_thread(Listener, host, port, routes, option=option)
    log.info("server_listens", host=host, port=listener.port, pages=routes.paths)
    try:
        yield listener.port
    finally:
        listener.close()
        # For its end the thread needs another one, which cannot start once the interpreter ends.
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDS_S_MAX):
                await asyncio.to_thread(listener.join, ENDS_S_MAX)


async def _watch(served: Served, token: Token | None, questions: Questions | None) -> None:
    """Every second, look at findings and counts, to know their times, and at the token's file; sweep old answers."""
    while True:
        # With many partitions this takes as long as a page; a file may be on a network.
        await asyncio.to_thread(observe, served.status, served.pulse)
        if token is not None:
            await asyncio.to_thread(token.look)
        if questions is not None:
            questions.sweep()
        await asyncio.sleep(LOOK_S)
