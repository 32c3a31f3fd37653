"""Claims about `reset` and `audit` with `source.repartition`, over a broker in memory: two groups, one promise."""

from collections import Counter

import pytest

from streamdedup.commands.audit import Report, audit
from streamdedup.commands.reset import _opened, move, plan
from streamdedup.commands.reset_plan import STAY, ResetPlan, target_of
from streamdedup.commands.reset_stages import Stages
from streamdedup.commands.reset_text import as_text
from streamdedup.delivery.services import wall_clock_ms
from streamdedup.errors import ConfigError
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.records import Record
from streamdedup.settings import Settings, load
from streamdedup.testing import Logged, connected_to
from tests.local import until
from tests.memory import over
from tests.staged import INPUTS, PLACES, MemoryStage, value

DISTINCT = 200
IDS = [*range(DISTINCT), *range(100)]


def settings_of(stage: MemoryStage, *overrides: str) -> Settings:
    """The configuration as it is now."""
    return load(stage.deployment.write_config(), overrides)


async def work(stage: MemoryStage, events: int = len(IDS)) -> None:
    """Let a worker judge so many events, and drain."""
    async with stage.start() as worker:
        await worker.consumed(events)


async def only_copied(stage: MemoryStage) -> None:
    """Let the first stage copy everything, and drain."""
    async with stage.copying():
        await until(lambda: copied(stage) == ends(stage), lambda: f"at {copied(stage)}")


async def planned(stage: MemoryStage, to: str, *, forget: bool = False) -> ResetPlan:
    """What a reset would do."""
    target = target_of(to, wall_clock_ms())
    return await plan(settings_of(stage), target, connected_to(stage.broker), forget=forget)


async def reset(stage: MemoryStage, to: str, *, forget: bool = False) -> str:
    """Do it; what is said beforehand."""
    what = await planned(stage, to, forget=forget)
    await move(settings_of(stage), what, connected_to(stage.broker))
    return as_text(settings_of(stage), what)


def ends(stage: MemoryStage) -> dict[int, int]:
    """The ends of the input."""
    return {p: stage.broker.log(stage.source, p).end for p in range(INPUTS)}


def copied(stage: MemoryStage) -> dict[int, int]:
    """The offsets of the first stage."""
    return stage.broker.committed(stage.copying_group, stage.source)


def judged(stage: MemoryStage) -> dict[int, int]:
    """The offsets of the second stage."""
    return stage.broker.committed(stage.deployment.group, stage.middle)


async def notes(stage: MemoryStage) -> tuple[dict[int, Note], dict[int, Note]]:
    """The notes of both groups: of the first stage, and of the second."""
    async with connected_to(stage.broker)(settings_of(stage).kafka) as cluster:
        first = await cluster.notes(stage.copying_group, stage.source, INPUTS)
        return first, await cluster.notes(stage.deployment.group, stage.middle, PLACES)


# --- reset ---


@over(MemoryStage)
async def test_the_first_stage_moves_and_nothing_is_emitted_twice(stage: MemoryStage) -> None:
    """To the end and to the start; each event is copied again, and known. The second stage stays where it is."""
    await stage.judge(IDS)
    before, judged_before = await notes(stage), judged(stage)
    said = await reset(stage, "latest")
    group = stage.deployment.group
    assert f"group {stage.copying_group} on {stage.source}, to latest" in said
    assert f"group {group} on {stage.middle}: stays where it is\n" in said
    assert copied(stage) == ends(stage)
    assert "none of these is emitted again" in await reset(stage, "earliest")
    assert copied(stage) == dict.fromkeys(range(INPUTS), 0)
    assert (await notes(stage), judged(stage)) == (before, judged_before)
    async with stage.start() as worker:
        await worker.consumed(len(IDS))
    assert not worker.lines("input_begun_anew")
    assert Counter(stage.ids().values()) == {1: DISTINCT}


@over(MemoryStage)
async def test_what_is_forgotten_is_emitted_again_once(stage: MemoryStage) -> None:
    """After --forget each key comes once more, and after a plain reset then none."""
    await stage.judge(IDS)
    said = await reset(stage, "earliest", forget=True)
    assert f"{stage.middle}: stays where it is, with empty" in said
    assert "are not read yet" not in said
    _, second = await notes(stage)
    assert {p: (note.floor, note.placed) for p, note in second.items()} == {
        p: (stage.broker.log(stage.deployment.sink, p).end, PLACES) for p in range(PLACES)
    }
    await work(stage)
    assert Counter(stage.ids().values()) == {2: DISTINCT}
    assert "An earlier --forget stays in force" in await reset(stage, "earliest")
    await work(stage)
    assert Counter(stage.ids().values()) == {2: DISTINCT}


@over(MemoryStage)
async def test_a_reset_that_was_killed_between_both_groups_is_finished_by_another(
    stage: MemoryStage,
) -> None:
    """The floor is set, the input has not moved: nothing is read again until the reset is run once more."""
    await stage.judge(IDS)
    half = await planned(stage, "earliest", forget=True)
    async with _opened(settings_of(stage), connected_to(stage.broker)) as stages:
        assert isinstance(stages, Stages)
        await stages._second.move(ResetPlan(STAY, True, half.floors))
    assert copied(stage) == ends(stage)
    async with stage.start() as worker:
        await worker.live(PLACES)
        assert worker.tally.consumed == 0
    await reset(stage, "earliest", forget=True)
    await work(stage)
    assert Counter(stage.ids().values()) == {2: DISTINCT}


@over(MemoryStage)
async def test_unread_events_of_the_middle_are_judged_by_empty_filters(stage: MemoryStage) -> None:
    """That is said: --forget --to latest does not skip what was copied before."""
    await stage.judge(IDS)
    stage.feed(IDS)
    await only_copied(stage)
    said = await reset(stage, "latest", forget=True)
    assert f"offsets of {stage.middle} are not read yet" in said
    await work(stage)
    assert Counter(stage.ids().values()) == {2: DISTINCT}


@over(MemoryStage)
async def test_a_refused_meaning_stays_visible(stage: MemoryStage) -> None:
    """Whoever resets with another key: both groups keep the meaning that the middle and the output were made with."""
    await stage.judge(IDS)
    before = await notes(stage)
    stage.deployment.config["key"] = {"field": "other"}
    for forget in (False, True):
        await reset(stage, "earliest", forget=forget)
        for old, new in zip(before, await notes(stage), strict=True):
            assert {p: n.meaning for p, n in old.items()} == {p: n.meaning for p, n in new.items()}


@over(MemoryStage)
async def test_a_middle_that_is_not_there_is_named(stage: MemoryStage) -> None:
    """Before any worker ran there is nothing to reset."""
    with pytest.raises(ConfigError, match=f"the middle topic {stage.middle} does not exist"):
        await planned(stage, "earliest")


# --- audit ---


async def audited(stage: MemoryStage, *overrides: str) -> Report:
    """The report."""
    return await audit(settings_of(stage, *overrides), connected_to(stage.broker))


def found(report: Report) -> tuple[int | None, ...]:
    """What is lost, missing, doubled and foreign, over all partitions."""
    total = report.total
    return total.lost, total.missing, total.doubled, total.foreign


def output_of(stage: MemoryStage) -> list[tuple[int, Logged]]:
    """The events of the output, each with its partition."""
    partitions = stage.broker.read_all(stage.deployment.sink)
    return [(number, event) for number, events in enumerate(partitions) for event in events]


def copy(stage: MemoryStage, name: str, events: list[tuple[int, Logged]]) -> None:
    """Append these to another output, which is made if it is not there."""
    if name not in stage.broker.topics:
        stage.broker.create_topic(name, PLACES)
    for partition, one in events:
        record = one.record
        stage.broker.log(name, partition).append([record])


@over(MemoryStage)
async def test_an_audit_finds_what_is_missing_doubled_and_misplaced(stage: MemoryStage) -> None:
    """Of a good deployment nothing; of an output with three events less, one more, or one elsewhere, just that."""
    await stage.judge(IDS)
    report = await audited(stage)
    assert report.as_text().endswith("the promise holds\n"), report.as_text()
    assert (report.fine, found(report)) == (True, (0, 0, 0, 0))
    total, staged = report.total, report.repartition
    assert staged is not None
    assert (total.read, total.keys, total.emitted) == (len(IDS), DISTINCT, DISTINCT)
    assert (staged.under_way, staged.misplaced) == (0, 0)
    assert report.as_json()["repartition"]["middle"] == stage.middle

    output = output_of(stage)
    copy(stage, "copy", output[3:])
    report = await audited(stage, "sink.topic=copy")
    assert found(report) == (0, 3, 0, 0)
    (breach,) = report.breaches
    assert "3 keys in the input but not in the output" in breach
    assert report.repartition is not None
    missing = {
        event.value
        for number, events in enumerate(stage.broker.read_all(stage.source))
        for event in events
        if (InputPartition(stage.source, number), event.offset)
        in report.repartition.places["missing"]
    }
    assert missing == {event.value for _, event in output[:3]}

    copy(stage, "copy", output[:4])
    report = await audited(stage, "sink.topic=copy")
    assert found(report) == (0, 0, 1, 0)
    (breach,) = report.breaches
    assert breach.startswith("1 event emitted again; first: ")

    elsewhere = (output[0][0] + 1) % PLACES
    copy(stage, "moved", [(elsewhere, output[0][1]), *output[1:]])
    report = await audited(stage, "sink.topic=moved")
    assert found(report) == (0, 0, 0, 0)
    (breach,) = report.breaches
    assert "1 event in another partition of the output than that of their key" in breach
    assert f"moved/{elsewhere} at offset 0" in breach


@over(MemoryStage)
async def test_what_is_not_decided_yet_does_not_wait(stage: MemoryStage) -> None:
    """Events of a transaction that is open on the input: nobody can read them, and the audit does not try."""
    await stage.judge(IDS)
    log = stage.broker.log(stage.source, 0)
    log.append([Record.of(1, b"key", value("open"), [])], "open")
    report = await audited(stage)
    assert (report.total.read, report.total.unread) == (len(IDS), 0)
    log.decide("open", committed=True)
    log.mark("open")
    report = await audited(stage)
    assert report.total.unread == 1
    assert f"{len(IDS):,} of {len(IDS) + 1:,} events that were read" in report.as_text()


@over(MemoryStage)
async def test_what_waits_in_the_middle_is_under_way(stage: MemoryStage) -> None:
    """If the second stage is stopped, keys that it has not read are not missing; once it has, they are due."""
    await stage.judge(IDS[:100])
    stage.feed(IDS[100:])
    await only_copied(stage)
    report = await audited(stage)
    assert report.fine, report.as_text()
    assert report.repartition is not None
    assert report.repartition.under_way == 200
    text = report.as_text()
    assert f"under way in {stage.middle}: 200 events" in text
    read = f"{len(IDS) - 200:,} of {len(IDS):,} events"
    judged = f"{len(IDS) - 200:,} judged; 200 events not read yet: by their timestamps the oldest"
    assert f"\nread: {read}: {judged} has waited " in text
    assert text.endswith(f" for the {read} that were read\n")
    total = report.total
    assert (total.unread, total.judged) == (0, len(IDS) - 200)
    assert (total.read, total.missing, total.keys, total.emitted) == (len(IDS), 0, 100, 100)
    await work(stage, 200)
    report = await audited(stage)
    assert (report.fine, report.total.keys) == (True, DISTINCT), report.as_text()
    await reset(stage, "earliest", forget=True)
    report = await audited(stage)
    assert report.fine, report.as_text()
    assert "reset --forget" in " ".join(report.notes)
    await work(stage)
    report = await audited(stage)
    total = report.total
    assert (report.fine, total.emitted, total.missing) == (True, DISTINCT, None)
