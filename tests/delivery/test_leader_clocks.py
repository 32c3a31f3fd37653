"""Claims about a worker whose clock is wrong, over a broker in memory: its commits show the broker's, which counts."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from streamdedup.testing import MemoryBroker, connected_to
from streamdedup.testing.cluster import MemoryCluster
from tests.deployment import Deployment
from tests.local import LocalWorker, Start, on_virtual_clock

EPOCH_MS = 1_790_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Stage:
    """A broker in memory with one partition, and a worker on it whose clock is ahead by `ahead_ms`."""

    def __init__(self, directory: Path, start: Start) -> None:
        self.deployment = Deployment("memory:1", directory, partitions=1)
        self.deployment.config["key"] = {"from": "json", "field": "id"}
        self.deployment.config["sink"]["dead_letter_topic"] = "dead"
        self.broker = MemoryBroker(now_ms=self.now_ms)
        self.broker.create_topic(self.deployment.source, message_timestamp_after_max_ms=9 * DAY_MS)
        self.broker.create_topic(self.deployment.sink)
        self.broker.create_topic("dead")
        self.ahead_ms = 0
        self._start = start

    def now_ms(self) -> int:
        """The true time, which is the broker's."""
        return EPOCH_MS + int(asyncio.get_event_loop().time() * 1000)

    async def start(self) -> LocalWorker:
        """A worker that decides."""
        worker = self._start(
            self.deployment,
            connect=connected_to(self.broker),
            now_ms=lambda: self.now_ms() + self.ahead_ms,
        )
        await worker.live()
        return worker

    def feed(self, values: list[bytes], later_ms: int = 0) -> None:
        """Append to the input, stamped so much later than now."""
        stamp = self.now_ms() + later_ms
        self.broker.append(self.deployment.source, 0, [(stamp, None, v, ()) for v in values], None)

    def count(self, topic: str) -> int:
        """The committed events of a topic."""
        return len(self.broker.read_all(topic)[0])

    def reasons(self) -> list[bytes | None]:
        """Why each dead letter was rejected, without the names of topics."""
        letters = self.broker.read_all("dead")[0]
        found = [dict(letter.headers)["streamdedup.reason"] for letter in letters]
        return [
            reason and reason.replace(self.deployment.sink.encode(), b"out") for reason in found
        ]


def play(directory: Path, scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    """Run `scene` on a virtual clock."""
    on_virtual_clock(lambda start: scene(Stage(directory, start)))


def good(start: int, count: int) -> list[bytes]:
    """Values with keys of their own."""
    return [b'{"id": %d}' % n for n in range(start, start + count)]


@pytest.mark.parametrize("ahead_ms", [-8 * DAY_MS, -2 * HOUR_MS, 2 * HOUR_MS, 8 * DAY_MS])
@pytest.mark.rule(8)
def test_no_event_and_no_letter_is_judged_by_a_wrong_clock(tmp_path: Path, ahead_ms: int) -> None:
    """All good events pass, and dead letters are taken: before the broker's time is known without a timestamp."""

    async def scene(stage: Stage) -> None:
        stage.ahead_ms = ahead_ms
        worker = await stage.start()
        stage.feed([*good(0, 200), b"no json"])
        await worker.consumed(201)
        assert (stage.count(stage.deployment.sink), stage.count("dead")) == (200, 1)
        assert len(worker.lines("letters_unstamped")) == (ahead_ms > HOUR_MS)
        await worker.verified()
        assert len(await worker.logged("clock_differs")) == 1

    play(tmp_path, scene)


def test_once_known_the_brokers_time_rejects_and_stamps(tmp_path: Path) -> None:
    """Too far ahead and too old by the broker's clock, to the second; a letter has the broker's time."""

    async def scene(stage: Stage) -> None:
        stage.ahead_ms = -30 * DAY_MS
        worker = await stage.start()
        stage.feed(good(0, 5))
        await worker.verified()
        for later_ms in (HOUR_MS - 5000, HOUR_MS + 5000, 60_000 - 7 * DAY_MS + 5000, -7 * DAY_MS):
            stage.feed(good(later_ms, 1), later_ms)
        await worker.consumed(9)
        assert stage.reasons() == [
            b"stamped further ahead than out allows",
            b"older than out takes or keeps",
        ]
        for letter in stage.broker.read_all("dead")[0]:
            assert abs(letter.timestamp - stage.now_ms()) < 5000
        assert not worker.lines("doubt")

    play(tmp_path, scene)


def test_the_refusal_of_the_first_events_shows_the_brokers_time(tmp_path: Path) -> None:
    """It costs one doubt, however many are stamped too far ahead: the others are rejected before they are sent."""

    async def scene(stage: Stage) -> None:
        worker = await stage.start()
        stage.feed(good(0, 500), 2 * HOUR_MS)
        await worker.consumed(500)
        assert stage.reasons() == [b"stamped further ahead than out allows"] * 500
        assert len(worker.lines("doubt")) == 1

    play(tmp_path, scene)


def test_without_markers_the_broker_refuses_and_halving_finds_it(tmp_path: Path) -> None:
    """At least once: nothing is rejected for its time beforehand, whatever our clock says."""

    async def scene(stage: Stage) -> None:
        stage.deployment.config["delivery"]["guarantee"] = "at_least_once"
        stage.ahead_ms = -2 * HOUR_MS
        worker = await stage.start()
        stage.feed(good(0, 20))
        stage.feed(good(20, 1), 2 * HOUR_MS)
        stage.feed(good(21, 20))
        await worker.consumed(41)
        assert stage.count(stage.deployment.sink) == 40
        assert stage.reasons() == [b"refused by out: InvalidTimestamp"]

    play(tmp_path, scene)


def test_a_step_is_noticed_at_once(tmp_path: Path) -> None:
    """What was known is forgotten, until the next commit; nothing is diverted."""

    async def scene(stage: Stage) -> None:
        worker = await stage.start()
        stage.feed(good(0, 5))
        await worker.verified()
        clocks = worker.worker.status.clocks
        assert clocks is not None
        stage.ahead_ms = 2 * HOUR_MS
        assert clocks.present(0) is None
        (line,) = await worker.logged("clock_stepped")
        assert line["seconds"] == 7200
        assert not clocks.is_verified([0])
        stage.feed(good(5, 5))
        await worker.verified()
        assert [round(seconds) for seconds in clocks.differences_s([0]).values()] == [7200]
        assert stage.count(stage.deployment.sink) == 10

    play(tmp_path, scene)


def test_a_broker_that_shows_no_marker_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the question for it raises or however long it takes, events go on; the clock stays unverified."""

    async def never(*_: object) -> None:
        await asyncio.sleep(3600)

    async def fails(*_: object) -> None:
        raise OSError("no route to host")

    async def scene(stage: Stage) -> None:
        worker = await stage.start()
        for number, answer in enumerate((never, fails)):
            monkeypatch.setattr(MemoryCluster, "stamp", answer)
            stage.feed(good(number * 10, 10))
            await worker.consumed(number * 10 + 10)
            await asyncio.sleep(10)
        clocks = worker.worker.status.clocks
        assert clocks is not None
        assert not clocks.is_verified([0])

    play(tmp_path, scene)
