"""The middle topic of `source.repartition`, as the second stage reads it: what it holds must be our own copies.

Each event must end with an origin of our group, which is taken off. Each event here and in the output must lie in the
partition of its key. If one does not, the shard stops: duplicates may lie in partitions where no filter finds them.
"""

import asyncio
from dataclasses import dataclass

import numpy as np

from streamdedup.delivery.turns import beside, is_large, is_long
from streamdedup.errors import DeliveryError
from streamdedup.events import Column, EventBatch
from streamdedup.kafka.records.origin_header import found_in, unmarked
from streamdedup.keys.placement import NOWHERE, partitions_of
from streamdedup.settings import Settings
from streamdedup.settings.stages import reads_middle

REMEDY = "begin again with another source.repartition.topic, kafka.group_id and sink.topic"


class StrangerError(DeliveryError):
    """The next event of a middle topic is no copy of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Middle:
    """The middle topic: its name, the number of its partitions, and the group that its events must name."""

    topic: str
    partitions: int
    group: str

    @classmethod
    def read_by(cls, settings: Settings) -> "Middle | None":
        """Return the topic that a worker of these `settings` reads, if it is a middle topic; else None."""
        options = settings.source.repartition
        if options is None or not reads_middle(settings):
            return None
        return cls(
            topic=options.topic, partitions=options.partitions, group=settings.kafka.group_id
        )

    async def stripped(self, batch: EventBatch) -> EventBatch:
        """Return the events before the first that is not ours, without their origins, which become `places`.

        StrangerError if there is none before it.
        """
        ours, stranger = await beside(is_large(batch), unmarked, batch, self.group)
        if stranger is None or len(ours):
            return ours
        found = await asyncio.to_thread(found_in, batch, 0, self.group)
        raise StrangerError(
            f"{self.topic}/{batch.partition} offset {stranger} is no copy of this deployment: it has {found}, not the"
            f" origin of group {self.group!r}",
            remedy=f"keep other writers off {self.topic}, which belongs to this deployment alone, and {REMEDY}",
            finding="middle-stranger",
        )

    async def check_placement(self, batch: EventBatch, keys: Column) -> None:
        """Raise DeliveryError if an event of the middle topic, or of the output, is not in the partition of its key.

        `keys` (n,) are the keys of `batch`. An event without a key may lie anywhere.
        """
        belongs = await beside(is_long(keys), partitions_of, keys, self.partitions)
        misplaced = np.flatnonzero((belongs != batch.partition) & (belongs != NOWHERE))
        if not len(misplaced):
            return
        row = int(misplaced[0])
        what = f"{batch.topic}/{batch.partition} offset {batch.offsets[row]}"
        where = f"{batch.topic}/{belongs[row]} (source.repartition.partitions: {self.partitions})"
        if batch.topic == self.topic:
            topic, partition, offset = batch.place(row)
            raise DeliveryError(
                f"{what}, a copy of {topic}/{partition} offset {offset}, belongs by its key in {where}",
                remedy=f"keep other writers off {self.topic}, and {REMEDY}",
                finding="key-misplaced",
            )
        raise DeliveryError(
            f"{what} belongs by its key in {where}, so it does not come from {self.topic}, and its duplicates would"
            " pass",
            remedy=f"keep other writers off {batch.topic}, and {REMEDY}",
            finding="key-misplaced",
        )
