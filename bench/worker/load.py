"""What the machine does beside what is measured: the time of all processors less that of the processes we know.

On Linux only, and only where the broker's process can be told by the port that it listens on; else None.
"""

import os
import sys
import time
from contextlib import suppress

import psutil

JAVA = "java"
CHILDREN_EVERY_S = 1.0  # to find them goes through all processes


class Tree:
    """A process and all that it started, and that those started."""

    def __init__(self, root: psutil.Process) -> None:
        self._root, self._known, self._looked = root, [root], -CHILDREN_EVERY_S

    def cpu_s(self) -> float:
        """The time of processors that all of them took, those that ended included, in seconds; 0 once they are gone."""
        return sum(cpu_s(process, children=True) for process in self._processes())

    def rss_bytes(self) -> int:
        """What is resident of each, added up."""
        resident = 0
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                resident += process.memory_info().rss
        return resident

    def _processes(self) -> list[psutil.Process]:
        if (now := time.monotonic()) >= self._looked + CHILDREN_EVERY_S:
            with suppress(psutil.NoSuchProcess):
                self._known = [self._root, *self._root.children(recursive=True)]
            self._looked = now
        return self._known


class OtherLoad:
    """From its making on; `known` is what was started, whose time is not others'. Our own is known, too."""

    def __init__(self, bootstrap: str, known: Tree) -> None:
        self._brokers = brokers_at(bootstrap)
        self._tree, self._known = known, [psutil.Process(), *self._brokers] if self._brokers else []
        self._broker_s = sum(map(cpu_s, self._brokers))
        self._began, self._busy, self._ours = time.monotonic(), _busy_s(), self._known_s()

    def share(self) -> float | None:
        """The share of all processors that others took, from 0 to 1."""
        if not self._known:
            return None
        processors_s = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        others_s = _busy_s() - self._busy - (self._known_s() - self._ours)
        return round(max(0.0, others_s / processors_s), 4) if processors_s else 0.0

    def brokers_s(self) -> float | None:
        """The time of processors that the brokers took, in seconds."""
        return sum(map(cpu_s, self._brokers)) - self._broker_s if self._brokers else None

    def _known_s(self) -> float:
        return self._tree.cpu_s() + sum(cpu_s(process) for process in self._known)


def brokers_at(bootstrap: str) -> list[psutil.Process]:
    """The Javas of this machine that listen on a port of `bootstrap`; none where that is not to be seen."""
    if not sys.platform.startswith("linux"):
        return []
    ports = {int(address.rpartition(":")[2]) for address in bootstrap.split(",")}
    found = {
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port in ports
    }
    processes = [psutil.Process(pid) for pid in found if pid is not None]
    return [process for process in processes if process.name() == JAVA]


def cpu_s(process: psutil.Process, *, children: bool = False) -> float:
    """The time of processors that a process took, its own and the kernel's for it, in seconds; 0 once it is gone.

    `children` adds that of its children which have ended.
    """
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        ended = times.children_user + times.children_system if children else 0.0
        return float(times.user + times.system + ended)
    return 0.0


def _busy_s() -> float:
    """All processors; without interrupts, which nobody's time has: those of loopback are the broker's and ours."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + getattr(times, "steal", 0.0))
