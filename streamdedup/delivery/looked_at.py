"""The memory of a partition for a reader: the filter that a restart would have, made without changing anything.

The newest snapshot that fits is mapped, and what the output has from its label on is folded into private pages of it.
No writer is fenced, no file is set aside, no line is logged: what a worker would log of a snapshot is a note.
"""

from collections.abc import Callable
from typing import Any

from typing_extensions import override

from streamdedup.delivery.fold import FoldedMemory
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.resume import PartitionState
from streamdedup.delivery.services import MemoryServices
from streamdedup.delivery.shard import Shard
from streamdedup.errors import StreamdedupError
from streamdedup.events import Column, EventBatch, Integers
from streamdedup.kafka.topics import Topology
from streamdedup.snapshot import Identity, Snapshot
from streamdedup.snapshot.header import DamagedFileError
from streamdedup.snapshot.touched import MappedStore

Saw = Callable[[EventBatch, Column, Integers], None]
"""Gets the events that are folded: a batch, its keys, and the rows of those that passed by a key."""


class NoSnapshotError(StreamdedupError):
    """There is no snapshot that fits; the message says what was found."""


class LookedAtMemory(FoldedMemory):
    """The filter of one partition as a restart would make it from a snapshot. `saw` gets what is folded."""

    store = MappedStore

    def __init__(self, recipe: Recipe, services: MemoryServices, partition: int, saw: Saw) -> None:
        self._notes = _Notes()
        super().__init__(recipe, services, partition, self._notes)
        self._saw_folded = saw
        self.snapshot: Snapshot | None = None

    @property
    def notes(self) -> list[str]:
        """What a worker would warn of."""
        return self._notes.texts

    async def filled(self, found: PartitionState, topology: Topology) -> Shard:
        """Return the shard, folded up to the output's end. Call `check` before an answer by its filter counts.

        NoSnapshotError if no snapshot fits. A DeliveryError is one that would stop a worker here.
        """
        return await self.catch_up(found, topology, None)

    def check(self) -> str | None:
        """Verify what was read of the snapshot. Return what is damaged; None if nothing is.

        After damage, `filled` takes the next one.
        """
        if self.snapshot is None:
            return None
        try:
            self.snapshots.look(self.snapshot.path)
        except DamagedFileError as error:
            damage = f"{self.snapshot.path} was passed over: {error}; remove it, or restore it"
            self.shard, self.snapshot = None, None
            self._notes.texts.append(damage)
            return damage
        return None

    def close(self) -> None:
        """Close the files of the snapshots."""
        self.snapshots.close()

    @override
    async def _loaded(
        self, identity: Identity, found: PartitionState, *, whole: bool
    ) -> Snapshot | None:
        self.snapshot = await super()._loaded(identity, found, whole=whole)
        if self.snapshot is None:
            raise NoSnapshotError(self.snapshots.search)
        return self.snapshot

    @override
    def _saw(self, batch: EventBatch, keys: Column, rows: Integers) -> None:
        self._saw_folded(batch, keys, rows)


class _Notes:
    """In place of a log: keeps what is said of snapshots that were passed over, and of gaps in the output."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def info(self, name: str, **fields: Any) -> None:  # noqa: ANN401 - whatever a line has
        """Keep nothing."""

    def warning(self, name: str, **fields: Any) -> None:  # noqa: ANN401
        """Keep what the answer depends on."""
        if name == "snapshot_refused":
            self.texts.append(
                f"{fields['path']} was passed over: {fields['reason']}; {fields['instead']}"
            )
        elif name == "output_gap_accepted":
            self.texts.append(str(fields["detail"]))

    error = warning
