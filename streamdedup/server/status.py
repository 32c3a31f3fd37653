"""The data from which the pages are made. Other threads read it without a lock while the loop changes it.

That is safe: they read only numbers and values that are replaced as a whole, and they copy dictionaries before
iterating, which no other thread can interrupt. Two numbers on one page may be of two moments; numbers that must fit
together are in one value (`counts.Ledger`).
"""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from streamdedup.delivery.cross_partition import Watch
from streamdedup.delivery.leader_clocks import LeaderClocks
from streamdedup.delivery.lifecycle import Delivery
from streamdedup.delivery.not_passed import LastNotPassed
from streamdedup.kafka.base import Cluster, Member, Source, Sources
from streamdedup.kafka.client.patience import Patience
from streamdedup.kafka.partitions import InputPartition
from streamdedup.metrics.counts import Meters
from streamdedup.metrics.findings import GROUP_REFUSES, Finding, Log
from streamdedup.repartition.purge import Purge
from streamdedup.repartition.selection import Selection
from streamdedup.repartition.stage import Stage
from streamdedup.repartition.uncopied import Uncopied
from streamdedup.repartition.unread import Unread
from streamdedup.rules.lists import ListsInForce
from streamdedup.server.history import History
from streamdedup.server.others import Others


class Phase(StrEnum):
    """The phases of a worker's life."""

    CONNECTING = "connecting"
    JOINING = "joining"
    SERVING = "serving"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A partition of the input that stands still at `offset` since `since`, by the loop's clock.

    A transaction is open there; `whose` names its producer, as a text with commas, and may be empty.
    """

    offset: int
    since: float
    whose: str


@dataclass
class Copying:
    """The first stage of `source.repartition`, which copies to the topic `middle`.

    `status` is that of its group; it has no deliveries. `inputs` has a status for each topic that it reads. `stage`,
    `unread` and `sources` are None before it joins, and `selection` before it has looked at the topics.
    """

    status: "Status"
    middle: str
    inputs: dict[str, "Status"] = field(default_factory=dict)
    copied_before: int = 0  # events of topics that are read no more
    sources: Sources | None = None
    stage: Stage | None = None
    unread: Unread | None = None
    selection: Selection | None = None

    @property
    def left_out(self) -> Mapping[str, str]:
        """The topics that match `source.pattern` and are not read, and why."""
        return self.selection.left_out if self.selection else {}

    @property
    def copied(self) -> int:
        """How many events were copied since the start."""
        return self.copied_before + sum(map(_copied, dict(self.inputs).values()))

    def forget(self, topic: str) -> None:
        """Drop what is shown of an input that is read no more."""
        self.copied_before += _copied(self.inputs.pop(topic))

    @property
    def assigned(self) -> frozenset[InputPartition] | None:
        """The partitions that it reads; None during a rebalance."""
        sources = self.sources
        return sources.assigned if sources and sources.epoch == self.status.epoch else None

    @property
    def lag(self) -> int:
        """How many offsets of its partitions of the inputs are not copied yet."""
        return self.stage.lag if self.stage else 0

    @property
    def stopped(self) -> int:
        """How many of its partitions of the inputs are stopped, each by itself or all with the stage."""
        if self.stage is None:
            return 0
        return len(self.assigned or ()) if self.stage.trouble else len(self.stage.stopped)

    @property
    def progress(self) -> dict[str, Any]:
        """What a line of progress says of it."""
        stage = self.stage
        return {
            "copied": self.copied,
            "input_lag": self.lag,
            "middle_unread": self.unread.events if self.unread else 0,
            **(
                {"input_stopped": [str(p) for p in sorted(stage.stopped)]}
                if stage and stage.stopped
                else {}
            ),
            **({"repartition_stopped": stage.trouble.text} if stage and stage.trouble else {}),
            **({"repartition_paused": stage.paused} if stage and stage.paused else {}),
            **({"repartition_held": stage.held} if stage and stage.held else {}),
        }


def _copied(of_topic: "Status") -> int:
    return sum(meters.ledger.consumed for meters in of_topic.meters.shards.values())


# A line of progress that has one of these is a warning.
COPYING_TROUBLE = frozenset(
    {"input_stopped", "repartition_stopped", "repartition_paused", "repartition_missing"}
)


@dataclass(frozen=True, slots=True)
class Deployed:
    """What a worker was started as: settings that people know it by. `window_s` is None if keys are not forgotten."""

    name: str = ""
    group: str = ""
    output: str = ""
    exactly_once: bool = True
    filter: str = ""
    window_s: float | None = None


@dataclass
class Status:
    """The state of a worker. `deliveries`, the worker's own dictionary, has its present or most recent partitions.

    `epoch` is the assignment that they serve. `port` is the port of the pages, None if there are none.
    `group_says` is what is known of a group that refuses this worker. `held` are the partitions at which an open
    transaction on the input was reported. `group_shared_with` counts members of the new group protocol (KIP-848).
    `unserved` are the partitions (topic and number) that no member of the group has, for longer than it takes to assign
    them. `leaderless` are the partitions (topic and number) that were reported to have no leader. `output_forgets` says
    that the output deletes events before its filter forgets their keys, and the remedy; None if it does not.
    `output_shared` says that another deployment writes to the output, and how to find it; None if none does, as far as
    is known. `fenced_by_others` are the partitions that it fences. `fates` says, for each outcome that is watched
    (`metrics/prevalence.py`), what becomes of such events. `owners` has client id and host of the member that has each
    partition (topic and number), as the group's coordinator said last. `instance` names this process, drawn by chance.
    """

    topic: str
    deliveries: Mapping[int, Delivery]
    meters: Meters
    phase: Phase = Phase.CONNECTING
    cluster: Cluster | None = None
    registry: Patience | None = None  # with the schema registry; None if there is none
    source: Source | None = None
    member: Member | None = None  # of a group that reads several topics, in place of `source`
    clocks: LeaderClocks | None = None
    epoch: int = -1
    port: int | None = None
    group_says: Finding | None = None
    group_shared_with: int = 0
    unserved: frozenset[tuple[str, int]] = frozenset()
    held: Mapping[int, OpenTransaction] = field(default_factory=dict)
    leaderless: frozenset[tuple[str, int]] = frozenset()
    output_forgets: Finding | None = None
    output_shared: Finding | None = None
    fenced_by_others: frozenset[int] = frozenset()
    watch: Watch = field(default_factory=Watch)
    lists: ListsInForce = field(default_factory=ListsInForce)
    not_passed: LastNotPassed = field(default_factory=LastNotPassed)
    shadow: bool = False  # whether every event passes
    fates: Mapping[str, str] = field(default_factory=dict)
    waits: str | None = None  # for what a worker waits before it can join its group
    judges: bool = True  # whether there are shards; not in a process that only copies
    copying: Copying | None = None
    uncopied: Uncopied | None = None  # if another process copies
    purge: Purge | None = None
    findings: Log = field(default_factory=Log)  # since when each is active
    deployed: Deployed = field(default_factory=Deployed)
    meaning: str | None = None  # by its name; None before it is known
    history: History = field(default_factory=History)
    owners: Mapping[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    others: Others = field(default_factory=Others)
    began_at: float = field(default_factory=time.monotonic)
    instance: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def assigned(self) -> frozenset[int] | None:
        """The partitions that it serves; None during a rebalance, while the group assigns them and shards move."""
        source = self.source
        return source.assigned if source and source.epoch == self.epoch else None

    @property
    def theirs(self) -> list[int]:
        """The partitions of its topic that it does not serve, as far as the group's metadata says."""
        member = self.member or self.source
        count = member.topics().get(self.topic, 0) if member else 0
        return sorted(set(range(count)).difference(self.assigned or ()))

    @property
    def lag(self) -> int:
        """How many offsets of its partitions are not committed yet: of the input, and of a middle topic.

        If another process copies, all that is not copied yet is among them.
        """
        shards = sum(delivery.lag or 0 for delivery in dict(self.deliveries).values())
        uncopied = self.uncopied.offsets if self.uncopied else 0
        return shards + uncopied + (self.copying.lag if self.copying else 0)

    @property
    def refusal(self) -> Finding | None:
        """Why the group refuses this worker; None if it does not."""
        member = self.member or self.source
        if member is None or member.refused_since is None:
            return None
        return self.group_says or GROUP_REFUSES.at(
            None, "the group refuses this worker; what is in force there is being asked"
        )

    def check_registry(self) -> None:
        """DeliveryError if the schema registry has been away for longer than the operator allows."""
        if self.registry is not None:
            self.registry.check()

    @property
    def registry_away_s(self) -> float:
        """For how many seconds something has waited for the schema registry, in either stage."""
        waiting = [self.registry, self.copying and self.copying.status.registry]
        since = [each.since for each in waiting if each and each.since is not None]
        return max(0.0, time.monotonic() - min(since)) if since else 0.0

    @property
    def broker_away_s(self) -> float:
        """For how many seconds something has waited for a broker, including for the first connection."""
        if self.cluster is not None:
            since = self.cluster.patience.since
        else:
            since = self.began_at if self.phase is Phase.CONNECTING else None
        return 0.0 if since is None else max(0.0, time.monotonic() - since)
