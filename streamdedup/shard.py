"""One partition's decisions, without I/O: filter, pending, label.

The filter is the fold of the output up to the label. A digest waits in pending from the moment its event passes until
that event is known to be committed; only then is it admitted. A doubt forgets pending and keeps the filter.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

from streamdedup.events import Verdict, Verdicts
from streamdedup.filters.base import Filter, Mask
from streamdedup.keys.extract import Keys
from streamdedup.keys.hashing import Digests, digests
from streamdedup.rules.duplicates import rows_that_fit, unseen


@dataclass
class Tally:
    """What became of the events of committed transactions."""

    by_verdict: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(len(Verdict), dtype=np.int64)
    )
    expected_false: float = (
        0.0  # new events that were dropped as duplicates, by the estimated error
    )

    @property
    def consumed(self) -> int:
        """The number of events; the sum of the verdicts, by construction."""
        return int(self.by_verdict.sum())

    def __getitem__(self, verdict: Verdict) -> int:
        return int(self.by_verdict[verdict])

    def add(self, other: "Tally") -> None:
        """Count `other` in."""
        self.by_verdict += other.by_verdict
        self.expected_false += other.expected_false


class Shard:
    """The state of one partition. `label` is the output offset up to which `seen` has folded the output."""

    def __init__(self, partition: int, seen: Filter, *, stop_when_full: bool) -> None:
        self.partition, self.seen = partition, seen
        self.label = 0
        self.end_label = 0  # nothing at or above this output offset is in `seen`, not even in part
        self.tally = Tally()
        self._stop_when_full = stop_when_full
        self._pending: list[Digests] = []
        self._counted = Tally()

    @property
    def pending(self) -> int:
        """The number of digests that wait for their commit."""
        return sum(map(len, self._pending))

    @property
    def full(self) -> bool:
        """Whether one more key would take the filter past its error budget, which the operator did not allow."""
        return self._stop_when_full and self._room() <= 0

    @property
    def beyond_capacity(self) -> bool:
        """Whether the filter holds more keys than its error rate was promised for."""
        return len(self.seen) > self.seen.capacity

    def decide(self, keys: Keys, rejected: Sequence[int] = ()) -> Verdicts:
        """The verdicts, shape (m,), of the first m events; m is less than all only where the filter is full.

        `rejected` are rows that the output would not take: they are settled before any rule looks at them.
        """
        verdicts = np.full(len(keys.keys), Verdict.PASS, dtype=np.uint8)
        verdicts[list(keys.malformed)] = Verdict.MALFORMED
        verdicts[list(rejected)] = Verdict.REJECTED
        verdicts[list(keys.dropped)] = Verdict.BLOCKED  # goes nowhere, so no topic can refuse it
        open_ = verdicts == Verdict.PASS
        open_[list(keys.unjudged)] = False
        judged = np.flatnonzero(open_)
        judged_digests = digests(_keyed(keys, judged))
        fresh = unseen(self.seen, judged_digests, self._pending_digests())
        if self._stop_when_full and (fits := rows_that_fit(fresh, self._room())) < len(fresh):
            verdicts = verdicts[: judged[fits]]
            judged, judged_digests, fresh = judged[:fits], judged_digests[:fits], fresh[:fits]
        verdicts[judged[~fresh]] = Verdict.DUPLICATE
        self._count(verdicts, judged_digests, fresh)
        return verdicts

    def admit(self, label: int) -> None:
        """What was decided since the last admission is committed, and the output ends at `label` for us."""
        self.end_label = label
        for fresh_digests in self._pending:
            self.seen.add_many(fresh_digests)
        self.tally.add(self._counted)
        self.label = label
        self.forget()

    def forget(self) -> None:
        """Doubt: what was decided since the last admission is as if it had not been."""
        self._pending, self._counted = [], Tally()

    def fold(self, keys: Keys, label: int) -> None:
        """Add the keys of committed output events; those without a key are skipped."""
        self.end_label = max(self.end_label, label)
        self.seen.add_many(digests([key for key in keys.keys if key is not None]))
        self.label = label

    def end_fold(self, label: int) -> None:
        """The output holds no more events below `label`, only markers of transactions."""
        self.label = label
        self.end_label = max(self.end_label, label)

    def _room(self) -> int:
        return self.seen.capacity - len(self.seen) - self.pending

    def _pending_digests(self) -> Digests:
        return np.concatenate(self._pending) if self._pending else np.empty((0, 2), dtype=np.uint64)

    def _count(self, verdicts: Verdicts, judged_digests: Digests, fresh: Mask) -> None:
        if fresh.any():
            self._pending.append(judged_digests[fresh])
        self._counted.by_verdict += np.bincount(verdicts, minlength=len(Verdict))
        error = self.seen.error_rate_now
        self._counted.expected_false += (
            float(np.count_nonzero(fresh)) * error / max(1 - error, 1e-9)
        )


def _keyed(keys: Keys, rows: npt.NDArray[np.int64]) -> Sequence[bytes]:
    """The keys of `rows`, all of which have one."""
    chosen = keys.keys if len(rows) == len(keys.keys) else [keys.keys[r] for r in rows.tolist()]
    return cast("Sequence[bytes]", chosen)
