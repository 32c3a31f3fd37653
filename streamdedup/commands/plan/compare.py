"""From a job to a plan: each kind that can do it, with its figures; the other kinds, with the reason; and the pick."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log2

from streamdedup.commands.plan import speed
from streamdedup.commands.plan.choice import Pick, Row, pick
from streamdedup.commands.plan.job import Job
from streamdedup.commands.plan.sample import Sample
from streamdedup.commands.plan.sizes import Size, size_of
from streamdedup.commands.plan.speed import Speed
from streamdedup.errors import ConfigError
from streamdedup.filters import KINDS
from streamdedup.settings import SnapshotOptions

Measure = Callable[[str, int, float], Speed]

SNAPSHOTS_KEPT: int = SnapshotOptions.model_fields["keep"].default
LACKS = {"remove": "keys cannot be removed", "window": "keys are never forgotten"}


@dataclass(frozen=True)
class Comparison:
    """`rows` begin with the smallest kind; `left_out` maps each other kind to the reason."""

    job: Job
    sample: Sample | None
    rows: tuple[Row, ...]
    left_out: dict[str, str]
    pick: Pick

    @property
    def bound_bits(self) -> float:
        """The least bits that any filter takes for a key: log2(1/error rate)."""
        return -log2(self.job.error_rate)

    def bits_a_key(self, row: Row) -> float:
        """Return the bits for a key in one filter: in that of a partition if their number is given."""
        return 8 * row.size.size_bytes / self.job.filter_keys

    def false_drops_a_day(self, row: Row) -> float | None:
        """Return how many new events a day full filters drop wrongly; None if no rate is known."""
        new = self.job.new_keys_a_day
        return None if new is None else new * row.size.error

    def memory_bytes(self, row: Row) -> int:
        """Return the memory of the filters of all partitions."""
        return row.size.size_bytes * (self.job.partitions or 1)

    def snapshot_disk_bytes(self, row: Row) -> int | None:
        """Return the disk that a worker's snapshots of all partitions take; None if no partitions are given.

        Of each partition there are as many as `snapshot.keep` says, and the one that is being written.
        """
        return self.memory_bytes(row) * (SNAPSHOTS_KEPT + 1) if self.job.partitions else None


def plan(job: Job, sample: Sample | None = None, measure: Measure = speed.measured) -> Comparison:
    """Return the plan for `job`. `measure` takes about a second. ConfigError if no kind can do the job."""
    fitting: dict[str, Size] = {}
    left_out: dict[str, str] = {}
    for kind, described in KINDS.items():
        lacking = [LACKS[ability] for ability in job.needs if ability not in described.abilities]
        try:
            size = size_of(kind, job.filter_keys, job.error_rate)
        except ConfigError as error:
            lacking.append(str(error))
        if lacking:
            left_out[kind] = lacking[0]
        else:
            fitting[kind] = size
    if not fitting:
        reasons = (f"{', '.join(kinds)}: {reason}" for reason, kinds in grouped(left_out).items())
        raise ConfigError(f"no kind of filter can do this: {'; '.join(reasons)}")
    rows = [_row(kind, size, job, measure) for kind, size in fitting.items()]
    rows.sort(key=lambda row: row.size.size_bytes)
    return Comparison(job, sample, tuple(rows), left_out, pick(rows, job))


def grouped(reasons: dict[str, str]) -> dict[str, list[str]]:
    """Return the kinds that share a reason, by reason."""
    return {
        reason: [kind for kind in reasons if reasons[kind] == reason] for reason in reasons.values()
    }


def _row(kind: str, size: Size, job: Job, measure: Measure) -> Row:
    described = KINDS[kind]
    measured = measure(kind, job.filter_keys, job.error_rate)
    if described.static:
        pause_s = None
    elif described.only_sets_bits:
        pause_s = 0.0
    else:
        pause_s = size.size_bytes * speed.copy_s_a_byte()
    return Row(kind, size, described.abilities, measured, pause_s)
