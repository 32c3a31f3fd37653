"""The middle topics of other deployments, which must not be read: their workers end if another group has offsets there.

A middle topic is known by the notes of the group that reads it, and by the origin at the end of its last event. Notes
are there only once the second stage has committed, and if we may see its group. Anyone who may write to a topic can
forge an origin, so that counts only if the topic also has settings that every middle topic has, and nobody but its
owner can set. A topic that was just made as a middle topic is, and holds nothing yet, shows neither: under a pattern it
waits for its first event.

Each topic is looked at once, and all groups once for all topics that are new.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing

from streamdedup.errors import DeliveryError
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.log import TrimmedError
from streamdedup.kafka.records import origin_header
from streamdedup.kafka.topics import READ, Topic, Topology
from streamdedup.repartition.middle import is_as_made, refuse, wrong_settings
from streamdedup.settings import Settings
from streamdedup.settings.stages import copying_group

# Of a topic, so many offsets before the end of so many partitions are looked at: markers take offsets, too.
OFFSETS_MAX, PARTITIONS_MAX = 16, 16
STALL_S = 5.0
AT_ONCE = 4  # topics whose last events are read
_END = "the workers of that deployment end if others read it"
WAITS = (
    "it was made as a middle topic of source.repartition is, and holds no event: its first event decides whether"
    " it belongs to another deployment; if not, it is read from that event on"
)


class Foreign:
    """Which topics are middle topics of other deployments than that of `settings` (as written)."""

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self._cluster = cluster
        group = settings.kafka.group_id
        self._reads = copying_group(settings) if settings.source.repartition else group
        self._ours = {group, copying_group(settings)}
        self._known: dict[tuple[str, str | None], str | None] = {}  # by name and id: why not
        self._waiting = set[tuple[str, str | None]]()

    async def among(
        self, topology: Topology, names: Collection[str], *, may_wait: bool
    ) -> Mapping[str, str]:
        """Return those of `names` that are middle topics of others, each with a text that says whose.

        With `may_wait`, also those of which that is not known yet.
        """
        topics = {name: topology[name] for name in names}
        keys = {name: (name, topic.topic_id) for name, topic in topics.items()}
        self._known = {key: self._known[key] for key in keys.values() if key in self._known}
        new = {name: topic for name, topic in topics.items() if keys[name] not in self._known}
        waiting = await self._empty([t for name, t in new.items() if keys[name] in self._waiting])
        found = await self._look([topic for name, topic in new.items() if name not in waiting])
        if may_wait:
            waiting |= await self._empty([new[name] for name, whose in found.items() if not whose])
        self._waiting = {keys[name] for name in waiting}
        self._known |= {keys[name]: why for name, why in found.items() if name not in waiting}
        why = {name: self._known.get(keys[name]) for name in topics} | dict.fromkeys(waiting, WAITS)
        return {name: text for name, text in why.items() if text is not None}

    async def _empty(self, topics: Collection[Topic]) -> set[str]:
        """Return those that were made as a middle topic is, and hold no event: a purge may have deleted all."""
        made = [topic for topic in topics if is_as_made(topic) and topic.may(READ)]
        async with asyncio.timeout(ANSWER_S_MAX):
            return {topic.name for topic in made if await self._holds_nothing(topic)}

    async def _holds_nothing(self, topic: Topic) -> bool:
        for partition in range(topic.partitions):
            first = await self._cluster.first_offset(topic.name, partition)
            if first < await self._cluster.end_offset(topic.name, partition):
                return False
        return True

    async def _look(self, topics: Sequence[Topic]) -> dict[str, str | None]:
        """Return for each topic why it is a middle topic of others; None if it is none.

        Groups are asked only if one of the topics may be a middle by its settings.
        """
        if not any(map(may_be_middle, topics)):
            return {topic.name: None for topic in topics}
        async with asyncio.timeout(ANSWER_S_MAX):
            readers = await self._cluster.middles(self._ours)
            read_before = await self._cluster.topics_of(self._reads)
        permits = asyncio.Semaphore(AT_ONCE)

        async def whose(topic: Topic) -> str | None:
            if group := readers.get(topic.name):
                return self._by_notes(group, topic.name in read_before)
            if topic.name in read_before or not _may_be_read_for_origins(topic):
                return None
            async with permits:
                group = await self._copied_by(topic)
            return group and _by_origin(group)

        found = await asyncio.gather(*map(whose, topics))
        return {topic.name: text for topic, text in zip(topics, found, strict=True)}

    def _by_notes(self, group: str, is_read: bool) -> str:
        ours = (
            f"; delete the offsets of our group {self._reads} on it (kafka-consumer-groups.sh --delete-offsets), or the"
            f" workers of {group} do not start"
            if is_read
            else ""
        )
        return (
            f"the group {group} reads it as its middle topic (source.repartition), and {_END}{ours}"
        )

    async def _copied_by(self, topic: Topic) -> str | None:
        """Return the group, not ours, that the origin of the last event names; None if it has no origin.

        That is the last one of the first partition that has events near its end.
        """
        for partition in range(min(topic.partitions, PARTITIONS_MAX)):
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    has_event, group = await self._last_origin(topic.name, partition)
            except TrimmedError:  # its owner has purged it meanwhile
                continue
            except DeliveryError:  # it cannot be read, so nobody else's workers read it either
                return None
            if has_event:
                return None if group in self._ours else group
        return None

    async def _last_origin(self, topic: str, partition: int) -> tuple[bool, str | None]:
        """Return whether there is an event among the last offsets, and the group that the origin of the last names."""
        start = await self._cluster.first_offset(topic, partition)
        end = await self._cluster.stable_offset(topic, partition)
        start, has_event, group = max(start, end - OFFSETS_MAX), False, None
        events = self._cluster.committed_events(topic, partition, start, end, stall_s=STALL_S)
        async with aclosing(events) as batches:
            async for batch in batches:
                if len(batch):
                    has_event, group = True, origin_header.group_of(batch, len(batch) - 1)
        return has_event, group


def _may_be_read_for_origins(topic: Topic) -> bool:
    """Return whether a topic may be a middle by its settings, as far as these are known, and we may read it."""
    return bool(topic.settings) and not any(wrong_settings(topic)) and topic.may(READ)


def _by_origin(group: str) -> str:
    return (
        f"its last event is a copy of the group {group}, as the header {origin_header.ORIGIN} says, so it is the middle"
        f" topic of that group, and {_END}"
    )


def may_be_middle(topic: Topic) -> bool:
    """Return whether a topic may be somebody's middle topic, by its settings: true if they are not known."""
    return not any(wrong_settings(topic))


async def refuse_foreign(
    settings: Settings, cluster: Cluster, topology: Topology, names: Collection[str]
) -> None:
    """ConfigError if one of `names`, which the configuration names, is a middle topic of another deployment.

    `settings` are those as written. Topics that are not there are not looked at.
    """
    there = [name for name in names if name in topology.topics]
    problems, found = list[str](), Foreign(settings, cluster).among(topology, there, may_wait=False)
    for name, why in (await found).items():
        problems.append(
            f"the topic {name} cannot be an input: {why}; name another topic, or, if that deployment is gone, delete"
            " the topic, or the offsets of its group on it"
        )
    refuse(problems)
