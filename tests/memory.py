"""Tests over a broker in memory, on a virtual clock: `@over(Stage)` plays a test on a stage that is made for it."""

import functools
import inspect
import re
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Concatenate, TypeVar

from streamdedup.server.pulse import Pulse
from streamdedup.server.request import Page
from streamdedup.server.routes import pages
from streamdedup.testing import MemoryBroker, connected_to
from streamdedup.testing.log import Logged
from tests.deployment import Deployment, keyed
from tests.local import LocalWorker, Start, on_virtual_clock

S = TypeVar("S")
Test = Callable[Concatenate[S, ...], Coroutine[Any, Any, None]]


def over(make: Callable[[Path, Start], S]) -> Callable[[Test[S]], Callable[..., None]]:
    """Decorate a coroutine function whose first argument is `make(tmp_path, start)`: play it on a virtual clock."""

    def decorated(test: Test[S]) -> Callable[..., None]:
        (_, *asked) = inspect.signature(test).parameters.values()
        directory = inspect.Parameter("tmp_path", inspect.Parameter.KEYWORD_ONLY)
        others = [one.replace(kind=directory.kind) for one in asked if one.name != directory.name]

        @functools.wraps(test)
        def play(tmp_path: Path, **given: Any) -> None:
            if len(others) < len(asked):
                given["tmp_path"] = tmp_path
            on_virtual_clock(lambda start: test(make(tmp_path, start), **given))

        play.__signature__ = inspect.Signature([directory, *others])  # type: ignore[attr-defined] # pytest reads it
        return play

    return decorated


class OverMemory:
    """Workers of one deployment over a broker in memory."""

    def __init__(self, directory: Path, start: Start, partitions: int) -> None:
        self.deployment = Deployment("memory:1", directory, partitions)
        self.broker = MemoryBroker()
        self._start = start

    @property
    def source(self) -> str:
        """The input."""
        return self.deployment.source

    @property
    def sink(self) -> str:
        """The output."""
        return self.deployment.sink

    @property
    def config(self) -> dict[str, dict[str, Any]]:
        """That of workers to come."""
        return self.deployment.config


class Stage(OverMemory):
    """An input and an output of so many partitions."""

    def __init__(
        self, directory: Path, start: Start, partitions: int = 1, **settings: str | int
    ) -> None:
        super().__init__(directory, start, partitions)
        for topic in (self.source, self.sink):
            self.broker.create_topic(topic, partitions, **settings)

    def side_topic(self, leaf: str) -> str:
        """Create the topic of `sink.LEAF`."""
        self.broker.create_topic(leaf, self.deployment.partitions)
        self.config["sink"][leaf] = leaf
        return leaf

    def start(self, **options: Any) -> LocalWorker:
        """Start one more worker, with these options of `Start`."""
        return self._start(self.deployment, connect=connected_to(self.broker), **options)

    async def started(self, **options: Any) -> LocalWorker:
        """As `start`; wait until it decides on all partitions."""
        worker = self.start(**options)
        await worker.live()
        return worker

    async def ended(self, count: int) -> LocalWorker:
        """Have a worker consume so many events, and drain it."""
        return await self.start().through(count)

    async def to_the_end(self) -> LocalWorker:
        """Have a worker commit the end of partition 0 of the input, and drain it."""
        end = self.broker.log(self.source, 0).end
        async with self.start() as worker:
            await worker.until(lambda: self.committed == end, "committed end")
        return worker

    def feed(self, numbers: Iterable[int]) -> None:
        """Append the events of `keyed` to the input."""
        events = keyed(numbers, self.deployment.partitions)
        self.broker.produce(self.source, [event[:3] for event in events])

    @property
    def committed(self) -> int:
        """The group's offset in partition 0; 0 without one."""
        return self.broker.committed(self.deployment.group, self.source).get(0, 0)

    @property
    def output(self) -> list[Logged]:
        """The committed events of all partitions of the output."""
        return [event for log in self.broker.read_all(self.sink) for event in log]


def starting(_directory: Path, start: Start) -> Start:
    """For `over`: give a test the way to start workers alone."""
    return start


def page(worker: LocalWorker, path: str = "/readyz") -> Page:
    """Answer as the server of `worker` would."""
    return pages(worker.worker.status, Pulse())[path]()


def measured(worker: LocalWorker, name: str) -> list[float]:
    """The values of a metric of `worker`, of all labels or of those that `name` ends with."""
    lines = page(worker, "/metrics").text.splitlines()
    found = (line for line in lines if re.match(rf"streamdedup_{re.escape(name)}[ {{]", line))
    return [float(line.split()[-1]) for line in found]
