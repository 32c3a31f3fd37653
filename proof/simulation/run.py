"""One seed: draw a plan, run it with its faults, let everything heal, and have the oracle judge."""

import asyncio
import gc
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random

import structlog

from proof.simulation.driver import Driver
from proof.simulation.oracle import BreachError
from proof.simulation.plan import Plan, drawn
from proof.simulation.staged import StagedDriver
from proof.simulation.world import World
from streamdedup.testing import VirtualLoop

LAG_S_MAX = 0.01
COLLECT_EVERY = 25  # runs: each leaves some 10 MB, which its worker has frozen
_runs = count(1)
_RAM = Path("/dev/shm")  # noqa: S108 - each run has a directory of its own, which is to be fast


@dataclass(frozen=True)
class Outcome:
    """What became of a seed. `breach` is None where every promise was kept; `digest` is that of its history."""

    seed: int
    plan: Plan
    breach: str | None
    digest: str
    trace: list[str] | None


def simulate(
    seed: int, *, traced: bool = False, changed: Callable[[Plan], Plan] = lambda plan: plan
) -> Outcome:
    """Run a seed, its plan `changed` before it begins."""
    chance = Random(seed)
    plan = changed(drawn(chance))
    random.seed(seed)  # the jitter of back-offs
    loop = VirtualLoop(lambda: chance.random() * LAG_S_MAX)
    with tempfile.TemporaryDirectory(
        prefix="simulation-", dir=_RAM if _RAM.is_dir() else None
    ) as directory:
        world = World(chance, plan, loop, Path(directory))
        world.trace = [f"{plan}"] if traced else None
        breach = None
        with _logs_to(world), _closing(world):
            try:
                driver = StagedDriver if plan.stages else Driver
                loop.run_until_complete(driver(world).run())
            except BreachError as error:
                breach = str(error)
    if next(_runs) % COLLECT_EVERY == 0:
        gc.unfreeze()
        gc.collect()
    return Outcome(seed, plan, breach, world.digest, world.trace)


@contextmanager
def _logs_to(world: World) -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(processors=[world.note_log])
    try:
        yield
    finally:
        structlog.configure(**before)


@contextmanager
def _closing(world: World) -> Iterator[None]:
    """Kill whatever is left, and let it end."""
    loop = world.loop
    try:
        yield
    finally:
        for machine in world.machines:
            machine.kill()
        while tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
        loop.close()
