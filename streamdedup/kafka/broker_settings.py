"""Settings of the brokers themselves, if we may read them: that takes the right DescribeConfigs on the cluster."""

import asyncio
from collections.abc import Collection
from typing import Any

from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import DescribeConfigsRequest

BROKER_RESOURCE = 4
TRANSACTION_MS_MAX = "transaction.max.timeout.ms"
SESSION_MS_MIN, SESSION_MS_MAX = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
OFFSETS_KEPT_MINUTES = "offsets.retention.minutes"
OUR_CONCERN = (TRANSACTION_MS_MAX, SESSION_MS_MIN, SESSION_MS_MAX, OFFSETS_KEPT_MINUTES)
ANSWER_S_MAX = 10.0


async def transaction_ms_max(client: Any) -> int | None:
    """Return the longest time-out of a transaction, in ms, that all brokers accept; None if no broker reports it."""
    nodes = [broker.nodeId for broker in client.cluster.brokers()]
    asked = (settings_of(client, node, [TRANSACTION_MS_MAX]) for node in nodes)
    found = [(settings or {}).get(TRANSACTION_MS_MAX) for settings in await asyncio.gather(*asked)]
    return min((int(value) for value in found if value is not None), default=None)


async def settings_of(
    client: Any, node: int, names: Collection[str] = OUR_CONCERN
) -> dict[str, str] | None:
    """Return the settings `names` of a broker; None if it does not answer, or not us.

    A broker that refuses a value of ours says so itself, later.
    """
    request = DescribeConfigsRequest([(BROKER_RESOURCE, str(node), list(names))], False)
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            response = await client.send(node, request)
    except (KafkaError, OSError, NotImplementedError):  # TimeoutError is an OSError
        return None
    for code, _message, _type, _name, entries in response.resources:
        if code == 0:
            return {entry[0]: entry[1] for entry in entries if entry[0] in names and entry[1]}
    return None
