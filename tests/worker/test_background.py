"""Claims about what runs beside the events: an error that nobody foresaw is reported, counted, and tried again."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Set
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pytest

import streamdedup.worker.lists as lists_module
from streamdedup.delivery import lists as delivery_lists
from streamdedup.delivery.leader_clocks import LeaderClocks
from streamdedup.delivery.lifecycle import Delivery, State
from streamdedup.events import Verdict
from streamdedup.metrics.catalogue import TASKS
from streamdedup.repartition.heads import Heads
from streamdedup.repartition.inputs import PatternWatch
from streamdedup.repartition.purge import Purge
from streamdedup.repartition.uncopied import Uncopied
from streamdedup.repartition.unread import Unread
from streamdedup.server.others import Others
from streamdedup.settings import load
from streamdedup.testing import connected_to
from streamdedup.testing.cluster import MemoryCluster
from streamdedup.worker import staged as staged_module
from streamdedup.worker.assignment import Assignment
from streamdedup.worker.group_watch import GroupWatch
from streamdedup.worker.input_watch import InputWatch
from streamdedup.worker.list_changes import ControlTopic
from streamdedup.worker.output_watch import OutputWatch
from streamdedup.worker.retention_watch import RetentionWatch
from streamdedup.worker.staged import CopyingWorker
from tests import memory
from tests.lists.files import list_file
from tests.local import LocalWorker, Start
from tests.memory import measured, over, page
from tests.worker.test_list_files import built

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
    "others": (Others, "turn"),
    "unread": (Unread, "look"),
    "heads": (Heads, "_report"),
    "inputs": (PatternWatch, "look"),
    "middle": (staged_module, "check_owner"),
    "copying": (Uncopied, "look"),
    "purge": (Purge, "once"),
    "shard": (Delivery, "_live"),
}
# Those that only `source.repartition` has.
STAGED = {"unread", "heads", "inputs", "middle", "copying", "purge"}
# Those that only a process of the second stage alone has.
ALONE = {"copying"}


class Stage(memory.Stage):
    """One partition, a list and its control topic."""

    def __init__(self, directory: Path, start: Start) -> None:
        super().__init__(directory, start)
        self.broker.create_topic("control", 1, cleanup_policy="compact")
        block = list_file(directory / "block.list", [b"nobody"])
        self.config["blocklist"] = {"file": str(block), "control_topic": "control"}

    def repartition(self) -> None:
        """Have workers of both stages."""
        repartition = {"topic": "middle", "partitions": 1}
        self.config["source"] = {"pattern": self.source, "repartition": repartition}
        self.config["filter"] |= {"kind": "window", "retention": "7d"}


@asynccontextmanager
async def copying(stage: Stage) -> AsyncIterator[None]:
    """Run the first stage alone."""
    copier = CopyingWorker(load(stage.deployment.write_config()), connected_to(stage.broker))
    task = asyncio.create_task(copier.run())
    yield
    copier.stop()
    await task


def counted(worker: LocalWorker, task: str) -> float:
    """How many errors of `task` the metric counts."""
    (count,) = measured(worker, f'task_errors_total{{task="{task}"}}')
    return count


def test_each_task_is_broken_once() -> None:
    """A new one must be put to this test, too."""
    assert BROKEN.keys() == TASKS.keys()


def broken(task: str, error: Exception, calls: list[float]) -> Callable[..., Any]:
    """Make what takes the place of the method of `task`: it notes when it was called, and raises `error`."""

    def fails(*_: object, **__: object) -> None:
        calls.append(asyncio.get_running_loop().time())
        raise error

    async def fails_later(*_: object, **__: object) -> None:
        fails()

    owner, name = BROKEN[task]
    return fails_later if asyncio.iscoroutinefunction(getattr(owner, name)) else fails


@pytest.mark.parametrize(
    "tasks",
    [BROKEN.keys() - STAGED - {"shard"}, STAGED - ALONE, ALONE],
    ids=["one stage", "both stages", "the second stage"],
)
@over(Stage)
async def test_a_task_that_meets_an_unknown_error_goes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tasks: Set[str]
) -> None:
    """Events flow meanwhile, it is tried less and less often, and it works again once the cause is gone."""
    calls = {task: list[float]() for task in sorted(tasks)}
    if tasks <= STAGED:
        stage.repartition()
    async with AsyncExitStack() as stack:
        if tasks == ALONE:
            await stack.enter_async_context(copying(stage))
        worker = await stack.enter_async_context(stage.start(copies=tasks != ALONE))
        await worker.live()
        if tasks == STAGED - ALONE:
            await worker.logged("repartition_live")
        with pytest.MonkeyPatch.context() as broken_for_now:
            # An OSError may be a broker that is away.
            for task, error in zip(calls, cycle([ValueError(KEY), MemoryError(KEY)]), strict=False):
                broken_for_now.setattr(*BROKEN[task], broken(task, error, calls[task]))
            if "group" in tasks:  # it looks only if the group refuses us
                monkeypatch.setattr(type(worker.worker.status.source), "refused_since", 0.0)
            for number in range(20):
                stage.broker.produce("control", [(0, b"changed%d" % number, b'{"op": "add"}')])
                await asyncio.sleep(15)
                stage.feed([number])
                await worker.consumed(number + 1)
            assert not worker.task.done()
            lines = worker.lines("task_failed")
            assert KEY not in str(lines)
            told = Counter(line["task"] for line in lines)
            assert told == {task: len(times) for task, times in calls.items()}
            assert told == {task: counted(worker, task) for task in calls}
            for task, times in calls.items():
                # Up to a minute, with jitter.
                assert len(times) > 2 and max(b - a for a, b in pairwise(times)) > 29, task
        await asyncio.sleep(120)
        assert len(worker.lines("task_failed")) == len(lines)


@over(Stage)
async def test_a_shard_that_dies_at_once_is_revived_with_back_off(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not five times a second; it is not live meanwhile, and goes on as soon as it can."""
    died, run = list[float](), Delivery.run

    async def dies(self: Delivery, epoch: int) -> None:
        if len(died) < 9:
            died.append(asyncio.get_running_loop().time())
            self.state = State.LIVE
            raise ValueError(KEY)
        await run(self, epoch)

    worker = stage.start()
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
    stage.feed([1])
    await worker.consumed(1)


@pytest.mark.finding("list-refused")
@pytest.mark.parametrize("error", UNKNOWN)
@over(Stage)
async def test_a_list_that_cannot_be_loaded_for_any_reason_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """The one before stays in force, and the file is tried again."""
    load_list, failing = delivery_lists.load_list, [error(KEY)]

    def fails(*arguments: Any) -> Any:
        if failing:
            raise failing[0]
        return load_list(*arguments)

    worker = await stage.started()
    monkeypatch.setattr(lists_module, "load_list", fails)
    worker.worker.reload()
    (line,) = await worker.logged("list_refused")
    assert error.__name__ in line["reason"]
    assert line["stays_in_force"]
    assert not worker.lines("task_failed")
    assert page(worker).status == 200
    assert (
        "warning: blocklist: its file as it is now is refused, and the list before"
        in page(worker).text
    )
    assert "the next start of a worker will fail" in page(worker).text
    assert line["reason"] in page(worker).text
    assert [
        measured(worker, f'list_refused{{list="{which}list"}}') for which in ("allow", "block")
    ] == [[0], [1]]
    failing.clear()
    await worker.logged("list_in_force", 2)
    assert "refused" not in page(worker).text
    assert measured(worker, "list_refused") == [0, 0]


@pytest.mark.parametrize("damage", ["cut", "other rules", "empty"])
@over(Stage)
async def test_a_list_that_does_not_do_is_refused(
    stage: Stage, tmp_path: Path, damage: str
) -> None:
    """The one before stays in force, the log says why, and the next good one is taken."""
    path, other = tmp_path / "block.list", tmp_path / "other.list"
    built(other, "second", options=("--normalize", "lowercase") if damage == "other rules" else ())
    if damage != "other rules":
        os.truncate(other, other.stat().st_size // 2 if damage == "cut" else 0)

    async def blocked(*keys: bytes) -> int:
        before = worker.tally
        stage.broker.produce(stage.source, [(0, key, b"") for key in keys])
        await worker.consumed(before.consumed + len(keys))
        return worker.tally[Verdict.BLOCKED] - before[Verdict.BLOCKED]

    worker = await stage.started()
    other.replace(path)
    (line,) = await worker.logged("list_refused")
    assert line["list"] == "blocklist"
    assert line["stays_in_force"] == worker.lines("list_in_force")[0]["version"]
    assert await blocked(b"nobody", b"second") == 1
    list_file(other, [b"second"]).replace(path)
    await worker.logged("list_in_force", 2)
    assert await blocked(b"nobody", b"second") == 1
