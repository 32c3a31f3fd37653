"""The transaction coordinator in memory: epochs that fence, and transactions that end in two steps.

As in Kafka, a new epoch fences the earlier ones, and aborts the transaction that they left open. A commit is answered
before its markers are in the logs and its offsets in the group. A late repetition of a request, under an epoch that
still holds, takes effect on the transaction that is open then. A
marker may be lost; the next one of that id in its place ends both transactions. Times are seconds of the loop's clock.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from aiokafka.errors import ConcurrentTransactions, InvalidTxnState, ProducerFenced

from streamdedup.kafka.records.records import Record
from streamdedup.testing.groups import Group
from streamdedup.testing.log import MemoryLog

Later = Callable[[Callable[[], None]], None]
"""Runs something soon that a broker does by itself, after its answer."""

LOGS, OFFSETS = "logs", "offsets"


@dataclass
class _Staged:
    group: Group
    offset: int
    metadata: str


@dataclass
class Transactions:
    """The coordinator's state of one transactional id."""

    transactional_id: str
    later: Later
    epoch: int = -1
    ending: int = 0  # how many markers are still to be written
    ends_at: float = float("inf")
    loses: frozenset[str] = frozenset()
    """Which markers the broker forgets to write, those of the LOGS or of the OFFSETS, as Kafka may after a kill."""
    timeout_s: float = 60.0
    _logs: list[MemoryLog] = field(default_factory=list)
    _staged: dict[tuple[int, str, int], _Staged] = field(default_factory=dict)
    _left: dict[tuple[int, str, int], _Staged] = field(
        default_factory=dict
    )  # their marker was lost

    @property
    def open(self) -> bool:
        """Whether a transaction is open that nobody has asked to end."""
        return not self.ending and bool(self._logs or self._staged)

    def undecided(self, group: Group, topic: str, partition: int) -> bool:
        """Return whether a transaction is under way that would change that committed offset."""
        key = (id(group), topic, partition)
        return key in self._staged or key in self._left

    def fence(self, timeout_s: float) -> int:
        """Return a new epoch, and abort an open transaction.

        ConcurrentTransactions while that transaction is being ended: ask again.
        """
        if self.open:
            self.epoch += 1
            self._end(commit=False)
        if self.ending:
            raise ConcurrentTransactions
        self.epoch += 1
        self.timeout_s = timeout_s
        return self.epoch

    def add(self, epoch: int, log: MemoryLog, now: float) -> None:
        """Add a partition to the open transaction. ConcurrentTransactions while the one before is being ended."""
        self._begin(epoch, now)
        if log not in self._logs:
            self._logs.append(log)

    def produce(self, epoch: int, log: MemoryLog, records: Iterable[Record]) -> int:
        """Append to the open transaction, which must include the partition; return the offset of the first record."""
        self._check(epoch)
        if self.ending or log not in self._logs:
            raise InvalidTxnState
        return log.append(records, self.transactional_id, epoch)

    def stage(
        self,
        epoch: int,
        group: Group,
        where: tuple[str, int],
        committed: tuple[int, str],
        now: float,
    ) -> None:
        """Add an offset to the open transaction."""
        self._begin(epoch, now)
        self._staged[id(group), *where] = _Staged(group, *committed)

    def end(self, epoch: int, *, commit: bool) -> None:
        """Commit or abort. InvalidTxnState if no transaction is open: the request was repeated."""
        self._check(epoch)
        if self.open:
            self._end(commit=commit)
        elif not self.ending:
            raise InvalidTxnState

    def end_empty(self, epoch: int, logs: Iterable[MemoryLog], *, commit: bool) -> None:
        """End a transaction that writes nothing to `logs` and to the group's offsets.

        ConcurrentTransactions while the one before is being ended.
        """
        self._check(epoch)
        if self.ending:
            raise ConcurrentTransactions
        self._logs = list(logs)
        self._end(commit=commit, with_offsets=True)

    def expire(self, now: float) -> None:
        """Abort a transaction that is open for too long, and fence its writer."""
        if self.open and self.ends_at <= now:
            self.epoch += 1
            self._end(commit=False)

    def _check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise ProducerFenced

    def _begin(self, epoch: int, now: float) -> None:
        self._check(epoch)
        if self.ending:
            raise ConcurrentTransactions
        if not self.open:
            self.ends_at = now + self.timeout_s

    def _end(self, *, commit: bool, with_offsets: bool = False) -> None:
        """Decide the transaction; the partitions learn of it one after the other.

        What was left of an earlier one has the same outcome then: in the logs of this one, and in the group's offsets
        if this one has any.
        """
        if with_offsets or self._staged:
            self._staged, self._left = {**self._left, **self._staged}, {}
        logs, self._logs = self._logs, []
        self.ending = len(logs) + len(self._staged)
        for log in logs:
            log.decide(self.transactional_id, committed=commit)
            self.later(partial(self._mark, log))
        for key in list(self._staged):
            self.later(partial(self._apply, key, commit))

    def _mark(self, log: MemoryLog) -> None:
        if LOGS not in self.loses:
            log.mark(self.transactional_id)
        self.ending -= 1

    def _apply(self, key: tuple[int, str, int], commit: bool) -> None:
        staged = self._staged.pop(key)
        if OFFSETS in self.loses:
            self._left[key] = staged
        elif commit:
            _, topic, partition = key
            staged.group.offsets[topic, partition] = (staged.offset, staged.metadata)
        self.ending -= 1
