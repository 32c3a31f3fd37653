"""Reports transactions of others that stay open on the input: a partition stands still at the first of them.

Events above it are not read before it ends, since they may be aborted. Its producer may be gone: then the broker ends
it after the time-out that the producer chose, unless it hangs.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog

from streamdedup.events import Fingerprint
from streamdedup.kafka.base import Cluster, Source
from streamdedup.kafka.partitions import abort_command
from streamdedup.server import Status
from streamdedup.server.status import OpenTransaction
from streamdedup.units import moment

log = structlog.get_logger(__name__)

TURN_S = 1.0
ANSWER_S_MAX = 5.0


class InputWatch:
    """Watches at which offsets open transactions hold our partitions; those of `after_s` seconds are in `status`."""

    def __init__(
        self,
        cluster: Cluster,
        source: Source,
        status: Status,
        after_s: float,
        partitions: Callable[[], Mapping[int, bool]],
    ) -> None:
        """`partitions` returns ours, each with whether it is read now."""
        self._cluster, self._source, self._status = cluster, source, status
        self._after_s, self._partitions = after_s, partitions
        self._since: Mapping[int, tuple[int, float]] = {}  # by partition: offset, and loop's time

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(TURN_S)
            await self.look()

    async def look(self) -> None:
        """Compare where our partitions stand with the last look."""
        now, known = asyncio.get_running_loop().time(), self._status.held
        partitions = self._partitions()
        since: dict[int, tuple[int, float]] = {}
        for partition, is_read in partitions.items():
            if not is_read:  # nothing is fetched, so nothing is known
                since |= {partition: self._since[partition]} if partition in self._since else {}
            elif (offset := self._source.held_at(partition)) is not None:
                since[partition] = self._begun(partition, offset, now)
        for partition, held in known.items():
            if partition in partitions and since.get(partition, (None,))[0] != held.offset:
                log.info(
                    "input_transaction_ended",
                    topic=self._status.topic,
                    partition=partition,
                    offset=held.offset,
                )
        self._since = since
        self._status.held = {
            partition: known[partition]
            if partition in known and known[partition].offset == offset
            else await self._reported(partition, offset, began)
            for partition, (offset, began) in since.items()
            if now - began >= self._after_s
        }

    def _begun(self, partition: int, offset: int, now: float) -> tuple[int, float]:
        known = self._since.get(partition)
        return known if known and known[0] == offset else (offset, now)

    async def _reported(self, partition: int, offset: int, since: float) -> OpenTransaction:
        topic, first = self._status.topic, None
        with suppress(Exception):  # then its producer is not named
            async with asyncio.timeout(ANSWER_S_MAX):
                first = await self._cluster.batch_at(topic, partition, offset)
        held = OpenTransaction(offset, since, _whose(first))
        log.warning(
            "input_transaction_open",
            topic=topic,
            partition=partition,
            offset=offset,
            producer_id=first and first.producer_id,
            epoch=first and first.epoch,
            seconds=round(asyncio.get_running_loop().time() - since, 1),
            reason="nothing above that offset is read before this transaction of the input's producer has ended",
            remedy=f"have its producer end it, or abort it: {abort_command(topic, partition, offset)}",
        )
        return held


def _whose(first: Fingerprint | None) -> str:
    """Return, for people, who wrote the first undecided record batch; an empty text if that is not known."""
    if first is None:
        return ""
    return (
        f" of producer id {first.producer_id}, epoch {first.epoch}, its first event of"
        f" {moment(first.stamped_ms)},"
    )
