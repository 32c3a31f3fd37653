"""What is counted as it happens, and cannot be read off a shard later: by partition, since the worker began.

Only the loop writes. Any thread reads, without a lock: what is read is one number, or one value that is never changed
but replaced, so the loop waits for nobody. A partition that goes and comes back goes on with its counts.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from streamdedup.events import EventBatch, Integers, Verdict
from streamdedup.metrics.catalogue import DOUBTS, TAKEN_BACK, TRANSACTION
from streamdedup.rules.lists import Answer, Match


@dataclass
class Tally:
    """What became of the events of committed transactions."""

    by_verdict: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(len(Verdict), dtype=np.int64)
    )
    expected_false: float = (
        0.0  # new events that were dropped as duplicates, by the estimated error
    )
    late: int = 0  # events that came after their window, whether they passed or not
    by_match: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(len(Match), dtype=np.int64)
    )  # events that the block list blocked
    exempt: int = 0  # events that it matched, and the allow list exempted
    by_answer: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(len(Answer), dtype=np.int64)
    )  # events that it was asked for, by what its exact store made of that

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
        self.late += other.late
        self.by_match += other.by_match
        self.exempt += other.exempt
        self.by_answer += other.by_answer


class Histogram:
    """Counts observations by the upper `bounds` of buckets, ascending; what is above all of them counts, too."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        self._sum += value
        self._counts[bisect_left(self._bounds, value)] += 1

    def read(self) -> tuple[list[tuple[str, float]], float]:
        """Each bound with how many are not above it, as Prometheus wants it, and the sum of all."""
        counts = accumulate(list(self._counts))
        return list(zip([*map(str, self._bounds), "+Inf"], counts, strict=True)), self._sum


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What of a partition is settled: events that a committed offset went past, and what was decided of them."""

    consumed: int = 0
    by_verdict: tuple[int, ...] = (0,) * len(Verdict)
    late: int = 0
    expected_false: float = 0.0
    by_match: tuple[int, ...] = (0,) * len(Match)
    exempt: int = 0
    by_answer: tuple[int, ...] = (0,) * len(Answer)

    @property
    def difference(self) -> int:
        """Invariant 4, one outcome: 0, since the one is counted by offsets and the other by verdicts."""
        return self.consumed - sum(self.by_verdict)


class ShardMeters:
    """The counts of one partition. `tally` is for its shard, which adds what it admits."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.ledger = Ledger()
        self.in_flight = self.folded = 0
        self.snapshots_saved = self.snapshots_failed = self.snapshots_refused = 0
        self.doubts = dict.fromkeys(DOUBTS, 0)
        self.taken_back = dict.fromkeys(TAKEN_BACK, 0)
        self._in_hand: deque[Integers] = deque()

    def read(self, batch: EventBatch) -> None:
        """The events of `batch` are in hand."""
        self._in_hand.append(batch.offsets)
        self.in_flight += len(batch)

    def commit(self, offset: int) -> None:
        """The input is committed up to `offset`, and what was decided below it is in `tally`."""
        consumed = 0
        while self._in_hand:
            offsets = self._in_hand[0]
            below = int(np.searchsorted(offsets, offset))
            consumed += below
            if below < len(offsets):
                self._in_hand[0] = offsets[below:]
                break
            self._in_hand.popleft()
        self.in_flight -= consumed
        self.ledger = Ledger(
            consumed=self.ledger.consumed + consumed,
            by_verdict=tuple(self.tally.by_verdict.tolist()),
            late=self.tally.late,
            expected_false=self.tally.expected_false,
            by_match=tuple(self.tally.by_match.tolist()),
            exempt=self.tally.exempt,
            by_answer=tuple(self.tally.by_answer.tolist()),
        )

    def take_back(self, cause: str, offset: int = 0) -> None:
        """What is in hand from `offset` on is not any more, to be read again. `cause` is one of `TAKEN_BACK`."""
        taken = 0
        while self._in_hand and self._in_hand[-1][-1] >= offset:
            offsets = self._in_hand.pop()
            below = int(np.searchsorted(offsets, offset))
            taken += len(offsets) - below
            if below:
                self._in_hand.append(offsets[:below])
                break
        self.taken_back[cause] += taken
        self.in_flight -= taken

    def doubt(self, cause: str) -> None:
        """An outcome is unknown; `cause` is one of `DOUBTS`. What is in hand is taken back."""
        self.doubts[cause] += 1
        self.take_back(cause)


class Meters:
    """The counts of a worker."""

    def __init__(self) -> None:
        self.transactions = Histogram(TRANSACTION.bounds)
        self.lists_refused = {"allowlist": 0, "blocklist": 0}
        self.changes_malformed = 0
        self.changes_read_at: float | None = (
            None  # to the end of the control topic, by time.monotonic
        )
        self._shards: dict[int, ShardMeters] = {}

    def of(self, partition: int) -> ShardMeters:
        """Those of `partition`, which begin at 0 when it is first asked for."""
        return self._shards.setdefault(partition, ShardMeters())

    @property
    def shards(self) -> dict[int, ShardMeters]:
        """Those of every partition that was ever ours."""
        return dict(sorted(dict(self._shards).items()))

    @property
    def tally(self) -> Tally:
        """What became of all events since the start."""
        total = Tally()
        for shard in self._shards.values():
            total.add(shard.tally)
        return total
