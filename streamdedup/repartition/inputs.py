"""The inputs: which topics the first stage reads, and for each of them what reads and counts it.

They are named one by one, or by a pattern, whose topics are looked up at the start and now and then. A topic that the
deployment itself writes or reads otherwise is never an input: it would be a loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace

import structlog

from streamdedup.delivery.consume import InputReader
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.services import Services
from streamdedup.errors import ConfigError
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster, Source, Sources
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.topic_pattern import topic_pattern
from streamdedup.kafka.topics import Topic, Topology, sink_topics
from streamdedup.metrics.counts import Meters, ShardMeters
from streamdedup.repartition.middle import all_of, options_of
from streamdedup.settings import Settings
from streamdedup.settings.stages import copying, of_input

log = structlog.get_logger(__name__)

SHOWN_MAX = 10  # topics in one line


async def topics_of(settings: Settings, cluster: Cluster) -> tuple[str, ...]:
    """Return the topics to read, in order of the alphabet. `settings` are those as written.

    ConfigError if the pattern matches none.
    """
    source = settings.source
    if source.named is not None:
        return source.named
    if found := await _matching(settings, cluster, settings.own_topics):
        return found
    raise ConfigError(
        f"no topic matches source.pattern: {source.pattern}, or none that may be seen; it must match the whole name,"
        " and never matches a topic that this deployment writes, nor one with __; check it, or create the topic"
    )


async def _matching(settings: Settings, cluster: Cluster, own: Collection[str]) -> tuple[str, ...]:
    """Return the topics that the pattern matches. Many new names take their time, so there is no limit to that."""
    async with asyncio.timeout(ANSWER_S_MAX):
        listed = await cluster.topic_names()
    names = [name for name in listed if not name.startswith("__") and name not in own]
    return tuple(await topic_pattern(settings.source.pattern or "").matching(names))


async def like_all(settings: Settings, cluster: Cluster) -> Topic | None:
    """Return the inputs as if they were one topic (`middle.all_of`); None if none may be seen."""
    names = settings.source.named or await _matching(settings, cluster, settings.own_topics)
    async with asyncio.timeout(ANSWER_S_MAX):
        return all_of(await cluster.describe(names), names)


class Inputs:
    """The topics that this process reads as a member of the first stage's group."""

    def __init__(
        self,
        settings: Settings,
        services: Services,
        sources: Sources,
        topics: Sequence[str],
        meters_of: Callable[[str], Meters],
    ) -> None:
        """`settings` are those of the stage; `services` are what the readers of all topics share."""
        self.sources, self.topics = sources, tuple(topics)
        self._settings, self._services, self._meters_of = settings, services, meters_of
        self._readers: dict[InputPartition, InputReader] = {}

    @property
    def lag(self) -> int:
        """How much of the partitions that are assigned is not copied yet: offsets that are not read, events in hand."""
        return sum(
            Source(self.sources, p.topic).lag(p.number) + self.meters(p).in_flight
            for p in self.sources.assigned or ()
        )

    def meters(self, partition: InputPartition) -> ShardMeters:
        """Return the counts of `partition`."""
        return self._meters_of(partition.topic).of(partition.number)

    def hold(self, partition: InputPartition) -> None:
        """Fetch nothing from `partition` until its reader begins."""
        self.sources.hold(partition)

    def reader(self, partition: InputPartition) -> InputReader:
        """Return the reader of `partition`, the same for as long as its topic is read."""
        known = self._readers.get(partition)
        if known is None:
            topic = partition.topic
            services = replace(
                self._services, source=Source(self.sources, topic), meters=self._meters_of(topic)
            )
            recipe = Recipe(of_input(self._settings, topic), options_of(self._settings).partitions)
            known = self._readers[partition] = InputReader(recipe, services, partition.number)
        return known

    def subscribe(self, topics: Sequence[str]) -> None:
        """Read these topics from now on. The group assigns anew. Readers of other topics are forgotten."""
        self.topics, names = tuple(topics), frozenset(topics)
        self._readers = {p: reader for p, reader in self._readers.items() if p.topic in names}
        self.sources.subscribe(topics)


class PatternWatch:
    """Has `inputs` follow `source.pattern`: topics come and go, and a topic that was made again is assigned anew.

    A topic that does not suit is left out, so that it stops no other one. `on_change` gets the topics that are read
    from then on, and those that are written.
    """

    TURN_S = 10.0

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        inputs: Inputs,
        topology: Topology,
        on_change: Callable[[Topology], None],
        *,
        suited: Callable[[Topology, Sequence[str]], Awaitable[Sequence[str]]],
    ) -> None:
        """`settings` are those as written; `topology` has the topics as they are read now.

        `suited` returns which topics may be read (`Selection.suited`).
        """
        self._settings, self._cluster, self._inputs = copying(settings), cluster, inputs
        self._own, self._suited, self._on_change = settings.own_topics, suited, on_change
        self._written, self._known = sink_topics(self._settings.sink), topology

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(self.TURN_S)
            await self.look()

    async def look(self) -> None:
        """Compare the topics with those that are read. If none is left, the last ones are kept: they may come back."""
        before, known = self._inputs.topics, self._known
        found = await _matching(self._settings, self._cluster, self._own)
        async with asyncio.timeout(ANSWER_S_MAX):
            now = await self._cluster.describe([*found, self._settings.sink.topic])
        written = {name: known[name] for name in self._written}
        topics = await self._suited(Topology(now.cluster_id, {**written, **now.topics}), found)
        remade = [name for name in topics if name in before and self._is_remade(now, name)]
        if (tuple(topics) == before and not remade) or not topics:
            return
        log.info(
            "inputs_changed",
            topics=len(topics),
            came=[name for name in topics if name not in before][:SHOWN_MAX],
            went=[name for name in before if name not in topics][:SHOWN_MAX],
            made_again=remade[:SHOWN_MAX],
        )
        # Those that are written stay as they were: if one was made again, that is noticed by its watch.
        self._known = Topology(now.cluster_id, {**{name: now[name] for name in topics}, **written})
        self._inputs.subscribe(topics)
        self._on_change(self._known)

    def _is_remade(self, now: Topology, name: str) -> bool:
        return now[name].topic_id != self._known[name].topic_id
