"""A rolling upgrade and its way back: workers of an old version and of today's share a group, an output, snapshots.

Two workers are replaced one at a time until both are new, then until both are old, and so on. What the one version
left, an open transaction, an offset's metadata, a snapshot, is what the other goes on from. The workers' logs show
whether it did; a round in which it did not has failed.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proof.chaos.trial import LIVE_S, Trial
from proof.chaos.versions import OldVersion
from tests.deployment import WorkerProcess

OLD, NEW = "old", "new"
OTHER = {OLD: NEW, NEW: OLD}
MEMBERS = ("one", "two")
DRAINED_SHARE = 0.3
SNAPSHOTS_DELETED_SHARE = 0.15

LogLines = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Member:
    """A worker of the group and the version that it runs."""

    version: str
    worker: WorkerProcess


@dataclass(frozen=True)
class Crossing:
    """A snapshot that `version` loaded and the other had saved, and how many `events` were folded after it."""

    version: str
    partition: int
    label: int
    events: int


def upgrade_and_roll_back(trial: Trial, replacements: int, *, old: OldVersion) -> None:
    """So many replacements of a worker by one of the other version; static membership in every other round."""
    group = _Group(trial, old, static=trial.number % 2 == 1)
    group.begin()
    for _ in range(replacements):
        group.replace()
    group.end()
    _check(trial, [(member.version, member.worker.events()) for member in group.all])


class _Group:
    """Two workers, at first both old, and which version is being rolled out."""

    def __init__(self, trial: Trial, old: OldVersion, *, static: bool) -> None:
        self._trial, self._old, self._static = trial, old, static
        self._members: dict[str, Member] = {}
        self._wanted = NEW
        self.all: list[Member] = []
        """Every worker that there ever was, in the order of their starts."""

    def begin(self) -> None:
        """Start with nothing but old workers."""
        for name in MEMBERS:
            self._start(name, OLD)
        self._see_them_work("the start")

    def replace(self) -> None:
        """End a worker of the version that is on its way out, and start one of the other in its place."""
        trial = self._trial
        leaving = [n for n, member in self._members.items() if member.version != self._wanted]
        name = trial.chance.choice(leaving)
        gone = self._members.pop(name)
        trial.aim()
        trial.note_hit()
        if gone.worker.process.poll() is not None:
            trial.failed(f"a worker ended by itself: {gone.worker.events()[-2:]}")
        elif trial.chance.random() < DRAINED_SHARE:
            trial.drain(gone.worker)
            trial.tried(f"SIGTERM to {gone.version}, {self._wanted} in its place")
        else:
            gone.worker.kill()
            trial.tried(f"SIGKILL to {gone.version}, {self._wanted} in its place")
        if trial.chance.random() < SNAPSHOTS_DELETED_SHARE:
            shutil.rmtree(trial.deployment.snapshots, ignore_errors=True)
            trial.tried("snapshots deleted")
        self._start(name, self._wanted)
        self._see_them_work(f"{self._wanted} in the place of {gone.version}")
        if all(member.version == self._wanted for member in self._members.values()):
            self._wanted = OTHER[self._wanted]

    def end(self) -> None:
        """Drain both."""
        for member in self._members.values():
            self._trial.drain(member.worker)

    def _start(self, name: str, version: str) -> None:
        trial = self._trial
        if self._static:
            trial.deployment.config["kafka"]["group_instance_id"] = name
        worker = trial.start_from(self._old.environment) if version == OLD else trial.start()
        worker.wait_for("connecting", deadline_s=LIVE_S)  # it has read its configuration
        self._members[name] = Member(version, worker)
        self.all.append(self._members[name])

    def _see_them_work(self, what: str) -> None:
        """Until every worker has served and saved something, and the group has read on."""
        for member in self._members.values():
            member.worker.wait_for("shard_live", deadline_s=LIVE_S)
        self._trial.wait_for_progress(what)
        for member in self._members.values():
            member.worker.wait_for("snapshot_saved", deadline_s=LIVE_S)
        held = {m.version for m in self._members.values() if _holds_partitions(m.worker.events())}
        self._trial.count.seen["both versions at work at a time"] += held == {OLD, NEW}


def served_by_both(logs: Sequence[tuple[str, LogLines]]) -> set[int]:
    """Return the partitions that a worker of either version has served; `logs` are versions and what they logged."""
    served: dict[str, set[int]] = {OLD: set(), NEW: set()}
    for version, lines in logs:
        served[version] |= {line["partition"] for line in lines if line["event"] == "shard_live"}
    return served[OLD] & served[NEW]


def crossings(logs: Sequence[tuple[str, LogLines]]) -> Iterator[Crossing]:
    """Yield every load of a snapshot that only the other version has saved, by its partition and its label."""
    saved = {
        (version, line["partition"], line["label"])
        for version, lines in logs
        for line in lines
        if line["event"] == "snapshot_saved"
    }
    for version, lines in logs:
        for number, line in enumerate(lines):
            if line["event"] != "snapshot_loaded":
                continue
            partition, label = line["partition"], line["label"]
            if (version, partition, label) not in saved and (
                (OTHER[version], partition, label) in saved
            ):
                yield Crossing(version, partition, label, _folded(lines[number:], partition, label))


def _folded(lines: LogLines, partition: int, label: int) -> int:
    """How many events the next fold of the partition took from `label` on; 0 if it did not come to its end."""
    ends = (
        line["events"]
        for line in lines
        if (line["event"], line.get("partition"), line.get("start"))
        == ("output_folded", partition, label)
    )
    return next(ends, 0)


def _check(trial: Trial, logs: Sequence[tuple[str, LogLines]]) -> None:
    """Count what the logs show; note as a failure what makes the round no upgrade."""
    seen = trial.count.seen
    seen["partitions that both versions served"] = len(served_by_both(logs))
    crossed = list(crossings(logs))
    for version, other in OTHER.items():
        loaded = sum(crossing.version == version for crossing in crossed)
        seen[f"snapshots of {other} that {version} loaded"] = loaded
    seen["events folded after these snapshots"] = sum(crossing.events for crossing in crossed)
    for what, count in seen.items():
        if not count:
            trial.failed(f"the logs show 0 {what}")
    for version, lines in logs:
        trial.count.failures += [
            f"{version} refused a snapshot: {line['reason']}"
            for line in lines
            if line["event"] == "snapshot_refused"
        ]


def _holds_partitions(lines: LogLines) -> bool:
    assigned = [line["partitions"] for line in lines if line["event"] == "assigned"]
    return bool(assigned and assigned[-1])
