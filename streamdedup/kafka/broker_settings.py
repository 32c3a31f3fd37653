"""Settings of the brokers themselves, if we may read them: that takes the right DescribeConfigs on the cluster."""

import asyncio
from typing import Any

from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import DescribeConfigsRequest

BROKER_RESOURCE = 4
TRANSACTION_MS_MAX = "transaction.max.timeout.ms"
ANSWER_S_MAX = 10.0


async def transaction_ms_max(client: Any) -> int | None:
    """Return the longest time-out of a transaction, in ms, that all brokers accept; None if no broker reports it."""
    nodes = [broker.nodeId for broker in client.cluster.brokers()]
    found = await asyncio.gather(*(_number(client, node, TRANSACTION_MS_MAX) for node in nodes))
    return min((value for value in found if value is not None), default=None)


async def _number(client: Any, node: int, name: str) -> int | None:
    """Return a broker's setting; None if it does not answer, or not us: it then refuses our value itself, later."""
    request = DescribeConfigsRequest([(BROKER_RESOURCE, str(node), [name])], False)
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            response = await client.send(node, request)
    except (KafkaError, OSError, NotImplementedError):  # TimeoutError is an OSError
        return None
    for code, _message, _type, _name, entries in response.resources:
        for entry in entries if code == 0 else ():
            if entry[0] == name and entry[1] is not None:
                return int(entry[1])
    return None
