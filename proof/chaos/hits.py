"""Whether records stand in a log of which nobody knows yet whether they will be committed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import IsolationLevel


@dataclass(frozen=True)
class End:
    """An offset that a partition's leader told as the end, and that leader's epoch, where it has one."""

    offset: int
    epoch: int | None = None


def undecided(ask: Callable[[IsolationLevel], Mapping[int, End]]) -> bool:
    """Whether any partition has such records; a writer that goes on meanwhile makes none appear.

    The end is asked before the stable offset, which never goes back under one leader: if it is still below that end,
    then what stands between is undecided at the second of the two moments.
    """
    ends = ask(IsolationLevel.READ_UNCOMMITTED)
    stable = ask(IsolationLevel.READ_COMMITTED)
    return any(
        stable[partition].epoch == end.epoch and stable[partition].offset < end.offset
        for partition, end in ends.items()
    )
