"""The consumer group, seen from outside: its members and their assignor, and its offsets.

The broker accepts offsets without a generation only while the group has no members. So if a worker joins in between,
the request fails and no offset is moved.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.errors import (
    IllegalGenerationError,
    NonEmptyGroup,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.commit import OffsetCommitRequest

from streamdedup.errors import DeliveryError
from streamdedup.kafka.offsets import asked, check

NO_GENERATION, NO_MEMBER, AS_LONG_AS_CONFIGURED = -1, "", -1
_HAS_MEMBERS = (
    UnknownMemberIdError,
    IllegalGenerationError,
    RebalanceInProgressError,
    NonEmptyGroup,
)


@dataclass(frozen=True, slots=True)
class InForce:
    """What a group goes by now: the name of its assignor, and its members, each as client id and host.

    `assignor` is None while the group rebalances, since the broker names none then, and if the group is empty.
    """

    assignor: str | None
    members: tuple[str, ...]


async def in_force(client: Any, group: str) -> InForce:
    """Return what the group goes by. This waits for the group's coordinator, so the caller sets a time-out."""

    def described(response: Any) -> InForce:
        code, _group, _state, _type, assignor, found, *_ = response.groups[0]
        check(code)
        members = (f"{client_id} at {host}" for _id, client_id, host, *_ in found)
        return InForce(assignor or None, tuple(sorted(members)))

    return await asked(client, group, DescribeGroupsRequest([group]), described)


async def move(client: Any, group: str, topic: str, offsets: Mapping[int, tuple[int, str]]) -> None:
    """Commit offsets, partition -> (offset, metadata), all in one request, for a group without members.

    DeliveryError if it has members. This waits for the group's coordinator, so the caller sets a time-out.
    """
    rows = [(partition, offset, note) for partition, (offset, note) in offsets.items()]
    request = OffsetCommitRequest(
        group, NO_GENERATION, NO_MEMBER, AS_LONG_AS_CONFIGURED, [(topic, rows)]
    )

    def taken(response: Any) -> None:
        for _topic, partitions in response.topics:
            for _partition, code in partitions:
                check(code)

    try:
        await asked(client, group, request, taken)
    except _HAS_MEMBERS:
        raise DeliveryError(
            f"the group {group} has members: a worker joined meanwhile; stop all workers, and try again"
        ) from None
