"""What the brokers and the disk say, each asked once, however many checks need it.

Each question has a connection of its own: a broker answers the requests of one connection in their order, so that one
answer that never comes would hold up all others.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ParamSpec, TypeVar

from typing_extensions import override

from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.topics import check_topics
from streamdedup.kafka.base import Cluster, Connect
from streamdedup.kafka.brokers import Broker
from streamdedup.kafka.groups import InForce
from streamdedup.kafka.offsets import Committed
from streamdedup.kafka.topics import Topic, Topology, sink_topics
from streamdedup.repartition.inputs import topics_of
from streamdedup.repartition.selection import Selection
from streamdedup.repartition.startup import (
    check_groups,
    check_may_join,
    check_not_staged,
    check_purge,
    check_unstaged,
)
from streamdedup.settings import Settings
from streamdedup.settings.stages import copying_group, deduplicating

P = ParamSpec("P")
T = TypeVar("T")

ANSWER_S_MAX = 10.0  # a check without an answer by then is unknown
AT_ONCE = 16  # questions about single partitions


@dataclass(frozen=True, slots=True)
class Extents:
    """The ends of a topic's partitions, by number, of those that answered: log start, last stable offset, end."""

    first: Mapping[int, int]
    stable: Mapping[int, int]
    end: Mapping[int, int]


class MissingError(Exception):
    """A topic is not there, or may not be seen; another check says so."""

    def __init__(self, topic: str, *, hidden: bool) -> None:
        super().__init__(topic)
        self.topic, self.hidden = topic, hidden


class Facts:
    """The answers for one deployment. `written` are its settings as written; `close` it at the end.

    `settings` are those of the shards: with `source.repartition`, of the second stage.
    """

    def __init__(self, written: Settings, connect: Connect) -> None:
        self.written, self._connect = written, connect
        self.staged = written.source.repartition is not None
        self.settings = deduplicating(written) if self.staged else written
        self._asked: dict[str, asyncio.Task[Any]] = {}

    @classmethod
    def knowing(cls, settings: Settings, connect: Connect, topology: Topology) -> "Facts":
        """Return the facts for shards of these `settings`; `topology` has their topics, those to be made among them."""
        facts = cls(settings, connect)
        facts.staged, facts.settings = False, settings
        there = {
            name: topic
            for name, topic in topology.topics.items()
            if topic.topic_id or topic.settings or topic.placed
        }
        known = replace(topology, topics=there)
        for name, fact in (("inputs", (settings.source.topic,)), ("topology", known)):
            facts._asked[name] = asyncio.create_task(_known(fact))
        return facts

    async def close(self) -> None:
        """Cancel what is still being asked."""
        for task in self._asked.values():
            task.cancel()
        for task in self._asked.values():
            with suppress(asyncio.CancelledError, Exception):
                await task

    @property
    def groups(self) -> Sequence[str]:
        """The consumer groups: that of the shards, and of the first stage, if there is one."""
        own = self.written.kafka.group_id
        return (own, copying_group(self.written)) if self.staged else (own,)

    async def once(self, name: str, ask: Callable[[Cluster], Awaitable[T]]) -> T:
        """Return what `ask` returns over a connection of its own, the same for all that ask for `name`.

        TimeoutError if there is none within ANSWER_S_MAX.
        """
        if name not in self._asked:
            self._asked[name] = asyncio.create_task(self._answer(ask))
            self._asked[name].add_done_callback(_retrieved)
        answer: T = await asyncio.shield(self._asked[name])
        return answer

    async def _answer(self, ask: Callable[[Cluster], Awaitable[T]]) -> T:
        async with asyncio.timeout(ANSWER_S_MAX), self._connect(self._options) as cluster:
            return await ask(cluster)

    @cached_property
    def _options(self) -> Any:  # noqa: ANN401 - the options of `kafka`
        return self.written.kafka.model_copy(update={"give_up_after_s": None})

    async def brokers(self) -> Sequence[Broker]:
        """Return the brokers."""
        return await self.once("brokers", lambda cluster: cluster.brokers())

    async def inputs(self) -> tuple[str, ...]:
        """Return the names of the inputs. ConfigError if a pattern matches none."""
        return await self.once("inputs", lambda cluster: topics_of(self.written, cluster))

    async def topology(self) -> Topology:
        """Return the topics of this deployment that are there: inputs, middle topic, and those that are written."""
        inputs = await self.inputs()
        names = dict.fromkeys(
            [*inputs, self.settings.source.topic, *sink_topics(self.settings.sink)]
        )
        return await self.once("topology", lambda cluster: cluster.describe(list(names)))

    async def topic(self, name: str) -> Topic:
        """Return a topic that is there. MissingError if it is not."""
        found = await self.topology()
        if name not in found.topics:
            raise MissingError(name, hidden=name in found.hidden)
        return found[name]

    async def source(self) -> Topic:
        """Return the topic that the shards read. MissingError if it is not there."""
        return await self.topic(self.settings.source.topic)

    async def output(self) -> Topic:
        """Return the output. MissingError if it is not there."""
        return await self.topic(self.settings.sink.topic)

    async def planned(self) -> Topology:
        """Return the topics, those that a start would make among them. ConfigError if a start would be refused."""
        return await self.once("planned", self._planned)

    async def _planned(self, cluster: Cluster) -> Topology:
        settings = self.written
        if not self.staged:
            await check_not_staged(settings, cluster)
            return await check_unstaged(settings, cluster)
        await check_groups(settings, cluster)
        await check_may_join(cluster, settings.kafka.group_id, copying_group(settings))
        plan = await Selection(settings, cluster).plan()
        middle = plan.topology[self.settings.source.topic]
        topology = await check_topics(self.settings, cluster, middle, plan.like)
        check_purge(middle)
        return topology

    async def extents(self, topic: str) -> Extents:
        """Return the ends of a topic's partitions. MissingError if it is not there."""
        numbers = range((await self.topic(topic)).partitions)

        async def ask(cluster: Cluster) -> Extents:
            # The start before the end, so that no partition seems to end before its start.
            first = await cluster.first_offsets(topic, numbers)
            stable = await cluster.stable_offsets(topic, numbers)
            return Extents(first, stable, await cluster.end_offsets(topic, numbers))

        return await self.once(f"extents of {topic}", ask)

    async def readings(self) -> list[tuple[str, str]]:
        """Return which group reads which topic; with `source.repartition`, the first stage's readings first."""
        own = (self.settings.kafka.group_id, self.settings.source.topic)
        if not self.staged:
            return [own]
        copying = copying_group(self.written)
        return [*((copying, name) for name in await self.inputs()), own]

    async def committed(self) -> Mapping[int, Committed]:
        """Return the committed offsets of the shards' group, by partition, decided or not. MissingError as `source`."""
        return await self.committed_on(self.settings.kafka.group_id, self.settings.source.topic)

    async def committed_on(self, group: str, topic: str) -> Mapping[int, Committed]:
        """Return the committed offsets of a group on a topic, by partition, decided or not.

        MissingError if the topic is not there.
        """
        numbers = range((await self.topic(topic)).partitions)
        return await self.once(
            f"committed of {group} on {topic}",
            lambda cluster: cluster.committed_all(group, topic, numbers, stable=False),
        )

    async def in_force(self, group: str) -> InForce:
        """Return the members of a group, and what it goes by."""
        return await self.once(f"members of {group}", lambda cluster: cluster.in_force(group))

    async def recipe(self) -> Recipe:
        """Return what shards derive from the settings; for as many partitions as there are or will be."""
        name = self.settings.source.topic
        repartition = self.written.source.repartition
        return Recipe(
            self.settings,
            repartition.partitions if repartition else (await self.topic(name)).partitions,
        )


async def _known(fact: T) -> T:
    return fact


def _retrieved(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()  # the check that waited for it may have given up


async def for_each(numbers: Collection[int], ask: Callable[[int], Awaitable[T]]) -> dict[int, T]:
    """Return what `ask` returns for each number; at most AT_ONCE are asked at a time."""
    permits = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> T:
        async with permits:
            return await ask(number)

    found = await asyncio.gather(*map(one, numbers))
    return dict(zip(numbers, found, strict=True))


class _Abandoned(Executor):
    """Runs each call in a thread of its own, which the end of the process does not wait for: a disk may be dead."""

    @override
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # so that nobody cancels it while the thread runs

        def run() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, daemon=True, name="doctor").start()
        return future


async def in_thread(call: Callable[[], T]) -> T:
    """Return what `call` returns in a thread. If this is cancelled, the thread is left alone."""
    return await asyncio.get_running_loop().run_in_executor(_Abandoned(), call)
