"""How long something takes, and on which machine."""

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = (
    "streamdedup-kafka",
    "numba",
    "numpy",
    "mmh3",
    "pyarrow",
    "rbloom",
    "fastbloom-rs",
    "pybloom-live",
    "pyprobables",
)
DISTURBED = 1.1  # times the thread's own time: so much more passed on the clock
TRIES = 3
LONG_S = 0.5  # not repeated: the processor is shared sooner or later


@dataclass
class Clock:
    """Measures by the time of this thread on a processor; on a quiet machine that is what the clock on the wall says.

    Others who use the processor so do not count, but those who use its cache and its memory do.
    """

    calls: int = 0
    disturbed: int = 0

    def once(self, call: Callable[[], Any]) -> tuple[float, Any]:
        """Seconds, and what `call` gave."""
        wall, own = time.perf_counter(), time.thread_time()
        given = call()
        own, wall = time.thread_time() - own, time.perf_counter() - wall
        self.calls += 1
        self.disturbed += wall > DISTURBED * own + 1e-3
        return own, given

    def quiet(self, call: Callable[[], Any]) -> tuple[float, Any]:
        """As `once`, of a call that may be repeated: until nobody else took the processor, up to three times."""
        for _ in range(TRIES):
            before = self.disturbed
            own, given = self.once(call)
            if self.disturbed == before or own > LONG_S:
                break
        return own, given


def machine(packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """What the figures depend on; the processor and its caches where the command `lscpu` tells them."""
    found = _lscpu().splitlines()
    told = {name: text.strip() for name, _, text in (row.partition(":") for row in found)}
    l2, l3 = (int(told.get(f"{level} cache", "0").split()[0]) for level in ("L2", "L3"))
    return {
        "processor": told.get("Model name", "unknown"),
        "cores": os.cpu_count(),
        "l2_bytes": l2,
        "l3_bytes": l3,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "huge_pages": _huge_pages(),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
    }


def load() -> float:
    """How many processes have been running or waiting to run, on average over the last minute."""
    return round(os.getloadavg()[0], 2)


def _lscpu() -> str:
    """Nothing on macOS, which has no such command."""
    if not shutil.which("lscpu"):
        return ""
    return subprocess.run(["lscpu", "-B"], capture_output=True, text=True, check=True).stdout


def _huge_pages() -> str:
    """Whether large tables may stand on pages of 2 MiB."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.read_text().partition("[")[2].partition("]")[0] if setting.exists() else "none"
