"""Claims about a log that nobody reads, in rare moments: destructors, full disks, the very end."""

import json
import logging
import os
import sys
import threading
from contextvars import Context
from typing import Any

import pytest
import structlog

from streamdedup import logs
from streamdedup.logs import queued
from tests.logs.pipes import Pipe
from tests.logs.test_queued import (
    LINES,
    events,
    log_lines,
    ours,
    soon,
)
from tests.logs.test_queued import full as full  # noqa: PLC0414 - a fixture
from tests.logs.test_queued import pipe as pipe  # noqa: PLC0414 - a fixture


def test_a_destructor_may_log_while_its_thread_logs(pipe: Pipe) -> None:
    """The collector of garbage runs at any time, within `put`, too: nothing waits for itself."""
    handler: Any = logging.root.handlers[0]
    put, depth = handler._queue.put, 0

    def put_and_collect(line: bytes) -> None:
        nonlocal depth
        depth += 1
        if depth == 1:
            ours.info("by a destructor")
        put(line)
        depth -= 1

    both = {"put": staticmethod(put_and_collect), "get": staticmethod(handler._queue.get)}
    handler._queue = type("Queue", (), both)()
    soon(lambda: ours.info("line"))
    assert events(pipe.read_until('"line"')) == ["by a destructor", "line"]


def test_a_pipe_that_does_not_block_loses_nothing(full: Pipe) -> None:
    """Another process may have made the pipe non-blocking for all: the thread waits until there is room."""
    os.set_blocking(full.writing, False)
    log_lines(LINES)
    assert events(full.read_until(f"line {LINES - 1}")) == [f"line {i}" for i in range(LINES)]


def test_lines_are_queued_again_once_half_of_the_queue_is_free(full: Pipe) -> None:
    """So reports are no second flood for a slow reader. The report has nobody's context."""
    text = "x" * 4096  # so that the pipe takes 16 of them
    log_lines(LINES + 50, text=text)
    handler: Any = logging.root.handlers[0]
    heard = full.read_some()
    log_lines(1, text=text)
    assert logs.lines_dropped() == 51
    while not handler._has_room(LINES // 2, 0):
        heard += full.read_some()

    def log_in_context() -> None:
        structlog.contextvars.bind_contextvars(partition=3)
        ours.info("later")

    Context().run(log_in_context)
    *kept, report, later = map(json.loads, heard + full.read_until("later"))
    assert [line["event"] for line in kept] == [f"line {i}" for i in range(LINES)]
    assert (report["event"], report["lines"]) == ("log_lines_dropped", 51)
    assert ("partition" in report, later["partition"]) == (False, 3)


@pytest.mark.usefixtures("full")
def test_bytes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many lines are kept as fit, with their names and quotes."""
    monkeypatch.setattr(queued, "BYTES_MAX", 100_000)
    log_lines(150, text="x" * 990)
    assert 70 < 150 - logs.lines_dropped() < 100


def test_after_a_failure_lines_begin_at_the_margin(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes half a line and is full: the next line does not continue that one, and the loss is reported."""
    write = os.write
    answers: list[int | OSError] = [5, OSError(28, "No space left on device")]

    def fail_twice(descriptor: int, data: bytes) -> int:
        if descriptor != pipe.writing or not answers:
            return write(descriptor, data)
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return write(descriptor, data[:answer])

    monkeypatch.setattr(os, "write", fail_twice)
    log_lines(2)
    torn, *whole = pipe.read_until("log_lines_dropped")
    assert len(torn) == 5
    assert events(whole) == ["line 1", "log_lines_dropped"]
    assert json.loads(whole[-1])["lines"] == logs.lines_dropped() == 1


def test_an_exit_reports_what_was_dropped(full: Pipe) -> None:
    """If the log flows again just then. `logging.shutdown` holds the handler's lock, so the thread cannot report it."""
    log_lines(LINES + 50)
    handler, heard = logging.root.handlers[0], list[str]()
    reading = threading.Thread(target=lambda: heard.extend(full.read_until("log_lines_dropped")))
    handler.acquire()
    reading.start()
    while reading.is_alive():
        handler.flush()
    handler.release()
    assert json.loads(heard[-1])["lines"] == logs.lines_dropped()


def test_after_the_end_lines_are_written_at_once(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is logged while the interpreter ends, when no other thread runs, still comes."""
    handler: Any = logging.root.handlers[0]
    monkeypatch.setattr(sys, "stderr", handler.stream)
    handler.flush()
    handler.close()
    assert sys.stderr is pipe.stream
    ours.info("late")
    assert events(pipe.read_some()) == ["late"]


@pytest.mark.usefixtures("full")
def test_after_the_end_of_a_stuck_log_nobody_waits_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither who logs, nor who writes to standard error."""
    handler: Any = logging.root.handlers[0]
    monkeypatch.setattr(sys, "stderr", handler.stream)
    log_lines(1)
    handler.flush()
    handler.close()
    log_lines(10)
    soon(lambda: print("bye", file=sys.stderr))
