"""The consumer group, seen by an operator from outside: its members, and its offsets.

The broker accepts offsets without a generation only while the group has no members. So if a worker joins in between,
the request fails and no offset is moved.
"""

from collections.abc import Mapping
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


async def members(client: Any, group: str) -> int:
    """Return the number of members. This waits for the group's coordinator, so the caller sets a time-out."""

    def count(response: Any) -> int:
        code, _group, _state, _type, _protocol, found, *_ = response.groups[0]
        check(code)
        return len(found)

    return await asked(client, group, DescribeGroupsRequest([group]), count)


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
