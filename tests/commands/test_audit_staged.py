"""Claims about `streamdedup audit` with `source.repartition`, over a broker in memory."""

import pytest

from streamdedup.events import Column
from streamdedup.keys.placement import partitions_of
from tests.commands.test_reset_staged import audited, work
from tests.memory import over
from tests.staged import PLACES, MemoryStage, value


@pytest.mark.parametrize(
    "filter_", [{"kind": "bloom"}, {"kind": "exact"}, {"kind": "window", "capacity": 10_000}]
)
@over(MemoryStage)
async def test_every_sort_of_event_is_accounted_for(
    stage: MemoryStage, filter_: dict[str, object]
) -> None:
    """Duplicates by their topic, malformed events by letters that name the input, tombstones by what they hold."""
    config = stage.deployment.config
    config["filter"] = {"capacity": 100_000, "error_rate": 1e-9, **filter_}
    config["sink"] |= {"dead_letter_topic": "letters", "duplicates_topic": "again"}
    config["key"]["on_malformed"] = "dead_letter"
    stage.feed([*range(300), *range(100)])
    stage.broker.produce(stage.source, [(n % 3, b"r%d" % n, b"no json") for n in range(20)])
    stage.broker.produce(stage.source, [(n % 3, b"t%d" % n, None) for n in range(10)])
    await work(stage, 430)
    report = await audited(stage)
    assert report.fine, report.as_text()
    total = report.total
    assert (total.read, total.keys, total.emitted, total.duplicates) == (430, 300, 310, 100)
    assert (total.malformed, total.unjudged) == (20, 10)
    assert (total.lost, total.missing, total.wrongly_dropped) == (0, 0, 0)
    assert (total.doubled, total.foreign, total.limits) == (0, 0, ())
    assert total.due_again == (0 if filter_["kind"] == "window" else None)
    stage.broker.create_topic("fewer", PLACES)
    config["sink"]["dead_letter_topic"] = "fewer"
    report = await audited(stage)
    assert report.total.lost == 20
    (breach,) = report.breaches
    assert breach.startswith("20 events lost; first: ")


@over(MemoryStage)
async def test_what_was_written_by_others_is_found(stage: MemoryStage) -> None:
    """A key of no input event is foreign; an emitted key in another partition is doubled, and misplaced."""
    stage.feed(range(100))
    await work(stage, 100)
    own, strange = (int(partitions_of(Column.of([k]), PLACES)[0]) for k in (b"7", b"strange"))
    stage.broker.produce(stage.deployment.sink, [(strange, None, value("strange"))])
    other = (own + 1) % PLACES
    stage.broker.produce(stage.deployment.sink, [(other, None, value(7))])
    report = await audited(stage)
    assert report.repartition is not None
    assert (report.total.foreign, report.total.doubled) == (1, 1)
    assert report.repartition.misplaced == 1
    assert len(report.breaches) == 3, report.as_text()
    first = report.as_json()["repartition"]["first"]
    assert first["foreign"][0]["partition"] == strange
    assert first["misplaced"][0]["partition"] == other
