"""More claims about large record batches: cancelled waits, drains, and errors that are kept."""

import asyncio
import gc
import traceback
import weakref
from typing import Any

import pytest
from typing_extensions import override

from streamdedup.delivery.lifecycle import _release
from streamdedup.kafka.large import LargeBatches, Permit
from streamdedup.kafka.records.decoding import PendingDecode
from tests.delivery.test_large_batches import DECODE_S, Stage
from tests.memory import over


class Slow(PendingDecode):
    """A record batch whose decoding ends when it is told to, in a thread that nobody can end earlier."""

    last_offset = 0

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._pieces = None
        self.ends = asyncio.Event()

    @override
    async def done(self) -> None:
        self._task = asyncio.ensure_future(self.ends.wait())
        await asyncio.wait([self._task])


async def test_a_permit_is_held_until_the_thread_that_decodes_has_ended() -> None:
    """A cancellation does not end it."""
    permits, slow, next_one = LargeBatches(1), Slow(), Slow()
    next_one.ends.set()

    async def hold(large: PendingDecode) -> None:
        permit = Permit(permits, "a")
        try:
            await permit.decode(large)
            assert permit.reaches(0) and not permit.reaches(1)
        finally:
            permit.give_back()

    task = asyncio.create_task(hold(slow))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    waiting = asyncio.create_task(hold(next_one))
    await asyncio.wait([waiting], timeout=0.05)
    assert not waiting.done()
    slow.ends.set()
    await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancelled_wait_takes_no_permit(turns: int) -> None:
    """At whatever moment it is cancelled, and if another gives its permit back at that moment."""
    permits, unless, done = LargeBatches(1), asyncio.Event(), Slow()
    done.ends.set()
    first = await permits.take("first", None)
    assert first
    waits = [asyncio.create_task(permits.take(name, unless)) for name in "abc"]
    await asyncio.sleep(0.01)
    permits.release()
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in waits:
        task.cancel()
    results = await asyncio.gather(*waits, return_exceptions=True)
    for taken in results:
        if taken is True:
            permits.release()
    await asyncio.wait_for(permits.take("last", unless), 5)
    assert permits._free.locked()
    unless.set()
    assert not await permits.take("late", unless)
    assert not permits._waiting


class Held:
    """An object that can be watched."""


def test_an_error_that_is_kept_keeps_no_events() -> None:
    """A stopped shard has its error, which would have the events of the calls that it ended."""
    watched: list[weakref.ref[Held]] = []

    def inner() -> None:
        held = Held()
        watched.append(weakref.ref(held))
        raise ValueError

    def outer() -> None:
        held = Held()
        watched.append(weakref.ref(held))
        try:
            inner()
        except ValueError as error:
            raise KeyError from error

    try:
        outer()
    except KeyError as error:
        kept = error
    gc.collect()
    assert all(one() is not None for one in watched)
    _release(kept)
    assert all(one() is None for one in watched)
    assert traceback.format_exception(kept)


@over(Stage)
async def test_a_worker_that_drains_waits_for_no_permit(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards that wait for one end at once."""
    stage.permit(monkeypatch)
    async with stage.start() as worker:
        await worker.until(lambda: stage.live, "large batch")
        begun_at = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - begun_at < 5 * DECODE_S
    assert not stage.live
    async with stage.start() as worker:
        await worker.until(lambda: stage.is_done, "committed end")
    stage.check_output()
