"""Add a group's offsets to a producer's transaction, as one member of the group in one generation (KIP-447).

aiokafka does that without member and generation, so that the group cannot fence it. The two requests of this module
take the place of its `send_offsets_to_transaction`; the rest of the transaction is aiokafka's. It must have nothing
under way: call this once all that was sent is acknowledged.

We rely on these private names of aiokafka's producer: `_txn_manager`, with `producer_id`, `producer_epoch`,
`is_in_transaction()` and `consumer_group_added(group)`, after which it ends also a transaction that has only offsets.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import ConcurrentTransactions, IllegalOperation, ProducerFenced
from aiokafka.protocol.transaction import AddOffsetsToTxnRequest

from streamdedup.kafka.client.connection import AWAY, LOADING, MOVED, asked_again, raise_for
from streamdedup.kafka.client.protocol import FencedOffsetCommit
from streamdedup.kafka.partitions import InputPartition

RETRY_S = 0.02
FENCED = {47, 90}  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED: aiokafka has one error for both
STALE = {
    22: "ILLEGAL_GENERATION",
    25: "UNKNOWN_MEMBER_ID",
    27: "REBALANCE_IN_PROGRESS",
    82: "FENCED_INSTANCE_ID",
}


class FencedOffsets:
    """Adds offsets to the transactions of `producer`, which is started, and knows the coordinators to ask.

    A request is repeated only if a coordinator has answered that it did nothing. One whose answer is lost may still
    arrive within the next transaction, so its error is raised.
    """

    def __init__(self, producer: Any, transactional_id: str) -> None:
        self._producer, self._transactional_id = producer, transactional_id
        self._nodes: dict[tuple[Any, str], int] = {}

    async def add(
        self,
        group: str,
        member: tuple[int, str, str | None],
        offsets: Mapping[InputPartition, tuple[int, str]],
    ) -> str | None:
        """Add the group's offsets, (topic, partition) -> (offset, metadata); return why the group refuses the member.

        `member`: generation, member id, instance id. Return None if the group has taken all of them, and else the name
        of its error; it has taken none then. ProducerFenced if another producer has our transactional id. This waits
        for coordinators that load or move, so the caller sets a time-out.
        """
        identity = self._producer._txn_manager
        if not identity.is_in_transaction():
            raise IllegalOperation("offsets can only be added within a transaction")
        who = (self._transactional_id, identity.producer_id, identity.producer_epoch)
        transactions = (CoordinationType.TRANSACTION, self._transactional_id)
        for code in await self._asked(*transactions, AddOffsetsToTxnRequest(*who, group)):
            _raise_for(code)
        identity.consumer_group_added(group)
        request = FencedOffsetCommit(who, group, member, offsets)
        codes = await self._asked(CoordinationType.GROUP, group, request)
        if stale := codes & STALE.keys():
            return STALE[min(stale)]
        for code in codes:
            _raise_for(code)
        return None

    async def _asked(self, kind: Any, key: str, request: Any) -> set[int]:
        """Return the error codes in the answer of that coordinator, once it can give one."""
        while True:
            node = await self._coordinator(kind, key)
            response = await self._producer.client.send(
                node, request, group=ConnectionGroup.COORDINATION
            )
            codes = {getattr(response, "error_code", 0)} | {
                row[1] for _topic, rows, *_ in getattr(response, "topics", ()) for row in rows
            }
            if codes & {AWAY, MOVED}:
                del self._nodes[kind, key]
            elif not codes & {LOADING, ConcurrentTransactions.errno}:
                return codes
            await asyncio.sleep(RETRY_S)

    async def _coordinator(self, kind: Any, key: str) -> int:
        if (kind, key) not in self._nodes:  # to look for it changes nothing, so it may be repeated
            client = self._producer.client
            look_up = partial(client.coordinator_lookup, kind, key)
            self._nodes[kind, key] = await asked_again(client, look_up, RETRY_S)
        return self._nodes[kind, key]


def _raise_for(code: int) -> None:
    if code in FENCED:
        raise ProducerFenced
    raise_for(code)
