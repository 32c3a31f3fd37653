"""Claims about what runs beside the events: an error that nobody foresaw is reported, counted, and tried again."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pytest

import streamdedup.worker.lists as lists_module
from streamdedup.delivery.leader_clocks import LeaderClocks
from streamdedup.delivery.lifecycle import Delivery, State
from streamdedup.metrics.catalogue import TASKS
from streamdedup.repartition.heads import Heads
from streamdedup.repartition.inputs import PatternWatch
from streamdedup.repartition.purge import Purge
from streamdedup.repartition.uncopied import Uncopied
from streamdedup.repartition.unread import Unread
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.settings import load
from streamdedup.testing import MemoryBroker, VirtualLoop, connected_to
from streamdedup.testing.cluster import MemoryCluster
from streamdedup.worker import list_files
from streamdedup.worker import staged as staged_module
from streamdedup.worker.assignment import Assignment
from streamdedup.worker.group_watch import GroupWatch
from streamdedup.worker.input_watch import InputWatch
from streamdedup.worker.list_changes import ControlTopic
from streamdedup.worker.output_watch import OutputWatch
from streamdedup.worker.retention_watch import RetentionWatch
from streamdedup.worker.staged import CopyingWorker
from tests.deployment import Deployment, keyed
from tests.lists.files import list_file
from tests.local import LocalWorker, workers

UNKNOWN = [ValueError, OSError, MemoryError]
KEY = "user1@example.com"  # an error of unknown origin may quote one

# What is broken for each task: the object and its method.
BROKEN: dict[str, tuple[object, str]] = {
    "snapshots": (Assignment, "outrun_retention"),
    "ends": (Assignment, "look_up_ends"),
    "topics": (MemoryCluster, "changed"),
    "retention": (RetentionWatch, "_look"),
    "input": (InputWatch, "look"),
    "output": (OutputWatch, "_look"),
    "clocks": (LeaderClocks, "_try"),
    "lists": (lists_module.ListLoader, "_stamp"),
    "changes": (ControlTopic, "log_state"),
    "group": (GroupWatch, "_look"),
    "unread": (Unread, "look"),
    "heads": (Heads, "_report"),
    "inputs": (PatternWatch, "look"),
    "middle": (staged_module, "check_owner"),
    "copying": (Uncopied, "look"),
    "purge": (Purge, "once"),
    "shard": (Delivery, "_live"),
}
STAGED = {
    "unread",
    "heads",
    "inputs",
    "middle",
    "copying",
    "purge",
}  # those that only `source.repartition` has
ALONE = {"copying"}  # that only a process of the second stage alone has


def play(
    directory: Path,
    scene: Callable[[LocalWorker, MemoryBroker, Deployment], Coroutine[Any, Any, None]],
    *,
    staged: bool = False,
    alone: bool = False,
) -> None:
    """Run `scene` with a worker of one partition that has a control topic, on a virtual clock.

    `staged`: it has both stages of `source.repartition`. `alone`: it has the second one, and another has the first.
    """

    async def main() -> None:
        async with workers() as start:
            broker = MemoryBroker()
            deployment = Deployment("memory:1", directory, partitions=1)
            broker.create_topic(deployment.source, 1)
            broker.create_topic(deployment.sink, 1)
            broker.create_topic("control", 1, cleanup_policy="compact")
            block = list_file(directory / "block.list", [b"nobody"])
            deployment.config["blocklist"] = {"file": str(block), "control_topic": "control"}
            if staged:
                repartition = {"topic": "middle", "partitions": 1}
                source = {"pattern": deployment.source, "repartition": repartition}
                deployment.config["source"] = source
                deployment.config["filter"] |= {"kind": "window", "retention": "7d"}
            connect = connected_to(broker)
            async with AsyncExitStack() as stack:
                if alone:
                    copier = CopyingWorker(load(deployment.write_config()), connect)
                    copying = asyncio.create_task(copier.run())
                    stack.push_async_callback(lambda: copying)
                    stack.callback(copier.stop)
                worker = start(deployment, connect=connect, copies=not alone)
                await scene(worker, broker, deployment)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def counted(worker: LocalWorker, task: str) -> float:
    """How many errors of `task` the metric counts."""
    page = pages(worker.worker.status, Pulse())["/metrics"]().text
    name = f'streamdedup_task_errors_total{{task="{task}"}} '
    (line,) = [line for line in page.splitlines() if line.startswith(name)]
    return float(line.split()[1])


def test_each_task_is_broken_once() -> None:
    """A new one must be put to this test, too."""
    assert BROKEN.keys() == TASKS.keys()


@pytest.mark.parametrize(
    ("task", "error"),
    # An OSError may be a broker that is away.
    list(zip(sorted(BROKEN.keys() - {"shard"}), cycle([ValueError, MemoryError]), strict=False)),
)
def test_a_task_that_meets_an_unknown_error_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, error: type[Exception]
) -> None:
    """Events flow meanwhile, it is tried less and less often, and it works again once the cause is gone."""
    owner, name = BROKEN[task]
    works, calls = getattr(owner, name), list[float]()

    async def broken(*_: object, **__: object) -> None:
        calls.append(asyncio.get_running_loop().time())
        raise error(KEY)

    def broken_at_once(*_: object, **__: object) -> None:
        calls.append(asyncio.get_running_loop().time())
        raise error(KEY)

    async def scene(worker: LocalWorker, broker: MemoryBroker, deployment: Deployment) -> None:
        await worker.live(1)
        if task in STAGED - ALONE:
            await worker.logged("repartition_live")
        fails = broken if asyncio.iscoroutinefunction(works) else broken_at_once
        monkeypatch.setattr(owner, name, fails)
        if task == "group":  # it looks only if the group refuses us
            monkeypatch.setattr(type(worker.worker.status.source), "refused_since", 0.0)
        for number in range(20):
            message = (0, b"changed%d" % number, b'{"op": "add"}')
            broker.produce("control", [message])
            await asyncio.sleep(15)
            events = [(p, k, v) for p, k, v, *_ in keyed([number], 1)]
            broker.produce(deployment.source, events)
            await worker.consumed(number + 1)
        assert not worker.task.done()
        lines = worker.lines("task_failed")
        assert {line["task"] for line in lines} == {task}
        assert KEY not in str(lines)
        assert len(calls) == len(lines) == counted(worker, task) > 2
        waits = [after - before for before, after in pairwise(calls)]
        assert max(waits) > 29  # up to a minute, with jitter
        monkeypatch.setattr(owner, name, works)
        await asyncio.sleep(120)
        assert len(worker.lines("task_failed")) == len(lines)

    play(tmp_path, scene, staged=task in STAGED, alone=task in ALONE)


def test_a_shard_that_dies_at_once_is_revived_with_back_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not five times a second; it is not live meanwhile, and goes on as soon as it can."""
    died = list[float]()
    run = Delivery.run

    async def dies(self: Delivery, epoch: int) -> None:
        if len(died) < 9:
            died.append(asyncio.get_running_loop().time())
            self.state = State.LIVE
            raise ValueError(KEY)
        await run(self, epoch)

    async def scene(worker: LocalWorker, broker: MemoryBroker, deployment: Deployment) -> None:
        monkeypatch.setattr(Delivery, "run", dies)
        await worker.logged("shard_died", 9)
        assert worker.delivery.state is State.ASSIGNED
        await worker.live(1)
        waits = [after - before for before, after in pairwise(died)]
        assert waits[0] < 1
        assert waits[-1] > 5
        lines = worker.lines("shard_died")
        assert len(lines) == counted(worker, "shard") == 9
        assert KEY not in str(lines)
        broker.produce(deployment.source, [(p, k, v) for p, k, v, *_ in keyed([1], 1)])
        await worker.consumed(1)

    play(tmp_path, scene)


@pytest.mark.parametrize("error", UNKNOWN)
def test_a_list_that_cannot_be_loaded_for_any_reason_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """The one before stays in force, and the file is tried again."""
    load, failing = list_files.load_list, [error(KEY)]

    def broken(*arguments: Any) -> Any:
        if failing:
            raise failing[0]
        return load(*arguments)

    async def scene(worker: LocalWorker, _broker: MemoryBroker, _deployment: Deployment) -> None:
        await worker.live(1)
        monkeypatch.setattr(lists_module, "load_list", broken)
        worker.worker.reload()
        (line,) = await worker.logged("list_refused")
        assert error.__name__ in line["reason"]
        assert line["stays_in_force"]
        assert not worker.lines("task_failed")
        readyz = pages(worker.worker.status, Pulse())["/readyz"]
        assert readyz().status == 200
        assert "warning: the blocklist as its file is now is refused, and the one" in readyz().text
        assert line["reason"] in readyz().text
        failing.clear()
        await worker.logged("list_in_force", 2)
        assert "refused" not in readyz().text

    play(tmp_path, scene)
