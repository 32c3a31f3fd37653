"""The counts that must be kept as things happen, because no shard holds them: by partition, since the worker began.

Only the event loop writes. Any thread reads, without a lock: it reads one number, or one value that is replaced and
never changed, so the loop waits for nobody. A partition that leaves and returns continues its counts.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from streamdedup.events import Damage, EventBatch, Integers, Verdict
from streamdedup.metrics.catalogue import DOUBTS, TAKEN_BACK, TASKS, TRANSACTION
from streamdedup.metrics.forecast import Forecast
from streamdedup.metrics.prevalence import Prevailing, Prevalence, Reasons, of_topic
from streamdedup.rules.lists import Answer, Match


@dataclass
class Tally:
    """The outcomes of the events of committed transactions."""

    by_verdict: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(len(Verdict), dtype=np.int64)
    )
    # New events that were dropped as duplicates, estimated by the error rate.
    expected_false: float = 0.0
    late: int = 0  # events later than their window, whether they passed or not
    untimed: int = 0  # events without a timestamp, of a window by time
    ancient: int = 0  # those with a time before the year 2000
    # Events that the blocklist blocked.
    by_match: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(len(Match), dtype=np.int64)
    )
    exempt: int = 0  # events that the blocklist matched and the allowlist exempted
    # Events that were looked up in a blocklist with an exact store, by the answer.
    by_answer: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(len(Answer), dtype=np.int64)
    )
    # Why events are malformed: those since the last commit, since `ShardMeters` then takes them out.
    reasons: Reasons = field(default_factory=Reasons)

    @property
    def consumed(self) -> int:
        """The number of events; the sum of the verdicts, by construction."""
        return int(self.by_verdict.sum())

    def __getitem__(self, verdict: Verdict) -> int:
        return int(self.by_verdict[verdict])

    def add(self, other: "Tally") -> None:
        """Add the counts of `other` to these."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Histogram:
    """Counts observations in buckets with these upper `bounds`, ascending; one more bucket takes all above them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._sum += value
        self._counts[bisect_left(self._bounds, value)] += 1

    def read(self) -> tuple[list[tuple[str, float]], float]:
        """Return, for Prometheus, each bound with the number of observations not above it; and the sum of all."""
        counts = accumulate(list(self._counts))
        return list(zip([*map(str, self._bounds), "+Inf"], counts, strict=True)), self._sum


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The settled counts of a partition: events below its committed offset, and what was decided about them."""

    consumed: int = 0
    tally: Tally = field(default_factory=Tally)  # a copy, which never changes
    batches_skipped: int = 0
    offsets_skipped: int = 0

    @property
    def difference(self) -> int:
        """Invariant 4, one outcome: always 0, although one side is counted by offsets and the other by verdicts."""
        return self.consumed - self.tally.consumed


class ShardMeters:
    """The counts of one partition. Its shard adds to `tally` what it admits. `of_all` watches all partitions."""

    def __init__(self, of_all: Prevalence | None = None) -> None:
        self.tally = Tally()
        self.ledger = Ledger()
        self.in_flight = self.folded = self.gap_offsets = 0
        self.snapshots_saved = self.snapshots_failed = self.snapshots_refused = 0
        self.doubts = dict.fromkeys(DOUBTS, 0)
        self.taken_back = dict.fromkeys(TAKEN_BACK, 0)
        self.prevalence, self.forecast = Prevalence(), Forecast()
        self._watches = [self.prevalence, *([of_all] if of_all else [])]
        self._in_hand: deque[Integers] = deque()
        self._skipped_in_hand: deque[Damage] = deque()

    def read(self, batch: EventBatch) -> None:
        """Note that the events of `batch` are in hand."""
        self._in_hand.append(batch.offsets)
        self.in_flight += len(batch)

    def skip(self, damage: Damage) -> None:
        """Note that `damage` was met in the place of events."""
        self._skipped_in_hand.append(damage)

    def commit(self, offset: int) -> None:
        """Note that the input is committed up to `offset`. All decisions below it must be in `tally` already."""
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
        batches_skipped, offsets_skipped = self.ledger.batches_skipped, self.ledger.offsets_skipped
        while self._skipped_in_hand and self._skipped_in_hand[0].last_offset < offset:
            damage = self._skipped_in_hand.popleft()
            batches_skipped += 1
            offsets_skipped += damage.last_offset - damage.first_offset + 1
        for watch in self._watches:
            watch.note(self.tally.reasons)
        self.tally.reasons = Reasons()
        settled = Tally()
        settled.add(self.tally)
        self.ledger = Ledger(
            consumed=self.ledger.consumed + consumed,
            tally=settled,
            batches_skipped=batches_skipped,
            offsets_skipped=offsets_skipped,
        )

    def take_back(self, cause: str, offset: int = 0) -> None:
        """Note that events in hand, from `offset` on, were dropped, to be read again. `cause` is in `TAKEN_BACK`."""
        while self._skipped_in_hand and self._skipped_in_hand[-1].last_offset >= offset:
            self._skipped_in_hand.pop()
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
        """Note that an outcome is unknown, and take back all events in hand. `cause` is one of `DOUBTS`."""
        self.doubts[cause] += 1
        self.take_back(cause)


class Meters:
    """The counts of a worker."""

    def __init__(self) -> None:
        self.transactions = Histogram(TRANSACTION.bounds)
        self.list_refusals = {"allowlist": 0, "blocklist": 0}
        self.changes_malformed = 0
        self.task_errors = dict.fromkeys(TASKS, 0)
        # When the control topic was last read to its end, by time.monotonic.
        self.changes_read_at: float | None = None
        self.prevalence = Prevalence()  # of all partitions together
        self.prevailing: tuple[Prevailing, ...] = ()  # what was the rule at the last look
        self._shards: dict[int, ShardMeters] = {}

    def of(self, partition: int) -> ShardMeters:
        """Return the counts of `partition`. They are created at 0 on the first call."""
        return self._shards.setdefault(partition, ShardMeters(self.prevalence))

    @property
    def shards(self) -> dict[int, ShardMeters]:
        """The counts of every partition that this worker ever had."""
        return dict(sorted(dict(self._shards).items()))

    def look(self, now_s: float) -> None:
        """Look whether an outcome has become the rule, in all partitions together or in some; see `Prevalence.look`."""
        of_all = Tally()
        for shard in self.shards.values():
            settled = shard.ledger.tally
            of_all.add(settled)
            shard.prevalence.look(now_s, settled.by_verdict.tolist(), settled.late)
        self.prevalence.look(now_s, of_all.by_verdict.tolist(), of_all.late)
        self.prevailing = of_topic(
            self.prevalence, {p: shard.prevalence for p, shard in self.shards.items()}
        )

    @property
    def tally(self) -> Tally:
        """The outcomes of all events since the start."""
        total = Tally()
        for shard in self._shards.values():
            total.add(shard.tally)
        return total
