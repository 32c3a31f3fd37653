"""End an empty transaction. The brokers write its markers, which also end a transaction whose markers they have lost.

The three requests are those that aiokafka sends around what is written. We rely on these private names of aiokafka's
producer: `_txn_manager`, None without transactions, with `producer_id` and `producer_epoch`.
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import ConcurrentTransactions
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)

from streamdedup.kafka.client.connection import NotYetError, asked_again, raise_for

RETRY_S = 0.05


def producer_id(producer: Any) -> int:
    """Return the id in each record batch of `producer`, which is started; -1 if it sends none."""
    identity = producer._txn_manager
    return -1 if identity is None else int(identity.producer_id)


async def end_empty(
    producer: Any,
    transactional_id: str,
    partitions: Mapping[str, Collection[int]],
    group: str,
    *,
    commit: bool,
) -> None:
    """End a transaction of `producer` that writes nothing to `partitions`, by topic, and to the offsets of `group`.

    None may be under way. This waits for the coordinator, so the caller sets a time-out.
    """
    client, identity = producer.client, producer._txn_manager
    who = (transactional_id, identity.producer_id, identity.producer_epoch)

    async def ask(request: Any) -> None:
        node = await client.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)
        response = await client.send(node, request, group=ConnectionGroup.COORDINATION)
        by_partition = [code for _, codes in getattr(response, "errors", ()) for _, code in codes]
        for code in [getattr(response, "error_code", 0), *by_partition]:
            if code == ConcurrentTransactions.errno:
                raise NotYetError
            raise_for(code)

    written = [(topic, list(its)) for topic, its in partitions.items()]
    for request in (
        *([AddPartitionsToTxnRequest(*who, written)] if written else []),
        AddOffsetsToTxnRequest(*who, group),
        EndTxnRequest(*who, commit),
    ):
        await asked_again(client, partial(ask, request), RETRY_S)
