"""Watches whether the output keeps its events as long as its filter remembers their keys.

Without a snapshot that fits, the filter is what the output holds: what was deleted is forgotten.
"""

import asyncio

import structlog

from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.client.patience import is_away
from streamdedup.kafka.retention import Shortfall, shortfall
from streamdedup.kafka.topics import Topic
from streamdedup.metrics import findings
from streamdedup.server import Status
from streamdedup.settings import Settings

log = structlog.get_logger(__name__)

EVERY_S = 60.0


class RetentionWatch:
    """Compares the output's retention with what the filter remembers, and notes in `status` if it is shorter."""

    def __init__(self, settings: Settings, cluster: Cluster, status: Status) -> None:
        self._output, self._remembered_ms = settings.sink.topic, settings.filter.remembered_ms
        self._cluster, self._status = cluster, status
        self._known: Shortfall | None = None

    async def run(self) -> None:
        """Watch until cancelled; return at once if there is no filter."""
        while self._remembered_ms != 0:
            await asyncio.sleep(EVERY_S)
            await self._look()

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                topology = await self._cluster.describe([self._output])
        except Exception as error:
            if is_away(error):  # the next look asks again
                return
            raise
        if output := topology.topics.get(self._output):
            self.note(output)

    def note(self, output: Topic) -> None:
        """Compare the `output` as the broker describes it now; log what falls short, once."""
        found = shortfall(output, self._remembered_ms)
        if found and found != self._known:
            log.warning(
                "output_forgets_first", topic=output.name, reason=found.reason, remedy=found.remedy
            )
        self._known = found
        self._status.output_forgets = (
            findings.OUTPUT_FORGETS.at(None, found.reason, found.remedy) if found else None
        )
