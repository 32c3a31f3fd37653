"""`streamdedup demo`: the real worker over real data, against a mock broker inside this process.

The broker is librdkafka's mock cluster, from the confluent-kafka wheel. It has no transactions, so the worker runs at
least once: the demo shows what a filter costs and gets wrong, and proves nothing about delivery. Every number that it
prints, it has measured in that run.
"""

import asyncio
import gzip
import logging
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from statistics import fmean
from types import ModuleType

import orjson

from streamdedup import logs, settings
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.events import Verdict
from streamdedup.filters.base import Filter
from streamdedup.settings import Settings
from streamdedup.snapshot.format import PAGE_BYTES
from streamdedup.worker.worker import Worker

BROKER_PACKAGE = "confluent-kafka>=2.6"  # the extra `demo`; its name alone leads from a checkout and a wheel alike
BROKER_S_MAX = 30.0
WORK_S_MAX = 120.0
READ_S_MAX = 30.0
TERMINAL_EVERY_S, PLAIN_EVERY_S = 0.1, 1.0
POLL_S = 0.02
NEVER_FED = 100_000
EXAMPLE_BYTES_MAX = 60  # of an event that is shown


@dataclass(frozen=True, kw_only=True)
class FalsePositives:
    """How many of `new` keys the filter reported present: by its own estimate, and by an exact set."""

    new: int
    estimated: float
    actual: int


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one run of the demo measured."""

    consumed: int
    distinct: int
    """Different keys among the events, by an exact set."""
    duplicates: int
    """Events that the worker dropped."""
    passed: int
    """Events that were read back from the output."""
    repeated: int
    """How many of these have the key of an earlier one."""
    first: bytes
    """The first event of a page that came again."""
    again: bytes
    """A later event of that page, which was dropped."""
    run: FalsePositives
    """Among the events, while the filters filled."""
    probe: FalsePositives
    """Among keys that were never fed, after the run."""
    filters: int
    """One for each partition."""
    kept: int
    """Keys in the filters together."""
    filter_bytes: int
    """The memory of their tables together."""
    set_bytes: int
    """The memory of a Python set of the different keys, and of the keys in it."""
    text_bytes: int
    """The lengths of the different keys together."""
    seconds: float
    """From the worker's first event to its last, to within `POLL_S`."""


def demo(put: Callable[[str], None]) -> int:
    """Run the demo, `put` what it measured, and return the exit status."""
    kafka = confluent_kafka()
    logs.set_up(logging.WARNING)
    urls = home_pages()
    with MockBroker(kafka) as broker:
        tree = settings.load(
            config("demo.yaml"), [f"kafka.bootstrap_servers={broker.address}"], environ={}
        )
        shutil.rmtree(tree.snapshot.directory / tree.kafka.group_id, ignore_errors=True)
        put(f"{_introduction(broker.address, tree)}\n")
        broker.feed(tree.source.topic, urls)
        broker.make(tree.sink.topic)
        worker = Worker(tree)
        seconds = asyncio.run(_work(worker, len(urls), DemoProgress(put, live=sys.stdout.isatty())))
        result = _measure(worker, seconds, urls, broker.read(tree.sink.topic))
    put(f"{_report(result, worker, tree)}\n")
    put(f"{_next(_command(sys.argv[0]), config('dedup.yaml'), Path.cwd())}\n")
    return 0


def home_pages() -> Sequence[str]:
    """Return the demo's data: home pages of packages, in the order of their index. Origin: data/README.md."""
    packed = resources.files("streamdedup").joinpath("data/homepages.txt.gz").read_bytes()
    return gzip.decompress(packed).decode().splitlines()


class MockBroker:
    """librdkafka's mock cluster; it lives as long as this context."""

    def __init__(self, kafka: ModuleType) -> None:
        self._kafka = kafka

    def __enter__(self) -> "MockBroker":
        quiet = logging.getLogger("librdkafka")
        quiet.setLevel(logging.CRITICAL)
        self._producer = self._kafka.Producer(
            {
                "bootstrap.servers": "mock",
                "test.mock.num.brokers": 1,
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
            },
            logger=quiet,
        )
        brokers = self._producer.list_topics(timeout=BROKER_S_MAX).brokers.values()
        self.address = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.flush(BROKER_S_MAX)
        del self._producer

    def make(self, topic: str) -> None:
        """Create `topic`, as the mock does with every topic that it is asked for."""
        self._producer.list_topics(topic, timeout=BROKER_S_MAX)

    def feed(self, topic: str, urls: Sequence[str], first: int = 0) -> None:
        """Write one event for each URL, with numbers from `first` on. Equal URLs go to the same partition."""
        for number, url in enumerate(urls, first):
            self._producer.produce(topic, _event(number, url), key=url)
            self._producer.poll(0)
        if left := self._producer.flush(BROKER_S_MAX):
            raise DeliveryError(f"the demo's broker did not take {left} events")

    def read(self, topic: str) -> Iterator[bytes]:
        """Yield the values of all events of `topic`."""
        consumer = self._kafka.Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "demo-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            },
            logger=logging.getLogger("librdkafka"),
        )
        partitions = consumer.list_topics(topic, timeout=BROKER_S_MAX).topics[topic].partitions
        consumer.assign([self._kafka.TopicPartition(topic, number, 0) for number in partitions])
        ended, deadline = 0, time.monotonic() + READ_S_MAX
        try:
            while ended < len(partitions):
                if time.monotonic() > deadline:
                    raise DeliveryError("the demo's output cannot be read back")
                for message in consumer.consume(1_000, timeout=0.1):
                    if message.error() is None:
                        yield message.value()
                    elif message.error().code() == self._kafka.KafkaError._PARTITION_EOF:
                        ended += 1
                    else:
                        raise DeliveryError(f"the demo's output: {message.error()}")
        finally:
            consumer.close()


class DemoProgress:
    """Shows progress: one line that is rewritten if `put` writes to a terminal, else a line each time."""

    def __init__(self, put: Callable[[str], None], *, live: bool) -> None:
        self._put, self._live = put, live

    @property
    def every_s(self) -> float:
        """Seconds between two calls of `show`."""
        return TERMINAL_EVERY_S if self._live else PLAIN_EVERY_S

    def show(self, worker: Worker, seconds: float) -> None:
        """Write what the worker has done in its `seconds` of work, and the mean state of its filters.

        A line fits into 80 columns: a terminal cannot rewrite one that it had to wrap.
        """
        tally = worker.tally
        filters = [d.shard.filter for d in worker.deliveries.values() if d.shard]
        full = fmean(len(f) / f.capacity for f in filters)
        error = fmean(f.error_rate_now for f in filters)
        rate = tally.consumed / seconds
        line = (
            f"{tally.consumed:>6,} events  {rate:>7,.0f}/s  passed {tally[Verdict.PASS]:>6,}"
            f"  dropped {tally[Verdict.DUPLICATE]:>6,}  {full:>4.0%} full  error {error:.2%}"
        )
        self._put(f"\r{line}\x1b[K" if self._live else f"{line}\n")

    def close(self) -> None:
        """End the live line."""
        if self._live:
            self._put("\n")


async def _work(worker: Worker, events: int, progress: DemoProgress) -> float:
    """Run the worker until it has consumed `events`; return the seconds that it worked, start-up and end excluded."""
    running = asyncio.create_task(worker.run())
    loop = asyncio.get_running_loop()
    now = shown_at = loop.time()
    deadline = now + WORK_S_MAX
    idle_at = now  # when the worker was last found without any work
    while worker.tally.consumed < events and not running.done():
        await asyncio.sleep(POLL_S)
        now = loop.time()
        if not worker.tally.consumed and not any(d.busy for d in worker.deliveries.values()):
            idle_at = now
        if worker.tally.consumed and now - shown_at >= progress.every_s:
            progress.show(worker, now - idle_at)
            shown_at = now
        if now > deadline:
            worker.stop()
            await running
            raise DeliveryError(f"the demo did not end within {WORK_S_MAX:g} s")
    if not running.done():
        progress.show(worker, now - idle_at)
        progress.close()
    worker.stop()
    await running
    return now - idle_at


def _measure(
    worker: Worker, seconds: float, urls: Sequence[str], output: Iterator[bytes]
) -> Result:
    exact = {url.encode() for url in urls}
    events = [orjson.loads(value) for value in output]
    emitted = [event["url"].encode() for event in events]
    first = exact.intersection(emitted)
    example = _example(urls, {event["id"] for event in events})
    tally = worker.tally
    filters = [d.shard.filter for d in worker.deliveries.values() if d.shard]
    return Result(
        consumed=tally.consumed,
        distinct=len(exact),
        duplicates=tally[Verdict.DUPLICATE],
        passed=len(emitted),
        repeated=len(emitted) - len(first),
        first=example[0],
        again=example[1],
        run=FalsePositives(
            new=len(exact), estimated=tally.expected_false, actual=len(exact) - len(first)
        ),
        probe=_probe(filters, exact),
        filters=len(filters),
        kept=sum(len(filter_) for filter_ in filters),
        filter_bytes=sum(filter_.size_bytes for filter_ in filters),
        set_bytes=sys.getsizeof(exact) + sum(map(sys.getsizeof, exact)),
        text_bytes=sum(map(len, exact)),
        seconds=seconds,
    )


def _event(number: int, url: str) -> bytes:
    return orjson.dumps({"id": number, "url": url})


def _example(urls: Sequence[str], passed: AbstractSet[int]) -> tuple[bytes, bytes]:
    """Return the first event of a page that `passed`, by its number, and a later one that did not, as short lines."""
    firsts = dict[str, int]()
    for number, url in enumerate(urls):
        first = firsts.setdefault(url, number)
        is_dropped = first in passed and number not in passed
        if is_dropped and len(_event(number, url)) <= EXAMPLE_BYTES_MAX:
            return _event(first, url), _event(number, url)
    raise DeliveryError("no event of the demo was dropped as a duplicate of one that passed")


def _probe(filters: Sequence[Filter], exact: AbstractSet[bytes]) -> FalsePositives:
    """Ask each filter for its share of `NEVER_FED` keys that are not in `exact`: what it finds, it finds wrongly."""
    keys = [key for number in range(NEVER_FED) if (key := b"never fed %d" % number) not in exact]
    estimated, actual = 0.0, 0
    for number, filter_ in enumerate(filters):
        asked = keys[number :: len(filters)]
        estimated += filter_.error_rate_now * len(asked)
        actual += int(filter_.contains_many(filter_.digests(asked)).sum())
    return FalsePositives(new=len(keys), estimated=estimated, actual=actual)


def _introduction(address: str, tree: Settings) -> str:
    promised = f"{tree.filter.error_rate:.0%}"
    return f"""\
The demo writes one event for each package of Debian to a Kafka topic: its home
page. Many packages share one. The worker reads the topic, passes on the first
event of each page, and drops the others as duplicates. What it compares is the
key of an event: here, the address of the page.

The broker is a mock in this process, at {address}. It has no
transactions, so this run delivers at least once, and proves nothing about
delivery: it shows the filter at work.

The filter holds the keys in a few bits each. The price is that it takes some
new keys for known ones, and their events are lost: at most {promised} of new keys, even
once the filter is full.

The worker takes some seconds to start, and longer the first time, when it
compiles its inner loops.
"""


def _report(result: Result, worker: Worker, tree: Settings) -> str:
    run, probe, promised = result.run, result.probe, f"{tree.filter.error_rate:.0%}"
    saved = [d.snapshots.saved for d in worker.deliveries.values() if d.snapshots]
    sizes = [snapshot.size_bytes for snapshot in saved if snapshot]
    beside = (sum(sizes) - result.filter_bytes) / max(1, len(sizes))
    rate = result.consumed / result.seconds
    bits = result.filter_bytes * 8 / max(1, result.kept)
    exact_bits = result.set_bytes * 8 / result.distinct
    return f"""
What went in
  events                      {result.consumed:>11,}
  different pages             {result.distinct:>11,}  counted with an exact set

What came out
  passed on                   {result.passed:>11,}
  duplicates among these      {result.repeated:>11,}
  dropped as duplicates       {result.duplicates:>11,}

One event that was dropped, below the first one of its page
  passed on   {result.first.decode()}
  dropped     {result.again.decode()}

False positives: what the filter took for known, though it was new
                                estimated       actual
  of {run.new:,} new pages, while the filter filled up
                              {run.estimated:>11,.1f}  {run.actual:>11,}  dropped, and lost
  of {probe.new:,} keys that were never fed, asked at the end
                              {probe.estimated:>11,.1f}  {probe.actual:>11,}  \
{probe.actual / probe.new:.2%}; promised: {promised}

What it cost                        bytes   bits a key
  the filter                  {result.filter_bytes:>11,}  {bits:>11,.1f}  in {result.filters} partitions
  a Python set of these keys  {result.set_bytes:>11,}  {exact_bits:>11,.1f}  \
{result.set_bytes / result.filter_bytes:,.0f} times the filter
  the text of the keys alone  {result.text_bytes:>11,}  {result.text_bytes * 8 / result.distinct:>11,.1f}  \
{result.text_bytes / result.filter_bytes:,.0f} times the filter
  snapshots of the filter     {sum(sizes):>11,}  {len(sizes)} files in {tree.snapshot.directory}
    {sum(sizes) / result.filter_bytes:.1f} times the filter, which is small here: each file has {beside:,.0f}
    bytes beside its table, whatever the size of that. They are a header,
    checksums, and what fills up the last page ({PAGE_BYTES:,} bytes) of both.
  time                        {result.seconds:>9,.1f} s  {rate:,.0f} events/s, with the broker
"""


def _command(called: str) -> str:
    """Return how to call this program again: by name if the shell finds it so, else as it was called."""
    if Path(called).name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m streamdedup"
    found = shutil.which("streamdedup")
    by_name = found is not None and Path(called).exists() and Path(called).samefile(found)
    return "streamdedup" if by_name else shlex.quote(called)


def _next(command: str, example: Path, here: Path) -> str:
    """Return commands to copy. The path of the example is quoted, and relative if `here` is above it."""
    file = shlex.quote(str(example.relative_to(here) if example.is_relative_to(here) else example))
    return f"""\
What to do next
  # the page of a worker in your browser, while events keep coming
  {command} demo --stay
  # your own lines, without Kafka: the first of each
  {command} pipe < FILE
  # your own topic: read its newest events, report what would be dropped, write nothing
  {command} try -c {file} --set kafka.bootstrap_servers=HOST:9092 --set source.topic=TOPIC --set key.field=FIELD"""


def confluent_kafka() -> ModuleType:
    """Return the package; ConfigError with the command that installs it, if it is missing."""
    try:
        import confluent_kafka
    except ImportError:
        raise ConfigError(
            "the demo's broker comes with the package confluent-kafka, which is not installed; install it:"
            f" {shlex.quote(sys.executable)} -m pip install '{BROKER_PACKAGE}'"
        ) from None
    return confluent_kafka


def config(name: str) -> Path:
    """Return the path of a file of config/: inside the package if installed from a wheel, beside it in a checkout."""
    package = Path(str(resources.files("streamdedup")))
    installed = package / "config" / name
    return installed if installed.is_file() else package.parent / "config" / name
