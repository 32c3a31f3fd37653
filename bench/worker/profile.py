"""Where the worker's processor time goes in the base case: samples of its main thread, taken by py-spy from outside."""

import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.worker.cases import BASE
from bench.worker.contenders import CONTENDERS, OURS
from bench.worker.measuring import filled, measured
from tests.broker.topics import delete_topic

RATE = 400  # samples a second
EVENTS, SECONDS_MAX = 10_000_000, 20.0
OTHER = "all else"
# By the innermost frame that is of one of these; the first that fits.
PARTS = {
    "the filter: asked, and added to": ("streamdedup/filters/",),
    "sockets: reading answers, writing requests": (
        "asyncio/selector_events.py",
        "asyncio/streams.py",
        "streamdedup/kafka/client/responses.py",
    ),
    "requests and answers made of bytes, and the other way (aiokafka)": ("aiokafka/protocol/",),
    "record batches walked and checked": (
        "streamdedup/kafka/records/wire.py",
        "streamdedup/kafka/client/columns.py",
    ),
    "survivors copied into record batches": (
        "streamdedup/kafka/records/encoding.py",
        "streamdedup/kafka/client/open_batches.py",
        "streamdedup/kafka/records/codecs.py",
    ),
    "keys found and hashed": ("streamdedup/keys/",),
    "the rest of the worker": ("streamdedup/",),
    "the rest of aiokafka": ("aiokafka/",),
    "the event loop": ("asyncio/", "selectors.py"),
}

_PATH = re.compile(r" \(([^()]*?):\d+\)$")


def profile(bootstrap: str) -> dict[str, Any]:
    """The share of each of PARTS in so many `samples` of the second of two runs, and its `cpu_us` an event."""
    case = replace(BASE, events=EVENTS)
    contender = replace(CONTENDERS[OURS], seconds_max=SECONDS_MAX)
    source = filled(bootstrap, case)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        samples = Path(name) / "samples"
        measured(bootstrap, case, contender, source)
        run = measured(bootstrap, case, contender, source, beside=partial(_sampled, samples))
        if not samples.exists():
            raise SystemExit("py-spy took no samples: it may watch other processes as root only")
        counts = parts_of(samples.read_text("utf-8").splitlines())
    delete_topic(bootstrap, source.topic)
    total = sum(counts.values())
    shares = {part: counts[part] / total for part in (*PARTS, OTHER)}
    return {"samples": total, "cpu_us": 1e6 * run.cpu_s / run.events, "shares": shares}


def parts_of(stacks: Iterable[str]) -> Counter[str]:
    """How many samples each part has. A line is frames, outermost first, joined by `;`, and how often it was seen."""
    counts: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if "MainThread" in frames[0] and "run_forever" in stack:  # not what it starts with
            counts[_part(reversed(frames))] += int(count)
    return counts


def _part(frames: Iterable[str]) -> str:
    for frame in frames:
        path = found[1] if (found := _PATH.search(frame)) else ""
        for part, places in PARTS.items():
            if any(place in path for place in places):
                return part
    return OTHER


@contextmanager
def _sampled(samples: Path, pid: int) -> Iterator[None]:
    """Write what the process does meanwhile to `samples`."""
    spy = Path(sys.executable).with_name("py-spy")
    options = ["--rate", str(RATE), "--format", "raw", "--threads", "--nonblocking"]
    command = [str(spy), "record", "--pid", str(pid), "--output", str(samples), *options]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        child.send_signal(signal.SIGINT)
        child.wait(30)
