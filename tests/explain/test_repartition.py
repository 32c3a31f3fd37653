"""Claims about `streamdedup explain` with `source.repartition`: places are in the inputs; on a broker in memory."""

import json

from streamdedup.commands.explain import explain, explain_at
from streamdedup.events import Column
from streamdedup.explain.event_report import EventReport
from streamdedup.explain.of_keys import KeyAnswer
from streamdedup.kafka.partitions import InputPartition
from streamdedup.keys.placement import partitions_of
from streamdedup.settings import load
from streamdedup.testing import connected_to
from tests.commands.test_reset_staged import only_copied, work
from tests.memory import over
from tests.staged import INPUTS, PLACES, MemoryStage


async def asked(stage: MemoryStage, partition: int, offset: int) -> EventReport:
    """What became of an event of the input."""
    at = InputPartition(stage.source, partition)
    settings = load(stage.deployment.write_config())
    return await explain_at(settings, at, offset, connected_to(stage.broker))


async def key(stage: MemoryStage, text: bytes) -> KeyAnswer:
    """The answer about one key."""
    settings = load(stage.deployment.write_config())
    report = await explain(settings, [text], connected_to(stage.broker))
    try:
        (answer,) = report.answers()
    finally:
        report.close()
    return answer


@over(MemoryStage)
async def test_an_event_and_a_key_have_their_places_in_the_inputs(stage: MemoryStage) -> None:
    """A key lies in one partition of the output, whatever the partitions of its events."""
    stage.feed([*range(40), *range(40)])
    await work(stage, 80)
    first, again = dict[object, tuple[int, int]](), dict[object, tuple[int, int]]()
    placed = [
        (partition, event)
        for partition, events in enumerate(stage.broker.read_all(stage.source))
        for event in events
    ]
    for partition, event in placed:
        number = json.loads(event.value or b"")["id"]
        kept = first if number not in first else again
        kept[number] = partition, event.offset
    outcomes = [(await asked(stage, *places[7])).outcome for places in (first, again)]
    assert sorted(outcome.kind for outcome in outcomes) == ["duplicate", "passed"]
    answer = await key(stage, b"7")
    (there,) = answer.partitions
    home = int(partitions_of(Column.of([b"7"]), PLACES)[0])
    assert (answer.home, there.known.partition) == (home, home)
    assert there.place is not None
    assert there.place.copy is not None
    assert there.place.copy.topic == stage.source
    where = there.place.copy.partition, there.place.copy.offset
    assert where in {first[7], again[7]}
    assert (await asked(stage, *where)).outcome.kind == "passed"


@over(MemoryStage)
async def test_an_event_that_waits_is_unread(stage: MemoryStage) -> None:
    """Before the first stage has copied it, and while its copy waits in the middle topic."""
    stage.feed(range(9))
    await work(stage, 9)
    ends = [log.end for log in stage.broker.topics[stage.source].logs]
    stage.broker.produce(
        stage.source, [(n, None, json.dumps({"id": f"new{n}"}).encode()) for n in range(INPUTS)]
    )
    report = await asked(stage, 1, ends[1])
    assert (report.outcome.kind, report.status) == ("unread", 4)
    assert "the first stage has not copied it" in report.outcome.text
    await only_copied(stage)
    report = await asked(stage, 1, ends[1])
    assert report.outcome.kind == "unread"
    assert "its copy waits at" in report.outcome.text
    await work(stage, INPUTS)
    assert (await asked(stage, 1, ends[1])).outcome.kind == "passed"
