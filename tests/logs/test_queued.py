"""Claims about a log that nobody reads: nobody waits for it, memory is bounded, what is dropped is counted and said."""

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
import structlog

from streamdedup import logs
from streamdedup.logs import queued
from streamdedup.logs.queued import FLUSH_S, PART_CHARS_MAX
from streamdedup.metrics.counts import Meters
from streamdedup.server import Status
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from tests.broker.base import wait_until
from tests.logs.pipes import Pipe

SOON_S = 20.0  # for what takes milliseconds on a quiet machine
LINES = 200  # a short queue
ours: Any = structlog.get_logger("streamdedup.worker.worker")


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """Standard error is this pipe, and the log is queued. Logging is given back as it was."""
    levels = {name: logging.getLogger(name).level for name in (None, "aiokafka")}
    monkeypatch.setattr(logging.root, "handlers", [])
    made = Pipe()
    monkeypatch.setattr(sys, "stderr", made.stream)
    monkeypatch.setattr(queued, "LINES_MAX", LINES)
    logs.set_up(queued=True)
    handler = logging.root.handlers[0]
    yield made
    made.stop_reading()  # so that no thread waits
    handler.flush()
    handler.close()
    made.close()
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def full(pipe: Pipe) -> Pipe:
    """The same, and the pipe is full."""
    pipe.fill()
    return pipe


def soon(call: Callable[[], object]) -> None:
    """Make the call in a thread; fail if it does not return."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(SOON_S)
    assert not thread.is_alive(), "it waits for the reader of the log"


def log_lines(count: int, first: int = 0, **fields: object) -> None:
    """Log so many numbered lines, soon."""
    soon(lambda: [ours.info(f"line {first + i}", **fields) for i in range(count)])


def events(lines: list[str]) -> list[str]:
    """The events of lines of JSON."""
    return [json.loads(line)["event"] for line in lines]


# --- nobody waits ---


def test_who_logs_does_not_wait_for_the_reader(full: Pipe) -> None:
    """Lines are logged while nobody reads; once somebody does, all are there, in order, and none was dropped."""
    log_lines(LINES)
    assert events(full.read_until(f"line {LINES - 1}")) == [f"line {i}" for i in range(LINES)]
    assert logs.lines_dropped() == 0


def test_nor_does_who_writes_to_standard_error(full: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others write there goes the same way, by lines, in order with the log."""
    handler: Any = logging.root.handlers[0]
    monkeypatch.setattr(sys, "stderr", handler.stream)  # pytest has put its own there
    long = "x" * (PART_CHARS_MAX + 1)

    def write() -> None:
        ours.info("first")
        print("a", "b", file=sys.stderr)
        print("part, ", end="", file=sys.stderr)
        print("end", file=sys.stderr, flush=True)
        print("no end", end="", file=sys.stderr, flush=True)
        print("\n" + long, end="", file=sys.stderr)
        print(file=sys.stderr)
        ours.info("last")

    soon(write)
    first, *others, last = full.read_until("last")
    assert events([first, last]) == ["first", "last"]
    assert [line.replace(long, "long") for line in others] == ["a b", "part, end", "no end", "long"]


async def test_the_loop_does_not_wait(full: Pipe) -> None:
    """What asyncio itself logs, about an error that nobody fetched, does not hold up the loop either."""

    async def fail() -> None:
        raise ValueError

    async def work() -> None:
        for _ in range(LINES // 2 - 1):
            failing = asyncio.get_running_loop().create_task(fail())
            await asyncio.wait([failing])
            del failing  # its destructor logs
            ours.info("turn")

    await asyncio.to_thread(soon, lambda: asyncio.run(work()))
    ours.info("last")
    heard = events(full.read_until("last"))
    assert (
        heard.count("turn") == heard.count("Task exception was never retrieved") == LINES // 2 - 1
    )


# --- what a line says ---


def test_a_line_says_what_was_so_when_it_was_logged(full: Pipe) -> None:
    """Context, time and values that change are taken then, not when the line is written."""
    places, logged_at = [1], time.time()

    def log_and_change() -> None:
        with structlog.contextvars.bound_contextvars(partition=3):
            ours.info("line 0", places=places)
        places.append(2)

    soon(log_and_change)
    wait_until(lambda: time.time() > logged_at + 0.01, SOON_S, lambda: "no time passes")
    written_after = time.time()
    (line,) = map(json.loads, full.read_until("line 0"))
    assert (line["partition"], line["places"]) == (3, [1])
    assert logged_at <= datetime.fromisoformat(line["timestamp"]).timestamp() < written_after


def test_lines_are_what_they_are_without_a_queue(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error, a foreign line and one of ours differ in nothing but the time."""

    def log_some() -> None:
        ours.warning("doubt", partition=3, places=(1, 2), error=ValueError("é"))
        logging.getLogger("aiokafka.conn").error("Unable to connect to %s", "broker")
        logging.getLogger("aiokafka.conn").error("Unable to connect to %s", "another")
        try:
            raise KeyError("key")
        except KeyError:
            logging.getLogger("some.library").exception("careful")

    log_some()
    through_queue = pipe.read_until("careful")
    direct = Pipe()
    monkeypatch.setattr(sys, "stderr", direct.stream)
    logs.set_up()
    log_some()
    at_once = direct.read_until("careful")
    direct.close()

    def timeless(lines: list[str]) -> list[Any]:
        return [{**json.loads(line), "timestamp": ""} for line in lines]

    assert len(at_once) == 3
    assert timeless(through_queue) == timeless(at_once)


# --- bounds ---


def test_what_does_not_fit_is_counted_and_reported_in_its_place(full: Pipe) -> None:
    """The first lines are kept; after the gap comes a warning with the number of lines, then what was logged later."""
    log_lines(LINES + 50)
    dropped = logs.lines_dropped()
    assert dropped == 50  # the line that the thread is writing counts as queued
    *kept, last = full.read_until("log_lines_dropped")
    assert events(kept) == [f"line {i}" for i in range(LINES)]
    report = json.loads(last)
    assert (report["level"], report["lines"]) == ("warning", 50)
    assert report["remedy"]
    ours.info("later")
    assert events(full.read_until("later")) == ["later"]
    assert logs.lines_dropped() == 50


@pytest.mark.usefixtures("full")
def test_what_is_dropped_is_a_metric() -> None:
    """So that it is seen while nobody reads the log."""
    log_lines(LINES + 50)
    metrics = pages(Status("events", {}, Meters()), Pulse())["/metrics"]().text
    assert "streamdedup_log_lines_dropped_total 50.0" in metrics


def test_a_line_beyond_the_bound_is_dropped_alone(pipe: Pipe) -> None:
    """It would fit into no queue. The next is written."""
    ours.info("long", text="x" * queued.BYTES_MAX)
    ours.info("short")
    assert events(pipe.read_until("short")) == ["log_lines_dropped", "short"]
    assert logs.lines_dropped() == 1


def test_lines_that_cannot_be_written_are_counted(pipe: Pipe) -> None:
    """The reader has gone: nothing fails, each line is dropped."""
    pipe.stop_reading()
    log_lines(10)
    wait_until(
        lambda: logs.lines_dropped() == 10, SOON_S, lambda: f"{logs.lines_dropped()} dropped"
    )


@pytest.mark.parametrize("is_queued", [True, False])
def test_without_standard_error_nothing_is_logged(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, is_queued: bool
) -> None:
    """A process whose standard error was closed before it began works all the same."""
    pipe.stop_reading()
    monkeypatch.setattr(sys, "stderr", None)
    logs.set_up(queued=is_queued)
    ours.info("line")
    assert sys.stderr is None
    assert logs.lines_dropped() == 0


# --- the end ---


def test_an_exit_waits_until_all_is_written(pipe: Pipe) -> None:
    """All that was logged before the flush is in the pipe after it."""
    log_lines(200)
    logging.root.handlers[0].flush()
    assert events(pipe.read_some()) == [f"line {i}" for i in range(200)]


@pytest.mark.usefixtures("full")
def test_an_exit_waits_a_second_at_most() -> None:
    """If nobody reads, the log is given up."""
    log_lines(10)
    began_at = time.monotonic()
    logging.root.handlers[0].flush()
    assert FLUSH_S <= time.monotonic() - began_at < FLUSH_S + SOON_S
