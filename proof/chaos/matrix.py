"""The scenarios: which fault, which promise, how often, on which brokers, and what a round must show to count."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from proof.chaos.brokers import Brokers, OneBroker, ThreeBrokers
from proof.chaos.disks import CASES, harm_disk
from proof.chaos.network import harm_requests
from proof.chaos.operators import (
    grow_topics,
    move_and_delete,
    remake_topics,
    trim_below_snapshots,
    trim_beyond_snapshots,
)
from proof.chaos.outages import restart_broker, starve_replicas
from proof.chaos.signals import (
    drain_at_random,
    harm_at_least_once,
    kill_at_random,
    kill_at_steps,
    pause_and_wake,
)
from proof.chaos.staged import StagedTrial
from proof.chaos.stages import harm_stages
from proof.chaos.storms import rebalance_storm, storm_of_kinds
from proof.chaos.trial import PARTITIONS, Trial
from proof.chaos.upgrades import upgrade_and_roll_back
from proof.chaos.versions import OldVersion
from proof.chaos.visitors import BEAT_S_MAX, RATE_SHARE_MIN, visit
from proof.chaos.worker import STEPS

EXACT = "nothing lost, nothing twice"
REPEATED = "nothing lost; repeats are counted"
UPGRADE = "upgrade"


@dataclass(frozen=True)
class Scenario:
    """One row of the matrix. `rounds` at --scale 1, each of `size` faults (a storm: seconds)."""

    name: str
    fault: str
    play: Callable[[Trial, int], None]
    rounds: int
    size: int
    promise: str = EXACT
    brokers: Callable[[], Brokers] = OneBroker
    partitions: int = PARTITIONS
    must_abort: bool = False
    """Whether a round without aborted records in the output proves too little to count."""
    ground: type[Trial] = Trial
    at_least_once: bool = False
    """Without transactions: repeats are counted, and are no breach."""


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "kill",
            "SIGKILL at random moments, static membership",
            kill_at_random,
            rounds=10,
            size=10,
            must_abort=True,
        ),
        Scenario(
            "step",
            "SIGKILL at each named step of a transaction, a snapshot, a restore",
            kill_at_steps,
            rounds=5,
            size=len(STEPS),
            must_abort=True,
        ),
        Scenario(
            "pause",
            "SIGSTOP past session and transaction time-out, then SIGCONT",
            pause_and_wake,
            rounds=5,
            size=3,
            promise=f"{EXACT}; the zombie writes nothing",
            must_abort=True,
        ),
        Scenario(
            "storm",
            "1 to 4 workers join, leave, die, pause; 8 partitions",
            rebalance_storm,
            rounds=10,
            size=30,
            partitions=8,
            must_abort=True,
        ),
        Scenario(
            "broker",
            "the broker ends and starts again",
            restart_broker,
            rounds=2,
            size=4,
            must_abort=True,
        ),
        Scenario(
            "brokers",
            "each of three brokers ends and starts again (replication 3, min.insync 2)",
            restart_broker,
            rounds=1,
            size=6,
            brokers=ThreeBrokers,
            must_abort=True,
        ),
        Scenario(
            "replicas",
            "one of three brokers is killed, and fewer replicas are left than output or offsets ask for",
            starve_replicas,
            rounds=1,
            size=6,
            brokers=ThreeBrokers,
            must_abort=True,
        ),
        Scenario(
            "kinds",
            "the same storm with other kinds of filters, one a round, and sessions of 3 to 6 s",
            storm_of_kinds,
            rounds=5,
            size=30,
            partitions=8,
            must_abort=True,
        ),
        Scenario(
            "network",
            "requests and responses cut, dropped, delayed",
            harm_requests,
            rounds=16,
            size=10,
            must_abort=True,
        ),
        Scenario(
            "offsets",
            "offsets moved both ways, some deleted, group deleted, snapshots deleted",
            move_and_delete,
            rounds=4,
            size=10,
            promise="nothing lost but what was skipped, nothing twice",
            must_abort=True,
        ),
        Scenario(
            "trim",
            "output trimmed up to the snapshots",
            trim_below_snapshots,
            rounds=2,
            size=4,
            must_abort=True,
        ),
        Scenario(
            "gap",
            "output trimmed beyond the snapshots",
            trim_beyond_snapshots,
            rounds=2,
            size=2,
            promise="stops, by name; once accepted, only forgotten keys come again",
            must_abort=True,
        ),
        Scenario(
            "remade",
            "topics deleted and made again",
            remake_topics,
            rounds=2,
            size=2,
            promise=f"an input: {EXACT}; an output: stops, by name",
        ),
        Scenario(
            "grown",
            "partitions added to input and output",
            grow_topics,
            rounds=2,
            size=2,
            promise="stops, by name; once accepted, a key passes once in its new partition, too",
            must_abort=True,
        ),
        Scenario(
            "repartition",
            "two stages, apart and together, events without record keys: SIGKILL at random moments and named steps,"
            " SIGSTOP, the broker killed, both groups' offsets moved back, groups deleted, the middle topic deleted,"
            " trimmed, purged four times a second, partitions added",
            harm_stages,
            rounds=10,
            size=20,
            promise=f"{EXACT}, across partitions; each key in its partition",
            ground=StagedTrial,
            must_abort=True,
        ),
        Scenario(
            "disk",
            "snapshots on a disk that is full, read-only, slow, or fails at a save or at a start",
            harm_disk,
            rounds=4,
            size=len(CASES),
            promise=f"delivery goes on, the log says why; {EXACT} after the next start",
            must_abort=True,
        ),
        Scenario(
            "drain",
            "SIGTERM at random moments",
            drain_at_random,
            rounds=5,
            size=10,
            promise=f"ends with 0 within `drain_s`; {EXACT}",
        ),
        Scenario(
            "visitors",
            "1,000 slow HTTP clients, 24 that ask for /metrics without pause, 20 viewers of the page, 2 that explain;"
            " 256 descriptors",
            visit,
            rounds=1,
            size=3,
            promise=f"each probe of `probe_port` is answered within 1 s, the rate is {RATE_SHARE_MIN:.0%} or more,"
            f" the beat at most {BEAT_S_MAX * 1000:.0f} ms later; {EXACT}",
        ),
        Scenario(
            "once",
            "at least once: SIGKILL, SIGTERM, SIGSTOP at random moments and named steps; snapshots deleted",
            harm_at_least_once,
            rounds=4,
            size=10,
            promise=REPEATED,
            at_least_once=True,
        ),
        Scenario(
            "once-broker",
            "at least once: the broker ends and starts again",
            restart_broker,
            rounds=1,
            size=4,
            promise=REPEATED,
            at_least_once=True,
        ),
        Scenario(
            "once-storm",
            "at least once: 1 to 4 workers join, leave, die, pause; 8 partitions",
            rebalance_storm,
            rounds=1,
            size=30,
            promise=REPEATED,
            partitions=8,
            at_least_once=True,
        ),
        Scenario(
            "once-network",
            "at least once: requests and responses cut, dropped, delayed",
            harm_requests,
            rounds=1,
            size=14,
            promise=REPEATED,
            at_least_once=True,
        ),
        Scenario(
            "once-disk",
            "at least once: snapshots on a disk that is full, read-only, slow, or fails at a save or at a start",
            harm_disk,
            rounds=1,
            size=len(CASES),
            promise=REPEATED,
            at_least_once=True,
        ),
    )
}


def upgrade_from(old: OldVersion) -> Scenario:
    """The scenario that the matrix has only if there is an `old` version; results/guarantees.md does not list it."""
    return Scenario(
        UPGRADE,
        f"workers of {old.commit} and of the checkout replace each other in a group",
        partial(upgrade_and_roll_back, old=old),
        rounds=3,
        size=12,
        must_abort=True,
    )
