"""The worker's life: prepare -> join -> supervise -> shut down.

The supervisor only follows assignments, keeps the member alive and takes snapshots when they are due; every shard runs
by itself. A first interrupt drains, within `delivery.drain_s`; a second exits at once.
"""

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import Any

import structlog

from streamdedup import __version__
from streamdedup.context import Context, wall_clock_ms
from streamdedup.delivery import Delivery, State
from streamdedup.errors import DeliveryError, StreamdedupError
from streamdedup.events import Verdict
from streamdedup.folding import LOG_ANSWER_S_MAX
from streamdedup.kafka.base import Connect, Source
from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.kafka.connection import describe_error, refusal
from streamdedup.kafka.patience import is_away, start_patiently
from streamdedup.kafka.source import ConsumerDiedError
from streamdedup.kafka.topics import Topology
from streamdedup.meters import Meters
from streamdedup.preparation import announce, prepared_topics
from streamdedup.rules import warm_up
from streamdedup.server import Phase, Status, serving
from streamdedup.settings import Settings
from streamdedup.shard import Tally
from streamdedup.shard_snapshots import check_directory
from streamdedup.snapshot.files import FileSystem
from streamdedup.watch import Watch

log = structlog.get_logger(__name__)

TURN_S = 0.2
TOPICS_EVERY_S = 10.0
AWAY_EVERY_S = 1.0
ENDS_EVERY_S = 10.0
PROGRESS_EVERY_S = 60.0
RETENTION_EVERY_S = 30.0
RETENTION_ANSWER_S_MAX = 10.0
FOLDS_MAX = 4
HANGING_CLIENT_S = 2.0
REASSIGN_S_MAX = 10.0  # far below max_poll_interval_ms, whatever a drain may take


class Worker:
    """One member of the group: reads, de-duplicates and emits the partitions that it is assigned."""

    def __init__(
        self,
        settings: Settings,
        connect: Connect = kafka_cluster,
        now_ms: Callable[[], int] = wall_clock_ms,
        fs: FileSystem = os,
    ) -> None:
        self._settings, self._connect = settings, connect
        self._now_ms, self._fs = now_ms, fs
        self._source: Source | None = None
        self._deliveries: dict[int, Delivery] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._kept: dict[int, Delivery] = {}  # went to other members with the last assignment
        self._forgotten: dict[asyncio.Task[None], Delivery] = {}
        self._told_unseen = False
        self._status = Status(settings.source.topic, self._deliveries, Meters())
        self._stop = asyncio.Event()

    @property
    def deliveries(self) -> Mapping[int, Delivery]:
        """What is known of every partition that is, or was last, ours."""
        return self._deliveries

    @property
    def tally(self) -> Tally:
        """What became of all events since the start."""
        return self._status.meters.tally

    @property
    def status(self) -> Status:
        """How we are, as the pages of the server tell it."""
        return self._status

    def stop(self) -> None:
        """Drain and end; `run` then returns."""
        self._status.phase = Phase.DRAINING
        self._stop.set()

    @property
    def hangs(self) -> bool:
        """Whether a thread is still at work, though the time for it is over: the process should not wait for it."""
        return any(delivery.hangs for delivery in self._all_deliveries())

    async def run(self) -> None:
        """Work until `stop`. ConfigError before anything is touched, DeliveryError where the group refuses us."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(serving(self._settings.server, self._status))
            work = asyncio.create_task(self._work(stack))
            stopped = asyncio.create_task(self._stop.wait())
            await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            work.cancel()
            try:
                await work
            except asyncio.CancelledError:
                if not self._stop.is_set():  # nobody asked: a client library may cancel its caller
                    raise DeliveryError(
                        "the worker was cancelled from within; restart it, and tell us what its log says"
                    ) from None
            except Exception as error:
                if refused := refusal(error):
                    raise refused from error
                raise
            finally:
                await self._shut_down()

    async def _work(self, stack: AsyncExitStack) -> None:
        kafka = self._settings.kafka
        log.info("connecting", version=__version__, bootstrap_servers=kafka.bootstrap_servers)
        await asyncio.to_thread(check_directory, self._settings.snapshot.directory)
        status = self._status
        cluster = status.cluster = await stack.enter_async_context(self._connect(kafka))
        topology = await start_patiently(
            lambda: prepared_topics(self._settings, cluster), "the topics", cluster.patience
        )
        partitions = topology[self._settings.source.topic].partitions
        source = cluster.source(self._settings.source.topic)
        folds = asyncio.Semaphore(FOLDS_MAX)
        context = Context(
            self._settings,
            cluster,
            source,
            partitions,
            folds,
            self._now_ms,
            self._fs,
            status.watch,
            status.meters,
        )
        empty = await asyncio.to_thread(context.empty_filter)
        announce(context, topology, empty)
        await asyncio.to_thread(warm_up, empty)
        del empty  # it is as large as a shard's
        gc.freeze()  # all modules are there; a full collection that visits them stalls the loop for 70 ms
        log.info("joining", group=kafka.group_id, note="a member that was killed is waited for")
        self._source = status.source = source
        status.phase = Phase.JOINING
        await source.start()
        status.phase = Phase.SERVING
        await self._supervise(context, topology)

    async def _supervise(self, context: Context, topology: Topology) -> None:
        loop, patience = asyncio.get_running_loop(), context.cluster.patience
        snapshots = asyncio.create_task(self._save_periodically(context))
        ends = asyncio.create_task(self._look_up_ends())
        topics_at = progress_at = loop.time()
        try:
            while not snapshots.done():
                if context.source.epoch != self._status.epoch:
                    self._status.epoch = await self._reassign(context)
                self._revive(self._status.epoch)
                try:
                    await context.source.keep_alive(TURN_S)
                except ConsumerDiedError as error:
                    raise DeliveryError(f"{error}; restart the worker") from error
                except DeliveryError:
                    raise
                except Exception as error:
                    if refusal(error):
                        raise
                    if is_away(error):
                        patience.away("the consumer", error)
                    else:
                        log.warning("consumer_trouble", **describe_error(error))
                    await asyncio.sleep(TURN_S)
                else:
                    patience.back("the consumer")
                patience.check()
                self._tell_unseen(context.watch)
                topics_every_s = AWAY_EVERY_S if patience.away_s else TOPICS_EVERY_S
                if loop.time() - topics_at >= topics_every_s:
                    topics_at = loop.time()
                    await self._check_topics(context, topology)
                if loop.time() - progress_at >= PROGRESS_EVERY_S:
                    progress_at = loop.time()
                    progress = self._progress()
                    trouble = {State.FULL.value, State.STOPPED.value, "beyond_capacity"}
                    tell = log.warning if trouble & progress.keys() else log.info
                    tell("progress", **progress)
            snapshots.result()
        finally:
            snapshots.cancel()
            ends.cancel()

    async def _reassign(self, context: Context) -> int:
        """End every shard of the last assignment, begin those of this one; filters that stay ours are kept."""
        await self._end_shards(min(self._settings.delivery.drain_s, REASSIGN_S_MAX))
        epoch, assigned = context.source.epoch, context.source.assigned
        if assigned is None:
            log.info("revoked")
            return epoch
        log.info("assigned", partitions=sorted(assigned))
        back = {partition: self._kept.pop(partition) for partition in assigned & set(self._kept)}
        self._kept = {p: self._deliveries.pop(p) for p in sorted(set(self._deliveries) - assigned)}
        for delivery in self._kept.values():
            self._save_apart(delivery)
        for partition in sorted(assigned):
            known = self._deliveries.get(partition) or back.get(partition)
            self._deliveries[partition] = delivery = known or Delivery(context, partition)
            self._tasks[partition] = asyncio.create_task(delivery.run(epoch))
        return epoch

    def _revive(self, epoch: int) -> None:
        """Begin a shard again whose task ended though nobody asked: a client library may cancel its caller."""
        for partition, task in self._tasks.items():
            if task.done():
                error = None if task.cancelled() else task.exception()
                details = describe_error(error) if error else {"error": "cancelled"}
                log.error("shard_died", partition=partition, remedy="it begins again", **details)
                self._tasks[partition] = asyncio.create_task(self._deliveries[partition].run(epoch))

    def _save_apart(self, delivery: Delivery) -> None:
        """Its partition went to another member, which may have use for a snapshot; nobody waits for it."""

        async def save() -> None:
            await delivery.look_at_log(LOG_ANSWER_S_MAX)
            await delivery.save()

        saving = asyncio.create_task(save())
        self._forgotten[saving] = delivery
        saving.add_done_callback(self._forgotten.pop)

    def _all_deliveries(self) -> list[Delivery]:
        """Those of our partitions, and those that are still being forgotten."""
        return [*self._deliveries.values(), *self._forgotten.values()]

    async def _end_shards(self, within_s: float) -> None:
        """Let batches in hand finish, cut everything else short, and close the producers."""
        for partition, task in self._tasks.items():
            delivery = self._deliveries[partition]
            delivery.leave()
            if not delivery.busy:
                task.cancel()
        if self._tasks:
            _, late = await asyncio.wait(
                self._tasks.values(), timeout=max(0.1, within_s - HANGING_CLIENT_S)
            )
            for task in late:
                task.cancel()
            if late:
                log.warning(
                    "transactions_abandoned",
                    count=len(late),
                    remedy="none: they are settled at the next start",
                )
                await asyncio.wait(late, timeout=HANGING_CLIENT_S)
        await asyncio.gather(*(self._deliveries[partition].drop() for partition in self._tasks))
        self._tasks = {}

    def _tell_unseen(self, watch: Watch) -> None:
        """Once: the same key comes in two partitions."""
        if watch.unseen and not self._told_unseen:
            self._told_unseen = True
            log.warning(
                "duplicates_across_partitions",
                sampled_events=watch.unseen,
                share_of_duplicates=round(watch.unseen_share, 3),
                remedy="have the producer choose the partition by the key alone (docs/partitioning.md)",
            )

    async def save(self, within_s: float = LOG_ANSWER_S_MAX) -> None:
        """Save what all shards remember, one after the other, once the logs of all were looked at for `within_s`."""
        deliveries = self._all_deliveries()
        await asyncio.gather(*(delivery.look_at_log(within_s) for delivery in deliveries))
        for delivery in deliveries:
            await delivery.save()

    async def _save_periodically(self, context: Context) -> None:
        """Every `interval_s`; and at once where the output's retention comes too near to what is saved."""
        loop, interval_s = asyncio.get_running_loop(), self._settings.snapshot.interval_s
        saves_at = loop.time() + interval_s
        while True:
            await asyncio.sleep(min(RETENTION_EVERY_S, max(0.0, saves_at - loop.time())))
            await self._outrun_retention(context)
            if loop.time() >= saves_at:
                await self.save()
                saves_at = loop.time() + interval_s

    async def _outrun_retention(self, context: Context) -> None:
        """Compare where the output begins with the snapshots' labels."""
        partitions = list(self._deliveries)
        try:
            async with asyncio.timeout(RETENTION_ANSWER_S_MAX):
                starts = await context.cluster.first_offsets(self._settings.sink.topic, partitions)
        except TimeoutError:  # away; asked again later
            return
        for partition, log_start in starts.items():
            if delivery := self._deliveries.get(partition):
                await delivery.outrun(log_start)

    async def _look_up_ends(self) -> None:
        """The lag of what is not read, for the metric."""
        while True:
            await asyncio.sleep(ENDS_EVERY_S)
            for delivery in list(self._deliveries.values()):
                with suppress(Exception):  # the next turn asks again
                    async with asyncio.timeout(ENDS_EVERY_S):
                        await delivery.look_up_end()

    async def _check_topics(self, context: Context, topology: Topology) -> None:
        """A topic that was made again keeps its name and offsets: only its id tells."""
        patience, what = context.cluster.patience, "the cluster"
        try:
            remade = await context.cluster.changed(topology)
        except Exception as error:
            if not is_away(error):
                raise
            patience.away(what, error)
            return
        patience.back(what)
        if remade:
            raise DeliveryError(
                f"deleted or made again while running: {', '.join(remade)}; look at what happened, then restart"
            )

    async def _shut_down(self) -> None:
        self._status.phase = Phase.DRAINING
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._settings.delivery.drain_s

        def left_s() -> float:
            return max(0.1, ends_at - loop.time())

        await self._end_shards(left_s())
        if self._source and not await self._source.stop(left_s() / 2):
            log.warning(
                "group_not_left", remedy="none: the broker drops us after session_timeout_ms"
            )
        try:
            saving = self.save(min(LOG_ANSWER_S_MAX, left_s() / 2))
            await asyncio.wait_for(saving, left_s())
        except TimeoutError:
            for delivery in self._all_deliveries():
                delivery.snapshots.cut_short()
            log.warning("snapshots_cut_short", remedy="the next start folds the output instead")
        log.info("stopped", **self._progress())

    def _progress(self) -> dict[str, Any]:
        """Counts of events, of partitions that are live, and which partitions are in trouble."""
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
        return {
            "consumed": tally.consumed,
            **{verdict.name.lower(): tally[verdict] for verdict in Verdict if tally[verdict]},
            **({"late": tally.late} if tally.late else {}),
            "lag": sum(delivery.lag or 0 for delivery in self._deliveries.values()),
            "partitions": len(self._tasks),
            "live": len(in_state[State.LIVE]),
            **{name: partitions for name, partitions in lists.items() if partitions},
        }


def serve(settings: Settings) -> int:
    """Run a worker until it is interrupted; the process's exit status. What ends it otherwise is in the log."""

    async def main() -> None:
        worker = Worker(settings)
        loop, interrupts = asyncio.get_running_loop(), count(1)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _interrupt, worker, number, interrupts)
        await worker.run()
        if worker.hangs:  # in a write to the disk, for which leaving the loop would wait
            os._exit(0)

    try:
        asyncio.run(main())
    except StreamdedupError as error:
        log.error("worker_failed", error=str(error), status=error.exit_status)
        return error.exit_status
    return 0


def _interrupt(worker: Worker, number: int, interrupts: Iterator[int]) -> None:
    """The first drains; the second exits at once, with the status that a shell gives."""
    if next(interrupts) > 1:
        os._exit(128 + number)
    log.info("draining", signal=signal.Signals(number).name, hint="a second signal exits at once")
    worker.stop()
