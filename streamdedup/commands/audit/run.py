"""The audit: it reads, sorts and matches partition by partition, then draws conclusions and names their limits.

It works while workers run. Memory is bounded by `size_bytes`, and one bit for each input offset if there are dead
letters.
"""

from collections.abc import Callable
from functools import partial

from streamdedup.commands.audit.across import EmittedKeys, sampled
from streamdedup.commands.audit.counts import counts_of
from streamdedup.commands.audit.extents import Extent, fixed, nothing_committed, topology_of
from streamdedup.commands.audit.limits import began_at_latest, limits_of, limits_of_times
from streamdedup.commands.audit.match import first_read, match
from streamdedup.commands.audit.read import PartitionReader
from streamdedup.commands.audit.report import PartitionCounts, Report, judged
from streamdedup.commands.audit.rows import Sorter
from streamdedup.commands.audit.staged import StagedAudit
from streamdedup.commands.audit.time_check import TimeCheck
from streamdedup.commands.audit.window_time import clock_of, dated
from streamdedup.delivery.cross_partition import Watch
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.schemas import registry_answering
from streamdedup.kafka.base import Cluster, Connect
from streamdedup.kafka.cluster import kafka_cluster, soon
from streamdedup.kafka.topics import Topology, sink_topics
from streamdedup.keys.hashing import Hash
from streamdedup.settings import Settings

SORT_BYTES = 16 << 20  # with the client's buffers and the rest, the process stays below 256 MB


async def audit(
    settings: Settings,
    connect: Connect = kafka_cluster,
    *,
    across: bool = False,
    size_bytes: int = SORT_BYTES,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Compare input and output, up to the committed offsets. `on_progress` gets the progress after each batch.

    Each partition is judged by itself, and a sample of the keys is compared across partitions; all of them if `across`.
    With `source.repartition` the whole input is compared with the whole output.
    ConfigError if a topic is missing, or if the group has committed nothing on the input. DeliveryError if the broker
    refuses us or does not answer, or if a transaction stays open.
    """
    unanswered = "the broker does not answer; check it, and run the audit again"
    async with soon(connect, settings.kafka, unanswered) as cluster:
        if settings.source.repartition is not None:
            return await StagedAudit(settings, cluster, size_bytes, on_progress).run()
        return await _Audit(settings, cluster, across, size_bytes, on_progress).run()


class _Audit:
    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        across: bool,
        size_bytes: int,
        on_progress: Callable[[str], None],
    ) -> None:
        self._settings, self._cluster, self._across = settings, cluster, across
        self._size_bytes, self._on_progress = size_bytes, on_progress

    async def run(self) -> Report:
        topology = await topology_of(self._settings, self._cluster)
        count = topology[self._settings.source.topic].partitions
        recipe = Recipe(self._settings, count)
        await registry_answering(recipe)
        # Not the worker's hash: whoever made keys collide there would make them collide here, too.
        self._hash = Hash.draw()
        extents = [
            await fixed(self._settings, self._cluster, topology, partition)
            for partition in range(count)
        ]
        if all(extent.found.committed is None for extent in extents):
            raise nothing_committed(self._settings)
        if count == 1 or not self._settings.filter.remembers:
            found = [await self._partition(recipe, extent, topology) for extent in extents]
            return judged(self._settings, recipe.shard_capacity, found)
        watch = Watch()
        watch.hash = self._hash
        if not self._across:
            found = [await self._partition(recipe, extent, topology, watch) for extent in extents]
            return judged(self._settings, recipe.shard_capacity, found, sampled(watch))
        self._size_bytes //= 2  # the other half is for the keys of all partitions
        keys = EmittedKeys(clock_of(recipe), size_bytes=self._size_bytes)
        with keys.sorter:
            found = [
                await self._partition(recipe, extent, topology, watch, keys) for extent in extents
            ]
            return judged(self._settings, recipe.shard_capacity, found, keys.compared(watch))

    async def _partition(
        self,
        recipe: Recipe,
        extent: Extent,
        topology: Topology,
        watch: Watch | None = None,
        keys: EmittedKeys | None = None,
    ) -> PartitionCounts:
        clock, time_check = clock_of(recipe), self._time_check(extent, topology)
        until = extent.committed
        until = extent.found.input_start if until is None else until
        read = 0

        def progress(topic: str, events: int) -> None:
            nonlocal read
            read += events
            place = f"partition {extent.partition} of {recipe.partitions}"
            self._on_progress(f"{place}: {read:,} events read, now {topic}")

        with Sorter(timed=clock is not None, size_bytes=self._size_bytes) as sorter:
            reader = PartitionReader(
                recipe,
                self._hash,
                self._cluster,
                extent,
                sorter=sorter,
                clock=clock,
                time_check=time_check,
                watch=watch,
                on_progress=progress,
            )
            await reader.read(until)
            due_from = self._due_from(extent, sorter)
            generations = clock.generations if clock else None
            rows = partial(dated, generations=reader.undated)
            matches = match(rows(sorter.parts()), due_from=due_from, generations=generations)
            if matches.foreign and until < extent.found.input_end:
                # A worker may have emitted events from beyond `until` before the output's end was looked up. The
                # input's end was looked up after that, so reading on to it finds all of these events.
                await reader.read_on(until, extent.found.input_end)
                matches = match(rows(sorter.parts()), due_from=due_from, generations=generations)
            if keys:
                keys.add(extent.partition, rows(sorter.parts()))
        side_topics = sink_topics(self._settings.sink)[1:]
        starts = {
            name: await self._cluster.first_offset(name, extent.partition) for name in side_topics
        }
        limits = tuple(limits_of(self._settings, extent, starts, matches, across=keys is not None))
        if time_check:
            matches.note("wrongly_rejected", len(time_check.wrong), time_check.wrong_offsets)
            limits = (*limits, *limits_of_times(self._settings, time_check))
        return counts_of(self._settings, extent, reader.sorts, matches, limits)

    def _time_check(self, extent: Extent, topology: Topology) -> TimeCheck | None:
        sink = self._settings.sink
        if not sink.dead_letter_topic:
            return None
        output, letters = topology[sink.topic], topology[sink.dead_letter_topic]
        end = extent.ends[letters.name]
        return TimeCheck(
            self._settings, self._cluster, output, letters, partition=extent.partition, end=end
        )

    def _due_from(self, extent: Extent, sorter: Sorter) -> int:
        """Return the offset at which the group began to read, if it is not the input's start."""
        if not began_at_latest(self._settings, extent):
            return 0
        return first_read(sorter.parts())
