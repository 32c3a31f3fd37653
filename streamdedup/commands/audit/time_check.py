"""Checks the dead letters of events that were rejected for their time, by the broker's clock and the output's limits.

The letters say what the worker believed, and its clock may have been wrong. But the marker that ends the transaction of
a letter was stamped by the broker, soon after the decision. What is certain by these stamps and by the topic's limits
of now is counted; everything else is believed. One stamp answers for all letters around it that it is certain of, so
few are looked at.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from streamdedup.events import EventBatch, Integers
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.broker_clock import DIFFERENCE_S_MAX
from streamdedup.kafka.limits import Limits, ahead_reason, behind_reason
from streamdedup.kafka.sink import transaction_s_max
from streamdedup.kafka.topics import Topic
from streamdedup.settings import Settings

# Two brokers' clocks may differ, and nobody could know: that of the letter's partition, and that of the output's.
TOLERANCE_MS = int(DIFFERENCE_S_MAX * 1000)


class Claim(NamedTuple):
    """A letter's claim that the event at `offset` of the input, stamped `time_ms`, lies too far `ahead`, or behind.

    The letter stands at the offset `at` of its topic, stamped `letter_ms`.
    """

    at: int
    offset: int
    time_ms: int
    ahead: bool
    letter_ms: int


class TimeCheck:
    """Checks the claims of one partition. `wrong` are those that the broker's clock contradicts."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        output: Topic,
        letters: Topic,
        *,
        partition: int,
        end: int,
    ) -> None:
        self._cluster, self._letters, self._partition, self._end = (
            cluster,
            letters,
            partition,
            end,
        )
        self._limits = Limits.of(output, settings.sink.compression)
        self._reasons = {
            ahead_reason(output.name).encode(): True,
            behind_reason(output.name).encode(): False,
        }
        in_flight = settings.delivery.max_in_flight
        # A decision may wait for the commits of all transactions before its own.
        self._decided_ms_max = int(1000 * (in_flight + 1) * transaction_s_max(settings.kafka))
        # Without transactions there are no markers, and without the limits nothing to compare with.
        stamped = settings.delivery.exactly_once or not letters.stamped_by_producer
        self._can_check = stamped and bool(output.settings)
        self.unknown = 0
        """How many claims cannot be checked."""
        self.wrong: list[Claim] = []
        self.worker_ahead_s = 0.0
        """By how much the worker's clock was ahead of the broker's, at the wrong claim with the greatest difference."""

    def claim(self, batch: EventBatch, row: int, offset: int) -> Claim | None:
        """Return what the letter in `row`, about the event at `offset`, claims about its time; None if nothing."""
        headers = dict(batch.headers[row])
        ahead = self._reasons.get(headers.get("streamdedup.reason") or b"")
        time_ms = headers.get("streamdedup.timestamp") or b""
        if ahead is None or not time_ms.removeprefix(b"-").isdigit():
            return None
        at, letter_ms = int(batch.offsets[row]), int(batch.timestamps[row])
        return Claim(at, offset, int(time_ms), ahead, letter_ms)

    @property
    def wrong_offsets(self) -> Integers:
        """The input offsets of the events that were rejected wrongly."""
        return np.array([claim.offset for claim in self.wrong], dtype=np.int64)

    async def check(self, claims: Sequence[Claim]) -> None:
        """Check claims, which are in the order of their letters."""
        if not self._can_check:
            self.unknown += len(claims)
        elif claims:
            await self._check(claims, await self._stamp(claims[0]), await self._stamp(claims[-1]))

    async def _check(
        self, claims: Sequence[Claim], first_ms: int | None, last_ms: int | None
    ) -> None:
        """Check `claims`, given the stamps after the first and after the last of them."""
        if first_ms is None or last_ms is None:
            self.unknown += len(claims)
            return
        earliest_ms = min(first_ms, last_ms) - self._decided_ms_max - TOLERANCE_MS
        latest_ms = max(first_ms, last_ms) + TOLERANCE_MS
        wrong = [claim for claim in claims if self._is_wrong(claim, earliest_ms, latest_ms)]
        right = [claim for claim in claims if self._is_right(claim, earliest_ms, latest_ms)]
        if len(wrong) + len(right) < len(claims) and first_ms != last_ms and len(claims) > 1:
            half = len(claims) // 2
            middle = await self._stamp(claims[half - 1]), await self._stamp(claims[half])
            await self._check(claims[:half], first_ms, middle[0])
            await self._check(claims[half:], middle[1], last_ms)
            return
        self.wrong += wrong
        for claim in wrong:
            self._note_difference(claim, first_ms)

    def _is_wrong(self, claim: Claim, earliest_ms: int, latest_ms: int) -> bool:
        """Whether the output would have taken and kept the event at any time of that span."""
        if claim.ahead:
            return claim.time_ms <= self._limits.latest_ms(earliest_ms)
        return claim.time_ms >= self._limits.earliest_ms(latest_ms)

    def _is_right(self, claim: Claim, earliest_ms: int, latest_ms: int) -> bool:
        """Whether it would have refused the event at any time of that span."""
        if claim.ahead:
            return claim.time_ms > self._limits.latest_ms(latest_ms)
        return claim.time_ms < self._limits.earliest_ms(earliest_ms)

    async def _stamp(self, claim: Claim) -> int | None:
        """Return the broker's stamp of the first marker after a letter, or of the letter with LogAppendTime."""
        found = await self._cluster.stamp(self._letters.name, self._partition, claim.at, self._end)
        return None if found is None else found.stamped_ms

    def _note_difference(self, claim: Claim, stamped_ms: int) -> None:
        """Note how wrong the worker's clock was, if the letter has its time: the broker's was not known yet."""
        ahead_s = (claim.letter_ms - stamped_ms) / 1000
        if claim.letter_ms >= 0 and abs(ahead_s) > abs(self.worker_ahead_s):
            self.worker_ahead_s = ahead_s
