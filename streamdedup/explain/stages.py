"""Where an event of the input is judged, and whether it was: with one stage, and with `source.repartition`."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np

from streamdedup.delivery.resume import differs
from streamdedup.events import EventBatch
from streamdedup.explain import texts
from streamdedup.explain.known import Question, State
from streamdedup.kafka.base import ANSWER_S_MAX
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.origin_header import unmarked
from streamdedup.keys.extract import Keys
from streamdedup.keys.placement import NOWHERE, partitions_by_records, partitions_of
from streamdedup.repartition.offsets import committed_on
from streamdedup.settings import Settings
from streamdedup.settings.stages import copying_group

NOT_COMMITTED = "nothing is committed for its partition, so no worker has read it"


@dataclass(frozen=True)
class Stage:
    """The way from an input to the shard that judges. `settings` are those as written."""

    settings: Settings
    partitions: int

    def partition_of(self, at: InputPartition, keys: Keys, batch: EventBatch) -> int:
        """Return the output partition of the event that `batch` has alone."""
        if self.settings.source.repartition is None:
            return at.number
        placed = int(partitions_of(keys.keys, self.partitions)[0])
        if placed != NOWHERE:
            return placed
        return int(partitions_by_records(batch.keys, at.number, self.partitions)[0])

    async def unread(
        self, question: Question, state: State, at: InputPartition, offset: int
    ) -> str | None:
        """Return why the event has not been judged yet, as a sentence; None if it has."""
        if self.settings.source.repartition is not None:
            return await self._uncopied(question, state, at, offset)
        found = state.found
        note = found.committed.note if found.committed else None
        other = note is not None and (
            differs(note.cluster_id, found.cluster_id) or differs(note.input_id, found.input_id)
        )
        if found.committed is None or other:
            return NOT_COMMITTED
        return _below(found.committed.offset, offset)

    async def _uncopied(
        self, question: Question, state: State, at: InputPartition, offset: int
    ) -> str | None:
        async with asyncio.timeout(ANSWER_S_MAX):
            group = copying_group(self.settings)
            own = (await committed_on(question.cluster, group, [at], stable=False)).get(at)
        if own is None:
            return NOT_COMMITTED
        if unread := _below(own.offset, offset):
            return f"{unread}; the first stage has not copied it to the middle topic"
        return await self._waits(question, state, at, offset)

    async def _waits(
        self, question: Question, state: State, at: InputPartition, offset: int
    ) -> str | None:
        """Return where in the middle topic the copy waits, if it does."""
        middle = InputPartition(question.settings.source.topic, state.found.partition)
        start, end = await question.bounds(middle)
        judged = state.found.committed.offset if state.found.committed else start
        reading = question.reader.batches(
            middle.topic, middle.number, min(max(start, judged), end), end
        )
        async with aclosing(reading) as batches:
            async for batch in batches:
                ours, _ = unmarked(batch, self.settings.kafka.group_id)
                if ours.places is None:
                    continue
                rows = (ours.places.offsets == offset) & (ours.places.partitions == at.number)
                for row in np.flatnonzero(rows).tolist():
                    if ours.places.topics[row] == at.topic.encode():
                        copy = texts.place(middle.topic, middle.number, int(ours.offsets[row]))
                        return f"its copy waits at {copy}, which has not been judged yet"
        return None


def _below(committed: int, offset: int) -> str | None:
    if offset < committed:
        return None
    return f"it has not been read: the committed offset is {committed}, so {offset - committed:,} offsets come first"
