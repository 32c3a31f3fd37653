"""How the fence is broken: its name, what is asked after it, which topics and brokers are refused."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from proof.mutants.mutant import Mutant
from proof.mutants.patches import replaced
from streamdedup.delivery import fence as fence_module
from streamdedup.delivery import lost_markers
from streamdedup.delivery.fence import committed_offset, fence
from streamdedup.delivery.lifecycle import Delivery
from streamdedup.delivery.resume import PartitionState
from streamdedup.kafka.base import Cluster, Writer
from streamdedup.kafka.offsets import Committed, supports_stable_offsets
from streamdedup.kafka.options import SinkOptions
from streamdedup.kafka.sink import KafkaWriter
from streamdedup.kafka.topics import Topic, Topology, _misfits
from streamdedup.settings import Settings

MUTANTS = (
    Mutant(
        "id-by-process",
        "the fence is named after the output partition (rule 1)",
        lambda: patch.object(KafkaWriter, "transactional_id", property(lambda self: f"{id(self)}")),
        ("test_a_member_that_was_thrown_out_shuts_nobody_out",),
    ),
    Mutant(
        "folded-to-the-last-stable-offset",
        "a shard waits until all of the output is decided (rule 2)",
        lambda: replaced(fence, _below_the_undecided),
        ("test_what_is_undecided_in_the_output_is_waited_for",),
    ),
    Mutant(
        "offset-read-first",
        "the committed offset is read after the fence (rule 2)",
        lambda: replaced(fence, _offset_first),
        ("test_the_offset_is_read_behind_the_fence",),
    ),
    Mutant(
        "offset-read-undecided",
        "exactly once, the committed offset is read when no transaction on it is open (rules 2, 19)",
        lambda: replaced(committed_offset, _undecided),
        ("test_an_undecided_offset_of_the_group_is_waited_for",),
    ),
    Mutant(
        "lost-markers-left",
        "a fence finishes a transaction of ours whose markers the brokers lost (rule 2)",
        lambda: patch.object(fence_module, "finish_lost", _nothing_finished),
        ("test_it_ends_as_it_had_ended",),
    ),
    Mutant(
        "lost-markers-aborted",
        "what was committed, and its markers lost, is committed (rule 2)",
        lambda: patch.object(lost_markers, "_label", lambda *_: None),
        ("test_it_ends_as_it_had_ended",),
    ),
    Mutant(
        "lost-commit-remembered",
        "a filter that holds events of a commit that the brokers lost is dropped (rule 2)",
        lambda: patch.object(Delivery, "_forget_lost", lambda *_: None),
        ("test_what_the_next_one_ends_otherwise_is_forgotten",),
    ),
    Mutant(
        "compacted-output-taken",
        "a compacted output is refused (rule 13)",
        lambda: replaced(_misfits, _compacted_taken),
        ("test_what_does_not_fit_is_one_line",),
    ),
    Mutant(
        "checked-at-the-start-only",
        "the topics are checked at every fencing (rule 13)",
        lambda: patch.object(fence_module, "refuse_unsuited", lambda *_topics: None),
        ("test_an_output_that_came_to_be_compacted_is_refused_at_the_next_fencing",),
    ),
    Mutant(
        "at-least-once-not-fenced",
        "at least once, too, a former owner is fenced at the assignment (rule 18)",
        lambda: replaced(KafkaWriter._started, _started_without_a_fence),
        ("test_at_least_once_fences_once_at_the_assignment",),
    ),
    Mutant(
        "old-broker-taken",
        "exactly once needs a broker that knows stable offsets (rule 19)",
        lambda: replaced(supports_stable_offsets, _any_broker),
        ("test_an_old_broker_is_told_from_one_that_is_not_ready",),
    ),
)

_started = KafkaWriter._started


class _Decided:
    """A cluster whose logs end at the first event that is undecided."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def end_offset(self, topic: str, partition: int) -> int:
        return await self._cluster.stable_offset(topic, partition)


async def _below_the_undecided(
    settings: Settings, cluster: Cluster, writer: Writer, partition: int, **memory: Any
) -> tuple[Topology, PartitionState]:
    decided: Any = _Decided(cluster)
    return await fence(settings, decided, writer, partition, **memory)


async def _offset_first(
    settings: Settings, cluster: Cluster, writer: Writer, partition: int, **memory: Any
) -> tuple[Topology, PartitionState]:
    early = await committed_offset(settings, cluster, partition, 0)
    topology, found = await fence(settings, cluster, writer, partition, **memory)
    return topology, replace(found, committed=early)


async def _nothing_finished(*_: object) -> None:
    pass


async def _undecided(
    settings: Settings, cluster: Cluster, partition: int, _within_s: float
) -> Committed | None:
    group, source = settings.kafka.group_id, settings.source.topic
    found = await cluster.committed_all(group, source, [partition], stable=False)
    return found.get(partition)


def _compacted_taken(
    topology: Topology, source: Topic, sink: SinkOptions, _remembers: bool, is_middle: bool
) -> list[str]:
    cleared = sink.model_copy(update={"shadow": False})
    return _misfits(topology, source, cleared, remembers=False, is_middle=is_middle)


async def _started_without_a_fence(self: KafkaWriter, **identity: Any) -> Any:
    fences = not self._exactly_once and "transactional_id" in identity
    return await _started(self, **({"acks": "all"} if fences else identity))


async def _any_broker(client: Any, group: str, topic: str) -> bool:
    await supports_stable_offsets(client, group, topic)
    return True
