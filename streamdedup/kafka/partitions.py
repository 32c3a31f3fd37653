"""A partition of an input, since of several topics its number alone does not name it; and who wrote to a partition.

Besides, the remedies for a partition without a leader, and for a transaction that stays open.
"""

from collections.abc import Iterable
from typing import NamedTuple

from typing_extensions import override

WITHOUT_LEADER = "it has no leader, so nothing is read from it or written to it"
LEADER_REMEDY = "start the brokers of its replicas (kafka-topics.sh --describe names them)"


def abort_command(topic: str, partition: int, offset: int) -> str:
    """Return the command that aborts the transaction which is open from `offset` of a partition on."""
    return (
        f"kafka-transactions.sh --bootstrap-server SERVER abort --topic {topic} --partition {partition}"
        f" --start-offset {offset}"
    )


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


class LastWrite(NamedTuple):
    """The last that a producer with an id wrote to a partition.

    `at_ms`, in ms since 1970, is the timestamp of its last record; or, if a marker has ended its transaction, the time
    of the marker by the leader's clock; -1 if it is not known.
    """

    producer_id: int
    epoch: int
    at_ms: int
