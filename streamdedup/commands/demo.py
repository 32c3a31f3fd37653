"""`streamdedup demo`: the real worker over real data, against a broker inside this process.

The broker is librdkafka's mock cluster, out of the confluent-kafka wheel: good for a first run, at least once only, and
no proof of anything about delivery.
"""

import asyncio
import gzip
import logging
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import orjson

from streamdedup import logs, settings
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.events import Verdict
from streamdedup.settings import Settings
from streamdedup.worker.worker import Worker

BROKER_S_MAX = 30.0
WORK_S_MAX = 120.0
READ_S_MAX = 30.0
TERMINAL_EVERY_S, PLAIN_EVERY_S = 0.1, 1.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """What the demo saw: counts of events, and the truth against an exact set."""

    consumed: int
    unique: int
    duplicates: int
    distinct: int
    expected_false: float
    seconds: float

    @property
    def actual_false(self) -> int:
        """First occurrences that did not come out."""
        return self.distinct - self.unique


def demo() -> int:
    """Run the demo and print its table; the exit status."""
    kafka = _confluent_kafka()
    logs.set_up(logging.WARNING)
    urls = home_pages()
    with MockBroker(kafka) as broker:
        tree = settings.load(
            _config("demo.yaml"), [f"kafka.bootstrap_servers={broker.address}"], environ={}
        )
        shutil.rmtree(tree.snapshot.directory / tree.kafka.group_id, ignore_errors=True)
        print(
            f"broker: an embedded one at {broker.address}; feeding {len(urls):,} events", flush=True
        )
        broker.feed(tree.source.topic, urls)
        broker.make(tree.sink.topic)
        worker = Worker(tree)
        seconds = asyncio.run(_work(worker, len(urls), DemoProgress(sys.stdout)))
        result = _compare(worker, seconds, urls, broker.read(tree.sink.topic))
    print(_table(result, worker, tree))
    return 0


def home_pages() -> Sequence[str]:
    """The demo's data: home pages of packages in the order of their index; its origin: data/README.md."""
    packed = resources.files("streamdedup").joinpath("data/homepages.txt.gz").read_bytes()
    return gzip.decompress(packed).decode().splitlines()


class MockBroker:
    """librdkafka's mock cluster, alive as long as this context."""

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
        """Create `topic`: the mock does, for whoever asks for it."""
        self._producer.list_topics(topic, timeout=BROKER_S_MAX)

    def feed(self, topic: str, urls: Sequence[str]) -> None:
        """Produce the events; equal URLs share a partition, as duplicates must."""
        for number, url in enumerate(urls):
            event = orjson.dumps({"id": number, "url": url})
            self._producer.produce(topic, event, key=url)
            self._producer.poll(0)
        if left := self._producer.flush(BROKER_S_MAX):
            raise DeliveryError(f"the demo's broker did not take {left} events")

    def read(self, topic: str) -> Iterator[bytes]:
        """The values of all events of `topic`."""
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
    """A live line on a terminal, plain lines elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._live = out, out.isatty()
        self._started: float | None = None

    @property
    def every_s(self) -> float:
        """How often to show."""
        return TERMINAL_EVERY_S if self._live else PLAIN_EVERY_S

    def show(self, worker: Worker) -> None:
        """Rate, verdicts, fill ratio and estimated error, now."""
        tally, now = worker.tally, time.monotonic()
        self._started = self._started or now
        filter_ = [d.shard.filter for d in worker.deliveries.values() if d.shard]
        fill = max((f.fill_ratio for f in filter_), default=0.0)
        error = max((f.error_rate_now for f in filter_), default=0.0)
        rate = tally.consumed / max(now - self._started, TERMINAL_EVERY_S)
        line = (
            f"{tally.consumed:>7,} events  {rate:>9,.0f}/s  pass {tally[Verdict.PASS]:>7,}"
            f"  duplicate {tally[Verdict.DUPLICATE]:>7,}  fill {fill:6.2%}  estimated error {error:.2e}"
        )
        self._out.write(f"\r{line}\x1b[K" if self._live else f"{line}\n")
        self._out.flush()

    def close(self) -> None:
        """End the live line."""
        if self._live:
            self._out.write("\n")


async def _work(worker: Worker, events: int, progress: DemoProgress) -> float:
    """Run the worker until it has consumed `events`; the seconds from its first to its last event."""
    running = asyncio.create_task(worker.run())
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WORK_S_MAX
    first_at: float | None = None
    shown_at = 0.0
    while worker.tally.consumed < events and not running.done():
        await asyncio.sleep(0.02)
        now = loop.time()
        if first_at is None and any(d.busy for d in worker.deliveries.values()):
            first_at = now
        if first_at is not None and now - shown_at >= progress.every_s:
            progress.show(worker)
            shown_at = now
        if now > deadline:
            worker.stop()
            await running
            raise DeliveryError(f"the demo did not end within {WORK_S_MAX:g} s")
    seconds = loop.time() - (first_at or loop.time())
    progress.show(worker)
    progress.close()
    worker.stop()
    await running
    return max(seconds, 1e-3)


def _compare(
    worker: Worker, seconds: float, urls: Sequence[str], output: Iterator[bytes]
) -> Result:
    tally = worker.tally
    emitted = [orjson.loads(value)["url"] for value in output]
    return Result(
        consumed=tally.consumed,
        unique=len(set(emitted)),
        duplicates=tally[Verdict.DUPLICATE],
        distinct=len(set(urls)),
        expected_false=tally.expected_false,
        seconds=seconds,
    )


def _table(result: Result, worker: Worker, tree: Settings) -> str:
    snapshots = filter(None, (d.snapshots for d in worker.deliveries.values()))
    saved = [s.saved for s in snapshots if s.saved]
    size = sum(s.size_bytes for s in saved)
    rows: list[tuple[str, Any]] = [
        ("events consumed", f"{result.consumed:,}"),
        ("unique, emitted", f"{result.unique:,}  (distinct in truth: {result.distinct:,})"),
        ("duplicates, dropped", f"{result.duplicates:,}"),
        ("false positives, estimated", f"{result.expected_false:.1f}"),
        ("false positives, actual", f"{result.actual_false:,}  (against an exact set)"),
        ("events per second", f"{result.consumed / result.seconds:,.0f}"),
        ("snapshots", f"{len(saved)} files, {size:,} bytes, in {tree.snapshot.directory}"),
    ]
    width = max(len(name) for name, _ in rows)
    table = "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)
    return f"\n{table}\n\n{_next(_command(sys.argv[0]), _config('dedup.yaml'), Path.cwd())}"


def _command(called: str) -> str:
    """How to call us again from here: by our name where the shell finds us so, else as it was done."""
    if Path(called).name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m streamdedup"
    found = shutil.which("streamdedup")
    by_name = found is not None and Path(called).exists() and Path(called).samefile(found)
    return "streamdedup" if by_name else shlex.quote(called)


def _next(command: str, example: Path, here: Path) -> str:
    """Lines to copy: the example's path is quoted, and short where `here` is above it."""
    file = shlex.quote(str(example.relative_to(here) if example.is_relative_to(here) else example))
    return f"""\
Next:
  # every setting of a real deployment
  {command} config show {file}
  # the worker, once kafka.bootstrap_servers names your broker: until one answers, it waits
  {command} run -c {file}
  # first occurrences of the lines of a file
  sort --random-sort FILE | {command} pipe"""


def _confluent_kafka() -> ModuleType:
    try:
        import confluent_kafka
    except ImportError:
        raise ConfigError(
            "the demo's broker comes with the package confluent-kafka, which is not installed; install the extra,"
            " from a checkout: pip install '.[demo]'"
        ) from None
    return confluent_kafka


def _config(name: str) -> Path:
    """A file of config/: inside the package where installed from a wheel, beside it in a checkout."""
    package = Path(str(resources.files("streamdedup")))
    installed = package / "config" / name
    return installed if installed.is_file() else package.parent / "config" / name
