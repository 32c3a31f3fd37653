"""What a reset is to do: its target, and the move of each partition. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime

from streamdedup.delivery.resume import PartitionState
from streamdedup.units import milliseconds

AGE_MS_MAX = 1 << 53
ENDS = ("earliest", "latest")


@dataclass(frozen=True, slots=True)
class Target:
    """The offset to move to: `name` is "earliest", "latest", "time" or "stay".

    `time_ms` is that time, in ms since 1970. "stay" is the committed offset, or the input's start if there is none.
    """

    name: str
    time_ms: int = 0

    def __str__(self) -> str:
        if self.name != "time":
            return self.name
        moment = datetime.fromtimestamp(self.time_ms / 1000, UTC)
        return f"the first event from {moment:%Y-%m-%d %H:%M:%S} UTC on"


STAY = Target("stay")


@dataclass(frozen=True, slots=True)
class Step:
    """The move of one partition: from offset `at`, None if nothing is committed, to offset `to` of the input.

    `topic` is that of the partition with `source.repartition`, which may have several inputs.
    """

    partition: int
    at: int | None
    to: int
    found: PartitionState
    topic: str | None = None

    @property
    def again(self) -> int:
        """How many offsets, at most, are read again."""
        return 0 if self.at is None else max(0, min(self.at, self.found.input_end) - self.to)

    @property
    def skipped(self) -> int:
        """How many offsets, at most, are never read."""
        return 0 if self.at is None else max(0, self.to - max(self.at, self.found.input_start))

    @property
    def idle(self) -> bool:
        """Whether the offset is already there, committed for these very logs."""
        found, note = self.found, self.found.note
        ids = (found.input_id, found.output_id)
        return self.at == self.to and note is not None and (note.input_id, note.output_id) == ids


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What a reset will do.

    With `source.repartition`, `steps` are those of the first stage's group, and with `forget`, `floors` those of the
    second's, whose offsets stay. `forgotten` are the partitions of the output where an earlier `forget` is in force, of
    which `steps` know nothing.
    """

    target: Target
    forget: bool
    steps: tuple[Step, ...]
    floors: tuple[Step, ...] = ()
    forgotten: tuple[int, ...] = ()

    def name_of(self, step: Step) -> str:
        """Return the partition of `step` as it is shown: with its topic, if there are several."""
        several = len({each.topic for each in self.steps}) > 1
        return f"{step.topic}/{step.partition}" if several else str(step.partition)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.forget and all(step.idle for step in self.steps)


def target_of(text: str, now_ms: int) -> Target:
    """Parse `earliest`, `latest`, a time in ISO 8601 (UTC unless it has a zone), or how long ago, like 2h; ValueError.

    A time before 1970 becomes 1970, where Kafka's clock begins: lower numbers have another meaning there. A number
    alone is refused: 0 could mean now, and 20260131 a day, but a user who writes a number probably means an offset.
    """
    if text in ENDS:
        return Target(text)
    if text.strip().isdecimal():
        raise ValueError(
            f"{_NEITHER}; offsets are not accepted, because each partition has its own"
        )
    try:
        age_ms = int(milliseconds(0, AGE_MS_MAX, bare=False).parse(text))
        return Target("time", max(0, now_ms - age_ms))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(_NEITHER) from None
    in_utc = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return Target("time", max(0, int(in_utc.timestamp() * 1000)))


_NEITHER = (
    "is neither earliest, latest, a time like 2026-01-31T08:00Z (UTC unless it has a zone), nor how long ago, like 2h"
    " or 7d"
)
