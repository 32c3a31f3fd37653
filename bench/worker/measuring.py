"""One run of one contender, watched from outside: the same clock for all.

It starts when the contender says that it has partitions, or that they are live, or once it is warm, and stops at the
last commit of its group that is seen before the input ends or its time is over. Then it is asked to end, and its output
is checked.
"""

import asyncio
import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from prometheus_client.parser import text_string_to_metric_families

from bench.worker import log
from bench.worker.batches import of_part
from bench.worker.cases import HUGE_PAGES, PAGES, Case
from bench.worker.checking import (
    Checked,
    WrongOutputError,
    checked,
    missing_max,
)
from bench.worker.contenders import Clock, Contender, Topics, worker_command
from bench.worker.events import Part, parts
from bench.worker.load import OtherLoad, Tree
from bench.worker.progress import Ends, followed
from tests.broker.base import admin_client
from tests.broker.topics import create_topic, delete_topic, unique_name

ASSIGNED_S_MAX = 180.0  # inner loops may have to be compiled first
SILENT_S_MAX = 60.0
END_S_MAX = 60.0
LOOK_EVERY_S = 0.01
ERROR_RATE = 1e-6  # `filter.error_rate`'s default
LOG_TAIL = 3000
DELETED_SOON = {"file_delete_delay_ms": 1000}  # a minute by default, in which several runs go by


@dataclass(frozen=True)
class Input:
    """A topic that was filled for a case, and the model of it."""

    topic: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Run:
    """What was measured: over `seconds`, `events` were consumed and committed; the output is that of the whole run."""

    events: int
    seconds: float
    cpu_s: float
    rss_bytes: int
    other_load: float | None
    emitted: int
    missing: int
    filter_bytes: int | None
    broker_cpu_s: float | None = None

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds

    def fields(self) -> dict[str, Any]:
        """For the results."""
        return asdict(self)


class Contending:
    """A contender's process and its log."""

    def __init__(self, command: Sequence[str], directory: Path, pages: str) -> None:
        self._log = directory / "contender.log"
        with self._log.open("wb") as errors:
            self._child = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, PAGES: pages},
            )
        self.process = psutil.Process(self._child.pid)

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The lines of one event in its log."""
        text = self._log.read_text("utf-8", errors="replace").splitlines()
        parsed = [_fields(line) for line in text if line.startswith("{") and line.endswith("}")]
        return [line for line in parsed if line.get("event") == event]

    def samples(self, name: str) -> list[tuple[Mapping[str, str], int]]:
        """The labels and the count of each sample of this name on /metrics; SystemExit where there is none."""
        port = self.lines("server_listens")[0]["port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        found: list[tuple[Mapping[str, str], int]] = [
            (sample.labels, int(sample.value))
            for family in families
            for sample in family.samples
            if sample.name == name
        ]
        if not found:
            raise SystemExit(f"the worker does not tell {name}")
        return found

    def wait_for(self, event: str, count: int = 1, within_s: float = ASSIGNED_S_MAX) -> Any:  # noqa: ANN401 - JSON
        """The last of so many lines of one event."""
        end = time.monotonic() + within_s
        while len(found := self.lines(event)) < count:
            self.check(time.monotonic() < end, f"no {count} {event} within {within_s:g} s")
            time.sleep(LOOK_EVERY_S)
        return found[-1]

    def check(self, holds: bool, otherwise: str) -> None:
        """End the benchmark, with the log, where it does not hold or the process has ended."""
        if self._child.poll() is not None or not holds:
            tail = self._log.read_text("utf-8", errors="replace")[-LOG_TAIL:]
            raise SystemExit(f"{' '.join(self._child.args)}: {otherwise}; its log ends:\n{tail}")  # type: ignore[arg-type]  # args are texts

    def end(self, regular: Collection[int] = (0,)) -> None:
        """SIGTERM: it finishes what it has in hand."""
        self._child.send_signal(signal.SIGTERM)
        if (status := self._child.wait(END_S_MAX)) not in regular:
            tail = self._log.read_text("utf-8", errors="replace")[-LOG_TAIL:]
            raise SystemExit(f"a contender ended with status {status}; its log ends:\n{tail}")

    def kill(self) -> None:
        """Whatever it does."""
        self._child.kill()
        self._child.wait()


def _fields(line: str) -> dict[str, Any]:
    """Of a line of log; none where it only looks like JSON."""
    with suppress(ValueError):
        fields: dict[str, Any] = json.loads(line)
        return fields
    return {}


@contextmanager
def contending(
    command: Sequence[str], directory: Path, pages: str = HUGE_PAGES
) -> Iterator[Contending]:
    """A process that does not outlive its context; with the `pages` that the image of deploy/ has, or others."""
    contender = Contending(command, directory, pages)
    try:
        yield contender
    finally:
        contender.kill()


@contextmanager
def running(bootstrap: str, case: Case) -> Iterator[tuple[Contending, str, str]]:
    """The worker in a case, once all its partitions are live, with a new input and a new output."""
    with (
        log.made(bootstrap, case.partitions) as (source, sink),
        tempfile.TemporaryDirectory(prefix="bench-") as name,
    ):
        topics = Topics(bootstrap, unique_name("bench"), source, sink)
        with contending(worker_command(case, topics, Path(name)), Path(name)) as worker:
            worker.wait_for("shard_live", case.partitions)
            yield worker, source, sink
            worker.end()


def filled(bootstrap: str, case: Case) -> Input:
    """A new topic with the input of a case."""
    topic = unique_name("bench-in")
    create_topic(bootstrap, topic, case.partitions, **DELETED_SOON)
    model = parts(case.events, case.partitions, case.duplicates)

    async def fill() -> None:
        async with log.opened(bootstrap, topic) as there:
            batches = [of_part(case.form, part, case.compression) for part in model]
            await asyncio.gather(*(there.append(p, made) for p, made in enumerate(batches)))

    asyncio.run(fill())
    return Input(topic, model)


def measured(
    bootstrap: str,
    case: Case,
    contender: Contender,
    source: Input,
    *,
    beside: Callable[[int], AbstractContextManager[object]] = nullcontext,
) -> Run:
    """Run it once; SystemExit where its output is not what it should be. `beside` is entered with its process id."""
    sink, group = unique_name(f"bench-{contender.name}"), unique_name("bench")
    create_topic(bootstrap, sink, case.partitions, **DELETED_SOON)
    topics = Topics(bootstrap, group, source.topic, sink)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        followed(topics, contender, source.parts) as ends,
    ):
        directory = Path(name)
        if contender.after is not None:
            _ran(topics, case, contender.after, source, directory)
        command = contender.command(case, topics, directory)
        with contending(command, directory, case.pages) as process:
            process.wait_for(contender.begins)
            with beside(process.process.pid):
                watched = _watch(process, contender, case, bootstrap, ends)
            process.end(contender.end_status)
            starts = process.lines("worker_starts")
        found = _checked(topics, case, contender, source, ends())
    _clean(topics)
    filter_bytes = int(starts[0]["filter_bytes_in_all"]) if starts else None
    return Run(**watched, emitted=found.emitted, missing=found.missing, filter_bytes=filter_bytes)


def _ran(topics: Topics, case: Case, contender: Contender, source: Input, directory: Path) -> None:
    """Run it to the end of the input."""
    with (
        followed(topics, contender, source.parts) as ends,
        contending(contender.command(case, topics, directory), directory, case.pages) as process,
    ):
        process.wait_for(contender.begins)
        _watch(process, contender, case, topics.bootstrap, ends)
        process.end(contender.end_status)


def _watch(
    process: Contending,
    contender: Contender,
    case: Case,
    bootstrap: str,
    ends: Ends,
) -> dict[str, Any]:
    """From now, or once it is live or warm, until the input is consumed, or time is over."""
    before = 0
    if contender.warm_s:
        before = _warmed(process, contender, case, ends)
    elif contender.timed_live:
        process.wait_for("shard_live", case.partitions)
        before = sum(ends())
        process.check(before < case.events, "the input was over before all were live")
    tree = Tree(process.process)
    began, cpu_before = time.monotonic(), tree.cpu_s()
    other = OtherLoad(bootstrap, tree)
    events, seconds, cpu, rss = 0, 0.0, 0.0, 0
    brokers: float | None = None
    while before + events < case.events:
        process.check(True, "it ended")
        rss = max(rss, tree.rss_bytes())
        consumed, now = sum(ends()) - before, time.monotonic() - began
        if consumed > events:
            events, seconds, cpu = consumed, now, tree.cpu_s() - cpu_before
            brokers = other.brokers_s()
        process.check(now - seconds < SILENT_S_MAX, f"nothing committed for {SILENT_S_MAX:g} s")
        if events and now >= contender.seconds_max:
            break
        time.sleep(LOOK_EVERY_S)
    return {
        "events": events,
        "seconds": round(seconds, 4),
        "cpu_s": round(cpu, 3),
        "rss_bytes": rss,
        "other_load": other.share(),
        "broker_cpu_s": brokers,
    }


def _warmed(process: Contending, contender: Contender, case: Case, ends: Ends) -> int:
    """How much is consumed at a commit, after `warm_s` or half of the input: enough is left to be measured."""
    began, before = time.monotonic(), 0
    while True:
        consumed, ran_s = sum(ends()), time.monotonic() - began
        process.check(ran_s < contender.warm_s + SILENT_S_MAX, "nothing committed once it was warm")
        process.check(consumed < case.events, "the input was over before it was warm")
        if consumed > before > 0 and (ran_s >= contender.warm_s or consumed >= case.events // 2):
            return consumed
        before = consumed
        time.sleep(LOOK_EVERY_S)


def _checked(
    topics: Topics, case: Case, contender: Contender, source: Input, ends: Sequence[int]
) -> Checked:
    async def check() -> Checked:
        copied = contender.clock is Clock.COPIED
        output = topics.middle if copied else topics.sink
        async with log.opened(topics.bootstrap, output) as there:
            return await checked(
                there,
                case.form,
                source.parts,
                ends,
                judged=contender.judges,
                placed=contender.placed,
                headers=int(copied),  # the origin
            )

    try:
        found = asyncio.run(check())
    except WrongOutputError as error:
        raise SystemExit(f"{case.name}, {contender.name}: {error}") from None
    allowed = missing_max(found.emitted + found.missing, ERROR_RATE) if contender.errs else 0
    if found.missing > allowed:
        raise SystemExit(
            f"{case.name}, {contender.name}: {found.missing:,} events are missing, {allowed} may be"
        )
    return found


def _clean(topics: Topics) -> None:
    """Delete the output, and what a contender made for itself: a changelog is named after the group."""
    listed = admin_client(topics.bootstrap).list_topics(timeout=SILENT_S_MAX).topics
    for name in listed:
        if name == topics.sink or topics.group in name:
            delete_topic(topics.bootstrap, name)
