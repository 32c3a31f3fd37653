"""What is claimed of the lag of other workers' partitions: when Kafka is asked for it, and what is known then."""

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamdedup.kafka.base import Cluster
from streamdedup.server.others import EVERY_S, LOOKED_S, Others

SHARED = SimpleNamespace(topic="events", theirs=[1, 2, 3])


class Asked:
    """A cluster that counts questions: the group has committed 7 of partition 1, and all of 2, but nothing of 3."""

    def __init__(self) -> None:
        self.count, self.is_away = 0, False

    async def committed_all(
        self, _group: str, _topic: str, _partitions: Sequence[int], *, stable: bool
    ) -> dict[int, Any]:
        """The offsets; they need not be stable ones."""
        assert not stable
        self.count += 1
        if self.is_away:
            raise ConnectionError
        return {1: SimpleNamespace(offset=7), 2: SimpleNamespace(offset=10)}

    async def end_offsets(self, _topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Ten events each."""
        return dict.fromkeys(partitions, 10)


@pytest.fixture
def asked() -> Asked:
    """A cluster that answers."""
    return Asked()


async def turn(others: Others, asked: Asked, now: float) -> None:
    """One turn at this time."""
    await others.turn(now, cast("Cluster", asked), "group", SHARED)


async def test_the_lag_is_what_the_group_has_not_committed(asked: Asked) -> None:
    """Of a partition without a commit it is not known."""
    others = Others()
    others.look()
    await turn(others, asked, time.monotonic())
    assert others.lags == {1: 3, 2: 0}


async def test_kafka_is_asked_only_while_somebody_looks(asked: Asked) -> None:
    """And then once every 10 s; after the last look nothing is known any more."""
    others, now = Others(), time.monotonic()
    await turn(others, asked, now)
    assert asked.count == 0
    others.look()
    for after_s in (0, 1, EVERY_S - 1, EVERY_S):
        await turn(others, asked, now + after_s)
    assert asked.count == 2
    await turn(others, asked, time.monotonic() + LOOKED_S + 1)
    assert (asked.count, others.lags) == (2, {})


async def test_what_is_not_answered_is_not_known(asked: Asked) -> None:
    """An old lag would look like a new one."""
    others, now = Others(), time.monotonic()
    others.look()
    await turn(others, asked, now)
    asked.is_away = True
    await turn(others, asked, now + EVERY_S)
    assert (asked.count, others.lags) == (2, {})
