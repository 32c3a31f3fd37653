"""Claims about the writer of any partition that a real broker would show only by chance."""

import asyncio
import struct
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    IllegalOperation,
    KafkaConnectionError,
    MessageSizeTooLargeError,
    ProducerFenced,
)

from streamdedup.events import EventBatch
from streamdedup.kafka.base import Membership
from streamdedup.kafka.client import fenced_offsets
from streamdedup.kafka.client.fenced_offsets import FencedOffsets
from streamdedup.kafka.client.open_batches import GZIP_LOOP_BYTES_MAX
from streamdedup.kafka.client.patience import Patience
from streamdedup.kafka.client.protocol import FencedOffsetCommit
from streamdedup.kafka.group_sink import KafkaGroupWriter, StaleGenerationError
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records import encoding
from streamdedup.kafka.records.codecs import ZSTD, compress
from streamdedup.kafka.records.decoding import LOOP_BYTES_MAX
from streamdedup.kafka.records.wire import decode, record_batches
from streamdedup.kafka.sink import DoubtError, RefusedError, ReplacedConnectionError
from tests.delivery.bombs import body, record_batch
from tests.kafka.test_columns import fetched, waited
from tests.local import until

LOADING, AWAY, MOVED, CONCURRENT = 14, 15, 16, 51
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, FENCED_INSTANCE = 22, 25, 27, 82
OLD_EPOCH, FENCED, NOT_AUTHORIZED = 47, 90, 30
BYTES_MAX = 900_000
ONE = (3, "member", "one")
OFFSETS = {InputPartition("topic", 7): (1 << 40, "note"), InputPartition("topic", 0): (5, "")}
MEMBERSHIP = Membership(member_id="member", generation=3, instance_id="one")


# --- the request ---


def request(instance: str | None) -> FencedOffsetCommit:
    """The offsets of two partitions."""
    member = (3, "member", instance)
    return FencedOffsetCommit(("fence", 9, 2), "group", member, OFFSETS)


@pytest.mark.parametrize("instance", ["one", None])
def test_offsets_are_encoded_as_the_protocol_has_it(instance: str | None) -> None:
    """TxnOffsetCommit v3 by hand: compact lengths are one more, tagged fields are none."""
    built = request(instance).prepare({28: (0, 3)})

    def compact(text: str | None) -> bytes:
        return b"\0" if text is None else bytes([len(text) + 1]) + text.encode()

    def row(partition: int, offset: int, note: str) -> bytes:
        return struct.pack(">iqi", partition, offset, -1) + compact(note) + b"\0"

    assert built.encode() == (
        compact("fence")
        + compact("group")
        + struct.pack(">qhi", 9, 2, 3)
        + compact("member")
        + compact(instance)
        + bytes([2])
        + compact("topic")
        + bytes([3])
        + row(0, 5, "")
        + row(7, 1 << 40, "note")
        + b"\0\0"
    )
    assert built.FLEXIBLE_VERSION
    answer = struct.pack(">i", 0) + b"\2" + compact("topic") + b"\2"
    answer += struct.pack(">ih", 7, 22) + b"\0\0\0"
    assert built.RESPONSE_TYPE.decode(answer).topics == [("topic", [(7, 22, {})], {})]


def test_a_broker_without_it_is_not_asked() -> None:
    """One before 2.5: without a generation, nothing would be fenced."""
    with pytest.raises(NotImplementedError):
        request(None).prepare({28: (0, 2)})


# --- its answers ---


class Scripted:
    """A client whose answers are given: error codes, or errors to raise; and a producer's state."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers, self.lookups, self.asked = list(answers), 0, list[str]()
        self._conns: dict[Any, Any] = {}
        self.added: list[str] = []

    async def coordinator_lookup(self, _kind: Any, _key: str) -> int:
        """Node 1, at the second time node 2."""
        self.lookups += 1
        return self.lookups

    async def send(self, node: int, request: Any, *, group: Any) -> Any:  # noqa: ARG002 - the coordinators'
        """The next answer."""
        self.asked.append(f"{type(request).__name__}@{node}")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(request, FencedOffsetCommit):
            return SimpleNamespace(topics=[("topic", [(7, answer, {}), (0, answer, {})], {})])
        return SimpleNamespace(error_code=answer)

    async def force_metadata_update(self) -> None:
        """Nothing changes."""

    @property
    def producer(self) -> Any:
        """What the module needs of aiokafka's."""
        manager = SimpleNamespace(
            producer_id=9,
            producer_epoch=2,
            is_in_transaction=lambda: True,
            consumer_group_added=self.added.append,
        )
        return SimpleNamespace(client=self, _txn_manager=manager)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fenced_offsets, "RETRY_S", 0)


async def add(client: Scripted) -> str | None:
    """What becomes of offsets."""
    return await FencedOffsets(client.producer, "fence").add("group", ONE, OFFSETS)


async def test_offsets_are_added_by_two_requests_to_two_coordinators() -> None:
    """First to that of transactions, then to that of the group; each is looked for once."""
    client = Scripted(0, 0, 0, 0)
    offsets = FencedOffsets(client.producer, "fence")
    for _ in range(2):
        assert await offsets.add("group", ONE, OFFSETS) is None
    assert client.asked == 2 * ["AddOffsetsToTxnRequest@1", "FencedOffsetCommit@2"]
    assert client.added == ["group", "group"]


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    ("code", "lookups"), [(LOADING, 2), (CONCURRENT, 2), (AWAY, 3), (MOVED, 3)]
)
async def test_a_coordinator_that_cannot_answer_is_asked_again(
    at: int, code: int, lookups: int
) -> None:
    """In its new place, if it has moved."""
    client = Scripted(*[0, 0][:at], code, code if lookups == 2 else 0, *[0, 0])
    assert await add(client) is None
    assert client.lookups == lookups


@pytest.mark.parametrize("at", [0, 1])
async def test_a_request_without_an_answer_is_not_repeated(at: int) -> None:
    """It may still arrive, and then change the next transaction."""
    client = Scripted(*[0][:at], KafkaConnectionError("gone"), 0, 0)
    with pytest.raises(KafkaConnectionError):
        await add(client)
    assert len(client.asked) == at + 1


async def test_a_lookup_without_an_answer_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes nothing; a refusal is raised."""
    client, lookup = Scripted(0, 0), Scripted.coordinator_lookup
    errors: list[Exception] = [GroupCoordinatorNotAvailableError()]

    async def failing(self: Scripted, kind: Any, key: str) -> int:
        if errors:
            raise errors.pop()
        return await lookup(self, kind, key)

    monkeypatch.setattr(Scripted, "coordinator_lookup", failing)
    assert await add(client) is None
    errors.append(GroupAuthorizationFailedError())
    with pytest.raises(GroupAuthorizationFailedError):
        await add(Scripted())


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("code", [OLD_EPOCH, FENCED])
async def test_both_codes_of_a_fence_are_one_error(at: int, code: int) -> None:
    """Whichever coordinator answers so."""
    with pytest.raises(ProducerFenced):
        await add(Scripted(*[0][:at], code))


async def test_a_missing_right_is_raised() -> None:
    """And not taken for a stale generation."""
    with pytest.raises(GroupAuthorizationFailedError):
        await add(Scripted(0, NOT_AUTHORIZED))


# --- the writer ---


class Producer:
    """Takes record batches as aiokafka's producer does; the test settles their futures."""

    def __init__(self) -> None:
        self.client = Scripted()
        self.sent: list[tuple[str, int, bytes]] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.committed: list[str] = []
        self._txn_manager = self.client.producer._txn_manager
        self._txn_manager._transaction_waiter = None
        self._txn_manager._pending_txn_offsets = ()

    async def begin_transaction(self) -> None:
        """Begin."""

    async def commit_transaction(self) -> None:
        """Note it."""
        self.committed.append("transaction")

    async def send_batch(self, made: Any, topic: str, *, partition: int) -> Any:
        """Keep the bytes."""
        assert made.closed()
        self.sent.append((topic, partition, bytes(made._build())))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    def answer(self, *answers: int | Exception) -> None:
        """Give the batches that were sent their offsets, or errors."""
        for future, answer in zip(self.futures, answers, strict=True):
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(SimpleNamespace(offset=answer))


def a_writer(compression: Any = "zstd") -> tuple[KafkaGroupWriter, Producer]:
    """One that has started."""
    options = KafkaOptions(bootstrap_servers="localhost:9092", group_id="g")
    sink = SinkOptions(topic="out", compression=compression)
    writer = KafkaGroupWriter(options, sink, "fence", Patience(None), timeout_ms=10_000)
    producer = Producer()
    writer._producer = producer
    writer._offsets = FencedOffsets(producer, "fence")
    return writer, producer


async def events(*sizes: int) -> EventBatch:
    """An event with a value of each size."""
    [batch] = await waited(fetched(record_batch(0, [body(b"a" * size) for size in sizes], ZSTD)))
    return batch


def values(sent: list[tuple[str, int, bytes]]) -> dict[tuple[str, int], list[bytes | None]]:
    """The values by topic and partition."""
    found: dict[tuple[str, int], list[bytes | None]] = {}
    for topic, partition, data in sent:
        found.setdefault((topic, partition), []).extend(decode(list(record_batches(data))).values)
    return found


async def sent(writer: KafkaGroupWriter, producer: Producer) -> dict[tuple[str, int], list[int]]:
    """The sizes of the values that the brokers have once all is settled, by topic and partition."""
    settling = asyncio.create_task(writer.settle())
    await until(lambda: settling.done() or producer.futures, lambda: "nothing is sent")
    await asyncio.sleep(0.05)
    producer.answer(*range(len(producer.futures)))
    await settling
    found = values(producer.sent)
    return {place: [len(value or b"") for value in of] for place, of in found.items()}


async def test_rows_go_to_their_partitions_and_topics() -> None:
    """Each in its order."""
    writer, producer = a_writer()
    batch = await events(1, 2, 3, 4)
    await writer.begin()
    await writer.copy("out", 5, batch, np.array([0, 2]), BYTES_MAX)
    await writer.copy("out", 1, batch, np.array([1]), BYTES_MAX)
    await writer.copy("dead", 5, await events(9), np.array([0]), BYTES_MAX)
    await writer.copy("out", 5, batch, np.array([3]), BYTES_MAX)
    assert await sent(writer, producer) == {
        ("out", 5): [1, 3, 4],
        ("out", 1): [2],
        ("dead", 5): [9],
    }


@pytest.mark.parametrize(
    ("compression", "bytes_max"), [("zstd", LOOP_BYTES_MAX), ("gzip", GZIP_LOOP_BYTES_MAX)]
)
async def test_many_small_copies_leave_the_loop_as_one_large_does(
    compression: str, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was copied since the last thread counts; what is left is compressed in one, too."""
    used = list[bool]()
    here = threading.get_ident()

    def noted(codec: int, data: memoryview) -> Any:
        used.append(threading.get_ident() == here)
        return compress(codec, data)

    monkeypatch.setattr(encoding, "compress", noted)
    writer, producer = a_writer(compression)
    size = bytes_max // 4 + 1
    batch, small = await events(size), await events(9)
    used.clear()
    await writer.begin()
    for partition in range(8):  # a record that fills its batch is compressed when it is added
        await writer.copy("out", partition, batch, np.array([0]), size)
    assert used == [True, True, True, False, True, True, True, False]
    for partition in range(8, 16):
        await writer.copy("out", partition, small, np.array([0]), size)
    found = await sent(writer, producer)
    assert used[8:] == [False] * 8
    assert found == {("out", p): [size if p < 8 else 9] for p in range(16)}


async def test_every_answer_is_waited_for_and_doubt_comes_before_a_refusal() -> None:
    """A refusal says that nothing else is in doubt."""
    writer, producer = a_writer()
    batch = await events(1)
    for answers, expected in (
        ((MessageSizeTooLargeError(), KafkaConnectionError("gone"), 3), KafkaConnectionError),
        ((MessageSizeTooLargeError(), 2, 3), RefusedError),
        ((KafkaConnectionError("gone"), 2, 3), KafkaConnectionError),
    ):
        producer.futures.clear()
        await writer.begin()
        for partition in range(3):
            await writer.copy("out", partition, batch, np.array([0]), BYTES_MAX)
        settling = asyncio.create_task(writer.settle())
        await until(lambda: len(producer.futures) == 3, lambda: producer.futures)
        first, *rest = producer.futures
        answer = answers[0]
        assert isinstance(answer, Exception)
        first.set_exception(answer)
        await asyncio.sleep(0.02)
        assert not settling.done()
        producer.futures = rest
        producer.answer(*answers[1:])
        with pytest.raises(expected):
            await settling


@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, FENCED_INSTANCE])
@pytest.mark.rule(22)
async def test_a_stale_generation_is_a_doubt_and_not_committed(code: int) -> None:
    """By whichever code the group says so; the error names the group and the generation."""
    writer, producer = a_writer()
    await writer.begin()
    producer.client.answers = [0, code]
    with pytest.raises(StaleGenerationError, match="group takes no offsets of generation 3"):
        await writer.commit("group", OFFSETS, MEMBERSHIP)
    assert issubclass(StaleGenerationError, DoubtError)
    assert producer.committed == []
    producer.client.answers = [0, 0]
    await writer.commit("group", OFFSETS, MEMBERSHIP)
    assert producer.committed == ["transaction"]


@pytest.mark.parametrize(
    "when", ["settled", "before the offsets", "with the offsets", "at the end"]
)
async def test_a_connection_that_was_replaced_within_a_transaction_is_a_doubt(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request may have been sent twice; the transaction is not ended then, unless that was its end."""
    writer, producer = a_writer()
    connections = producer.client._conns

    def replaced(*_: object) -> None:
        connections["leader"] = object()

    def replacing(method: Any) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            replaced()
            return await method(*arguments, **options)

        return call

    replaced()
    producer.client.answers = [0, 0]
    await writer.begin()
    if when == "settled":
        replaced()
        with pytest.raises(ReplacedConnectionError):
            await writer.settle()
        return
    await writer.settle()
    if when == "before the offsets":
        replaced()
    elif when == "with the offsets":
        monkeypatch.setattr(Scripted, "send", replacing(Scripted.send))
    else:
        monkeypatch.setattr(Producer, "commit_transaction", replacing(Producer.commit_transaction))
    with pytest.raises(ReplacedConnectionError):
        await writer.commit("group", OFFSETS, MEMBERSHIP)
    assert len(producer.committed) == (when == "at the end")


@pytest.mark.rule(22)
async def test_a_writer_that_was_dropped_commits_nothing() -> None:
    """Nor one that has not started, nor outside of a transaction."""
    writer, producer = a_writer()
    producer._txn_manager.is_in_transaction = lambda: False
    with pytest.raises(IllegalOperation):
        await writer.commit("group", OFFSETS, MEMBERSHIP)
    writer._offsets = None
    with pytest.raises(DoubtError):
        await writer.commit("group", OFFSETS, MEMBERSHIP)


def test_its_transactions_have_a_time_out_of_their_own() -> None:
    """Shorter than that of the outputs' writers, and the deadline with it."""
    writer, _ = a_writer()
    assert writer._defaulted["transaction_timeout_ms"] == 10_000
    assert writer.transaction_s_max == 7.5
