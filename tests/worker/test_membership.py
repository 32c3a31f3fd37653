"""Claims about joining a group: an unknown error is reported, and tried again less and less often."""

import asyncio
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError
from structlog.testing import capture_logs

from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.kafka.client.patience import Patience
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.source import KafkaMember
from streamdedup.metrics.counts import Meters
from streamdedup.server import Status
from streamdedup.testing import VirtualLoop
from streamdedup.worker.membership import TROUBLE_S_MAX, Membership

KEY = "a-key"


class Group:
    """A group, of which the first tries to join fail."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.tried_at = list(errors), list[float]()

    async def start(self) -> None:
        """Join it, as a member."""
        self.tried_at.append(asyncio.get_running_loop().time())
        if self.errors:
            raise self.errors.pop(0)


def joined(group: Group) -> list[Any]:
    """Join on a virtual clock; return the lines."""
    member: Any = group
    with capture_logs() as lines, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(
            Membership(member, Patience(), "the consumer", Status("in", {}, Meters())).join()
        )
    return lines


def test_an_unknown_error_at_the_join_ends_no_worker() -> None:
    """It may be the fault of the member that leads; a line a minute names the error's type, and what to look at."""
    group = Group(*(AssertionError(KEY) for _ in range(20)))
    lines = joined(group)
    waits = [b - a for a, b in zip(group.tried_at, group.tried_at[1:], strict=False)]
    assert len(waits) == 20
    assert waits[0] < 2 < TROUBLE_S_MAX / 2 <= waits[-1] <= TROUBLE_S_MAX * 1.5
    assert 3 <= len(lines) <= sum(waits) / 60 + 1
    assert {(line["event"], line["error"]) for line in lines} == {
        ("consumer_trouble", "AssertionError")
    }
    assert "stop those that are no workers" in lines[0]["remedy"]
    assert KEY not in str(lines)


@pytest.mark.parametrize(
    "error", [DeliveryError("over"), ConfigError("wrong"), GroupAuthorizationFailedError("group")]
)
def test_what_no_waiting_cures_ends_the_join(error: Exception) -> None:
    """An error of ours, or a broker that refuses us."""
    group = Group(error)
    with pytest.raises(type(error)):
        joined(group)
    assert len(group.tried_at) == 1


def test_a_join_that_is_cancelled_is_not_tried_again() -> None:
    """What a client library makes of it does not count."""
    group = Group()

    async def start() -> None:
        group.tried_at.append(0)
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            raise ValueError from None

    async def scene() -> None:
        member: Any = group
        group.start = start  # type: ignore[method-assign] # this one waits
        joining = asyncio.create_task(
            Membership(member, Patience(), "the consumer", Status("in", {}, Meters())).join()
        )
        await asyncio.sleep(1)
        joining.cancel()
        await asyncio.wait([joining])
        assert len(group.tried_at) == 1

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scene())


def test_a_member_that_has_not_joined_knows_no_topics() -> None:
    """Its group is watched from the start: the first look comes before its consumer is made."""
    options = KafkaOptions(bootstrap_servers="127.0.0.1:1", group_id="group")
    member = KafkaMember(options, ["topic"], Patience(), "assignor")
    assert member.topics() == {}
