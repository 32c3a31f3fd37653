"""Tasks that run beside each other: the first that fails ends the others, and its own error is raised, not a group."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


class _CancelledFromWithinError(Exception):
    """A task was cancelled although nobody asked for it: a client library may cancel the task that calls it."""


@asynccontextmanager
async def beside(*tasks: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `tasks` while the body runs; when it ends, cancel them and wait for their ends.

    If a task fails, the body is cancelled, and the task's own error is raised. What a task raises after it was
    cancelled is dropped: it must not hide why it was. If a task is cancelled from within, which a task group ignores,
    CancelledError is raised.
    """
    failed: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(_watched(task)) for task in tasks]
            yield
            for task in running:
                task.cancel()
    except BaseExceptionGroup as errors:
        failed = _first(errors)
    finally:
        for coroutine in tasks:
            coroutine.close()  # one that never began would be reported as never awaited
    if isinstance(failed, _CancelledFromWithinError):
        raise asyncio.CancelledError
    if failed is not None:
        raise failed  # outside of `except`, so it keeps its own cause and context


async def _watched(task: Coroutine[Any, Any, None]) -> None:
    current = asyncio.current_task()
    try:
        await task
    except asyncio.CancelledError:
        if current is not None and current.cancelling():
            raise
        raise _CancelledFromWithinError from None
    except Exception:
        if current is None or not current.cancelling():
            raise


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
