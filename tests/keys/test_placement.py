"""Claims about placement: a key lies where Kafka's clients put it, whatever its bytes and however many there are."""

import numpy as np
import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.events import Column
from streamdedup.keys.placement import NOWHERE, partitions_by_records, partitions_of
from tests.rows import table

# From Kafka's own tests: clients/src/test/java/org/apache/kafka/common/utils/UtilsTest.java, testMurmur2. As signed.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
POSITIVE = (1 << 31) - 1

keys = st.lists(st.none() | st.binary(max_size=100), max_size=30)
counts = st.integers(1, 10_000)


@pytest.mark.rule(20)
@table(JAVA.items())
def test_the_hash_is_that_of_java(key: bytes, hashed: int) -> None:
    """The values of Kafka's own test."""
    assert partitions_of(Column.of([key]), 1 << 31).tolist() == [hashed & POSITIVE]


@given(keys, counts)
def test_a_null_is_nowhere(given: list[bytes | None], partitions: int) -> None:
    """Keys lie where a client puts them, an empty one, too; a null lies nowhere."""
    every, place = list(range(partitions)), DefaultPartitioner()
    expected = [NOWHERE if key is None else place(key, every, every) for key in given]
    assert partitions_of(Column.of(given), partitions).tolist() == expected


@given(keys, st.integers(0, 1 << 31), counts)
def test_events_without_a_key_stay_together(
    given: list[bytes | None], ours: int, partitions: int
) -> None:
    """By record key; those without one go where their partition of the input leads."""
    placed = partitions_of(Column.of(given), partitions)
    expected = [ours % partitions if p == NOWHERE else p for p in placed.tolist()]
    assert partitions_by_records(Column.of(given), ours, partitions).tolist() == expected


def test_cells_may_lie_anywhere() -> None:
    """In any order, apart, over one another, and at the very end of the buffer."""
    column = Column(b"abcdefghi", np.array([4, 0, 0, 9]), np.array([5, 5, -1, 0]))
    assert (
        partitions_of(column, 997).tolist() == partitions_of(Column.of(list(column)), 997).tolist()
    )


@pytest.mark.bounds
@table([(-1, 2), (0, 10), (9, 1), (1 << 62, 1 << 62), (5, (1 << 63) - 1)])
def test_a_key_outside_of_the_buffer_is_refused(start: int, size: int) -> None:
    """Whatever its numbers; the error names the row, and no byte of the buffer."""
    column = Column(b"abcdefghi", np.array([0, start, 0]), np.array([9, size, 9]))
    with pytest.raises(ValueError, match=r"^row 1 does not lie in a buffer of 9 bytes$"):
        partitions_of(column, 3)
