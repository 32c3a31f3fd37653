"""One comparison: of partitions of the input with partitions of the output, whose rows go through one sorter.

Without `source.repartition` a partition of the input is compared with that of the output that has its number. With it,
a key may lie in any partition of any input, and belongs in one of the output, so all are compared at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property

import numpy as np

from streamdedup.commands.audit.counts import counts_of
from streamdedup.commands.audit.extents import Extent
from streamdedup.commands.audit.limits import limits_of
from streamdedup.commands.audit.match import Matches, match
from streamdedup.commands.audit.read import InputReader, OutputReader, Reading, Sorts
from streamdedup.commands.audit.report import PartitionCounts
from streamdedup.commands.audit.rows import OFFSET_BITS, Rows, dated
from streamdedup.commands.audit.time_check import Claim, TimeCheck
from streamdedup.commands.audit.unread import Unread, unread_of
from streamdedup.delivery.services import wall_clock_ms
from streamdedup.events import EventBatch
from streamdedup.kafka.base import ANSWER_S_MAX
from streamdedup.kafka.options import SinkOptions
from streamdedup.kafka.records.marks import headers_of
from streamdedup.kafka.topics import Topology
from streamdedup.settings import Settings

# The headers of a letter that name its event.
PLACE = ("streamdedup.topic", "streamdedup.partition", "streamdedup.offset")


class Comparison:
    """Compares what `inputs` read with what `outputs` read. `reading` is theirs; its sorter is the caller's."""

    def __init__(
        self,
        settings: Settings,
        reading: Reading,
        topology: Topology,
        inputs: Sequence[InputReader],
        outputs: Sequence[OutputReader],
    ) -> None:
        self._settings, self._reading, self._topology = settings, reading, topology
        self._inputs, self._outputs = inputs, outputs
        self._letters: Mapping[tuple[str, int], int] = {}
        self._checks = list[TimeCheck]()

    async def read(self, letters: Mapping[tuple[str, int], int]) -> None:
        """Read everything up to what is due. `letters` are the ends of the partitions of topics that have letters."""
        self._letters = letters
        for (topic, partition), end in letters.items():
            await self._read_letters(topic, partition, end)
        for reader in self._inputs:
            await reader.read()
        for writer in self._outputs:
            await writer.read()

    async def matched(
        self, end_now: Callable[[InputReader], Awaitable[int]], due_from: int = 0
    ) -> Matches:
        """Return the findings. `end_now` returns an offset below which is all that a worker can have read by now."""
        clock = self._reading.clock
        generations = clock.generations if clock else None
        found = match(self.rows(), due_from=due_from, generations=generations)
        if found.foreign:
            # A worker may have emitted events from beyond the offsets. Their ends are looked up after that of the
            # output, so all of these events stand below.
            ends = [await end_now(reader) for reader in self._inputs]
            for reader, end in zip(self._inputs, ends, strict=True):
                await reader.read_on(end)
            found = match(self.rows(), due_from=due_from, generations=generations)
        for check in self._checks:
            found.note("wrongly_rejected", len(check.wrong), check.wrong_offsets)
        return found

    def rows(self) -> Iterator[Rows]:
        """Yield the sorted rows."""
        undated = {code: known for each in self._outputs for code, known in each.undated.items()}
        return dated(self._reading.sorter.parts(), undated)

    async def counted(
        self,
        matches: Matches,
        inputs: Mapping[str, Extent],
        *,
        across: bool = False,
        unreadable: Sequence[str] = (),
        strangers: Sequence[str] = (),
    ) -> PartitionCounts:
        """Return the counts, with the bounds of the first output. `limits_of` has the arguments."""
        limits = limits_of(
            self._settings,
            inputs,
            {str(each.extent.partition): each.extent for each in self._outputs},
            await self._starts(),
            matches,
            checks=self._checks,
            keyless=sum(each.sorts.keyless for each in self._outputs),
            across=across,
            unreadable=unreadable,
            strangers=strangers,
        )
        sorts = sum((each.sorts for each in (*self._inputs, *self._outputs)), Sorts())
        unread = await self._unread()
        waiting = sum((each.waiting for each in self._inputs), unread)
        return counts_of(
            self._settings,
            self._outputs[0].extent,
            sorts,
            matches,
            tuple(limits),
            unread=unread.events,
            waits_s=waiting.waits_s(wall_clock_ms()),
        )

    async def _unread(self) -> Unread:
        cluster, batches = self._reading.cluster, self._reading.batches
        each = [await unread_of(cluster, batches, of.at, of.extent) for of in self._inputs]
        return sum(each, Unread())

    async def _starts(self) -> dict[str, int]:
        """Return the greatest first offset of each side topic."""
        duplicates = self._settings.sink.duplicates_topic
        of_duplicates = [(duplicates, each.extent.partition) for each in self._outputs]
        starts = dict[str, int]()
        async with asyncio.timeout(ANSWER_S_MAX):
            for topic, partition in (*self._letters, *(of_duplicates if duplicates else ())):
                first = await self._reading.cluster.first_offset(topic, partition)
                starts[topic] = max(first, starts.get(topic, 0))
        return starts

    async def _read_letters(self, topic: str, partition: int, end: int) -> None:
        """Mark the events of the input that letters name, and check those that were rejected for their time."""
        sink, check = self._settings.sink, None
        if topic == sink.dead_letter_topic:
            check = TimeCheck(
                self._settings,
                self._reading.cluster,
                self._topology[sink.topic],
                self._topology[topic],
                partition=partition,
                end=end,
            )
            self._checks.append(check)
        start = await self._reading.cluster.first_offset(topic, partition)
        async with aclosing(self._reading.batches(topic, partition, start, end)) as batches:
            async for batch in batches:
                await self._take_letters(batch, check)

    async def _take_letters(self, batch: EventBatch, check: TimeCheck | None) -> None:
        named, claims = dict[int, list[int]](), list[Claim]()
        for row, of, at in self._letters_in(batch):
            named.setdefault(of, []).append(at)
            if check and (claim := check.claim(batch, row, at | of << OFFSET_BITS)):
                claims.append(claim)
        for of, offsets in named.items():
            reader = self._inputs[of]
            marks = reader.lettered if check else reader.blocked
            marks.add(np.array(offsets, dtype=np.int64))
        if check and claims:
            await check.check(claims)

    def _letters_in(self, batch: EventBatch) -> Iterator[tuple[int, int, int]]:
        """Yield each letter about events of the inputs: its row, the number of the event's partition, the offset."""
        places = (headers_of(batch.headers, header) for header in PLACE)
        for row, (topic, partition, offset) in enumerate(zip(*places, strict=True)):
            here = self._numbers.get((topic, partition))
            if here is not None and offset is not None and offset.isdigit():
                yield row, here, int(offset)

    @cached_property
    def _numbers(self) -> dict[tuple[bytes | None, bytes | None], int]:
        """The partitions of the inputs as letters name them, with their numbers here."""
        at = [reader.at for reader in self._inputs]
        return {(topic.encode(), b"%d" % number): n for n, (topic, number) in enumerate(at)}


def letter_topics(sink: SinkOptions) -> list[str]:
    """Return the topics whose events name those of the input that are not emitted."""
    return [topic for topic in (sink.dead_letter_topic, sink.blocked_topic) if topic]
