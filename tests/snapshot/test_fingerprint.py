"""Claims about whether a filter is the fold of this very log: what tells it, and what happens where it is not."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from streamdedup.delivery.fold import FoldedMemory
from streamdedup.events import Fingerprint
from streamdedup.filters import build
from streamdedup.kafka.log import parse_head
from streamdedup.snapshot import Snapshot, Store
from streamdedup.snapshot.fingerprint import contradiction, doubt_of
from tests.broker.base import DEADLINE_S
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import Start
from tests.snapshot.shelf import IDENTITY

ONE = Fingerprint(offset=7, producer_id=4000, epoch=3, crc=0xDEADBEEF, stamped_ms=1_700_000_000_000)


# --- the head of a record batch ---


def batch_of(events: int, producer_id: int = 4000, base: int = 0) -> bytes:
    """A record batch as it stands in a log."""
    builder = DefaultRecordBatchBuilder(2, 0, 1, producer_id, 3, 0, 1 << 20)
    for number in range(events):
        builder.append(number, 1000 + number, b"key", b"value", [])
    batch = builder.build()
    batch[:8] = base.to_bytes(8, "big")
    return bytes(batch)


@pytest.mark.parametrize(("events", "base", "offset"), [(1, 0, 0), (3, 40, 40), (3, 40, 42)])
def test_the_head_of_a_batch_tells_it(events: int, base: int, offset: int) -> None:
    """Base offset, producer, epoch and checksum are read where Kafka's format has them."""
    batch = batch_of(events, base=base)
    crc = int.from_bytes(batch[17:21], "big")
    assert parse_head(batch[:61], offset) == Fingerprint(
        offset=base, producer_id=4000, epoch=3, crc=crc, stamped_ms=1000
    )


@pytest.mark.parametrize(
    ("head", "offset"),
    [
        (b"", 40),
        (batch_of(3, base=40)[:60], 40),
        (batch_of(3, base=40)[:61], 39),
        (batch_of(3, base=40)[:61], 43),
        (batch_of(3, base=40)[:16] + b"\1" + batch_of(3, base=40)[17:61], 40),
    ],
    ids=["nothing", "short", "a later batch", "an earlier batch", "an older format"],
)
def test_what_is_no_batch_with_that_offset_tells_nothing(head: bytes, offset: int) -> None:
    """No fingerprint is made of half a head, of a batch beside the offset, or of a format without a CRC-32C."""
    assert parse_head(head, offset) is None


# --- what it proves ---


@pytest.mark.parametrize("leaf", ["offset", "producer_id", "epoch", "crc", "stamped_ms"])
def test_another_batch_in_the_place_of_ours_contradicts(leaf: str) -> None:
    """In whichever field it differs; the message says where, and what may have happened."""
    other = replace(ONE, **{leaf: 1})
    assert "at offset 7 " in (contradiction(ONE, other) or "")
    assert "unclean leader election" in (contradiction(ONE, other) or "")


@pytest.mark.parametrize("folded", [None, ONE])
def test_what_cannot_be_compared_contradicts_nothing(folded: Fingerprint | None) -> None:
    """The same batch, or none on one side, as where retention has deleted it."""
    assert contradiction(folded, None) is None
    assert contradiction(folded, folded) is None
    assert contradiction(None, folded) is None


def snapshot(fingerprint: Fingerprint | None, topic_id: str | None) -> Snapshot:
    """One that was loaded."""
    seen = build({"kind": "bloom", "capacity": 10, "error_rate": 0.1})
    return Snapshot(
        filter=seen,
        label=9,
        end_label=9,
        fingerprint=fingerprint,
        topic_id=topic_id,
        path=Path("x"),
        size_bytes=1,
        saved_at=0.0,
        writer="a test",
        mode=0o600,
    )


@pytest.mark.parametrize(
    ("fingerprint", "held", "ids", "word"),
    [
        (ONE, ONE, ("id", "id"), None),
        (ONE, ONE, (None, None), None),
        (ONE, replace(ONE, crc=1), ("id", "id"), "replaced"),
        (ONE, replace(ONE, crc=1), (None, None), "replaced"),
        (ONE, None, ("id", "id"), None),
        (ONE, None, ("id", None), "reports no topic ids"),
        (ONE, None, (None, "id"), "reports no topic ids"),
        (None, None, ("id", "id"), None),
        (None, None, (None, None), "reports no topic ids"),
    ],
)
def test_a_snapshot_is_used_where_one_of_two_signs_holds(
    fingerprint: Fingerprint | None,
    held: Fingerprint | None,
    ids: tuple[str | None, str | None],
    word: str | None,
) -> None:
    """The fingerprint decides; where its batch is gone, the topic id has to; where that is unknown, nothing is left."""
    reason = doubt_of(snapshot(fingerprint, ids[0]), replace(IDENTITY, topic_id=ids[1]), held)
    assert reason is None if word is None else word in (reason or "")


# --- on a real broker ---


def store_of(deployment: Deployment) -> Store:
    """The snapshots of partition 0."""
    directory = Path(deployment.config["snapshot"]["directory"])
    return Store(directory, group=deployment.group, topic=deployment.sink, partition=0)


def newest_log(deployment: Deployment) -> Any:
    """What the newest snapshot's header says of its log."""
    store = store_of(deployment)
    with store._opened(store._generations()[0]) as (reader, _):
        return reader.header.of_log()


@pytest.mark.broker
@pytest.mark.rule(7)
async def test_a_memory_of_another_log_is_dropped(deployment: Deployment, start: Start) -> None:
    """An output that is replaced under a running worker is noticed at the next save; memory and pending are void."""
    deployment.config["snapshot"]["interval_s"] = 0.2
    deployment.feed(keyed(range(100), 1))
    async with start(deployment) as worker:
        await worker.live()
        await worker.consumed(100)
        memory = worker.delivery._memory
        assert isinstance(memory, FoldedMemory)
        deployment.feed(keyed(range(50, 150), 1))
        await worker.consumed(200)
        await worker.until(lambda: memory._fingerprint, "fingerprint")
        assert memory._fingerprint is not None
        memory._fingerprint = replace(memory._fingerprint, crc=1)
        number = 150
        async with asyncio.timeout(DEADLINE_S):
            while not worker.lines("memory_dropped"):
                deployment.feed(keyed([number], 1))
                number += 1
                await worker.consumed(50 + number)
        deployment.feed(keyed(range(number), 1))
        await worker.consumed(50 + number + number)
    assert any("not the log that was folded" in line["error"] for line in worker.lines("doubt"))
    assert lost_and_doubled(deployment) == (0, 0, 0)
