"""The audit: it reads, sorts and matches partition by partition, then draws conclusions and names their limits.

It works while workers run. Memory is bounded by `size_bytes`, and one bit for each input offset if there are dead
letters.
"""

from collections.abc import Callable

from streamdedup.commands.audit.across import EmittedKeys, sampled
from streamdedup.commands.audit.compare import Comparison, letter_topics
from streamdedup.commands.audit.extents import WHOSE, Extent, fixed, nothing_committed, patience_s
from streamdedup.commands.audit.limits import began_at_latest
from streamdedup.commands.audit.match import first_read
from streamdedup.commands.audit.read import InputReader, OutputReader, Reading
from streamdedup.commands.audit.report import PartitionCounts, Report, judged
from streamdedup.commands.audit.rows import Sorter
from streamdedup.commands.audit.staged import StagedAudit
from streamdedup.delivery.cross_partition import Watch
from streamdedup.delivery.fence import committed_offset
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.schemas import registry_answering
from streamdedup.delivery.window_time import clock_of
from streamdedup.kafka.base import Cluster, Connect
from streamdedup.kafka.cluster import kafka_cluster, soon
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.topics import refuse_missing, sink_topics
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
        self._source, self._written = settings.source.topic, sink_topics(settings.sink)

    async def run(self) -> Report:
        names = [self._source, *self._written]
        self._topology = await self._cluster.describe(names)
        refuse_missing(self._topology, self._source, names)
        count = self._topology[self._source].partitions
        recipe = self._recipe = Recipe(self._settings, count)
        await registry_answering(recipe)
        # Not the worker's hash: whoever made keys collide there would make them collide here, too.
        self._hash = Hash.draw()
        extents = [await self._fixed(partition) for partition in range(count)]
        if all(extent.found.committed is None for extent in extents):
            raise nothing_committed(self._settings)
        if count == 1 or not self._settings.filter.remembers:
            found = [await self._partition(extent) for extent in extents]
            return judged(self._settings, recipe.shard_capacity, found)
        watch = Watch()
        watch.hash = self._hash
        if not self._across:
            found = [await self._partition(extent, watch) for extent in extents]
            return judged(self._settings, recipe.shard_capacity, found, sampled(watch))
        self._size_bytes //= 2  # the other half is for the keys of all partitions
        keys = EmittedKeys(clock_of(recipe), size_bytes=self._size_bytes)
        with keys.sorter:
            found = [await self._partition(extent, watch, keys) for extent in extents]
            return judged(self._settings, recipe.shard_capacity, found, keys.compared(watch))

    async def _fixed(self, partition: int) -> Extent:
        own = await committed_offset(
            self._settings, self._cluster, partition, patience_s(self._settings), whose=WHOSE
        )
        return await fixed(
            self._settings, self._cluster, self._topology, partition, own, topics=self._written
        )

    async def _partition(
        self, extent: Extent, watch: Watch | None = None, keys: EmittedKeys | None = None
    ) -> PartitionCounts:
        clock, recipe, read = clock_of(self._recipe), self._recipe, 0

        def progress(topic: str, events: int) -> None:
            nonlocal read
            read += events
            place = f"partition {extent.partition} of {recipe.partitions}"
            self._on_progress(f"{place}: {read:,} events read, now {topic}")

        async def end_then(_: InputReader) -> int:
            return extent.found.input_end

        with Sorter(timed=clock is not None, size_bytes=self._size_bytes) as sorter:
            reading = Reading(self._cluster, self._hash, sorter, clock, watch, progress)
            at = InputPartition(self._source, extent.partition)
            inputs = [InputReader(reading, recipe, at, extent)]
            outputs = [OutputReader(reading, recipe, extent)]
            comparison = Comparison(self._settings, reading, self._topology, inputs, outputs)
            letters = letter_topics(self._settings.sink)
            await comparison.read({(t, at.number): extent.ends[t] for t in letters})
            from_latest = began_at_latest(self._settings, extent)
            due_from = first_read(sorter.parts()) if from_latest else 0
            matches = await comparison.matched(end_then, due_from)
            if keys:
                keys.add(extent.partition, comparison.rows())
            return await comparison.counted(matches, {str(at): extent}, across=keys is not None)
