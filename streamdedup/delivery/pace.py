"""How many events a transaction takes: all that come, or few, while one that the broker refuses is looked for.

A refusal fails a whole record batch, so the events of its transaction are taken again, half as many at a time, until
one alone is refused: that one is rejected. Behind it the number doubles again with each commit.
"""

from streamdedup.delivery.transactions import Transaction


class Pace:
    """Of one shard; outlives doubts. `refused` are offsets of the input -> why, of events refused alone."""

    def __init__(self, events_max: int) -> None:
        self.refused: dict[int, str] = {}
        self._most = self._now = events_max
        self._until = 0

    @property
    def events_max(self) -> int:
        """Most events of the next transaction."""
        return self._now

    def halve(self, transaction: Transaction, reason: str) -> None:
        """The broker refused something of `transaction`."""
        self._until = max(self._until, transaction.next_offset)
        self._now = max(1, min(self._now, transaction.events) // 2)
        if transaction.events == 1:
            self.refused[transaction.last_offset] = reason

    def passed(self, next_offset: int) -> None:
        """All before `next_offset` of the input is committed."""
        self.refused = {at: why for at, why in self.refused.items() if at >= next_offset}
        self._now = self._most if next_offset >= self._until else min(self._most, self._now * 2)
