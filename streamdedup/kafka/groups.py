"""The consumer group as an operator sees it from outside: who is in it, and its offsets, moved by no member.

The broker takes offsets without a generation only while the group has no members, so a worker that joins in between
wins: nothing is moved then.
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
    """How many members the group has. Waits for its coordinator: bound it with a time-out."""

    def count(response: Any) -> int:
        code, _group, _state, _type, _protocol, found, *_ = response.groups[0]
        check(code)
        return len(found)

    return await asked(client, group, DescribeGroupsRequest([group]), count)


async def move(client: Any, group: str, topic: str, offsets: Mapping[int, tuple[int, str]]) -> None:
    """Commit partition -> (offset, metadata), all in one request, for a group without members.

    DeliveryError where it has any. Waits for its coordinator: bound it with a time-out.
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
