"""What the worker builds on, claimed of a real broker and of the one in memory alike, through the same seam."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import numpy as np
import pytest
from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError, ProducerFenced

from streamdedup.errors import DeliveryError
from streamdedup.events import EventBatch
from streamdedup.kafka.base import Cluster, Source, Writer
from streamdedup.kafka.log import TrimmedError
from streamdedup.kafka.offsets import Committed, Note, UndecidedError
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.partitions import LastWrite
from streamdedup.kafka.records.records import Record, batch_of
from streamdedup.kafka.sink import ForeignWriteError, KafkaWriter, RefusedError
from streamdedup.kafka.source import REJOIN_S_MAX
from streamdedup.kafka.topics import Changes, Topic, Topology
from tests.broker.base import DEADLINE_S
from tests.broker.labs import NOW_MS, PARTITIONS, Lab
from tests.broker.needs import AHEAD, TELLS_WRITERS
from tests.broker.topics import unique_name

SESSION_S = 30
BYTES_MAX = 1_000_000
ASSIGNOR, OTHER_ASSIGNOR = "one-meaning", "another-meaning"
NOTE = Note(cluster_id="cluster", input_id="input", output_id="output", label=7)


class Stage:
    """A partition of an input and an output, and a cluster to ask."""

    def __init__(self, lab: Lab, cluster: Cluster, options: KafkaOptions) -> None:
        self.lab, self.cluster, self.options = lab, cluster, options
        self.group = options.group_id
        self.source, self.output, self.partition = lab.source, lab.output, lab.partition()
        self.sink = SinkOptions(topic=self.output)
        self._writers: list[Writer] = []

    async def writer(self, *, exactly_once: bool = True) -> Writer:
        """A new one, that has fenced those before it."""
        writer = self.cluster.writer(self.sink, self.partition, exactly_once=exactly_once)
        self._writers.append(writer)
        await writer.fence()
        return writer

    async def send(self, writer: Writer, *keys: bytes) -> None:
        """Begin, and send events of those keys."""
        await writer.begin()
        await self.append(writer, *map(record, keys))

    async def append(self, writer: Writer, *records: Record, bytes_max: int = BYTES_MAX) -> None:
        """Send events of these records."""
        await writer.copy(self.output, events_of(*records), np.arange(len(records)), bytes_max)

    async def emit(self, writer: Writer, label: int, *keys: bytes, offset: int = 1) -> int:
        """A whole transaction; the label after it."""
        await self.send(writer, *keys)
        end = await writer.settle(label)
        assert end is not None, "nothing was sent"
        await writer.commit(self.source, offset, NOTE.encode(), self.group)
        return end + 1

    async def decided(self) -> int:
        """The output's end, once its last stable offset has reached it."""
        await until(self._is_decided)
        return await self.cluster.end_offset(self.output, self.partition)

    async def events(self, start: int = 0, stall_s: float = DEADLINE_S) -> list[EventBatch]:
        """The output's committed events from `start` on."""
        end = await self.cluster.end_offset(self.output, self.partition)
        batches = self.cluster.committed_events(
            self.output, self.partition, start, end, stall_s=stall_s
        )
        return [batch async for batch in batches]

    async def keys(self, start: int = 0) -> list[bytes | None]:
        """Their keys."""
        return [key for batch in await self.events(start) for key in batch.keys]

    @asynccontextmanager
    async def static(
        self, name: str, assignor: str = ASSIGNOR, session_s: int = SESSION_S
    ) -> AsyncIterator[Source]:
        """A member of that name, by a client of its own."""
        given = {**self.options.consumer, "session_timeout_ms": 1000 * session_s}
        options = self.options.model_copy(update={"group_instance_id": name, "consumer": given})
        async with (
            self.lab.connect(options) as cluster,
            member(cluster, self.source, assignor) as source,
        ):
            yield source

    async def close(self) -> None:
        """Let go of all writers."""
        for writer in self._writers:
            await writer.drop()

    async def _is_decided(self) -> bool:
        end = await self.cluster.end_offset(self.output, self.partition)
        return await self.cluster.stable_offset(self.output, self.partition) == end


def record(key: bytes | None, value: bytes | None = b"value") -> Record:
    """An event of that key."""
    return Record.of(NOW_MS, key, value)


def events_of(*records: Record) -> EventBatch:
    """Events that have these records."""
    return batch_of("made", 0, range(len(records)), records, len(records))


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition, which may be a coroutine's."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.02)


async def decided(stage: "Stage") -> Committed | None:
    """The committed offset, once the transaction on it has ended."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with suppress(UndecidedError):
                found = await stage.cluster.committed_all(
                    stage.group, stage.source, [stage.partition]
                )
                return found.get(stage.partition)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def member(cluster: Cluster, topic: str, assignor: str = ASSIGNOR) -> AsyncIterator[Source]:
    """A member of the group that has its partitions."""
    source = Source(cluster.sources([topic], assignor), topic)
    await source.start()
    try:
        await until(lambda: source.assigned)
        yield source
    finally:
        await source.stop(DEADLINE_S)


async def read(source: Source, partition: int, wanted: int) -> tuple[list[bytes | None], list[int]]:
    """Read so many events; their keys and offsets."""
    keys: list[bytes | None] = []
    offsets: list[int] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(keys) < wanted:
            batch = await source.read(partition, source.epoch, 0.2)
            if isinstance(batch, EventBatch):
                keys.extend(batch.keys)
                offsets.extend(batch.offsets.tolist())
    return keys, offsets


class Claims:
    """Claimed of every cluster; `lab` is what they differ in."""

    @pytest.fixture
    async def stage(self, lab: Lab) -> AsyncIterator[Stage]:
        """Topics, and a cluster that is connected."""
        options = KafkaOptions(
            bootstrap_servers=lab.bootstrap,
            group_id=unique_name("group"),
            consumer={"session_timeout_ms": 1000 * SESSION_S, "heartbeat_interval_ms": 100},
        )
        async with lab.connect(options) as cluster:
            stage = Stage(lab, cluster, options)
            yield stage
            await stage.close()

    async def test_what_is_committed_is_seen_and_its_marker_takes_an_offset(
        self, stage: Stage
    ) -> None:
        """Three events and a marker end at offset 4; the next transaction begins there."""
        writer = await stage.writer()
        assert await stage.emit(writer, 0, b"a", b"b", b"c") == 4
        assert await stage.decided() == 4
        assert await stage.emit(writer, 4, b"d") == 6
        assert await stage.decided() == 6
        assert await stage.keys() == [b"a", b"b", b"c", b"d"]
        assert await stage.keys(2) == [b"c", b"d"]

    async def test_what_is_aborted_is_not_seen_and_takes_offsets_all_the_same(
        self, stage: Stage
    ) -> None:
        """An aborted event and its marker stand between two that are committed."""
        writer = await stage.writer()
        await stage.emit(writer, 0, b"a")
        await stage.send(writer, b"gone")
        assert await writer.settle(2) == 3
        await writer.abort()
        assert await stage.decided() == 4
        assert await stage.emit(writer, 4, b"b") == 6
        await stage.decided()
        assert await stage.keys() == [b"a", b"b"]

    async def test_events_are_copied_byte_for_byte(self, stage: Stage) -> None:
        """Nulls, empty bytes, headers and timestamps come out as they went in."""
        records = [
            Record.of(NOW_MS, None, b"value"),
            Record.of(NOW_MS + 1, b"key", None, (("name", b"cell"), ("name", None))),
            Record.of(NOW_MS + 2, b"", b""),
        ]
        writer = await stage.writer()
        await writer.begin()
        await stage.append(writer, *records)
        await writer.settle(0)
        await writer.commit(stage.source, 1, "", stage.group)
        await stage.decided()
        found = [
            Record.of(
                int(batch.timestamps[row]), batch.keys[row], batch.values[row], batch.headers[row]
            )
            for batch in await stage.events()
            for row in range(len(batch))
        ]
        assert found == records

    async def test_many_batches_of_one_transaction_are_contiguous(self, stage: Stage) -> None:
        """What does not fit into one record batch goes out in several, one right behind the other."""
        writer = await stage.writer()
        await writer.begin()
        records = [record(b"%d" % n, b"v" * 200) for n in range(20)]
        await stage.append(writer, *records, bytes_max=1000)
        assert await writer.settle(0) == 20
        await writer.commit(stage.source, 1, "", stage.group)
        assert await stage.decided() == 21
        assert len(await stage.keys()) == 20

    async def test_nothing_sent_leaves_no_trace_in_the_output(self, stage: Stage) -> None:
        """A transaction of an offset alone writes no marker there."""
        writer = await stage.writer()
        await writer.begin()
        await stage.append(writer)
        assert await writer.settle(0) is None
        await writer.commit(stage.source, 5, "", stage.group)
        assert await stage.decided() == 0

    async def test_a_fenced_writer_is_refused_at_its_next_send(self, stage: Stage) -> None:
        """`begin` does not fail; what is sent then is refused, and is not in the log."""
        old = await stage.writer()
        await stage.emit(old, 0, b"a")
        await stage.writer()
        with pytest.raises(ProducerFenced):
            await stage.send(old, b"zombie")
            await old.settle(2)
        assert await stage.decided() == 2

    async def test_a_fence_settles_what_the_old_writer_left_open(self, stage: Stage) -> None:
        """Its open transaction is aborted before the fence is there, and its commit is refused."""
        old = await stage.writer()
        await stage.send(old, b"open")
        await old.settle(0)
        new = await stage.writer()
        assert await stage.cluster.end_offset(stage.output, stage.partition) == 2
        assert await stage.cluster.stable_offset(stage.output, stage.partition) == 2
        with pytest.raises(ProducerFenced):
            await old.commit(stage.source, 9, "", stage.group)
        await stage.emit(new, 2, b"a")
        await stage.decided()
        assert await stage.keys() == [b"a"]

    async def test_an_open_transaction_of_another_holds_the_stable_offset_back(
        self, stage: Stage
    ) -> None:
        """Events committed after it cannot be read until it ends; waiting for the decided end takes as long."""
        with stage.lab.open_transaction(stage.output, stage.partition):
            writer = await stage.writer()
            await stage.emit(writer, 1, b"a")
            await until(lambda: self._ends_at(stage, 3))
            assert await stage.cluster.stable_offset(stage.output, stage.partition) == 0
            with pytest.raises(TimeoutError):
                await stage.events(stall_s=0.5)
        assert await stage.decided() == 4
        assert await stage.keys() == [b"foreign", b"a"]

    async def test_an_open_transaction_on_the_input_holds_a_reader(self, stage: Stage) -> None:
        """At its first event, once all before it was read, and until it ends."""
        topic, partition = stage.source, stage.partition
        start = await stage.cluster.end_offset(topic, partition)
        async with member(stage.cluster, topic) as source:
            source.go_to(partition, start)
            stage.lab.produce(topic, partition, [b"a"])
            assert (await read(source, partition, 1))[0] == [b"a"]
            assert source.held_at(partition) is None
            with stage.lab.open_transaction(topic, partition):
                await until(lambda: self._is_held(source, partition))
                assert source.held_at(partition) == start + 1
            assert (await read(source, partition, 1))[0] == [b"foreign"]
            assert source.held_at(partition) is None

    async def _is_held(self, source: Source, partition: int) -> bool:
        assert await source.read(partition, source.epoch, 0.1) is None
        return source.held_at(partition) is not None

    async def test_the_first_offset_of_a_time_is_found(self, stage: Stage) -> None:
        """None where nothing is as young as that."""
        stage.lab.produce(stage.output, stage.partition, [b"a", b"b"])
        ask = partial(stage.cluster.offset_of_time, stage.output, stage.partition)
        assert (await ask(0), await ask(1 << 50)) == (0, None)

    async def test_the_longest_transaction_is_told_or_not(self, stage: Stage) -> None:
        """A real broker's default; the one in memory has no such limit."""
        assert await stage.cluster.transaction_ms_max() in (None, 900_000)

    async def _ends_at(self, stage: Stage, offset: int) -> bool:
        return await stage.cluster.end_offset(stage.output, stage.partition) == offset

    async def test_a_gap_before_our_events_is_a_foreign_write(self, stage: Stage) -> None:
        """The error has the expected offsets and the real ones; abort takes the events back."""
        writer = await stage.writer()
        stage.lab.produce(stage.output, stage.partition, [b"x", b"y"])
        await stage.send(writer, b"a")
        with pytest.raises(ForeignWriteError) as caught:
            await writer.settle(0)
        assert (caught.value.expected, caught.value.found) == (0, 2)
        await writer.abort()
        await stage.decided()
        assert await stage.keys() == [b"x", b"y"]

    async def test_the_offset_and_its_note_are_committed_with_the_events(
        self, stage: Stage
    ) -> None:
        """There is none before; an abort moves nothing."""
        assert await self._committed(stage) is None
        writer = await stage.writer()
        await stage.emit(writer, 0, b"a", offset=11)
        assert await self._committed(stage) == (11, NOTE)
        await stage.send(writer, b"gone")
        await writer.settle(2)
        await writer.abort()
        assert await self._committed(stage) == (11, NOTE)

    async def _committed(self, stage: Stage) -> tuple[int, Note | None] | None:
        found = await decided(stage)
        return (found.offset, found.note) if found else None

    @pytest.mark.parametrize("commit", [True, False])
    async def test_a_transaction_may_end_without_a_write(self, stage: Stage, commit: bool) -> None:
        """It leaves markers, and the next one can write; what is written is the producer's."""
        writer = await stage.writer()
        await writer.mark_again(stage.group, commit=commit)
        async with asyncio.timeout(DEADLINE_S):
            while await stage.cluster.stable_offset(stage.output, stage.partition) < 1:
                await asyncio.sleep(0.02)
        await stage.emit(writer, 1, b"a")
        assert await self._committed(stage) == (1, NOTE)
        found = await stage.cluster.producer_at(stage.output, stage.partition, 1)
        assert found == writer.producer_id >= 0
        assert await stage.cluster.producer_at(stage.output, stage.partition, 9) is None

    @pytest.mark.needs_broker(TELLS_WRITERS)
    async def test_the_last_write_of_each_producer_is_told(self, stage: Stage) -> None:
        """By its last record as long as its transaction is open, then by the marker; in whichever epoch that was."""
        where = stage.output, stage.partition
        assert await stage.cluster.last_writes(*where) == []
        writer = await stage.writer()
        await stage.send(writer, b"a")
        await writer.settle(0)
        open_ = LastWrite(writer.producer_id, 0, NOW_MS)
        assert await stage.cluster.last_writes(*where) == [open_]
        again = await stage.writer()  # which aborts it
        await stage.emit(again, 2, b"b")
        await stage.decided()
        [last] = await stage.cluster.last_writes(*where) or []
        assert (last.producer_id, last.epoch > 0) == (again.producer_id, True)
        assert abs(last.at_ms / 1000 - time.time()) < DEADLINE_S

    async def test_the_notes_of_all_partitions_are_told(self, stage: Stage) -> None:
        """Of those that have one."""
        writer = await stage.writer()
        await stage.emit(writer, 0, b"a")
        assert await self._committed(stage) == (1, NOTE)
        notes = await stage.cluster.notes(stage.group, stage.source, PARTITIONS)
        assert notes == {stage.partition: NOTE}

    @pytest.mark.rule(10)
    async def test_the_group_confirms_an_assignment_that_holds(self, stage: Stage) -> None:
        """And no other: an epoch that is over is not confirmed."""
        async with member(stage.cluster, stage.source) as source:
            assert await source.confirms(source.epoch)
            assert not await source.confirms(source.epoch - 1)

    @pytest.mark.needs_broker(AHEAD)
    async def test_a_record_that_no_topic_takes_is_refused(self, stage: Stage) -> None:
        """By an error that says so: it is not the broker that is in trouble."""
        writer = await stage.writer()
        await writer.begin()
        ahead_ms = 366 * 86_400_000
        stamped = Record.of(int(time.time() * 1000) + ahead_ms, b"a", b"value")
        await stage.append(writer, stamped)
        with pytest.raises(RefusedError):
            await writer.settle(0)

    @pytest.mark.needs_broker(AHEAD)
    async def test_a_marker_has_the_brokers_time(self, stage: Stage) -> None:
        """Events have their own; that of an aborted transaction has it, too, even if no event of it was taken."""
        began_ms, old = int(time.time() * 1000) - 5, await stage.writer()
        await stage.emit(old, 0, b"a")  # stamped NOW_MS
        assert await stage.decided() == 2
        await old.begin()
        ahead = Record.of(began_ms + 366 * 86_400_000, b"b", b"value")
        await stage.append(old, ahead)
        with pytest.raises(RefusedError) as refused:
            await old.settle(2)
        assert refused.value.by_time
        await stage.writer()
        assert await stage.decided() == 3
        output = stage.output, stage.partition
        assert await stage.cluster.stamp(*output, 0, 1) is None
        leader = stage.cluster.leader(*output)
        for start, offset in ((0, 1), (1, 1), (2, 2)):
            stamp = await stage.cluster.stamp(*output, start, 3)
            assert stamp is not None
            assert (stamp.leader, stamp.offset) == (leader, offset)
            assert began_ms <= stamp.stamped_ms <= time.time() * 1000 + 5
        assert await stage.cluster.stamp(*output, 3, 9) is None

    async def test_at_least_once_there_are_no_markers(self, stage: Stage) -> None:
        """Events are seen as soon as they are settled; a transaction that was left open is settled by the fence."""
        before = await stage.writer()
        await stage.send(before, b"open")
        await before.settle(0)
        writer = await stage.writer(exactly_once=False)
        await stage.send(writer, b"a", b"b")
        assert await writer.settle(2) == 4
        assert await stage.decided() == 4
        assert await stage.keys() == [b"a", b"b"]

    async def test_a_member_commits_offsets_by_itself(self, stage: Stage) -> None:
        """As at-least-once delivery does."""
        async with member(stage.cluster, stage.source) as source:
            await source.commit(stage.partition, 3, NOTE.encode())
            assert await self._committed(stage) == (3, NOTE)

    async def test_a_member_reads_in_order_and_stands_behind_markers(self, stage: Stage) -> None:
        """Aborted events are not seen; if nothing more is committed, reading goes on at the end."""
        stage.lab.produce(stage.source, stage.partition, [b"a", b"b"])
        stage.lab.produce(stage.source, stage.partition, [b"gone"], abort=True)
        stage.lab.produce(stage.source, stage.partition, [b"c"])
        stage.lab.produce(stage.source, stage.partition, [b"gone"], abort=True)
        async with member(stage.cluster, stage.source) as source:
            source.hold(stage.partition)
            source.go_to(stage.partition, 1)
            assert await read(source, stage.partition, 2) == ([b"b", b"c"], [1, 4])
            await until(lambda: self._stands_at(stage, source, 7))
            assert await source.read(stage.partition, source.epoch, 0.05) is None
            source.go_to(stage.partition, 0)
            assert await read(source, stage.partition, 3) == ([b"a", b"b", b"c"], [0, 1, 4])

    async def _stands_at(self, stage: Stage, source: Source, offset: int) -> bool:
        assert await source.read(stage.partition, source.epoch, 0.05) is None
        return source.position(stage.partition) == offset

    async def test_at_most_so_many_events_are_read(self, stage: Stage) -> None:
        """And the next call goes on behind them."""
        stage.lab.produce(stage.source, stage.partition, [b"a", b"b", b"c"])
        async with member(stage.cluster, stage.source) as source:
            source.go_to(stage.partition, 0)
            found: list[int] = []
            async with asyncio.timeout(DEADLINE_S):
                while len(found) < 3:
                    batch = await source.read(stage.partition, source.epoch, 0.2, 1)
                    if isinstance(batch, EventBatch):
                        assert len(batch) == 1
                        assert source.position(stage.partition) == batch.next_offset
                        found.append(int(batch.offsets[0]))
            assert found == [0, 1, 2]

    async def test_nothing_is_read_while_held_or_for_another_epoch(self, stage: Stage) -> None:
        """What a stale assignment asks for is not given."""
        stage.lab.produce(stage.source, stage.partition, [b"a"])
        async with member(stage.cluster, stage.source) as source:
            source.hold(stage.partition)
            assert await source.read(stage.partition, source.epoch, 0.3) is None
            source.go_to(stage.partition, 0)
            assert await source.read(stage.partition, source.epoch - 1, 0.3) is None

    async def test_an_offset_that_is_gone_is_out_of_range(self, stage: Stage) -> None:
        """Reading there raises; it does not jump."""
        stage.lab.produce(stage.source, stage.partition, [b"a", b"b", b"c"])
        stage.lab.trim(stage.source, stage.partition, 2)
        assert await stage.cluster.first_offset(stage.source, stage.partition) == 2
        async with member(stage.cluster, stage.source) as source:
            source.go_to(stage.partition, 1)
            with pytest.raises(OffsetOutOfRangeError):
                await until(lambda: source.read(stage.partition, source.epoch, 0.2))

    async def test_a_fold_from_what_is_gone_says_so(self, stage: Stage) -> None:
        """It neither jumps to what is left nor waits for it."""
        stage.lab.produce(stage.output, stage.partition, [b"a", b"b", b"c"])
        stage.lab.trim(stage.output, stage.partition, 2)
        with pytest.raises(TrimmedError):
            await stage.keys(1)
        assert await stage.keys(2) == [b"c"]

    async def test_members_share_partitions_and_take_over(self, stage: Stage) -> None:
        """A second one gets its share, in a later epoch for the first; when the first leaves, it gets all."""
        topic = stage.lab.create(4)
        everything = frozenset(range(4))
        async with member(stage.cluster, topic) as second:
            first = Source(stage.cluster.sources([topic], ASSIGNOR), topic)
            before = second.epoch
            assert second.assigned == everything
            await first.start()
            await until(lambda: first.assigned and len(second.assigned or everything) == 2)
            assert second.epoch > before
            assert (first.assigned or set()) | (second.assigned or set()) == everything
            assert await first.stop(DEADLINE_S)
            await until(lambda: second.assigned == everything)

    async def test_a_static_member_comes_back_unnoticed(self, stage: Stage) -> None:
        """Under the same name, after whatever end, it has what it had, at once; for the others nothing happens."""
        async with (
            stage.static("one") as one,
            stage.static("two") as two,
        ):
            await until(
                lambda: len(one.assigned or ()) == len(two.assigned or ()) == PARTITIONS // 2
            )
            mine, epoch = one.assigned, two.epoch
            await one.stop(DEADLINE_S)
            began = time.monotonic()
            async with stage.static("one") as again:
                assert again.assigned == mine
                assert time.monotonic() - began < SESSION_S / 2
                assert await two.confirms(epoch)

    async def test_a_group_takes_members_of_one_assignor_only(self, stage: Stage) -> None:
        """Another waits, and asks every few seconds; it joins by itself once all members have left."""
        other = Source(stage.cluster.sources([stage.source], OTHER_ASSIGNOR), stage.source)
        async with (
            member(stage.cluster, stage.source) as one,
            member(stage.cluster, stage.source) as two,
        ):
            await until(lambda: len(one.assigned or ()) == len(two.assigned or ()))
            epochs = one.epoch, two.epoch
            starting = asyncio.create_task(other.start())
            await until(lambda: other.refused_since is not None)
            found = await stage.cluster.in_force(stage.group)
            assert (found.assignor, len(found.members)) == (ASSIGNOR, 2)
            await one.stop(DEADLINE_S)
            await until(lambda: len(two.assigned or ()) == PARTITIONS)
            await asyncio.sleep(REJOIN_S_MAX + 0.5)
            assert other.assigned is None  # two is still there
            assert one.epoch == epochs[0]
        await starting
        await until(lambda: other.assigned == frozenset(range(PARTITIONS)))
        assert other.refused_since is None
        assert (await stage.cluster.in_force(stage.group)).assignor == OTHER_ASSIGNOR
        await other.stop(DEADLINE_S)

    async def test_a_static_member_of_another_assignor_waits_for_its_own_session(
        self, stage: Stage
    ) -> None:
        """It may be alone: its place is still that of a member, until the session of that one has ended."""
        async with stage.static("one", session_s=3) as one:
            await until(lambda: one.assigned)
        began = time.monotonic()
        async with stage.static("one", OTHER_ASSIGNOR, session_s=3) as again:
            assert time.monotonic() - began > 2
            assert again.assigned == frozenset(range(PARTITIONS))

    @pytest.mark.needs_broker("topic ids")
    async def test_topics_are_described_with_their_ids(self, stage: Stage) -> None:
        """Those that exist; one that is missing is not made by asking."""
        names = [stage.source, stage.output, unique_name("missing")]
        topology = await stage.cluster.describe(names)
        assert set(topology.topics) == {stage.source, stage.output}
        assert topology.cluster_id
        ids = {topic.topic_id for topic in topology.topics.values()}
        assert len(ids) == 2
        assert None not in ids
        assert topology[stage.source].partitions == PARTITIONS
        assert topology[stage.source].settings["cleanup.policy"] == "delete"
        assert await stage.cluster.changed(topology) == Changes([], [])
        assert set((await stage.cluster.describe(names)).topics) == {stage.source, stage.output}

    async def test_a_topic_of_another_id_has_changed(self, stage: Stage) -> None:
        """As one that was made again; and so has one that is gone."""
        now = await stage.cluster.describe([stage.source])
        other = Topic(stage.source, "11111111-1111-1111-1111-111111111111", 1, 1)
        gone = Topic(unique_name("gone"), "x", 1, 1)
        known = Topology(now.cluster_id, {other.name: other, gone.name: gone})
        changes = await stage.cluster.changed(known)
        assert (changes.missing, changes.remade) == ([gone.name], [other.name])

    async def test_a_topic_is_created_once(self, stage: Stage) -> None:
        """With its partitions and settings; if it is there already, that is no error."""
        topic, ten_years_ms = unique_name("made"), 10 * 365 * 86_400_000
        configs = {"retention.ms": str(ten_years_ms)}
        wanted = [Topic(topic, None, 3, 1, settings=configs)]
        assert await stage.cluster.create(wanted) == [topic]
        assert await stage.cluster.create(wanted) == []

        async def there() -> bool:
            return topic in (await stage.cluster.describe([topic])).topics

        await until(there)
        made = (await stage.cluster.describe([topic]))[topic]
        assert (made.partitions, made.retention_ms) == (3, ten_years_ms)

    async def test_offsets_are_moved_only_if_nobody_is_a_member(self, stage: Stage) -> None:
        """With their notes; a group that has members keeps what it has."""
        moved = {stage.partition: (7, NOTE.encode())}
        async with member(stage.cluster, stage.source):
            with pytest.raises(DeliveryError, match="has members"):
                await stage.cluster.move(stage.group, stage.source, moved)
        assert await decided(stage) is None
        await stage.cluster.move(stage.group, stage.source, moved)
        assert await decided(stage) == Committed(7, NOTE)

    async def test_stable_offsets_are_told(self, stage: Stage) -> None:
        """Exactly-once delivery asks whether they are."""
        assert await stage.cluster.supports_stable_offsets(stage.group, stage.source)

    async def test_a_writer_that_gives_up_leaves_nothing_open(self, stage: Stage) -> None:
        """A writer that gives up takes back what it sent, and readers need not wait for it."""
        writer = await stage.writer()
        await stage.send(writer, b"gone")
        await writer.settle(0)
        await writer.give_up()
        assert await stage.decided() == 2
        assert await stage.keys() == []


class TestMemory(Claims):
    """The broker in memory."""

    @pytest.fixture
    def lab(self, memory_lab: Lab) -> Lab:
        """In memory."""
        return memory_lab


class TestKafka(Claims):
    """A real broker."""

    @pytest.fixture
    def lab(self, kafka_lab: Lab) -> Lab:
        """On the broker that all tests share."""
        return kafka_lab

    async def test_a_producer_outlives_its_sequence_numbers(self, stage: Stage) -> None:
        """They end at 2**31 - 1 and begin again at 0, within a batch or between two, sent or copied."""
        writer = await stage.writer()
        assert isinstance(writer, KafkaWriter)
        producer = writer._producer
        where = TopicPartition(stage.output, stage.partition)
        producer._txn_manager.increment_sequence_number(where, 2**31 - 2)
        label = await stage.emit(writer, 0, b"a", b"b", b"c")
        label = await stage.emit(writer, label, b"d", b"e")
        await stage.decided()
        for read in await stage.events():
            await writer.begin()
            await writer.copy(stage.output, read, np.arange(len(read)), BYTES_MAX)
            assert await writer.settle(label) == label + len(read)
            await writer.commit(stage.source, 1, NOTE.encode(), stage.group)
            label += len(read) + 1
        await stage.decided()
        assert await stage.keys() == 2 * [b"a", b"b", b"c", b"d", b"e"]
        assert writer._producer is producer
