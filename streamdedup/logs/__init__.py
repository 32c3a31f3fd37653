"""Logging: structlog for our lines, for people on a terminal and as JSON otherwise. No line quotes a key.

aiokafka logs keys at DEBUG, so its level is at least WARNING. While a broker is away it logs thousands of
lines a minute about what our own lines report, so each of its messages passes once in ten minutes. It quotes errors
whose text is empty, such as a time-out; their type stands there instead.
Exceptions are logged without their messages, and asyncio's lines without objects.
"""

import logging
import math
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn, TextIO, cast

import structlog
from structlog.typing import EventDict, ExcInfo
from typing_extensions import override

from streamdedup.errors import traceback_without_messages
from streamdedup.logs.queued import QueuedHandler
from streamdedup.units import escaped

log = structlog.get_logger(__name__)

REPEATED_AFTER_S = 600.0
EVERY_S = 60.0  # between two lines of one kind that could come too often


class OncePerTemplate(logging.Filter):
    """Lets each message template of a logger pass once in `REPEATED_AFTER_S` seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed_at: dict[tuple[str, str], float] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        now, template = self._clock(), (record.name, str(record.msg))
        passes = now - self._passed_at.get(template, float("-inf")) >= REPEATED_AFTER_S
        if passes:
            self._passed_at[template] = now
        return passes


def name_errors(record: logging.LogRecord) -> bool:
    """Replace each error without text in the arguments of a line by its type, so that the line gives a reason.

    Return True, like a filter that lets everything pass.
    """
    if isinstance(record.args, tuple):
        record.args = tuple(
            type(value).__name__ if isinstance(value, BaseException) and not str(value) else value
            for value in record.args
        )
    return True


class RateLimit:
    """The limit of one kind of line, which is written at most once in `every_s` seconds."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._unreported, self._due_at = 0, -math.inf

    def due(self, now_s: float, count: int = 1) -> int:
        """Count `count` more events. Return how many the line that is due now stands for; 0 if none is due.

        `now_s` is the time by a clock that never goes back, the same clock at each call.
        """
        self._unreported += count
        if now_s < self._due_at:
            return 0
        untold, self._unreported = self._unreported, 0
        self._due_at = now_s + self._every_s
        return untold


def set_up(level: int = logging.INFO, *, queued: bool = False) -> None:
    """Configure the logging of this process: every line goes to standard error.

    If `queued`, a thread writes them, and whatever else this process writes there, so that nobody waits for the reader
    (`queued.py`). A command of which a person waits for the end needs no thread.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderers: list[Any] = [structlog.processors.JSONRenderer()]  # which escapes what it quotes
    if sys.stderr is not None and sys.stderr.isatty():
        console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        renderers = [_escaped, console]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler: logging.Handler
    if sys.stderr is None:
        # It was closed when Python began, and its descriptor may be another file's now.
        handler = logging.NullHandler()
    elif queued:
        handler = QueuedHandler(sys.stderr, _report_dropped)
        sys.stderr = cast("TextIO", handler.stream)
    else:
        handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _without_objects],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.ExceptionRenderer(_without_messages),
                *renderers,
            ],
        )
    )
    handler.addFilter(_aiokafka_only(OncePerTemplate()))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    logging.getLogger("aiokafka").setLevel(max(level, logging.WARNING))


def lines_dropped() -> int:
    """Return how many lines were dropped, since nobody read the log in time or it could not be written."""
    handlers = logging.root.handlers
    return sum(handler.dropped for handler in handlers if isinstance(handler, QueuedHandler))


def exit_at_once(status: int) -> NoReturn:
    """End the process, whatever its threads do, once the log is written; if nobody reads it, after a second."""
    logging.shutdown()
    os._exit(status)


def _report_dropped(lines: int) -> None:
    log.warning(
        "log_lines_dropped",
        lines=lines,
        remedy="find out why the log was not read or could not be written, for example by a full disk",
    )


def _aiokafka_only(limit: OncePerTemplate) -> Callable[[logging.LogRecord], bool]:
    return lambda record: (
        not record.name.startswith("aiokafka") or (limit.filter(record) and name_errors(record))
    )


def _without_objects(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Cut asyncio's lines off before the first object.

    The text of a task object shows its exception's message, which may quote a key.
    """
    if line["logger"] == "asyncio":
        line["event"] = _OBJECT.split(str(line["event"]), maxsplit=1)[0].rstrip()
    return line


def _escaped(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Escape what others chose, such as names: on a terminal it could hide lines, or write others."""
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = escaped(value, keep="\n" if name == "exception" else "")
    return line


_OBJECT = re.compile(r"[<\n]|\((?!\))")


def _without_messages(exc_info: ExcInfo) -> str:
    return traceback_without_messages(exc_info[1])
