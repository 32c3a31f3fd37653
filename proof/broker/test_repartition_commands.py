"""Claims about `reset` and `audit` with `source.repartition`, on a real broker: two groups, one promise."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from streamdedup.commands.audit import Report, audit
from streamdedup.commands.reset import _opened, move, plan
from streamdedup.commands.reset_plan import STAY, ResetPlan, target_of
from streamdedup.commands.reset_stages import Stages
from streamdedup.commands.reset_text import as_text
from streamdedup.delivery.services import wall_clock_ms
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.partitions import InputPartition
from streamdedup.settings import load
from tests.broker.base import Broker
from tests.broker.topics import (
    Event,
    committed,
    create_topic,
    end_offsets,
    produce,
    read_all,
    unique_name,
)
from tests.local import LocalWorker, Start
from tests.spread import PARTITIONS, spread
from tests.staged import PLACES, Staged

pytestmark = pytest.mark.broker

STREAM = spread(3_000, 1_000)


async def worked(
    broker: Broker, directory: Path, start: Start, events: Sequence[Event] = STREAM.events
) -> Staged:
    """A deployment that has judged `events`, and has no worker now."""
    staged = Staged(broker.bootstrap_servers, directory)
    await asyncio.to_thread(staged.feed, events)
    await run(staged, start, len(events))
    return staged


async def run(staged: Staged, start: Start, events: int) -> LocalWorker:
    """Let a worker judge so many events, and drain."""
    async with start(staged) as worker:
        await worker.consumed(events)
        return worker


async def planned(staged: Staged, to: str, *, forget: bool = False) -> ResetPlan:
    """What a reset would do."""
    target = target_of(to, wall_clock_ms())
    return await plan(load(staged.write_config()), target, forget=forget)


async def reset(staged: Staged, to: str, *, forget: bool = False) -> str:
    """Do it; what is said beforehand."""
    settings = load(staged.write_config())
    what = await planned(staged, to, forget=forget)
    await move(settings, what)
    return as_text(settings, what)


def copied(staged: Staged) -> dict[int, int]:
    """The offsets of the first stage."""
    return committed(staged.bootstrap, f"{staged.group}-repartition", staged.source)


async def notes(staged: Staged) -> tuple[dict[int, Note], dict[int, Note]]:
    """The notes of both groups: of the first stage, and of the second."""
    async with kafka_cluster(load(staged.write_config()).kafka) as cluster:
        first = await cluster.notes(f"{staged.group}-repartition", staged.source, PARTITIONS)
        return first, await cluster.notes(staged.group, staged.middle, PLACES)


# --- reset ---


async def test_the_first_stage_moves_and_nothing_is_emitted_twice(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """To the end and to the start; each event is copied again, and known. The second stage stays where it is."""
    staged = await worked(broker, tmp_path, start)
    before = await notes(staged)
    judged = committed(staged.bootstrap, staged.group, staged.middle)
    said = await reset(staged, "latest")
    assert f"group {staged.group}-repartition on {staged.source}, to latest" in said
    assert f"group {staged.group} on {staged.middle}: stays where it is\n" in said
    ends = end_offsets(staged.bootstrap, staged.source)
    assert copied(staged) == {p: ends[p] for p in range(PARTITIONS)}
    said = await reset(staged, "earliest")
    assert "none of these is emitted again" in said
    assert copied(staged) == dict.fromkeys(range(PARTITIONS), 0)
    assert await notes(staged) == before
    assert committed(staged.bootstrap, staged.group, staged.middle) == judged
    worker = await run(staged, start, len(STREAM.events))
    assert not worker.lines("input_begun_anew")
    assert staged.ids() == dict.fromkeys(staged.ids(), 1)
    assert len(staged.ids()) == STREAM.distinct


async def test_what_is_forgotten_is_emitted_again_once(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """After --forget each key comes once more, and after a plain reset then none."""
    staged = await worked(broker, tmp_path, start)
    said = await reset(staged, "earliest", forget=True)
    assert f"group {staged.group} on {staged.middle}: stays where it is, with empty" in said
    assert "are not read yet" not in said
    _, second = await notes(staged)
    ends = end_offsets(staged.bootstrap, staged.sink)
    assert {p: (note.floor, note.placed) for p, note in second.items()} == {
        p: (end, PLACES) for p, end in ends.items()
    }
    await run(staged, start, len(STREAM.events))
    assert Counter(staged.ids().values()) == {2: STREAM.distinct}
    assert "An earlier --forget stays in force" in await reset(staged, "earliest")
    await run(staged, start, len(STREAM.events))
    assert Counter(staged.ids().values()) == {2: STREAM.distinct}


async def test_a_reset_that_was_killed_between_both_groups_is_finished_by_another(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """The floor is set, the input has not moved: nothing is read again until the reset is run once more."""
    staged = await worked(broker, tmp_path, start)
    half = await planned(staged, "earliest", forget=True)
    async with _opened(load(staged.write_config())) as stages:
        assert isinstance(stages, Stages)
        await stages._second.move(ResetPlan(STAY, True, half.floors))
    ends = end_offsets(staged.bootstrap, staged.source)
    assert copied(staged) == {p: ends[p] for p in range(PARTITIONS)}
    async with start(staged) as worker:
        await worker.live(PLACES)
        assert worker.tally.consumed == 0
    await reset(staged, "earliest", forget=True)
    await run(staged, start, len(STREAM.events))
    assert Counter(staged.ids().values()) == {2: STREAM.distinct}


async def test_unread_events_of_the_middle_are_judged_by_empty_filters(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """That is said: --forget --to latest does not skip what was copied before."""
    staged = await worked(broker, tmp_path, start)
    await asyncio.to_thread(staged.feed, STREAM.events)
    config = staged.write_config()
    await only_copied(staged, config)
    said = await reset(staged, "latest", forget=True)
    assert f"offsets of {staged.middle} are not read yet" in said
    await run(staged, start, len(STREAM.events))
    assert Counter(staged.ids().values()) == {2: STREAM.distinct}


async def only_copied(staged: Staged, config: Path) -> None:
    """Let the first stage copy everything, and drain."""
    first = staged.stage("repartition", config)
    try:
        ends = end_offsets(staged.bootstrap, staged.source)
        await staged.until_copied(ends)
        assert await asyncio.to_thread(first.interrupt) == 0
    finally:
        first.kill()


async def test_neither_group_may_have_members(broker: Broker, tmp_path: Path, start: Start) -> None:
    """Each is named; nothing is moved."""
    staged = await worked(broker, tmp_path, start)
    before = copied(staged)
    config = staged.write_config()
    for stage, ready, group in (
        ("repartition", "repartition_live", f"{staged.group}-repartition"),
        ("deduplicate", "shard_live", staged.group),
    ):
        worker = staged.stage(stage, config)
        try:
            await asyncio.to_thread(worker.wait_for, ready)
            for forget in (False, True):
                with pytest.raises(DeliveryError, match=f"the group {group} has 1 member"):
                    await reset(staged, "earliest", forget=forget)
            assert await asyncio.to_thread(worker.interrupt) == 0
        finally:
            worker.kill()
    assert copied(staged) == before


async def test_a_refused_meaning_stays_visible(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """Whoever resets with another key: both groups keep the meaning that the middle and the output were made with."""
    staged = await worked(broker, tmp_path, start)
    first, second = await notes(staged)
    staged.config["key"] = {"field": "other"}
    for forget in (False, True):
        await reset(staged, "earliest", forget=forget)
        moved = await notes(staged)
        for before, after in zip((first, second), moved, strict=True):
            assert {p: n.meaning for p, n in before.items()} == {
                p: n.meaning for p, n in after.items()
            }


async def test_a_killed_first_stage_is_waited_for(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """A transaction that it left open, with offsets in it, would undo the reset if it ended later."""
    staged = await worked(broker, tmp_path, start)
    what = await planned(staged, "earliest")
    settings = load(staged.write_config())
    produce(staged.bootstrap, staged.source, STREAM.events[:10])
    async with kafka_cluster(settings.kafka) as cluster:
        left = await staged.left_open(cluster)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await move(settings, what)
        finally:
            await left.drop()
        assert loop.time() - began > 1.0
    assert copied(staged) == dict.fromkeys(range(PARTITIONS), 0)


async def test_a_middle_that_is_not_there_is_named(broker: Broker, tmp_path: Path) -> None:
    """Before any worker ran there is nothing to reset."""
    staged = Staged(broker.bootstrap_servers, tmp_path)
    with pytest.raises(ConfigError, match=f"the middle topic {staged.middle} does not exist"):
        await planned(staged, "earliest")


# --- audit ---


async def audited(staged: Staged, *overrides: str) -> Report:
    """The report."""
    return await audit(load(staged.write_config(), overrides))


def found(report: Report) -> dict[str, int | None]:
    """The findings over all partitions."""
    total = report.total
    names = ("lost", "missing", "wrongly_dropped", "doubled", "foreign")
    return {name: getattr(total, name) for name in names}


async def test_an_audit_finds_what_is_missing_doubled_and_misplaced(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """Of a good deployment nothing; of an output with one event less, one more, or one elsewhere, just that."""
    staged = await worked(broker, tmp_path, start)
    report = await audited(staged)
    assert report.fine, report.as_text()
    assert found(report) == {**dict.fromkeys(found(report), 0), "wrongly_dropped": None}
    total, staged_part = report.total, report.repartition
    assert staged_part is not None
    assert (total.read, total.keys, total.emitted) == (len(STREAM.events), 1_000, 1_000)
    assert (staged_part.under_way, staged_part.misplaced) == (0, 0)
    assert report.as_json()["repartition"]["middle"] == staged.middle
    assert report.as_text().endswith("the promise holds\n"), report.as_text()

    records = read_all(staged.bootstrap, staged.sink)
    output: list[Event] = [
        (r.partition, r.key, r.value, list(r.headers), r.timestamp_ms) for r in records
    ]
    copy = unique_name("copy")
    create_topic(staged.bootstrap, copy, PLACES)
    produce(staged.bootstrap, copy, output[3:])  # one may be a false duplicate
    report = await audited(staged, f"sink.topic={copy}")
    assert found(report)["missing"] == 3
    (breach,) = report.breaches
    assert "3 keys in the input but not in the output" in breach
    places = report.repartition.places["missing"] if report.repartition else ()
    named = read_all(staged.bootstrap, staged.source)
    values = {
        r.value for r in named if (InputPartition(staged.source, r.partition), r.offset) in places
    }
    assert values == {value for _, _, value, _, _ in output[:3]}

    produce(staged.bootstrap, copy, output[:4])
    report = await audited(staged, f"sink.topic={copy}")
    assert (found(report)["missing"], found(report)["doubled"]) == (0, 1)
    (breach,) = report.breaches
    assert breach.startswith("1 event emitted again; first: ")

    other = unique_name("copy")
    create_topic(staged.bootstrap, other, PLACES)
    moved = ((output[0][0] + 1) % PLACES, *output[0][1:])
    produce(staged.bootstrap, other, [moved, *output[1:]])
    report = await audited(staged, f"sink.topic={other}")
    assert found(report) == {**dict.fromkeys(found(report), 0), "wrongly_dropped": None}
    (breach,) = report.breaches
    assert "1 event in another partition of the output than that of their key" in breach
    assert f"{other}/{moved[0]} at offset 0" in breach


async def test_what_waits_in_the_middle_is_under_way(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """If the second stage is stopped, keys that it has not read are not missing; once it has, they are due."""
    half = len(STREAM.events) // 2
    staged = await worked(broker, tmp_path, start, STREAM.events[:half])
    await asyncio.to_thread(staged.feed, STREAM.events[half:])
    await only_copied(staged, staged.write_config())
    report = await audited(staged)
    assert report.fine, report.as_text()
    assert report.repartition is not None
    assert report.repartition.under_way == len(STREAM.events) - half
    assert (
        f"under way in {staged.middle}: {report.repartition.under_way:,} events" in report.as_text()
    )
    assert (report.total.read, report.total.missing) == (len(STREAM.events), 0)
    assert report.total.keys == report.total.emitted < STREAM.distinct
    await run(staged, start, len(STREAM.events) - half)
    report = await audited(staged)
    assert (report.fine, report.total.keys) == (True, STREAM.distinct), report.as_text()
    await reset(staged, "earliest", forget=True)
    report = await audited(staged)
    assert report.fine, report.as_text()
    assert "reset --forget" in " ".join(report.notes)
    await run(staged, start, len(STREAM.events))
    report = await audited(staged)
    assert (report.fine, report.total.emitted, report.total.missing) == (True, 1_000, None)
