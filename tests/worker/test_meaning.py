"""One group, one meaning: workers that would take another key of an event wait; over a group in memory."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import orjson

from streamdedup.testing import MemoryBroker, VirtualLoop, connected_to
from tests.deployment import Deployment
from tests.local import LocalWorker, Start, workers

FIRST_EVENTS, USERS = 15_000, 5_000


class Stage:
    """A broker in memory with two partitions, and workers of one group on it."""

    def __init__(self, directory: Path, start: Start) -> None:
        self.deployment = Deployment("memory:1", directory, partitions=2)
        self.deployment.config["key"] = {"field": "id"}
        self.broker = MemoryBroker()
        self.broker.rebalance_s = 1
        self.broker.create_topic(self.deployment.source, 2)
        self.broker.create_topic(self.deployment.sink, 2)
        self._start = start

    def start(self, **key: Any) -> LocalWorker:
        """One more worker, with these options of the key."""
        self.deployment.config["key"] = {"field": "id", **key}
        return self._start(self.deployment, connect=connected_to(self.broker))

    def feed(self, events: Iterable[tuple[int, bytes]]) -> None:
        """Append values to the partitions of the input."""
        self.broker.produce(self.deployment.source, [(p, None, value) for p, value in events])

    def emitted(self) -> list[dict[str, Any]]:
        """The values of the output's events."""
        return [
            orjson.loads(event.value or b"")
            for events in self.broker.read_all(self.deployment.sink)
            for event in events
        ]


def play(directory: Path, scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    """Run `scene` on a virtual clock."""

    async def main() -> None:
        async with workers() as start:
            await scene(Stage(directory, start))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def visits(numbers: Iterable[int]) -> list[tuple[int, bytes]]:
    """Events of two partitions: each with an id of its own, several of one user."""
    return [(n % 2, orjson.dumps({"id": n, "user": n % USERS})) for n in numbers]


def test_two_workers_with_different_keys_lose_no_first_event(tmp_path: Path) -> None:
    """The second would take the events of one user for duplicates; so it waits, and the first emits every id once."""

    async def scene(stage: Stage) -> None:
        first = stage.start()
        await first.live(2)
        second = stage.start(field="user")
        await asyncio.sleep(30)
        stage.feed(visits(range(FIRST_EVENTS)))
        await first.until(
            lambda: first.tally.consumed + second.tally.consumed >= FIRST_EVENTS, "consumed"
        )
        emitted = {event["id"] for event in stage.emitted()}
        assert len(emitted) == FIRST_EVENTS, f"{FIRST_EVENTS - len(emitted)} are missing"

    play(tmp_path, scene)
