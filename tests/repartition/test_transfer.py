"""What the first stage does with events that have no key, or that the middle refuses; and when it pauses."""

import asyncio
import json
from collections.abc import Callable

import pytest
from aiokafka.errors import MessageSizeTooLargeError
from prometheus_client.parser import text_string_to_metric_families
from typing_extensions import override

from streamdedup.delivery.services import wall_clock_ms
from streamdedup.errors import DeliveryError
from streamdedup.events import Column, Verdict
from streamdedup.kafka.records.records import Record
from streamdedup.keys.placement import partitions_by_records
from streamdedup.metrics.catalogue import COPIED, COPY_MISSING, LAG_OF_ALL, METRICS
from streamdedup.repartition import purge
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.settings import load
from streamdedup.testing import MemoryBroker, connected_to
from streamdedup.worker.staged import CopyingWorker
from tests.local import LocalWorker
from tests.memory import over, page
from tests.staged import INPUTS, PLACES, MemoryStage, value

LARGE = 5_000
AHEAD_MS = 2 * 3_600_000
SOON_S = 3.0  # the stage holds up all partitions while it looks for what is refused


def large(number: int) -> bytes:
    """Return the value of an event that the middle refuses."""
    return json.dumps({"id": number, "x": "x" * LARGE}).encode()


class RefusingBroker(MemoryBroker):
    """Takes no large event in the middle topic, whatever the topic's settings say.

    A real one does so if it takes what we compress less well than the producer of the input did.
    """

    @override
    def append(
        self,
        topic: str,
        partition: int,
        records: list[Record],
        writer: tuple[str, int] | None,
    ) -> int:
        if topic == "middle" and any(len(record.value or b"") > LARGE for record in records):
            raise MessageSizeTooLargeError
        return super().append(topic, partition, records, writer)


async def started(stage: MemoryStage, now_ms: Callable[[], int] = wall_clock_ms) -> LocalWorker:
    """Start a worker, with that clock, on such a broker."""
    refusing = RefusingBroker()
    refusing.create_topic(stage.source, INPUTS)
    stage.broker = refusing
    worker = stage.start(now_ms)
    await worker.live(PLACES)
    return worker


@pytest.mark.rule(27)
@over(MemoryStage)
async def test_what_the_middle_refuses_becomes_a_letter(stage: MemoryStage) -> None:
    """It alone: the others of its transaction pass, each once, and soon. The letter names its place in the input."""
    stage.config["sink"]["dead_letter_topic"] = "letters"
    worker = await started(stage)
    events = [(0, None, large(n) if n in (7, 300) else value(n)) for n in range(500)]
    stage.broker.produce(stage.source, events)
    began = asyncio.get_running_loop().time()
    await worker.until(lambda: stage.ids().total() == 498, "the others")
    assert asyncio.get_running_loop().time() - began < SOON_S
    letters = [event for log in stage.broker.read_all("letters") for event in log]
    assert [dict(letter.headers)["streamdedup.offset"] for letter in letters] == [b"7", b"300"]
    for letter in letters:
        headers = dict(letter.headers)
        assert headers["streamdedup.topic"] == stage.source.encode()
        assert b"refused by middle" in (headers["streamdedup.reason"] or b"")
    assert not {"7", "300"} & stage.ids().keys()


@over(MemoryStage)
async def test_what_did_not_pass_is_named_by_its_place_in_the_input(stage: MemoryStage) -> None:
    """Noted by the stage that rejects it, or by the one that finds it a duplicate, once each."""
    stage.config["sink"]["dead_letter_topic"] = "letters"
    worker = await started(stage)
    values = [value(1), value(2), value(1), large(0)]
    stage.broker.produce(stage.source, [(1, None, each) for each in values])
    noted = worker.worker.status.not_passed
    await worker.until(lambda: len(noted.events) == 2, "both")
    await worker.stop()
    found = {each.offset: (each.topic, each.partition, each.verdict) for each in noted.events}
    assert found == {
        2: (stage.source, 1, Verdict.DUPLICATE),
        3: (stage.source, 1, Verdict.REJECTED),
    }


@over(MemoryStage)
async def test_letters_that_are_refused_for_their_time_go_without_it(stage: MemoryStage) -> None:
    """The worker's clock is wrong, so the letters' topic refuses their stamps; nothing stops for that."""
    stage.config["sink"]["dead_letter_topic"] = "letters"
    worker = await started(stage, now_ms=lambda: wall_clock_ms() + AHEAD_MS)
    stage.broker.produce(stage.source, [(0, None, large(0)), (0, None, value(1))])
    await worker.until(lambda: stage.ids().total() == 1, "the other")
    assert sum(map(len, stage.broker.read_all("letters"))) == 1
    assert worker.lines("letters_unstamped")
    assert not worker.lines("repartition_partition_stopped")


@pytest.mark.finding("event-refused")
@pytest.mark.rule(27)
@over(MemoryStage)
async def test_without_letters_its_partition_stops(stage: MemoryStage) -> None:
    """Named in log and page; the other partitions of the input go on."""
    worker = await started(stage)
    stage.broker.produce(stage.source, [(0, None, large(0)), (1, None, value(1))])
    (line,) = await worker.logged("repartition_partition_stopped")
    assert (line["partition"], f"{stage.source}/0 offset 0" in line["error"]) == (0, True)
    stage.broker.produce(stage.source, [(2, None, value(2)), (0, None, value(3))])
    await worker.until(lambda: len(stage.ids()) == 2, "the others")
    shown = page(worker)
    assert shown.status == 503
    assert f"{stage.source}/0: stopped: " in shown.text
    assert "3" not in stage.ids()


@pytest.mark.parametrize("on_malformed", ["pass", "drop"])
@pytest.mark.rule(27)
@over(MemoryStage)
async def test_events_without_a_key_travel_by_their_record_keys(
    stage: MemoryStage, on_malformed: str
) -> None:
    """Or, without one, by their partition of the input; the second stage decides what becomes of them."""
    stage.config["key"]["on_malformed"] = on_malformed
    events = [(n % 3, b"k%d" % n if n % 2 else None, b"no json") for n in range(30)]
    stage.broker.produce(stage.source, events)
    async with stage.start() as worker:
        await worker.consumed(30)
    for place, log in enumerate(stage.broker.read_all(stage.middle)):
        for event in log:
            origin = dict(event.headers)["streamdedup-origin"] or b""
            partition = int(origin.split(b"/")[1])
            expected = partitions_by_records(Column.of([event.key]), partition, PLACES)
            assert expected.tolist() == [place]
    output = stage.broker.read_all(stage.sink)
    assert sum(map(len, output)) == (30 if on_malformed == "pass" else 0)


@pytest.mark.rule(27)
@over(MemoryStage)
async def test_tombstones_are_warned_of_once(stage: MemoryStage) -> None:
    """Their order against the values of their key is lost."""
    stage.broker.produce(stage.source, [(n % 3, b"a", None) for n in range(9)])
    async with stage.start() as worker:
        await worker.consumed(9)
        assert len(worker.lines("tombstones_by_record_key")) == 1


@pytest.mark.finding("repartition-paused")
@pytest.mark.rule(25)
@over(MemoryStage)
async def test_it_pauses_between_transactions(stage: MemoryStage) -> None:
    """While too much is unread, nothing is copied, no transaction is open, and log and page say so."""
    stage.config["source"]["repartition"]["unread_max"] = 100
    stage.config["delivery"]["batch_events_max"] = 50
    settings = load(stage.deployment.write_config(), [])
    alone = CopyingWorker(settings, connected_to(stage.broker))
    task = asyncio.create_task(alone.run())
    stage.feed(range(1_000))
    copying = alone.status.copying
    assert copying is not None
    while copying.stage is None or copying.stage.paused is None:
        await asyncio.sleep(0.1)
    stage.feed(range(1_000, 1_500))
    await asyncio.sleep(5)
    assert 100 < stage.copies() < 1_000
    (transaction,) = [
        state
        for name, state in stage.broker.transactions.items()
        if name.startswith(f"{stage.middle}/")
    ]
    assert not transaction.open
    page = pages(alone.status, Pulse())["/readyz"]()
    assert page.status == 200
    assert "paused" in page.text
    before = stage.copies()
    await asyncio.sleep(60)
    assert stage.copies() == before
    async with stage.start() as worker:
        await worker.until(lambda: len(stage.ids()) == 1_500, "all ids")
    assert stage.copies() == 1_500
    alone.stop()
    await task


@pytest.mark.rule(26)
@over(MemoryStage)
async def test_the_purge_follows_the_commits(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It deletes what is committed, and nothing above."""
    monkeypatch.setattr(purge, "EVERY_S", 1.0)
    stage.feed(range(1_000))
    async with stage.start() as worker:
        await worker.consumed(1_000)
        await asyncio.sleep(3)
        for partition in range(PLACES):
            committed = stage.broker.committed(stage.deployment.group, stage.middle)
            assert stage.broker.log(stage.middle, partition).start == committed[partition]
    assert stage.copies() == 0
    stage.feed(range(900, 1_100))
    async with stage.start() as worker:
        await worker.consumed(200)
    assert stage.ids().total() == len(stage.ids()) == 1_100


@pytest.mark.rule(26)
@over(MemoryStage)
async def test_the_purge_spares_a_topic_that_was_made_again(stage: MemoryStage) -> None:
    """Its offsets mean other events."""
    stage.feed(range(1_000))
    worker = stage.start()
    await worker.consumed(1_000)
    found = worker.worker._purge
    assert found is not None
    stage.broker.delete_topic(stage.middle, with_offsets=False)
    stage.broker.create_topic(stage.middle, PLACES)
    others = [(p, None, value(p)) for p in range(PLACES) for _ in range(1_000)]
    stage.broker.produce(stage.middle, others)  # beyond the offsets that were committed
    await found.once()
    starts = [stage.broker.log(stage.middle, p).start for p in range(PLACES)]
    with pytest.raises(DeliveryError, match="deleted"):
        await worker.task
    assert starts == [0] * PLACES


@over(MemoryStage)
async def test_each_metric_of_the_stages_is_served(stage: MemoryStage) -> None:
    """With its labels, and what happened."""
    stage.feed(range(300))
    async with stage.start() as worker:
        await worker.consumed(300)
        families = [*text_string_to_metric_families(page(worker, "/metrics").text)]
    samples = [sample for family in families for sample in family.samples]
    served = {sample.name: sample for sample in samples}
    for metric in METRICS:
        # COPY_MISSING is of one stage alone.
        if "repartition" in metric.name and metric != COPY_MISSING:
            assert served[metric.name].labels.keys() == set(metric.labels), metric.name
    copied = [sample.value for sample in samples if sample.name == COPIED.name]
    assert (len(copied), sum(copied)) == (INPUTS, 300)
    assert served[LAG_OF_ALL.name].value == 0
