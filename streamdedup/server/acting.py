"""Actions over HTTP: `/api/snapshot`, `/api/drain`, `/api/lists/reload`. Each is a line of the log, with who asked."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any

import structlog

from streamdedup.server.doing import Act, Doing, Done
from streamdedup.server.request import Page, Refused, Request, as_json
from streamdedup.server.route import Route

log = structlog.get_logger(__name__)

ANSWER_S_MAX = 10.0
_GOES_ON = Done("it goes on, and takes longer than usual; the worker's log has how it ends")

Submit = Callable[[Coroutine[Any, Any, Done]], "Future[Done]"]
"""Runs a coroutine on the worker's loop."""


def acting_routes(doing: Doing, submit: Submit) -> list[Route]:
    """Return the routes of actions."""
    acts = {
        "/api/snapshot": _Action("snapshot", doing.snapshot, submit),
        "/api/drain": _Action("drain", doing.drain, submit),
        "/api/lists/reload": _Action("lists_reload", doing.reload, submit),
    }
    return [Route(path, act, "POST", gated=True, token=True) for path, act in acts.items()]


class _Action:
    """One action, once at a time."""

    def __init__(self, name: str, act: Act, submit: Submit) -> None:
        self._name, self._act, self._submit = name, act, submit
        self._under_way: Future[Done] | None = None

    async def __call__(self, request: Request) -> Page:
        """Act, and return what came of it. The body does not matter."""
        if self._under_way is not None and not self._under_way.done():
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS, "the same is under way; ask again once it is done"
            )
        log.info("action_asked", action=self._name, peer=request.peer)
        acting = self._under_way = self._submit(self._acted())
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                done = await asyncio.shield(asyncio.wrap_future(acting))
        except TimeoutError:
            return _page(_GOES_ON, HTTPStatus.ACCEPTED)
        return _page(done, HTTPStatus.OK)

    async def _acted(self) -> Done:
        return await self._act()


def _page(done: Done, status: HTTPStatus) -> Page:
    return as_json({"done": done.sentence, **done.more}, status)
