"""Whether an output is exactly what it should be: each event, byte for byte, in order, against the model of the input.

What a filter took for a duplicate by mistake is missing; that is counted, and must be within its error rate. Anything
else that is not as expected ends the benchmark: no rate is told of a wrong output.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.samples import AFTER, BEFORE, DIGITS
from bench.worker.events import (
    KEY,
    NUMBER_IN_VALUE,
    POSITION_IN_VALUE,
    Bytes,
    Form,
    Integers,
    Part,
)
from bench.worker.log import Log
from streamdedup.kernel import inlined, kernel

ZERO = ord("0")
UNLIKELY = 1e-6  # more errors than with this probability are too many
DIGIT_COUNT, NUMBER_AT = DIGITS, len(BEFORE)
KEY_SIZE = len(BEFORE) + DIGITS + len(AFTER)
EMAIL_AT, N_AT = NUMBER_IN_VALUE, POSITION_IN_VALUE
ANYWHERE = -1  # no partition
UNREADABLE, OTHER_BYTES, UNEXPECTED = -1, -2, -3
FAULTS = {
    UNREADABLE: "is not of our form",
    OTHER_BYTES: "has other bytes than the input's",
    UNEXPECTED: "is doubled, out of order, or not in the input",
}


class WrongOutputError(Exception):
    """An output is not what it should be; the message says where."""


@dataclass(frozen=True)
class Checked:
    """Events of an output, and how many of those expected it lacks."""

    emitted: int
    missing: int


async def checked(
    log: Log,
    form: Form,
    inputs: Sequence[Part],
    ends: Sequence[int],
    *,
    judged: bool,
    placed: bool = True,
    headers: int = 0,
) -> Checked:
    """Compare an output with what stands below `ends` in the input; raises WrongOutputError.

    What is expected is there at most once, and nothing else is; in its partition and in order, if it is `placed`.
    Each event has so many `headers`, whatever they are.
    """
    starts = np.cumsum([0, *(len(part.numbers) for part in inputs)])
    numbers = np.concatenate([part.numbers for part in inputs])
    due = np.zeros(len(numbers), dtype=np.bool_)
    for part, start, end in zip(inputs, starts[:-1], ends, strict=True):
        due[start + part.expected(end, judged=judged)] = True
    emitted = 0
    for partition in range(log.partitions):
        home, at = partition if placed else ANYWHERE, 0
        async for batch in log.committed(partition):
            records = np.frombuffer(batch.records, dtype=np.uint8)
            expected = numbers, starts, due, home, at
            at = struck(records, batch.events, *expected, *forms(form), headers)
            if at < 0:
                where = f"{log.topic}/{partition}, batch at {batch.offset}"
                raise WrongOutputError(f"{where}: an event {FAULTS[at]}")
            emitted += batch.events
    return Checked(emitted, int(due.sum()))


def missing_max(judged: int, error_rate: float) -> int:
    """How many of `judged` new events a filter may drop: more have a probability below one in a million (Poisson)."""
    mean = judged * error_rate
    if mean == 0:
        return 0
    count, left = 0, 1 - math.exp(-mean)
    while left > UNLIKELY:
        count += 1
        left -= math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
    return count


def forms(form: Form) -> tuple[Bytes, Bytes]:
    """Key and value with zero bytes where digits stand."""
    key, value = (np.frombuffer(text, dtype=np.uint8).copy() for text in (KEY, form.value))
    for text, at in ((key, NUMBER_AT), (value, EMAIL_AT), (value, N_AT)):
        text[at : at + DIGIT_COUNT] = 0
    return key, value


@inlined
def _varint(records: Bytes, at: int) -> tuple[int, int]:
    """The zigzag number at `at`, and where it ends."""
    number = shift = 0
    while at < len(records):
        byte = int(records[at])
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return (number >> 1) ^ -(number & 1), at


@inlined
def _number(records: Bytes, at: int) -> int:
    """The twelve digits at `at`."""
    number = 0
    for i in range(at, at + DIGIT_COUNT):
        number = number * 10 + int(records[i]) - ZERO
    return number


@inlined
def _is(records: Bytes, at: int, form: Bytes) -> bool:
    """Whether the bytes at `at` are those of `form`, digits where that has zeros."""
    same = True
    for i in range(len(form)):
        byte = records[at + i]
        if form[i] == 0:
            same &= ZERO <= byte <= ZERO + 9
        else:
            same &= byte == form[i]
    return same


@inlined
def _event(
    records: Bytes, place: int, key_form: Bytes, value_form: Bytes, headers_due: int
) -> tuple[int, int, int]:
    """The number and the position of the event at `place`, and where it ends; or a fault for its number."""
    length, place = _varint(records, place)
    stop = place + length
    if stop > len(records) or length < KEY_SIZE + len(value_form):
        return UNREADABLE, 0, stop
    _, place = _varint(records, place + 1)
    _, place = _varint(records, place)
    key_size, key_at = _varint(records, place)
    value_size, value_at = _varint(records, key_at + KEY_SIZE)
    headers, end = _varint(records, value_at + len(value_form))
    if key_size != KEY_SIZE or value_size != len(value_form) or headers != headers_due:
        return UNREADABLE, 0, stop
    if headers == 0 and end != stop:
        return UNREADABLE, 0, stop
    if not (_is(records, key_at, key_form) and _is(records, value_at, value_form)):
        return OTHER_BYTES, 0, stop
    number = _number(records, key_at + NUMBER_AT)
    if number != _number(records, value_at + EMAIL_AT):
        return OTHER_BYTES, 0, stop
    return number, _number(records, value_at + N_AT), stop


@kernel
def struck(
    records: Bytes,
    count: int,
    numbers: Integers,
    starts: Integers,
    due: npt.NDArray[np.bool_],
    home: int,
    at: int,
    key_form: Bytes,
    value_form: Bytes,
    headers: int,
) -> int:
    """Strike these records off what is `due`, whose partitions begin at `starts`.

    Unless they may be ANYWHERE, they are of the partition `home`, and in order from the position `at` on. Returns the
    position after the last, or a fault.
    """
    place, partitions = 0, len(starts) - 1
    for _ in range(count):
        number, position, place = _event(records, place, key_form, value_form, headers)
        if number < 0:
            return number
        partition = number % partitions
        if home != ANYWHERE and (partition != home or position < at):
            return UNEXPECTED
        start, stop = starts[partition], starts[partition + 1]
        if position >= stop - start:
            return UNEXPECTED
        row = start + position
        if not due[row] or numbers[row] != number:
            return UNEXPECTED
        due[row] = False
        at = position + 1
    return at


@kernel
def positions_of(records: Bytes, count: int, value_size: int, found: npt.NDArray[np.int64]) -> None:
    """Put the position that each event's value tells into `found`; the records are of our form."""
    place = 0
    for i in range(count):
        length, place = _varint(records, place)
        place += length
        found[i] = _number(records, place - 1 - value_size + N_AT)
