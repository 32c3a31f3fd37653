"""A stream as most producers write it: no record keys, so events of one key come in several partitions."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.broker.topics import Event

PARTITIONS = 6


@dataclass(frozen=True)
class Spread:
    """The `events`, of so many `distinct` keys, and how many of them pass filters that know one partition each."""

    events: Sequence[Event]
    distinct: int
    passing: int

    @property
    def unseen_share(self) -> float:
        """The share of all duplicates that pass."""
        return (self.passing - self.distinct) / (len(self.events) - self.distinct)


def spread(events: int = 60_000, distinct: int = 18_956) -> Spread:
    """Make JSON events, each in a partition by chance."""
    chance = random.Random(22)
    numbers = [*range(distinct), *(chance.randrange(distinct) for _ in range(events - distinct))]
    chance.shuffle(numbers)
    placed = [(chance.randrange(PARTITIONS), number) for number in numbers]
    made: list[Event] = [
        (partition, None, b'{"id": "user%d"}' % number, [], None) for partition, number in placed
    ]
    return Spread(made, distinct, len(set(placed)))
