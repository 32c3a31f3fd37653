"""Deletes single committed offsets of a group (OffsetDelete, Kafka 2.4), which neither client here can do."""

import asyncio
from collections.abc import Collection

from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Schema, String
from typing_extensions import override

from tests.broker.base import DEADLINE_S

RETRY_S = 0.1


class _OffsetDeleteResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 47
    API_VERSION = 0
    SCHEMA = Schema(
        ("error_code", Int16),
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("name", String("utf-8")),
                ("partitions", Array(("partition", Int32), ("error_code", Int16))),
            ),
        ),
    )


class _OffsetDeleteRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = 47
    API_VERSION = 0
    RESPONSE_TYPE = _OffsetDeleteResponse
    SCHEMA = Schema(
        ("group_id", String("utf-8")),
        (
            "topics",
            Array(("name", String("utf-8")), ("partitions", Array(Int32))),
        ),
    )


class _OffsetDelete(Request[_OffsetDeleteRequest]):  # type: ignore[misc]
    API_KEY = 47

    def __init__(self, group: str, topic: str, partitions: Collection[int]) -> None:
        self._group, self._topic, self._partitions = group, topic, partitions

    @override
    def build(self, request: type[_OffsetDeleteRequest]) -> _OffsetDeleteRequest:
        return request(self._group, [(self._topic, list(self._partitions))])


def delete_offsets(bootstrap: str, group: str, topic: str, partitions: Collection[int]) -> None:
    """Delete the group's committed offsets of those partitions, once the group lets go of the topic."""
    asyncio.run(_delete(bootstrap, group, topic, partitions))


async def _delete(bootstrap: str, group: str, topic: str, partitions: Collection[int]) -> None:
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not await _deleted(client, _OffsetDelete(group, topic, partitions), group):
                await asyncio.sleep(RETRY_S)
    finally:
        await client.close()


async def _deleted(client: AIOKafkaClient, request: _OffsetDelete, group: str) -> bool:
    node = await client.coordinator_lookup(CoordinationType.GROUP, group)
    answer = await client.send(node, request, group=ConnectionGroup.COORDINATION)
    codes = [code for _topic, rows in answer.topics for _partition, code in rows]
    return not answer.error_code and not any(codes)
