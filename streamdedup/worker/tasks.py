"""Tasks that run beside each other: the first that fails ends the others, and its own error is raised, not a group."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


class _CancelledFromWithinError(Exception):
    """A task was cancelled although nobody asked for it: a client library may cancel the task that calls it."""


@asynccontextmanager
async def beside(*tasks: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `tasks` while the body runs, and cancel them when it ends.

    If a task fails, the body is cancelled, and the task's error is raised. If a task is cancelled from within, which a
    task group ignores, CancelledError is raised.
    """
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(_watched(task)) for task in tasks]
            yield
            for task in running:
                task.cancel()
    except BaseExceptionGroup as errors:
        error = _first(errors)
        if isinstance(error, _CancelledFromWithinError):
            raise asyncio.CancelledError from None
        raise error from None


async def _watched(task: Coroutine[Any, Any, None]) -> None:
    try:
        await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        raise _CancelledFromWithinError from None


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
