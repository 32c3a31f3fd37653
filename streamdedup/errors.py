"""The base classes of all errors, by who can repair them, each with its exit status; and `trace`.

A message of ours states what happened, to what, and what to do. No message holds a key: it names events by
topic, partition and offset. The message of another package's error may quote a key, so `trace` leaves
messages out.
"""

import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator

CAUSES_MAX = 5
FRAMES_MAX = 20


def hide_messages() -> None:
    """Have this process report errors that nobody catches, in whichever thread, without their messages."""

    def report(where: str, error: BaseException | None) -> None:
        if sys.stderr is not None and error is not None:
            text = f"streamdedup: an error {where} (no data is quoted):\n{traceback_without_messages(error)}"
            print(text, file=sys.stderr)

    def of_thread(given: threading.ExceptHookArgs) -> None:
        if not isinstance(given.exc_value, SystemExit):
            report(f"in the thread {given.thread.name if given.thread else '?'}", given.exc_value)

    sys.excepthook = lambda _kind, error, _place: report("that nothing caught", error)
    threading.excepthook = of_thread
    # Its text and its object are left out, too: they show the values of which a destructor failed.
    sys.unraisablehook = lambda given: report("that could not be raised", given.exc_value)
    logging.raiseExceptions = False  # else what cannot be formatted is shown, with its arguments


def with_options(text: str, named: Callable[[str], str]) -> str:
    """Return a message, with the options of the `filter` section, such as `filter.capacity`, as a caller names them."""
    return re.sub(r"\bfilter\.(\w+)", lambda option: named(option[1]), text)


class StreamdedupError(Exception):
    """The base of all errors that this package raises on purpose.

    `remedy` says what to do, and is the last part of the message. `finding` is the id of the finding
    (`metrics.findings`) that a worker reports if this error stops a partition; None if it has none of its own.
    """

    exit_status = 1

    def __init__(
        self, sentence: str = "", *, remedy: str | None = None, finding: str | None = None
    ) -> None:
        super().__init__(f"{sentence}; {remedy}" if remedy else sentence)
        self.sentence, self.remedy, self.finding = sentence, remedy, finding


class ConfigError(StreamdedupError):
    """An error of the operator: a setting, an argument or a topic that is wrong."""

    exit_status = 2


class FilterFullError(ConfigError):
    """A filter of the library with `on_full: stop` is at its capacity. The call added nothing."""


class FilterFullWarning(UserWarning):
    """A filter of the library is at its capacity, and goes on. It is given once for each filter."""


class MalformedError(StreamdedupError):
    """An event has no key. The message is the reason, and does not quote the event."""


class SnapshotError(StreamdedupError):
    """An error of the disk: a snapshot that cannot be written, or must not be trusted."""


class DeliveryError(StreamdedupError):
    """An error of the broker: a log, an offset or a transaction that contradicts what the worker knows."""


def traceback_without_messages(error: BaseException) -> str:
    """Return the types and frames of `error` and of its causes: a traceback without messages and source lines."""
    return _LED_TO.join(map(_one, reversed(list(_causes(error)))))


_LED_TO = "\n\nwhich led to:\n\n"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error`, its cause, the cause of that, and so on. It stops if the chain is a ring."""
    met: list[BaseException] = []
    while len(met) < CAUSES_MAX and not any(error is known for known in met):
        met.append(error)
        yield error
        before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if before is None:
            return
        error = before


def _one(error: BaseException) -> str:
    lines = [*list(_frames(error))[-FRAMES_MAX:], type(error).__qualname__]
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions[:CAUSES_MAX]:
            lines += [f"  | {line}" for line in traceback_without_messages(part).splitlines()]
    return "\n".join(lines)


def _frames(error: BaseException) -> Iterator[str]:
    place = error.__traceback__
    while place:
        code = place.tb_frame.f_code
        yield f'  File "{code.co_filename}", line {place.tb_lineno}, in {code.co_name}'
        place = place.tb_next
