"""Claims about `streamdedup reset`: where offsets go, what their notes say, what is forgotten, and who is refused."""

import asyncio
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from streamdedup.commands.audit import audit
from streamdedup.commands.reset import move, note_after, plan
from streamdedup.commands.reset_plan import Target, target_of
from streamdedup.commands.reset_text import as_text
from streamdedup.delivery.resume import PartitionState
from streamdedup.delivery.services import wall_clock_ms
from streamdedup.kafka.client.closing import close_producer
from streamdedup.kafka.offsets import Committed, Note
from streamdedup.settings import load
from tests.broker.base import Broker
from tests.broker.topics import committed, produce, read_all
from tests.delivery import test_resume
from tests.deployment import Deployment, keyed
from tests.local import run_to_the_end
from tests.rows import table

NOW_MS = 1_800_000_000_000


NOTE = replace(test_resume.NOTE, watermark=7, partitions=4, born=3)


FOUND = replace(
    test_resume.FOUND,  # the input holds 10 to 90, the output 0 to 60
    committed=Committed(30, NOTE),
    has_memory=False,
    partition=0,
    partitions=5,
)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", Target("earliest")),
        ("latest", Target("latest")),
        ("2h", Target("time", NOW_MS - 7_200_000)),
        ("0s", Target("time", NOW_MS)),
        ("1970-01-01T00:00:01", Target("time", 1000)),
        ("1970-01-01T00:00:01Z", Target("time", 1000)),
        ("1970-01-01T02:00:01+02:00", Target("time", 1000)),
        ("1970-01-02", Target("time", 86_400_000)),
        ("1969-12-31T23:59:59.999Z", Target("time", 0)),  # -1 ms would be the end, to Kafka
        ("0001-01-01", Target("time", 0)),
        ("99999d", Target("time", 0)),
    ],
)
def test_a_time_is_read_as_it_is_written(text: str, target: Target) -> None:
    """A time without a zone is UTC; a duration counts back from now."""
    assert target_of(text, NOW_MS) == target


@table(
    [
        *((text, "neither earliest, latest, a time like") for text in ("", "-2h", "soon", "2x")),
        *((text, "neither earliest, latest, a time like") for text in ("Earliest", "2026-13-01")),
        # 0 is not "no time ago", nor are eight digits a day: who writes a number means an offset.
        *((text, "offsets are not accepted") for text in ("0", "00", "7", " 7 ", "20260131")),
    ]
)
def test_what_is_no_time_is_refused(text: str, said: str) -> None:
    """The message says what may be written instead."""
    with pytest.raises(ValueError, match=said):
        target_of(text, NOW_MS)


def with_note(**changes: Any) -> PartitionState:
    """As FOUND, its note changed."""
    return replace(FOUND, committed=Committed(30, replace(NOTE, **changes)))


MOVED, OF_NOW = replace(NOTE, label=60), replace(NOTE, watermark=None, partitions=5, born=5)


@table(
    [
        # Nothing but the offset: the ids of now, the output's end as label, time and partitions of before.
        (FOUND, 10, MOVED),
        # What was forgotten stays so; above the floor, reading begins at the earlier of the moves.
        (with_note(floor=40, since=25), 20, replace(MOVED, floor=40, since=20)),
        (with_note(floor=40, since=25), 80, replace(MOVED, floor=40, since=25)),
        # The output was emitted under the key of that commit, whoever resets.
        (with_note(meaning=7), 10, replace(MOVED, meaning=7)),
        # Another tool's offset has neither floor nor time; an untouched output begins where it is told.
        (replace(FOUND, committed=Committed(30, None)), 10, replace(OF_NOW, label=60)),
        (
            replace(FOUND, committed=None, output_end=0),
            90,
            replace(OF_NOW, label=0, floor=0, since=90),
        ),
    ]
)
def test_a_move_keeps_what_is_known(found: PartitionState, to: int, note: Note) -> None:
    """Of the output, and nothing of what is not known."""
    assert note_after(found, to, forget=False) == note


def test_forgetting_sets_a_floor_and_the_time_back() -> None:
    """The output's end is the floor, reading goes on at the target, a window's time begins anew, without a key."""
    forgotten = replace(OF_NOW, label=60, floor=60, since=20)
    for found in (FOUND, with_note(meaning=7)):
        assert note_after(found, 20, forget=True) == forgotten


def test_a_floor_belongs_to_one_output() -> None:
    """Of another output or cluster, nothing is forgotten by it; of another input, it is not known from where."""
    found = with_note(floor=40, since=25)
    assert (found.floor, found.since) == (40, 25)
    assert replace(found, output_id="other").floor is None
    assert replace(found, cluster_id="other").floor is None
    remade = replace(found, input_id="other")
    assert (remade.floor, remade.since) == (40, None)


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """Two partitions."""
    return Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()


def reset(deployment: Deployment, to: str, *, forget: bool = False) -> str:
    """Do it, as the command does; what is said beforehand."""
    settings = load(deployment.write_config())
    target = target_of(to, wall_clock_ms())
    planned = asyncio.run(plan(settings, target, forget=forget))
    asyncio.run(move(settings, planned))
    return as_text(settings, planned)


def at(deployment: Deployment) -> dict[int, int]:
    """The committed offsets."""
    return committed(deployment.bootstrap, deployment.group, deployment.source)


def emitted(deployment: Deployment) -> Counter[bytes | None]:
    """How often each key stands in the output."""
    return Counter(r.key for r in read_all(deployment.bootstrap, deployment.sink))


@pytest.mark.broker
def test_forgetting_emits_every_first_again_once(deployment: Deployment) -> None:
    """After --forget, each key comes once more, whatever snapshots there are, crashes and moves that follow."""
    deployment.feed(keyed([*range(300), *range(100)], 2))
    run_to_the_end(deployment)
    assert list(deployment.snapshots.glob("*/*.snapshot"))
    assert "no longer count as emitted" in reset(deployment, "earliest", forget=True)
    with deployment.running() as worker:  # killed while it lives: the floor stands in the group
        (refused, *_) = worker.wait_for("snapshot_refused")
        assert "floor 0 instead of 151" in refused["reason"]
        worker.wait_for("shard_live", 1)
        worker.kill()
    run_to_the_end(deployment)
    assert set(emitted(deployment).values()) == {2}
    assert "An earlier --forget stays in force" in reset(deployment, "earliest")
    run_to_the_end(deployment)  # with snapshots of above the floor
    assert set(emitted(deployment).values()) == {2}
    shutil.rmtree(deployment.snapshots)
    reset(deployment, "earliest")
    run_to_the_end(deployment)
    assert set(emitted(deployment).values()) == {2}
    report = asyncio.run(audit(load(deployment.write_config())))
    assert report.fine, report.as_text()
    assert (report.total.emitted, report.total.keys) == (300, 300)
    produce(deployment.bootstrap, deployment.sink, keyed([7], 2))
    assert asyncio.run(audit(load(deployment.write_config()))).total.doubled == 1


@pytest.mark.broker
def test_forgetting_what_comes_later_only(deployment: Deployment) -> None:
    """--forget --to latest: what was skipped is owed by nobody, and a known key passes when it comes again."""
    deployment.feed(keyed(range(100), 2))
    run_to_the_end(deployment)
    deployment.feed(keyed(range(100, 150), 2))
    reset(deployment, "latest", forget=True)
    deployment.feed(keyed(range(10), 2))
    run_to_the_end(deployment)
    assert emitted(deployment) == Counter(
        {b"user%d@example.com" % n: 2 if n < 10 else 1 for n in range(100)}
    )
    report = asyncio.run(audit(load(deployment.write_config())))
    assert (report.fine, report.total.keys) == (True, 10), report.as_text()


@pytest.mark.broker
def test_a_sleeping_worker_wakes_up_fenced(deployment: Deployment) -> None:
    """What a worker left open is aborted before the floor is set, and it can commit nothing afterwards."""
    deployment.feed(keyed(range(10), 2))
    run_to_the_end(deployment)

    async def zombie() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=deployment.bootstrap, transactional_id=f"{deployment.sink}/0"
        )
        await producer.start()
        try:
            await producer.begin_transaction()
            await producer.send_and_wait(deployment.sink, b"", b"left open", partition=0)
            await asyncio.to_thread(reset, deployment, "earliest", forget=True)
            with pytest.raises(KafkaError, match=r"ProducerFenced|InvalidProducerEpoch"):
                await producer.commit_transaction()
        finally:
            await close_producer(producer)

    asyncio.run(zombie())
    run_to_the_end(deployment)
    assert emitted(deployment) == Counter({b"user%d@example.com" % n: 2 for n in range(10)})
