"""The audit of a worker with `source.repartition`: all inputs are compared with the whole output.

A key may lie in any partition of any input, and belongs in one of the output. So all rows go through one sorter,
whichever partition they are from, and each key is compared once, over all partitions. What the first stage has copied
and the second has not read yet is under way: the origins in the middle topic name those events of the input.

The order of the questions matters while workers run. First the offsets of the first stage: all copies of the events
below them are in the middle. Then, for each partition of the middle, its end, and after that the offset of the second
stage: what is below that offset has been judged. Last the ends of the written topics, which hold what came of it.

Topics that the configuration names no more are inputs, too, up to the offsets that the first stage has left there.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from streamdedup.commands.audit.compare import Comparison, letter_topics
from streamdedup.commands.audit.extents import (
    WHOSE,
    Extent,
    decided_end,
    fixed,
    nothing_committed,
    patience_s,
)
from streamdedup.commands.audit.inputs_left import InputsLeft, inputs_left
from streamdedup.commands.audit.match import EXAMPLES_MAX
from streamdedup.commands.audit.read import InputReader, OutputReader, Reading
from streamdedup.commands.audit.report import BOUNDS, PartitionCounts, Report, Staged, judged
from streamdedup.commands.audit.rows import Sorter, unpacked
from streamdedup.delivery.fence import committed_offset
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.resume import differs
from streamdedup.delivery.schemas import registry_answering, registry_of
from streamdedup.delivery.window_time import clock_of
from streamdedup.errors import DeliveryError
from streamdedup.events import EventBatch
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.log import TrimmedError
from streamdedup.kafka.offsets import Committed
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.origin_header import unmarked
from streamdedup.kafka.topics import Topology, refuse_missing, sink_topics
from streamdedup.keys.hashing import Hash
from streamdedup.repartition.inputs import topics_of
from streamdedup.repartition.middle import options_of
from streamdedup.repartition.offsets import decided, found_in, topology_of
from streamdedup.repartition.offsets import partitions_of as inputs_of
from streamdedup.settings import Settings
from streamdedup.settings.stages import copying, deduplicating, of_input

_OF_OUTPUT = ("doubled", "foreign", "misplaced")  # findings whose places are there
_TRIES = 5  # to read a partition of the middle that a worker purges meanwhile


class StagedAudit:
    """One audit. `settings` are those as written."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        size_bytes: int,
        on_progress: Callable[[str], None],
    ) -> None:
        self._settings, self._cluster = settings, cluster
        self._first, self._second = copying(settings), deduplicating(settings)
        self._middle, self._places = options_of(settings).topic, options_of(settings).partitions
        self._size_bytes, self._on_progress = size_bytes, on_progress
        self._inputs: list[InputReader] = []  # each by its number in a place
        self._left = InputsLeft((), (), Topology(None, {}))
        self._read = 0
        self._strangers: list[str] = []

    async def run(self) -> Report:
        """Return the report. ConfigError if a topic is missing, or if nothing is committed on the input."""
        cluster, settings = self._cluster, self._settings
        async with asyncio.timeout(ANSWER_S_MAX):
            named = await topics_of(settings, cluster)
            input_logs = await topology_of(self._first, cluster, named)
            left = self._left = await inputs_left(self._first, cluster, named)
            written = sink_topics(settings.sink)
            self._topology = await cluster.describe([self._middle, *written])
            refuse_missing(self._topology, self._middle, written)
        recipe, hash_ = Recipe(settings, self._places), Hash.draw()
        await registry_answering(recipe)
        topics = (*named, *left.read)
        recipes = {name: Recipe(of_input(settings, name), self._places) for name in topics}
        for its in recipes.values():
            registry_of(its, reads_only=True)
        self._input_logs = left.beside(input_logs)
        inputs = await self._found(inputs_of(self._input_logs, topics))
        clock = clock_of(Recipe(self._second, self._places))
        with Sorter(timed=clock is not None, size_bytes=self._size_bytes) as sorter:
            reading = Reading(cluster, hash_, sorter, clock, None, self._count_read)
            self._inputs = [
                InputReader(reading, recipes[at.topic], at, extent, number)
                for number, (at, extent) in enumerate(inputs.items())
            ]
            own = [await self._waiting(reading, place) for place in range(self._places)]
            extents = [await self._output(place, its) for place, its in enumerate(own)]
            outputs = [OutputReader(reading, recipe, each, each.partition) for each in extents]
            comparison = Comparison(settings, reading, self._topology, self._inputs, outputs)
            await comparison.read(await self._letters())
            matches = await comparison.matched(self._end_now)
            counts = await comparison.counted(
                matches,
                self._by_name(inputs),
                unreadable=left.unreadable,
                strangers=self._strangers,
            )
        return self._report(recipe, counts, outputs)

    def _by_name(self, inputs: Mapping[InputPartition, Extent]) -> dict[str, Extent]:
        """Return the partitions of the inputs by their names, which have the topic if there are several.

        Of an input that was left, only partitions with an offset are among them.
        """
        are_several = len({at.topic for at in inputs}) > 1
        return {
            str(at) if are_several else str(at.number): extent
            for at, extent in inputs.items()
            if extent.found.committed or at.topic not in self._left.read
        }

    async def _found(self, partitions: Sequence[InputPartition]) -> dict[InputPartition, Extent]:
        """Return how far to read these partitions of the inputs. ConfigError if nothing is committed there."""
        committed = await decided(self._first, self._cluster, partitions)
        if not any(at.topic not in self._left.read for at in committed):
            raise nothing_committed(self._first)
        return {at: await self._extent(at, committed.get(at)) for at in partitions}

    async def _extent(self, at: InputPartition, own: Committed | None) -> Extent:
        async with asyncio.timeout(ANSWER_S_MAX):
            found = await found_in(self._first, self._cluster, self._input_logs, at, own)
        return Extent(found, is_copied=True, is_read_on=at.topic not in self._left.read)

    async def _end_now(self, reader: InputReader) -> int:
        """Return an offset below which stands every event of a partition that a worker can have copied by now.

        Of an input that was left, that is the offset: only a worker of the former configuration moves it, if any.
        """
        at = reader.at
        if at.topic not in self._left.read:
            return await self._cluster.stable_offset(*at)
        committed = await decided(self._first, self._cluster, [at])
        return (await self._extent(at, committed.get(at))).until

    async def _waiting(self, reading: Reading, partition: int) -> Committed | None:
        """Mark what waits in `partition` of the middle; return the second stage's offset there.

        A worker may purge what it has judged meanwhile. Then its offset has moved on, and is asked for again.
        """
        cluster, middle = self._cluster, self._middle
        for attempt in range(_TRIES):
            end = await decided_end(self._settings, cluster, middle, partition)
            within_s = patience_s(self._settings)
            own = await committed_offset(self._second, cluster, partition, within_s, whose=WHOSE)
            async with asyncio.timeout(ANSWER_S_MAX):
                first = await cluster.first_offset(middle, partition)
            note = own.note if own else None
            is_other = note is not None and differs(note.input_id, self._topology[middle].topic_id)
            start = first if own is None or is_other else own.offset
            if start < first and attempt + 1 < _TRIES:
                continue
            events = reading.batches(middle, partition, max(start, first), end)
            try:
                async with aclosing(events) as batches:
                    async for batch in batches:
                        self._mark(batch)
            except TrimmedError:
                continue
            return own
        raise DeliveryError(
            f"{middle}/{partition} was trimmed again and again during the audit; run the audit again"
        )

    def _mark(self, batch: EventBatch) -> None:
        """Note which events of the input the copies in `batch` are of."""
        left, firsts = batch, self._firsts
        while len(left):
            ours, stranger = unmarked(left, self._settings.kafka.group_id)
            if (places := ours.places) is not None and len(ours):
                first, count = np.array([firsts.get(topic, (0, 0)) for topic in places.topics]).T
                number = np.where(places.partitions < count, first + places.partitions, -1)
                for of in np.unique(number[number >= 0]).tolist():
                    self._inputs[of].under_way.add(places.offsets[number == of])
            if stranger is None:
                return
            if len(self._strangers) < EXAMPLES_MAX:
                self._strangers.append(f"{batch.topic}/{batch.partition} offset {stranger}")
            left = left.take(np.arange(len(ours) + 1, len(left)))

    @cached_property
    def _firsts(self) -> dict[bytes | None, tuple[int, int]]:
        """For each input, the number of its first partition, and how many it has."""
        firsts = dict[bytes | None, tuple[int, int]]()
        for number, reader in enumerate(self._inputs):
            topic = reader.at.topic.encode()
            first, count = firsts.get(topic, (number, 0))
            firsts[topic] = first, count + 1
        return firsts

    async def _output(self, partition: int, own: Committed | None) -> Extent:
        """Return how far to read `partition` of the output, and of the duplicates."""
        sink = self._settings.sink
        topics = filter(None, (sink.topic, sink.duplicates_topic))
        return await fixed(
            self._second, self._cluster, self._topology, partition, own, topics=topics
        )

    async def _letters(self) -> dict[tuple[str, int], int]:
        """Return how far to read each partition of the topics with letters.

        Both stages write letters: the first in the partition of the input, the second in that of the middle.
        """
        return {
            (topic, partition): await decided_end(self._settings, self._cluster, topic, partition)
            for topic in letter_topics(self._settings.sink)
            for partition in range(self._topology[topic].partitions)
        }

    def _count_read(self, topic: str, events: int) -> None:
        self._read += events
        self._on_progress(f"{self._read:,} events read, now {topic}")

    def _report(
        self, recipe: Recipe, counts: PartitionCounts, outputs: Sequence[OutputReader]
    ) -> Report:
        packed = {**counts.offsets, "misplaced": sorted(at for o in outputs for at in o.first)}
        staged = Staged(
            middle=self._middle,
            under_way=sum(each.waiting.events for each in self._inputs),
            misplaced=sum(each.misplaced for each in outputs),
            inputs_left=self._left.read,
            places={
                name: [self._place(name, at) for at in offsets[:EXAMPLES_MAX]]
                for name, offsets in packed.items()
                if offsets
            },
        )
        # Each partition has a filter of its own. One above its capacity explains any number of missing keys.
        fullest = max(each.sorts.emitted for each in outputs)
        capacity = recipe.shard_capacity
        capacity = 0 if fullest > capacity else max(capacity, counts.keys)
        of_all: dict[str, Any] = dict.fromkeys(BOUNDS)
        counts = replace(counts, offsets={}, **of_all)
        return judged(self._settings, capacity, [counts], staged=staged)

    def _place(self, finding: str, packed: int) -> tuple[InputPartition, int]:
        number, offset = unpacked(packed)
        if finding in _OF_OUTPUT:
            return InputPartition(self._settings.sink.topic, number), offset
        return self._inputs[number].at, offset
