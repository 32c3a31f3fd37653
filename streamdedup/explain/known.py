"""What each partition knows of the wanted keys: from its newest snapshot and the fold, or from the output alone.

A snapshot answers at once, and at times wrongly with "known"; the output answers exactly, once it has been read.
How far the output is read is fixed first; what is below that and not yet decided is *pending*, and waited for.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from streamdedup.delivery.fence import look, wait_decided
from streamdedup.delivery.looked_at import LookedAtMemory, NoSnapshotError
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.resume import PartitionState, is_outlived, is_short
from streamdedup.delivery.services import MemoryServices
from streamdedup.delivery.shard import Shard
from streamdedup.delivery.window_time import WindowTime, clock_of
from streamdedup.errors import DeliveryError
from streamdedup.events import Column, EventBatch, Integers
from streamdedup.explain.hits import Hits
from streamdedup.explain.search import Keyed, Reader
from streamdedup.explain.wanted import Wanted
from streamdedup.filters.base import Mask
from streamdedup.filters.window.clock import NEVER, UNDATED, Clock
from streamdedup.filters.window.protocol import Windowed
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.topics import Topology
from streamdedup.rules.lists import Lists
from streamdedup.settings import Settings

DECIDED_S_MAX = 10.0  # for an open transaction: a worker's own ends in a fraction of that
WHOSE = "of another producer, or of a worker that was killed,"

Ask = Callable[[Shard], None]  # asks a filter, before the snapshot under it is verified


@dataclass(frozen=True, kw_only=True)
class Question:
    """All that one question shares. `settings` are those of the stage that judges; `topology` has input and output."""

    settings: Settings
    cluster: Cluster
    topology: Topology
    recipe: Recipe
    lists: Lists
    reader: Reader
    services: MemoryServices
    inputs: Sequence[InputPartition] = ()
    since_ms: int | None = None

    def inputs_of(self, partition: int) -> Sequence[InputPartition]:
        """Return the partitions of the inputs from which events of that output partition come.

        They are all of `inputs`, with `source.repartition`.
        """
        return self.inputs or [InputPartition(self.settings.source.topic, partition)]

    async def bounds(self, at: InputPartition) -> tuple[int, int]:
        """Return the first offset of a partition, and its last stable one."""
        async with asyncio.timeout(ANSWER_S_MAX):
            return (
                await self.cluster.first_offset(at.topic, at.number),
                await self.cluster.stable_offset(at.topic, at.number),
            )

    @property
    def clock(self) -> Clock | None:
        """The clock of the windows; None if filters do not forget."""
        return clock_of(self.recipe)

    @property
    def output(self) -> str:
        """The output's name."""
        return self.settings.sink.topic

    def is_timed(self, topic: str) -> bool:
        """Return whether events of a topic that is written have their times of the input."""
        return self.topology[topic].stamped_by_producer

    def hits(self, wanted: Wanted) -> Hits:
        """Return where events of the wanted keys are kept."""
        return Hits(wanted, newest=self.clock is not None)

    async def since(self, topic: str, partition: int, start: int) -> int | None:
        """Return from which offset on to read, of those from `start` on; None if nothing is that young."""
        if self.since_ms is None:
            return start
        return await self.reader.from_time(topic, partition, self.since_ms, start)


@dataclass(frozen=True, slots=True)
class State:
    """One partition: what the broker reports, and why something below `found.output_end` is pending, if so.

    If so, the output counts up to its last stable offset.
    """

    found: PartitionState
    pending: str | None

    @property
    def floor(self) -> int:
        """The output offset below which everything is forgotten."""
        return self.found.floor or 0


async def state_of(question: Question, partition: int) -> State:
    """Return the state: first the committed offset, then the output's end, once nothing below it is undecided."""
    settings, cluster = question.settings, question.cluster
    async with asyncio.timeout(ANSWER_S_MAX):
        group, source = settings.kafka.group_id, settings.source.topic
        own = (await cluster.committed_all(group, source, [partition], stable=False)).get(partition)
        end = await cluster.end_offset(question.output, partition)
    pending = None
    try:
        await wait_decided(cluster, question.output, partition, end, DECIDED_S_MAX, whose=WHOSE)
    except DeliveryError as error:
        pending = str(error)
        async with asyncio.timeout(ANSWER_S_MAX):
            end = await cluster.stable_offset(question.output, partition)
    async with asyncio.timeout(ANSWER_S_MAX):
        found = await look(
            settings,
            cluster,
            question.topology,
            partition,
            own,
            output_end=end,
            input_end_of=cluster.stable_offset,
            others={},
        )
    return State(found, pending)


class Generations:
    """The generation of each key that a window has, of all (k,) usable ones; most keys are in no window."""

    def __init__(self, generations: Integers) -> None:
        self._places = np.flatnonzero(generations != NEVER).astype(np.uint32)
        self._generations = generations[self._places]

    def of(self, place: int) -> int | None:
        """Return the generation of a usable key; None if the window does not have it."""
        at = int(self._places.searchsorted(place))
        is_there = at < len(self._places) and self._places[at] == place
        return int(self._generations[at]) if is_there else None


@dataclass
class Known:
    """What one partition knows. `present` (k,) says of each usable key whether its next event is a duplicate here.

    `read_from` is the output offset from which on the output was searched for the wanted keys; `seen` says which of
    them, by the first of equal ones, have an event there. `is_whole`: all that the filter may remember is still in the
    output. `now` is the current generation of a window. `is_cut`: the output alone answers, and was read from
    `since_ms` on only.
    """

    state: State
    source: Literal["snapshot", "output"]
    present: Mask
    read_from: int
    seen: Mask
    is_whole: bool
    is_cut: bool = False
    snapshot: str | None = None
    error_rate: float = 0.0
    full: str | None = None
    now: int | None = None
    generations: Generations | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def partition(self) -> int:
        """Its number."""
        return self.state.found.partition


async def from_snapshot(
    question: Question, state: State, wanted: Wanted, hits: Hits, ask: Ask | None = None
) -> Known | list[str]:
    """Return what the newest snapshot that fits and the fold after it know; without one, the notes that say why.

    `hits` gets the events of the fold. `ask` may ask the filter more.
    """
    recipe, found = question.recipe, state.found
    folded = question.hits(wanted)

    def saw(batch: EventBatch, keys: Column, rows: Integers) -> None:
        question.reader.on_read(batch.topic, batch.partition, len(batch))
        folded.add(batch, keys, rows)

    memory = LookedAtMemory(recipe, question.services, found.partition, saw)
    try:
        while True:
            folded = question.hits(wanted)
            try:
                shard = await memory.filled(found, question.topology)
            except NoSnapshotError:
                return memory.notes
            except DeliveryError as error:
                return [*memory.notes, f"a worker would stop at this partition: {error}"]
            if memory.snapshot is None:
                return memory.notes
            snapshot = memory.snapshot
            present, generations = _asked(shard, wanted)
            if ask is not None:
                ask(shard)
            if memory.check() is None:
                break
    finally:
        memory.close()
    hits.take(folded)
    filter_ = shard.filter
    return Known(
        state,
        "snapshot",
        present,
        max(snapshot.label, found.output_start),
        folded.seen,
        _is_whole(question, found),
        snapshot=str(snapshot.path),
        error_rate=filter_.error_rate_now,
        full=recipe.held(filter_) if shard.full else None,
        now=_generation_now(filter_) if isinstance(filter_, Windowed) else None,
        generations=None if generations is None else Generations(generations),
        notes=memory.notes,
    )


async def from_output(
    question: Question, state: State, wanted: Wanted, hits: Hits, *, every: bool = True
) -> Known:
    """Return what the output alone says, read from its first event that counts.

    Without `every`, reading stops once each key has an event, unless the filter forgets: then all is read.
    """
    found, clock = state.found, question.clock
    start = max(state.floor, found.output_start)
    begin = await question.since(question.output, found.partition, start)
    own = question.hits(wanted)
    window = WindowTime(clock) if clock else None
    reading = question.reader.keyed(
        question.recipe,
        question.output,
        found.partition,
        found.output_end if begin is None else begin,
        found.output_end,
    )
    newest = await _newest(reading, wanted, own, window, until_found=not every and clock is None)
    hits.take(own)
    now = None
    present = newest != NEVER
    if window is not None and clock is not None:
        now = window.generation
        undated = newest == UNDATED
        present &= undated | (now is None) | (newest > (now or 0) - clock.generations)
    notes = []
    if is_short(state.floor, found):
        notes.append(
            f"{question.output}/{found.partition} begins at offset {found.output_start}, and there is no snapshot: what"
            " was emitted before is not known"
        )
    return Known(
        state,
        "output",
        present,
        found.output_end if begin is None else begin,
        own.seen,
        _is_whole(question, found) and begin == start,
        is_cut=begin != start,
        now=now,
        generations=Generations(newest) if window is not None else None,
        notes=notes,
    )


async def _newest(
    reading: Keyed, wanted: Wanted, hits: Hits, window: WindowTime | None, *, until_found: bool
) -> Integers:
    """Return the newest generation that each usable key has in what is read, (k,): NEVER if none, 0 without a window.

    `hits` gets the events of the keys. `until_found`: reading stops once each key has one.
    """
    newest = np.full(len(wanted), NEVER, dtype=np.int64)
    left = _Left(wanted, np.arange(len(wanted)))
    async with aclosing(reading):
        async for batch, keys, rows in reading:
            generations = np.zeros(len(rows), np.int64)
            if window is not None:
                generations, _ = window.follow(batch.timestamps[rows])
            found = hits.add(batch, keys.keys, rows)
            np.maximum.at(newest, found.keys, generations[rows.searchsorted(found.rows)])
            if until_found:
                left.found(found.keys)
                if not left.count:
                    break
    return newest[wanted.first_of]


async def look_for(
    question: Question, known: Known, wanted: Wanted, hits: Hits, places: Integers, *, every: bool
) -> bool:
    """Search the output below `known.read_from` for the events of the keys at `places`; `hits` gets them.

    Return whether all of the output that counts was read, or all keys were found. Without `every` the search stops once
    each has an event. A window's search begins at the oldest time that it remembers.
    """
    found, output, clock = known.state.found, question.output, question.clock
    start = max(known.state.floor, found.output_start)
    begin = await question.since(output, found.partition, start)
    if begin is None:
        return False
    first = begin
    if clock is not None and not clock.by_count and known.now is not None:
        oldest = (known.now - clock.generations + 1) * clock.slot
        first = await question.reader.from_time(output, found.partition, oldest, begin) or begin
    left = _Left(wanted, places)
    for low, high in ((first, known.read_from), (begin, min(first, known.read_from))):
        reading = question.reader.keyed(question.recipe, output, found.partition, low, high)
        async with aclosing(reading):
            async for batch, keys, rows in reading:
                met = hits.add(batch, keys.keys, rows).keys
                known.seen[met] = True
                left.found(met)
                if not left.count and not every:
                    return True
    return begin == start or not left.count


class _Left:
    """Which of the keys at `places` have no event yet; `count` is their number, equal ones counted once."""

    def __init__(self, wanted: Wanted, places: Integers) -> None:
        self._left = np.zeros(len(wanted), dtype=np.bool_)
        self._left[wanted.first_of[places]] = True
        self.count = int(np.count_nonzero(self._left))

    def found(self, keys: Integers) -> None:
        """Note keys, each by the first of equal ones, that have an event."""
        if len(keys):
            self._left[keys] = False
            self.count = int(np.count_nonzero(self._left))


def _asked(shard: Shard, wanted: Wanted) -> tuple[Mask, Integers | None]:
    """Return which usable keys the filter holds, and, if it is a window, in which generation."""
    present = np.zeros(len(wanted), dtype=np.bool_)
    filter_ = shard.filter
    generations = np.full(len(wanted), NEVER) if isinstance(filter_, Windowed) else None
    for column, places in wanted.blocks():
        digests = filter_.hash.of_column(column)
        if isinstance(filter_, Windowed) and generations is not None:
            generations[places] = filter_.generations_many(digests)
            present[places] = generations[places] != NEVER
        else:
            present[places] = filter_.contains_many(digests)
    return present, generations


def _generation_now(window: Windowed) -> int | None:
    return None if window.watermark is None else window.clock.generation(window.watermark)


def _is_whole(question: Question, found: PartitionState) -> bool:
    """Return whether the output still has every event that the filter may remember."""
    if not is_short(found.floor or 0, found):
        return True
    options, topic = question.settings.filter, question.topology[question.output]
    watermark = found.note.watermark if found.note else None
    return options.by_event_time and is_outlived(
        topic, question.services.now_ms(), watermark, options.window_ms
    )
