"""`streamdedup doctor`: all that can be wrong before the first event, and with a deployment that runs.

It joins no group, fences nobody, and changes nothing but one file of its own beside the snapshots, which it removes.
The checks are in `streamdedup.doctor`; the sample of events is that of `try`.
"""

import asyncio

from streamdedup.commands.trial import Trial, tried
from streamdedup.doctor.examine import examine
from streamdedup.doctor.facts import ANSWER_S_MAX
from streamdedup.doctor.lines import Report
from streamdedup.kafka.base import Connect
from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.kernel import compiled
from streamdedup.settings import Settings


async def doctor(settings: Settings, events: int, connect: Connect = kafka_cluster) -> Report:
    """Run all checks, and return what they found. No error is raised for what they find.

    `events` of the newest ones are judged, evenly from all partitions.
    """

    async def take_sample() -> Trial:
        before = -1
        while True:
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    return await tried(settings, events, connect)
            except TimeoutError:
                # Loops that were never compiled take their time, once, and are no fault of the broker.
                if (now := compiled()) in (0, before):
                    raise
                before = now

    return await examine(settings, connect, take_sample)
