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
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from typing_extensions import override

from streamdedup.commands.audit.counts import counts_of
from streamdedup.commands.audit.extents import WHOSE, Extent, nothing_committed
from streamdedup.commands.audit.inputs_left import InputsLeft, inputs_left
from streamdedup.commands.audit.limits import Limit, limits_of_times
from streamdedup.commands.audit.limits_staged import (
    is_of_these_logs,
    limits_of_input,
    limits_of_inputs_left,
    limits_of_output,
)
from streamdedup.commands.audit.match import APART, EXAMPLES_MAX, Matches, match
from streamdedup.commands.audit.read import (
    STALL_S_MAX,
    Offsets,
    PartitionReader,
    Sorts,
    letters_in,
)
from streamdedup.commands.audit.report import Report, Staged, judged
from streamdedup.commands.audit.rows import Rows, Sorter
from streamdedup.commands.audit.time_check import Claim, TimeCheck
from streamdedup.commands.audit.window_time import clock_of, dated
from streamdedup.delivery.fence import committed_offset, look, wait_decided
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.resume import Found, differs
from streamdedup.delivery.schemas import registry_answering, registry_of
from streamdedup.errors import DeliveryError
from streamdedup.events import EventBatch, Integers
from streamdedup.filters.base import Mask
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.log import TrimmedError
from streamdedup.kafka.offsets import Committed
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.origin_header import unmarked
from streamdedup.kafka.sink import transaction_timeout_s
from streamdedup.kafka.topics import Topology, refuse_missing, sink_topics
from streamdedup.keys.extract import Keys
from streamdedup.keys.hashing import Hash
from streamdedup.keys.placement import partitions_of
from streamdedup.repartition.inputs import topics_of
from streamdedup.repartition.middle import options_of
from streamdedup.repartition.offsets import decided, found_in, topology_of
from streamdedup.repartition.offsets import partitions_of as inputs_of
from streamdedup.settings import Settings
from streamdedup.settings.stages import copying, deduplicating, of_input

R = TypeVar("R", bound=PartitionReader)

_OFFSET_BITS = 48  # of a place: the number of the partition, above the offset
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
        self._sink = settings.sink
        self._inputs: list[InputPartition] = []  # each by its number in a place
        self._left = InputsLeft((), (), Topology(None, {}))
        options = options_of(settings)
        self._middle, self._places = options.topic, options.partitions
        self._size_bytes, self._on_progress = size_bytes, on_progress
        self._within_s = settings.delivery.open_transaction_s + transaction_timeout_s(
            settings.kafka
        )
        self._read = 0
        self._strangers: list[str] = []

    async def run(self) -> Report:
        """Return the report. ConfigError if a topic is missing, or if nothing is committed on the input."""
        cluster, settings = self._cluster, self._settings
        async with asyncio.timeout(ANSWER_S_MAX):
            named = await topics_of(settings, cluster)
            input_logs = await topology_of(self._first, cluster, named)
            left = self._left = await inputs_left(self._first, cluster, named)
            topology = await cluster.describe([self._middle, *sink_topics(self._sink)])
            refuse_missing(topology, self._middle, sink_topics(self._sink))
        recipe, hash_ = Recipe(settings, self._places), Hash.draw()
        await registry_answering(recipe)
        topics, input_logs = (*named, *left.read), left.beside(input_logs)
        self._inputs = inputs_of(input_logs, topics)
        inputs = await self._found(input_logs)
        clock = clock_of(Recipe(self._second, self._places))
        with Sorter(timed=clock is not None, size_bytes=self._size_bytes) as sorter:

            def reader(extent: Extent, kind: type[R], number: int, its: Recipe = recipe) -> R:
                return kind(
                    its,
                    hash_,
                    cluster,
                    extent,
                    sorter=_Placed(sorter, number),
                    clock=clock,
                    time_check=None,
                    watch=None,
                    on_progress=self._count_read,
                    number=number,
                )

            recipes = {name: Recipe(of_input(settings, name), self._places) for name in topics}
            for its in recipes.values():
                registry_of(its, reads_only=True)
            readers = [
                reader(Extent(at.number, found, {}), _InputReader, number, recipes[at.topic])
                for number, (at, found) in enumerate(zip(self._inputs, inputs, strict=True))
            ]
            until = [_until(found) for found in inputs]
            for each, end in zip(readers, until, strict=True):
                for offsets in (each.under_way, each.lettered, each.blocked):
                    offsets.reach(end)
            under_way = [each.under_way for each in readers]
            own = [await self._waiting(topology, p, under_way) for p in range(self._places)]
            outputs = [await self._output(topology, p, its) for p, its in enumerate(own)]
            checks = await self._letters(topology, readers)
            for each, end in zip(readers, until, strict=True):
                await each.read_input(end)
            writers = [reader(extent, _OutputReader, extent.partition) for extent in outputs]
            for writer in writers:
                await writer.read_output()
            generations = clock.generations if clock else None
            undated = {code: known for each in writers for code, known in each.undated.items()}
            matches = match(dated(sorter.parts(), undated), generations=generations)
            if matches.foreign:
                # A worker may have emitted events from beyond the offsets. It is asked now how far the inputs may
                # have been read, so all of these events stand below that.
                for each, at, start in zip(readers, self._inputs, until, strict=True):
                    await each.read_on(start, await self._end_now(input_logs, at))
                matches = match(dated(sorter.parts(), undated), generations=generations)
        for check in checks:
            matches.note("wrongly_rejected", len(check.wrong), check.wrong_offsets)
        starts = await self._starts(topology)
        limits = (
            *limits_of_input(settings, self._by_name(inputs)),
            *limits_of_inputs_left(left.unreadable),
            *limits_of_output(settings, outputs, starts, matches, self._strangers),
            *(limit for check in checks for limit in limits_of_times(settings, check)),
        )
        return self._report(recipe, matches, readers, writers, limits)

    def _by_name(self, found: Sequence[Found]) -> dict[str, Found]:
        """Return what was found in each partition of the inputs, by its name, with the topic if there are several.

        Of an input that was left, only partitions with an offset are among them.
        """
        are_several = len({at.topic for at in self._inputs}) > 1
        return {
            str(at) if are_several else str(at.number): its
            for at, its in zip(self._inputs, found, strict=True)
            if its.committed or at.topic not in self._left.read
        }

    async def _found(self, topology: Topology) -> list[Found]:
        """Return what is found in each partition of the inputs. ConfigError if nothing is committed there."""
        committed = await decided(self._first, self._cluster, self._inputs)
        if not any(at.topic not in self._left.read for at in committed):
            raise nothing_committed(self._first)
        async with asyncio.timeout(ANSWER_S_MAX):
            return [
                await found_in(self._first, self._cluster, topology, p, committed.get(p))
                for p in self._inputs
            ]

    async def _end_now(self, topology: Topology, at: InputPartition) -> int:
        """Return an offset below which stands every event of a partition that a worker can have copied by now.

        Of an input that was left, that is the offset: only a worker of the former configuration moves it, if any.
        """
        if at.topic not in self._left.read:
            return await self._cluster.stable_offset(*at)
        committed = await decided(self._first, self._cluster, [at])
        async with asyncio.timeout(ANSWER_S_MAX):
            found = await found_in(self._first, self._cluster, topology, at, committed.get(at))
        return _until(found)

    async def _waiting(
        self, topology: Topology, partition: int, under_way: Sequence[Offsets]
    ) -> Committed | None:
        """Mark what waits in `partition` of the middle; return the second stage's offset there.

        A worker may purge what it has judged meanwhile. Then its offset has moved on, and is asked for again.
        """
        cluster, middle = self._cluster, self._middle
        for attempt in range(_TRIES):
            async with asyncio.timeout(ANSWER_S_MAX):
                end = await cluster.end_offset(middle, partition)
            await wait_decided(cluster, middle, partition, end, self._within_s, whose=WHOSE)
            own = await committed_offset(
                self._second, cluster, partition, self._within_s, whose=WHOSE
            )
            async with asyncio.timeout(ANSWER_S_MAX):
                first = await cluster.first_offset(middle, partition)
            note = own.note if own else None
            is_other = note is not None and differs(note.input_id, topology[middle].topic_id)
            start = first if own is None or is_other else own.offset
            if start < first and attempt + 1 < _TRIES:
                continue
            try:
                async with aclosing(
                    self._batches(middle, partition, max(start, first), end)
                ) as batches:
                    async for batch in batches:
                        self._mark(batch, under_way)
            except TrimmedError:
                continue
            return own
        raise DeliveryError(
            f"{middle}/{partition} was trimmed again and again during the audit; run the audit again"
        )

    def _mark(self, batch: EventBatch, under_way: Sequence[Offsets]) -> None:
        """Note which events of the input the copies in `batch` are of."""
        left, firsts = batch, self._firsts
        while len(left):
            ours, stranger = unmarked(left, self._settings.kafka.group_id)
            if (places := ours.places) is not None and len(ours):
                first, count = np.array([firsts.get(topic, (0, 0)) for topic in places.topics]).T
                number = np.where(places.partitions < count, first + places.partitions, -1)
                for of in np.unique(number[number >= 0]).tolist():
                    under_way[of].add(places.offsets[number == of])
            if stranger is None:
                return
            if len(self._strangers) < EXAMPLES_MAX:
                self._strangers.append(f"{batch.topic}/{batch.partition} offset {stranger}")
            left = left.take(np.arange(len(ours) + 1, len(left)))

    @cached_property
    def _firsts(self) -> dict[bytes | None, tuple[int, int]]:
        """For each input, the number of its first partition, and how many it has."""
        firsts = dict[bytes | None, tuple[int, int]]()
        for number, at in enumerate(self._inputs):
            first, count = firsts.get(at.topic.encode(), (number, 0))
            firsts[at.topic.encode()] = first, count + 1
        return firsts

    async def _output(self, topology: Topology, partition: int, own: Committed | None) -> Extent:
        """Return how far to read `partition` of the output, and of the duplicates."""
        ends = {
            topic: await self._decided_end(topic, partition)
            for topic in (self._sink.topic, self._sink.duplicates_topic)
            if topic
        }
        async with asyncio.timeout(ANSWER_S_MAX):
            found = await look(
                self._second,
                self._cluster,
                topology,
                partition,
                own,
                output_end=ends[self._sink.topic],
                input_end_of=self._cluster.end_offset,
                others={},
            )
        return Extent(partition, found, ends)

    async def _decided_end(self, topic: str, partition: int) -> int:
        async with asyncio.timeout(ANSWER_S_MAX):
            end = await self._cluster.end_offset(topic, partition)
        await wait_decided(self._cluster, topic, partition, end, self._within_s, whose=WHOSE)
        return end

    async def _letters(
        self, topology: Topology, readers: Sequence[PartitionReader]
    ) -> list[TimeCheck]:
        """Mark the events of the input that letters name; return the checks of those rejected for their time.

        Both stages write letters: the first in the partition of the input, the second in that of the middle.
        """
        checks = list[TimeCheck]()
        output = topology[self._sink.topic]
        for topic, is_blocked in (
            (self._sink.dead_letter_topic, False),
            (self._sink.blocked_topic, True),
        ):
            if topic is None:
                continue
            for partition in range(topology[topic].partitions):
                end = await self._decided_end(topic, partition)
                marks = [each.blocked if is_blocked else each.lettered for each in readers]
                check = None
                if not is_blocked:
                    check = TimeCheck(
                        self._settings,
                        self._cluster,
                        output,
                        topology[topic],
                        partition=partition,
                        end=end,
                    )
                    checks.append(check)
                first = await self._cluster.first_offset(topic, partition)
                async with aclosing(self._batches(topic, partition, first, end)) as batches:
                    async for batch in batches:
                        await self._take_letters(batch, marks, check)
        return checks

    async def _take_letters(
        self, batch: EventBatch, marks: Sequence[Offsets], check: TimeCheck | None
    ) -> None:
        named, claims = dict[int, list[int]](), list[Claim]()
        for row, of, at in letters_in(batch, self._lettered):
            named.setdefault(of, []).append(at)
            if check and (claim := check.claim(batch, row, at | of << _OFFSET_BITS)):
                claims.append(claim)
        for of, offsets in named.items():
            marks[of].add(np.array(offsets, dtype=np.int64))
        if check and claims:
            await check.check(claims)

    @cached_property
    def _lettered(self) -> dict[tuple[bytes | None, bytes | None], int]:
        """The partitions of the inputs as letters name them, with their numbers."""
        return {(at.topic.encode(), b"%d" % at.number): n for n, at in enumerate(self._inputs)}

    async def _batches(
        self, topic: str, partition: int, start: int, end: int
    ) -> AsyncGenerator[EventBatch]:
        events = self._cluster.committed_events(topic, partition, start, end, stall_s=STALL_S_MAX)
        async with aclosing(events) as batches:
            async for batch in batches:
                yield batch
                self._count_read(topic, len(batch))

    def _count_read(self, topic: str, events: int) -> None:
        self._read += events
        self._on_progress(f"{self._read:,} events read, now {topic}")

    async def _starts(self, topology: Topology) -> dict[str, int]:
        """Return the greatest first offset of each side topic."""
        async with asyncio.timeout(ANSWER_S_MAX):
            return {
                topic: max(
                    [
                        await self._cluster.first_offset(topic, partition)
                        for partition in range(topology[topic].partitions)
                    ]
                )
                for topic in sink_topics(self._sink)[1:]
            }

    def _report(
        self,
        recipe: Recipe,
        matches: Matches,
        readers: Sequence["_InputReader"],
        writers: Sequence["_OutputReader"],
        limits: tuple[Limit, ...],
    ) -> Report:
        sorts = _summed([each.sorts for each in (*readers, *writers)])
        counts = replace(
            counts_of(self._settings, writers[0].extent, sorts, matches, limits),
            partition=None,
            input_start=None,
            committed=None,
            output_start=None,
            output_end=None,
            floor=None,
        )
        misplaced = sum(each.misplaced for each in writers)
        packed = {**counts.offsets, "misplaced": sorted(o for w in writers for o in w.first)}
        staged = Staged(
            middle=self._middle,
            under_way=sum(each.waiting for each in readers),
            misplaced=misplaced,
            inputs_left=self._left.read,
            places={
                name: [self._place(name, at) for at in offsets[:EXAMPLES_MAX]]
                for name, offsets in packed.items()
                if offsets
            },
        )
        # Each partition has a filter of its own. One above its capacity explains any number of missing keys.
        fullest = max(each.sorts.emitted for each in writers)
        capacity = recipe.shard_capacity
        capacity = 0 if fullest > capacity else max(capacity, counts.keys)
        return judged(self._settings, capacity, [replace(counts, offsets={})], staged=staged)

    def _place(self, finding: str, packed: int) -> tuple[InputPartition, int]:
        number, offset = packed >> _OFFSET_BITS, packed & (1 << _OFFSET_BITS) - 1
        if finding in _OF_OUTPUT:
            return InputPartition(self._sink.topic, number), offset
        return self._inputs[number], offset


class _InputReader(PartitionReader):
    """Reads a partition of the input; `waiting` counts its events that are under way."""

    waiting = 0

    @override
    def _due(self, batch: EventBatch) -> None:
        self.waiting += int(np.count_nonzero(self.under_way.of(batch.offsets)))
        super()._due(batch)


class _OutputReader(PartitionReader):
    """Reads a partition of the output; `misplaced` counts its events whose key belongs in another one."""

    misplaced = 0
    first: Sequence[int] = ()
    """The first places of these events."""

    @property
    def extent(self) -> Extent:
        """What is read."""
        return self._extent

    @override
    def _add_judged(
        self,
        batch: EventBatch,
        keys: Keys,
        kind: int,
        which: Mask,
        times: tuple[Integers, Integers] | None = None,
    ) -> None:
        rows = np.flatnonzero(which)
        if batch.topic == self._settings.sink.topic and len(rows):
            options = options_of(self._settings)
            places = partitions_of(keys.keys.take(rows), options.partitions)
            elsewhere = places != batch.partition
            self.misplaced += int(np.count_nonzero(elsewhere))
            found = batch.offsets[rows[elsewhere]][:EXAMPLES_MAX] | batch.partition << _OFFSET_BITS
            self.first = [*self.first, *found.tolist()][:EXAMPLES_MAX]
            if times is not None:  # a window by count knows no time of another partition
                times = (
                    np.where(elsewhere, -APART, times[0]),
                    np.where(elsewhere, APART, times[1]),
                )
        super()._add_judged(batch, keys, kind, which, times)


class _Placed:
    """Adds the rows of a partition to a sorter, with its number in their offsets."""

    def __init__(self, sorter: Sorter, number: int) -> None:
        self._sorter, self._bits = sorter, number << _OFFSET_BITS

    def add(self, rows: Rows) -> None:
        """Take rows."""
        for name in ("first", "last"):
            rows[name] |= self._bits
        self._sorter.add(rows)


def _until(found: Found) -> int:
    """Return the offset below which the events of a partition of the input are due."""
    if found.committed is None or not is_of_these_logs(found):
        return found.input_start
    return min(max(found.committed.offset, found.input_start), found.input_end)


def _summed(all_sorts: Sequence[Sorts]) -> Sorts:
    summed = Sorts()
    for sorts in all_sorts:
        for name, count in asdict(sorts).items():
            setattr(summed, name, getattr(summed, name) + count)
    return summed
