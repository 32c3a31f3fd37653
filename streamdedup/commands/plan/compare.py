"""From a job to a plan: each kind that can do it with its figures, the others with the reason, and the pick."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log2

from streamdedup.commands.plan import speed
from streamdedup.commands.plan.choice import Pick, Row, pick
from streamdedup.commands.plan.job import Job
from streamdedup.commands.plan.sample import Sample
from streamdedup.commands.plan.sizes import ENTRIES, Size, size_of
from streamdedup.commands.plan.speed import Speed
from streamdedup.errors import ConfigError

Measure = Callable[[str, int, float], Speed]

LACKS = {"remove": "keys cannot be taken back", "window": "keys are never forgotten"}


@dataclass(frozen=True)
class Comparison:
    """`rows`, the smallest first; `left_out`, by kind, the reason."""

    job: Job
    sample: Sample | None
    rows: tuple[Row, ...]
    left_out: dict[str, str]
    pick: Pick

    @property
    def bound_bits(self) -> float:
        """The bits a key that any filter takes at least: log2(1/error rate)."""
        return -log2(self.job.error_rate)

    def bits_a_key(self, row: Row) -> float:
        """Of one filter: that of a partition where their number is given."""
        return 8 * row.size.size_bytes / self.job.filter_keys

    def false_drops_a_day(self, row: Row) -> float | None:
        """New events that are dropped wrongly by filters that are full; None where no rate is known."""
        new = self.job.new_keys_a_day
        return None if new is None else new * row.size.error

    def memory_bytes(self, row: Row) -> int:
        """Of the filters of all partitions."""
        return row.size.size_bytes * (self.job.partitions or 1)


def plan(job: Job, sample: Sample | None = None, measure: Measure = speed.measured) -> Comparison:
    """The plan for `job`. Takes about a second for `measure`; ConfigError where no kind can do it."""
    fitting: dict[str, Size] = {}
    left_out: dict[str, str] = {}
    for kind, entry in ENTRIES.items():
        lacking = [LACKS[ability] for ability in job.needs if ability not in entry.abilities]
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
    """The kinds that share a reason, by reason."""
    return {told: [kind for kind in reasons if reasons[kind] == told] for told in reasons.values()}


def _row(kind: str, size: Size, job: Job, measure: Measure) -> Row:
    entry = ENTRIES[kind]
    measured = measure(kind, job.filter_keys, job.error_rate)
    if "static" in entry.abilities:
        pause_s = None
    elif entry.only_sets_bits:
        pause_s = 0.0
    else:
        pause_s = size.size_bytes * speed.copy_s_a_byte()
    return Row(kind, size, entry.abilities, measured, pause_s)
