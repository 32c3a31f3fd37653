"""Keeps `BrokerClock` up to date for the output's leaders: it looks at the markers of our own transactions.

The broker answers a commit before it writes the marker. So `run` waits for the marker, and no transaction does; if that
fails, a clock only stays unknown. Only a shard that begins again waits, for the marker of its transaction that failed.
So if the broker refused an event for its timestamp, its clock is known from then on.
"""

import asyncio
from collections.abc import Collection, Iterator
from typing import NamedTuple

import structlog

from streamdedup.kafka.base import Cluster
from streamdedup.kafka.broker_clock import DIFFERENCE_S_MAX, BrokerClock, Span, certain_s
from streamdedup.logs import RateLimit
from streamdedup.metrics import findings
from streamdedup.metrics.findings import Finding

log = structlog.get_logger(__name__)

POLL_S = 0.05
LOOKS_MAX = 100
LOOK_S_MAX = 5.0  # for a marker that does not come; the next commit is another chance
UNVERIFIED = (
    "the broker's clock is unverified: no event is rejected by its time, and the broker refuses by itself; nobody need"
    " act: the next transaction with an event for the output shows its time (with at_least_once it may stay so)"
)
REMEDY = "set the clock of this machine or of that broker right (NTP); no event is decided by this machine's clock"


class _Written(NamedTuple):
    """Offsets of a log, from `start` to `end` (exclusive), that have a stamp later than `asked_s`, or will have one."""

    topic: str
    partition: int
    start: int
    end: int
    asked_s: float


class LeaderClocks:
    """The clocks of the leaders of the output's partitions. `clock` has the event loop's monotonic clock."""

    def __init__(self, cluster: Cluster, output: str, clock: BrokerClock) -> None:
        self._cluster, self._output, self._clock = cluster, output, clock
        self._waiting: asyncio.Queue[tuple[int, _Written]] = asyncio.Queue()
        self._asked: set[int] = set()  # the leaders in the queue, each at most once
        self._differs, self._stepped = RateLimit(), RateLimit()

    def present(self, partition: int) -> Span | None:
        """Return the time on the broker that leads this partition of the output; None if it is not known."""
        self._clock.look()
        leader = self._cluster.leader(self._output, partition)
        return None if leader is None else self._clock.present(leader)

    def committed(self, partition: int, marker: int, asked_s: float) -> None:
        """Note a commit that was asked for after `asked_s`; its marker gets the offset `marker` of the output."""
        self._note(_Written(self._output, partition, marker, marker + 1, asked_s))

    def appended(self, topic: str, partition: int, offset: int, after_s: float) -> None:
        """Note an event of a topic with LogAppendTime, which the broker stamped at some time after `after_s`."""
        self._note(_Written(topic, partition, offset, offset + 1, after_s))

    async def ended(self, partition: int, start: int, end: int, begun_s: float) -> None:
        """Look at the marker of a transaction that began at `begun_s` and was ended by a fence.

        All that it wrote is in the output from `start` to `end` (exclusive), and decided, so one look is enough.
        """
        leader = self._cluster.leader(self._output, partition)
        if leader is not None and self._clock.is_due(leader) and start < end:
            await self._try(_Written(self._output, partition, start, end, begun_s), looks_max=1)

    def _note(self, written: _Written) -> None:
        leader = self._cluster.leader(written.topic, written.partition)
        if leader is not None and leader not in self._asked and self._clock.is_due(leader):
            self._asked.add(leader)
            self._waiting.put_nowait((leader, written))

    async def run(self) -> None:
        """Look at the stamps of what was noted, until cancelled."""
        while True:
            leader, written = await self._waiting.get()
            try:
                await self._try(written)
            finally:
                self._asked.discard(leader)

    async def _try(self, written: _Written, looks_max: int = LOOKS_MAX) -> None:
        try:
            async with asyncio.timeout(LOOK_S_MAX):
                await self._see(written, looks_max)
        except Exception as error:  # whatever it is, the next commit is another chance
            log.debug("stamp_not_seen", error=type(error).__name__)

    async def _see(self, written: _Written, looks_max: int) -> None:
        for look in range(looks_max):
            if look:
                await asyncio.sleep(POLL_S)
            found = await self._cluster.stamp(
                written.topic, written.partition, written.start, written.end
            )
            if found is not None:
                seen_s = asyncio.get_running_loop().time()
                self._clock.saw(found.leader, found.stamped_ms, written.asked_s, seen_s)
                return

    def check(self, partitions: Collection[int]) -> None:
        """Notice a step of our wall clock; log it, and a difference to a leader of `partitions`, at most once a minute.

        Call it several times a second.
        """
        self._clock.look()
        now_s = asyncio.get_running_loop().time()
        for step_ms in self._clock.steps_ms():
            if self._stepped.due(now_s):
                log.warning("clock_stepped", seconds=round(step_ms / 1000, 1), remedy=REMEDY)
        differing = dict(self._differing(partitions))
        if differing and self._differs.due(now_s):
            for leader, seconds in differing.items():
                log.warning(
                    "clock_differs", broker=leader, seconds=round(seconds, 1), remedy=REMEDY
                )

    def differences_s(self, partitions: Collection[int]) -> dict[int, float]:
        """Return, by leader of `partitions`, by how many seconds our clock is ahead of it, as far as it is known."""
        found = {leader: self._clock.difference(leader) for leader in self._leaders(partitions)}
        return {
            leader: (span.earliest + span.latest) / 2000
            for leader, span in found.items()
            if span is not None
        }

    def is_verified(self, partitions: Collection[int]) -> bool:
        """Whether the time of every leader of `partitions` is known."""
        leaders = self._leaders(partitions)
        return bool(leaders) and all(map(self._clock.present, leaders))

    def findings(self, partitions: Collection[int]) -> Iterator[Finding]:
        """Yield one for each leader of `partitions` whose clock certainly differs from ours. Any thread may call."""
        for leader, seconds in self._differing(partitions):
            yield findings.CLOCK_DIFFERS.at(
                None,
                f"{differs(seconds)} the clock of broker {leader}",
                "set the wrong one right (NTP)",
            )

    def _differing(self, partitions: Collection[int]) -> Iterator[tuple[int, float]]:
        for leader in self._leaders(partitions):
            seconds = certain_s(self._clock.difference(leader))
            if abs(seconds) > DIFFERENCE_S_MAX:
                yield leader, seconds

    def _leaders(self, partitions: Collection[int]) -> list[int]:
        found = {self._cluster.leader(self._output, partition) for partition in partitions}
        return sorted(leader for leader in found if leader is not None)


def differs(seconds: float) -> str:
    """Return, as text, how our clock stands to another, which the caller names next."""
    side = "ahead of" if seconds > 0 else "behind"
    return f"this machine's clock is {abs(seconds):,.0f} s {side}"
