"""Claims about events without timestamps, or with odd ones: worker, `try` and `audit`, on a broker in memory."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from streamdedup.commands import trial
from streamdedup.commands.audit import Report, audit
from streamdedup.commands.fit import Fit
from streamdedup.delivery import decide
from streamdedup.events import NO_TIMESTAMP, Verdict
from streamdedup.kafka.records.records import Record
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.settings import load
from streamdedup.testing import MemoryBroker, connected_to
from tests.deployment import Deployment
from tests.local import LocalWorker, Start, on_virtual_clock
from tests.staged import INPUTS, PLACES, MemoryStage, play, value

NOW_MS, HOUR_MS = 1_700_000_000_000, 3_600_000
WINDOW = {"kind": "window", "retention": "7h", "generations": 8, "capacity": 1000}

Event = tuple[str, int]


def hours(*events: tuple[str, float | None]) -> list[Event]:
    """Events of these keys, so many hours after NOW_MS; None for no timestamp."""
    return [(key, NO_TIMESTAMP if at is None else NOW_MS + int(at * HOUR_MS)) for key, at in events]


class Stage:
    """An input and an output of one partition."""

    def __init__(self, directory: Path, start: Start, **options: Any) -> None:
        self.broker, self._start = MemoryBroker(), start
        self.deployment = Deployment("memory:1", directory, partitions=1)
        self.deployment.config["filter"] = {**WINDOW, **options}
        self.deployment.config["sink"]["on_gap"] = "accept"
        for topic in (self.deployment.source, self.deployment.sink):
            self.broker.create_topic(topic, retention_ms=-1)

    def feed(self, events: Sequence[Event]) -> None:
        """Append to the input."""
        records: list[Record] = [(at, key.encode(), b"value", ()) for key, at in events]
        self.broker.append(self.deployment.source, 0, records, None)

    async def read(self, events: Sequence[Event]) -> LocalWorker:
        """Have a worker read these, and end."""
        self.feed(events)
        worker = self._start(self.deployment, connect=connected_to(self.broker))
        await worker.consumed(len(events))
        await worker.stop()
        return worker

    def begin_anew(self, trimmed: int = 0) -> None:
        """Remove the snapshots, and the first events of the output."""
        shutil.rmtree(self.deployment.directory / "snapshots", ignore_errors=True)
        log = self.broker.log(self.deployment.sink, 0)
        if trimmed:
            log.trim(log.committed()[trimmed].offset)

    @property
    def output(self) -> list[str]:
        """The keys of its events."""
        (events,) = self.broker.read_all(self.deployment.sink)
        return [(event.key or b"").decode() for event in events]

    async def audited(self) -> Report:
        """What an audit reports."""
        settings = load(self.deployment.write_config())
        return await audit(settings, connected_to(self.broker), across=True)

    async def tried(self) -> trial.Trial:
        """What `try` finds."""
        settings = load(self.deployment.write_config())
        return await trial.tried(settings, 1000, connected_to(self.broker))


@pytest.mark.parametrize("late", ["pass", "drop"])
@pytest.mark.parametrize("jump", [{}, {"max_jump": "2h"}], ids=["any jump", "max_jump"])
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (hours(("a", 0), ("b", None), ("b", None), ("a", None), ("c", 1), ("b", 2)), "abc"),
        (hours(("a", None), ("b", 0), ("a", None), ("a", 1), ("b", None)), "ab"),
        (hours(("a", None), ("a", None), ("b", None), ("b", None)), "ab"),
        (
            hours(("a", 0), ("b", None), ("c", 2), ("d", 4), ("e", 6), ("f", 8), ("b", None)),
            "abcdefb",
        ),
    ],
    ids=["among others", "before all", "never a time", "until the window has passed"],
)
def test_each_key_passes_once_in_a_window(
    tmp_path: Path, late: str, jump: dict[str, Any], events: list[Event], expected: str
) -> None:
    """In one batch, in a batch for each event, and again by a worker without snapshots; counted, and audited."""

    async def scene(start: Start) -> None:
        untimed = sum(at == NO_TIMESTAMP for _, at in events)
        for batches, name in (([events], "one"), ([[event] for event in events], "many")):
            (directory := tmp_path / name).mkdir()
            stage = Stage(directory, start, late=late, **jump)
            counted = 0
            for batch in batches:
                worker = await stage.read(batch)
                counted += worker.tally.untimed
                if name == "many":
                    stage.begin_anew()
            assert "".join(stage.output) == expected
            assert counted == untimed
            report = await stage.audited()
            assert report.fine, report.as_text()
            assert report.total.doubled == 0
            assert report.total.untimed == sum(
                at == NO_TIMESTAMP for _, at in zip(stage.output, _times(stage), strict=True)
            )
            if len({*expected}) == len(expected):
                tried = await stage.tried()
                assert tried.verdicts[Verdict.PASS] == len(expected)

    on_virtual_clock(scene)


def _times(stage: Stage) -> list[int]:
    (events,) = stage.broker.read_all(stage.deployment.sink)
    return [event.timestamp for event in events]


def test_an_audit_finds_an_untimed_event_that_is_there_twice(tmp_path: Path) -> None:
    """Before the first time, and after it; but not one that came again after its window."""

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, start)
        first = hours(("a", None), ("b", None), ("x", 1), ("b", 1), ("c", None))
        await stage.read([*first, *hours(("d", 12), ("a", None), ("c", None))])
        assert "".join(stage.output) == "abxcdac"
        report = await stage.audited()
        assert report.total.doubled == 0, report.as_text()
        for twice in ("a", "d"):
            record = (NO_TIMESTAMP, twice.encode(), b"value", ())
            stage.broker.append(stage.deployment.sink, 0, [record], None)
        assert (await stage.audited()).total.doubled == 2

    on_virtual_clock(scene)


@pytest.mark.parametrize("late", ["pass", "drop"])
def test_after_a_gap_first_events_pass_and_duplicates_do_not(tmp_path: Path, late: str) -> None:
    """The output's beginning is gone: what is left is folded, with the time of the note for what is late alone."""

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, start, late=late)
        await stage.read(hours(("a", 0), ("b", None), ("c", 1), ("d", 9), ("e", None)))
        stage.begin_anew(trimmed=1)
        # `b` is of the hour of `c`, since nothing earlier is left; the windows of both have passed.
        again = hours(("b", 9), ("c", 9), ("d", 9), ("e", 9), ("e", None), ("f", None), ("f", None))
        await stage.read(again)
        assert "".join(stage.output) == "bcdebcf"
        stage.begin_anew()
        await stage.read(again)
        assert "".join(stage.output) == "bcdebcf"

    on_virtual_clock(scene)


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
def test_after_a_gap_events_from_the_future_do_not_move_the_time_again(
    tmp_path: Path, late: str, left: list[Event], guarantee: str
) -> None:
    """They moved it by `max_jump` before the commit whose time the fold begins at."""

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, start, late=late, max_jump="1h")
        stage.deployment.config["delivery"]["guarantee"] = guarantee
        await stage.read([*hours(("a", 0), ("b", 1), ("c", 2)), *left])
        before = stage.output
        stage.begin_anew(trimmed=3)
        await stage.read(hours(("p", 2), ("p", 2), ("d", 4)))
        assert "".join(stage.output) == "".join([*before[3:], "p"])

    on_virtual_clock(scene)


@pytest.mark.parametrize("early", [("d", 3), ("d", 2.5), ("d", -1)], ids=["next", "near", "old"])
def test_after_a_gap_a_key_from_the_future_is_remembered_no_longer_than_before(
    tmp_path: Path, early: tuple[str, float]
) -> None:
    """Its time was limited by `max_jump` when it was emitted, hours before the commit whose time the fold begins at."""

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, start, late="drop", max_jump="1h")
        times = enumerate("efghij", 5)
        later = hours(*((key, hour) for hour, key in times))
        await stage.read([*hours(("a", 0), ("b", 1), ("c", 2), early, ("x", 900)), *later])
        assert "".join(stage.output) == "abcdxefghij"
        stage.begin_anew(trimmed=3)
        await stage.read(hours(("x", 12), ("x", 12), ("j", 10), ("i", 9), ("h", 8)))
        assert "".join(stage.output) == "dxefghijx"

    on_virtual_clock(scene)


def test_a_window_without_a_time_is_warned_of_until_it_has_one(tmp_path: Path) -> None:
    """By a line that names the remedy, by `try`, and by the metric; no more once an event has a time."""

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, start)
        worker = await stage.read(hours(("a", None), ("b", None)))
        (line,) = worker.lines("window_without_time")
        assert (line["topic"], line["partition"], line["events"]) == (stage.deployment.source, 0, 2)
        assert "message.timestamp.type" in line["remedy"]
        assert (await _fit(stage))[0].startswith("warning: no event has a timestamp")
        text = pages(worker.worker.status, Pulse())["/metrics"]().text
        samples = [one for one in text.splitlines() if "events_untimed_total{" in one]
        assert [one.split()[-1] for one in samples] == ["2.0"]
        stage.feed(hours(("c", 0)))
        worker = await stage.read(hours(("d", None)))
        assert not worker.lines("window_without_time")
        assert (await _fit(stage))[1] == (
            "3 events without a timestamp: each has the greatest time of the events that were emitted before it"
        )

    on_virtual_clock(scene)


def test_a_window_whose_time_stands_still_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once many events without a timestamp came after the last one that had one; the next one begins the count anew."""
    monkeypatch.setattr(decide, "UNTIMED_MANY", 3)

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, start)
        worker = await stage.read(hours(("a", 0), ("b", None), ("c", None)))
        assert not worker.lines("window_without_time")
        worker = await stage.read(hours(("d", None), ("e", None), ("f", None)))
        (line,) = worker.lines("window_without_time")
        assert line["reason"] == decide.TIMELESS_AGAIN
        worker = await stage.read(hours(("g", 1), ("h", None), ("i", None)))
        assert not worker.lines("window_without_time")

    on_virtual_clock(scene)


@pytest.mark.parametrize("at", [0, 1, 86_400_000, 946_684_799_999, 1_700_000_000])
def test_times_before_2000_are_named(tmp_path: Path, at: int) -> None:
    """0, and seconds in place of ms, are times of the window; a line and `try` say so."""

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, start)
        worker = await stage.read([("a", at), ("b", NOW_MS), ("c", NOW_MS)])
        (line,) = worker.lines("timestamps_implausible")
        assert line["events"] == 1
        assert "before the year 2000" in line["reason"]
        assert any("warning: 1 event: they have" in text for text in await _fit(stage))
        for other in ("window", "for ever"):
            if other == "for ever":
                stage.deployment.config["filter"] = {"capacity": 1000}
            worker = await stage.read(hours((other, 1)))
            assert not worker.lines("timestamps_implausible")

    on_virtual_clock(scene)


async def _fit(stage: Stage) -> list[str]:
    found: Fit | None = (await stage.tried()).fit
    assert found is not None
    return list(found.lines())


@pytest.mark.parametrize("span_s", [0.0, 1.2, 60, 2519])
def test_a_short_sample_says_its_span_and_nothing_more(tmp_path: Path, span_s: float) -> None:
    """Below a tenth of the window `try` does not extrapolate; above it, it does."""

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, start)
        stage.feed([(f"{n}", NOW_MS + int(n * span_s * 10)) for n in range(101)])
        line = (await _fit(stage))[-1]
        assert "become" not in line
        assert "is enough" not in line
        assert ("less than a tenth of that" in line) == (span_s > 0)
        stage.feed(hours(("later", 0.9)))
        assert "become at most" in (await _fit(stage))[-1]

    on_virtual_clock(scene)


def test_try_counts_untimed_keys_with_those_around_them(tmp_path: Path) -> None:
    """They are remembered as long as the event before them, so they count among the keys at once."""

    async def scene(start: Start) -> None:
        stage = Stage(tmp_path, start)
        stage.feed(hours(("x", None), ("a", 0), ("b", None), ("c", 20), ("d", None), ("e", None)))
        found = (await stage.tried()).fit
        assert found is not None
        assert (found.busiest, found.untimed, found.distinct) == (3, 4, 6)

    on_virtual_clock(scene)


def test_with_a_first_stage_each_key_passes_once(tmp_path: Path) -> None:
    """Events of a key in any partitions of the input, of which some have a time; read again, and audited."""

    async def scene(stage: MemoryStage) -> None:
        config = stage.deployment.config
        config["filter"] = {**WINDOW, "late": "drop", "error_rate": 1e-9}
        for topic in (stage.source, stage.deployment.sink):
            if topic not in stage.broker.topics:
                stage.broker.create_topic(
                    topic, INPUTS if topic == stage.source else PLACES, retention_ms=-1
                )
        records = [
            (NO_TIMESTAMP if n % 3 else NOW_MS + n * 1000, b"r", value(n % 40), ())
            for n in range(240)
        ]
        for n, record in enumerate(records):
            stage.broker.append(stage.source, n * 7 % INPUTS, [record], None)
        async with stage.start() as worker:
            await worker.consumed(240)
        output = [
            bytes(event.value or b"")
            for each in stage.broker.read_all(stage.deployment.sink)
            for event in each
        ]
        assert sorted(output) == sorted(value(n) for n in range(40))
        shutil.rmtree(tmp_path / "snapshots", ignore_errors=True)
        async with stage.start() as worker:
            for n, record in enumerate(records[:40]):
                stage.broker.append(stage.source, n * 5 % INPUTS, [record], None)
            await worker.consumed(40)
            assert worker.tally[Verdict.DUPLICATE] == 40
        report = await audit(load(stage.deployment.write_config()), connected_to(stage.broker))
        assert report.fine, report.as_text()
        assert report.total.untimed is not None
        assert report.total.untimed > 0

    play(tmp_path, scene)
