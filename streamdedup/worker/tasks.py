"""Tasks that run beside each other: the first that fails ends the others, and its error is raised, not a group.

What is `enduring` fails only by the errors that it names: any other is reported, counted, and tried again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog

from streamdedup.errors import DeliveryError
from streamdedup.kafka.client.connection import describe_error, refusal
from streamdedup.kafka.client.patience import Backoff
from streamdedup.metrics.counts import Meters

log = structlog.get_logger(__name__)

AGAIN_S = 1.0  # after an error, then twice that, and so on
AGAIN_S_MAX = 60.0


async def enduring(
    task: str,
    run: Callable[[], Coroutine[Any, Any, None]],
    meters: Meters,
    ends_by: tuple[type[Exception], ...] = (),
) -> None:
    """Run `run` until it returns, again after each error that is not one of `ends_by`, with back-off.

    `task` is one of `catalogue.TASKS`.
    """
    loop, backoff = asyncio.get_running_loop(), Backoff(AGAIN_S, AGAIN_S_MAX)
    while True:
        begun_at = loop.time()
        try:
            await run()
        except ends_by:
            raise
        except Exception as error:
            if is_cancelled():
                raise
            if loop.time() - begun_at > AGAIN_S_MAX:
                backoff.reset()
            meters.task_errors[task] += 1
            log.error("task_failed", task=task, remedy=_REMEDY, **describe_error(error))
        else:
            return
        await asyncio.sleep(backoff.next_s())


async def until_stopped(
    work: Coroutine[Any, Any, None],
    stop: asyncio.Event,
    *,
    drain_s: float,
    drain: Callable[[], Awaitable[None]],
    end: Callable[[float], Awaitable[None]],
) -> None:
    """Run `work` until it ends or `stop` is set; then have it `drain`, if it still runs, and cancel it.

    Finally `end` gets the loop's time by which all of that must be over: `drain_s` seconds after `work` ended or `stop`
    was set. An error of `work` is raised; if a broker refuses us, as an error of ours. DeliveryError if `work` was
    cancelled although nobody asked for that.
    """
    working, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    ends_at = asyncio.get_running_loop().time() + drain_s
    if not working.done():
        await drain()
    working.cancel()
    try:
        await working
    except asyncio.CancelledError:
        if not stop.is_set():  # nobody asked: a client library may cancel its caller
            raise DeliveryError(
                "the worker was cancelled from within; restart it, and report this bug with its log"
            ) from None
    except Exception as error:
        if refused := refusal(error):
            raise refused from error
        raise
    finally:
        await end(ends_at)


def is_cancelled() -> bool:
    """Return whether somebody cancelled the current task: what it calls may have raised another error for that."""
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


_REMEDY = "none: it is tried again, and events flow on; if this goes on, report a bug with the log"


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
    try:
        await task
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise _CancelledFromWithinError from None
    except Exception:
        if not is_cancelled():
            raise


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
