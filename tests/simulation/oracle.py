"""What must hold: of the output at any moment, of every filter that decides, and of all of it at the end."""

from collections.abc import Iterable
from itertools import pairwise
from typing import cast

from streamdedup.delivery import State
from streamdedup.errors import SnapshotError
from streamdedup.filters.base import Addable, Mask, Windowed
from streamdedup.kafka.offsets import Note
from streamdedup.keys.hashing import digests
from streamdedup.shard import Shard
from streamdedup.snapshot.files import built
from streamdedup.snapshot.reading import MapReader
from streamdedup.testing import Logged
from tests.simulation.world import World


class BreachError(AssertionError):
    """A promise that was not kept."""


class Oracle:
    """Knows all that was ever fed: judged keys by partition, and keys of events that pass unjudged."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.fed: list[set[bytes]] = [set() for _ in range(world.plan.partitions)]
        self.again = (
            False  # whether an operator had events read again: what is not judged may pass twice
        )

    def check_now(self) -> None:
        """At any moment: nothing twice, nothing foreign, no filter ahead of its output or behind its label."""
        for partition in range(self._world.plan.partitions):
            self._check_output(partition)
        for machine in self._world.machines:
            if machine.worker is None or machine.process is None or machine.process.dead:
                continue
            for partition, delivery in machine.worker.deliveries.items():
                if delivery.shard is not None and delivery.state is State.LIVE:
                    self._check_shard(partition, delivery.shard)

        saved, self._world.saved = self._world.saved, []
        for partition, content in saved:
            self._check_snapshot(partition, content)

    def check_end(self) -> None:
        """When all is read: nothing is missing, and some live shard of each partition is the fold of its output."""
        self.check_now()
        for partition in range(self._world.plan.partitions):
            wanted = {e.key for e in self._world.broker.log("in", partition).committed()}
            found = {e.key for e in self._output(partition)}
            if missing := len(wanted - found):
                raise BreachError(f"partition {partition}: {missing} keys were lost")
            end = self._world.broker.log("out", partition).end
            if end not in self._live_labels(partition):
                raise BreachError(
                    f"partition {partition}: nobody's label is {end}, the output's end"
                )

    def caught_up(self) -> bool:
        """Whether the group has committed that all events are read."""
        broker = self._world.broker
        at = self.committed_offsets()
        for partition in range(self._world.plan.partitions):
            events = broker.log("in", partition).committed()
            if events and at.get(partition, 0) <= events[-1].offset:
                return False
            if broker.log("out", partition).end not in self._live_labels(partition):
                return False
        return True

    def committed_offsets(self) -> dict[int, int]:
        """The group's offsets of this very input, by partition."""
        broker = self._world.broker
        input_id, offsets = broker.topics["in"].topic.topic_id, broker.group("group").offsets
        notes = {partition: Note.decode(note) for (_, partition), (_, note) in offsets.items()}
        return {
            partition: offset
            for (_, partition), (offset, _) in offsets.items()
            if (note := notes[partition]) is None or note.input_id == input_id
        }

    def _live_labels(self, partition: int) -> list[int]:
        return [
            delivery.shard.label
            for machine in self._world.machines
            if machine.runs and machine.worker is not None
            for delivery in [machine.worker.deliveries.get(partition)]
            if delivery and delivery.shard and delivery.state is State.LIVE
        ]

    def _check_output(self, partition: int) -> None:
        output, start = self._output(partition), self._world.broker.log("out", partition).start
        if foreign := {event.key for event in output} - self.fed[partition]:
            raise BreachError(f"partition {partition}: {len(foreign)} keys are foreign")
        if not self._world.plan.exactly_once:
            return
        offsets: dict[tuple[bytes | None, bool], list[int]] = {}
        for event in output:
            judged = event.value is not None
            if judged or not self.again:
                offsets.setdefault((event.key, judged), []).append(event.offset)
        for (_key, judged), at in offsets.items():
            for first, second in pairwise(at):
                if first >= start or not judged:
                    kind = "judged" if judged else "unjudged"
                    raise BreachError(f"partition {partition}: {kind}, at {first} and {second}")

    def _check_shard(self, partition: int, shard: Shard) -> None:
        if shard.moving:
            return
        log, output = self._world.broker.log("out", partition), self._output(partition)
        judged = {e.key for e in output if e.value is not None}
        known = {e.key for e in output}
        below = {e.key for e in output if log.start <= e.offset < shard.label}
        if shard.label > log.end_decided:
            raise BreachError(
                f"partition {partition}: the label {shard.label} is beyond {log.end_decided}"
            )
        if not _held(shard.seen, below & judged).all():
            raise BreachError(f"partition {partition}: a key below {shard.label} is unknown")
        if _held(shard.seen, self.fed[partition] - known).any():
            raise BreachError(f"partition {partition}: the filter is ahead of the output")

    def _check_snapshot(self, partition: int, content: bytes) -> None:
        """It holds all keys of the output below its label, and none that stands at or above its end label."""
        try:
            reader = MapReader(memoryview(content), verify=True)
            label, parts = reader.header.of_log().label, reader.contents()
            seen = cast("Addable", built(parts, b""))
        except SnapshotError as error:
            raise BreachError(f"partition {partition}: a snapshot is of no use: {error}") from error
        start, output = self._world.broker.log("out", partition).start, self._output(partition)
        judged = [event for event in output if event.value is not None]
        below = {e.key for e in judged if start <= e.offset < label}
        if not _held(seen, below).all():
            raise BreachError(f"partition {partition}: a key below {label} is not in the snapshot")
        until = {event.key for event in judged if event.offset < parts.end_label}
        if _held(seen, self.fed[partition] - until).any():
            raise BreachError(f"partition {partition}: a snapshot is ahead of {parts.end_label}")

    def _output(self, partition: int) -> list[Logged]:
        return self._world.broker.log("out", partition).emitted()


def _held(seen: Addable | Windowed, keys: Iterable[bytes | None]) -> Mask:
    return seen.contains_many(digests(sorted(key for key in keys if key is not None)))
