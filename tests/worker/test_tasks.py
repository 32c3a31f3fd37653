"""Claims about tasks that run beside a body: who ends whom, and which error is raised."""

import asyncio
from contextlib import nullcontext

import pytest

from streamdedup.metrics.counts import Meters
from streamdedup.testing import VirtualLoop
from streamdedup.worker.tasks import beside, enduring


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


@pytest.mark.parametrize("error", [None, OSError("body")])
async def test_the_body_ends_the_tasks(error: Exception | None) -> None:
    """They are cancelled, and their ends awaited; an error of the body is raised as it is."""
    ended = list[str]()
    with pytest.raises(OSError, match="body") if error else nullcontext():
        async with beside(waits(ended)):
            await asyncio.sleep(0)
            if error:
                raise error
    assert ended == ["task"]
    # One that never began is no coroutine that was never awaited.
    async with beside(waits(ended)):
        pass


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


async def test_an_error_keeps_its_cause() -> None:
    """The log of a crash names what led to it, whether a task or the body raised."""

    async def fails_for_a_reason() -> None:
        try:
            await fails(KeyError("reason"))
        except KeyError as reason:
            raise OSError("broken") from reason

    with pytest.raises(OSError, match="broken") as caught:
        async with beside(fails_for_a_reason()):
            await asyncio.Event().wait()
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(OSError, match="broken") as caught:
        async with beside(waits([])):
            await asyncio.sleep(0)
            await fails_for_a_reason()
    assert isinstance(caught.value.__cause__, KeyError)


async def test_an_error_while_a_task_ends_hides_nothing() -> None:
    """Neither a clean end nor the error of the body: the task was to end, and does."""

    async def ends_badly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("while it ended")

    async with beside(ends_badly()):
        await asyncio.sleep(0)
    with pytest.raises(OSError, match="body"):
        async with beside(ends_badly()):
            await asyncio.sleep(0)
            raise OSError("body")


def test_what_is_enduring_ends_when_it_is_told_to() -> None:
    """Also if what it calls answers a cancellation by another error: that is no failure to try again after."""
    meters, tries = Meters(), list[None]()

    async def fails_then_ends_badly() -> None:
        tries.append(None)
        if len(tries) < 3:
            raise ValueError
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("while it ended") from None

    async def run() -> None:
        async with asyncio.timeout(60), beside(enduring("ends", fails_then_ends_badly, meters)):
            while len(tries) < 3:
                await asyncio.sleep(1)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())
    assert meters.task_errors["ends"] == 2
