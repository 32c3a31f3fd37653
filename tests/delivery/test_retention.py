"""Claims about an output that is deleted from below: a snapshot is taken in time, and no gap is seen where none is."""

import shutil
from functools import partial
from pathlib import Path

import pytest
import structlog

from streamdedup.delivery.snapshots import ShardSnapshots
from streamdedup.kafka.records.records import Record
from streamdedup.settings import load
from streamdedup.worker import worker as worker_module
from tests.broker.topics import delete_records, produce, read_all
from tests.deployment import Deployment, keyed
from tests.local import Start
from tests.memory import Stage, over
from tests.snapshot.test_fingerprint import store_of

CONFIG = """\
kafka: {bootstrap_servers: localhost:9092, group_id: dedup}
source: {topic: events}
key: {field: id}
filter: {capacity: 4000, error_rate: 1e-3}
sink: {topic: unique}
"""


@pytest.mark.parametrize(
    ("keep", "labels", "label", "log_start", "expected"),
    [
        (3, [], 100, 0, "nothing"),
        (3, [], 100, 1, "due, exposed"),  # what is deleted is in no snapshot
        (3, [80], 100, 0, "nothing"),
        (3, [80], 100, 1, "due"),  # without that one, the output could not be folded
        (3, [80], 100, 81, "due, exposed"),
        (3, [80, 60], 100, 60, "nothing"),
        (3, [80, 60], 100, 61, "due"),
        (3, [80, 60], 80, 61, "due"),  # idle: a second one with the same label
        (3, [80, 80], 80, 80, "nothing"),
        (3, [80, 80], 80, 95, "nothing"),  # none of ours is deleted above the label
        (1, [80], 100, 80, "nothing"),  # there is to be one only
        (1, [80], 100, 81, "due, exposed"),
        (1, [80], 80, 81, "nothing"),
    ],
)
def test_a_snapshot_is_due_while_one_alone_can_be_used(
    tmp_path: Path, *, keep: int, labels: list[int], label: int, log_start: int, expected: str
) -> None:
    """When the log starts above the label of the newest but one; never where another would not help."""
    path = tmp_path / "dedup.yaml"
    path.write_text(f"{CONFIG}snapshot: {{directory: {tmp_path}, keep: {keep}}}\n")
    snapshots = ShardSnapshots(load(path, environ={}), 0, structlog.get_logger())
    snapshots._labels = labels
    due, exposed = snapshots.due(label, log_start), snapshots.exposes(label, log_start)
    assert (due, exposed) == ("due" in expected, "exposed" in expected)


@pytest.mark.needs_broker("topic ids")
@pytest.mark.rule(6)
async def test_a_snapshot_is_taken_before_retention_takes_the_last_but_one(
    deployment: Deployment, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before `interval_s`; with a warning where only memory knows what is gone; twice for a shard that is idle."""
    monkeypatch.setattr(worker_module, "RETENTION_EVERY_S", 0.1)
    bootstrap, sink, store = deployment.bootstrap, deployment.sink, store_of(deployment)

    async def saved(*labels: int) -> None:
        await worker.until(lambda: tuple(store.labels()) == labels, f"snapshots {labels}")

    async with start(deployment) as worker:
        await worker.live()
        deployment.feed(keyed(range(100), 1))
        await worker.consumed(100)
        first = worker.label  # 100, and a marker more for each transaction before the last
        delete_records(bootstrap, sink, {0: 50})
        await saved(first, first)  # as the newest and as the newest but one
        deployment.feed(keyed(range(100, 200), 1))
        await worker.consumed(200)
        second = worker.label
        delete_records(bootstrap, sink, {0: first + 50})
        await saved(second, first, first)
        delete_records(bootstrap, sink, {0: second + 1})
        await saved(second, second, first)
    due = [
        (line["log_level"], line["newest"], line["label"]) for line in worker.lines("snapshot_due")
    ]
    assert due == [
        ("warning", 0, first),
        ("info", first, first),
        ("warning", first, second),
        ("info", second, second),
    ]
    deployment.feed(keyed(range(250), 1))
    await start(deployment).through(250)
    assert len(read_all(bootstrap, sink)) == 50


@pytest.mark.needs_broker("topic ids")
@pytest.mark.rule(6)
async def test_an_idle_output_that_was_deleted_whole_is_no_gap(
    deployment: Deployment, start: Start
) -> None:
    """Only the marker behind the last event is missing between the label and the log's start."""
    deployment.feed(keyed(range(100), 1))
    await start(deployment).through(100)
    delete_records(deployment.bootstrap, deployment.sink, {0: -1})
    deployment.feed(keyed(range(105), 1))
    worker = await start(deployment).through(105)
    assert not worker.lines("shard_stopped")
    (gap,) = worker.lines("output_gap_empty")
    assert (gap["label"], gap["start"]) == (100, 101)
    assert len(read_all(deployment.bootstrap, deployment.sink)) == 5


@pytest.mark.needs_broker("topic ids")
@pytest.mark.rule(6)
async def test_aborted_events_that_were_deleted_are_no_gap(
    deployment: Deployment, start: Start
) -> None:
    """A crash left them above the label, retention took them: the commit tells that none of ours is missing."""
    bootstrap, sink = deployment.bootstrap, deployment.sink
    deployment.feed(keyed(range(100), 1))
    await start(deployment).through(100)
    produce(bootstrap, sink, keyed(range(100, 150), 1), transactional_id=f"{sink}/0", abort=True)
    delete_records(bootstrap, sink, {0: -1})
    deployment.feed(keyed(range(105), 1))
    worker = await start(deployment).through(105)
    (gap,) = worker.lines("output_gap_empty")
    assert (gap["label"], gap["start"]) == (100, 152)
    assert len(read_all(bootstrap, sink)) == 5


@pytest.mark.finding("output-trimmed")
@pytest.mark.needs_broker("topic ids")
@pytest.mark.rule(6)
async def test_committed_events_that_were_deleted_are_a_gap(
    deployment: Deployment, start: Start
) -> None:
    """Above the snapshot's label, but below that of the commit: it stops, whatever was aborted besides."""
    bootstrap, sink, directory = deployment.bootstrap, deployment.sink, deployment.directory
    deployment.feed(keyed(range(100), 1))
    await start(deployment).through(100)
    shutil.copytree(directory / "snapshots", directory / "old")
    deployment.feed(keyed(range(100, 110), 1))
    await start(deployment).through(10)
    deployment.config["snapshot"]["directory"] = str(directory / "old")
    delete_records(bootstrap, sink, {0: -1})
    assert "begins at offset 112, and the events from 100" in await start(deployment).stopped()


@pytest.mark.rule(5)
@over(partial(Stage, retention_ms=86_400_000))
async def test_the_time_of_a_trimmed_output_stands_in_the_commit(stage: Stage) -> None:
    """What retention deletes is older than the window: no gap, and a fold begins at the time that was committed."""
    window = {"kind": "window", "capacity": 1000, "retention": "7s", "generations": 8}
    stage.config["filter"] = {**window, "late": "drop", "max_jump": "1s"}
    now_ms = stage.broker.now_ms() - 3_600_000
    sent = [Record.of(now_ms + 1000 * number, b"%d" % number, b"") for number in range(20)]
    stage.broker.append(stage.source, 0, sent, None)
    await stage.ended(20)
    assert len(stage.output) == 20
    stage.deployment.delete_snapshots()
    output = stage.broker.log(stage.sink, 0)
    output.trim(output.end)
    more = [Record.of(now_ms + 1000 * at, key, b"") for at, key in ((5, b"late"), (19, b"new"))]
    stage.broker.append(stage.source, 0, more, None)
    worker = await stage.ended(2)
    assert worker.lines("output_gap_outlived")
    assert [event.key for event in stage.output] == [b"new"]
