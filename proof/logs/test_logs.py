"""Claims about traces without messages, and about lines that are held back."""

import json
import logging
import re
from typing import Any

import pytest
import structlog
from aiokafka.errors import KafkaConnectionError, KafkaError

from streamdedup.errors import CAUSES_MAX, FRAMES_MAX, traceback_without_messages
from streamdedup.kafka.client.connection import describe_error
from streamdedup.logs import REPEATED_AFTER_S, OncePerTemplate
from tests.logs.test_logs import (
    SECRET,
    Clock,
    raised,
    record,
    set_up,
)
from tests.logs.test_logs import _logging_as_before as _logging_as_before  # noqa: PLC0414 - a fixture


def test_a_higher_level_holds_for_aiokafka_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only errors are wanted, aiokafka's warnings are not."""
    stream = set_up(monkeypatch, level=logging.ERROR)
    logging.getLogger("aiokafka.conn").warning("a warning")
    structlog.get_logger("streamdedup").warning("ours")
    assert stream.getvalue() == ""


def test_after_a_while_it_passes_again() -> None:
    """Until the very end of that time nothing passes, then once, time after time."""
    clock = Clock()
    limit = OncePerTemplate(clock)
    for _ in range(3):
        assert [limit.filter(record("away")) for _ in range(3)] == [True, False, False]
        clock.now_s += REPEATED_AFTER_S - 0.001
        assert not limit.filter(record("away"))
        clock.now_s += 0.001


def test_the_time_is_not_prolonged_by_what_is_held_back() -> None:
    """A message that never pauses is still heard."""
    clock = Clock()
    limit = OncePerTemplate(clock)
    heard = 0
    for _ in range(600):
        heard += limit.filter(record("away"))
        clock.now_s += REPEATED_AFTER_S / 100
    assert heard == 6


async def test_aiokafkas_lines_give_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error without text, such as a time-out, is named by its type; any other keeps its text."""
    stream = set_up(monkeypatch)
    reasons: list[Any] = [
        TimeoutError(),
        OSError(111, "refused"),
        KafkaConnectionError(),
        "no error",
    ]
    for number, reason in enumerate(reasons):
        logging.getLogger("aiokafka").error(
            'Unable connect to "%s:%s": %s' + " " * number, "b", 1, reason
        )
    heard = [json.loads(line)["event"].strip() for line in stream.getvalue().splitlines()]
    assert heard == [
        'Unable connect to "b:1": TimeoutError',
        'Unable connect to "b:1": [Errno 111] refused',
        'Unable connect to "b:1": KafkaConnectionError',
        'Unable connect to "b:1": no error',
    ]


def test_a_trace_tells_every_error_of_a_group() -> None:
    """Each has its type and its own frames, indented below the group's."""
    group = ExceptionGroup(SECRET, [raised(KeyError(SECRET)), ExceptionGroup("", [ValueError()])])
    assert re.sub(
        r'".*", line \d+', "", traceback_without_messages(raised(group))
    ).splitlines() == [
        "  File , in raised",
        "ExceptionGroup",
        "  |   File , in raised",
        "  | KeyError",
        "  | ExceptionGroup",
        "  |   | ValueError",
    ]


def test_a_trace_follows_what_a_traceback_does() -> None:
    """Of a cause and a context the cause is told; a context that was suppressed is not."""
    error = ValueError()
    error.__context__ = KeyError()
    assert traceback_without_messages(error) == "KeyError\n\nwhich led to:\n\nValueError"
    error.__cause__ = OSError()
    assert traceback_without_messages(error) == "OSError\n\nwhich led to:\n\nValueError"
    error.__cause__ = None
    assert error.__suppress_context__
    assert traceback_without_messages(error) == "ValueError"


def test_a_trace_has_an_end() -> None:
    """Causes that form a ring, long chains, wide groups and deep recursion are cut, the nearest kept."""
    first, second = ValueError(), KeyError()
    first.__context__, second.__context__ = second, first
    assert traceback_without_messages(first) == "KeyError\n\nwhich led to:\n\nValueError"
    error: Exception = ValueError()
    for _ in range(1000):
        following = KeyError()
        following.__cause__ = error
        error = following
    assert traceback_without_messages(error).count("KeyError") == CAUSES_MAX
    assert (
        traceback_without_messages(ExceptionGroup("", [KeyError()] * 99)).count("KeyError")
        == CAUSES_MAX
    )

    def fail(depth: int) -> None:
        if not depth:
            raise ValueError
        fail(depth - 1)

    with pytest.raises(ValueError, match=r"^$") as caught:
        fail(100)
    assert traceback_without_messages(caught.value).count("in fail") == FRAMES_MAX


def test_an_error_without_text_is_its_name() -> None:
    """A time-out says nothing; its name does."""
    assert describe_error(TimeoutError()) == {"error": "TimeoutError"}
    assert describe_error(KafkaError())["error"].startswith("KafkaError")
