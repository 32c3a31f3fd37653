"""The brokers as they describe themselves: requests, features, racks, settings; and whether they check any rights."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aiokafka.client import CoordinationType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaError,
    SecurityDisabled,
    TransactionalIdAuthorizationFailed,
    for_code,
)
from aiokafka.protocol.admin import DescribeAclsRequest

from streamdedup.kafka.broker_settings import settings_of
from streamdedup.kafka.client.protocol import ApiVersions, TopicsWithIds, features_in
from streamdedup.kafka.topics import RIGHTS_UNKNOWN

ANSWER_S_MAX = 8.0  # of one broker: the others are reported without it
# By which request (API key, version) a version of Kafka is known; the newest first. Where a version is left out, no
# request that we could ask for tells it from the one before.
_SINCE = (
    ("4.1", 1, 18),
    ("4.0", 69, 1),
    ("3.9", 1, 17),
    ("3.7", 1, 16),
    ("3.5", 1, 15),
    ("3.1", 1, 13),
    ("3.0", 65, 0),
    ("2.8", 61, 0),
    ("2.7", 1, 12),
    ("2.5", 9, 7),
)
OLDEST = "before 2.5"
_ANY_ACL = (1, None, 1, None, None, 1, 1)  # each code 1 is Kafka's "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One broker.

    `since` is the version of Kafka that first took the newest request that it takes, or OLDEST. `features` are those
    that the cluster has in force, with their levels; None if it reports none. `settings` are its own; None if it does
    not report them to us. All three are None if it does not answer; `failure` then has the name of the error.
    """

    node: int
    address: str
    rack: str | None = None
    since: str | None = None
    features: Mapping[str, int] | None = None
    settings: Mapping[str, str] | None = None
    failure: str | None = None

    def number(self, setting: str) -> int | None:
        """Return an integer setting; None if it is not known."""
        value = (self.settings or {}).get(setting)
        return None if value is None else int(value)


async def brokers(client: Any) -> list[Broker]:
    """Return all brokers, by their ids. One that does not answer in ANSWER_S_MAX is among them, with its failure."""
    known = sorted(client.cluster.brokers(), key=lambda broker: broker.nodeId)
    return list(await asyncio.gather(*(_described(client, broker) for broker in known)))


async def _described(client: Any, known: Any) -> Broker:
    base = Broker(
        node=known.nodeId, address=f"{known.host}:{known.port}", rack=getattr(known, "rack", None)
    )
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            answer = await client.send(known.nodeId, ApiVersions())
            settings = await settings_of(client, known.nodeId)
    except (IncompatibleBrokerVersion, NotImplementedError):  # before 2.4
        return replace(base, since=OLDEST)
    except (KafkaError, OSError) as error:  # TimeoutError is an OSError
        return replace(base, failure=type(error).__name__)
    newest = {api: most for api, _least, most, _tags in answer.api_versions}
    return replace(base, since=since(newest), features=features_in(answer), settings=settings)


def since(newest: Mapping[int, int]) -> str:
    """Return from which version of Kafka on a broker takes these requests: API keys, with their newest versions."""
    return next((name for name, api, least in _SINCE if newest.get(api, -1) >= least), OLDEST)


async def cluster_rights(client: Any) -> int:
    """Return our rights on the cluster, a bit for each; RIGHTS_UNKNOWN if the broker does not report rights."""
    try:
        response = await client.send(
            client.get_random_node(), TopicsWithIds([], cluster_rights=True)
        )
    except NotImplementedError:  # brokers before 2.8
        return RIGHTS_UNKNOWN
    return int(response.cluster_authorized_operations)


async def checks_rights(client: Any) -> bool | None:
    """Return whether the brokers check rights at all; None if that is not known.

    Without an authorizer, they answer a question for access rules with an error of its own.
    """
    try:
        response = await client.send(client.get_random_node(), DescribeAclsRequest(*_ANY_ACL))
    except (KafkaError, IncompatibleBrokerVersion, NotImplementedError):
        return None
    error = for_code(response.error_code)
    if error is SecurityDisabled:
        return False
    return True if error is ClusterAuthorizationFailedError or not response.error_code else None


async def may_see_transactions(client: Any, transactional_id: str) -> bool:
    """Return whether we may see this transactional id: whoever may not has no right Write on it either.

    The broker makes its own topic of transactions when it is first asked for one.
    """
    try:
        await client.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)
    except TransactionalIdAuthorizationFailed:
        return False
    except KafkaError as error:
        if not error.retriable:
            raise
    return True
