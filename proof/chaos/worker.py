"""`python -m proof.chaos.worker run -c FILE`: the product's own command, that ends or stops at a named step.

The steps are wrapped from outside, so the product has no hooks. What is to happen is JSON in the variable CHAOS: a
signal at a step, a disk that fails, or a promise that is broken on purpose, for the oracle's own test.
"""

import json
import os
import resource
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from functools import wraps
from typing import Any

from proof.chaos.files import BadDisk, SteppingFs, UnreadableSnapshots, tell
from streamdedup.testing.files import WatchedFs

VARIABLE = "CHAOS"
REACHED = "chaos_reached"

TRANSACTION_STEPS = (
    "begun",
    "first_sent",  # the bytes of the first ProduceRequest went out
    "all_sent",
    "before_offsets",
    "offsets_sent",  # the bytes of TxnOffsetCommit went out
    "before_commit",
    "end_sent",  # the bytes of EndTxn went out, and no answer came
    "committed",
    "admitting",
    "admitted",
)
SNAPSHOT_STEPS = (
    "snapshot_opened",
    "snapshot_written",
    "snapshot_synced",
    "snapshot_closed",
    "snapshot_renamed",
    "snapshot_directory_synced",
)
RESTORE_STEPS = ("fenced", "folded")
COPY_STEPS = (  # of the first stage of `source.repartition`
    "copying_begun",
    "copies_sent",
    "copies_acknowledged",
    "input_offsets_added",
    "copied",
    "purging",
    "purged",
)
STEPS = (*TRANSACTION_STEPS, *SNAPSHOT_STEPS, *RESTORE_STEPS)


Wanted = Mapping[str, object]
"""What is to happen in a worker; those of several functions below may be merged."""


def at_step(step: str, passes: int, deed: signal.Signals) -> Wanted:
    """The worker sends itself `deed` when it has reached `step` for the `passes`-th time."""
    return {"step": {"step": step, "passes": passes, "deed": int(deed)}}


def with_disk(*, first: int, count: int, error: str | None = None, slow_s: float = 0.0) -> Wanted:
    """The worker's snapshots meet a bad disk.

    Of the calls to the file system from the first save on, those from number `first` (from 0) on, `count` of them, fail
    with `error`, a name of `errno`, or take `slow_s` longer.
    """
    return {"disk": {"first": first, "count": count, "error": error, "slow_s": slow_s}}


def with_unreadable_snapshots(call: str, error: str) -> Wanted:
    """Until the first save, each `call` (listdir, open, readv) to the file system of snapshots fails with `error`."""
    return {"unreadable": {"call": call, "error": error}}


def with_purges(every_s: float) -> Wanted:
    """The worker deletes what it has read of the middle topic so often."""
    return {"purge_every_s": every_s}


def with_descriptors(most: int) -> Wanted:
    """The worker may open so many files and connections."""
    return {"descriptors": most}


def broken(promise: str) -> Wanted:
    """The worker breaks a promise, one of `_MUTANTS`."""
    return {"broken": promise}


def environment(wanted: Wanted) -> dict[str, str]:
    """What the wrapper's process is to be started with."""
    return {VARIABLE: json.dumps(wanted)}


class _Steps:
    """Counts how often each step was reached; the worker's threads reach some."""

    def __init__(self, step: str, passes: int, deed: int) -> None:
        self._step, self._passes, self._deed = step, passes, deed
        self._reached: Counter[str] = Counter()
        self._lock = threading.Lock()

    def reached(self, step: str) -> None:
        """Say so; does the deed where it is due."""
        with self._lock:
            self._reached[step] += 1
            due = step == self._step and self._reached[step] == self._passes
        if due:
            tell(REACHED, step=step, passes=self._passes)
            os.kill(os.getpid(), self._deed)


def _wrap_writer(steps: _Steps) -> None:
    from aiokafka import AIOKafkaProducer

    from streamdedup.kafka.sink import KafkaWriter
    from streamdedup.kafka.source import KafkaMember

    _around(KafkaWriter, "fence", after=lambda: steps.reached("fenced"))
    _around(KafkaWriter, "begin", after=lambda: steps.reached("begun"))
    _around(KafkaWriter, "settle", after=lambda: steps.reached("all_sent"))
    _around(
        AIOKafkaProducer,
        "send_offsets_to_transaction",
        before=lambda: steps.reached("before_offsets"),
    )
    _around(AIOKafkaProducer, "commit_transaction", before=lambda: steps.reached("before_commit"))
    _around(KafkaWriter, "commit", after=lambda: steps.reached("committed"))
    _around(KafkaMember, "commit", after=lambda: steps.reached("committed"))  # at least once


def _wrap_copier(steps: _Steps) -> None:
    from streamdedup.kafka.client.fenced_offsets import FencedOffsets
    from streamdedup.kafka.cluster import KafkaCluster
    from streamdedup.kafka.group_sink import KafkaGroupWriter

    _around(KafkaGroupWriter, "begin", after=lambda: steps.reached("copying_begun"))
    _around(
        KafkaGroupWriter,
        "settle",
        before=lambda: steps.reached("copies_sent"),
        after=lambda: steps.reached("copies_acknowledged"),
    )
    _around(FencedOffsets, "add", after=lambda: steps.reached("input_offsets_added"))
    _around(KafkaGroupWriter, "commit", after=lambda: steps.reached("copied"))
    _around(
        KafkaCluster,
        "delete_records",
        before=lambda: steps.reached("purging"),
        after=lambda: steps.reached("purged"),
    )


def _wrap_connection(steps: _Steps) -> None:
    """The bytes of a request go to the kernel within `send`, as long as none are waiting."""
    from aiokafka.conn import AIOKafkaConnection

    names = {
        "ProduceRequest": "first_sent",
        "TxnOffsetCommitRequest": "offsets_sent",
        "EndTxnRequest": "end_sent",
    }
    send = AIOKafkaConnection.send

    @wraps(send)
    def sending(self: Any, request: Any, *arguments: Any, **named: Any) -> Any:
        answer = send(self, request, *arguments, **named)
        if step := names.get(type(request).__name__):
            steps.reached(step)
        return answer

    AIOKafkaConnection.send = sending


def _wrap_shard(steps: _Steps) -> None:
    from streamdedup.delivery.shard import Shard

    admit, end_fold = Shard.admit, Shard.end_fold

    @wraps(admit)
    def admitting(self: Shard, *arguments: Any, **named: Any) -> Iterator[None]:
        steps.reached("admitting")
        yield from admit(self, *arguments, **named)
        steps.reached("admitted")

    @wraps(end_fold)
    def ending_fold(self: Shard, *arguments: Any, **named: Any) -> None:
        end_fold(self, *arguments, **named)
        steps.reached("folded")

    Shard.admit, Shard.end_fold = admitting, ending_fold  # type: ignore[method-assign]


def _around(
    owner: type,
    name: str,
    before: Callable[[], None] | None = None,
    after: Callable[[], None] | None = None,
) -> None:
    original = getattr(owner, name)

    @wraps(original)
    async def wrapped(*arguments: Any, **named: Any) -> Any:
        if before:
            before()
        result = await original(*arguments, **named)
        if after:
            after()
        return result

    setattr(owner, name, wrapped)


def _give_snapshots(fs: WatchedFs) -> None:
    from streamdedup.snapshot import Store

    make = Store.__init__

    @wraps(make)
    def made(self: Store, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **{**named, "fs": fs})

    Store.__init__ = made  # type: ignore[method-assign]


def _take_doubt_for_success() -> None:
    """Broken: what was decided counts as admitted, though nobody knows whether it was committed."""
    from streamdedup.delivery.shard import Shard

    forget = Shard.forget

    @wraps(forget)
    def admitted_all_the_same(self: Shard) -> None:
        while self.pending:
            deque(self.admit(self.label), maxlen=0)
        forget(self)

    Shard.forget = admitted_all_the_same  # type: ignore[method-assign]


def _leave_out_the_fold() -> None:
    """Broken: what was emitted since the snapshot is not known any more."""
    from streamdedup.events import EventBatch
    from streamdedup.kafka.cluster import KafkaCluster

    async def no_events(*_: object, **__: object) -> AsyncGenerator[EventBatch]:
        nothing: tuple[EventBatch, ...] = ()
        for batch in nothing:
            yield batch

    KafkaCluster.committed_events = no_events  # type: ignore[method-assign]


_MUTANTS: Mapping[str, Callable[[], None]] = {
    "doubt is success": _take_doubt_for_success,
    "no fold": _leave_out_the_fold,
}


def _prepare(wanted: Mapping[str, Any]) -> None:
    if "step" in wanted:
        steps = _Steps(**wanted["step"])
        _wrap_writer(steps)
        _wrap_copier(steps)
        _wrap_connection(steps)
        _wrap_shard(steps)
        _give_snapshots(SteppingFs(steps.reached))
    if "descriptors" in wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted["descriptors"], wanted["descriptors"]))
    if "purge_every_s" in wanted:
        from streamdedup.repartition import purge

        purge.EVERY_S = wanted["purge_every_s"]
    if "disk" in wanted:
        _give_snapshots(BadDisk(**wanted["disk"]))
    if "unreadable" in wanted:
        _give_snapshots(UnreadableSnapshots(**wanted["unreadable"]))
    if "broken" in wanted:
        _MUTANTS[wanted["broken"]]()


if __name__ == "__main__":
    from streamdedup.cli import main

    _prepare(json.loads(os.environ[VARIABLE]))
    sys.exit(main())
