"""How a member of the group is broken: its place, its assignments, its consumer, its end."""

import asyncio
from dataclasses import replace
from typing import Any
from unittest.mock import ANY, patch

from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from proof.mutants.mutant import Mutant
from proof.mutants.patches import replaced
from streamdedup.delivery.consume import InputReader
from streamdedup.events import EventBatch
from streamdedup.kafka import source
from streamdedup.kafka.client import assignor
from streamdedup.kafka.client.columns import ColumnarConsumer
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.decoding import PendingDecode
from streamdedup.kafka.source import NOWHERE, KafkaMember
from streamdedup.kafka.topics import Changes, Topology
from streamdedup.settings.meaning import Meaning
from streamdedup.worker.topic_watch import TopicWatch
from streamdedup.worker.worker import Worker

MUTANTS = (
    Mutant(
        "not-asked-before-fencing",
        "a worker that lost its place shuts nobody out (rule 10)",
        lambda: replaced(KafkaMember.confirms, _unasked),
        ("test_a_member_that_was_thrown_out_shuts_nobody_out",),
    ),
    Mutant(
        "stale-assignment-served",
        "events of an assignment that is over are dropped (rule 11)",
        lambda: replaced(KafkaMember.read, _read_in_any_epoch),
        ("test_a_stale_assignments_events_are_dropped",),
    ),
    Mutant(
        "member-not-kept-alive",
        "no state costs the membership (rule 11)",
        lambda: replaced(KafkaMember.poll, _poll_for_events_only),
        ("test_no_state_costs_the_membership[stopped]",),
    ),
    Mutant(
        "any-assignor",
        "partitions stay where their filters are: the sticky assignor (rule 11)",
        lambda: patch.object(assignor, "StickyPartitionAssignor", RoundRobinPartitionAssignor),
        ("test_partitions_stay_with_their_members",),
    ),
    Mutant(
        "one-name-for-all-meanings",
        "workers that take other keys share no group (rule 11)",
        lambda: patch.object(Meaning, "name", "streamdedup-0000000000000000"),
        ("test_two_workers_with_different_keys_lose_no_first_event[exactly_once]",),
    ),
    Mutant(
        "refused-in-a-hurry",
        "a group that refuses us is asked every few seconds (rule 11)",
        lambda: patch.multiple(source, REJOIN_S_MIN=0.0, REJOIN_S_MAX=0.01),
        ("test_a_sleeper_waits_for_a_group_that_has_changed",),
    ),
    Mutant(
        "offset-chosen-by-the-client",
        "the consumer chooses no offset (rule 12)",
        lambda: patch.object(source, "ColumnarConsumer", _at_the_earliest),
        ("test_an_input_trimmed_under_a_running_worker_is_no_jump",),
    ),
    Mutant(
        "topic-ids-not-looked-at",
        "a topic that was made again under a running worker is noticed (rule 12)",
        lambda: replaced(TopicWatch._look, _look_at_names),
        ("test_a_topic_that_was_made_again_ends_the_worker",),
    ),
    Mutant(
        "drain-waits-for-the-disk",
        "a shutdown ends within `drain_s` (rule 17)",
        lambda: replaced(Worker._shut_down, _shut_down_at_leisure),
        ("test_a_disk_that_hangs_does_not_hold_up_the_shutdown",),
    ),
    Mutant(
        "drain-waits-for-the-interval",
        "a drain commits what is in hand at once (rule 17)",
        lambda: replaced(InputReader.read_until, _read_to_the_end),
        ("test_a_drain_does_not_wait_for_the_commit_interval",),
    ),
)

HOURS_S = 100_000.0

_read, _poll = KafkaMember.read, KafkaMember.poll
_read_until, _shut_down = InputReader.read_until, Worker._shut_down
_look = TopicWatch._look


async def _unasked(_self: KafkaMember, _epoch: int) -> bool:
    return True


async def _read_in_any_epoch(
    self: KafkaMember, where: InputPartition, _epoch: int, *more: Any
) -> EventBatch | PendingDecode | None:
    return await _read(self, where, ANY, *more)


async def _poll_for_events_only(
    self: KafkaMember, where: TopicPartition, wait_s: float, *more: Any
) -> EventBatch | PendingDecode | None:
    if where == NOWHERE:
        await asyncio.sleep(wait_s)
        return None
    return await _poll(self, where, wait_s, *more)


def _at_the_earliest(**given: Any) -> ColumnarConsumer:
    return ColumnarConsumer(**{**given, "auto_offset_reset": "earliest"})


async def _look_at_names(self: TopicWatch) -> None:
    changed = self._cluster.changed

    async def missing(known: Topology) -> Changes:
        return replace(await changed(known), remade=())

    with patch.object(self._cluster, "changed", missing):
        await _look(self)


async def _shut_down_at_leisure(self: Worker, ends_at: float) -> None:
    await _shut_down(self, ends_at + HOURS_S)


async def _read_to_the_end(
    self: InputReader, ends_at: float, events_max: int, _leaving: asyncio.Event
) -> EventBatch | None:
    return await _read_until(self, ends_at, events_max, asyncio.Event())
