"""Claims about events without timestamps, or with odd ones: worker, `try` and `audit`, on a broker in memory."""

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
from streamdedup.settings import load
from streamdedup.testing import connected_to
from tests import memory
from tests.local import LocalWorker, Start
from tests.memory import measured, over

NOW_MS, HOUR_MS = 1_700_000_000_000, 3_600_000
WINDOW = {"kind": "window", "retention": "7h", "generations": 8, "capacity": 1000}

Event = tuple[str, int]


def hours(*events: tuple[str, float | None]) -> list[Event]:
    """Events of these keys, so many hours after NOW_MS; None for no timestamp."""
    return [(key, NO_TIMESTAMP if at is None else NOW_MS + int(at * HOUR_MS)) for key, at in events]


class Stage(memory.Stage):
    """A window over one partition."""

    def __init__(self, directory: Path, start: Start, **window: Any) -> None:
        super().__init__(directory, start, retention_ms=-1)
        self.window(**window)
        self.config["sink"]["on_gap"] = "accept"

    def window(self, **options: Any) -> None:
        """Have a window with these options."""
        self.config["filter"] = {**WINDOW, **options}

    def send(self, events: Sequence[Event]) -> None:
        """Append to the input."""
        records = [Record.of(at, key.encode(), b"value") for key, at in events]
        self.broker.append(self.source, 0, records, None)

    async def read(self, events: Sequence[Event]) -> LocalWorker:
        """Have a worker read these, and end."""
        self.send(events)
        worker = self.start()
        await worker.consumed(len(events))
        await worker.stop()
        return worker

    def begin_anew(self, trimmed: int = 0) -> None:
        """Remove the snapshots, and the first events of the output."""
        self.deployment.delete_snapshots()
        if trimmed:
            self.broker.log(self.sink, 0).trim(self.output[trimmed].offset)

    @property
    def keys(self) -> str:
        """The keys of the output, one after the other."""
        return "".join((event.key or b"").decode() for event in self.output)

    async def audited(self) -> Report:
        """What an audit reports."""
        settings = load(self.deployment.write_config())
        return await audit(settings, connected_to(self.broker), across=True)

    async def tried(self) -> trial.Trial:
        """What `try` finds."""
        settings = load(self.deployment.write_config())
        return await trial.tried(settings, 1000, connected_to(self.broker))


@pytest.mark.parametrize("window", [{"late": "pass"}, {"late": "drop", "max_jump": "2h"}], ids=str)
@pytest.mark.parametrize("at_once", [True, False])
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
@over(Stage)
async def test_each_key_passes_once_in_a_window(
    stage: Stage, window: dict[str, Any], events: list[Event], expected: str, *, at_once: bool
) -> None:
    """In one batch, or in a batch for each event, each by a worker without snapshots; counted, and audited."""
    stage.window(**window)
    counted = 0
    for batch in [events] if at_once else [[event] for event in events]:
        counted += (await stage.read(batch)).tally.untimed
        stage.begin_anew()
    assert stage.keys == expected
    assert counted == sum(at == NO_TIMESTAMP for _, at in events)
    report = await stage.audited()
    assert report.fine, report.as_text()
    assert report.total.doubled == 0
    untimed = sum(event.timestamp == NO_TIMESTAMP for event in stage.output)
    assert report.total.untimed == untimed
    if len({*expected}) == len(expected):
        tried = await stage.tried()
        assert tried.verdicts[Verdict.PASS] == len(expected)


@pytest.mark.parametrize("late", ["pass", "drop"])
@over(Stage)
async def test_after_a_gap_first_events_pass_and_duplicates_do_not(stage: Stage, late: str) -> None:
    """The output's beginning is gone: what is left is folded, with the time of the note for what is late alone."""
    stage.window(late=late)
    await stage.read(hours(("a", 0), ("b", None), ("c", 1), ("d", 9), ("e", None)))
    stage.begin_anew(trimmed=1)
    # `b` is of the hour of `c`, since nothing earlier is left; the windows of both have passed.
    again = hours(("b", 9), ("c", 9), ("d", 9), ("e", 9), ("e", None), ("f", None), ("f", None))
    await stage.read(again)
    assert stage.keys == "bcdebcf"
    stage.begin_anew()
    await stage.read(again)
    assert stage.keys == "bcdebcf"


@over(Stage)
async def test_a_window_without_a_time_is_warned_of_until_it_has_one(stage: Stage) -> None:
    """By a line that names the remedy, by `try`, and by the metric; no more once an event has a time."""
    worker = await stage.read(hours(("a", None), ("b", None)))
    (line,) = worker.lines("window_without_time")
    assert (line["topic"], line["partition"], line["events"]) == (stage.source, 0, 2)
    assert "message.timestamp.type" in line["remedy"]
    assert (await _fit(stage))[0].startswith("warning: no event has a timestamp")
    assert measured(worker, "events_untimed_total") == [2]
    stage.send(hours(("c", 0)))
    worker = await stage.read(hours(("d", None)))
    assert not worker.lines("window_without_time")
    assert (await _fit(stage))[1] == (
        "3 events without a timestamp: each has the greatest time of the events that were emitted before it"
    )


@over(Stage)
async def test_a_window_whose_time_stands_still_is_warned_of(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once many events without a timestamp came after the last one that had one; the next one begins the count anew."""
    monkeypatch.setattr(decide, "UNTIMED_MANY", 3)
    worker = await stage.read(hours(("a", 0), ("b", None), ("c", None)))
    assert not worker.lines("window_without_time")
    worker = await stage.read(hours(("d", None), ("e", None), ("f", None)))
    (line,) = worker.lines("window_without_time")
    assert line["reason"] == decide.TIMELESS_AGAIN
    worker = await stage.read(hours(("g", 1), ("h", None), ("i", None)))
    assert not worker.lines("window_without_time")


@pytest.mark.parametrize("at", [0, 1, 86_400_000, 946_684_799_999, 1_700_000_000])
@over(Stage)
async def test_times_before_2000_are_named(stage: Stage, at: int) -> None:
    """0, and seconds in place of ms, are times of the window; a line and `try` say so."""
    worker = await stage.read([("a", at), ("b", NOW_MS), ("c", NOW_MS)])
    (line,) = worker.lines("timestamps_implausible")
    assert line["events"] == 1
    assert "before the year 2000" in line["reason"]
    assert any("warning: 1 event: they have" in text for text in await _fit(stage))
    for other in ("window", "for ever"):
        if other == "for ever":
            stage.config["filter"] = {"capacity": 1000}
        worker = await stage.read(hours((other, 1)))
        assert not worker.lines("timestamps_implausible")


async def _fit(stage: Stage) -> list[str]:
    found: Fit | None = (await stage.tried()).fit
    assert found is not None
    return list(found.lines())
