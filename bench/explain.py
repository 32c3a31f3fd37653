"""`python -m bench explain`: how long `streamdedup explain` takes, and how fast it reads an output.

The verdict is that of a process of its own, by snapshots of filters with so many keys, which are dropped from the page
cache before. The search reads an output of events of 120 bytes, whose key is a JSON field, to its end, since it asks
for a key that is not there; the audit's reader of the output has the same events by turns. Last, the lag of a worker
that is fed at a steady rate, alone and beside such searches. The page is results/explain.md.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from bench.harness import RESULTS, machine_text, markdown, target, targets_table, today
from bench.worker import broker, log
from bench.worker.batches import of_part
from bench.worker.cases import BASE
from bench.worker.events import Form, Part
from bench.worker.feeding import Feed
from bench.worker.measuring import running
from streamdedup.commands.audit.extents import fixed
from streamdedup.commands.audit.read import OutputReader, Reading
from streamdedup.commands.audit.rows import Sorter
from streamdedup.commands.audit.run import SORT_BYTES
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.services import MemoryServices
from streamdedup.explain.hits import Hits
from streamdedup.explain.known import Question, from_output, state_of
from streamdedup.explain.search import Reader
from streamdedup.explain.wanted import Wanted
from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.keys.hashing import Hash
from streamdedup.metrics.catalogue import LAG_OF_ALL
from streamdedup.rules.lists import NO_LISTS
from streamdedup.settings import Settings, load
from streamdedup.snapshot import Store
from streamdedup.threads import Threads
from streamdedup.units import parse_count, sized

FORM = Form(120)
ROUNDS = 3
RATE = 500_000
KEYS, EVENTS = 100_000_000, 4_000_000
PAGE = RESULTS / "explain.md"
WARM_S, EACH_S, LOOK_S = 5.0, 15.0, 0.2
ADDED_AT_ONCE = 1 << 20
NOBODY = "nobody@example.com"
NOT_KNOWN = 4


class Verdict(NamedTuple):
    """What an answer took, and the most memory that its process had."""

    seconds: float
    peak_bytes: int


class Took(NamedTuple):
    """What was measured: events/s by reader, verdicts, the bytes of all snapshots, and lags in offsets."""

    rates: Mapping[str, float]
    verdicts: Sequence[Verdict]
    size_bytes: int
    lags: Mapping[str, Sequence[int]]


def settings_of(directory: Path, bootstrap: str, topics: tuple[str, str], keys: int) -> Path:
    """The configuration, as a file."""
    path = directory / "config.yaml"
    config: dict[str, dict[str, Any]] = {
        "kafka": {"bootstrap_servers": bootstrap, "group_id": topics[0]},
        "source": {"topic": topics[0]},
        "key": {"field": "email"},
        "filter": {"kind": "cuckoo", "capacity": keys, "error_rate": 1e-6},
        "sink": {"topic": topics[1]},
        "snapshot": {"directory": str(directory / "snapshots")},
    }
    path.write_text(yaml.safe_dump(config), "utf-8")
    return path


async def fill(bootstrap: str, topic: str, partitions: int, events: int) -> None:
    """Put events with so many different keys into a topic."""
    async with log.opened(bootstrap, topic) as there:
        for partition in range(partitions):
            numbers = np.arange(partition, events, partitions)
            part = Part(numbers, np.ones(len(numbers), dtype=np.bool_))
            await there.append(partition, of_part(FORM, part, "none"))


async def save_snapshots(settings: Settings, partitions: int, keys: int) -> int:
    """Write a snapshot of each partition, with random digests for keys; return the bytes of all."""
    recipe, chance, size_bytes = Recipe(settings, partitions), np.random.default_rng(1), 0
    async with kafka_cluster(settings.kafka) as cluster:
        topology = await cluster.describe([settings.source.topic, settings.sink.topic])
        ends = [await cluster.end_offset(settings.sink.topic, p) for p in range(partitions)]
    for partition, end in enumerate(ends):
        filter_ = recipe.empty_filter()
        left = keys // partitions
        while left > 0:
            count = min(left, ADDED_AT_ONCE)
            filter_.add_many(chance.integers(0, 1 << 64, (count, 2), dtype=np.uint64))
            left -= count
        store = Store(
            settings.snapshot.directory,
            group=settings.kafka.group_id,
            topic=settings.sink.topic,
            partition=partition,
        )
        identity = recipe.identity(topology, partition)
        size_bytes += store.save(filter_, end, lambda end=end: end, identity).size_bytes  # type: ignore[misc]
    return size_bytes


def drop_from_cache(directory: Path) -> None:
    """Have the next reader of the snapshots read the disk."""
    for path in directory.rglob("*.snapshot"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


ASK = """import sys
from streamdedup.cli import main
status = main(sys.argv[1:])
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(peak)
sys.exit(status)
"""  # what a parent learns of the memory of a child counts its own, before the child began


def verdict(config: Path) -> Verdict:
    """Ask for a key that is not known."""
    drop_from_cache(config.parent)
    command = [sys.executable, "-c", ASK, "explain", "-c", str(config), NOBODY]
    began = time.perf_counter()
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=False, env=_as_installed()
    )
    took_s = time.perf_counter() - began
    if done.returncode != NOT_KNOWN:
        raise SystemExit(f"explain ended in {done.returncode}")
    return Verdict(took_s, 1024 * int(done.stdout.split()[-1]))


def _as_installed() -> dict[str, str]:
    """The environment, in which Python may keep what it compiles, as it does where a package is installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


async def reads(settings: Settings, partitions: int) -> Iterator[tuple[str, float]]:
    """The seconds that each reader takes for the whole output, by turns."""
    found = list[tuple[str, float]]()
    recipe = Recipe(settings, partitions)
    async with kafka_cluster(settings.kafka) as cluster:
        topics = [settings.source.topic, settings.sink.topic]
        topology = await cluster.describe(topics)
        question = Question(
            settings=settings,
            cluster=cluster,
            topology=topology,
            recipe=recipe,
            lists=NO_LISTS,
            reader=Reader(cluster, lambda *_: None),
            services=MemoryServices(cluster=cluster, threads=Threads()),
        )

        async def explained() -> None:
            with closing(Wanted([NOBODY.encode()], recipe.extractor())) as wanted:
                for partition in range(partitions):
                    state = await state_of(question, partition)
                    await from_output(question, state, wanted, Hits(wanted))

        async def audited() -> None:
            for partition in range(partitions):
                extent = await fixed(
                    settings, cluster, topology, partition, None, topics=[settings.sink.topic]
                )
                with Sorter(timed=False, size_bytes=SORT_BYTES) as sorter:
                    reading = Reading(cluster, Hash.draw(), sorter, None, None, lambda *_: None)
                    await OutputReader(reading, recipe, extent).read()

        for _ in range(ROUNDS + 1):
            for name, read in (("explain", explained), ("audit", audited)):
                began = time.perf_counter()
                await read()
                found.append((name, time.perf_counter() - began))
    return iter(found[2:])  # the first of each compiles, or loads what was


async def lags(bootstrap: str, rate: int) -> dict[str, list[int]]:
    """The lag of a worker that is fed `rate` events a second, in offsets: alone, and while explain searches its output.

    What it asks for is not there, so each search reads all; as one ends, the next begins.
    """
    found: dict[str, list[int]] = {"alone": [], "beside explain": []}
    feed = Feed(rate, WARM_S + len(found) * EACH_S)
    with running(bootstrap, replace(BASE, worker={"server": {"port": 0}})) as (worker, source, _):
        config = worker.process.cmdline()[-1]
        async with log.opened(bootstrap, source) as there:
            feeding = asyncio.create_task(feed.run(there))
            await asyncio.sleep(WARM_S)
            for name, each in found.items():
                searching = asyncio.create_task(_search_on(config)) if "explain" in name else None
                until = time.monotonic() + EACH_S
                while time.monotonic() < until:
                    samples = await asyncio.to_thread(worker.samples, LAG_OF_ALL.name)
                    each.append(sum(count for _, count in samples))
                    await asyncio.sleep(LOOK_S)
                if searching:
                    searching.cancel()
            await feeding
    return found


async def _search_on(config: str) -> None:
    """Ask for a key that is not there, again and again, until cancelled."""
    command = [sys.executable, "-m", "streamdedup", "explain", "-c", config, NOBODY]
    while True:
        asking = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
        try:
            await asking.wait()
        finally:
            if asking.returncode is None:
                asking.kill()


def page(about: str, took: Took, keys: int, partitions: int, rate: int) -> str:
    """Return the page of the results."""
    verdict_s = statistics.median(each.seconds for each in took.verdicts)
    peak_mb = max(each.peak_bytes for each in took.verdicts) / 1e6
    searched, audited = (took.rates[name] for name in ("explain", "audit"))
    alone, beside = (max(took.lags[name]) for name in ("alone", "beside explain"))
    targets = [
        target("seconds of a verdict from snapshots, cold", verdict_s, most=2.0),
        target("MB that it takes", peak_mb, most=200.0),
        target(
            "events/s of the output that a search reads, in millions", searched / 1e6, least=2.0
        ),
        target("its rate, as a ratio to that of the audit's reader", searched / audited, least=1.0),
        target(
            "most lag of a worker beside it, as a ratio to alone", beside / max(1, alone), most=2.0
        ),
    ]
    lags = [
        [name, f"{statistics.median(each):,.0f}", f"{max(each):,}"]
        for name, each in took.lags.items()
    ]
    return "\n".join(
        [
            "# Explain, as measured",
            "",
            f"Made by `python -m bench explain`, on {about}.",
            f"The verdict, by a process of its own, is about a key that is not known, from snapshots of {keys:,} keys",
            f"over {partitions} partitions ({sized(took.size_bytes)}; `cuckoo`, error rate 1e-6), which were dropped",
            "from the page cache before. The search reads events of 120 bytes, with a JSON field as key. A worker gets",
            f"{rate:,} events a second, while searches follow one another.",
            "",
            machine_text(),
            "",
            f"Measured on {today()}.",
            "",
            targets_table("Figure", targets),
            markdown(["Lag of the worker, offsets", "Median", "Most"], lags),
        ]
    )


def main(keys: int, events: int, partitions: int, rate: int) -> None:
    """Measure, print the page, and write it if all was measured as it is by default."""
    there, about = broker.found(broker.in_memory())
    with closing(there), tempfile.TemporaryDirectory(prefix="bench-") as name:
        bootstrap, directory = there.bootstrap_servers, Path(name)
        found = asyncio.run(lags(bootstrap, rate))
        with log.made(bootstrap, partitions) as topics:
            config = settings_of(directory, bootstrap, topics, keys)
            settings = load(config, environ={})
            asyncio.run(fill(bootstrap, topics[1], partitions, events))
            seconds: dict[str, list[float]] = {}
            for reader, took_s in asyncio.run(reads(settings, partitions)):
                seconds.setdefault(reader, []).append(took_s)
            size_bytes = asyncio.run(save_snapshots(settings, partitions, keys))
            verdict(config)  # which compiles what was never called here before
            verdicts = [verdict(config) for _ in range(ROUNDS)]
    rates = {name: events / statistics.median(each) for name, each in seconds.items()}
    text = page(about, Took(rates, verdicts, size_bytes, found), keys, partitions, rate)
    print(text)
    if keys == KEYS and events == EVENTS:
        PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench explain", description=__doc__)
    parser.add_argument("--keys", type=parse_count, default=KEYS)
    parser.add_argument("--events", type=parse_count, default=EVENTS)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--rate", type=parse_count, default=RATE, help="events a second")
    asked = parser.parse_args()
    main(asked.keys, asked.events, asked.partitions, asked.rate)
