"""Records of a few kB that hold millions of headers, and what becomes of them from the fetched bytes to the letters."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from typing_extensions import override

from streamdedup.delivery.decide import Decider
from streamdedup.delivery.emit import Emitter
from streamdedup.delivery.fold import FoldedMemory
from streamdedup.delivery.leader_clocks import LeaderClocks
from streamdedup.delivery.pace import Pace
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.services import Services, shard_over
from streamdedup.delivery.transactions import DecidedBatch
from streamdedup.events import Column, EventBatch, Integers
from streamdedup.kafka.broker_clock import Span
from streamdedup.kafka.records.decoding import PendingDecode
from streamdedup.kafka.records.encoding import BatchEncoder
from streamdedup.kafka.records.records import Record, records_of
from streamdedup.kafka.topics import Topic, Topology
from streamdedup.settings import Settings
from tests.kafka.test_columns import fetched
from tests.kafka.test_limits import NOW_MS
from tests.kafka.test_wire import varint

EMPTY = b"\0\0"  # a header without name and value


def body(value: bytes, headers: bytes = b"", count: int = 0) -> bytes:
    """What a record without key has from the size of its key on."""
    return b"".join((b"\1", bytes(varint(len(value))), value, bytes(varint(count)), headers))


def bomb(headers: int, value: bytes = b'{"id":"bomb"}') -> bytes:
    """The body of a record with that many empty headers."""
    return body(value, EMPTY * headers, headers)


def record_batch(base: int, bodies: Sequence[bytes], codec: int) -> bytes:
    """A record batch of these records, as a broker would give it from offset `base` on."""
    size = sum(map(len, bodies)) + 100 * (len(bodies) + 1)
    encoder = BatchEncoder(codec=codec, transactional=False, bytes_max=size)
    encoder.add(Column.of(bodies), np.full(len(bodies), NOW_MS, dtype=np.int64))
    [made] = encoder.finish()
    made.stamp(-1, -1, -1)
    made.data[:8] = base.to_bytes(8, "big")
    return bytes(made.data)


def settings_of(directory: Path, **sections: Any) -> Settings:
    """Settings of a worker with a topic for dead letters; `sections` add to them."""
    for name, options in (
        ("source", {"topic": "in"}),
        ("sink", {"topic": "out", "dead_letter_topic": "letters"}),
    ):
        sections[name] = options | sections.get(name, {})
    return Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": "localhost:9092", "group_id": "g"},
            "key": {"from": "json", "field": "id"},
            "filter": {"capacity": 1000},
            "snapshot": {"directory": str(directory)},
            **sections,
        }
    )


class Sent:
    """A writer that keeps what it is given, and reads nothing of it."""

    def __init__(self) -> None:
        self._sent: list[tuple[str, EventBatch, Integers]] = []

    async def copy(self, topic: str, batch: EventBatch, rows: Integers, _bytes_max: int) -> None:
        """Keep the events of `rows`."""
        self._sent.append((topic, batch, rows))

    def of(self, topic: str) -> list[Record]:
        """What was sent to `topic`."""
        return [r for to, batch, rows in self._sent if to == topic for r in records_of(batch, rows)]


class _Known(LeaderClocks):
    """Brokers whose time is known exactly."""

    def __init__(self) -> None:
        """Ask nobody."""

    @override
    def present(self, partition: int) -> Span | None:
        return Span.at(NOW_MS)


class Way:
    """The way of the events of one partition: read, decide, emit."""

    def __init__(self, settings: Settings, *, bytes_max: int = 1_048_588) -> None:
        self.sent, self.parts = Sent(), list[DecidedBatch]()
        recipe, absent = Recipe(settings, 1), None
        services = Services(cluster=absent, source=absent, clocks=_Known())  # type: ignore[arg-type] # not asked
        self._emitter = Emitter(settings, self.sent)
        limit = {"max.message.bytes": str(bytes_max)}
        topics = {name: Topic(name, None, 1, 1, settings=limit) for name in ("out", "letters")}
        self._emitter.observe(Topology(None, topics))
        self._memory = FoldedMemory(recipe, services, 0, structlog.get_logger())
        self._shard = shard_over(recipe.empty_filter(), recipe, services, 0)
        self._decider = Decider(
            recipe,
            services,
            memory=self._memory,
            emitter=self._emitter,
            reader=absent,  # type: ignore[arg-type] # what is decided is given
            pace=Pace(100_000),
            name="in/0",
        )

    async def take(self, data: bytes) -> None:
        """Take the events that were fetched, to the end."""
        for one in fetched(data, events_max=8192):
            if isinstance(one, PendingDecode):
                await one.done()
                continue
            await self.decide(one)
            await asyncio.sleep(0)

    async def fold(self, batch: EventBatch) -> None:
        """Fold `batch` as events of the output."""
        await self._memory._fold_in(self._shard, batch)

    async def decide(self, batch: EventBatch) -> None:
        """Decide and emit the events of `batch`."""
        decided = await self._decider._decide(self._shard, batch)
        assert decided is not None
        part, _ = decided
        self.parts.append(part)
        await self._emitter.emit(part)
