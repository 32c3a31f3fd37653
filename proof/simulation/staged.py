"""Deployments with `source.repartition`: what happens to them, and what must hold across all partitions."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from unittest.mock import patch

from aiokafka.partitioner import murmur2
from typing_extensions import override

from proof.simulation.driver import Driver
from proof.simulation.oracle import BreachError
from proof.simulation.plan import GROUP, MIDDLE, PLACES
from proof.simulation.world import World
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.records.origin_header import ORIGIN
from streamdedup.repartition import purge
from streamdedup.testing import Logged

COPYING_GROUP = f"{GROUP}-repartition"
PURGE_EVERY_S = 0.3
POSITIVE = 0x7FFFFFFF


class StagedOracle:
    """Knows what the input holds. `again`: copies or offsets were taken back, so what is not judged may pass twice."""

    def __init__(self, world: World) -> None:
        self._world, self._plan = world, world.plan
        self.again = False

    def check_now(self) -> None:
        """At any moment: no key twice, nothing foreign, everything in its place, no origin left on and none missing."""
        output = [event for place in range(PLACES) for event in self._emitted("out", place)]
        if any(name == ORIGIN for event in output for name, _ in event.headers):
            raise BreachError("an origin was left on in the output")
        if {event.key for event in output} - {event.key for event in self._fed()}:
            raise BreachError("a key of the output is foreign")
        twice = [
            key
            for (key, value_is_null), times in Counter(map(_who, output)).items()
            if times > 1 and not (value_is_null and self.again)
        ]
        if twice and self._plan.exactly_once:
            raise BreachError(f"{len(twice)} of {len(output)} events of the output are there again")
        for place in range(PLACES) if MIDDLE in self._world.broker.topics else ():
            for event in self._emitted(MIDDLE, place):
                if not event.headers or event.headers[-1][0] != ORIGIN:
                    raise BreachError(f"a copy has no origin: {MIDDLE}/{place} {event.offset}")

    def check_end(self) -> None:
        """When all is read: each key that the input holds has passed, and each event that is not judged."""
        self.check_now()
        output = Counter(
            _who(event) for place in range(PLACES) for event in self._emitted("out", place)
        )
        if lost := {_who(event) for event in self._fed()} - output.keys():
            raise BreachError(f"{len(lost)} keys were lost")

    def caught_up(self) -> bool:
        """Whether both groups have committed that all events are read, of the topics that there are now."""
        topics = self._world.broker.topics
        if MIDDLE not in topics:
            return False
        logs = (*topics[MIDDLE].logs, *topics["out"].logs)
        return all(log.stable == log.end for log in logs) and all(
            self._is_read(group, topic) for group, topic in ((COPYING_GROUP, "in"), (GROUP, MIDDLE))
        )

    def offsets(self, group: str, topic: str) -> dict[int, int]:
        """The group's offsets of this very topic, and of the topic that it writes now, by partition."""
        broker = self._world.broker
        written = MIDDLE if topic == "in" else "out"
        ids = tuple(
            broker.topics[name].topic.topic_id if name in broker.topics else None
            for name in (topic, written)
        )
        return {
            partition: offset
            for (name, partition), (offset, text) in broker.group(group).offsets.items()
            if name == topic
            and ((note := Note.decode(text)) is None or (note.input_id, note.output_id) == ids)
        }

    def _is_read(self, group: str, topic: str) -> bool:
        at, broker = self.offsets(group, topic), self._world.broker
        return all(
            not (events := log.committed()) or at.get(partition, 0) > events[-1].offset
            for partition, log in enumerate(broker.topics[topic].logs)
        )

    def _fed(self) -> Iterator[Logged]:
        for log in self._world.broker.topics["in"].logs:
            yield from log.committed()

    def _emitted(self, topic: str, place: int) -> list[Logged]:
        """The events of a partition whose keys choose it; else it is a breach."""
        events = self._world.broker.log(topic, place).committed()
        for event in events:
            if event.key is not None and (murmur2(event.key) & POSITIVE) % PLACES != place:
                raise BreachError(f"a key is out of place: {topic}/{place} {event.offset}")
        return events


class StagedDriver(Driver):
    """The faults are those of one stage, where they make sense, and what may happen to groups and middle topic."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._staged = StagedOracle(world)
        self._faults |= {
            "first offsets back": self._first_offsets_back,
            "second offsets back": self._second_offsets_back,
            "first group deleted": lambda: self._deleted(COPYING_GROUP),
            "second group deleted": lambda: self._deleted(GROUP),
            "middle deleted": self._middle_deleted,
            "middle trimmed": self._middle_trimmed,
            "input grown": self._input_grown,
        }

    @override
    async def run(self) -> None:
        with patch.object(purge, "EVERY_S", PURGE_EVERY_S):
            await super().run()

    @override
    def _check(self) -> None:
        self._staged.check_now()
        self._refuse_stops()

    @override
    def _check_end(self) -> None:
        self._staged.check_end()

    @override
    def _is_done(self) -> bool:
        for machine in self._world.machines:  # each stage has to run
            if not machine.runs:
                machine.start()
        return self._staged.caught_up()

    @override
    def _create_topics(self) -> None:
        self._world.broker.create_topic("in", self._world.partitions)
        self._world.broker.create_topic("out", PLACES)

    @override
    def _partition_of(self, number: int) -> int:
        return self._chance.randrange(len(self._world.broker.topics["in"].logs))

    async def _first_offsets_back(self) -> None:
        await self._empty_groups()
        self._staged.again = True
        self._move_back(COPYING_GROUP, "in")

    async def _second_offsets_back(self) -> None:
        await self._empty_groups()
        self._staged.again = True
        if MIDDLE in self._world.broker.topics:
            self._move_back(GROUP, MIDDLE)

    def _move_back(self, group: str, topic: str) -> None:
        broker = self._world.broker
        starts = {p: broker.log(topic, p).start for p in range(len(broker.topics[topic].logs))}
        at = self._staged.offsets(group, topic)
        back = {p: self._chance.randint(min(starts[p], o), o) for p, o in at.items()}
        broker.move_offsets(group, topic, back)

    async def _deleted(self, group: str) -> None:
        await self._empty_groups()
        self._staged.again = True
        self._world.broker.delete_group(group)

    async def _middle_deleted(self) -> None:
        """Every worker ends, or an operator stops it; who starts next makes the topic again."""
        await self._empty_groups()
        self._staged.again = True
        if MIDDLE in self._world.broker.topics:
            self._world.broker.delete_topic(MIDDLE, with_offsets=self._chance.random() < 0.5)

    def _middle_trimmed(self) -> None:
        """Up to what the second stage has committed, as its purge does."""
        broker = self._world.broker
        if MIDDLE in broker.topics:
            for place, offset in self._staged.offsets(GROUP, MIDDLE).items():
                broker.log(MIDDLE, place).trim(offset)

    def _input_grown(self) -> None:
        broker = self._world.broker
        broker.add_partitions("in", len(broker.topics["in"].logs) + 1)

    async def _empty_groups(self) -> None:
        """Both at once: a request to join that was late may come while the other group is waited for."""
        await self._empty_group()
        broker = self._world.broker
        while broker.members(GROUP) or broker.members(COPYING_GROUP):
            await asyncio.sleep(0.1)


def _who(event: Logged) -> tuple[bytes | None, bool]:
    """By what an event is known, and whether it is one that is not judged."""
    return event.key, event.value is None
