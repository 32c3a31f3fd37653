"""Claims about what is logged: its form, how often aiokafka may speak, and that no key leaves by this door."""

import asyncio
import gc
import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, MessageSizeTooLargeError

from streamdedup import logs
from streamdedup.errors import DeliveryError
from streamdedup.kafka.client.connection import describe_error
from streamdedup.logs import OncePerTemplate, RateLimit

SECRET = "jane.doe@example.org"  # noqa: S105 - a key, which no log may hold


class Terminal(io.StringIO):
    """Standard error, on a terminal or not."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        """What the test says."""
        return self._is_terminal


@pytest.fixture(autouse=True)
def _logging_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logging is the process's: give it back as it was."""
    levels = {name: logging.getLogger(name).level for name in (None, "aiokafka")}
    monkeypatch.setattr(logging.root, "handlers", [])
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def set_up(
    monkeypatch: pytest.MonkeyPatch, *, terminal: bool = False, level: int = logging.INFO
) -> Terminal:
    """Set logging up for such a standard error, and return what stands there."""
    stream = Terminal(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    logs.set_up(level)
    return stream


# --- form ---


def test_away_from_a_terminal_every_line_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our lines, aiokafka's and any library's are one JSON object each, with the same names."""
    stream = set_up(monkeypatch)
    structlog.get_logger("streamdedup.worker.worker").info("shard_live", partition=3, offset=7)
    logging.getLogger("aiokafka.conn").error("Unable to connect to %s:%d", "broker", 9092)
    logging.getLogger("some.library").warning("careful")
    ours, theirs, other = map(json.loads, stream.getvalue().splitlines())
    assert (ours["event"], ours["level"], ours["logger"]) == (
        "shard_live",
        "info",
        "streamdedup.worker.worker",
    )
    assert (ours["partition"], ours["offset"]) == (3, 7)
    assert ours["timestamp"].endswith("Z")
    assert theirs["event"] == "Unable to connect to broker:9092"
    assert (theirs["level"], theirs["logger"]) == ("error", "aiokafka.conn")
    assert other["event"] == "careful"


def test_an_exception_is_one_line_of_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback stands in its line's `exception`, so that no reader of lines loses it."""
    stream = set_up(monkeypatch)
    fail_and_log(logging.getLogger("aiokafka.producer.sender"))
    (line,) = stream.getvalue().splitlines()
    assert "ZeroDivisionError" in json.loads(line)["exception"]


def test_a_person_reads_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the event stands in the line as words, and nothing is JSON."""
    stream = set_up(monkeypatch, terminal=True)
    structlog.get_logger("streamdedup.worker.worker").info("shard_live", partition=3)
    (line,) = stream.getvalue().splitlines()
    assert "shard_live" in line
    assert not line.startswith("{")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_traceback_tells_types_and_places_only(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """Frames, messages and source lines may hold keys: types and places only are told (invariant 10)."""
    stream = set_up(monkeypatch, terminal=terminal)
    fail_and_log(logging.getLogger("aiokafka.producer.sender"))
    assert SECRET not in stream.getvalue()
    told = stream.getvalue() if terminal else json.loads(stream.getvalue())["exception"]
    lines = told.rstrip().splitlines()[-7:]
    assert [re.sub(r'".*test_logs.py", line \d+', "", line) for line in lines] == [
        "  File , in fail_and_log",
        "ZeroDivisionError",
        "",
        "which led to:",
        "",
        "  File , in fail_and_log",
        "KeyError",
    ]


def fail_and_log(log: logging.Logger) -> None:
    """Log an exception whose frame, source line, message and cause hold a key."""
    key = SECRET
    try:
        try:
            _ = len(key) / 0
        except ZeroDivisionError as error:
            raise KeyError("jane.doe@example.org") from error
    except KeyError:
        log.exception("Unexpected error")


def look_up(key: str) -> None:
    """Fail as dictionaries do."""
    raise KeyError(key)


@pytest.mark.parametrize("terminal", [True, False])
async def test_what_asyncio_says_of_a_lost_error_quotes_no_key(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """Its own words are kept, and the error's type; the task, the call and the message are not told."""
    stream = set_up(monkeypatch, terminal=terminal)
    loop = asyncio.get_running_loop()

    async def fail() -> None:
        raise ValueError(SECRET)

    task = loop.create_task(fail())
    await asyncio.wait({task})
    del task
    gc.collect()
    loop.call_soon(look_up, SECRET)
    await asyncio.sleep(0)
    logging.getLogger("asyncio").warning("socket.send() raised exception.")
    said = stream.getvalue()
    assert "Task exception was never retrieved" in said
    assert "ValueError" in said
    assert "Exception in callback look_up" in said
    assert "KeyError" in said
    assert "socket.send() raised exception." in said
    assert SECRET not in said
    assert SECRET[:8] not in said
    assert SECRET[-8:] not in said


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
@pytest.mark.parametrize("terminal", [True, False])
def test_aiokafka_is_silent_below_warning(
    monkeypatch: pytest.MonkeyPatch, level: int, terminal: bool
) -> None:
    """It writes keys and values at DEBUG, so that stays closed even where our own DEBUG is open."""
    stream = set_up(monkeypatch, terminal=terminal, level=level)
    for name in ("aiokafka", "aiokafka.consumer.fetcher", "aiokafka.producer.message_accumulator"):
        logging.getLogger(name).debug("sending %r", SECRET)
        logging.getLogger(name).info("sent %r", SECRET)
    assert stream.getvalue() == ""
    structlog.get_logger("streamdedup").log(level, "ours")
    assert "ours" in stream.getvalue()


# --- how often ---


class Clock:
    """A clock that stands until it is moved."""

    now_s = 1000.0

    def __call__(self) -> float:
        """The time it shows."""
        return self.now_s


def record(template: str, name: str = "aiokafka.conn", *arguments: object) -> logging.LogRecord:
    """A record as logging makes it."""
    return logging.LogRecord(name, logging.ERROR, "conn.py", 1, template, arguments, None)


def test_each_template_passes_once() -> None:
    """What differs only in its arguments is one message; another text, or another logger's, is another."""
    clock = Clock()
    limit = OncePerTemplate(clock)
    passed = [limit.filter(record("away: %s", "aiokafka.conn", i)) for i in range(100)]
    assert passed == [True] + [False] * 99
    assert limit.filter(record("closed: %s", "aiokafka.conn", 1))
    assert limit.filter(record("away: %s", "aiokafka.cluster", 1))


def test_only_aiokafka_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a broker is away aiokafka is heard once; our own lines and others' are all heard."""
    stream = set_up(monkeypatch)
    ours: Any = structlog.get_logger("streamdedup.worker.worker")
    for _ in range(10):
        logging.getLogger("aiokafka.conn").error("away")
        logging.getLogger("some.library").warning("careful")
        ours.warning("doubt")
    heard = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert [heard.count(e) for e in ("away", "careful", "doubt")] == [1, 10, 10]


async def test_a_broker_that_does_not_answer_in_time_is_named_with_that_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What aiokafka logs is the time-out of a connection, whose text is empty."""
    stream = set_up(monkeypatch)

    async def late(*_arguments: object, **_named: object) -> None:
        raise TimeoutError

    monkeypatch.setattr("aiokafka.client.create_conn", late)
    client = AIOKafkaClient(bootstrap_servers="broker:9092")
    with pytest.raises(KafkaConnectionError):
        await client.bootstrap()
    await client.close()
    lines = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert lines == ['Unable connect to "broker:9092": TimeoutError']


# --- errors ---


def raised(error: Exception) -> Exception:
    """The error with a traceback through a frame that holds a key."""
    key = SECRET
    try:
        raise error
    except Exception as caught:
        assert key
        return caught


@pytest.mark.parametrize(
    "error",
    [
        ValueError(f"bad key {SECRET}"),
        KeyError(SECRET),
        RuntimeError(SECRET, SECRET),
        UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, "invalid start byte"),
        json.JSONDecodeError("no JSON", SECRET, 0),
        ExceptionGroup(SECRET, [DeliveryError(SECRET)]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_unknown_origin_is_not_quoted(error: Exception) -> None:
    """It may hold a key, so its type and where it came from must do (invariant 10)."""
    described = describe_error(raised(error))
    assert described["error"] == type(error).__name__
    assert "test_logs.py" in described["where"]
    assert SECRET not in str(described)


def test_a_cause_is_not_quoted_either() -> None:
    """An error of ours that was raised from an unknown one tells its own text only."""
    error = DeliveryError("events/3 is away")
    error.__cause__ = raised(ValueError(SECRET))
    assert describe_error(error) == {"error": "DeliveryError: events/3 is away"}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (DeliveryError("events/3 has a second writer"), "events/3 has a second writer"),
        (MessageSizeTooLargeError("too large"), "too large"),
        (ConnectionRefusedError(111, "Connection refused"), "[Errno 111] Connection refused"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_of_known_origin_are_quoted(error: Exception, text: str) -> None:
    """Ours, the broker's and the system's hold no keys, and their text is what helps."""
    described = describe_error(error)
    assert list(described) == ["error"]
    assert described["error"].count(type(error).__name__) == 1
    assert described["error"].endswith(text)


def test_the_first_is_told_at_once_and_the_others_together() -> None:
    """Each line tells of all that happened since the one before."""
    limit = RateLimit(60)
    assert limit.due(1000.0, 3) == 3
    assert [limit.due(now) for now in (1000.0, 1001.0, 1059.9)] == [0, 0, 0]
    assert limit.due(1060.0, 2) == 5
    assert limit.due(1060.0) == 0


def test_after_a_quiet_time_the_next_is_told_at_once() -> None:
    """How long it was quiet does not matter."""
    limit = RateLimit(60)
    assert limit.due(0.0) == 1
    assert limit.due(86_400.0) == 1
