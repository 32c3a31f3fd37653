"""The snapshots of one shard, in threads and in the log: what is refused is told, what fails stops nothing."""

import asyncio
from typing import Any

from streamdedup.kafka.connection import describe_error
from streamdedup.settings import Settings
from streamdedup.shard import Shard
from streamdedup.snapshot import Identity, Refusal, Saved, Snapshot, Store


class ShardSnapshots:
    """Saves and loads the filter of one output partition."""

    def __init__(self, settings: Settings, partition: int, log: Any) -> None:  # noqa: ANN401 - structlog's
        self.saved: Saved | None = None
        self._saved_label: int | None = None
        self._log = log
        self._store = Store(
            settings.snapshot.directory,
            group=settings.kafka.group_id,
            topic=settings.sink.topic,
            partition=partition,
            keep=settings.snapshot.keep,
        )

    def exist(self) -> bool:
        """Whether there is any, usable or not. Blocking."""
        return self._store.exists()

    async def load(self, identity: Identity, end: int) -> Snapshot | None:
        """The newest one that is whole, ours, and not beyond the output's end."""
        refusals: list[Refusal] = []
        snapshot = await asyncio.to_thread(
            self._store.load, identity, end=end, on_refusal=refusals.append
        )
        for refusal in refusals:
            self._log.warning("snapshot_refused", path=str(refusal.path), reason=refusal.reason)
        if snapshot is not None:
            self._saved_label = snapshot.label
            self._log.info("snapshot_loaded", path=str(snapshot.path), label=snapshot.label)
        return snapshot

    async def save(self, shard: Shard, identity: Identity) -> None:
        """Save where the label has moved since; a disk in trouble is logged, and delivery goes on."""
        label = shard.label
        if label == self._saved_label:
            return
        try:
            self.saved = await asyncio.to_thread(
                self._store.save, shard.seen, label, lambda: shard.reach, identity
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
