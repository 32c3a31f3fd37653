"""Claims about the second stage of a repartition: it reads our own copies, each where its key belongs, or stops.

A copy is judged and emitted as it lay in the input, and everything that names it names its place there.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from aiokafka.partitioner import murmur2

from streamdedup.delivery import middle as middle_module
from streamdedup.delivery.consume import UNREADABLE_TRIES, InputReader
from streamdedup.delivery.middle import REMEDY
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.turns import beside
from streamdedup.events import Column, EventBatch, Headers
from streamdedup.kafka.options import MARK
from streamdedup.kafka.records.origin_header import ORIGIN
from streamdedup.repartition.middle import settings_for
from streamdedup.settings import load
from streamdedup.settings.stages import deduplicating
from streamdedup.testing import MemoryBroker, connected_to
from tests.delivery.test_damaged import REASON, Damaged
from tests.deployment import Deployment
from tests.lists.files import list_file
from tests.local import LocalWorker, Start, on_virtual_clock

N = 3
OWN: Headers = (("trace", b"1"), ("empty", None), (ORIGIN, b"other/0/0/group"))


def home(key: bytes) -> int:
    """Where a client of Kafka puts `key`."""
    return int(murmur2(key) & 0x7FFFFFFF) % N


def keys_in(partition: int, count: int, start: int = 0) -> list[bytes]:
    """Keys that belong in `partition`."""
    found = (b"user%d@example.com" % number for number in range(start, 1_000_000))
    chosen = (key for key in found if home(key) == partition)
    return [next(chosen) for _ in range(count)]


class Stage:
    """A second stage, and what would be the work of the first."""

    def __init__(self, directory: Path, start: Start) -> None:
        self.deployment = there = Deployment("memory:1", directory, partitions=N)
        self.middle = "clicks-by-key"
        there.config["source"]["repartition"] = {"topic": self.middle, "partitions": N}
        self.broker = MemoryBroker()
        for name in (there.source, there.sink):
            self.broker.create_topic(name, N)
        settings = settings_for(self.broker.topics[there.source].topic)
        self.broker.create_topic(
            self.middle, N, **{name.replace(".", "_"): value for name, value in settings.items()}
        )
        self.copied = 0
        self._start = start

    def side_topic(self, leaf: str) -> str:
        """Make the topic of `sink.LEAF`."""
        self.broker.create_topic(leaf, N)
        self.deployment.config["sink"][leaf] = leaf
        return leaf

    def start(self) -> LocalWorker:
        """Start a worker that is the second stage alone."""
        return self._start(self.deployment, connect=connected_to(self.broker), copies=False)

    def origin(self, offset: int, partition: int = 7) -> bytes:
        """What the first stage says of an event."""
        return b"%b/%d/%d/%b" % (
            self.deployment.source.encode(),
            partition,
            offset,
            self.deployment.group.encode(),
        )

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> int:
        """Append one event; return its offset."""
        log = self.broker.log(topic, partition)
        log.append([(self.broker.now_ms(), key, value, headers)])
        return log.end - 1

    def copy(self, key: bytes | None, *, into: int | None = None, own: Headers = ()) -> int:
        """Copy one event as the first stage does; the input has them all in one partition, from offset 1000 on."""
        offset = 1000 + self.copied
        self.copied += 1
        partition = home(key or b"") if into is None else into
        headers = (*own, (ORIGIN, self.origin(offset)))
        return self.append(self.middle, partition, key, b"value", headers)

    def committed(self) -> dict[int, int]:
        """The group's offsets on the middle topic."""
        return self.broker.committed(self.deployment.group, self.middle)

    async def to_the_end(self, worker: LocalWorker) -> None:
        """Wait until the whole middle topic is committed."""
        ends = [log.end for log in self.broker.topics[self.middle].logs]
        wanted = {partition: end for partition, end in enumerate(ends) if end}
        await worker.until(lambda: wanted.items() <= self.committed().items(), f"commit of {ends}")

    def emitted(self) -> list[list[bytes | None]]:
        """The keys in each partition of the output."""
        return [[event.key for event in log] for log in self.broker.read_all(self.deployment.sink)]


@pytest.fixture
def play(tmp_path: Path) -> Any:
    """Run a scene over a second stage, on a virtual clock."""

    def run(scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
        on_virtual_clock(lambda start: scene(Stage(tmp_path, start)))

    return run


def test_copies_are_judged_and_emitted_as_they_lay_in_the_input(play: Any) -> None:
    """Only our origin comes off: an event's own headers stay, one of the same name, too."""

    async def scene(stage: Stage) -> None:
        keys = [key for partition in range(N) for key in keys_in(partition, 4)]
        for key in [*keys, *keys]:
            stage.copy(key, own=OWN)
        async with stage.start() as worker:
            await stage.to_the_end(worker)
        assert stage.emitted() == [keys_in(partition, 4) for partition in range(N)]
        for log in stage.broker.read_all(stage.deployment.sink):
            assert all((e.value, tuple(e.headers)) == (b"value", OWN) for e in log)
        async with stage.start() as worker:  # the fold finds every event where it belongs
            stage.copy(keys[0])
            stage.copy(new := keys_in(0, 1, start=1000)[0])
            await stage.to_the_end(worker)
            assert worker.lines("shard_stopped") == []
        assert stage.emitted()[0] == [*keys_in(0, 4), new]

    play(scene)


def test_events_without_a_key_may_lie_anywhere(play: Any) -> None:
    """They are judged by the rules for malformed events, wherever the first stage put them."""

    async def scene(stage: Stage) -> None:
        stage.deployment.config["key"]["on_malformed"] = "pass"
        for partition in range(N):
            stage.copy(None, into=partition)
        for _ in range(2):  # the second time, the fold has read them in the output
            async with stage.start() as worker:
                await stage.to_the_end(worker)
                assert worker.lines("shard_stopped") == []
        assert stage.emitted() == [[None]] * N

    play(scene)


KINDS = (
    "no header",
    "another header",
    "an origin that is not the last",
    "another group",
    "a longer group",
    "a tampered offset",
    "null",
)


def strange_headers(stage: Stage) -> dict[str, tuple[Headers, str]]:
    """The headers of an event that we did not copy, and what is said of them."""
    ours = (ORIGIN, stage.origin(5))
    nothing, no_place = f"no header {ORIGIN} at the end", f"a header {ORIGIN} that names no place"
    group = stage.deployment.group
    return {
        "no header": ((), nothing),
        "another header": ((("trace", b"1"),), nothing),
        "an origin that is not the last": ((ours, ("trace", b"1")), nothing),
        "another group": (((ORIGIN, b"clicks/0/5/other"),), "the origin of group 'other'"),
        "a longer group": (((ORIGIN, stage.origin(5) + b"s"),), f"the origin of group '{group}s'"),
        "a tampered offset": (((ORIGIN, b"clicks/0/-5/" + group.encode()),), no_place),
        "null": (((ORIGIN, None),), no_place),
    }


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.rule(24)
def test_an_event_of_a_stranger_stops_the_shard(play: Any, kind: str, before: int) -> None:
    """By name, before that event: all before it is committed, and nothing after it is read."""

    async def scene(stage: Stage) -> None:
        headers, found = strange_headers(stage)[kind]
        keys = keys_in(1, before + 2)
        for key in keys[:before]:
            stage.copy(key)
        stage.append(stage.middle, 1, keys[-2], b"secret", headers)
        stage.copy(keys[-1])
        async with stage.start() as worker:
            said = await worker.stopped()
            await worker.until(lambda: stage.committed().get(1, 0) == before, "commit before it")
        assert said.startswith(
            f"{stage.middle}/1 offset {before} is no copy of this deployment: it has {found}"
        )
        assert said.endswith(REMEDY)
        assert f"keep other writers off {stage.middle}" in said
        assert stage.deployment.group in said
        assert not any(key.decode() in said for key in keys)
        assert stage.emitted()[1] == keys[:before]

    play(scene)


@pytest.mark.rule(20)
def test_a_misplaced_event_stops_the_shard(play: Any) -> None:
    """It is named by its places in the middle and in the input, with the partition where it belongs; not by its key."""

    async def scene(stage: Stage) -> None:
        (key,) = keys_in(2, 1)
        stage.copy(keys_in(1, 1)[0])
        stage.copy(key, into=1)
        async with stage.start() as worker:
            said = await worker.stopped()
        assert said == (
            f"{stage.middle}/1 offset 1, a copy of {stage.deployment.source}/7 offset 1001, belongs by its key in"
            f" {stage.middle}/2 (source.repartition.partitions: {N}); keep other writers off {stage.middle}, and"
            f" {REMEDY}"
        )
        assert key not in stage.emitted()[1]

    play(scene)


@pytest.mark.parametrize("shadow", [False, True])
@pytest.mark.rule(20)
def test_a_misplaced_event_of_the_output_stops_the_fold(play: Any, shadow: bool) -> None:
    """Whoever wrote it: its duplicates would pass, because they lie in another partition."""

    async def scene(stage: Stage) -> None:
        output = stage.deployment.sink
        stage.deployment.config["sink"]["shadow"] = shadow
        headers: Headers = ((MARK, b"duplicate"),) if shadow else ()
        stage.append(output, 1, keys_in(1, 1)[0], b"v", ())
        (key,) = keys_in(0, 1)
        stage.append(output, 1, key, b"v", headers)
        async with stage.start() as worker:
            said = await worker.stopped()
        assert said.startswith(
            f"{output}/1 offset 1 belongs by its key in {output}/0 (source.repartition.partitions: {N}), so it does"
            f" not come from {stage.middle}"
        )
        assert said.endswith(REMEDY)
        assert key.decode() not in said

    play(scene)


@pytest.mark.rule(24)
def test_letters_name_the_event_by_its_place_in_the_input(play: Any, tmp_path: Path) -> None:
    """Dead letters and those of blocked events, from whatever topic of the input. Duplicates stay as they were."""

    async def scene(stage: Stage) -> None:
        for leaf in ("dead_letter_topic", "blocked_topic", "duplicates_topic"):
            stage.side_topic(leaf)
        stage.deployment.config["key"]["on_malformed"] = "dead_letter"
        blocked, twice = keys_in(1, 2)
        there = str(list_file(tmp_path / "block.list", [blocked]))
        stage.deployment.config["blocklist"] = {"file": there, "on_positive": "drop"}
        group = stage.deployment.group.encode()
        events = [
            (None, b"clicks/4/17/"),
            (blocked, b"views/0/9223372036854775807/"),
            (None, b"views/2147483647/0/"),
            (twice, b"clicks/4/18/"),
            (twice, b"clicks/4/19/"),
        ]
        for key, place in events:
            stage.append(stage.middle, 1, key, b"v", (("h", b"1"), (ORIGIN, place + group)))
        async with stage.start() as worker:
            await stage.to_the_end(worker)
            (line,) = worker.lines("malformed")
        assert (line["topic"], line["partition"], line["offset"]) == ("clicks", 4, 17)
        placed = ("topic", "partition", "offset")
        for topic, wanted in (
            ("dead_letter_topic", [(b"clicks", b"4", b"17"), (b"views", b"2147483647", b"0")]),
            ("blocked_topic", [(b"views", b"0", b"9223372036854775807")]),
        ):
            letters = [dict(letter.headers) for letter in stage.broker.read_all(topic)[1]]
            assert [tuple(h[f"streamdedup.{n}"] for n in placed) for h in letters] == wanted
            assert all(h["h"] == b"1" and ORIGIN not in h for h in letters)
            assert all((h["streamdedup.timestamp"] or b"").isdigit() for h in letters)
            assert all(int(h["streamdedup.timestamp"] or b"") > 0 for h in letters)
        assert "streamdedup.reason" in dict(
            stage.broker.read_all("dead_letter_topic")[1][0].headers
        )
        (again,) = stage.broker.read_all("duplicates_topic")[1]
        assert (again.key, tuple(again.headers)) == (twice, (("h", b"1"),))
        assert stage.emitted()[1] == [twice]

    play(scene)


def test_a_rejected_event_is_named_by_its_place_in_the_input(play: Any) -> None:
    """And the limits hold for the headers of the event itself: ours is no longer there."""

    async def scene(stage: Stage) -> None:
        stage.deployment.config["source"]["headers_max"] = 2
        stage.copy(keys_in(0, 1)[0], own=(("a", b""), ("b", b"")))
        stage.copy(keys_in(1, 1)[0], own=(("a", b""), ("b", b""), ("c", b"")))
        async with stage.start() as worker:
            said = await worker.stopped()
            await worker.until(lambda: stage.emitted()[0], "event of two headers")
        assert said.startswith(
            f"{stage.deployment.source}/7 offset 1001 is above source.headers_max"
        )

    play(scene)


def test_nothing_of_the_middle_topic_is_skipped(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever `source.on_damaged` says of the input: what is damaged here are copies of ours."""
    damaged = Damaged(monkeypatch, goes_on=False)

    async def scene(stage: Stage) -> None:
        stage.deployment.config["source"]["on_damaged"] = "skip"
        (key,) = keys_in(0, 1)
        for _ in range(4):
            stage.copy(key)
        damaged.add(2, 2)
        async with stage.start() as worker:
            said = await worker.stopped()
            assert len(worker.lines("doubt")) == UNREADABLE_TRIES + 1
            assert worker.lines("batch_skipped") == []
        assert said == (
            f"{stage.middle}/0 offset 2 cannot be read: {REASON}; {stage.middle} holds this deployment's own copies, of"
            f" which none is skipped: {REMEDY}"
        )
        assert stage.committed()[0] == 2

    play(scene)


class OneBatch:
    """A source that always has the same batch, from its first offset on."""

    epoch = 1

    def __init__(self, batch: EventBatch) -> None:
        self._batch, self.at = batch, 0

    def go_to(self, _partition: int, offset: int) -> None:
        """Stand there."""
        self.at = offset

    def position(self, _partition: int) -> int:
        """Say where it stands."""
        return self.at

    async def read(self, *_given: Any) -> EventBatch:
        """Stand behind the batch."""
        self.at = self._batch.next_offset
        return self._batch


async def test_a_read_that_is_cancelled_loses_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Origins of a large batch come off in a thread. If nobody waits for that any more, the batch is read again."""
    waits = asyncio.Event()

    async def waiting(*given: Any) -> Any:
        if not waits.is_set():
            waits.set()
            await asyncio.Event().wait()
        return await beside(*given)

    monkeypatch.setattr(middle_module, "beside", waiting)
    there = Deployment("memory:1", tmp_path, partitions=1)
    there.config["source"]["repartition"] = {"topic": "by-key", "partitions": 1}
    batch = batch_of([b"a", b"b"])
    marks = [[(ORIGIN, b"clicks/0/%d/%b" % (row, there.group.encode()))] for row in range(2)]
    source = OneBatch(replace(batch, headers=marks))
    meters = SimpleNamespace(of=lambda _: SimpleNamespace(read=len))
    services: Any = SimpleNamespace(source=source, meters=meters)
    reader = InputReader(Recipe(deduplicating(load(there.write_config())), 1), services, 0)
    reader.begin(1, 0)
    reading = asyncio.create_task(reader.read(1, 100))
    await waits.wait()
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()
    assert (source.at, reader.next_offset) == (0, 0)
    read = await reader.read(1, 100)
    assert isinstance(read, EventBatch)
    assert read.places is not None
    assert read.places.offsets.tolist() == [0, 1]
    assert (source.at, reader.next_offset) == (2, 2)


async def test_long_keys_are_placed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long does not hold up the loop: the caller says so by the sizes of the keys."""
    asked: list[bool] = []

    async def noted(takes_long: bool, call: Any, *given: Any) -> Any:
        asked.append(takes_long)
        return call(*given)

    monkeypatch.setattr(middle_module, "beside", noted)
    there = middle_module.Middle(topic="by-key", partitions=1, group="g")
    for keys in ([b"short"], [bytes(1 << 20)] * 8):
        await there.check_placement(batch_of(keys), Column.of(keys))
    assert asked == [False, True]


def batch_of(keys: Sequence[bytes]) -> EventBatch:
    """Events of the middle topic with these keys."""
    every = np.arange(len(keys))
    return EventBatch(
        topic="by-key",
        partition=0,
        offsets=every,
        timestamps=every,
        keys=Column.of(keys),
        values=Column.of(keys),
        headers=[()] * len(keys),
        next_offset=len(keys),
    )
