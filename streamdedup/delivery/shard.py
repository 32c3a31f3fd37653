"""One partition's decisions, without I/O: lists, filter, pending, label.

The filter is the fold of the output up to the label. A digest waits in pending from the moment its event passes until
that event is known to be committed; only then is it admitted. A doubt forgets pending and keeps the filter.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from streamdedup.delivery.cross_partition import Watch
from streamdedup.events import Column, Integers, Verdict, Verdicts
from streamdedup.filters.base import Addable, Growing
from streamdedup.filters.window.protocol import Windowed
from streamdedup.keys.extract import Keys
from streamdedup.keys.hashing import Digests, Hash
from streamdedup.metrics.counts import Tally
from streamdedup.rules import duplicates_rule
from streamdedup.rules.lists import (
    NO_LISTS,
    Answer,
    BlockedRows,
    Lists,
    Match,
    NeedsStore,
    ScreenResult,
)


class Decided(NamedTuple):
    """The verdicts on the first m events of a batch, shape (m,); which of the BLOCKED ones the lists blocked, and how.

    The others of them go nowhere: the operator drops tombstones, or what is late.
    """

    verdicts: Verdicts
    blocked: BlockedRows


class Shard:
    """The state of one partition. `label` is the output offset up to which `filter_` has folded the output."""

    def __init__(
        self,
        partition: int,
        filter_: Addable | Windowed,
        *,
        stop_when_full: bool,
        watch: Watch | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.partition, self.filter, self._watch = partition, filter_, watch
        self.label = 0
        self.end_label = (
            0  # nothing at or above this output offset is in `filter_`, not even in part
        )
        self.moving = False  # whether `filter_` is between two states: what it holds is not the fold of any offset
        self.tally = Tally() if tally is None else tally  # outlives this shard where it is given
        self._stop_when_full = stop_when_full
        self._rule = duplicates_rule(filter_)
        self._grows = filter_ if isinstance(filter_, Growing) else None
        self._counted = Tally()
        self._sealed: deque[Tally] = deque()

    @property
    def pending(self) -> int:
        """The number of digests that wait for their commit."""
        return self._rule.pending

    @property
    def full(self) -> bool:
        """Whether one more key would take the filter past its error budget, which the operator did not allow."""
        return self._stop_when_full and self._rule.room <= 0

    @property
    def beyond_capacity(self) -> bool:
        """Whether the filter holds more keys than its error rate was promised for."""
        return self._rule.room + self._rule.pending < 0

    @property
    def watermark(self) -> int | None:
        """How far the time of a window will be when what waits is committed; None where the filter has no time."""
        return self._rule.watermark

    def decide(
        self,
        keys: Keys,
        times: Integers,
        rejected: Sequence[int] = (),
        lists: Lists | ScreenResult = NO_LISTS,
    ) -> Decided:
        """Decide the first m events; m is less than all only where the filter is full.

        `times` are the events' timestamps, ms since 1970. `rejected` are rows that the output would not take: they are
        settled before any rule looks at them. `lists` are those in force, for the whole batch, or what they said when
        they were `screened`, since asking them blocks.
        """
        verdicts, rows = verdicts_without_rules(keys, rejected)
        given = keys.keys.take(rows)
        digests = self._digests(given)
        blocked = lists.screen(rows, given, digests)
        if len(blocked.rows):
            verdicts[blocked.rows] = Verdict.BLOCKED
            left = verdicts[rows] == Verdict.PASS
            rows, digests = rows[left], digests[left]
        judged = self._rule.judge(digests, times[rows], within_budget=self._stop_when_full)
        if self._watch:
            self._watch.look(self.partition, digests[: len(judged)], judged)
        if len(judged) < len(rows):
            verdicts, rows = verdicts[: rows[len(judged)]], rows[: len(judged)]
            blocked = blocked.head(len(verdicts))
        verdicts[rows] = judged
        self._count(verdicts, blocked, int(np.count_nonzero(judged == Verdict.PASS)))
        return Decided(verdicts, blocked)

    def seal(self) -> None:
        """What was decided since the last seal is one transaction; it is admitted after all that was sealed before."""
        self._rule.seal()
        self._sealed.append(self._counted)
        self._counted = Tally()

    def admit(self, label: int) -> Iterator[None]:
        """What was sealed first, all where nothing was, is committed, and the output ends at `label` for us.

        Whoever iterates gives others a turn at each step, but for `decide`; who breaks off must `fold` from the old
        label.
        """
        if not self._sealed:
            self.seal()
        self.end_label = label
        yield from self._move(self._rule.admit())
        self.tally.add(self._sealed.popleft())
        self.label = label

    def forget(self) -> None:
        """Doubt: what was decided and not admitted is as if it had not been."""
        self._rule.forget()
        self._sealed.clear()
        self._counted = Tally()

    def fold(self, keys: Column, times: Integers, label: int) -> Iterator[None]:
        """Add the keys of committed output events; nulls are skipped. As `admit`, in steps."""
        self.end_label = max(self.end_label, label)
        rows = np.flatnonzero(keys.sizes >= 0)
        digests = self._digests(keys.take(rows))
        yield from self._move(self._rule.fold(digests, times[rows]))
        self.label = label

    def end_fold(self, label: int) -> None:
        """The output holds no more events below `label`, only markers of transactions."""
        self.label = label
        self.end_label = max(self.end_label, label)

    def start_at(self, watermark: int | None) -> Iterator[None]:
        """Events before those that can be folded are missing; together they took a window's time to `watermark`."""
        yield from self._move(self._rule.start_at(watermark))

    def grows_within(self, events: int) -> bool:
        """Whether what waits and so many events more may need memory that `grow` should take in a thread."""
        return self._grows is not None and self._grows.grows_within(self.pending + events)

    def grow(self) -> None:
        """Take that memory. Blocking."""
        if self._grows is not None:
            self._grows.grow()

    def _digests(self, keys: Column) -> Digests:
        return self.filter.hash.of_column(keys)

    def _move(self, steps: Iterator[None]) -> Iterator[None]:
        self.moving = True
        try:
            yield from steps
        finally:
            self.moving = False

    def _count(self, verdicts: Verdicts, blocked: BlockedRows, fresh: int) -> None:
        self._counted.by_verdict += np.bincount(verdicts, minlength=len(Verdict))
        self._counted.late += self._rule.late
        if blocked.lists.block is not None:
            self._counted.by_match += np.bincount(blocked.matches, minlength=len(Match))
            self._counted.exempt += len(blocked.exempt)
            answers = blocked.verified.answers
            self._counted.by_answer += np.bincount(answers, minlength=len(Answer))
        error = self.filter.error_rate_now
        self._counted.expected_false += fresh * error / max(1 - error, 1e-9)


def verdicts_without_rules(keys: Keys, rejected: Sequence[int]) -> tuple[Verdicts, Integers]:
    """The verdicts (n,) that no rule has a say in, PASS for all others; and the rows, ascending, that rules judge."""
    verdicts = np.full(len(keys.keys), Verdict.PASS, dtype=np.uint8)
    verdicts[list(keys.malformed)] = Verdict.MALFORMED
    verdicts[list(keys.dropped)] = Verdict.BLOCKED
    verdicts[list(rejected)] = Verdict.REJECTED
    open_ = verdicts == Verdict.PASS
    open_[list(keys.unjudged)] = False
    return verdicts, np.flatnonzero(open_)


def screen(
    keys: Keys, rejected: Sequence[int], lists: Lists, hash_: Hash
) -> ScreenResult | NeedsStore:
    """What `lists` say, in memory, of the events for which `Shard.decide` would ask them."""
    _, rows = verdicts_without_rules(keys, rejected)
    asked = keys.keys.take(rows)
    digests = hash_.of_column(asked)
    return lists.ask(rows, asked, digests)
