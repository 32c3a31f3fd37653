"""Record batches of events, made by the column: a topic of millions of events is filled in seconds.

All events of a topic are of one size, so the bodies of the records of a batch are the rows of a matrix.
"""

import time
from collections.abc import Iterator
from functools import cache

import numpy as np

from bench.samples import DIGITS, digits
from bench.worker.events import (
    KEY,
    NUMBER_IN_KEY,
    NUMBER_IN_VALUE,
    POSITION_IN_VALUE,
    Bytes,
    Form,
    Integers,
    Part,
)
from proof.kafka.framings import varint
from streamdedup.events import Column
from streamdedup.kafka.records.codecs import CODECS
from streamdedup.kafka.records.encoding import BatchEncoder

BYTES_MAX = 128 << 10  # of a batch's events: between a client's default and the broker's most


def events_max(form: Form) -> int:
    """How many events of this form a batch has at most."""
    return max(1, BYTES_MAX // form.size)


def of_part(form: Form, part: Part, codec: str) -> Iterator[tuple[int, bytes]]:
    """Batch by batch: the offset at which it belongs, and its bytes."""
    step = events_max(form)
    for at in range(0, len(part.numbers), step):
        yield at, encode(form, part.numbers[at : at + step], at, codec)


def encode(form: Form, numbers: Integers, offset: int, codec: str = "none") -> bytes:
    """One batch of events of these keys, which is to stand at `offset`; stamped now."""
    count, (row, value_at) = len(numbers), _row(form)
    rows = np.tile(row, (count, 1))
    for at, written in (
        (value_at - len(varint(len(form.value))) - len(KEY) + NUMBER_IN_KEY, digits(numbers)),
        (value_at + NUMBER_IN_VALUE, digits(numbers)),
        (value_at + POSITION_IN_VALUE, digits(offset + np.arange(count))),
    ):
        rows[:, at : at + DIGITS] = written
    bodies = Column(rows.tobytes(), np.arange(count) * len(row), np.full(count, len(row)))
    encoder = BatchEncoder(codec=CODECS[codec], transactional=False, bytes_max=2 * rows.size + 100)
    encoder.add(bodies, np.full(count, int(time.time() * 1000)))
    (batch,) = encoder.finish()
    batch.stamp(-1, -1, -1)
    return bytes(batch.data)


@cache
def _row(form: Form) -> tuple[Bytes, int]:
    """The body of a record with zeros for digits, and where in it the value begins."""
    before = varint(len(KEY)) + KEY + varint(len(form.value))
    return np.frombuffer(before + form.value + varint(0), dtype=np.uint8), len(before)
