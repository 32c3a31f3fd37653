"""The consumer of examples/consumer.py against a real broker: what it handles once, and what again."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import streamdedup
from examples.consumer import Handle, consume
from streamdedup import Addable
from tests.broker.base import DEADLINE_S, Broker, wait_until
from tests.broker.topics import committed, create_topic, produce, unique_name
from tests.local import until

ONE_BY_ONE: dict[str, Any] = {"max_poll_records": 1}
SESSION_MS = 60_000  # a busy machine may hold up the heartbeats for the 10 s that are usual


class Topic:
    """A topic of one partition, a group that reads it, and the keys that were handled."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap, self.group = bootstrap, unique_name("group")
        self.name = unique_name("events")
        self.handled: list[str] = []
        create_topic(bootstrap, self.name)

    def produce(self, keys: Iterable[str]) -> None:
        """Append an event for each key."""
        produce(
            self.bootstrap, self.name, [(0, key.encode(), b"a value", [], None) for key in keys]
        )

    async def handle(self, event: Any) -> None:
        """Keep the key."""
        self.handled.append(event.key.decode())

    def consume(self, seen: Addable, handle: Handle, **options: Any) -> Any:
        """Return the coroutine of the example."""
        options = {
            "bootstrap_servers": self.bootstrap,
            "session_timeout_ms": SESSION_MS,
            **options,
        }
        return consume(self.name, self.group, seen, handle, **options)

    @asynccontextmanager
    async def consumed(
        self, seen: Addable, handle: Handle | None = None, **options: Any
    ) -> AsyncIterator[None]:
        """Consume during the block, then stop."""
        task = asyncio.create_task(self.consume(seen, handle or self.handle, **options))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def until_handled(self, key: str) -> None:
        """Wait for a key."""
        await until(lambda: key in self.handled, lambda: f"handled: {self.handled}")

    async def until_committed(self, offset: int) -> None:
        """Wait for a commit."""

        def is_committed() -> bool:
            return committed(self.bootstrap, self.group, self.name).get(0) == offset

        await asyncio.to_thread(wait_until, is_committed, DEADLINE_S, lambda: f"not at {offset}")


def empty() -> Addable:
    """Return a filter without keys, whose kernels are compiled: no consumer waits for them within its session."""
    options = {"kind": "bloom", "capacity": 1000, "error_rate": 1e-9}
    used = streamdedup.build(options)
    used.add(b"key")
    assert b"key" in used
    return streamdedup.build(options)


@pytest.fixture
def topic(broker: Broker) -> Topic:
    """A topic of its own."""
    return Topic(broker.bootstrap_servers)


async def test_each_key_is_handled_once_if_the_filter_was_saved(
    topic: Topic, tmp_path: Path
) -> None:
    """Repeats are dropped, before and after a restart."""
    topic.produce(["a", "b", "a", "c", "b", "last"])
    seen = empty()
    async with topic.consumed(seen, **ONE_BY_ONE):
        await topic.until_handled("last")
    streamdedup.save(seen, tmp_path / "seen.filter")
    topic.produce(["c", "a", "new"])
    loaded: Any = streamdedup.load(tmp_path / "seen.filter")
    async with topic.consumed(loaded, **ONE_BY_ONE):
        await topic.until_handled("new")
    assert topic.handled == ["a", "b", "c", "last", "new"]


async def test_after_a_crash_keys_are_handled_again(topic: Topic) -> None:
    """What was not committed is read again, and what was not saved is not known."""

    async def crashing(event: Any) -> None:
        if event.key == b"crash":
            raise ConnectionError
        await topic.handle(event)

    topic.produce(["a", "b"])
    seen = empty()
    async with topic.consumed(seen):
        await topic.until_committed(2)
    topic.produce(["c"])
    topic.produce(["crash"])
    with pytest.raises(ExceptionGroup):
        await topic.consume(seen, crashing, **ONE_BY_ONE)
    assert topic.handled == ["a", "b", "c"]
    topic.produce(["a", "last"])
    async with topic.consumed(empty(), **ONE_BY_ONE):
        await topic.until_handled("last")
    assert topic.handled == ["a", "b", "c", "crash", "a", "last"]


async def test_events_in_flight_do_not_know_each_other(topic: Topic) -> None:
    """Two events of one key that come together are both handled, and a later one is not."""
    both = asyncio.Barrier(2)

    async def together(event: Any) -> None:
        await topic.handle(event)
        if event.key == b"a":
            await both.wait()

    topic.produce(["a", "a"])
    async with topic.consumed(empty(), together):
        await topic.until_committed(2)
        await asyncio.to_thread(topic.produce, ["a", "last"])
        await topic.until_handled("last")
    assert topic.handled == ["a", "a", "last"]
