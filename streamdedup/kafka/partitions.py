"""A partition of an input: where several topics are read, its number alone does not name it."""

from collections.abc import Iterable
from typing import NamedTuple

from typing_extensions import override


class InputPartition(NamedTuple):
    """One partition of one topic that is read. They sort by topic, then by number."""

    topic: str
    number: int

    @override
    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


def by_topic(partitions: Iterable[InputPartition]) -> dict[str, list[int]]:
    """Return the numbers of `partitions` by their topics."""
    numbers = dict[str, list[int]]()
    for partition in partitions:
        numbers.setdefault(partition.topic, []).append(partition.number)
    return numbers
