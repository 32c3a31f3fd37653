"""The base of every error, by whose fault, with its exit status; and how to tell of an error that is not ours.

A message of ours says what happened, to what, and what to do. None holds a key: events are named by topic, partition
and offset. The message of any other error may quote one, so `trace` leaves it out.
"""

from collections.abc import Iterator

CAUSES_MAX = 5
FRAMES_MAX = 20


class StreamdedupError(Exception):
    """Base of all errors that this package raises on purpose."""

    exit_status = 1


class ConfigError(StreamdedupError):
    """The operator's: a setting, an argument or a topic that does not fit."""

    exit_status = 2


class MalformedError(StreamdedupError):
    """An event without a key; the message is the reason, and does not hold what it has instead."""


class SnapshotError(StreamdedupError):
    """The disk's: a snapshot that cannot be written, or must not be trusted."""


class DeliveryError(StreamdedupError):
    """The broker's: a log, an offset or a transaction that contradicts what we know."""


def trace(error: BaseException) -> str:
    """The types and frames of `error` and of what it came from, as a traceback without messages and source lines."""
    return _LED_TO.join(map(_one, reversed(list(_causes(error)))))


_LED_TO = "\n\nwhich led to:\n\n"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error`, its cause, and so on: a chain may be a ring."""
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
            lines += [f"  | {line}" for line in trace(part).splitlines()]
    return "\n".join(lines)


def _frames(error: BaseException) -> Iterator[str]:
    place = error.__traceback__
    while place:
        code = place.tb_frame.f_code
        yield f'  File "{code.co_filename}", line {place.tb_lineno}, in {code.co_name}'
        place = place.tb_next
