"""A disk that answers no more: what it may cost, what is said of it, and how a process ends all the same."""

import asyncio
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from streamdedup import threads
from streamdedup.delivery import services
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.settings import load
from streamdedup.testing import MemoryBroker, VirtualLoop, WatchedFs, connected_to
from streamdedup.threads import SAVES_MAX, Lane
from streamdedup.worker import assignment, process, startup
from streamdedup.worker import worker as worker_module
from streamdedup.worker.worker import Worker
from tests.broker.base import DEADLINE_S
from tests.deployment import Deployment
from tests.local import Start, until
from tests.memory import page


class DyingDisk(WatchedFs):
    """Before it is revived, it answers no call of which `dead(name, path)` is true."""

    def __init__(self, dead: Callable[[str, Path], bool]) -> None:
        super().__init__()
        self._dead, self._alive = dead, threading.Event()
        self.hanging = 0

    def revive(self) -> None:
        """Answer what waits, and all that comes."""
        self._alive.set()

    @override
    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        self._reach("create" if flags & os.O_CREAT else "open", path)
        return super().open(path, flags, mode)

    @override
    def listdir(self, path: Path) -> list[str]:
        self._reach("listdir", path)
        return super().listdir(path)

    def _reach(self, name: str, path: Path) -> None:
        if not self._alive.is_set() and self._dead(name, path):
            self.hanging += 1
            self._alive.wait(DEADLINE_S)
            self.hanging -= 1


@pytest.fixture
def disks() -> Iterator[list[DyingDisk]]:
    """Those of a test: at its end they answer."""
    made: list[DyingDisk] = []
    yield made
    for disk in made:
        disk.revive()


def memory(directory: Path, partitions: int) -> tuple[Deployment, MemoryBroker]:
    """A deployment on a broker in memory, quick to settle."""
    deployment = Deployment("memory:1", directory, partitions=partitions)
    deployment.config["delivery"]["drain_s"] = 1
    consumer = {"session_timeout_ms": 1000, "heartbeat_interval_ms": 50}
    deployment.config["kafka"]["consumer"] = consumer
    broker = MemoryBroker()
    broker.create_topic(deployment.source, partitions)
    broker.create_topic(deployment.sink, partitions)
    feed(broker, deployment, 0)
    return deployment, broker


def feed(broker: MemoryBroker, deployment: Deployment, number: int) -> None:
    """One event for each partition."""
    key = b"%d" % number
    broker.produce(deployment.source, [(p, key, b"value") for p in range(deployment.partitions)])


def of_partition(number: int, *, answers: int) -> Callable[[str, Path], bool]:
    """Whether it is a listing of that partition's directory, after so many that are answered."""
    listed: list[Path] = []

    def dead(name: str, path: Path) -> bool:
        if name == "listdir" and path.name == str(number):
            listed.append(path)
        return len(listed) > answers and path in listed

    return dead


def waited_s(pattern: str, text: str) -> int:
    """The seconds that `text` reports in the place of the group in `pattern`."""
    found = re.search(pattern, text)
    assert found is not None, text
    return int(found[1])


@pytest.mark.parametrize(
    ("answers", "state", "what"),
    [
        (0, "fencing", "the list of its snapshots"),
        (1, "fencing", "the logs of its snapshots"),
        (2, "folding", "its newest snapshot"),
    ],
    ids=["looked-for", "read", "loaded"],
)
async def test_a_disk_that_does_not_answer_is_told_and_holds_up_one_shard_only(
    tmp_path: Path,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    disks: list[DyingDisk],
    *,
    answers: int,
    state: str,
    what: str,
) -> None:
    """The log and /readyz name the shard and what it waits for; the other decides, folding one at a time."""
    monkeypatch.setattr(threads, "TELL_EVERY_S", 0.01)
    monkeypatch.setattr(services, "FOLDS_MAX", 1)
    deployment, broker = memory(tmp_path, 2)
    disks.append(disk := DyingDisk(of_partition(0, answers=answers)))
    began = time.monotonic()
    worker = start(deployment, connect=connected_to(broker), fs=disk)
    await worker.until(lambda: disk.hanging, "a call that hangs")
    await worker.consumed(1)
    name = f"{deployment.source}/0"

    def told() -> list[str]:
        """Of that call: on a busy machine, one before it may be told, too."""
        lines = worker.lines("still_waiting")
        details = [line["detail"] for line in lines if line["shard"] == name]
        return [detail for detail in details if f"waits for {what}," in detail]

    await worker.until(lambda: len(told()) > 1, "lines about it")
    lines, text = told(), page(worker).text
    most_s = round(time.monotonic() - began)  # as what waits is rounded
    assert waited_s(f"waits for {what}, for (.+) s now", lines[0]) <= most_s
    assert waited_s(f"{name}: {state}, waits for {what}, for (.+) s now\n", text) <= most_s
    disk.revive()
    await worker.live()
    await worker.consumed(2)


async def test_a_start_that_compiles_for_long_blames_no_disk(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line says that loops are compiled, and how to do so in advance."""
    monkeypatch.setattr(threads, "TELL_EVERY_S", 0.01)
    told, try_filter = threading.Event(), startup.try_filter

    def slow(*arguments: Any) -> None:
        assert told.wait(DEADLINE_S)
        try_filter(*arguments)

    monkeypatch.setattr(worker_module, "try_filter", slow)
    deployment, broker = memory(tmp_path, 1)
    worker = start(deployment, connect=connected_to(broker))
    line = (await worker.logged("still_waiting"))[0]
    told.set()
    assert line["detail"].startswith("waits for its inner loops, which are compiled")
    assert "`streamdedup compile`" in line["remedy"]
    assert "disk" not in line["remedy"]
    await worker.live()


@pytest.mark.rule(17)
async def test_a_shutdown_does_not_wait_for_what_is_read(
    tmp_path: Path, start: Start, disks: list[DyingDisk]
) -> None:
    """Where a load hangs the worker ends, and tells that a thread is left."""
    deployment, broker = memory(tmp_path, 1)
    disks.append(disk := DyingDisk(of_partition(0, answers=1)))
    worker = start(deployment, connect=connected_to(broker), fs=disk)
    await worker.until(lambda: disk.hanging, "a call that hangs")
    async with asyncio.timeout(DEADLINE_S / 2):
        await worker.stop()
    assert worker.worker.hangs


async def test_saves_that_hang_wedge_no_partition_and_pin_no_more_filters(
    tmp_path: Path, start: Start, disks: list[DyingDisk]
) -> None:
    """Whatever goes and comes back meanwhile is live again, out of memory; a few threads, and a save each, wait."""
    partitions = 16
    deployment, broker = memory(tmp_path, partitions)
    disks.append(disk := DyingDisk(lambda name, _path: name == "create"))
    connect = connected_to(broker)
    stays = start(deployment, connect=connect, fs=disk)
    await stays.consumed(partitions)
    guests = []

    def fewer(ours: int) -> bool:
        return len(stays.worker.deliveries) <= ours

    def freed(held: int) -> bool:
        return len(stays.worker._shards.all()) <= held

    for count, ours, held in ((1, 8, partitions), (2, 6, 8 + SAVES_MAX)):
        guests.append(start(deployment, connect=connect))
        await stays.until(partial(fewer, ours), f"{ours} of ours")
        await stays.live(len(stays.worker.deliveries))
        await stays.until(lambda: disk.hanging == SAVES_MAX, "saves that hang")
        await stays.until(partial(freed, held), f"at most {held} filters")
        feed(broker, deployment, count)
    for guest in guests:
        await guest.stop()
    await stays.live()
    async with start(deployment, connect=connect) as guest:
        await stays.until(partial(fewer, 8), "8 of ours")
    guests.append(guest)
    await stays.live()
    feed(broker, deployment, 3)
    everybody = [stays, *guests]
    await stays.until(
        lambda: sum(one.tally.consumed for one in everybody) == 4 * partitions, "all consumed"
    )
    assert disk.hanging == SAVES_MAX
    assert len(stays.worker._shards.all()) == partitions
    tasks = [task.get_coro() for task in asyncio.all_tasks()]
    saves = [coro for coro in tasks if coro.__qualname__ == assignment._save.__qualname__]  # type: ignore[union-attr]
    assert len(saves) == len(stays.worker._shards._apart)
    assert not stays.lines("shard_stopped")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, 0),
        (DeliveryError("it fails"), 1),
        (ConfigError("it does not fit"), 2),
        (ValueError("jane.doe@example.org"), 1),
    ],
    ids=["drained", "failed", "refused", "fault"],
)
@pytest.mark.rule(17)
def test_a_process_with_a_thread_that_hangs_ends_with_its_status(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    disks: list[DyingDisk],
    error: Exception | None,
    status: int,
) -> None:
    """However the worker ended, the process does not wait for the thread; a fault is told, and quotes no data."""
    deployment, broker = memory(tmp_path, 1)
    disks.append(disk := DyingDisk(of_partition(0, answers=1)))

    def end(self: Worker) -> None:
        if disk.hanging and error:
            raise error
        if disk.hanging:
            self.stop()

    def worker(settings: Any, *, copies: bool) -> Worker:
        return Worker(settings, connected_to(broker), fs=disk, copies=copies)

    class ExitedError(Exception):
        """In place of the end of this process."""

    def exited(number: int) -> None:
        raise ExitedError(number)

    monkeypatch.setattr(Worker, "_warn_cross_partition", end)
    monkeypatch.setattr(process, "Worker", worker)
    monkeypatch.setattr(os, "_exit", exited)
    with pytest.raises(ExitedError) as left, capture_logs() as lines:
        process.serve(load(deployment.write_config()))
    assert left.value.args == (status,)
    told = [line["error"] for line in lines if line["event"] == "worker_failed"]
    assert len(told) == (error is not None)
    assert "jane" not in str(told)


def test_a_process_waits_for_no_thread_of_its_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that copies events, or looks a name up: its time is over as that of any other."""
    deployment, broker = memory(tmp_path, 1)
    go_on, begun = threading.Event(), threading.Event()
    waiting = list[asyncio.Future[Any]]()

    def hang() -> None:
        begun.set()
        assert go_on.wait(DEADLINE_S)

    def end(self: Worker) -> None:
        if not waiting:
            waiting.append(asyncio.ensure_future(asyncio.to_thread(hang)))
        if begun.is_set():
            self.stop()

    def worker(settings: Any, *, copies: bool) -> Worker:
        return Worker(settings, connected_to(broker), copies=copies)

    class ExitedError(Exception):
        """In place of the end of this process."""

    def exited(number: int) -> None:
        hangs = not go_on.is_set()
        go_on.set()
        raise ExitedError(number, hangs)

    monkeypatch.setattr(Worker, "_warn_cross_partition", end)
    monkeypatch.setattr(process, "Worker", worker)
    monkeypatch.setattr(os, "_exit", exited)
    with pytest.raises(ExitedError) as left:
        process.serve(load(deployment.write_config()))
    assert left.value.args == (0, True)


# --- a lane ---


async def test_who_came_first_to_a_lane_goes_first() -> None:
    """Also before one who was just there, and comes again at once."""
    lane, calls = Lane(1), list[str]()

    async def caller(name: str) -> None:
        for _ in range(4):
            await lane.run(name, "its turn", calls.append, name)

    await asyncio.gather(*map(caller, "abc"))
    assert calls == [*"abc"] * 4


async def test_a_turn_that_is_not_taken_is_the_next_ones() -> None:
    """Whether who had it awaits something else first, or is cancelled while it waits, or when it is called."""
    lane, calls, go_on = Lane(1), list[str](), threading.Event()

    def run(name: str) -> asyncio.Task[None]:
        return asyncio.create_task(lane.run(name, "its turn", calls.append, name))

    await lane.slot("a", "its slot")
    await asyncio.wait_for(run("b"), DEADLINE_S)
    holder = asyncio.create_task(lane.run("a", "its turn", go_on.wait, DEADLINE_S))
    await until(lambda: lane.busy, lambda: "not busy")
    waiting, called, last = map(run, "cde")
    await until(lambda: lane.waits("e"), lambda: "not waiting")
    waiting.cancel()
    call, passed = lane._call, list[str]()

    def cancelling() -> None:
        call()
        if "d" in lane._called and called.cancel():
            passed.append("d")

    lane._call = cancelling  # type: ignore[method-assign]
    go_on.set()
    assert await holder
    await asyncio.wait_for(last, DEADLINE_S)
    assert called.cancelled()
    assert passed
    assert calls == ["b", "e"]
    await asyncio.wait_for(run("c"), DEADLINE_S)


async def test_a_lane_makes_one_call_for_a_name_and_keeps_none_that_nobody_waits_for() -> None:
    """The next of that name waits for the thread, others do not; who leaves while it waits was never there."""
    lane, go_on, calls = Lane(2), threading.Event(), list[str]()

    def call(name: str) -> str:
        calls.append(name)
        assert go_on.wait(DEADLINE_S)
        return name

    first = asyncio.create_task(lane.run("a", "it", call, "a"))
    await until(lambda: calls == ["a"], lambda: calls)
    first.cancel()
    again = asyncio.create_task(lane.run("a", "it", call, "a again"))
    other = asyncio.create_task(lane.run("b", "it", call, "b"))
    await until(lambda: calls == ["a", "b"], lambda: calls)
    third = asyncio.create_task(lane.run("c", "it", call, "c"))
    await until(lambda: lane.waits("c"), lambda: "not waiting")
    assert lane.waits("c", above_s=DEADLINE_S) is None  # not for so long yet
    assert lane.works_for("a")
    assert not lane.works_for("c")
    third.cancel()
    go_on.set()
    assert [await again, await other] == ["a again", "b"]
    assert calls == ["a", "b", "a again"]
    assert not lane.busy


def test_who_waits_is_told_of_once_a_minute() -> None:
    """Where a call takes 200 s, three times."""
    loop = VirtualLoop(lambda: 200.0)
    try:
        with capture_logs() as lines:
            loop.run_until_complete(Lane(1).run("events/3", "its newest snapshot", lambda: None))
    finally:
        loop.close()
    assert [(line["event"], line["shard"]) for line in lines] == [("still_waiting", "events/3")] * 3
