"""The snapshots of one shard, in threads and in the log: what is refused is told, what fails stops nothing."""

import asyncio
import os
import threading
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from streamdedup.errors import ConfigError
from streamdedup.kafka.connection import describe_error
from streamdedup.settings import Settings
from streamdedup.shard import Shard
from streamdedup.snapshot import Identity, Refusal, Saved, Snapshot, Store


class ShardSnapshots:
    """Saves and loads the filter of one output partition, one save at a time."""

    def __init__(self, settings: Settings, partition: int, log: Any) -> None:  # noqa: ANN401 - structlog's
        self.saved: Saved | None = None
        self._saved_label = 0  # nothing is folded at label 0, so there is nothing to save
        self._saving: asyncio.Task[None] | None = None
        self._cut_short = threading.Event()
        self._log = log
        self._store = Store(
            settings.snapshot.directory,
            group=settings.kafka.group_id,
            topic=settings.sink.topic,
            partition=partition,
            keep=settings.snapshot.keep,
        )

    @property
    def saving(self) -> bool:
        """Whether a thread is writing."""
        return self._saving is not None and not self._saving.done()

    def exist(self) -> bool:
        """Whether there is any, usable or not. Blocking."""
        return self._store.exists()

    async def load(self, identity: Identity, end: int) -> Snapshot | None:
        """The newest one that is whole, ours, and not beyond the output's end."""
        refusals: list[Refusal] = []
        snapshot = await asyncio.to_thread(
            self._store.load, identity, end=end, on_refusal=refusals.append
        )
        if refusals:
            self._log.warning(
                "snapshot_refused",
                path=str(refusals[0].path),
                reason=refusals[0].reason,
                refused=len(refusals),
                instead="an older one is used" if snapshot else "the output is folded",
            )
        if snapshot is not None:
            self._saved_label = snapshot.label
            self._log.info("snapshot_loaded", path=str(snapshot.path), label=snapshot.label)
        return snapshot

    async def save(self, shard: Shard, identity: Identity) -> None:
        """Save where the label has moved since; a disk in trouble is logged, and delivery goes on.

        Who is cancelled leaves a save behind that goes on, and is waited for by the next.
        """
        while self._saving is not None and not self._saving.done():
            await asyncio.wait({self._saving})
        if shard.label != self._saved_label:
            self._saving = asyncio.create_task(self._save(shard, identity))
            await asyncio.shield(self._saving)

    def cut_short(self) -> None:
        """Have the save that is under way, and any later one, give up."""
        self._cut_short.set()

    async def _save(self, shard: Shard, identity: Identity) -> None:
        label = shard.label
        try:
            self.saved = await asyncio.to_thread(
                self._store.save,
                shard.seen,
                label,
                lambda: shard.end_label,
                identity,
                cut_short=self._cut_short.is_set,
            )
        except Exception as error:
            self._log.error("snapshot_failed", **describe_error(error))
            return
        self._saved_label = label
        self._log.info(
            "snapshot_saved",
            label=label,
            size_bytes=self.saved.size_bytes,
            seconds=round(self.saved.seconds, 3),
        )


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
