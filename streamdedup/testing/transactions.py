"""The coordinator of transactions in memory: epochs that fence, and transactions that end in two steps.

As Kafka's: whoever asks for an epoch shuts out those before, and what they left open is aborted; the answer to a
commit comes before its markers stand in the logs and its offsets in the group; and what is repeated late, under an
epoch that still holds, hits whatever transaction is open then. Times are seconds of the loop's clock.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from aiokafka.errors import ConcurrentTransactions, InvalidTxnState, ProducerFenced

from streamdedup.kafka.records.records import Record
from streamdedup.testing.groups import Group
from streamdedup.testing.log import MemoryLog

Later = Callable[[Callable[[], None]], None]
"""Does something soon: what a broker does by itself, after it has answered."""


@dataclass
class _Staged:
    group: Group
    offset: int
    metadata: str


@dataclass
class Transactions:
    """What one transactional id is doing; the coordinator's view."""

    transactional_id: str
    later: Later
    epoch: int = -1
    ending: int = 0  # how many markers are still to be written
    ends_at: float = float("inf")
    timeout_s: float = 60.0
    _logs: list[MemoryLog] = field(default_factory=list)
    _staged: dict[tuple[int, str, int], _Staged] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether a transaction is open whose end nobody has asked for."""
        return not self.ending and bool(self._logs or self._staged)

    def undecided(self, group: Group, topic: str, partition: int) -> bool:
        """Whether the outcome of a transaction would change that committed offset."""
        return (id(group), topic, partition) in self._staged

    def fence(self, timeout_s: float) -> int:
        """A new epoch. ConcurrentTransactions, to be asked again, while what was open is being settled."""
        if self.open:
            self.epoch += 1
            self._end(commit=False)
        if self.ending:
            raise ConcurrentTransactions
        self.epoch += 1
        self.timeout_s = timeout_s
        return self.epoch

    def add(self, epoch: int, log: MemoryLog, now: float) -> None:
        """Take a partition into the open transaction; ConcurrentTransactions while the one before is being ended."""
        self._begin(epoch, now)
        if log not in self._logs:
            self._logs.append(log)

    def produce(self, epoch: int, log: MemoryLog, records: Iterable[Record]) -> int:
        """Append to the open transaction, of which the partition must be; the offset of the first."""
        self._check(epoch)
        if self.ending or log not in self._logs:
            raise InvalidTxnState
        return log.append(records, self.transactional_id)

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
        """Commit or abort. InvalidTxnState where nothing is open: it was asked for twice."""
        self._check(epoch)
        if self.open:
            self._end(commit=commit)
        elif not self.ending:
            raise InvalidTxnState

    def expire(self, now: float) -> None:
        """Abort what is open for too long; who wrote it is fenced."""
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

    def _end(self, *, commit: bool) -> None:
        """Decided from here on; the partitions hear of it one by one."""
        logs, staged, self._logs = self._logs, self._staged, []
        self.ending = len(logs) + len(staged)
        for log in logs:
            log.decide(self.transactional_id, committed=commit)
            self.later(partial(self._mark, log))
        for key in list(staged):
            self.later(partial(self._apply, key, commit))

    def _mark(self, log: MemoryLog) -> None:
        log.mark(self.transactional_id)
        self.ending -= 1

    def _apply(self, key: tuple[int, str, int], commit: bool) -> None:
        staged = self._staged.pop(key)
        if commit:
            _, topic, partition = key
            staged.group.offsets[topic, partition] = (staged.offset, staged.metadata)
        self.ending -= 1
