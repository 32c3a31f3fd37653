"""What all benchmarks share: contenders that take turns, ratios, targets, machine and versions, JSON and pages."""

import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
DISTRIBUTION = "streamdedup-kafka"
DISTURBED = 1.1  # times the thread's own time: so much more passed on the clock
TRIES = 3
LONG_S = 0.5  # not repeated: the processor is shared sooner or later

T = TypeVar("T")
Found = Mapping[str, Any]
Times = dict[str, list[float]]


# --- rounds ---


def turns(contenders: Sequence[T], number: int) -> list[T]:
    """The contenders in the order of a round: each time another one is first."""
    first = number % len(contenders)
    return [*contenders[first:], *contenders[:first]]


def seconds(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.process_time,
) -> Times:
    """What each call takes, round by round."""
    found: Times = {name: [] for name in calls}
    for number in range(rounds):
        for name in turns([*calls], number):
            began = clock()
            calls[name]()
            found[name].append(clock() - began)
    return found


def print_rates(calls: Mapping[str, tuple[int, Callable[[], object]]], rounds: int) -> None:
    """Print how long each call takes for one of its so many keys, and how many that is a second; the least counts."""
    took = seconds({name: call for name, (_, call) in calls.items()}, rounds)
    for name, (count, _) in calls.items():
        each_s = min(took[name]) / max(count, 1)
        print(f"{name:<34}{each_s * 1e9:>10,.0f} ns each{1 / each_s:>14,.0f} a second")


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

    def __str__(self) -> str:
        return f"in {self.disturbed} of {self.calls} calls somebody else took the core"


# --- targets ---


def target(
    claim: str, measured: float, *, least: float | None = None, most: float | None = None
) -> dict[str, Any]:
    """A claim with what is wanted and what was measured, and whether that is enough; without a bound it always is."""
    wanted = f"at least {least:,g}" if least is not None else ""
    wanted = f"at most {most:,g}" if most is not None else wanted
    met = (least is None or measured >= least) and (most is None or measured <= most)
    return {"claim": claim, "wanted": wanted, "measured": round(measured, 2), "met": met}


def targets_table(title: str, targets: Iterable[Found]) -> str:
    """Claims with what is wanted and what was measured: a figure, several by name, or the `rounds` that it is of."""
    rows = []
    for told in targets:
        measured, rounds = told["measured"], told.get("rounds")
        named = measured.items() if isinstance(measured, Mapping) else ()
        text = ", ".join(f"{what} {value:g}" for what, value in named) or f"{measured:g}"
        if rounds:
            text = f"**{measured:.2f}** ({', '.join(f'{one:.2f}' for one in rounds)})"
        rows.append(
            [told["claim"], told["wanted"], text, verdict(told["met"]) if told["wanted"] else ""]
        )
    return markdown([title, "Wanted", "Measured", ""], rows)


def verdict(met: bool) -> str:
    """Whether a target is met, as the pages say it."""
    return "met" if met else "**missed**"


# --- circumstances ---


def machine_text(*packages: str) -> str:
    """The machine on a line, Python and `packages` with their versions on the next."""
    versions = ", ".join(f"{name} {version(name)}" for name in (DISTRIBUTION, *packages))
    return (
        f"{platform.platform()}, {platform.machine()}, {os.cpu_count()} cores\n"
        f"Python {platform.python_version()}, {versions}"
    )


def machine(packages: Sequence[str]) -> dict[str, Any]:
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
        "versions": {name: version(name) for name in (DISTRIBUTION, *packages)},
    }


def machine_lines(here: Found) -> list[str]:
    """What `machine` found, in words."""
    versions = ", ".join(f"{name} {number}" for name, number in here["versions"].items())
    return [
        f"{here['processor']}, {here['cores']} cores, L2 {here['l2_bytes'] / 2**20:.0f} MiB, L3"
        f" {here['l3_bytes'] / 2**20:.0f} MiB, {here['memory_bytes'] / 2**30:.0f} GiB of memory, huge pages"
        f" {here['huge_pages']}",
        f"{here['platform']}, Python {here['python']}, {versions}",
    ]


def today() -> str:
    """The day of a measurement."""
    return datetime.now(UTC).date().isoformat()


def load() -> float:
    """How many processes have been running or waiting to run, on average over the last minute."""
    return round(os.getloadavg()[0], 2)


def commit() -> str:
    """The commit that is checked out; marked where code differs from it, unknown without git."""
    changed = _git("status", "--porcelain", "--", "*.py")
    return _git("rev-parse", "--short=12", "HEAD") + ("-changed" if changed else "") or "unknown"


def _git(*asked: str) -> str:
    done = subprocess.run(["git", *asked], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _lscpu() -> str:
    """Nothing on macOS, which has no such command."""
    if not shutil.which("lscpu"):
        return ""
    return subprocess.run(["lscpu", "-B"], capture_output=True, text=True, check=True).stdout


def _huge_pages() -> str:
    """Whether large tables may stand on pages of 2 MiB."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.read_text().partition("[")[2].partition("]")[0] if setting.exists() else "none"


# --- files ---


def read(path: Path) -> dict[str, Any]:
    """Results that were written; nothing where there are none."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found


def write(path: Path, results: Found) -> None:
    """At once or not at all: `python -m bench full` may be ended at any time."""
    path.parent.mkdir(exist_ok=True, parents=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    beside.replace(path)


def put_between(document: Path, begin: str, end: str, text: str) -> None:
    """Put `text` into `document`, in the place of what stands between these two lines."""
    before, _, rest = document.read_text("utf-8").partition(begin)
    after = rest.partition(end)[2]
    document.write_text("\n\n".join([before + begin, text, end + after]), "utf-8")


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
