"""The first stage and the second, over a broker in memory: rules that need their directed tests."""

import asyncio
from collections import Counter

import pytest

from streamdedup.errors import ConfigError
from streamdedup.kafka.offsets import Note
from streamdedup.testing.cluster import MemoryCluster
from streamdedup.testing.transactions import LOGS, OFFSETS
from streamdedup.worker import staged
from tests.memory import over
from tests.staged import INPUTS, PLACES, MemoryStage, value

IDS = [number % 700 for number in range(2_000)]
EACH_ONCE = Counter({str(number): 1 for number in range(700)})


@over(MemoryStage)
async def test_each_key_passes_once(stage: MemoryStage) -> None:
    """Wherever its events lie; and after a restart nothing passes again."""
    await stage.judge(IDS)
    stage.feed(range(650, 750))
    async with stage.start() as worker:
        await worker.consumed(100)
    assert stage.ids() == EACH_ONCE + Counter({str(n): 1 for n in range(700, 750)})


@pytest.mark.rule(22)
@over(MemoryStage)
async def test_several_workers_share_both_stages(stage: MemoryStage) -> None:
    """One that leaves and one that joins, while events flow: each key once, each event copied once."""
    first = stage.start()
    await first.live(PLACES)
    stage.feed(IDS[:500])
    second = stage.start()
    await first.until(lambda: len(second.worker.deliveries) == PLACES // 2, "shares")
    stage.feed(IDS[500:1_500])
    await first.until(lambda: stage.copies() >= 1_200, "copies")
    await first.stop()
    stage.feed(IDS[1_500:])
    await second.until(lambda: stage.copies() >= len(IDS), "all copies")
    await asyncio.sleep(10)
    assert stage.copies() == len(IDS)
    assert stage.ids() == EACH_ONCE


@pytest.mark.rule(28)
@over(MemoryStage)
async def test_offsets_that_were_moved_back_pass_nothing_again(stage: MemoryStage) -> None:
    """The input is copied once more, and the second stage knows its keys."""
    await stage.judge(IDS)
    stage.broker.move_offsets(stage.copying_group, stage.source, dict.fromkeys(range(INPUTS), 0))
    async with stage.start() as worker:
        await worker.consumed(len(IDS))
    assert stage.copies() == 2 * len(IDS)
    assert stage.ids() == EACH_ONCE


@pytest.mark.parametrize("which", ["copying", "deduplicating", "both"])
@pytest.mark.rule(23)
@over(MemoryStage)
async def test_deleted_groups_lose_and_double_nothing(stage: MemoryStage, which: str) -> None:
    """The first stage then begins at the earliest event, whatever `source.start` says: it is no birth."""
    await stage.judge(IDS)
    stage.feed(range(690, 720))
    if which != "deduplicating":
        stage.broker.delete_group(stage.copying_group)
    if which != "copying":
        stage.broker.delete_group(stage.deployment.group)
    async with stage.start(source={"start": "latest"}) as worker:
        await worker.until(lambda: len(stage.ids()) == 720, "the new ids")
        await asyncio.sleep(10)
    assert stage.ids().total() == 720


@pytest.mark.rule(23)
@over(MemoryStage)
async def test_latest_holds_at_the_birth_alone(stage: MemoryStage) -> None:
    """What was there before passes by; what came while the worker was down does not."""
    stage.feed(range(100))
    async with stage.start(source={"start": "latest"}) as worker:
        await worker.until(lambda: begun(stage) == INPUTS, "offsets")
    stage.feed(range(100, 150))
    async with stage.start(source={"start": "latest"}) as worker:
        await worker.consumed(50)
    assert stage.ids() == Counter({str(number): 1 for number in range(100, 150)})


def begun(stage: MemoryStage) -> int:
    """In how many partitions of the input the first stage has an offset."""
    return len(stage.broker.committed(stage.copying_group, stage.source))


@pytest.mark.rule(23)
@over(MemoryStage)
async def test_a_middle_that_was_made_again_is_filled_anew(stage: MemoryStage) -> None:
    """What waited in the old one unread is copied again, and nothing passes twice."""
    await stage.judge(IDS)
    stage.broker.delete_topic(stage.middle)
    async with stage.start() as worker:
        await worker.consumed(len(IDS))
        await worker.logged("input_begun_anew", INPUTS)
    assert stage.ids() == EACH_ONCE


@pytest.mark.rule(23)
@over(MemoryStage)
async def test_the_middle_is_deleted_under_a_running_worker(stage: MemoryStage) -> None:
    """The worker ends; the next one makes good what was in the old topic."""
    stage.feed(IDS[:1_000])
    worker = stage.start()
    await worker.consumed(1_000)
    stage.broker.delete_topic(stage.middle)
    with pytest.raises(Exception, match="deleted"):
        await worker.task
    stage.feed(IDS[1_000:])
    async with stage.start() as again:
        await again.until(lambda: stage.ids() == EACH_ONCE, "all ids")
        await asyncio.sleep(10)
    assert stage.ids() == EACH_ONCE


@pytest.mark.rule(28)
@over(MemoryStage)
async def test_more_partitions_of_the_input_need_no_decision(stage: MemoryStage) -> None:
    """The new ones are read from their first event."""
    await stage.judge(IDS)
    stage.broker.add_partitions(stage.source, INPUTS + 2)
    stage.broker.produce(stage.source, [(INPUTS + 1, None, value(n)) for n in range(690, 710)])
    async with stage.start(source={"start": "latest"}) as worker:
        await worker.consumed(20)
        assert not worker.lines("shard_stopped")
    assert len(stage.ids()) == stage.ids().total() == 710


@pytest.mark.finding("meaning-differs")
@pytest.mark.rule(20)
@over(MemoryStage)
async def test_another_meaning_stops(stage: MemoryStage) -> None:
    """Another key under the same groups: every partition stops, and nothing passes."""
    await stage.judge(IDS)
    before = stage.ids()
    stage.feed(range(5_000, 5_100))
    async with stage.start(key={"field": "other"}) as worker:
        for line in await worker.logged("repartition_partition_stopped", INPUTS):
            assert line["error"].startswith(f"{stage.source}/{line['partition']}: the offset ")
        lines = await worker.logged("shard_stopped", PLACES)
        assert all("another meaning" in line["error"] for line in lines)
    assert stage.ids() == before


@pytest.mark.rule(20)
@over(MemoryStage)
async def test_an_older_deployment_is_refused(stage: MemoryStage) -> None:
    """A group that has read the input itself has an output that is spread by another rule."""
    repartition = stage.config["source"].pop("repartition")
    await stage.judge(IDS)
    stage.config["source"]["repartition"] = repartition
    await stage.refused(f"has offsets on {stage.source}")


@pytest.mark.rule(20)
@over(MemoryStage)
async def test_to_turn_it_off_is_refused(stage: MemoryStage) -> None:
    """The output is spread by the judged key, and the input is not."""
    await stage.judge(IDS)
    del stage.config["source"]["repartition"]
    await stage.refused("has worked with source.repartition")


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@over(MemoryStage)
async def test_an_old_broker_is_refused(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    """The first stage asks for offsets once they are decided, by either guarantee."""

    async def unsupported(*_: object) -> bool:
        return False

    monkeypatch.setattr(MemoryCluster, "supports_stable_offsets", unsupported)

    stage.config["delivery"]["guarantee"] = guarantee
    await stage.refused("source.repartition needs a broker of Kafka 2.5")


@pytest.mark.rule(21)
@over(MemoryStage)
async def test_another_group_on_the_middle_ends_the_worker(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets are enough: who reads there may rely on what we delete. It is looked for at the start and later."""
    monkeypatch.setattr(staged, "OWNER_EVERY_S", 1.0)
    stage.feed(IDS)
    worker = stage.start()
    await worker.consumed(len(IDS))
    stage.broker.move_offsets("stranger", stage.middle, {0: 1})
    with pytest.raises(ConfigError, match="stranger"):
        await worker.task
    await stage.refused("stranger")


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("retention.ms", 1_000_000),
        ("retention.bytes", 1_000_000),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.after.max.ms", 3_600_000),
        ("message.timestamp.before.max.ms", 3_600_000),
        ("unclean.leader.election.enable", "true"),
        ("max.message.bytes", 1_048_588),
        ("partitions", PLACES + 1),
    ],
)
@pytest.mark.rule(21)
@over(MemoryStage)
async def test_a_middle_that_does_not_suit_is_refused(
    stage: MemoryStage, setting: str, wrong: str | int
) -> None:
    """By name; so is one of fewer partitions, or more."""
    settings = {"max_message_bytes": 4_000_000, setting.replace(".", "_"): wrong}
    partitions = int(settings.pop("partitions", PLACES))
    stage.broker.create_topic(stage.middle, partitions, **settings)
    await stage.refused(f"{setting}={wrong}" if partitions == PLACES else f"has {wrong} partitions")


@pytest.mark.parametrize("lost", [{LOGS}, {OFFSETS}, {LOGS, OFFSETS}])
@pytest.mark.rule(22)
@over(MemoryStage)
async def test_lost_markers_are_made_good(stage: MemoryStage, lost: set[str]) -> None:
    """A transaction of the stage that the broker left undecided is ended by the next producer of its name."""
    stage.config["kafka"]["group_instance_id"] = "one"
    stage.feed(IDS[:1_000])
    async with stage.start() as worker:
        await worker.consumed(1_000)
        transaction = stage.broker.transaction(f"{stage.middle}/one")
        transaction.loses = frozenset(lost)
        stage.feed(IDS[1_000:])
        await worker.until(
            lambda: (
                worker.worker.status.copying is not None
                and worker.worker.status.copying.copied == len(IDS)
            ),
            "copies",
        )
    transaction.loses = frozenset()
    async with stage.start() as again:
        await again.until(lambda: stage.ids() == EACH_ONCE, "all ids")
        await asyncio.sleep(30)
        assert again.lines("transaction_finished")
    assert stage.ids() == EACH_ONCE


@over(MemoryStage)
async def test_notes_name_the_middle_and_the_meaning(stage: MemoryStage) -> None:
    """The first stage's name the middle topic's id; the second's how many partitions keys were placed over."""
    await stage.judge(IDS)
    topics = stage.broker.topics
    for name, topic, sink in (
        (stage.copying_group, stage.source, stage.middle),
        (stage.deployment.group, stage.middle, stage.sink),
    ):
        for (of, _), (_, text) in stage.broker.group(name).offsets.items():
            note = Note.decode(text)
            assert of == topic and note is not None
            assert (note.input_id, note.output_id) == (
                topics[topic].topic.topic_id,
                topics[sink].topic.topic_id,
            )
            assert note.placed == (PLACES if topic == stage.middle else None)
