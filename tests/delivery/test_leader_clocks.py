"""Claims about a worker whose clock is wrong, over a broker in memory: its commits show the broker's, which counts."""

import asyncio
from pathlib import Path

import pytest

from streamdedup.kafka.records.records import Record
from streamdedup.testing import MemoryBroker
from streamdedup.testing.log import Logged
from tests import memory
from tests.local import LocalWorker, Start
from tests.memory import over, page

EPOCH_MS = 1_790_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Stage(memory.Stage):
    """A worker over one partition, whose clock is ahead of the broker's by `ahead_ms`."""

    def __init__(self, directory: Path, start: Start) -> None:
        super().__init__(directory, start)
        self.config["key"] = {"from": "json", "field": "id"}
        self.broker = MemoryBroker(now_ms=self.now_ms)
        self.broker.create_topic(self.source, message_timestamp_after_max_ms=9 * DAY_MS)
        self.broker.create_topic(self.sink)
        self.side_topic("dead_letter_topic")
        self.ahead_ms = 0

    def now_ms(self) -> int:
        """The true time, which is the broker's."""
        return EPOCH_MS + int(asyncio.get_event_loop().time() * 1000)

    async def works(self) -> LocalWorker:
        """A worker that decides."""
        return await self.started(now_ms=lambda: self.now_ms() + self.ahead_ms)

    def send(self, values: list[bytes], later_ms: int = 0) -> None:
        """Append to the input, stamped so much later than now."""
        stamp = self.now_ms() + later_ms
        self.broker.append(self.source, 0, [Record.of(stamp, None, v) for v in values], None)

    @property
    def letters(self) -> list[Logged]:
        """The dead letters."""
        return self.broker.read_all("dead_letter_topic")[0]

    def reasons(self) -> list[bytes | None]:
        """Why each dead letter was rejected, without the names of topics."""
        found = [dict(letter.headers)["streamdedup.reason"] for letter in self.letters]
        return [reason and reason.replace(self.sink.encode(), b"out") for reason in found]


def good(start: int, count: int) -> list[bytes]:
    """Values with keys of their own."""
    return [b'{"id": %d}' % n for n in range(start, start + count)]


@pytest.mark.finding("clock-differs")
@pytest.mark.parametrize("ahead_ms", [-8 * DAY_MS, -2 * HOUR_MS, 2 * HOUR_MS, 8 * DAY_MS])
@pytest.mark.rule(8)
@over(Stage)
async def test_no_event_and_no_letter_is_judged_by_a_wrong_clock(
    stage: Stage, ahead_ms: int
) -> None:
    """All good events pass, and dead letters are taken: before the broker's time is known without a timestamp."""
    stage.ahead_ms = ahead_ms
    worker = await stage.works()
    assert "note: the broker's clock is unverified" in page(worker).text
    stage.send([*good(0, 200), b"no json"])
    await worker.consumed(201)
    assert (len(stage.output), len(stage.letters)) == (200, 1)
    assert len(worker.lines("letters_unstamped")) == (ahead_ms > HOUR_MS)
    await worker.verified()
    (line,) = await worker.logged("clock_differs")
    assert round(line["seconds"]) == ahead_ms / 1000
    seconds, side = f"{abs(ahead_ms) // 1000:,}", "ahead of" if ahead_ms > 0 else "behind"
    assert f"warning: this machine's clock is {seconds} s {side} the clock of" in page(worker).text


@over(Stage)
async def test_once_known_the_brokers_time_rejects_and_stamps(stage: Stage) -> None:
    """Too far ahead and too old by the broker's clock, to the second; a letter has the broker's time."""
    stage.ahead_ms = -30 * DAY_MS
    worker = await stage.works()
    stage.send(good(0, 5))
    await worker.verified()
    for later_ms in (HOUR_MS - 5000, HOUR_MS + 5000, 60_000 - 7 * DAY_MS + 5000, -7 * DAY_MS):
        stage.send(good(later_ms, 1), later_ms)
    await worker.consumed(9)
    assert stage.reasons() == [
        b"stamped further ahead than out allows",
        b"older than out takes or keeps",
    ]
    for letter in stage.letters:
        assert abs(letter.timestamp - stage.now_ms()) < 5000
    assert not worker.lines("doubt")


@over(Stage)
async def test_the_refusal_of_the_first_events_shows_the_brokers_time(stage: Stage) -> None:
    """It costs one doubt, however many are stamped too far ahead: the others are rejected before they are sent."""
    worker = await stage.works()
    stage.send(good(0, 500), 2 * HOUR_MS)
    await worker.consumed(500)
    assert stage.reasons() == [b"stamped further ahead than out allows"] * 500
    assert len(worker.lines("doubt")) == 1


@over(Stage)
async def test_a_step_is_noticed_at_once(stage: Stage) -> None:
    """What was known is forgotten, until the next commit; nothing is diverted."""
    worker = await stage.works()
    stage.send(good(0, 5))
    await worker.verified()
    clocks = worker.worker.status.clocks
    assert clocks is not None
    stage.ahead_ms = 2 * HOUR_MS
    assert clocks.present(0) is None
    (line,) = await worker.logged("clock_stepped")
    assert line["seconds"] == 7200
    assert not clocks.is_verified([0])
    stage.send(good(5, 5))
    await worker.verified()
    assert [round(seconds) for seconds in clocks.differences_s([0]).values()] == [7200]
    assert len(stage.output) == 10
