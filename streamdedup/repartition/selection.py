"""Which topics the first stage reads: those that are named, or those that match a pattern and suit.

Anyone who may create a topic can make one that matches, so one that does not suit stops no other one: it is left out,
and looked at again. A topic that is named must suit.
"""

from collections.abc import Collection, Mapping, Sequence

import structlog

from streamdedup.errors import ConfigError
from streamdedup.kafka import old_format
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.topics import Topic, Topology
from streamdedup.repartition.foreign import Foreign, refuse_foreign
from streamdedup.repartition.inputs import topics_of
from streamdedup.repartition.middle import (
    Plan,
    add_way_out,
    described,
    input_problems,
    options_of,
    planned,
    refuse,
)
from streamdedup.settings import Settings
from streamdedup.settings.stages import copying

log = structlog.get_logger(__name__)


class Selection:
    """Chooses the inputs of a first stage; `settings` are those as written.

    `left_out` are the topics that match the pattern and are not read, each with the reason.
    """

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self._written, self._settings, self._cluster = settings, copying(settings), cluster
        self._foreign = Foreign(settings, cluster)
        self.left_out: Mapping[str, str] = {}

    async def plan(self) -> Plan:
        """Return what to begin with. Nothing is made. ConfigError if a topic that is named, or written, does not suit.

        ConfigError, too, if no topic that matches the pattern suits.
        """
        topology, inputs = await self._chosen()
        plan = await self._planned(topology, inputs)
        if self._written.source.pattern is None:
            for name in inputs:
                await self._check_format(topology[name])
        return plan

    async def chosen(self) -> tuple[str, ...]:
        """Return the topics to read, apart from those that do not suit if they match a pattern.

        ConfigError if a topic that is named is the middle topic of another deployment, or no other one suits.
        """
        _, inputs = await self._chosen()
        return inputs

    async def _chosen(self) -> tuple[Topology, tuple[str, ...]]:
        """Return the topics that are read and written, as far as they are there, and the names of the inputs."""
        names = await topics_of(self._written, self._cluster)
        topology = await described(self._settings, self._cluster, names)
        if self._written.source.pattern is None:
            await refuse_foreign(self._written, self._cluster, topology, names)
            return topology, names
        if suited := await self.suited(topology, names):
            return topology, suited
        problems = list[str]()
        problems.append(
            f"no topic that matches source.pattern: {self._written.source.pattern} suits, so there is nothing to read;"
            " resolve what follows, or choose another pattern"
        )
        problems += (f"{name}: {why}" for name, why in self.left_out.items())
        await self._refuse(problems, topology, names)
        raise ConfigError("\n".join(problems))

    async def suited(self, topology: Topology, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of `names`, which match the pattern, that suit; note and log the others.

        `topology` has the topics that are written, as far as they are there.
        """
        there = [name for name in names if name in topology.topics]
        foreign = await self._foreign.among(topology, there, may_wait=True)
        why = dict(foreign)
        for name in there:
            problems = input_problems(topology, self._settings, name)
            if problems and name not in foreign:
                why[name] = "; ".join(problems)
        before, self.left_out = self.left_out, why
        await self._report({name: text for name, text in why.items() if before.get(name) != text})
        return tuple(name for name in there if name not in why)

    async def _report(self, refused: Mapping[str, str]) -> None:
        """Log each of these, which were not left out before, or for another reason."""
        if not refused:
            return
        read_before = await self._cluster.topics_of(self._settings.kafka.group_id)
        for name, reason in refused.items():
            instead = (
                "it was read before, and is not read any more; once it suits, reading goes on at its offset"
                if name in read_before
                else "it is left out, and no event of it is read; the other inputs are"
            )
            log.warning(
                "input_refused",
                topic=name,
                reason=reason,
                instead=instead,
                remedy="resolve that, or choose a source.pattern that it does not match",
            )

    async def _check_format(self, topic: Topic) -> None:
        """ConfigError if the next event of a partition is in a format from before Kafka 0.11."""
        from_start = self._written.source.start == "earliest"
        group = self._settings.kafka.group_id
        await old_format.check(self._cluster, group, topic, from_start=from_start)

    async def _planned(self, topology: Topology, inputs: Sequence[str]) -> Plan:
        try:
            return planned(self._settings, topology, inputs)
        except ConfigError as error:
            await self._refuse([str(error)], topology, inputs)
            raise

    async def _refuse(
        self, problems: list[str], topology: Topology, inputs: Collection[str]
    ) -> None:
        """Raise one ConfigError that lists `problems`, and the way out if a middle topic is one that was never used."""
        if middle := topology.topics.get(options_of(self._settings).topic):
            there = [topology[name] for name in inputs if name in topology.topics]
            await add_way_out(problems, self._cluster, middle, there, self._written)
        refuse(problems)
