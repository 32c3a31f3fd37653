"""The worker's life: prepare -> join -> supervise -> shut down.

The supervisor only follows assignments, keeps the group membership alive, and takes snapshots when they are due. Each
shard runs in a task of its own.
"""

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

import structlog

from streamdedup.delivery.cross_partition import REMEDY
from streamdedup.delivery.fold import LOG_ANSWER_S_MAX
from streamdedup.delivery.leader_clocks import LeaderClocks
from streamdedup.delivery.lifecycle import Delivery, State
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.schemas import registry_of
from streamdedup.delivery.services import Services, wall_clock_ms
from streamdedup.delivery.snapshots import check_directory, writable
from streamdedup.delivery.topics import check_topics, made_topics
from streamdedup.doctor.examine import log_at_start
from streamdedup.errors import DeliveryError
from streamdedup.events import Verdict
from streamdedup.kafka.base import Cluster, Connect, Source
from streamdedup.kafka.broker_clock import BrokerClock
from streamdedup.kafka.client.patience import start_patiently
from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.kafka.topics import Topic, Topology, naming
from streamdedup.keys.hashing import SYSTEM, RandomSource
from streamdedup.logs import RateLimit
from streamdedup.metrics.counts import Meters, Tally
from streamdedup.metrics.forecast import grows_s, is_ever_full
from streamdedup.metrics.prevalence import REMEDIES, SHOWN_MAX, fates
from streamdedup.repartition.inputs import like_all
from streamdedup.repartition.purge import Purge
from streamdedup.repartition.startup import (
    await_middle,
    check_groups,
    check_may_join,
    check_not_staged,
    check_purge,
    check_unstaged,
)
from streamdedup.repartition.uncopied import Uncopied
from streamdedup.server import Phase, Status, serving
from streamdedup.server.doing import Done
from streamdedup.server.status import COPYING_TROUBLE
from streamdedup.settings import Settings
from streamdedup.settings.stages import deduplicating
from streamdedup.snapshot.files import FileSystem
from streamdedup.threads import THE_WORKER, Threads
from streamdedup.version import __version__
from streamdedup.worker.assignment import Assignment
from streamdedup.worker.doing import doing_of, nothing_to_save, saving
from streamdedup.worker.group_watch import GroupWatch
from streamdedup.worker.input_watch import InputWatch
from streamdedup.worker.lists import ListLoader
from streamdedup.worker.membership import Membership, leave_group
from streamdedup.worker.output_watch import OutputWatch
from streamdedup.worker.retention_watch import RetentionWatch
from streamdedup.worker.staged import PROGRESS_EVERY_S, Copier
from streamdedup.worker.startup import (
    COMPILING_REMEDY,
    check_registry,
    deployed,
    try_filter,
    warn_unprotected,
)
from streamdedup.worker.tasks import beside, enduring, until_stopped
from streamdedup.worker.topic_watch import TopicWatch

log = structlog.get_logger(__name__)

ENDS_EVERY_S = 10.0
RETENTION_EVERY_S = 30.0
ACROSS = "share_of_duplicates_across_partitions"
TROUBLE = {State.FULL.value, State.STOPPED.value, "beyond_capacity", ACROSS} | COPYING_TROUBLE


class Worker:
    """One member of the group: reads, de-duplicates and emits the partitions that it is assigned."""

    def __init__(
        self,
        settings: Settings,
        connect: Connect = kafka_cluster,
        now_ms: Callable[[], int] = wall_clock_ms,
        fs: FileSystem = os,
        random: RandomSource = SYSTEM,
        *,
        copies: bool = True,
    ) -> None:
        self._settings = deduplicating(settings) if settings.source.repartition else settings
        self._connect = connect
        self._now_ms, self._fs, self._random = now_ms, fs, random
        self._source: Source | None = None
        self._lists: ListLoader | None = None
        self._deliveries: dict[int, Delivery] = {}
        self._threads = Threads()
        self._suspicion_logged, self._unseen_share_logged = False, -1.0
        self._prevailing = RateLimit()
        self._saves_at = 0.0  # by the loop's clock
        self._save_asked = asyncio.Event()
        sink, late = settings.sink, settings.filter.late
        not_judged = "pass" if sink.shadow else settings.key.on_malformed
        self._status = Status(
            self._settings.source.topic,
            self._deliveries,
            Meters(),
            shadow=sink.shadow,
            deployed=deployed(self._settings),
            fates=fates(not_judged, "pass" if sink.shadow else late, sink.dead_letter_topic),
        )
        self._written = settings
        self._copier: Copier | None = None
        # What topics that are made are like; None: the topic that is read.
        self._like: Topic | None = None
        if settings.source.repartition and copies:
            self._copier = Copier(
                settings, self._status.meters, now_ms, self._threads, self._status.not_passed
            )
            self._status.copying = self._copier.copying
        self._uncopied: Uncopied | None = None
        self._purge: Purge | None = None
        self._shards = Assignment(self._deliveries, self._status.meters)
        self._stop = asyncio.Event()
        self.doing = doing_of(
            settings,
            connect,
            self._status.lists,
            snapshot=self.save_soon,
            stop=self.stop,
            loader=lambda: self._lists,
        )

    @property
    def deliveries(self) -> Mapping[int, Delivery]:
        """The shards of the current assignment, by partition; while the group rebalances, those of the last one."""
        return self._deliveries

    @property
    def tally(self) -> Tally:
        """The counts of all events since the start, by outcome."""
        return self._status.meters.tally

    @property
    def status(self) -> Status:
        """The worker's status, which the pages of the server show."""
        return self._status

    def stop(self) -> None:
        """Have `run` drain and return."""
        self._status.phase = Phase.DRAINING
        self._stop.set()

    def reload(self) -> None:
        """Load the files of the lists again, as if they had been replaced."""
        if self._lists:
            self._lists.reload()

    def save_soon(self) -> Done:
        """Have all shards saved now; return what that will do."""
        if not self._settings.filter.remembers:
            return nothing_to_save()
        self._save_asked.set()
        return saving(self._deliveries)

    @property
    def hangs(self) -> bool:
        """Whether a thread is still running. After `run` its time is over, and the process should not wait for it."""
        return self._threads.busy

    async def run(self) -> None:
        """Work until `stop` is called.

        ConfigError if settings, topics or lists do not fit: before the group is joined, but for topics that are made
        once it has admitted the worker. DeliveryError if the broker or the group refuses it, or a topic was deleted.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(
                serving(self._settings.server, self._status, self.doing)
            )
            await until_stopped(
                self._work(stack),
                self._stop,
                drain_s=self._settings.delivery.drain_s,
                drain=self._drain,
                end=self._shut_down,
            )

    async def _drain(self) -> None:
        """End the first stage of `source.repartition`, if it runs here, before the second."""
        if self._copier:
            await self._copier.drain(self._settings.delivery.drain_s / 4)

    async def _work(self, stack: AsyncExitStack) -> None:
        kafka = self._settings.kafka
        log.info("connecting", version=__version__, bootstrap_servers=kafka.bootstrap_servers)
        directory, threads = self._settings.snapshot.directory, self._threads
        if self._settings.filter.remembers:
            others = await threads.loads.run(
                THE_WORKER, "the snapshot directory", check_directory, directory
            )
            if others:
                log.warning("snapshot_writable", path=str(directory), **writable(others))
        status = self._status
        cluster = status.cluster = await stack.enter_async_context(self._connect(kafka))
        planned = await start_patiently(
            lambda: self._planned(cluster), "the topics", cluster.patience
        )
        await log_at_start(self._settings, planned, self._connect)
        recipe = Recipe(self._settings, planned[self._settings.source.topic].partitions)
        broker_clock = BrokerClock(self._now_ms, asyncio.get_running_loop().time)
        clocks = LeaderClocks(cluster, self._settings.sink.topic, broker_clock)
        status.watch.hash, status.meaning = recipe.common_hash, recipe.meaning.name
        await check_registry(registry_of(recipe), status)
        topic = self._settings.source.topic
        services = Services(
            cluster=cluster,
            clocks=clocks,
            source=Source(cluster.sources([topic], recipe.meaning.name), topic),
            now_ms=self._now_ms,
            fs=self._fs,
            random=self._random,
            watch=status.watch,
            meters=status.meters,
            threads=threads,
            lists=status.lists,
            not_passed=status.not_passed,
        )
        self._lists = ListLoader(
            recipe,
            cluster,
            status.lists,
            meters=status.meters,
            threads=threads,
            now_ms=self._now_ms,
        )
        await start_patiently(self._lists.begin, "the lists", cluster.patience)
        what = "its inner loops, which are compiled at the first start, and memory for a filter"
        inputs = self._written.source.shown if self._written.source.repartition else None
        await threads.memory.run(
            THE_WORKER, what, try_filter, recipe, planned, inputs, remedy=COMPILING_REMEDY
        )
        if self._copier:
            await self._copier.check()
        gc.collect()
        gc.freeze()  # all modules are loaded; a full collection that visits them stalls the loop for 70 ms
        await self._serve(recipe, services)

    async def _serve(self, recipe: Recipe, services: Services) -> None:
        """Join the group. Once it has admitted us, make the topics that are missing, and supervise the shards."""
        group, cluster, status = self._settings.kafka.group_id, services.cluster, self._status
        log.info(
            "joining",
            group=group,
            note="if a member was killed, this waits until its session has ended",
        )
        self._source = status.source = services.source
        status.clocks, status.phase = services.clocks, Phase.JOINING
        watch = GroupWatch(cluster, services.source, group, recipe.meaning.name, status)
        membership = Membership(services.source, cluster.patience, "the consumer", status)
        retention = RetentionWatch(self._settings, cluster, status)
        async with beside(
            enduring("group", watch.run, status.meters),
            enduring("retention", retention.run, status.meters),
            *([self._copier.run()] if self._copier else []),
        ):
            made = self._copier.made if self._copier else list[str]()
            with naming(made):
                if self._copier:
                    check_purge(await self._copier.middle())
                await membership.join()
                status.phase = Phase.SERVING
                while services.source.assigned is None:  # until the group admits us
                    await membership.keep_alive()
                topology = await start_patiently(
                    lambda: made_topics(self._settings, cluster, made, like=self._like),
                    "the topics",
                    cluster.patience,
                )
            output = topology[self._settings.sink.topic]
            retention.note(output)
            warn_unprotected(self._settings, output)
            await self._supervise(recipe, services, topology, membership)

    async def _planned(self, cluster: Cluster) -> Topology:
        """Return the topics that the shards read and write, those that will be made among them; nothing is made."""
        source = self._settings.source.topic
        if self._settings.source.repartition is None:
            await check_not_staged(self._settings, cluster)
            return await check_unstaged(self._settings, cluster)
        if self._copier:
            plan = await self._copier.prepare(cluster)
            middle, self._like = plan.topology[source], plan.like
            await check_may_join(cluster, self._settings.kafka.group_id)
        else:
            await check_groups(self._written, cluster)
            middle = await await_middle(self._written, cluster, self._note_wait)
            self._like = await like_all(self._written, cluster)
        check_purge(middle)
        return await check_topics(self._settings, cluster, middle, self._like or middle)

    def _note_wait(self, waits: str | None) -> None:
        self._status.waits = waits

    def _purge_of(self, services: Services, topology: Topology) -> Purge:
        topic = self._settings.source.topic
        return Purge(services.cluster, topic, topology[topic].topic_id, self._shards.committed)

    async def _supervise(
        self, recipe: Recipe, services: Services, topology: Topology, membership: Membership
    ) -> None:
        loop = asyncio.get_running_loop()
        progress_at = loop.time()
        self._saves_at = loop.time() + self._settings.snapshot.interval_s
        meters, lists = services.meters, self._lists
        topics = TopicWatch(services.cluster, topology, self._status)
        if self._settings.source.repartition:
            self._purge = self._status.purge = self._purge_of(services, topology)
            if self._copier is None:
                self._uncopied = Uncopied(self._written, services.cluster)
                self._status.uncopied = self._uncopied
        uncopied = self._uncopied
        async with beside(
            *([enduring("copying", uncopied.run, meters)] if uncopied else []),
            *([enduring("purge", self._purge.run, meters)] if self._purge else []),
            enduring("snapshots", partial(self._save_periodically, services), meters),
            enduring("ends", self._look_up_ends, meters),
            enduring("topics", topics.run, meters, ends_by=(DeliveryError,)),
            enduring("input", self._input_watch(services).run, meters),
            enduring("output", self._output_watch(services, topology).run, meters),
            enduring("clocks", services.clocks.run, meters),
            enduring("others", self._ask_of_others(services.cluster), meters),
            *([enduring("lists", lists.run, meters)] if lists else []),
            *([enduring("changes", lists.follow, meters)] if lists else []),
        ):
            while True:
                if services.source.epoch != self._status.epoch:
                    self._status.epoch = await self._shards.reassign(
                        recipe, services, self._settings.delivery.drain_s
                    )
                self._shards.revive(self._status.epoch)
                await membership.keep_alive()
                self._warn_cross_partition()
                services.clocks.check(self._deliveries)
                self._warn_prevailing()
                self._foresee()
                if loop.time() - progress_at >= PROGRESS_EVERY_S:
                    progress_at = loop.time()
                    progress = self._progress()
                    log_progress = log.warning if TROUBLE & progress.keys() else log.info
                    log_progress("progress", **progress)

    def _output_watch(self, services: Services, topology: Topology) -> OutputWatch:
        settings = self._settings
        output, group = topology[settings.sink.topic], settings.kafka.group_id
        return OutputWatch(
            services.cluster,
            output,
            group,
            self._deliveries,
            self._status,
            exactly_once=settings.delivery.exactly_once,
        )

    def _input_watch(self, services: Services) -> InputWatch:
        after_s = self._settings.delivery.open_transaction_s

        def partitions() -> dict[int, bool]:
            return {p: d.state is State.LIVE for p, d in dict(self._deliveries).items()}

        return InputWatch(services.cluster, services.source, self._status, after_s, partitions)

    def _warn_cross_partition(self) -> None:
        """Warn once if the record keys suggest that one key may come in two partitions, and once if one does.

        The second warning is repeated when the share of the duplicates that pass for this reason has grown much.
        """
        watch = self._status.watch
        if not self._suspicion_logged and (reason := watch.suspicion):
            self._suspicion_logged = True
            log.warning("partitioning_unknown", reason=reason, remedy=REMEDY)
        evidence = watch.evidence
        if evidence and evidence.has_grown_since(self._unseen_share_logged):
            self._unseen_share_logged = evidence.unseen_share
            log.warning(
                "duplicates_across_partitions",
                sampled_events=watch.unseen,
                sampled_keys=evidence.keys,
                keys_in_several_partitions=evidence.keys_in_several,
                share_of_duplicates=round(evidence.unseen_share, 3),
                remedy=REMEDY,
            )

    def _warn_prevailing(self) -> None:
        """Log, at most once a minute, that an outcome that should be rare has become the rule.

        `partitions` are those where it has; None if that is so in all of them.
        """
        now_s, meters = asyncio.get_running_loop().time(), self._status.meters
        meters.look(now_s)
        if not meters.prevailing or not self._prevailing.due(now_s):
            return
        for one in meters.prevailing:
            log.warning(
                "verdict_prevails",
                topic=self._settings.source.topic,
                partitions=list(one.partitions[:SHOWN_MAX]) or None,
                verdict=one.outcome,
                events=one.events,
                of=one.of,
                reason=one.reason,
                fate=self._status.fates[one.outcome],
                remedy=REMEDIES[one.outcome],
            )

    def _foresee(self) -> None:
        """Have each live shard's forecast look at its filter, when that is due."""
        now_s = asyncio.get_running_loop().time()
        for partition, delivery in self._deliveries.items():
            forecast = self._status.meters.of(partition).forecast
            if delivery.state is not State.LIVE or delivery.shard is None:
                forecast.begin_again()
            elif forecast.due(now_s) and is_ever_full(filter_ := delivery.shard.filter):
                forecast.look(now_s, len(filter_), filter_.capacity, grows_s(filter_))

    async def _save_periodically(self, services: Services) -> None:
        """Save every `snapshot.interval_s`, and sooner if that is asked for.

        A shard is saved sooner, too, if the output's retention comes too near to its snapshots.
        """
        loop, interval_s = asyncio.get_running_loop(), self._settings.snapshot.interval_s
        while True:
            # Not by wait_for: before Python 3.12 it swallows a cancellation that comes right after the event is set.
            with suppress(TimeoutError):
                rest_s = min(RETENTION_EVERY_S, max(0.0, self._saves_at - loop.time()))
                async with asyncio.timeout(rest_s):
                    await self._save_asked.wait()
            if self._save_asked.is_set() or loop.time() >= self._saves_at:
                self._save_asked.clear()
                await self._shards.save()
                self._saves_at = loop.time() + interval_s
            await self._shards.outrun_retention(services, self._settings.sink.topic)

    def _ask_of_others(self, cluster: Cluster) -> Callable[[], Coroutine[Any, Any, None]]:
        group, status = self._settings.kafka.group_id, self._status
        return partial(status.others.run, cluster, group, status)

    async def _look_up_ends(self) -> None:
        while True:
            await asyncio.sleep(ENDS_EVERY_S)
            await self._shards.look_up_ends(ENDS_EVERY_S)

    async def _shut_down(self, ends_at: float) -> None:
        """Drain until the loop's time is `ends_at`."""
        self._status.phase = Phase.DRAINING
        loop = asyncio.get_running_loop()

        def left_s() -> float:
            return max(0.1, ends_at - loop.time())

        if self._copier:
            await self._copier.end(left_s() / 4)
        await self._shards.end(left_s())
        if self._source:
            await leave_group(self._source, left_s() / 2)
        try:
            saving = self._shards.save(min(LOG_ANSWER_S_MAX, left_s() / 2))
            await asyncio.wait_for(saving, left_s())
        except TimeoutError:
            for delivery in self._shards.all():
                delivery.cut_saves_short()
            log.warning("snapshots_cut_short", remedy="the next start folds the output instead")
        log.info("stopped", **self._progress())

    def _progress(self) -> dict[str, Any]:
        """Return the counts of events and of live partitions, and the partitions that are in trouble."""
        tally, deliveries = self.tally, self._deliveries.items()
        in_state = {
            state: [p for p, delivery in deliveries if delivery.state is state] for state in State
        }
        beyond = [p for p, delivery in deliveries if delivery.beyond_capacity]
        lists = {
            "full": in_state[State.FULL],
            "stopped": in_state[State.STOPPED],
            "beyond_capacity": beyond,
        }
        evidence = self._status.watch.evidence
        across = {ACROSS: round(evidence.unseen_share, 3), "remedy": REMEDY} if evidence else {}
        return {
            "consumed": tally.consumed,
            **{verdict.name.lower(): tally[verdict] for verdict in Verdict if tally[verdict]},
            **({"late": tally.late} if tally.late else {}),
            **({"untimed": tally.untimed} if tally.untimed else {}),
            "lag": self._status.lag,
            **(self._copier.copying.progress if self._copier else {}),
            **(self._uncopied.progress if self._uncopied else {}),
            "partitions": self._shards.running,
            "live": len(in_state[State.LIVE]),
            **{name: partitions for name, partitions in lists.items() if partitions},
            **across,
        }
