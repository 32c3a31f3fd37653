"""The decisions of one partition, without I/O: lists, filter, pending, label.

The filter is the fold of the output up to the label. A digest is pending from the moment its event passes until that
event is known to be committed; only then is it admitted to the filter. A doubt drops pending and keeps the filter.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from streamdedup.events import Integers, Verdict, Verdicts
from streamdedup.filters.base import Addable, Growing
from streamdedup.filters.window.protocol import Windowed
from streamdedup.keys.extract import Keys
from streamdedup.keys.hashing import Digests
from streamdedup.metrics.counts import Tally
from streamdedup.rules import duplicates_rule
from streamdedup.rules.lists import NOTHING_BLOCKED, Answer, BlockedRows, Match

NONE_MALFORMED: Mapping[int, str] = MappingProxyType({})


class Decided(NamedTuple):
    """The verdicts (m,) of the first m events of a batch, and which of the BLOCKED events the lists blocked, and how.

    Other events are BLOCKED because the operator drops tombstones, or late events. They go to no topic.
    """

    verdicts: Verdicts
    blocked: BlockedRows


class Shard:
    """The state of one partition.

    `label` is the output offset up to which `filter` has folded the output. `tally` may be shared:
    it counts on if the shard is replaced by another one over the same tally.
    """

    def __init__(
        self,
        partition: int,
        filter_: Addable | Windowed,
        *,
        stop_when_full: bool,
        tally: Tally | None = None,
    ) -> None:
        self.partition, self.filter = partition, filter_
        self.label = 0
        # No key of the output from this offset on is in `filter`. It is raised before keys are added, `label` after, so
        # between two steps of `admit` or `fold`, `filter` may hold keys from `label` up to here.
        self.end_label = 0
        # Whether `admit` or `fold` has done some of its steps and not all: `filter` is not the fold up to any offset.
        self.moving = False
        self.tally = Tally() if tally is None else tally
        self._stops_when_full = stop_when_full
        self._rule = duplicates_rule(filter_)
        self._grows = filter_ if isinstance(filter_, Growing) else None
        self._counted = Tally()
        self._sealed: deque[Tally] = deque()

    @property
    def pending(self) -> int:
        """The number of digests whose events are not yet known to be committed."""
        return self._rule.pending

    @property
    def full(self) -> bool:
        """Whether the shard stops here: one more key would exceed the error budget, or the filter is overfull."""
        return self._stops and self._rule.room <= 0

    @property
    def beyond_capacity(self) -> bool:
        """Whether the filter holds more keys than its promised error rate allows."""
        return self._rule.room + self._rule.pending < 0

    @property
    def strained(self) -> bool:
        """Whether keys take so long in the filter that more of them are soon refused: somebody seems to choose them."""
        return self.filter.strained

    @property
    def watermark(self) -> int | None:
        """The time of a window once all pending digests are admitted; None if the filter has no time."""
        return self._rule.watermark

    @property
    def unsealed(self) -> Tally:
        """The outcomes of what was decided since the last seal."""
        return self._counted

    def decide(
        self,
        verdicts: Verdicts,
        rows: Integers,
        digests: Digests,
        times: Integers,
        blocked: BlockedRows = NOTHING_BLOCKED,
        *,
        malformed: Mapping[int, str] = NONE_MALFORMED,
    ) -> Decided:
        """Decide the first m of n events; m is less than n only if the filter is full.

        `verdicts` (n,) precede all rules, which judge only `rows`, ascending (`verdicts_without_rules`); `digests` are
        those of the keys of these. `times` (n,) are the events' timestamps, in ms since 1970. `blocked` are the events
        that the lists block, and `malformed` has the reason for each row that is, to be counted.
        """
        if len(blocked.rows):
            verdicts[blocked.rows] = Verdict.BLOCKED
            left = verdicts[rows] == Verdict.PASS
            rows, digests = rows[left], digests[left]
        judged = self._rule.judge(digests, times[rows], within_budget=self._stops)
        if len(judged) < len(rows):
            verdicts, rows = verdicts[: rows[len(judged)]], rows[: len(judged)]
            blocked = blocked.head(len(verdicts))
        verdicts[rows] = judged
        self._count(verdicts, blocked, int(np.count_nonzero(judged == Verdict.PASS)))
        if malformed:
            self._counted.reasons.add(_reasons_of(verdicts, malformed))
        return Decided(verdicts, blocked)

    def seal(self) -> None:
        """Close a transaction: all events decided since the last seal. Transactions are admitted in this order."""
        self._rule.seal()
        self._sealed.append(self._counted)
        self._counted = Tally()

    def admit(self, label: int) -> Iterator[None]:
        """Admit the transaction that was sealed first, or all pending digests if none was sealed: it is committed.

        `label` is the output offset after its last event. The iterator works in steps. Between two steps the caller may
        give the event loop a turn, but must not call `decide`. If it stops before the last step, it must `fold` the
        output again from the old label.
        """
        if not self._sealed:
            self.seal()
        self.end_label = label
        yield from self._move(self._rule.admit())
        self.tally.add(self._sealed.popleft())
        self.label = label

    def forget(self) -> None:
        """At a doubt, drop everything that is decided and not admitted, as if it had not been decided."""
        self._rule.forget()
        self._sealed.clear()
        self._counted = Tally()

    def fold(self, digests: Digests, times: Integers, label: int) -> Iterator[None]:
        """Add the keys of committed output events below `label`, in steps like `admit`.

        `digests` are those of the keys, `times` the timestamps of their events.
        """
        self.end_label = max(self.end_label, label)
        yield from self._move(self._rule.fold(digests, times))
        self.label = label

    def end_fold(self, label: int) -> None:
        """Raise the label to the end of the output: only transaction markers and aborted events are left below it."""
        self.label = label
        self.end_label = max(self.end_label, label)

    def start_at(self, watermark: int | None) -> Iterator[None]:
        """Set the time of a window to `watermark`, its time after events that are missing in the output; in steps."""
        yield from self._move(self._rule.start_at(watermark))

    def grows_within(self, events: int) -> bool:
        """Return whether the pending digests and `events` more may need memory, which `grow` takes in a thread."""
        return self._grows is not None and self._grows.grows_within(self.pending + events)

    def grow(self) -> None:
        """Take that memory. This blocks."""
        if self._grows is not None:
            self._grows.grow()

    @property
    def _stops(self) -> bool:
        """Whether no key is taken beyond the capacity; once the filter is `overfull`, none is in any case."""
        return self._stops_when_full or self.filter.overfull

    def _move(self, steps: Iterator[None]) -> Iterator[None]:
        self.moving = True
        try:
            yield from steps
        finally:
            self.moving = False

    def _count(self, verdicts: Verdicts, blocked: BlockedRows, fresh: int) -> None:
        self._counted.by_verdict += np.bincount(verdicts, minlength=len(Verdict))
        self._counted.late += self._rule.late
        self._counted.untimed += self._rule.untimed
        self._counted.ancient += self._rule.ancient
        if blocked.lists.block is not None:
            self._counted.by_match += np.bincount(blocked.matches, minlength=len(Match))
            self._counted.exempt += len(blocked.exempt)
            answers = blocked.verified.answers
            self._counted.by_answer += np.bincount(answers, minlength=len(Answer))
        error = self.filter.error_rate_now
        self._counted.expected_false += fresh * error / max(1 - error, 1e-9)


def _reasons_of(verdicts: Verdicts, malformed: Mapping[int, str]) -> Counter[str]:
    """Count the reasons of the events that are decided, and not rejected besides."""
    are = verdicts == Verdict.MALFORMED
    if int(np.count_nonzero(are)) == len(malformed):
        return Counter(malformed.values())
    return Counter(malformed[row] for row in are.nonzero()[0].tolist())


def verdicts_without_rules(keys: Keys, rejected: Sequence[int]) -> tuple[Verdicts, Integers]:
    """Return the verdicts (n,) that precede all rules, PASS for all other events, and the rows that rules judge.

    The rows are ascending.
    """
    verdicts = np.full(len(keys.keys), Verdict.PASS, dtype=np.uint8)
    verdicts[list(keys.malformed)] = Verdict.MALFORMED
    verdicts[list(keys.dropped)] = Verdict.BLOCKED
    verdicts[list(rejected)] = Verdict.REJECTED
    open_ = verdicts == Verdict.PASS
    open_[list(keys.unjudged)] = False
    return verdicts, np.flatnonzero(open_)
