"""The stages of `source.repartition` as a worker runs them: the first stage beside the shards, or alone.

The first stage has a group of its own, so it has a consumer of its own, which must be kept alive, too.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Literal
from uuid import uuid4

import structlog

from streamdedup.delivery.leader_clocks import LeaderClocks
from streamdedup.delivery.not_passed import LastNotPassed
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.schemas import registry_of
from streamdedup.delivery.services import Services, wall_clock_ms
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster, Connect, Source, Sources
from streamdedup.kafka.broker_clock import BrokerClock
from streamdedup.kafka.client.patience import start_patiently
from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.topics import Topic, Topology, naming
from streamdedup.metrics.counts import Meters
from streamdedup.repartition import middle
from streamdedup.repartition.heads import Heads
from streamdedup.repartition.inputs import SHOWN_MAX, Inputs, PatternWatch
from streamdedup.repartition.offsets import TRANSACTION_S
from streamdedup.repartition.selection import Selection
from streamdedup.repartition.stage import Stage
from streamdedup.repartition.startup import (
    check_groups,
    check_may_join,
    check_owner,
    warn_of_former,
)
from streamdedup.repartition.unread import Unread
from streamdedup.server import Phase, Status, serving
from streamdedup.server.status import COPYING_TROUBLE, Copying
from streamdedup.settings import Settings
from streamdedup.settings.stages import copying, max_skew_ms
from streamdedup.threads import THE_WORKER, Threads
from streamdedup.version import __version__
from streamdedup.worker.doing import doing_of, nothing_to_save
from streamdedup.worker.group_watch import GroupWatch
from streamdedup.worker.input_watch import TURN_S as HELD_EVERY_S
from streamdedup.worker.input_watch import InputWatch
from streamdedup.worker.membership import Membership, leave_group
from streamdedup.worker.startup import (
    COMPILING_REMEDY,
    check_registry,
    compile_copying,
    deployed,
    in_clear,
)
from streamdedup.worker.tasks import beside, enduring, until_stopped
from streamdedup.worker.topic_watch import TopicWatch

log = structlog.get_logger(__name__)

Stages = Literal["both", "repartition", "deduplicate"]

OWNER_EVERY_S = 60.0
PROGRESS_EVERY_S = 60.0
LEAVING_S_MAX = 2.0
TRANSACTION_MS = round(TRANSACTION_S * 1000)


class Copier:
    """Runs the first stage; `settings` are those as written. `copying` is what the pages show of it."""

    def __init__(
        self,
        settings: Settings,
        meters: Meters,
        now_ms: Callable[[], int],
        threads: Threads,
        not_passed: LastNotPassed,
    ) -> None:
        self._written, self._settings = settings, copying(settings)
        self._options = middle.options_of(settings)
        self._meters, self._now_ms, self._threads = meters, now_ms, threads
        self._not_passed = not_passed
        self.copying = Copying(
            Status(self._settings.source.shown, {}, Meters()), self._options.topic
        )
        self._sources: Sources | None = None
        self._selection: Selection | None = None
        self._stage: Stage | None = None
        self._working: asyncio.Task[None] | None = None
        self.made = list[str]()  # the topics that this start made
        self._is_made = asyncio.Event()

    async def prepare(self, cluster: Cluster) -> middle.Plan:
        """Choose the inputs, and check groups and topics. ConfigError if something does not fit. Nothing is made."""
        await check_groups(self._written, cluster)
        await check_may_join(cluster, self._settings.kafka.group_id)
        if self._selection is None:
            self._selection = self.copying.selection = Selection(self._written, cluster)
        self._cluster, self._plan = cluster, await self._selection.plan()
        self._topology = self._plan.topology
        self._topics = self._plan.inputs
        known = (*self._topics, *self._selection.left_out)
        await warn_of_former(self._written, cluster, known)
        return self._plan

    async def middle(self) -> Topic:
        """Return the middle topic once it is there. A missing one is made once the first stage's group admits us."""
        if self._plan.missing:
            await self._is_made.wait()
        return self._topology[self._options.topic]

    async def check(self) -> None:
        """Ask the registry, and compile. ConfigError if it refuses us. Nothing is made."""
        cluster, self._recipe = self._cluster, Recipe(self._settings, self._options.partitions)
        await check_registry(registry_of(self._recipe), self.copying.status)
        most_ms = await cluster.transaction_ms_max()
        self._timeout_ms = min(TRANSACTION_MS, most_ms or TRANSACTION_MS)
        what = "its inner loops, which are compiled at the first start"
        await self._threads.memory.run(
            THE_WORKER, what, compile_copying, self._recipe, remedy=COMPILING_REMEDY
        )

    async def run(self) -> None:
        """Join the group, make the topics that are missing, and copy, until cancelled.

        DeliveryError if the group or a broker refuses us; ConfigError if a broker refuses to make a topic, or another
        group begins to read the middle topic.
        """
        recipe, cluster, status = self._recipe, self._cluster, self.copying.status
        settings = self._settings
        group, name = settings.kafka.group_id, recipe.meaning.name
        source = self._sources = cluster.sources(self._topics, name, group=group)
        status.member, status.cluster, status.phase = source, cluster, Phase.JOINING
        self.copying.sources = source
        loop = asyncio.get_running_loop()
        clocks = LeaderClocks(cluster, self._options.topic, BrokerClock(self._now_ms, loop.time))
        services = Services(
            cluster=cluster,
            clocks=clocks,
            source=Source(source, self._topics[0]),
            now_ms=self._now_ms,
            meters=status.meters,
            threads=self._threads,
            not_passed=self._not_passed,
        )
        instance = settings.kafka.group_instance_id or uuid4().hex
        writer = cluster.group_writer(
            f"{self._options.topic}/{instance}",
            settings.sink,
            timeout_ms=self._timeout_ms,
        )
        unread = Unread(
            cluster,
            self._written.kafka.group_id,
            self._options.topic,
            self._options.partitions,
            self._options.unread_max,
        )
        inputs = self._inputs = Inputs(settings, services, source, self._topics, self._meters_of)
        skew_ms = max_skew_ms(self._written)
        open_s = settings.delivery.open_transaction_s
        heads = None if skew_ms is None else Heads(cluster, group, skew_ms, open_s)
        stage = self._stage = Stage(
            recipe,
            services,
            inputs,
            writer,
            unread,
            heads=heads,
            deployment=self._written.kafka.group_id,
        )
        self.copying.stage, self.copying.unread = stage, unread
        watch = GroupWatch(cluster, source, group, name, status)
        is_pattern = settings.source.pattern is not None
        what = "the consumer of the first stage"
        membership = Membership(source, cluster.patience, what, status)
        log.info(
            "repartition_starts",
            source=settings.source.shown,
            topics=list(self._topics[:SHOWN_MAX]),
            middle=self._options.topic,
            partitions=self._options.partitions,
            group=group,
            transactional_id=f"{self._options.topic}/{instance}",
            max_skew_s=None if skew_ms is None else skew_ms / 1000,
            meaning=name,
            order="events of one key are in the order in which the input's partitions are read",
            **in_clear(settings),
        )
        async with beside(enduring("group", watch.run, self._meters)):
            await membership.join()
            while self._plan.missing and source.assigned is None:  # until the group admits us
                await membership.keep_alive()
            with naming(self.made):
                self._topology = await start_patiently(
                    lambda: middle.made(settings, cluster, self._plan, self.made),
                    "the middle topic",
                    cluster.patience,
                )
            self._is_made.set()
            topics = TopicWatch(
                cluster, self._topology, status, may_go=self._topics if is_pattern else ()
            )
            pattern = PatternWatch(
                self._written,
                cluster,
                inputs,
                self._topology,
                lambda now: topics.follow(now, inputs.topics),
                suited=self._suited,
            )
            status.phase = Phase.SERVING
            self._working = asyncio.create_task(stage.run())
            try:
                async with beside(
                    enduring("unread", unread.run, self._meters),
                    *([enduring("heads", heads.run, self._meters)] if heads else []),
                    enduring("topics", topics.run, self._meters, ends_by=(DeliveryError,)),
                    *([enduring("inputs", pattern.run, self._meters)] if is_pattern else []),
                    enduring("input", partial(self._watch_held, stage), self._meters),
                    enduring("middle", self._watch_owner, self._meters, ends_by=(ConfigError,)),
                ):
                    while True:
                        for each in (status, *self.copying.inputs.values()):
                            each.epoch = source.epoch
                        if self._working.done() and status.phase is not Phase.DRAINING:
                            self._working.result()
                        await membership.keep_alive()
            finally:
                self._working.cancel()
                await asyncio.wait([self._working], timeout=LEAVING_S_MAX)

    async def _suited(self, topology: Topology, names: Sequence[str]) -> Sequence[str]:
        return await self._selection.suited(topology, names) if self._selection else names

    def _status_of(self, topic: str) -> Status:
        """Return what the pages show of one input."""
        known = self.copying.inputs.get(topic)
        if known is None:
            known = Status(topic, {}, Meters(), epoch=self.copying.status.epoch)
            known.source = Source(self._sources, topic) if self._sources else None
            self.copying.inputs[topic] = known
        return known

    def _meters_of(self, topic: str) -> Meters:
        return self._status_of(topic).meters

    async def _watch_held(self, stage: Stage) -> None:
        """Watch, for each input, which of our partitions open transactions hold; until cancelled.

        Topics that are gone are forgotten, once the group has taken them from us.
        """
        after_s, watches = self._settings.delivery.open_transaction_s, dict[str, InputWatch]()
        while True:
            await asyncio.sleep(HELD_EVERY_S)
            for topic in self._gone():
                self.copying.forget(topic)
                watches.pop(topic, None)
            for topic, status in list(self.copying.inputs.items()):
                if status.source is None:
                    continue
                if topic not in watches:
                    read = partial(self._read_of, stage, topic)
                    watches[topic] = InputWatch(self._cluster, status.source, status, after_s, read)
                await watches[topic].look()

    def _gone(self) -> set[str]:
        """Return the topics that are shown, and are inputs no more."""
        if (assigned := self.copying.assigned) is None:
            return set()
        return self.copying.inputs.keys() - {*self._inputs.topics, *(p.topic for p in assigned)}

    def _read_of(self, stage: Stage, topic: str) -> dict[int, bool]:
        """Return our partitions of `topic`, each with whether it is read now."""
        ours = [p for p in self.copying.assigned or () if p.topic == topic]
        return {p.number: stage.copying and p not in stage.stopped for p in ours}

    async def _watch_owner(self) -> None:
        """Look now and then whether another group has begun to read the middle topic; one member does, for all."""
        while True:
            await asyncio.sleep(OWNER_EVERY_S)
            first = InputPartition(self._inputs.topics[0], 0)
            if first not in (self.copying.assigned or ()):
                continue
            async with asyncio.timeout(ANSWER_S_MAX):
                await check_owner(self._cluster, self._options.topic, self._written.kafka.group_id)

    async def drain(self, within_s: float) -> None:
        """Finish the transaction in hand, and copy nothing more. The membership lasts until `end`."""
        self.copying.status.phase = Phase.DRAINING
        if self._stage is not None and self._working is not None:
            self._stage.leave()
            await asyncio.wait([self._working], timeout=within_s)

    async def end(self, within_s: float) -> None:
        """Release the producer, and leave the group."""
        if self._stage is not None:
            await self._stage.drop()
        if self._sources is not None:
            await leave_group(self._sources, within_s)
        log.info("repartition_ends", copied=self.copying.copied)


class CopyingWorker:
    """A process that runs the first stage alone, with the interface of `Worker`."""

    def __init__(
        self,
        settings: Settings,
        connect: Connect = kafka_cluster,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._settings, self._connect = settings, connect
        self._threads = Threads()
        meters = Meters()
        self._status = status = Status(
            settings.source.shown, {}, meters, judges=False, deployed=deployed(settings)
        )
        self._copier = Copier(settings, meters, now_ms, self._threads, status.not_passed)
        self._status.copying = self._copier.copying
        self._stop = asyncio.Event()
        self.doing = doing_of(
            settings,
            connect,
            status.lists,
            snapshot=nothing_to_save,
            stop=self.stop,
            loader=lambda: None,
        )

    @property
    def status(self) -> Status:
        """The worker's status, which the pages of the server show."""
        return self._status

    @property
    def hangs(self) -> bool:
        """Whether a thread is still running."""
        return self._threads.busy

    def stop(self) -> None:
        """Have `run` drain and return."""
        self._status.phase = Phase.DRAINING
        self._stop.set()

    def reload(self) -> None:
        """Do nothing: there are no lists in this stage."""

    async def run(self) -> None:
        """Copy until `stop` is called.

        ConfigError if settings or topics do not fit: before the group is joined, but for topics that are made once it
        has admitted the worker. DeliveryError if the broker or the group refuses it.
        """
        drain_s = self._settings.delivery.drain_s
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(
                serving(self._settings.server, self._status, self.doing)
            )
            await until_stopped(
                self._work(stack),
                self._stop,
                drain_s=drain_s,
                drain=lambda: self._copier.drain(drain_s / 2),
                end=lambda _: self._copier.end(drain_s / 4),
            )

    async def _work(self, stack: AsyncExitStack) -> None:
        kafka = self._settings.kafka
        log.info("connecting", version=__version__, bootstrap_servers=kafka.bootstrap_servers)
        cluster = await stack.enter_async_context(self._connect(kafka))
        self._status.cluster = cluster
        copier = self._copier
        await start_patiently(lambda: copier.prepare(cluster), "the topics", cluster.patience)
        await copier.check()
        self._status.phase = Phase.SERVING
        async with beside(self._log_progress()):
            await self._copier.run()

    async def _log_progress(self) -> None:
        """Log a line every PROGRESS_EVERY_S seconds, as a worker with both stages does; until cancelled."""
        copying = self._copier.copying
        while True:
            await asyncio.sleep(PROGRESS_EVERY_S)
            progress = copying.progress
            log_progress = log.warning if COPYING_TROUBLE & progress.keys() else log.info
            log_progress("progress", **progress, partitions=len(copying.assigned or ()))
