"""What the shards of one worker share while they run: the client, the consumer, threads, counters, and lists."""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from streamdedup.delivery.cross_partition import Watch
from streamdedup.delivery.leader_clocks import LeaderClocks
from streamdedup.delivery.not_passed import LastNotPassed
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.shard import Shard
from streamdedup.delivery.turns import Turns
from streamdedup.filters.base import Addable
from streamdedup.filters.window.protocol import Windowed
from streamdedup.kafka.base import Cluster, Source
from streamdedup.keys.hashing import SYSTEM, RandomSource
from streamdedup.logs import RateLimit
from streamdedup.metrics.counts import Meters
from streamdedup.rules.lists import ListsInForce
from streamdedup.snapshot.files import FileSystem
from streamdedup.threads import Threads

FOLDS_MAX = 4


def wall_clock_ms() -> int:
    """Return the time, in ms since 1970."""
    return int(time.time() * 1000)


@dataclass(frozen=True, kw_only=True)
class MemoryServices:
    """What the memory of a partition needs; all of it for who only asks it.

    A shard holds `folds` while it folds, so at most `FOLDS_MAX` shards fold at the same time. `now_ms` is the wall
    clock, in ms since 1970. It is compared with what a topic retains, and never decides what happens to an event.
    `random` gives the secrets of filters.
    """

    cluster: Cluster
    now_ms: Callable[[], int] = wall_clock_ms
    fs: FileSystem = os  # for the snapshots
    random: RandomSource = SYSTEM
    meters: Meters = field(default_factory=Meters)
    threads: Threads = field(default_factory=Threads)
    folds: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(FOLDS_MAX))


@dataclass(frozen=True, kw_only=True)
class Services(MemoryServices):
    """The shared services; one object for each worker.

    A shard waits for one of `turns` before it decides. `clocks`, those of the brokers, decide what is too old.
    """

    source: Source
    clocks: LeaderClocks
    watch: Watch = field(default_factory=Watch)
    lists: ListsInForce = field(default_factory=ListsInForce)
    not_passed: LastNotPassed = field(default_factory=LastNotPassed)
    turns: Turns = field(default_factory=Turns)
    # Of warnings that keys look framed, that a window has no time, and that times lie before the year 2000.
    framed: RateLimit = field(default_factory=RateLimit)
    timeless: RateLimit = field(default_factory=RateLimit)
    ancient: RateLimit = field(default_factory=RateLimit)


def shard_over(
    filter_: Addable | Windowed, recipe: Recipe, services: MemoryServices, partition: int
) -> Shard:
    """Return a shard of `partition` that owns `filter_` and counts into the partition's tally."""
    return Shard(
        partition,
        filter_,
        stop_when_full=recipe.stops_when_full,
        tally=services.meters.of(partition).tally,
    )
