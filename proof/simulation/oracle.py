"""What must hold: of the output at any moment, of every filter that decides, and of all of it at the end."""

from collections import Counter, defaultdict
from typing import cast

from proof.simulation.stream import (
    BLOCKED,
    DUPLICATE,
    MALFORMED,
    PASS,
    Kind,
    Place,
    folded,
    is_foreign,
    kind_of,
    mark_of,
    memory,
)
from proof.simulation.world import World
from streamdedup.delivery.lifecycle import State
from streamdedup.delivery.shard import Shard
from streamdedup.errors import SnapshotError
from streamdedup.filters.base import Addable
from streamdedup.filters.window.protocol import Windowed
from streamdedup.kafka.offsets import Note
from streamdedup.keys.hashing import Digests, Hash
from streamdedup.snapshot.files import built
from streamdedup.snapshot.read import MappedReader
from streamdedup.testing import Logged

OF = {"duplicates": DUPLICATE, "blocked": BLOCKED, "dead": MALFORMED}  # topic -> mark


class BreachError(AssertionError):
    """A promise that was not kept."""


class Oracle:
    """Knows all that was ever fed: keys by partition."""

    def __init__(self, world: World) -> None:
        self._world, self._plan, self._filter = world, world.plan, world.plan.settings["filter"]
        self.fed: dict[int, set[bytes]] = defaultdict(set)
        self.again = (
            False  # whether an operator had events read again: what is not judged may pass twice
        )
        self.strict = world.plan.exactly_once
        """Whether the output is that of the model to the event: nothing was trimmed, nobody else wrote."""
        self.foreign: set[int] = set()
        """Partitions of the output to which others wrote: a shard hears of it with its next transaction."""
        self._looked_at: dict[int, tuple[int, int]] = {}
        self._digests: dict[int, tuple[list[bytes], Hash, Digests]] = {}

    def check_now(self) -> None:
        """At any moment: nothing twice, nothing foreign, no filter or snapshot that is not the fold of its output."""
        for partition in range(self._world.partitions):
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
        """When all is read: everything is in its place, and some live shard of each partition is up to date."""
        self.check_now()
        for partition in range(self._world.partitions):
            self._check_places(partition)
            if not self._is_folded(partition):
                raise BreachError(
                    f"partition {partition}: nobody's label is behind the output's last event"
                )

    def caught_up(self) -> bool:
        """Whether the group has committed that all events are read."""
        broker = self._world.broker
        at = self.committed_offsets()
        for partition in range(self._world.partitions):
            events = broker.log("in", partition).committed()
            if events and at.get(partition, 0) <= events[-1].offset:
                return False
            if not self._is_folded(partition):
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

    def _is_folded(self, partition: int) -> bool:
        """Whether some live shard is up to date: nothing but markers and what was aborted stands above its label."""
        behind_last = max((event.offset + 1 for event in self._output(partition)), default=0)
        labels = [
            delivery.shard.label
            for machine in self._world.machines
            if machine.runs and machine.worker is not None
            for delivery in [machine.worker.deliveries.get(partition)]
            if delivery and delivery.shard and delivery.state is State.LIVE
        ]
        folded = any(behind_last <= label for label in labels)
        return folded or (partition in self.foreign and bool(labels))

    def _check_output(self, partition: int) -> None:
        """Each of its events passes by the model, given those before it: so none that is known is there again."""
        output, start = self._output(partition), self._world.broker.log("out", partition).start
        if self._looked_at.get(partition) == (found := (len(output), start)):
            return
        self._looked_at[partition] = found
        if foreign := {event.key for event in output} - self.fed[partition]:
            raise BreachError(f"partition {partition}: {len(foreign)} keys are foreign")
        for event in output:
            listed = self._plan.is_listed(event.key) and event.value is not None
            if listed and not is_foreign(event):
                raise BreachError(f"partition {partition}: what is listed passed: {event.offset}")
        if not self._plan.exactly_once:
            return
        seen, last, remembers = memory(self._filter), dict[Place, Logged](), self._plan.remembers
        for event in output:
            judged = event.value is not None and remembers
            who = (event.key, None if remembers else event.value)
            before = last.get(who)
            passes = before is None
            if judged and event.key is not None:
                if before is not None and before.offset < start:
                    seen.forget(event.key)
                passes = seen.take(event.key, event.timestamp)
                if not passes:
                    seen.fold(event.key, event.timestamp)
                passes |= before is not None and before.offset < start
                passes |= is_foreign(event)
            if not passes and (judged or not self.again):
                kind = "judged" if judged else "unjudged"
                at = before.offset if before else None
                raise BreachError(f"partition {partition}: {kind}, at {at} and {event.offset}")
            last[who] = event

    def _check_places(self, partition: int) -> None:
        """Every event has one outcome."""
        events = self._world.broker.log("in", partition).committed()
        out = Counter(map(_place, self._output(partition)))
        sides = self._plan.sides
        duplicates = self._places("duplicates", partition) if sides else Counter()
        lists = sides and self._plan.listed
        blocked = self._places("blocked", partition) if lists else Counter()
        dead = self._places("dead", partition) if sides else Counter()
        keys = {key for key, _ in out}
        drops_late = self._filter.get("late") == "drop"
        seen, passed = memory(self._filter), list[Place]()
        for event in events:
            place = _place(event)
            kind = kind_of(event, is_listed=self._plan.is_listed(event.key))
            wanted = blocked if kind is Kind.BLOCKED else dead
            if kind is Kind.REJECTED and self._plan.is_listed(event.key) and blocked[place]:
                wanted = (
                    blocked  # screened before the broker's time was known, which alone rejects it
                )
            if kind is Kind.JUDGED and event.key is not None:
                if event.key not in keys and not drops_late:
                    raise BreachError(f"partition {partition}: the key at {event.offset} was lost")
                wanted = out if seen.take(event.key, event.timestamp) else duplicates
            elif kind is Kind.UNJUDGED:
                wanted = out
            if wanted is out:
                passed.append(place)
            times = out[place] + duplicates[place] + blocked[place] + dead[place]
            if self.strict and not self.again:
                late = wanted is duplicates and drops_late and event.key not in seen.known()
                right = wanted[place] == 1 or late or not (sides or wanted is out)
                right &= times <= 1
            elif kind is Kind.JUDGED:
                unseen = self._plan.remembers and (not sides or drops_late)
                right = times > 0 or unseen
                right &= times <= 1 or self.again or not self._plan.exactly_once
            else:
                right = wanted[place] > 0 or not (sides or wanted is out)
            if not right:
                raise BreachError(
                    f"partition {partition}: {kind} event {event.offset}: {out[place]} times in the output,"
                    f" {duplicates[place]} among duplicates, {blocked[place]} among the blocked, {dead[place]} among"
                    " dead letters"
                )
        if self.strict and not self.again:
            found = [_place(event) for event in self._output(partition)]
            if found != passed:
                raise BreachError(f"partition {partition}: the output is not what the model makes")

    def _places(self, topic: str, partition: int) -> Counter[Place]:
        """Where its events are, or would be if they had not been marked in the output instead."""
        broker = self._world.broker
        found = Counter(map(_place, broker.log(topic, partition).emitted()))
        output = broker.log("out", partition).emitted()
        return found + Counter(_place(event) for event in output if mark_of(event) == OF[topic])

    def _check_shard(self, partition: int, shard: Shard) -> None:
        if shard.moving:
            return
        log = self._world.broker.log("out", partition)
        if shard.label > log.end_decided:
            raise BreachError(
                f"partition {partition}: the label {shard.label} is beyond {log.end_decided}"
            )
        self._check_filter(partition, shard.filter, shard.label, shard.label, "the filter")

    def _check_snapshot(self, partition: int, content: bytes) -> None:
        """It holds all keys of the output below its label, and none that stands at or above its end label."""
        try:
            reader = MappedReader(memoryview(content), verify=True)
            label, parts = reader.header.of_log().label, reader.contents()
            seen = cast("Addable", built(reader.header, parts))
        except SnapshotError as error:
            raise BreachError(f"partition {partition}: a snapshot is of no use: {error}") from error
        self._check_filter(partition, seen, label, parts.end_label, "the snapshot")

    def _check_filter(
        self, partition: int, seen: Addable | Windowed, label: int, end: int, what: str
    ) -> None:
        """It holds all that the output below `label` makes known, and nothing else, but for what stands below `end`."""
        output, start = self._output(partition), self._world.broker.log("out", partition).start
        below = [event for event in output if event.offset < label]
        known = folded(self._filter, below).known()
        held = self._held(partition, seen)
        there = [event for event in below if event.offset >= start]
        surely = folded(
            self._filter, there
        ).known()  # a key that was deleted may be again there, out of the window
        if (known & surely) - held:
            raise BreachError(f"partition {partition}: a key below {label} is not in {what}")
        known |= {e.key for e in output if e.key is not None and label <= e.offset < end}
        if held - known and not self._forgets_late(start):
            raise BreachError(f"partition {partition}: {what} is ahead of {end}")

    def _forgets_late(self, start: int) -> bool:
        """Whether a window may know more: what was trimmed took its time along."""
        return bool(start) and self._filter["kind"] == "window"

    def _held(self, partition: int, seen: Addable | Windowed) -> set[bytes]:
        """Of all keys that were fed those in `seen`."""
        fed = self.fed[partition]
        known = self._digests.get(partition)
        if known is None or len(known[0]) != len(fed) or known[1] != seen.hash:
            keys = sorted(fed)
            self._digests[partition] = known = keys, seen.hash, seen.hash.digests(keys)
        keys, _, hashed = known
        mask = seen.contains_many(hashed).tolist()
        return {key for key, held in zip(keys, mask, strict=True) if held}

    def _output(self, partition: int) -> list[Logged]:
        """What passed."""
        output = self._world.broker.log("out", partition).emitted()
        return [event for event in output if mark_of(event) == PASS]


def _place(event: Logged) -> Place:
    return event.key, event.value
