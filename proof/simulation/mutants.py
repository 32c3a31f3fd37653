"""The product broken on purpose, one promise at a time: what a simulation is worth is how soon it sees each.

`python -m proof simulation --mutants` says after how many seeds.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from unittest.mock import patch

import numpy as np

from proof.mutants.repartition import purging_ahead
from proof.simulation.world import EPOCH_MS
from streamdedup.delivery import decide, emit, fence, fold, lifecycle, resume
from streamdedup.delivery.emit import Emitter
from streamdedup.delivery.fold import FoldedMemory
from streamdedup.delivery.resume import PartitionState
from streamdedup.delivery.shard import Decided, Shard, verdicts_without_rules
from streamdedup.delivery.side_topics import Letters
from streamdedup.events import Column, Integers, Verdict, Verdicts
from streamdedup.filters.window.clock import in_kernels
from streamdedup.kafka.base import Cluster, Writer
from streamdedup.kafka.records.records import Record
from streamdedup.kafka.topics import Topology
from streamdedup.keys.extract import Keys
from streamdedup.repartition import pieces
from streamdedup.repartition import resume as stage_resume
from streamdedup.repartition.purge import Purge
from streamdedup.rules.duplicates import Duplicates
from streamdedup.rules.lists import NOTHING_BLOCKED, Lists
from streamdedup.rules.window import DuplicatesWithin
from streamdedup.settings import Settings
from streamdedup.snapshot import Store
from streamdedup.snapshot.copied import Copy
from streamdedup.testing import writer
from streamdedup.testing.writer import MemoryWriter


@dataclass(frozen=True)
class Mutant:
    """A patch of the product, with the sort of plan in which it is seen, and the seed that saw it soonest."""

    broken: AbstractContextManager[Any]
    seed: int
    plan: str = "drawn"

    def seeds(self, numbers: Iterable[int]) -> list[int]:
        """The same, that seed first: it saves time, and changes no claim."""
        return sorted(numbers, key=lambda number: number != self.seed)


def mutants() -> dict[str, Mutant]:
    """Each breaks one thing while it is entered."""
    return {
        "admit before commit": Mutant(patch.object(Shard, "decide", _admitting), 1),
        "pending not consulted": Mutant(patch.object(Duplicates, "judge", _forgetful), 1),
        "pending kept in doubt": Mutant(patch.object(Shard, "forget", lambda _self: None), 8),
        "label ahead": Mutant(patch.object(Shard, "admit", _ahead), 1),
        "snapshot's label ahead": Mutant(patch.object(Store, "save", _saved_ahead), 14),
        "end label asked first": Mutant(patch.object(Store, "save", _ended_early), 47),
        "copy of a moment left out": Mutant(
            patch.multiple(Copy, take=_not_copied, give_back=_kept), 0
        ),
        "admitted while it is copied": Mutant(
            patch.object(FoldedMemory, "still", property(_not_still)), 99
        ),
        "side topics beside the transaction": Mutant(
            patch.object(MemoryWriter, "_flush", _beside), 8
        ),
        "duplicates dropped": Mutant(patch.object(Emitter, "_copy", _without_duplicates), 19),
        "rejected after the rules": Mutant(_rejected_last(), 1),
        "a window's time without pending": Mutant(
            patch.object(DuplicatesWithin, "judge", _behind), 4
        ),
        "a window folded by the clock": Mutant(patch.object(Shard, "fold", _stamped), 6),
        "second writer not noticed": Mutant(
            patch.object(writer, "check_contiguous", lambda *_: None), 230
        ),
        "output not folded": Mutant(patch.object(FoldedMemory, "_fold", _unfolded), 6),
        "offset read before fencing": Mutant(patch.object(lifecycle, "fence", _offset_first), 145),
        "transactional id by process": Mutant(patch.object(MemoryWriter, "__init__", _own_id), 45),
        "writer not fenced again in doubt": Mutant(
            patch.object(MemoryWriter, "fence", _fenced_once), 2
        ),
        "lost answer of a commit ignored": Mutant(
            patch.object(MemoryWriter, "commit", _trusting), 15
        ),
        "topic ids ignored": Mutant(
            patch.object(resume, "differs", lambda _one, _other: False), 52
        ),
        "not screened": Mutant(
            patch.object(Lists, "ask", lambda *_: NOTHING_BLOCKED), 15, "screening"
        ),
        "not sent": Mutant(patch.object(Letters, "chunks", lambda *_: iter(())), 19, "screening"),
        "marks not read": Mutant(patch.object(fold, "marks_of", _no_marks), 0, "shadowed"),
        "another's mark believed": Mutant(
            patch.object(emit, "marked_rows", _no_rows), 3, "shadowed"
        ),
        "middle ids ignored": Mutant(
            patch.object(stage_resume, "differs", lambda *_: False), 118, "repartitioned"
        ),
        "purged ahead": Mutant(patch.object(Purge, "__init__", purging_ahead), 1, "repartitioned"),
        "placed by nothing": Mutant(
            patch.object(pieces, "partitions_of", _all_in_one), 0, "repartitioned"
        ),
    }


_decide, _admit, _judge = Shard.decide, Shard.admit, Duplicates.judge
_fold, _judged, _copy = Shard.fold, DuplicatesWithin.judge, Emitter._copy
_flush = MemoryWriter._flush
_save, _fence = Store.save, fence.fence
_init, _commit, _writer_fence = MemoryWriter.__init__, MemoryWriter.commit, MemoryWriter.fence
_numbers = count()


def _admitting(self: Any, *arguments: Any) -> Any:
    decided = _decide(self, *arguments)
    waiting = self._rule._waiting
    self.filter.add_many(waiting.first(len(waiting)))
    return decided


def _forgetful(self: Duplicates, *arguments: Any, **more: Any) -> Any:
    for table in self._waiting._tables:
        table.slots[:] = 0
    return _judge(self, *arguments, **more)


def _not_copied(self: Any, buffers: Sequence[memoryview]) -> None:
    self._memory = buffers


def _kept(_self: Copy) -> None:
    return


def _not_still(_self: FoldedMemory) -> asyncio.Lock:
    return asyncio.Lock()


def _ahead(self: Shard, label: int) -> Iterator[None]:
    return _admit(self, label + 1)


def _saved_ahead(
    self: Store, filter_: Any, label: int, end_label: Callable[[], int], *rest: Any, **more: Any
) -> Any:
    return _save(self, filter_, label + 1, lambda: end_label() + 1, *rest, **more)


def _ended_early(
    self: Store, filter_: Any, label: int, end_label: Callable[[], int], *rest: Any, **more: Any
) -> Any:
    end = end_label()
    return _save(self, filter_, label, lambda: end, *rest, **more)


async def _beside(self: MemoryWriter, topic: str, partition: int, batch: list[Record]) -> None:
    inside = topic == self._sink.topic
    with nullcontext() if inside else patch.object(self, "_exactly_once", new=False):
        await _flush(self, topic, partition, batch)


async def _without_duplicates(self: Emitter, topic: str, *events: Any) -> None:
    if topic != self._sink.duplicates_topic:
        await _copy(self, topic, *events)


@contextmanager
def _rejected_last() -> Iterator[None]:
    with (
        patch.object(decide, "verdicts_without_rules", _rejected_judged),
        patch.object(Shard, "decide", _rejecting_last),
    ):
        yield


def _rejected_judged(keys: Keys, rejected: Sequence[int]) -> tuple[Verdicts, Integers]:
    verdicts, rows = verdicts_without_rules(keys, ())
    verdicts[rejected] = Verdict.REJECTED
    return verdicts, rows


def _rejecting_last(self: Shard, verdicts: Verdicts, *arguments: Any) -> Decided:
    is_rejected = verdicts == Verdict.REJECTED
    decided = _decide(self, verdicts, *arguments)
    decided.verdicts[is_rejected[: len(decided.verdicts)]] = Verdict.REJECTED
    return decided


def _behind(self: DuplicatesWithin, *arguments: Any, **more: Any) -> Any:
    reached, self._marks = self._marks, self._filter.marks
    verdicts = _judged(self, *arguments, **more)
    self._marks = max(reached, self._marks, key=lambda marks: in_kernels(marks.watermark))
    return verdicts


def _stamped(self: Shard, keys: Any, times: Any, label: int) -> Iterator[None]:
    return _fold(self, keys, times * 0 + EPOCH_MS, label)


async def _unfolded(
    _self: FoldedMemory, shard: Shard, found: PartitionState, _foreign: object
) -> None:
    shard.end_fold(found.output_end)


async def _offset_first(
    settings: Settings, cluster: Cluster, writer: Writer, partition: int, **more: Any
) -> tuple[Topology, PartitionState]:
    group, source = settings.kafka.group_id, settings.source.topic
    early = await cluster.committed_all(group, source, [partition], stable=False)
    topology, found = await _fence(settings, cluster, writer, partition, **more)
    return topology, replace(found, committed=early.get(partition))


def _own_id(self: MemoryWriter, *arguments: Any, **more: Any) -> None:
    _init(self, *arguments, **more)
    self._transactional_id += f"/{next(_numbers)}"


async def _fenced_once(self: MemoryWriter) -> None:
    if self._connection is None:
        await _writer_fence(self)


async def _trusting(self: MemoryWriter, *arguments: Any) -> None:
    try:
        await _commit(self, *arguments)
    except Exception:
        return


def _no_marks(headers: Any) -> Any:
    return np.zeros(len(headers), dtype=np.uint8)


def _no_rows(_headers: object) -> Integers:
    return np.zeros(0, dtype=np.int64)


def _all_in_one(keys: Column, _partitions: int) -> Integers:
    return np.zeros(len(keys), dtype=np.int64)
