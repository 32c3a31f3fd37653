"""The documents of real workers have the shape of `streamdedup.shape`, in all modes and states."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from streamdedup import shape
from streamdedup.delivery.lifecycle import State
from streamdedup.server.pulse import Pulse
from streamdedup.server.state import document, observe
from streamdedup.server.status import Phase, Status
from streamdedup.settings import load
from streamdedup.testing import connected_to
from streamdedup.worker.staged import CopyingWorker
from tests.lists.files import list_file
from tests.memory import Stage, over
from tests.staged import MemoryStage

SCHEMA = Draft202012Validator(shape.SCHEMA)


def fitting(status: Status) -> dict[str, Any]:
    """The document about a worker, which has the shape that the schema says, and nothing else."""
    pulse = Pulse()
    observe(status, pulse)
    made: dict[str, Any] = json.loads(json.dumps(document(status, pulse), allow_nan=False))
    SCHEMA.validate(made)
    assert shape.fit(made) == made
    return made


def _lists(stage: Stage) -> None:
    for name in ("allowlist", "blocklist"):
        path = list_file(stage.deployment.directory / f"{name}.list", [b"blocked"])
        stage.config[name] = {"file": str(path)}


def _lists_alone(stage: Stage) -> None:
    _lists(stage)
    stage.config["filter"] = {"kind": "none"}


def _copies_of_what_does_not_pass(stage: Stage) -> None:
    stage.side_topic("dead_letter_topic")
    stage.side_topic("duplicates_topic")


def _set(section: str, **options: object) -> Callable[[Stage], None]:
    return lambda stage: stage.config[section].update(options)


MODES: dict[str, Callable[[Stage], None]] = {
    "plain": lambda _: None,
    "window": _set("filter", kind="window", retention="7d"),
    "growing": _set("filter", on_full="grow"),
    "no filter": _lists_alone,
    "lists": _lists,
    "shadow": _set("sink", shadow=True),
    "at least once": _set("delivery", guarantee="at_least_once"),
    "side topics": _copies_of_what_does_not_pass,
}


class Seen(dict[tuple[Phase, tuple[State, ...]], dict[str, Any]]):
    """The documents about a worker while it runs: one for each phase, and for each state of its partitions."""

    def look(self, status: Status) -> None:
        """Make a document if the worker is where it was not yet."""
        states = tuple(delivery.state for delivery in dict(status.deliveries).values())
        if (status.phase, states) not in self:
            self[status.phase, states] = fitting(status)

    async def watch(self, status: Status) -> None:
        """Look until cancelled."""
        while True:
            self.look(status)
            await asyncio.sleep(0.01)  # of the virtual clock

    @property
    def states(self) -> set[str]:
        """The states of partitions that documents show."""
        return {shard["state"] for made in self.values() for shard in made["shards"]}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_worker_in_each_mode(mode: Callable[[Stage], None], tmp_path: Path) -> None:
    """From before it connects until after it has drained, and when it comes again."""

    @over(Stage)
    async def scene(stage: Stage) -> None:
        mode(stage)
        for count in (10, 0):
            seen, worker = Seen(), stage.start()
            watching = asyncio.create_task(seen.watch(worker.worker.status))
            async with worker:
                stage.feed([*range(count // 2)] * 2)
                await worker.live()
                await worker.consumed(count)
                seen.look(worker.worker.status)
            watching.cancel()
            phases = {made["worker"]["phase"] for made in seen.values()}
            assert phases >= {"connecting", "serving", "draining"}
            assert "live" in seen.states
            assert len({made["worker"]["instance"] for made in seen.values()}) == 1

    scene(tmp_path=tmp_path)


@over(Stage)
async def test_a_partition_that_is_full(stage: Stage) -> None:
    """It shows its trouble, and that nothing more fits."""
    stage.config["filter"] |= {"capacity": 10, "on_full": "stop"}
    async with stage.start() as worker:
        stage.feed(range(100))
        await worker.logged("filter_full")
        (shard,) = fitting(worker.worker.status)["shards"]
    assert (shard["state"], bool(shard["trouble"])) == ("full", True)


@over(Stage)
async def test_a_partition_that_is_stopped(stage: Stage) -> None:
    """By a second writer."""
    async with stage.start() as worker:
        stage.feed(range(3))
        await worker.consumed(3)
        stage.broker.produce(stage.sink, [(0, b"foreign", b"")])
        stage.feed(range(3, 6))
        await worker.stopped()
        made = fitting(worker.worker.status)
    assert made["shards"][0]["state"] == "stopped"
    assert not made["ready"]["is"]


@over(MemoryStage)
async def test_both_stages(stage: MemoryStage) -> None:
    """Of a process that has both, of one that only judges, and of one that only copies."""
    async with stage.start() as worker:
        stage.feed(range(20))
        await worker.consumed(20)
        both = fitting(worker.worker.status)["stages"]
    assert both["copying"]["copied"] == 20
    assert both["judging"]["middle"] == stage.middle
    copier = CopyingWorker(load(stage.deployment.write_config()), connected_to(stage.broker))
    task = asyncio.create_task(copier.run())
    async with stage.start(copies=False) as worker:
        stage.feed(range(20, 40))
        await worker.consumed(20)
        judging = fitting(worker.worker.status)
        copying = fitting(copier.status)
    copier.stop()
    await task
    assert judging["stages"]["copying"] is None
    assert (copying["stages"]["judging"], copying["worker"]["judges"]) == (None, False)
