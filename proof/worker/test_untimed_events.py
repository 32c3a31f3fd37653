"""More claims about events without timestamps, or late ones: audits, gaps in the output, and what try predicts."""

import random
from typing import Any

import pytest

from streamdedup.commands.audit import audit
from streamdedup.events import NO_TIMESTAMP, Verdict
from streamdedup.kafka.records.records import Record
from streamdedup.settings import load
from streamdedup.testing import connected_to
from tests.memory import over
from tests.staged import INPUTS, PLACES, MemoryStage, value
from tests.worker.test_untimed_events import HOUR_MS, NOW_MS, WINDOW, Event, Stage, _fit, hours


@over(Stage)
async def test_an_audit_finds_an_untimed_event_that_is_there_twice(stage: Stage) -> None:
    """Before the first time, and after it; but not one that came again after its window."""
    first = hours(("a", None), ("b", None), ("x", 1), ("b", 1), ("c", None))
    await stage.read([*first, *hours(("d", 12), ("a", None), ("c", None))])
    assert stage.keys == "abxcdac"
    report = await stage.audited()
    assert report.total.doubled == 0, report.as_text()
    for twice in ("a", "d"):
        record = Record.of(NO_TIMESTAMP, twice.encode(), b"value")
        stage.broker.append(stage.sink, 0, [record], None)
    assert (await stage.audited()).total.doubled == 2


@pytest.mark.parametrize("late", ["pass", "drop"])
@pytest.mark.parametrize(
    "left",
    [
        hours(("w", 900), ("x", 900), ("y", 900), ("z", 900), ("d", 4)),
        hours(("w", None), ("x", 900), ("d", 4), ("y", 800), ("z", None), ("v", 700)),
        hours(("d", 4), ("w", 900), ("x", 900), ("y", 900), ("e", 5)),
    ],
    ids=["at the beginning", "among untimed", "behind others"],
)
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@over(Stage)
async def test_after_a_gap_events_from_the_future_do_not_move_the_time_again(
    stage: Stage, late: str, left: list[Event], guarantee: str
) -> None:
    """They moved it by `max_jump` before the commit whose time the fold begins at."""
    stage.window(late=late, max_jump="1h")
    stage.config["delivery"]["guarantee"] = guarantee
    await stage.read([*hours(("a", 0), ("b", 1), ("c", 2)), *left])
    before = stage.keys
    stage.begin_anew(trimmed=3)
    await stage.read(hours(("p", 2), ("p", 2), ("d", 4)))
    assert stage.keys == before[3:] + "p"


@pytest.mark.parametrize("early", [("d", 3), ("d", 2.5), ("d", -1)], ids=["next", "near", "old"])
@over(Stage)
async def test_after_a_gap_a_key_from_the_future_is_remembered_no_longer_than_before(
    stage: Stage, early: tuple[str, float]
) -> None:
    """Its time was limited by `max_jump` when it was emitted, hours before the commit whose time the fold begins at."""
    stage.window(late="drop", max_jump="1h")
    times = enumerate("efghij", 5)
    later = hours(*((key, hour) for hour, key in times))
    await stage.read([*hours(("a", 0), ("b", 1), ("c", 2), early, ("x", 900)), *later])
    assert stage.keys == "abcdxefghij"
    stage.begin_anew(trimmed=3)
    await stage.read(hours(("x", 12), ("x", 12), ("j", 10), ("i", 9), ("h", 8)))
    assert stage.keys == "dxefghijx"


@pytest.mark.parametrize("span_s", [0.0, 1.2, 60, 2519])
@over(Stage)
async def test_a_short_sample_says_its_span_and_nothing_more(stage: Stage, span_s: float) -> None:
    """Below a tenth of the window `try` does not extrapolate; above it, it does."""
    stage.send([(f"{n}", NOW_MS + int(n * span_s * 10)) for n in range(101)])
    line = (await _fit(stage))[-1]
    assert "become" not in line
    assert "is enough" not in line
    assert ("less than a tenth of that" in line) == (span_s > 0)
    stage.send(hours(("later", 0.9)))
    assert "become at most" in (await _fit(stage))[-1]


@over(Stage)
async def test_try_counts_untimed_keys_with_those_around_them(stage: Stage) -> None:
    """They are remembered as long as the event before them, so they count among the keys at once."""
    stage.send(hours(("x", None), ("a", 0), ("b", None), ("c", 20), ("d", None), ("e", None)))
    found = (await stage.tried()).fit
    assert found is not None
    assert (found.busiest, found.untimed, found.distinct) == (3, 4, 6)


@over(MemoryStage)
async def test_with_a_first_stage_each_key_passes_once(stage: MemoryStage) -> None:
    """Events of a key in any partitions of the input, of which some have a time; read again, and audited."""
    config = stage.config
    config["filter"] = {**WINDOW, "late": "drop", "error_rate": 1e-9}
    for topic in (stage.source, stage.sink):
        if topic not in stage.broker.topics:
            stage.broker.create_topic(
                topic, INPUTS if topic == stage.source else PLACES, retention_ms=-1
            )
    records = [
        Record.of(NO_TIMESTAMP if n % 3 else NOW_MS + n * 1000, b"r", value(n % 40))
        for n in range(240)
    ]
    for n, record in enumerate(records):
        stage.broker.append(stage.source, n * 7 % INPUTS, [record], None)
    async with stage.start() as worker:
        await worker.consumed(240)
    output = [
        bytes(event.value or b"") for each in stage.broker.read_all(stage.sink) for event in each
    ]
    assert sorted(output) == sorted(value(n) for n in range(40))
    stage.deployment.delete_snapshots()
    async with stage.start() as worker:
        for n, record in enumerate(records[:40]):
            stage.broker.append(stage.source, n * 5 % INPUTS, [record], None)
        await worker.consumed(40)
        assert worker.tally[Verdict.DUPLICATE] == 40
    report = await audit(load(stage.deployment.write_config()), connected_to(stage.broker))
    assert report.fine, report.as_text()
    assert report.total.untimed is not None
    assert report.total.untimed > 0


EVENTS = 600


def drawn(seed: int) -> list[Event]:
    """Events of 60 keys on a clock that goes on; some late, some from the future, some without a time."""
    chance, now_ms, events = random.Random(seed), NOW_MS, []
    for _ in range(EVENTS):
        now_ms += chance.randrange(HOUR_MS // 2)
        moved = chance.choices([0, -3, -9, -30, 1, 20], [60, 10, 8, 8, 10, 1])[0]
        at = now_ms + moved * HOUR_MS
        late = chance.choice([0, 1, NO_TIMESTAMP]) if chance.random() < 0.1 else at
        events.append((f"{chance.randrange(60)}", late))
    return events


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"late": "drop"},
        {"late": "drop", "max_jump": "2h"},
        {"refresh": True},
        {"late": "drop", "refresh": True, "max_jump": "2h"},
        {"retention": None, "capacity": 40},
        {"retention": None, "capacity": 40, "refresh": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(2))
@over(Stage)
async def test_a_window_is_predicted_as_a_worker_decides(
    stage: Stage, options: dict[str, Any], seed: int
) -> None:
    """The same verdicts, and as many late events, whether these pass or not."""
    stage.window(**options)
    events = drawn(seed)
    stage.config["filter"] = {
        name: value for name, value in stage.config["filter"].items() if value is not None
    }
    if "refresh" in options:
        stage.config["delivery"] = {"guarantee": "at_least_once"}
    worker = await stage.read(events)
    found = await stage.tried()
    told = {verdict: worker.tally[verdict] for verdict in Verdict if worker.tally[verdict]}
    assert found.verdicts == told
    assert found.late == worker.tally.late
    by_time = options.get("retention", "7h") is not None
    assert (found.late > 20) == by_time
    assert set(told) >= {Verdict.PASS, Verdict.DUPLICATE}
    dropped = found.late if options.get("late") == "drop" else 0
    assert found.verdicts[Verdict.BLOCKED] == dropped
    what = "blocked, as filter.late: drop asks" if dropped else "passed"
    assert (f"later than the window, and {what}: {found.late}\n" in found.as_text()) == by_time
