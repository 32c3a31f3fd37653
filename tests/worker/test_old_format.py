"""Records from before Kafka 0.11: no worker reads them, and none passes over them; over a broker in memory.

The broker in memory has none. So a stand-in says what a real one says, or raises what a real member raises.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from streamdedup.cli import main
from streamdedup.commands import doctor as doctor_module
from streamdedup.commands.doctor import doctor
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.events import EventBatch
from streamdedup.kafka.base import Source
from streamdedup.kafka.client.patience import Patience
from streamdedup.kafka.old_format import OldRecordsError
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.wire import check_first, record_batches
from streamdedup.kafka.source import KafkaMember, UnreadableError
from streamdedup.testing.cluster import MemoryCluster
from tests import memory
from tests.local import Start, on_virtual_clock
from tests.memory import over
from tests.memory_deployment import MemoryDeployment

ENDS_S_MAX = 600.0  # of the virtual clock
REMEDY = (
    "copy the topic with a producer of today and read the copy, or let retention remove them, and"
    " read on"
)


def old_records(magic: int, base: int) -> bytes:
    """A record set of that format, which begins at offset `base`, as a broker serves it."""
    made = LegacyRecordBatchBuilder(magic, 0, 1 << 16)
    for row in range(3):
        assert made.append(row, 1_750_000_000_000, b"key", b"secret value")
    content = bytearray(made.build())
    content[:8] = base.to_bytes(8, "big")
    return bytes(content)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("parse", [check_first, lambda data: list(record_batches(data))])
async def test_a_member_names_topic_partition_offset_and_remedy(magic: int, parse: Any) -> None:
    """Of the fetched bytes, and as an error that is no damage, so nothing skips it."""

    class Consumer:
        async def next_batch(self, *_: object) -> None:
            parse(old_records(magic, 42))

    member = KafkaMember(
        KafkaOptions(bootstrap_servers="localhost:1", group_id="group"),
        ["topic"],
        Patience(),
        "assignor",
    )
    member._consumer = Consumer()
    with pytest.raises(OldRecordsError) as refused:
        await member.read(InputPartition("topic", 3), member.epoch, 0.1, 100)
    said = str(refused.value)
    assert said.startswith("topic/3 has records of a format from before Kafka 0.11 at offset 42,")
    assert said.endswith(REMEDY)
    assert isinstance(refused.value, DeliveryError)
    assert not isinstance(refused.value, UnreadableError)


@pytest.mark.finding("old-format")
@pytest.mark.parametrize("on_damaged", ["stop", "skip"])
@pytest.mark.parametrize("first", [0, 10])
@over(partial(memory.Stage, partitions=2))
async def test_a_partition_stops_where_it_meets_them_and_passes_over_none(
    stage: memory.Stage, monkeypatch: pytest.MonkeyPatch, on_damaged: str, first: int
) -> None:
    """Also if damage is skipped: all before them is emitted, nothing behind them is; the other partition goes on."""
    read = Source.read

    async def reading(source: Source, partition: int, *given: Any) -> Any:
        position = source.position(partition)
        if partition == 0 and position == first:
            raise OldRecordsError(stage.source, partition, position)
        batch = await read(source, partition, *given)
        if partition == 0 and isinstance(batch, EventBatch) and batch.next_offset > first:
            source.go_to(partition, first)
            return batch.head(first - position)
        return batch

    monkeypatch.setattr(Source, "read", reading)
    stage.config["source"]["on_damaged"] = on_damaged
    stage.feed(range(60))
    async with stage.start() as worker:
        error = await worker.stopped()
        await worker.until(
            lambda: stage.broker.committed(stage.deployment.group, stage.source).get(1) == 30,
            "the end of the other partition",
        )
        assert f"{stage.source}/0 has records of a format from before Kafka 0.11" in error
        assert f"at offset {first}, " in error
        assert REMEDY in error
        assert not worker.lines("batch_skipped")
    assert stage.committed == first
    emitted = [len(log) for log in stage.broker.read_all(stage.sink)]
    assert emitted == [first, 30]


class Checked:
    """A deployment whose input has old records at the offsets in `old` of partition 1."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, *, staged: bool) -> None:
        self.deployment = MemoryDeployment(directory, 2).create()
        self.group, self.old = self.deployment.group, range(0)
        if staged:
            repartition = {"topic": "middle", "partitions": 2}
            self.deployment.config["source"]["repartition"] = repartition
            self.group = f"{self.group}-repartition"
        self.deployment.feed((1, b"%d" % n, b"value", [], None) for n in range(10))

        async def is_old(_: MemoryCluster, topic: str, partition: int, offset: int) -> bool:
            return (topic, partition) == (self.deployment.source, 1) and offset in self.old

        monkeypatch.setattr(MemoryCluster, "is_old", is_old)
        check = partial(doctor, connect=self.deployment.connect)
        monkeypatch.setattr(doctor_module, "doctor", check)

    def stand_at(self, committed: int) -> None:
        """Commit an offset of the group."""
        offsets = self.deployment.broker.group(self.group).offsets
        offsets[InputPartition(self.deployment.source, 1)] = committed, ""

    def check(self) -> int:
        """The exit status of `config check --connect`."""
        return main(["config", "check", "--connect", str(self.deployment.write_config())])

    def start(self) -> None:
        """Start a worker, which ends by itself; raise its error."""

        async def scene(start: Start) -> None:
            worker = start(self.deployment, connect=self.deployment.connect)
            await asyncio.wait_for(worker.task, ENDS_S_MAX)

        on_virtual_clock(scene)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("next_event", [(0, None, 0), (2, None, 2), (0, 4, 4), (3, 1, 3)])
def test_a_start_is_refused_if_the_next_event_is_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    staged: bool,
    next_event: tuple[int, int | None, int],
) -> None:
    """At the group's offset, or at the first that is left; a check says the same, with status 2; nothing is made."""
    trimmed, committed, refused = next_event
    there = Checked(tmp_path, monkeypatch, staged=staged)
    there.old = range(5)
    there.deployment.broker.log(there.deployment.source, 1).trim(trimmed)
    if committed is not None:
        there.stand_at(committed)
    said = str(OldRecordsError(there.deployment.source, 1, refused))
    assert there.check() == 2
    assert said in capsys.readouterr().out
    with pytest.raises(ConfigError) as error:
        there.start()
    assert str(error.value) == said
    assert "middle" not in there.deployment.broker.topics


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize(("start", "committed"), [("earliest", 5), ("latest", None)])
def test_old_records_that_are_not_read_refuse_no_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    staged: bool,
    start: str,
    committed: int | None,
) -> None:
    """Those behind the group, and those before a birth at the end."""
    there = Checked(tmp_path, monkeypatch, staged=staged)
    there.deployment.config["source"]["start"] = start
    there.old = range(5)
    if committed is not None:
        there.stand_at(committed)
    assert there.check() == 0
