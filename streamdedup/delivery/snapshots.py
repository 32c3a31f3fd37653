"""The snapshots of one shard, in threads and in the log: what is refused is told, what fails stops nothing."""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

from streamdedup.delivery.shard import Shard
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.events import Fingerprint
from streamdedup.filters.base import Filter
from streamdedup.filters.window.protocol import Windowed
from streamdedup.kafka.client.connection import describe_error
from streamdedup.metrics.counts import ShardMeters
from streamdedup.settings import Settings
from streamdedup.snapshot import Identity, Refusal, Saved, Snapshot, Store
from streamdedup.snapshot.files import FileSystem
from streamdedup.threads import Threads

T = TypeVar("T")

TRIES = 3
RETRY_S = 0.1
WRITTEN = "its snapshot to be written"


@dataclass(frozen=True)
class Newest:
    """The newest snapshot that is whole: what a start would load. `saved_at` is in Unix seconds."""

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
    ) -> None:
        self.name = f"{settings.source.topic}/{partition}"  # the shard's
        self.saved: Saved | None = None
        self.newest: Newest | None = None
        self._meters = ShardMeters() if meters is None else meters
        self._labels: list[int] = []  # of the snapshots that can be used, newest first
        self._spares = min(2, settings.snapshot.keep)  # how many of them matter
        self._threads = threads or Threads()
        self._saving: asyncio.Task[None] | None = None
        self._cut_short = threading.Event()
        self._log = log
        self._hash_key = settings.filter.hash_key_bytes
        self._store = Store(
            settings.snapshot.directory,
            group=settings.kafka.group_id,
            topic=settings.sink.topic,
            partition=partition,
            keep=settings.snapshot.keep,
            fs=fs,
        )

    @property
    def writes(self) -> bool:
        """Whether a thread is writing."""
        return self._threads.saves.works_for(self.name)

    @property
    def waits(self) -> str | None:
        """For what the shard waits that is read from the disk; None where it does not. Any thread may ask."""
        return self._threads.loads.waits(self.name)

    @property
    def label(self) -> int:
        """That of the newest which can be used; 0 where there is none, since nothing is folded there."""
        return self._labels[0] if self._labels else 0

    def due(self, label: int, log_start: int) -> bool:
        """Whether events are deleted that the newest snapshot but one has not, and one at `label` would have.

        Then the newest is the only one that can be used, and what it holds is nowhere else.
        """
        spare = self._labels[-1] if len(self._labels) == self._spares else 0
        return spare < min(label, log_start)

    def exposes(self, label: int, log_start: int) -> bool:
        """Whether events are deleted that only the filter in memory, folded up to `label`, still knows of."""
        return self.label < min(label, log_start)

    async def exist(self) -> bool:
        """Whether there may be any, usable or not."""
        try:
            return await self._read("a look for its snapshots", self._store.exists)
        except SnapshotError:
            return True

    async def load(
        self,
        identity: Identity,
        end: int,
        doubt: Callable[[Snapshot], Awaitable[str | None]],
    ) -> Snapshot | None:
        """The newest one that is whole, ours, not beyond the output's end, and of which there is no `doubt`.

        None as well where the disk does not let us look: the output holds all that a snapshot would.
        """
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
            refuse(Refusal(snapshot.path, f"{reason}; left in place"))
        self._tell_refused(
            sorted(refusals.values(), key=_age, reverse=True), used=snapshot is not None
        )
        self._labels = []
        if snapshot is not None:
            older = await self._labels_of(identity, snapshot.path)
            self._labels = [snapshot.label, *older][: self._spares]
            self.newest = Newest(snapshot.label, snapshot.size_bytes, snapshot.saved_at)
            self._log.info("snapshot_loaded", path=str(snapshot.path), label=snapshot.label)
        return snapshot

    async def newest_label(self, identity: Identity) -> int:
        """That of the newest snapshot on the disk, whoever saved it; 0 where there is none."""
        return max(await self._labels_of(identity), default=0)

    async def _labels_of(self, identity: Identity, before: Path | None = None) -> list[int]:
        with suppress(SnapshotError):
            labels = partial(self._store.labels, identity, before)
            return await self._read("the labels of its snapshots", labels)
        return []

    async def _read(self, what: str, call: Callable[[], T]) -> T:
        return await self._threads.loads.run(self.name, what, call)

    def _tell_refused(self, refusals: list[Refusal], *, used: bool) -> None:
        self._meters.snapshots_refused += len(refusals)
        if refusals:
            self._log.warning(
                "snapshot_refused",
                path=str(refusals[0].path),
                reason=refusals[0].reason,
                refused=len(refusals),
                instead="an older one is used" if used else "the output is folded",
            )

    async def save(
        self,
        shard: Shard,
        identity: Identity,
        fingerprint: Fingerprint | None = None,
        *,
        again: bool = False,
    ) -> None:
        """Save where the label has moved since, or `again`; a disk in trouble is logged, and delivery goes on.

        `fingerprint` is of a record batch below the label. Who is cancelled leaves a save behind that goes on, and is
        waited for by the next.
        """
        while self._saving is not None and not self._saving.done():
            await asyncio.wait({self._saving})
        if again or shard.label != self.label:
            self._saving = asyncio.create_task(self._save(shard, identity, fingerprint))
            await asyncio.wait({self._saving})

    def cut_short(self) -> None:
        """Have the save that is under way, or waits for its turn, and any later one, give up."""
        self._cut_short.set()
        if self._saving is not None:
            self._saving.cancel()

    async def _save(
        self, shard: Shard, identity: Identity, fingerprint: Fingerprint | None
    ) -> None:
        label = shard.label
        try:
            saved = None
            for _ in range(TRIES):
                await self._threads.saves.turn(self.name, WRITTEN)
                label = shard.label
                if saved := await self._save_once(shard, identity, fingerprint):
                    break
                await asyncio.sleep(RETRY_S)
        except Exception as error:
            self._meters.snapshots_failed += 1
            self._log.error("snapshot_failed", **describe_error(error))
            return
        if saved is None:
            self._log.info("snapshot_postponed", reason="the filter turns or grows at this moment")
            return
        self.saved, self._labels = saved, [label, *self._labels][: self._spares]
        self.newest = Newest(label, saved.size_bytes, time.time())
        self._meters.snapshots_saved += 1
        self._log.info(
            "snapshot_saved",
            label=label,
            size_bytes=saved.size_bytes,
            seconds=round(saved.seconds, 3),
        )

    async def _save_once(
        self, shard: Shard, identity: Identity, fingerprint: Fingerprint | None
    ) -> Saved | None:
        """None where the table is changed otherwise than by setting bits: a window turns, a chain grows."""
        if shard.moving:
            return None
        filter_, label, end_label = shard.filter, shard.label, shard.end_label
        live, structure = filter_.only_sets_bits, _structure(filter_)

        def end() -> int:
            if live and _structure(filter_) != structure:
                raise _MovedError
            return shard.end_label if live else end_label

        parts = _Parts.live(filter_) if live else _Parts.point_in_time(filter_)
        write = partial(
            self._store.save,
            parts,
            label,
            end,
            identity,
            fingerprint=fingerprint,
            cut_short=self._cut_short.is_set,
        )
        try:
            return await self._threads.saves.run(self.name, WRITTEN, write)
        except _MovedError:
            return None


def _structure(filter_: Filter) -> tuple[int, bool]:
    """Changes with more than bits: where a window turns, a chain grows, and with the first time of a window."""
    return filter_.layout, isinstance(filter_, Windowed) and filter_.watermark is None


def _age(refusal: Refusal) -> Path:
    return refusal.path  # a generation's counter, in as many digits always


class _MovedError(SnapshotError):
    """What was copied is of two states."""


@dataclass(frozen=True)
class _Parts:
    """A filter to be written while its shard goes on."""

    header: Callable[[], dict[str, Any]]
    buffers: Callable[[], list[memoryview]]

    @classmethod
    def live(cls, filter_: Filter) -> "_Parts":
        """The filter itself, over the buffers that it has now.

        A window's time is that of the label: what is folded from there takes it further once more.
        """
        buffers, header = filter_.buffers(), filter_.header()
        timed = isinstance(filter_, Windowed)
        return cls((lambda: header) if timed else filter_.header, lambda: buffers)

    @classmethod
    def point_in_time(cls, filter_: Filter) -> "_Parts":
        """A copy, for which the loop stands still, some 0.3 ms a MB: the kind moves or counts what it holds."""
        header, copies = (
            filter_.header(),
            [memoryview(bytearray(part)) for part in filter_.buffers()],
        )
        return cls(lambda: header, lambda: copies)


def check_directory(directory: Path) -> None:
    """Make the directory of all snapshots; ConfigError where we cannot write there. Blocking."""
    try:
        directory.mkdir(0o700, parents=True, exist_ok=True)
        with TemporaryFile(dir=directory):
            return
    except OSError as error:
        raise ConfigError(
            f"snapshot.directory = {directory}: nothing can be written there ({error.strerror}); make it writable for"
            f" user id {os.geteuid()}, or name another"
        ) from None
