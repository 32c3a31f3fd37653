"""`streamdedup demo --stay`: the demo's worker, fed at a moderate pace until interrupted, for who looks at its page."""

import asyncio
import logging
import random
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice

from streamdedup import logs, settings
from streamdedup.commands.demo import POLL_S, MockBroker, config, confluent_kafka, home_pages
from streamdedup.settings import Settings
from streamdedup.worker.worker import Worker

EVERY_S = 0.25
AT_ONCE_MIN, AT_ONCE_MAX = 40, 120  # events, as traffic rises and falls
CHANGE_MAX = 6
SEED = 44

# A filter with room for hours, which grows rather than end the show; the page on any free port.
SETTINGS = ("server.port=0", "filter.capacity=2_000_000", "filter.on_full=grow")


def stay(put: Callable[[str], None]) -> int:
    """Feed a worker until SIGINT or SIGTERM, `put` the address of its page, and return the exit status."""
    kafka = confluent_kafka()
    logs.set_up(logging.WARNING)
    with MockBroker(kafka) as broker:
        given = [f"kafka.bootstrap_servers={broker.address}", *SETTINGS]
        tree = settings.load(config("demo.yaml"), given, environ={})
        shutil.rmtree(tree.snapshot.directory / tree.kafka.group_id, ignore_errors=True)
        put("The worker starts. This takes some seconds, and longer the first time.\n")
        for topic in (tree.source.topic, tree.sink.topic):
            broker.make(topic)
        asyncio.run(_stay(tree, broker, put))
    return 0


async def _stay(tree: Settings, broker: MockBroker, put: Callable[[str], None]) -> None:
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted.set)
    worker = Worker(tree)
    running = asyncio.create_task(worker.run())
    feeding = asyncio.create_task(_feed(broker, tree.source.topic))
    stopping = asyncio.create_task(interrupted.wait())
    try:
        if port := await _port(worker, (running, stopping)):
            put(_welcome(f"http://127.0.0.1:{port}/"))
        await asyncio.wait((running, feeding, stopping), return_when=asyncio.FIRST_COMPLETED)
        if feeding.done():
            await feeding
    finally:
        for task in (feeding, stopping):
            task.cancel()
        worker.stop()
        await running


async def _port(worker: Worker, ends: Sequence[asyncio.Task[object]]) -> int | None:
    """Return the port of the worker's pages, once it listens; None if it ends before."""
    while worker.status.port is None:
        ended, _ = await asyncio.wait(ends, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
        if ended:
            return None
    return worker.status.port


async def _feed(broker: MockBroker, topic: str) -> None:
    """Feed pages for ever, in a thread: the producer waits for its acknowledgments."""
    pages, fed, at_once = endless(home_pages()), 0, (AT_ONCE_MIN + AT_ONCE_MAX) // 2
    traffic = random.Random(SEED)  # noqa: S311 - not for secrets
    while True:
        await asyncio.to_thread(broker.feed, topic, list(islice(pages, at_once)), fed)
        fed += at_once
        at_once += traffic.randint(-CHANGE_MAX, CHANGE_MAX)
        at_once = min(max(at_once, AT_ONCE_MIN), AT_ONCE_MAX)
        await asyncio.sleep(EVERY_S)


def endless(urls: Sequence[str]) -> Iterator[str]:
    """Yield all `urls`, then for ever one that was never seen, and one of them."""
    yield from urls
    for number in count():
        yield f"https://example.org/{number}"
        yield urls[number % len(urls)]


def _welcome(address: str) -> str:
    return f"""
The worker's page:  {address}

It shows some 300 events a second, of which about half are duplicates, until you
interrupt this command (Ctrl-C). In a terminal of your own:
  curl {shlex.quote(address + "readyz")}
"""
