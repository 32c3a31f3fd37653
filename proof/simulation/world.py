"""Machines with disks, processes with workers, one broker and one stream; what happens to them is told to a trace."""

import asyncio
import errno
import os
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import structlog
from typing_extensions import override

from proof.simulation.plan import BOTH, COPIES, LISTED, Plan
from streamdedup.delivery.lifecycle import State
from streamdedup.errors import StreamdedupError
from streamdedup.settings import Settings
from streamdedup.testing import (
    FaultyNetwork,
    KilledError,
    MemoryBroker,
    PowerFs,
    Process,
    Thread,
    VirtualLoop,
    connected_to,
)
from streamdedup.testing.clock import PROCESS
from streamdedup.worker.staged import CopyingWorker
from streamdedup.worker.worker import Worker
from tests.lists.files import list_file

T = TypeVar("T")

TOLD = ("event", "partition", "label", "offset", "start", "end", "why", "reason", "error", "detail")
STOPS = ("shard_stopped", "shard_died", "filter_full")  # few plans ask for one
SLOW = frozenset(("open", "write", "fsync", "rename"))  # where a disk may take its time
EPOCH_MS = 1_700_000_000_000
WRONG_MS = (-7_200_000, 7_200_000, 0)  # the clocks of the machines


class Disk(PowerFs):
    """What has the page cache of a machine: all of it is there after a kill, and what was synced after a power loss.

    It serves no process that is dead. `harm` is asked before each call, and may raise or linger; `published` is told
    of each file that got its name.
    """

    def __init__(self, harm: Callable[[str], None], published: Callable[[Path], None]) -> None:
        super().__init__()
        self._harm, self._published = harm, published

    def around(self, name: str, act: Callable[[], T]) -> T:
        """Make the call, if whoever asks is alive; syncing is only noted."""
        if process := PROCESS.get():
            process.check()
            self._harm(name)
        if name == "fsync":
            return None  # type: ignore[return-value]  # as `os.fsync`
        return act()

    @override
    def rename(self, src: Path, dst: Path) -> None:
        super().rename(src, dst)
        self._published(dst)


class Machine:
    """A disk, and the process that runs a worker on it, if any."""

    def __init__(self, world: "World", number: int) -> None:
        self.number, self._world = number, world
        self.root = world.directory / f"machine-{number}"
        self.root.mkdir()
        self.disk = Disk(self._harm, self._published)
        self.calls_to_crash = self.calls_to_error = -1
        self.process: Process | None = None
        self.worker: Worker | None = None
        """What judges; None if it only copies."""
        self._runs: Worker | CopyingWorker | None = None
        self.task: asyncio.Task[None] | None = None
        self._started = 0
        snapshot = world.settings.snapshot.model_copy(update={"directory": self.root / "snapshots"})
        name = f"machine-{number}" if world.plan.static else None
        kafka = world.settings.kafka.model_copy(update={"group_instance_id": name})
        self._settings = world.settings.model_copy(update={"snapshot": snapshot, "kafka": kafka})

    @property
    def runs(self) -> bool:
        """Whether a worker is there, paused or not."""
        return self.task is not None and not self.task.done()

    @property
    def stopped(self) -> bool:
        """Whether a shard waits for an operator."""
        deliveries = self.worker.deliveries.values() if self.worker and self.runs else ()
        return any(delivery.state is State.STOPPED for delivery in deliveries)

    def now_ms(self) -> int:
        """The time of day by this machine's clock, which nothing may depend on: hours behind, ahead, or right."""
        return self._world.now_ms() + WRONG_MS[self.number % len(WRONG_MS)]

    def start(self) -> None:
        """Start a worker; the one before is gone."""
        world = self._world
        self._started += 1
        self.process = Process(f"{self.number}.{self._started}")
        settings = self._settings
        if world.plan.shadowed:
            sink = settings.sink.model_copy(update={"shadow": world.chance.random() < 0.6})
            settings = settings.model_copy(update={"sink": sink})
        stage = world.plan.stages[self.number] if world.plan.stages else BOTH
        connect = connected_to(world.broker)
        if stage == COPIES:
            self._runs = CopyingWorker(settings, connect, self.now_ms)
        else:
            self._runs = self.worker = Worker(
                settings,
                connect=connect,
                now_ms=self.now_ms,
                fs=self.disk,
                random=world.secrets.randbytes,
                copies=stage == BOTH,
            )
        self.task = world.loop.spawn(self.process, self._runs.run())

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self._world.loop.kill(self.process)
            for fd in self.disk.open_fds:
                os.close(fd)
            self.disk.open_fds.clear()
            self.task = None

    def lose_power(self) -> None:
        """The machine goes dark, with what its disk had not been told to keep."""
        self.kill()
        self.disk.lose_power(self._world.chance, self.root / "snapshots")

    def stop(self) -> None:
        """SIGTERM."""
        if self._runs is not None:
            self._runs.stop()

    async def ended(self) -> None:
        """Wait for it; what it gave up with is in its log."""
        if self.task is not None:
            with suppress(StreamdedupError, KilledError, asyncio.CancelledError):
                await self.task

    def forget(self) -> None:
        """Somebody deletes all snapshots."""
        for path in sorted(self.root.rglob("*.snapshot")):
            self.disk.unlink(path)

    def _published(self, path: Path) -> None:
        """Keep what a snapshot holds for the oracle: it may be gone, or torn, when that looks."""
        if path.suffix == ".snapshot":
            self._world.saved.append((int(path.parent.name), path.read_bytes()))

    def _harm(self, call: str) -> None:
        plan, chance, process = self._world.plan, self._world.chance, PROCESS.get()
        if process and call in SLOW and chance.random() < plan.lingers:
            Thread.linger(chance.random() * plan.linger_s_max)
            process.check()
        self.calls_to_crash -= 1
        self.calls_to_error -= 1
        if self.calls_to_crash == 0 and self.process is not None:
            self._world.note(f"{self.process.name} dies in {call}")
            self.kill()
            self.process.check()
        if self.calls_to_error == 0:
            number = self._world.chance.choice((errno.EIO, errno.ENOSPC))
            raise OSError(number, os.strerror(number))


class World:
    """All there is. `note` tells the trace, of which `digest` is the sum."""

    def __init__(self, chance: Random, plan: Plan, loop: VirtualLoop, directory: Path) -> None:
        self.chance, self.plan, self.loop, self.directory = chance, plan, loop, directory
        self.secrets = Random(0)  # apart from `chance`: they decide nothing
        self.partitions = plan.partitions
        self.trace: list[str] | None = None
        self._digest = blake2b(digest_size=16)
        self.network = FaultyNetwork(chance, plan.chances, self.note)
        self.broker = MemoryBroker(self.network, self.now_ms)
        self.broker.fetch_events_max = plan.fetch_events_max
        self.broker.rebalance_s = 0.5
        tree: Any = plan.settings
        if plan.listed:
            tree = {**tree, "blocklist": {"file": list_file(directory / "block.list", LISTED)}}
        self.settings = Settings(
            **{**tree, "snapshot": {**tree["snapshot"], "directory": directory}}
        )
        self.machines = [Machine(self, number) for number in range(plan.workers_max)]
        self.stops: list[str] = []
        self.saved: list[tuple[int, bytes]] = []  # the partition and the bytes of each snapshot

    @property
    def digest(self) -> str:
        """Equal where two histories are."""
        return self._digest.hexdigest()

    def now_ms(self) -> int:
        """The time of day, ms since 1970."""
        return EPOCH_MS + int(self.loop.time() * 1000)

    def note(self, line: str) -> None:
        """Something happened."""
        line = line.replace(str(self.directory), "")  # another one in each run
        self._digest.update(line.encode())
        if self.trace is not None:
            self.trace.append(line)

    def note_log(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> Any:
        """What structlog hands on: a line of the trace, without what differs between two runs of one seed."""
        if event["event"] == "compiling":  # a line of the first run after a change of the code
            raise structlog.DropEvent
        process = PROCESS.get()
        told = {name: event[name] for name in TOLD if name in event}
        line = f"{self.loop.time():.6f} {process.name if process else '-'} {told}"
        self.note(line)
        expected = any(why in str(told.get("error")) for why in self.plan.stops)
        if event["event"] in STOPS and not expected and not (process and process.dead):
            self.stops.append(line)
        raise structlog.DropEvent
