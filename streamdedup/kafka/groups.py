"""The consumer group, seen from outside: its members, their assignor, its offsets; and which groups read a topic.

The broker accepts offsets without a generation only while the group has no members. So if a worker joins in between,
the request fails and no offset is moved.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    IncompatibleBrokerVersion,
    InvalidGroupIdError,
    NonEmptyGroup,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from aiokafka.protocol.commit import OffsetCommitRequest

from streamdedup.errors import DeliveryError
from streamdedup.kafka.brokers import cluster_rights
from streamdedup.kafka.client.connection import asked_again, raise_for
from streamdedup.kafka.client.protocol import (
    ConsumerGroupDescribe,
    GroupRights,
    ShareGroupDescribe,
)
from streamdedup.kafka.offsets import RETRY_S, asked, inputs_of, middles_of, topics_of
from streamdedup.kafka.topics import DESCRIBE, RIGHTS_UNKNOWN

GROUPS_ASKED_MAX = 1_000  # a cluster may have many more, and each takes a request
AT_ONCE = 20
_STABLE, _ASSIGNMENT = "Stable", 4
_CLIENT_ID, _HOST, _TYPE, _CLASSIC = 4, 5, 10, 0
_SHARING_ID, _SHARING_HOST = 3, 4
_NO_SUCH_GROUP = (35, 69)  # the broker has no such protocol in force, or no such group in it
NO_GENERATION, NO_MEMBER, AS_LONG_AS_CONFIGURED = -1, "", -1
NEWER_REMEDY = (
    "stop them, or give them another group.id;"
    " `streamdedup reset` moves the offsets back if they committed any"
)
UNSERVED_REMEDY = "if this lasts, restart a worker: the leader of the group assigns them then"
SHARE_REMEDY = (
    "stop its members, and delete it: kafka-share-groups.sh --bootstrap-server SERVER --delete --group {group}; or give"
    " the worker another kafka.group_id (docs/runbook.md)"
)
_HAS_MEMBERS = (
    UnknownMemberIdError,
    IllegalGenerationError,
    RebalanceInProgressError,
    NonEmptyGroup,
)


@dataclass(frozen=True, slots=True)
class InForce:
    """What a group goes by now: the name of its assignor, and its members, each as client id and host.

    `assignor` is None while the group rebalances, since the broker names none then, if the group is empty, and if it
    has members of the new group protocol (KIP-848). Those are the `newer` ones; with brokers that do not distinguish
    them, all members of such a group are.

    `assigned` are the partitions (topic and number) that its members have; None if that is not known, as while the
    group rebalances. A static member has its partitions also while it is away, until its session ends. `owners` has
    client id and host of the member that has each of them.

    `share`: it is a share group (KIP-932), with these `members`. No other member may join it, also once it is empty.
    """

    assignor: str | None
    members: tuple[str, ...]
    newer: tuple[str, ...] = ()
    share: bool = False
    assigned: frozenset[tuple[str, int]] | None = None
    owners: Mapping[tuple[str, int], tuple[str, str]] = field(default_factory=dict)


async def in_force(client: Any, group: str) -> InForce:
    """Return what the group goes by. This waits for the group's coordinator, so the caller sets a time-out."""

    def described(response: Any) -> InForce:
        code, _group, state, _type, assignor, found, *_ = response.groups[0]
        raise_for(code)
        members = (f"{client_id} at {host}" for _id, client_id, host, *_ in found)
        owners = _owners(found) if state == _STABLE else None
        return InForce(
            assignor or None,
            tuple(sorted(members)),
            assigned=None if owners is None else frozenset(owners),
            owners=owners or {},
        )

    classic = await asked(client, group, DescribeGroupsRequest([group]), described)
    if classic.members:
        return classic
    return await _of_new_protocol(client, group) or await _of_share_group(client, group) or classic


async def rights(client: Any, group: str) -> int:
    """Return our rights on `group`, a bit for each; RIGHTS_UNKNOWN if the broker does not report rights.

    This waits for the group's coordinator, so the caller sets a time-out.
    """

    def operations(response: Any) -> int:
        code, *_, found = response.groups[0]
        raise_for(code)
        return int(found)

    try:
        return await asked(client, group, GroupRights(group), operations)
    except (IncompatibleBrokerVersion, NotImplementedError):
        return RIGHTS_UNKNOWN


def _owners(members: Iterable[Any]) -> dict[tuple[str, int], tuple[str, str]] | None:
    """Return who has each partition of `members`; None if an assignment is not as ConsumerProtocol has it."""
    owners = dict[tuple[str, int], tuple[str, str]]()
    try:
        for member in members:
            if assignment := member[_ASSIGNMENT]:
                _id, client_id, host, *_ = member
                for where in ConsumerProtocolMemberAssignment.decode(assignment).partitions():
                    owners[where.topic, where.partition] = client_id, host
    except (ValueError, struct.error, UnicodeDecodeError):
        return None
    return owners


async def _of_new_protocol(client: Any, group: str) -> InForce | None:
    """Return the members of a group in which the new protocol is in force; None if it is not, or not known."""

    def in_force_of(response: Any, members: Iterable[Any]) -> InForce:
        by_type: dict[bool, list[str]] = {True: [], False: []}
        for member in members:
            is_classic = response.API_VERSION > 0 and member[_TYPE] == _CLASSIC
            by_type[is_classic].append(f"{member[_CLIENT_ID]} at {member[_HOST]}")
        return InForce(None, tuple(sorted(by_type[True])), tuple(sorted(by_type[False])))

    return await _of_type(client, group, ConsumerGroupDescribe(group), in_force_of)


async def _of_share_group(client: Any, group: str) -> InForce | None:
    """Return the members of a share group; None if it is none, or the broker knows no share groups."""

    def in_force_of(_response: Any, members: Iterable[Any]) -> InForce:
        named = (f"{member[_SHARING_ID]} at {member[_SHARING_HOST]}" for member in members)
        return InForce(None, tuple(sorted(named)), share=True)

    return await _of_type(client, group, ShareGroupDescribe(group), in_force_of)


async def _of_type(
    client: Any,
    group: str,
    request: ConsumerGroupDescribe | ShareGroupDescribe,
    in_force_of: Callable[[Any, Iterable[Any]], InForce],
) -> InForce | None:
    """Return what `in_force_of` makes of the answer and its members; None if the group is of another type.

    None, too, if the broker does not know the request.
    """

    def described(response: Any) -> InForce | None:
        code, _message, _group, _state, _epoch, _assigned, _assignor, found, *_ = response.groups[0]
        if code in _NO_SUCH_GROUP:
            return None
        raise_for(code)
        return in_force_of(response, found)

    try:
        return await asked(client, group, request, described)
    except (IncompatibleBrokerVersion, NotImplementedError):
        return None


async def groups_on(client: Any, topic: str, besides: Collection[str]) -> frozenset[str] | None:
    """Return the groups, without those in `besides`, that have committed offsets on `topic`.

    Of both group protocols; at most GROUPS_ASKED_MAX groups are asked, in the order of their names. A group of which we
    may not read the offsets counts as one without. Return None if we may not list all groups, and find none among those
    that we see. The caller sets a time-out.
    """
    found = await _of_each(client, besides, topics_of)
    if found is None:
        return None
    on_topic = frozenset(group for group, its in found.items() if topic in its)
    return on_topic if on_topic or await _sees_all_groups(client) else None


async def middles(client: Any, besides: Collection[str]) -> dict[str, str]:
    """Return the topics that groups, without those in `besides`, read as the middle of `source.repartition`.

    Each with a group that reads it so, by the notes of its offsets. Which groups are asked, and which count as without
    offsets, is as in `groups_on`. It returns none if we may not list groups. The caller sets a time-out.
    """
    found = await _of_each(client, besides, middles_of)
    return {topic: group for group, its in (found or {}).items() for topic in its}


async def writers(client: Any, output_id: str, besides: Collection[str]) -> frozenset[str]:
    """Return the groups, without those in `besides`, whose workers have written to the output of that id.

    By the notes of their offsets. Which groups are asked, and which count as without offsets, is as in `groups_on`. It
    returns none if we may not list groups. The caller sets a time-out.
    """
    found = await _of_each(client, besides, partial(inputs_of, output_id=output_id))
    return frozenset(group for group, topics in (found or {}).items() if topics)


async def _of_each(
    client: Any,
    besides: Collection[str],
    ask: Callable[[Any, str], Awaitable[frozenset[str]]],
) -> dict[str, frozenset[str]] | None:
    """Return the topics that `ask` returns for each group; none for one that we may not ask. None if none is listed."""
    try:
        listed = await _listed(client)
    except (ClusterAuthorizationFailedError, IncompatibleBrokerVersion):
        # The second is the error of an embedded broker.
        return None
    asked_of = sorted(listed - set(besides))[:GROUPS_ASKED_MAX]
    permits = asyncio.Semaphore(AT_ONCE)

    async def its_topics(group: str) -> frozenset[str]:
        async with permits:
            try:
                return await ask(client, group)
            except (GroupAuthorizationFailedError, InvalidGroupIdError):  # the name "" is one
                return frozenset()

    found = await asyncio.gather(*map(its_topics, asked_of))
    return dict(zip(asked_of, found, strict=True))


async def _listed(client: Any) -> set[str]:
    """Return the names of the groups: each broker lists those whose coordinator it is."""

    async def of(node: int) -> set[str]:
        async def ask() -> set[str]:
            response = await client.send(node, ListGroupsRequest())
            raise_for(response.error_code)
            return {name for name, *_ in response.groups}

        return await asked_again(client, ask, RETRY_S)

    nodes = [broker.nodeId for broker in client.cluster.brokers()]
    return set().union(*await asyncio.gather(*map(of, nodes)))


async def _sees_all_groups(client: Any) -> bool:
    """Return whether we have the right to list all groups: without it a broker lists those that we may describe.

    True with brokers before 2.8, which we do not ask for that.
    """
    found = await cluster_rights(client)
    return found == RIGHTS_UNKNOWN or bool(found >> DESCRIBE & 1)


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
                raise_for(code)

    try:
        await asked(client, group, request, taken)
    except _HAS_MEMBERS:
        raise DeliveryError(
            f"the group {group} has members: a worker joined meanwhile",
            remedy="stop all workers, and try again",
        ) from None
