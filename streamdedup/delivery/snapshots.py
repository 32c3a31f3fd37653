"""The snapshots of one shard: saved and loaded in threads, with a log line for each that is saved, loaded or refused.

A save that fails is logged and stops nothing: the output holds everything that a snapshot would.
"""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

from streamdedup.delivery.resume import Unfit
from streamdedup.delivery.shard import Shard
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.events import Fingerprint
from streamdedup.filters.base import Filter
from streamdedup.kafka.client.connection import describe_error
from streamdedup.keys.hashing import Hash
from streamdedup.metrics.counts import ShardMeters
from streamdedup.named_files import make_directory, others_may_write
from streamdedup.settings import Settings
from streamdedup.snapshot import Identity, LockedError, Refusal, Saved, Snapshot, Store
from streamdedup.snapshot.copied import Copy
from streamdedup.snapshot.files import FileSystem
from streamdedup.snapshot.header import Log
from streamdedup.snapshot.touched import MappedStore
from streamdedup.threads import Threads

T = TypeVar("T")
# The file, the label of what it holds, and for how many seconds commits waited for a copy.
_Done = tuple[Saved, int, float]

TRIES = 3  # of one save, while the filter moves
RETRY_S = 0.1
POSTPONED_OFTEN = 3  # saves in a row
WRITTEN = "its snapshot to be written"
COPIED = "its filter to be copied, before a snapshot of it is written"
_OTHER_SAVES = (
    "none unless this goes on: then see that no two workers save the same partition in one directory, and that none was"
    " stopped during a save"
)
_GROWS_OFTEN = (
    "none unless this goes on: a restart then folds more of the output. A filter with a larger filter.capacity grows"
    " less often"
)
_MORE_MEMORY = (
    "give the worker more memory (worker_starts says how much snapshots take), or choose a kind that is not copied"
    " (docs/filters.md); until then a restart folds more of the output"
)
_MORE_SPACE = (
    "make room in snapshot.directory for snapshot.keep + 1 files of each partition, or lower snapshot.keep; until then"
    " fewer are kept"
)


@dataclass(frozen=True)
class Newest:
    """The newest usable snapshot: the one that a restart would load. `saved_at` is in Unix seconds."""

    label: int
    size_bytes: int
    saved_at: float


class ShardSnapshots:
    """Saves and loads the filter of one output partition, one save at a time."""

    def __init__(
        self,
        settings: Settings,
        partition: int,
        log: Any,  # noqa: ANN401 - structlog's
        meters: ShardMeters | None = None,
        fs: FileSystem = os,
        *,
        threads: Threads | None = None,
        store: type[Store] = Store,
    ) -> None:
        self.name = f"{settings.source.topic}/{partition}"  # the shard's
        self.still = asyncio.Lock()
        """Held by whoever changes the filter or its label, and while it is copied."""
        self.saved: Saved | None = None
        self.newest: Newest | None = None
        self._meters = ShardMeters() if meters is None else meters
        self._leaves = False  # whether the last save left something that could not be removed
        self._gave_up = False  # whether the last save gave up older generations for want of space
        self._postponed = 0  # saves in a row
        self._labels: list[int] = []  # of the newest usable snapshots, newest first
        # So many of them must stay usable when the output is trimmed; `due` holds that.
        self._spares = min(2, settings.snapshot.keep)
        self._threads = threads or Threads()
        # The newest that was refused for its settings, at the last load.
        self.unfit: Unfit | None = None
        self.search = "none was looked for"
        """What the last load found, as text."""
        self._keep = settings.snapshot.keep
        self._saving: asyncio.Task[None] | None = None
        self._cut_short = threading.Event()
        self._log = log
        self._hash_key = settings.filter.hash_key_bytes
        self._store = store(
            settings.snapshot.directory,
            group=settings.kafka.group_id,
            topic=settings.sink.topic,
            partition=partition,
            keep=settings.snapshot.keep,
            fs=fs,
        )

    @property
    def writes(self) -> bool:
        """Whether a thread is writing a snapshot, or copies the filter for one."""
        return any(
            lane.works_for(self.name) for lane in (self._threads.saves, self._threads.copies)
        )

    @property
    def waits(self) -> str | None:
        """What the shard waits for from the disk, as text; None if it does not wait. Any thread may ask."""
        return self._threads.loads.waits(self.name)

    @property
    def label(self) -> int:
        """The label of the newest usable snapshot; 0 without one, as that of a filter that has folded nothing."""
        return self._labels[0] if self._labels else 0

    def due(self, label: int, log_start: int) -> bool:
        """Return whether events were deleted that are not in the second-newest snapshot, but would be in a new one.

        `label` is the label of the new one. If so, only the newest snapshot is usable, and no other place holds the
        keys of those events. With `snapshot.keep: 1` this looks at the newest snapshot instead.
        """
        spare = self._labels[-1] if len(self._labels) == self._spares else 0
        return spare < min(label, log_start)

    def exposes(self, label: int, log_start: int) -> bool:
        """Return whether only the filter in memory, folded up to `label`, still holds keys of deleted events."""
        return self.label < min(label, log_start)

    async def exist(self) -> bool:
        """Return whether snapshots exist, usable or not; true also if the disk answers with an error."""
        try:
            return await self._read("the list of its snapshots", self._store.exists)
        except SnapshotError:
            return True

    async def past(self) -> Sequence[Log]:
        """Return the log that the newest snapshot names; without one, the logs that those of other partitions name.

        They may be other logs than the output's. Empty if there is none, or the disk answers with an error.
        """

        def newest() -> list[Log]:
            if own := self._store.newest_log():
                return [own]
            others = (store.newest_log() for store in self._store.other_partitions())
            return [log for log in others if log]

        with suppress(SnapshotError, OSError):
            return await self._read("the logs of its snapshots", newest)
        return []

    async def load(
        self,
        identity: Identity,
        end: int,
        doubt: Callable[[Snapshot], Awaitable[str | None]],
    ) -> Snapshot | None:
        """Return the newest snapshot that is intact, has this `identity`, is not ahead of `end`, and has no `doubt`.

        `end` is the output's end. `doubt` returns the reason why a snapshot does not belong to this log, None if it
        does. Return None if there is none, or the disk answers with an error: the shard then folds
        the whole output. Each refusal is counted, and the newest is logged as `snapshot_refused`.
        """
        snapshot, refusals = await self._newest(identity, end, doubt)
        self._log_refused(
            sorted(refusals.values(), key=_age, reverse=True), identity, used=snapshot is not None
        )
        self._labels = []
        self._note_search(snapshot, [*refusals.values()])
        if snapshot is not None:
            older = await self._labels_of(identity, snapshot.path)
            self._labels = [snapshot.label, *older][: self._spares]
            self.newest = Newest(snapshot.label, snapshot.size_bytes, snapshot.saved_at)
            self._log.info("snapshot_loaded", path=str(snapshot.path), label=snapshot.label)
            if snapshot.writers:
                self._log.warning(
                    "snapshot_writable", path=str(snapshot.path), **writable(snapshot.writers)
                )
            if snapshot.exposes_secret:
                self._log.warning(
                    "snapshot_exposed",
                    path=str(snapshot.path),
                    mode=f"{snapshot.mode:04o}",
                    reason="every user of this machine may read it, and with it the secret of the filter's hash",
                    remedy=f"chmod 600 {snapshot.path}; if somebody may have read it, remove all snapshots of the"
                    " partition while no worker runs, so that it draws another secret (docs/keys.md)",
                )
        return snapshot

    def _note_search(self, snapshot: Snapshot | None, refusals: Sequence[Refusal]) -> None:
        """Note, for messages, what a load found; log it if there was nothing."""
        newest = max(refusals, key=_age, default=None)
        refused = f"{newest.path} was refused: {newest.reason}" if newest else ""
        if snapshot is not None:
            used = f"the newest that is of use, {snapshot.path}, reaches up to {snapshot.label}"
            self.search = f"{refused}; {used}" if refused else used
        elif refused:
            self.search = refused
        else:
            self.search = f"none was found in {self._store.path}"
            self._log.info("no_snapshot", directory=str(self._store.path))

    async def _newest(
        self, identity: Identity, end: int, doubt: Callable[[Snapshot], Awaitable[str | None]]
    ) -> tuple[Snapshot | None, dict[Path, Refusal]]:
        """Return the newest usable snapshot of `identity`, and the refusals of the newer ones."""
        refusals: dict[Path, Refusal] = {}
        doubted: set[Path] = set()

        def refuse(refusal: Refusal) -> None:
            refusals.setdefault(refusal.path, refusal)

        def newest() -> Snapshot | None:
            try:
                return self._store.load(
                    identity,
                    end=end,
                    on_refusal=refuse,
                    hash_key=self._hash_key,
                    passing_over=doubted,
                )
            except SnapshotError as error:
                refuse(Refusal(self._store.path, str(error)))
                return None

        while snapshot := await self._read("its newest snapshot", newest):
            if (reason := await doubt(snapshot)) is None:
                break
            doubted.add(snapshot.path)
            refuse(Refusal(snapshot.path, f"{reason}; {self._store.left_in_place}"))
        return snapshot, refusals

    async def newest_label(self, identity: Identity) -> int:
        """Return the label of the newest snapshot of `identity` on the disk, whoever saved it; 0 if there is none."""
        return max(await self._labels_of(identity), default=0)

    async def _labels_of(self, identity: Identity, before: Path | None = None) -> list[int]:
        with suppress(SnapshotError):
            labels = partial(self._store.labels, identity, before)
            return await self._read("the labels of its snapshots", labels)
        return []

    async def _read(self, what: str, call: Callable[[], T]) -> T:
        return await self._threads.loads.run(self.name, what, call)

    def _log_refused(self, refusals: list[Refusal], identity: Identity, *, used: bool) -> None:
        """Log the newest of `refusals`, which are sorted so, and note the newest that only settings keep from use."""
        self._meters.snapshots_refused += len(refusals)
        unfit = [self._unfit(each.path, each.unfit, identity) for each in refusals if each.unfit]
        self.unfit = unfit[0] if unfit else None
        if refusals:
            way_back = unfit[0].way_back if refusals[0].unfit else None
            self._log.warning(
                "snapshot_refused",
                path=str(refusals[0].path),
                reason=refusals[0].reason,
                refused=len(refusals),
                instead="an older one is used" if used else "the output is folded",
                remedy=f"none if that was changed on purpose; if not, {way_back}, and restart"
                if way_back
                else "none if the partition goes live; if it stops instead, its message says what to do",
            )

    def _unfit(self, path: Path, log: Log, identity: Identity) -> Unfit:
        return Unfit(str(path), log.label, identity.way_to(log.identity), self._keep)

    def look(self, path: Path) -> None:
        """Verify what was touched of a mapped generation. DamagedFileError if it is damaged."""
        if isinstance(self._store, MappedStore):
            self._store.check(path)

    def close(self) -> None:
        """Close what a mapped store holds open."""
        if isinstance(self._store, MappedStore):
            self._store.close()

    async def save(
        self,
        shard: Shard,
        identity: Identity,
        fingerprint: Fingerprint | None = None,
        input_id: str | None = None,
        *,
        schemas: Mapping[int, str] | None = None,
        again: bool = False,
    ) -> None:
        """Save a snapshot if the label has moved since the last one, or if `again`. Failures are logged, never raised.

        `fingerprint` is that of a record batch below the label, `input_id` the topic id of the input; `schemas` are the
        digests of the schemas that were met, by id. If this call is cancelled, the save goes on, and the next call
        waits for it.
        """
        while self._saving is not None and not self._saving.done():
            await asyncio.wait({self._saving})
        if again or shard.label != self.label:
            saving = self._save(shard, identity, fingerprint, input_id, schemas or {})
            self._saving = asyncio.create_task(saving)
            await asyncio.wait({self._saving})

    def cut_short(self) -> None:
        """Give up the save that is under way or waits for its turn, and every later one."""
        self._cut_short.set()
        if self._saving is not None:
            self._saving.cancel()

    async def _save(
        self,
        shard: Shard,
        identity: Identity,
        fingerprint: Fingerprint | None,
        input_id: str | None,
        schemas: Mapping[int, str],
    ) -> None:
        write = partial(
            self._store.save,
            identity=identity,
            fingerprint=fingerprint,
            input_id=input_id,
            schemas=schemas,
            cut_short=self._cut_short.is_set,
        )
        save_once = self._save_live if shard.filter.only_sets_bits else self._save_copy
        try:
            done = None
            for _ in range(TRIES):
                if done := await save_once(shard, write):
                    break
                await asyncio.sleep(RETRY_S)
        except LockedError as error:
            self._note_postponed(str(error), _OTHER_SAVES)
            return
        except MemoryError as error:
            self._note_postponed(f"there is no memory: {error}", _MORE_MEMORY)
            return
        except Exception as error:
            self._meters.snapshots_failed += 1
            self._log.error("snapshot_failed", **describe_error(error))
            return
        if done is None:
            self._note_postponed("the filter was growing", _GROWS_OFTEN)
            return
        saved, label, held_s = done
        self._postponed = 0
        self.saved, self._labels = saved, [label, *self._labels][: self._spares]
        self.newest = Newest(label, saved.size_bytes, time.time())
        self._meters.snapshots_saved += 1
        self._log.info(
            "snapshot_saved",
            label=label,
            size_bytes=saved.size_bytes,
            seconds=round(saved.seconds, 3),
            commits_held_s=round(held_s, 3),
        )
        if saved.left is not None and not self._leaves:
            self._log.warning(
                "snapshot_leftover", path=str(saved.left.path), reason=saved.left.reason
            )
        self._leaves = saved.left is not None
        if saved.given_up and not self._gave_up:
            self._log.warning(
                "snapshots_given_up",
                generations=saved.given_up,
                reason="there was no space left for the new one",
                remedy=_MORE_SPACE,
            )
        self._gave_up = saved.given_up > 0

    def _note_postponed(self, reason: str, remedy: str) -> None:
        """Log that nothing was saved, and that the next save will be; a warning if that is so again and again."""
        self._postponed += 1
        log_postponed = self._log.warning if self._postponed >= POSTPONED_OFTEN else self._log.info
        log_postponed("snapshot_postponed", times=self._postponed, reason=reason, remedy=remedy)

    async def _save_live(self, shard: Shard, write: Callable[..., Saved]) -> _Done | None:
        """Write the filter itself, to which the shard adds meanwhile; return None if it cannot be saved now.

        That is so between two steps of an admission, and if a chain grows during the save: a filter that only sets bits
        is written while it changes, but its layout must stay.
        """
        await self._threads.saves.slot(self.name, WRITTEN)
        if shard.moving:
            return None
        filter_, label = shard.filter, shard.label
        layout = filter_.layout

        def end_label() -> int:
            if _has_moved(filter_, layout):
                raise _MovedError
            return shard.end_label

        writing = partial(write, _Parts.live(filter_), label, end_label)
        try:
            return await self._threads.saves.run(self.name, WRITTEN, writing), label, 0.0
        except _MovedError:
            return None

    async def _save_copy(self, shard: Shard, write: Callable[..., Saved]) -> _Done | None:
        """Write a copy of the filter, and hold up admissions only while it is made; return None if it grew before.

        The memory is in place before admissions wait. Judging goes on all the time: it only reads. MemoryError if
        there is no memory for the copy.
        """
        threads = self._threads
        async with threads.copied:
            sizes = [buffer.nbytes for buffer in shard.filter.buffers()]
            copy = await threads.copies.run(self.name, COPIED, Copy, sizes)
            async with self.still:
                began = time.perf_counter()
                filter_, label, end_label = shard.filter, shard.label, shard.end_label
                header, buffers = filter_.header(), filter_.buffers()
                has_grown = [buffer.nbytes for buffer in buffers] != sizes
                if not has_grown:
                    await threads.copies.run(self.name, COPIED, copy.take, buffers)
                held_s = time.perf_counter() - began
            if has_grown:
                await threads.copies.run(self.name, COPIED, copy.give_back)
                return None
            parts = _Parts(filter_.hash, lambda: header, lambda: copy.buffers)

            def writing() -> Saved:
                try:
                    return write(parts, label, lambda: end_label)
                finally:
                    copy.give_back()

            return await threads.saves.run(self.name, WRITTEN, writing), label, held_s


def _has_moved(filter_: Filter, layout: int) -> bool:
    """Return whether a filter changed by more than bits since its layout was that."""
    return filter_.layout != layout


def _age(refusal: Refusal) -> Path:
    return refusal.path  # the file name is the generation's counter, always in as many digits


def writable(by: str) -> dict[str, str]:
    """Return the reason and the remedy, for the log, if somebody else could write to snapshots."""
    return {
        "reason": f"it can be written to or replaced by {by}; who does so decides which events are dropped",
        "remedy": "take that right away (chmod go-w, chown); if it may have been used, remove the snapshots while no"
        " worker runs: the output is folded anew",
    }


class _MovedError(SnapshotError):
    """The written bytes belong to two different layouts of the filter."""


@dataclass(frozen=True)
class _Parts:
    """The header and buffers of a filter that is written while its shard goes on."""

    hash: Hash
    header: Callable[[], dict[str, Any]]
    buffers: Callable[[], list[memoryview]]

    @classmethod
    def live(cls, filter_: Filter) -> "_Parts":
        """Return the filter itself, with the buffers that it has now: it may set more bits while they are written."""
        buffers = filter_.buffers()
        return cls(filter_.hash, filter_.header, lambda: buffers)


def check_directory(directory: Path) -> str | None:
    """Make the directory of all snapshots. Return who else could write to it, in words; None if nobody could.

    ConfigError if we cannot write there. This blocks.
    """
    try:
        make_directory(directory)
        with TemporaryFile(dir=directory):
            return others_may_write(directory.resolve(), but_our_groups=True)
    except OSError as error:
        raise ConfigError(
            f"snapshot.directory = {directory}: nothing can be written there ({error.strerror})",
            remedy=f"make it writable for user id {os.geteuid()}, or name another",
        ) from None
