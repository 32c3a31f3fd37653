"""How many events a transaction may take: as many as arrive, or fewer while we search for an event that was refused.

The broker refuses a whole record batch, not an event. So the events of a refused transaction are read again, half as
many at a time, until a single event is refused: that one is rejected. After it the number doubles with each commit.
"""

from streamdedup.delivery.transactions import Transaction


class Pace:
    """The pace of one shard; it outlives doubts.

    `refused` maps the input offset of each event that was refused while it was alone in its transaction to the reason.
    """

    def __init__(self, events_max: int) -> None:
        self.refused: dict[int, str] = {}
        self._most = self._now = events_max
        self._until = 0

    @property
    def events_max(self) -> int:
        """How many events the next transaction may take."""
        return self._now

    def halve(self, transaction: Transaction, reason: str) -> None:
        """Halve the number, because the broker refused a record of `transaction`."""
        self._until = max(self._until, transaction.next_offset)
        self._now = max(1, min(self._now, transaction.events) // 2)
        if transaction.events == 1:
            self.refused[transaction.last_offset] = reason

    def passed(self, next_offset: int) -> None:
        """Note that all events of the input below `next_offset` are committed."""
        self.refused = {at: why for at, why in self.refused.items() if at >= next_offset}
        self._now = self._most if next_offset >= self._until else min(self._most, self._now * 2)
