"""Claims about tasks that run beside a body: who ends whom, and which error is raised."""

import asyncio

import pytest

from streamdedup.worker.tasks import beside


async def fails(error: BaseException) -> None:
    """Fail at the next turn of the loop."""
    await asyncio.sleep(0)
    raise error


async def waits(ended: list[str]) -> None:
    """Wait for ever, and note the end."""
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("task")


async def test_the_body_ends_the_tasks() -> None:
    """They are cancelled, and their ends awaited."""
    ended = list[str]()
    async with beside(waits(ended)):
        await asyncio.sleep(0)
    assert ended == ["task"]


async def test_a_task_that_fails_ends_the_body_and_the_other_tasks() -> None:
    """Its own error is raised, not a group, from however deep."""
    ended = list[str]()

    async def inner() -> None:
        async with beside(fails(OSError("broken"))):
            await waits(ended)

    with pytest.raises(OSError, match="broken"):
        async with beside(inner(), waits(ended)):
            await waits(ended)
    assert ended == ["task"] * 3


async def test_a_task_that_is_cancelled_from_within_is_noticed() -> None:
    """A client library may cancel its caller: the body must not go on as if the task still ran."""
    with pytest.raises(asyncio.CancelledError):
        async with beside(fails(asyncio.CancelledError())):
            await asyncio.Event().wait()


async def test_the_error_of_the_body_is_raised_as_it_is() -> None:
    """The tasks end with it."""
    ended = list[str]()
    with pytest.raises(OSError, match="body"):
        async with beside(waits(ended)):
            await asyncio.sleep(0)
            raise OSError("body")
    assert ended == ["task"]


async def test_a_cancelled_caller_is_cancelled() -> None:
    """The tasks end, and nobody takes it for a cancellation from within."""
    ended = list[str]()

    async def run() -> None:
        async with beside(waits(ended)):
            await waits(ended)

    task = asyncio.create_task(run())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["task"] * 2
