"""What the output must be, exactly, whatever was done to the worker; and what it is.

The model knows which input was read at least once, where an operator skipped some, and what stood in an output before
somebody deleted it. Each key of what was read is to be in the output once, and no other.
"""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proof.chaos.asking import patiently
from proof.chaos.brokers import Brokers
from proof.chaos.segments import aborted, log_batches, zombie_batches
from tests.broker.topics import Record, read_all
from tests.deployment import Deployment, differences

AUDIT_S = 120.0
WITHIN_EACH = 3  # the status of `audit` that saw a key in several partitions


@dataclass
class Model:
    """What is known of a trial beside its topics as they stand at the end."""

    read_before: list[Record] = field(default_factory=list)
    """Events of inputs that were deleted after they had been read."""
    emitted_before: list[Record] = field(default_factory=list)
    """Events of the output that were deleted."""
    covered: dict[int, list[range]] | None = None
    """The offsets that were read, by partition; None for all."""
    forgotten: bool = False
    """Whether the operator accepted that the keys of `emitted_before` may be emitted once more."""

    spread: bool = False
    """Whether keys came in several partitions: then `audit` must say that the promise holds within each only."""

    @property
    def is_plain(self) -> bool:
        """Whether the topics tell all there is to know, so that `streamdedup audit` can judge, too."""
        return not (self.read_before or self.emitted_before or self.covered is not None)


@dataclass(frozen=True)
class Finding:
    """How the output differs from what it must be, and what the brokers' logs tell."""

    lost: int
    doubled: int
    foreign: int
    events: int
    emitted: int
    aborted_transactions: int
    aborted_records: int
    zombie_batches: int

    @property
    def exact(self) -> bool:
        """Whether each key that was read stands in the output once, and no other."""
        return (self.lost, self.doubled, self.foreign) == (0, 0, 0)


def judge(deployment: Deployment, brokers: Brokers, model: Model) -> Finding:
    """Compare all that was read with all that was emitted."""
    source = [
        record
        for record in _read(deployment, deployment.source)
        if model.covered is None or _covers(model.covered.get(record.partition, ()), record.offset)
    ]
    output = _read(deployment, deployment.sink)
    events = model.read_before + source
    lost, doubled, foreign = differences(events, model.emitted_before + output)
    if model.forgotten:
        doubled = differences(events, model.emitted_before)[1] + differences(events, output)[1]
    return Finding(
        lost=lost,
        doubled=doubled,
        foreign=foreign,
        events=len(events),
        emitted=len(output),
        **left_in(
            # At the first broker: it has a replica of each.
            brokers.nodes[0].log_of(deployment.sink, partition)
            for partition in range(deployment.partitions)
        ),
    )


def audit_breach(config: Path, *, spread: bool = False) -> str | None:
    """What the users' own tool says against the same topics; None where it finds the promise kept.

    If keys came in several partitions, it must find it kept within each of them only.
    """
    done = subprocess.run(
        [sys.executable, "-m", "streamdedup", "audit", "-c", str(config)],
        capture_output=True,
        text=True,
        timeout=AUDIT_S,
        check=False,
    )
    return (
        None
        if done.returncode == (WITHIN_EACH if spread else 0)
        else f"{done.stdout}{done.stderr}".strip()
    )


def left_in(directories: Iterable[Path]) -> dict[str, int]:
    """What aborted transactions and zombies left in the partitions whose logs are in these directories."""
    logs = [list(log_batches(directory)) for directory in directories]
    parts = [aborted(log) for log in logs]
    return {
        "aborted_transactions": sum(part.transactions for part in parts),
        "aborted_records": sum(part.records for part in parts),
        "zombie_batches": sum(map(zombie_batches, logs)),
    }


def _read(deployment: Deployment, topic: str) -> list[Record]:
    return patiently(lambda: read_all(deployment.bootstrap, topic))


def _covers(ranges: Sequence[range], offset: int) -> bool:
    return any(offset in covered for covered in ranges)
