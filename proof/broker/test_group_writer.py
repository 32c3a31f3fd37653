"""What the copying stage builds on, claimed of a real broker and of the one in memory alike, through the same seam."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import ProducerFenced

from streamdedup.errors import ConfigError
from streamdedup.events import EventBatch
from streamdedup.kafka.base import Cluster, GroupWriter, Membership, Source
from streamdedup.kafka.group_sink import StaleGenerationError
from streamdedup.kafka.offsets import Note, UndecidedError
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.records import Record
from streamdedup.kafka.sink import RefusedError
from streamdedup.kafka.topics import DELETE, READ, Topic
from streamdedup.testing.writer import MemoryProducer
from tests.broker.base import DEADLINE_S
from tests.broker.labs import Lab, MemoryLab
from tests.broker.needs import AHEAD
from tests.broker.test_cluster import (
    ASSIGNOR,
    BYTES_MAX,
    events_of,
    record,
    until,
)
from tests.broker.topics import unique_name

INPUTS, OUTPUTS = 3, 4  # partitions
TIMEOUT_MS = 10_000
NOTE = Note(cluster_id="cluster", input_id="input", output_id="output", label=7)
OFFSETS = {0: (5, NOTE.encode()), 2: (7, NOTE.encode())}


class Stage:
    """An input, an output, a group of its own, and a cluster to ask."""

    def __init__(self, lab: Lab, cluster: Cluster, options: KafkaOptions) -> None:
        self.lab, self.cluster, self.options = lab, cluster, options
        self.group = unique_name("copying")
        self.source, self.output = lab.create(INPUTS), lab.create(OUTPUTS)
        self.fence = unique_name("fence")
        self._writers: list[GroupWriter] = []

    async def writer(self, timeout_ms: int = TIMEOUT_MS) -> GroupWriter:
        """A new one, that has fenced those before it."""
        writer = self.cluster.group_writer(
            self.fence, SinkOptions(topic=self.output), timeout_ms=timeout_ms
        )
        self._writers.append(writer)
        await writer.start()
        return writer

    @asynccontextmanager
    async def member(self, cluster: Cluster | None = None) -> AsyncIterator[Source]:
        """A member of the group that has partitions."""
        member = (cluster or self.cluster).sources([self.source], ASSIGNOR, group=self.group)
        source = Source(member, self.source)
        await source.start()
        try:
            await until(lambda: source.assigned)
            yield source
        finally:
            await source.stop(DEADLINE_S)

    async def send(self, writer: GroupWriter, keys: Mapping[int, bytes]) -> None:
        """Begin, and send an event to each of these partitions; returns once they are there."""
        await writer.begin()
        for partition, key in keys.items():
            await self.append(writer, partition, record(key))
        await writer.settle()

    async def append(self, writer: GroupWriter, partition: int, *records: Record) -> None:
        """Send events of these records to `partition`."""
        rows = np.arange(len(records))
        await writer.copy(self.output, partition, events_of(*records), rows, BYTES_MAX)

    async def commit(self, writer: GroupWriter, membership: Membership | None) -> None:
        """Commit what was sent together with OFFSETS."""
        assert membership is not None
        async with asyncio.timeout(DEADLINE_S):
            offsets = {InputPartition(self.source, p): at for p, at in OFFSETS.items()}
            await writer.commit(self.group, offsets, membership)

    async def keys(self) -> dict[int, list[bytes | None]]:
        """The keys of the output's committed events by partition, once all are decided."""
        return {p: await self._keys_of(p) for p in range(OUTPUTS)}

    async def committed(self) -> dict[int, int]:
        """The group's committed offsets, once they are decided."""
        found: dict[int, int] = {}

        async def decided() -> bool:
            try:
                committed = await self.cluster.committed_all(self.group, self.source, range(INPUTS))
            except UndecidedError:
                return False
            found.update({partition: one.offset for partition, one in committed.items()})
            assert all(one.note == NOTE for one in committed.values())
            return True

        await until(decided)
        return found

    async def close(self) -> None:
        """Let go of all writers."""
        for writer in self._writers:
            await writer.drop()

    async def _keys_of(self, partition: int) -> list[bytes | None]:
        async def decided() -> bool:
            end = await self.cluster.end_offset(self.output, partition)
            return await self.cluster.stable_offset(self.output, partition) == end

        await until(decided)
        end = await self.cluster.end_offset(self.output, partition)
        batches = self.cluster.committed_events(self.output, partition, 0, end, stall_s=DEADLINE_S)
        return [key for batch in [one async for one in batches] for key in batch.keys]


class StoppedError(Exception):
    """Raised in place of the end of a transaction."""


async def _stopped(*_: object, **__: object) -> None:
    raise StoppedError


NOTHING: dict[int, list[bytes | None]] = {partition: [] for partition in range(OUTPUTS)}


class Claims:
    """Claimed of every cluster; `lab` is what they differ in."""

    @pytest.fixture
    async def stage(self, lab: Lab) -> AsyncIterator[Stage]:
        """Topics, and a cluster that is connected."""
        options = KafkaOptions(
            bootstrap_servers=lab.bootstrap,
            group_id=unique_name("group"),
            consumer={"session_timeout_ms": 30_000, "heartbeat_interval_ms": 100},
        )
        async with lab.connect(options) as cluster:
            stage = Stage(lab, cluster, options)
            yield stage
            await stage.close()

    async def test_copies_and_offsets_of_several_partitions_are_committed_at_once(
        self, stage: Stage
    ) -> None:
        """In one transaction, and again in the next; an abort between leaves no trace of either."""
        async with stage.member() as source:
            writer = await stage.writer()
            assert writer.producer_id >= 0
            assert writer.transaction_s_max < TIMEOUT_MS / 1000
            await stage.send(writer, {0: b"a", 3: b"b"})
            assert await stage.committed() == {}
            await writer.abort()
            await stage.send(writer, {0: b"c", 1: b"d"})
            await stage.commit(writer, source.membership)
            assert await stage.committed() == {0: 5, 2: 7}
            await stage.send(writer, {1: b"e"})
            await stage.commit(writer, source.membership)
            assert await stage.keys() == {0: [b"c"], 1: [b"d", b"e"], 2: [], 3: []}
            assert await stage.cluster.topics_of(stage.group) == {stage.source}

    async def test_offsets_alone_are_a_transaction(self, stage: Stage) -> None:
        """As where everything that was read went nowhere; and one of nothing at all can be aborted."""
        async with stage.member() as source:
            writer = await stage.writer()
            await writer.begin()
            await writer.settle()
            await writer.abort()
            await writer.begin()
            await stage.commit(writer, source.membership)
            assert await stage.committed() == {0: 5, 2: 7}

    async def test_events_are_copied_byte_for_byte(self, stage: Stage) -> None:
        """To any partition, in order; nulls, empty bytes, headers and timestamps as they were."""
        records: list[Record] = [
            record(None, b"value"),
            Record.of(1_750_000_000_001, b"key", None, (("name", b"cell"), ("name", None))),
            Record.of(1_750_000_000_002, b"", b""),
            record(b"last"),
        ]
        async with stage.member() as source:
            writer = await stage.writer()
            await writer.begin()
            await stage.append(writer, 0, *records)
            await writer.settle()
            await stage.commit(writer, source.membership)
            await stage.keys()
            batches = stage.cluster.committed_events(stage.output, 0, 0, 4, stall_s=DEADLINE_S)
            read = [batch async for batch in batches]
            await writer.begin()
            for batch in read:
                places = batch.offsets % 2  # the even ones to partition 1, the others to 2
                for partition in (1, 2):
                    rows = np.flatnonzero(places == partition - 1)
                    await writer.copy(stage.output, partition, batch, rows, BYTES_MAX)
            await writer.settle()
            await stage.commit(writer, source.membership)
        await stage.keys()
        for partition in (1, 2):
            batches = stage.cluster.committed_events(
                stage.output, partition, 0, 2, stall_s=DEADLINE_S
            )
            found = [row for batch in [one async for one in batches] for row in _records(batch)]
            assert found == records[partition - 1 :: 2]

    async def test_a_member_of_an_earlier_generation_commits_nothing(self, stage: Stage) -> None:
        """Neither copies nor offsets; the transaction is still open, and once it is aborted the writer goes on."""
        async with stage.member() as source:
            before, writer = source.membership, await stage.writer()
            assert before is not None
            await stage.send(writer, {0: b"stale"})
            async with stage.member():  # its join is another generation
                await until(lambda: source.membership not in (before, None))
                with pytest.raises(StaleGenerationError) as caught:
                    await stage.commit(writer, before)
                assert caught.value.reason == "ILLEGAL_GENERATION"
                await writer.abort()
                assert (await stage.committed(), await stage.keys()) == ({}, NOTHING)
                await stage.send(writer, {0: b"now"})
                await stage.commit(writer, source.membership)
                assert await stage.committed() == {0: 5, 2: 7}
        assert (await stage.keys())[0] == [b"now"]

    async def test_one_that_has_left_commits_nothing(self, stage: Stage) -> None:
        """Nor does one that never was a member."""
        async with stage.member() as source:
            before = source.membership
        assert before is not None
        writer = await stage.writer()
        await stage.send(writer, {0: b"stale"})
        with pytest.raises(StaleGenerationError):
            await stage.commit(writer, before)
        await writer.abort()
        stranger = Membership(member_id="nobody", generation=1, instance_id=None)
        await stage.send(writer, {0: b"strange"})
        with pytest.raises(StaleGenerationError):
            await stage.commit(writer, stranger)
        await writer.give_up()
        assert (await stage.committed(), await stage.keys()) == ({}, NOTHING)

    async def test_a_membership_goes_with_its_assignment(self, stage: Stage) -> None:
        """It is withdrawn and made anew with each rebalance, and every member has its own."""
        seen: set[tuple[bool, bool]] = set()

        async def watch(source: Source) -> None:
            while True:
                seen.add((source.assigned is None, source.membership is None))
                await asyncio.sleep(0)

        async with stage.member() as source:
            watching = asyncio.create_task(watch(source))
            first, epoch = source.membership, source.epoch
            assert first is not None
            assert first.instance_id is None
            async with stage.member() as other:
                await until(lambda: source.epoch >= epoch + 2 and source.assigned)
                second = source.membership
                assert second is not None
                assert other.membership is not None
                assert second.generation > first.generation
                assert second.generation == other.membership.generation
                assert second.member_id == first.member_id != other.membership.member_id
            epoch = source.epoch
            await until(lambda: source.epoch >= epoch + 2)
            watching.cancel()
        assert seen == {(True, True), (False, False)}

    async def test_a_second_writer_of_its_name_fences_the_first(self, stage: Stage) -> None:
        """What that had sent is aborted; its commit is refused, also with a membership that holds."""
        async with stage.member() as source:
            first = await stage.writer()
            await stage.send(first, {0: b"zombie", 2: b"zombie"})
            second = await stage.writer()
            with pytest.raises(ProducerFenced):
                await stage.commit(first, source.membership)
            await stage.send(second, {2: b"a"})
            await stage.commit(second, source.membership)
            assert await stage.committed() == {0: 5, 2: 7}
        assert await stage.keys() == {**NOTHING, 2: [b"a"]}

    async def test_a_writer_may_start_again(self, stage: Stage) -> None:
        """It drops and aborts what it had, as after a doubt."""
        async with stage.member() as source:
            writer = await stage.writer()
            await stage.send(writer, {1: b"gone"})
            await writer.start()
            await stage.send(writer, {1: b"a"})
            await stage.commit(writer, source.membership)
        assert await stage.keys() == {**NOTHING, 1: [b"a"]}

    @pytest.mark.needs_broker(AHEAD)
    async def test_a_refused_record_is_named_and_the_rest_waited_for(self, stage: Stage) -> None:
        """By its topic; after another start the writer commits what is left."""
        ahead = Record.of(1 << 50, b"refused", b"value")
        async with stage.member() as source:
            writer = await stage.writer()
            await writer.begin()
            await stage.append(writer, 0, ahead)
            await stage.append(writer, 1, record(b"gone"))
            with pytest.raises(RefusedError) as refused:
                await writer.settle()
            assert refused.value.topic == stage.output
            assert refused.value.by_time
            assert await stage.cluster.end_offset(stage.output, 1) == 1
            await writer.start()
            await stage.send(writer, {0: b"a", 1: b"b"})
            await stage.commit(writer, source.membership)
        assert await stage.keys() == {0: [b"a"], 1: [b"b"], 2: [], 3: []}

    async def test_a_transaction_that_lasts_too_long_is_aborted(self, stage: Stage) -> None:
        """By the broker, which fences us then: so readers of the output do not wait for one that is stuck."""
        async with stage.member() as source:
            writer = await stage.writer(timeout_ms=1_000)
            await stage.send(writer, {0: b"late"})

            async def is_aborted() -> bool:
                return await stage.cluster.stable_offset(stage.output, 0) == 2

            await until(is_aborted)
            with pytest.raises(ProducerFenced):
                await stage.commit(writer, source.membership)
        assert (await stage.committed(), await stage.keys()) == ({}, NOTHING)

    async def test_offsets_in_an_open_transaction_are_undecided(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A question about one of them has no answer until it ends; they are not the group's before."""
        ask = stage.cluster.committed_all
        async with stage.member() as source:
            writer = await stage.writer()
            await stage.send(writer, {0: b"open"})
            with monkeypatch.context() as patched:
                patched.setattr(AIOKafkaProducer, "commit_transaction", _stopped)
                patched.setattr(MemoryProducer, "_end", _stopped)
                with pytest.raises(StoppedError):
                    await stage.commit(writer, source.membership)
            with pytest.raises(UndecidedError):
                await ask(stage.group, stage.source, range(INPUTS))
            assert await ask(stage.group, stage.source, [1]) == {}
            assert await stage.cluster.topics_of(stage.group) == frozenset()
            await writer.abort()
            assert await stage.committed() == {}

    async def test_a_static_member_is_fenced_by_the_next_of_its_name(self, stage: Stage) -> None:
        """That takes its place in the very generation: so the generation alone would fence nobody."""
        named = stage.options.model_copy(update={"group_instance_id": "one"})
        async with stage.lab.connect(named) as cluster:
            async with stage.member(cluster) as source:
                before = source.membership
            assert before is not None
            assert before.instance_id == "one"
            writer = await stage.writer()
            await stage.send(writer, {0: b"stale"})
            async with stage.member(cluster) as again:
                assert again.membership is not None
                assert again.membership.generation == before.generation
                with pytest.raises(StaleGenerationError):
                    await stage.commit(writer, before)
                await writer.abort()
                await stage.send(writer, {0: b"now"})
                await stage.commit(writer, again.membership)
        assert await stage.keys() == {**NOTHING, 0: [b"now"]}

    async def test_other_groups_with_offsets_on_a_topic_are_found(self, stage: Stage) -> None:
        """Except those that are ours; one on another topic is none."""
        cluster, other = stage.cluster, unique_name("other")
        ours = frozenset([stage.group])
        assert await cluster.groups_on(stage.source, []) == frozenset()
        async with stage.member() as source:
            await source.commit(1, 3, "")
            reader = Source(cluster.sources([stage.source], ASSIGNOR, group=other), stage.source)
            await reader.start()
            await until(lambda: reader.assigned)
            await reader.commit(0, 1, "")
            assert await cluster.groups_on(stage.source, []) == ours | {other}
            assert await cluster.groups_on(stage.source, ours) == frozenset([other])
            assert await cluster.groups_on(stage.output, ours) == frozenset()
            await reader.stop(DEADLINE_S)
        assert await cluster.topics_of(other) == {stage.source}
        assert await cluster.topics_of(unique_name("nobody")) == frozenset()

    async def test_records_are_deleted_wherever_that_can_be(self, stage: Stage) -> None:
        """A partition that fails is named, and does not keep the others; nothing above the offset is deleted."""
        cluster, output = stage.cluster, stage.output
        for partition in range(3):
            stage.lab.produce(output, partition, [b"a", b"b", b"c"])
        failed = await cluster.delete_records(output, {0: 2, 1: 9, 2: 3, 3: 0, 17: 1})
        names = {1: "OffsetOutOfRangeError"}
        assert {p: failed[p] for p in names} == names
        assert set(failed) == {1, 17}
        assert await cluster.first_offsets(output, range(OUTPUTS)) == {0: 2, 1: 0, 2: 3, 3: 0}
        assert await cluster.delete_records(output, {0: 1}) == {}  # it is gone already
        assert await cluster.first_offset(output, 0) == 2
        assert await cluster.delete_records(output, {}) == {}
        with pytest.raises(ValueError, match="negative"):
            await cluster.delete_records(output, {0: -1})
        assert await cluster.first_offset(output, 0) == 2

    async def test_rights_that_nobody_took_are_there(self, stage: Stage) -> None:
        """Also on topics and groups that do not exist, as far as the broker reports them."""
        missing = unique_name("missing")
        found = await stage.cluster.describe([stage.output, missing])
        assert found[stage.output].may(DELETE)
        assert missing not in found.topics
        assert Topic(missing, None, 1, 1, found.rights_on(missing)).may(DELETE)
        assert await stage.cluster.may_join(unique_name("group"))

    async def test_a_topic_is_created_once_with_its_settings(self, stage: Stage) -> None:
        """The second time, it is there already; what no broker takes is refused by its name."""
        name, settings = unique_name("middle"), {"retention.ms": "-1", "segment.bytes": "1048576"}
        wanted = Topic(name, None, 5, 1, settings=settings)
        assert await stage.cluster.create([wanted]) == [name]

        async def is_there() -> bool:
            return name in (await stage.cluster.describe([name])).topics

        await until(is_there)
        assert await stage.cluster.create([Topic(name, None, 3, 1)]) == []
        topic = (await stage.cluster.describe([name]))[name]
        assert topic.partitions == 5
        assert {key: topic.settings[key] for key in settings} == settings
        refused, suits = Topic(unique_name("refused"), None, 1, 99), unique_name("suits")
        for both in ([Topic(suits, None, 1, 1), refused], [refused, Topic(suits, None, 1, 1)]):
            with pytest.raises(ConfigError, match=refused.name):
                await stage.cluster.create(both)
        assert not (await stage.cluster.describe([suits, refused.name])).topics


def _records(batch: EventBatch) -> Iterator[Record]:
    for row in range(len(batch)):
        stamped = int(batch.timestamps[row])
        yield Record.of(stamped, batch.keys[row], batch.values[row], batch.headers[row])


class TestMemory(Claims):
    """The broker in memory."""

    @pytest.fixture
    def lab(self) -> Lab:
        """In memory."""
        return MemoryLab()

    async def test_what_the_broker_does_not_tell_is_not_known(self, stage: Stage) -> None:
        """Who reads a topic, if we may not list groups; and a right that is missing keeps every record."""
        assert isinstance(stage.lab, MemoryLab)
        broker = stage.lab.broker
        broker.lists_groups = False
        assert await stage.cluster.groups_on(stage.source, []) is None
        known = broker.topics[stage.output]
        known.topic = replace(known.topic, rights=1 << READ)
        stage.lab.produce(stage.output, 0, [b"a"])
        failed = await stage.cluster.delete_records(stage.output, {0: 1})
        assert failed == {0: "TopicAuthorizationFailedError"}
        assert await stage.cluster.first_offset(stage.output, 0) == 0


class TestKafka(Claims):
    """A real broker."""

    @pytest.fixture
    def lab(self, kafka_lab: Lab) -> Lab:
        """On the broker that all tests share."""
        return kafka_lab
