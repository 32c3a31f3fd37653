"""What operators do to a stopped deployment: offsets moved, groups, snapshots deleted, topics trimmed and made again.

Between two workers every transaction is settled and the offset read, so the model knows which events were skipped.
"""

import shutil

from confluent_kafka import KafkaError, Producer
from confluent_kafka.cimpl import NewPartitions

from proof.chaos.asking import patiently
from proof.chaos.offset_delete import delete_offsets
from proof.chaos.oracle import judge
from proof.chaos.trial import CATCH_UP_S, LIVE_S, Trial
from tests.broker.base import DEADLINE_S, admin_client, client_config, wait_until
from tests.broker.topics import (
    create_topic,
    delete_records,
    delete_topic,
    move_offsets,
    read_all,
    unique_name,
)
from tests.deployment import Deployment, WorkerProcess

MOVED_SHARE = 0.7
ACTS = (
    "offsets moved",
    "offsets moved",
    "offsets moved",
    "group deleted",
    "offsets of some partitions deleted",
    "snapshots deleted",
)


def move_and_delete(trial: Trial, acts: int) -> None:
    """Kill, then move offsets in both directions, delete the group or the snapshots, so many times."""
    read = _ReadOffsets(trial)
    for _ in range(acts):
        worker = trial.start_live()
        trial.aim()
        worker.kill()
        read.close(worker)
        act = trial.chance.choice(ACTS)
        if act == "offsets moved":
            _move(trial, read)
        elif act == "group deleted":
            delete_group(trial, trial.deployment.group)
            read.starts = {}
            trial.tried(act)
        elif act == "offsets of some partitions deleted":
            for partition in _delete_offsets(trial):
                read.starts.pop(partition, None)
            trial.tried(act)
        else:
            shutil.rmtree(trial.deployment.snapshots, ignore_errors=True)
            trial.tried(act)
    read.leave_open()


def trim_below_snapshots(trial: Trial, acts: int) -> None:
    """Kill, trim the output as far as the newest snapshots allow, move the offsets back to the start."""
    for _ in range(acts):
        worker = trial.start_live()
        worker.wait_for("snapshot_saved", trial.partitions)
        trial.aim()
        worker.kill()
        settled = _settled(trial)
        labels = {e["partition"]: e["label"] for e in worker.events("snapshot_saved")}
        _trim(trial, labels)
        trial.tried("output trimmed up to the newest snapshot")
        back = {p: trial.chance.randrange(at) for p, at in settled.items() if at}
        move_offsets(
            trial.deployment.bootstrap, trial.deployment.group, back, trial.deployment.source
        )


def trim_beyond_snapshots(trial: Trial, acts: int) -> None:
    """Trim what no snapshot holds: each partition stops with a message; after `accept` the rest is still exact."""
    deployment = trial.deployment
    _work_and_kill(trial)
    _settled(trial)
    shutil.rmtree(deployment.snapshots, ignore_errors=True)
    ends = trial.output_ends()
    _trim(trial, {p: trial.chance.randrange(1, end) for p, end in ends.items()})
    trial.tried("output trimmed beyond the snapshots")
    worker = trial.start()
    for stopped in worker.wait_for("shard_stopped", trial.partitions, LIVE_S):
        if "sink.on_gap" not in stopped["error"]:
            trial.failed(f"stopped for another reason: {stopped['error']}")
    worker.kill()
    deployment.config["sink"]["on_gap"] = "accept"
    trial.model.forgotten = True
    for _ in range(acts):
        _work_and_kill(trial)


def remake_topics(trial: Trial, acts: int) -> None:
    """Make the input again, so many times; then the output, which stops each partition until a new group begins."""
    deployment = trial.deployment
    for _ in range(acts):
        worker = trial.start_live()
        trial.aim()
        trial.feeder.finish()
        trial.wait_until_all_read()
        worker.kill()
        _settled(trial)
        trial.model.read_before += patiently(
            lambda: read_all(deployment.bootstrap, deployment.source)
        )
        delete_topic(deployment.bootstrap, deployment.source)
        create_topic(deployment.bootstrap, deployment.source, trial.partitions)
        trial.tried("input made again")
        trial.feed()
    worker = trial.start_live()
    trial.feeder.finish()
    trial.wait_until_all_read()
    worker.kill()
    _settled(trial)
    finding = judge(deployment, trial.brokers, trial.model)
    if not finding.exact:
        trial.failed(f"after inputs were made again: {finding}")
    trial.model.read_before = []  # it was emitted into what is deleted now, and cannot be read again
    delete_topic(deployment.bootstrap, deployment.sink)
    create_topic(deployment.bootstrap, deployment.sink, trial.partitions)
    trial.tried("output made again")
    worker = trial.start()
    for stopped in worker.wait_for("shard_stopped", trial.partitions, LIVE_S):
        if "deleted and made again" not in stopped["error"]:
            trial.failed(f"stopped for another reason: {stopped['error']}")
    worker.kill()
    deployment.group = deployment.config["kafka"]["group_id"] = unique_name("group")


def grow_topics(trial: Trial, acts: int) -> None:
    """Add partitions: each partition stops with a message; after `accept`, keys that moved pass once where they are."""
    deployment = trial.deployment
    _work_and_kill(trial)
    trial.feeder.finish()
    before = trial.partitions
    deployment.partitions += before // 2
    add_partitions(deployment, deployment.sink, deployment.source)
    trial.tried("partitions added")
    trial.model.spread = True
    trial.feed()
    worker = trial.start()
    for stopped in worker.wait_for("shard_stopped", before, LIVE_S):
        if "source.on_growth" not in stopped["error"]:
            trial.failed(f"stopped for another reason: {stopped['error']}")
    worker.kill()
    deployment.config["source"]["on_growth"] = "accept"
    for _ in range(acts):
        _work_and_kill(trial)


class _ReadOffsets:
    """Which offsets were read: from where each worker began to what was committed when it had ended."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self.starts: dict[int, int] = {}
        self.offsets: dict[int, int] = {}
        trial.model.covered = {p: [] for p in range(trial.partitions)}

    def close(self, worker: WorkerProcess) -> None:
        """The worker has been killed; it must have begun where it was told to."""
        self.offsets = _settled(self._trial)
        for partition in range(self._trial.partitions):
            began = [
                e["offset"] for e in worker.events("shard_live") if e["partition"] == partition
            ]
            start = self.starts.get(partition, 0)
            if began and began[0] != start:
                self._trial.failed(f"{partition} was read from {began[0]}, not from {start}")
            self._cover(partition, range(start, self.offsets.get(partition, 0)))
        self.starts = dict(self.offsets)

    def move(self, offsets: dict[int, int]) -> None:
        """The next worker begins there."""
        self.starts |= offsets

    def leave_open(self) -> None:
        """The last worker reads on to the end of the input."""
        for partition in range(self._trial.partitions):
            self._cover(partition, range(self.starts.get(partition, 0), 1 << 62))

    def _cover(self, partition: int, offsets: range) -> None:
        covered = self._trial.model.covered
        assert covered is not None
        if len(offsets):
            covered[partition].append(offsets)


def _move(trial: Trial, read: _ReadOffsets) -> None:
    deployment, chance = trial.deployment, trial.chance
    ends = trial.input_ends()
    forward = chance.random() < 0.4
    moved = {
        p: chance.randint(at, ends[p]) if forward else chance.randrange(at)
        for p, at in read.offsets.items()
        if at and chance.random() < MOVED_SHARE
    }
    if not moved:
        return
    move_offsets(deployment.bootstrap, deployment.group, moved, deployment.source)
    read.move(moved)
    trial.tried("offsets moved forward" if forward else "offsets moved back")


def _work_and_kill(trial: Trial) -> None:
    worker = trial.start_live()
    trial.wait_for_progress("a start")
    trial.aim()
    worker.kill()


def _trim(trial: Trial, before: dict[int, int]) -> None:
    """Delete what stands below these offsets of the output; the model keeps it."""
    deployment = trial.deployment
    trial.model.emitted_before += [
        record
        for record in patiently(lambda: read_all(deployment.bootstrap, deployment.sink))
        if record.offset < before.get(record.partition, 0)
    ]
    delete_records(deployment.bootstrap, deployment.sink, before)


def _settled(trial: Trial) -> dict[int, int]:
    """The committed offsets, when what the killed worker left open has been taken back, by its own fence."""
    for partition in range(trial.partitions):
        patiently(lambda partition=partition: _fence(trial.deployment, partition))  # type: ignore[misc]
    return trial.committed(stable=True)


def _fence(deployment: Deployment, partition: int) -> None:
    name = f"{deployment.sink}/{partition}"
    Producer(client_config(deployment.bootstrap) | {"transactional.id": name}).init_transactions(
        DEADLINE_S
    )


def _delete_offsets(trial: Trial) -> list[int]:
    """Delete the committed offsets of some partitions, as `kafka-consumer-groups.sh --delete-offsets` does."""
    deployment, chance = trial.deployment, trial.chance
    chosen = [p for p in range(trial.partitions) if chance.random() < MOVED_SHARE]
    if chosen:
        patiently(
            lambda: delete_offsets(
                deployment.bootstrap, deployment.group, deployment.source, chosen
            )
        )
    return chosen


def delete_group(trial: Trial, group: str) -> None:
    """Delete a group, once it has no members."""
    admin = admin_client(trial.deployment.bootstrap)
    error = None

    def deleted() -> bool:
        nonlocal error
        (result,) = admin.delete_consumer_groups([group]).values()
        error = result.exception(DEADLINE_S)
        # It is gone, too, if the answer to an earlier request was lost.
        return error is None or error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND

    wait_until(deleted, CATCH_UP_S, lambda: f"{group} is not deleted: {error}")


def add_partitions(deployment: Deployment, *topics: str) -> None:
    """Give topics as many partitions as the deployment is to have."""
    admin = admin_client(deployment.bootstrap)
    for topic in topics:
        wanted = NewPartitions(topic, deployment.partitions)
        admin.create_partitions([wanted])[topic].result(DEADLINE_S)
