"""Claims about placement: keys of every length and number lie where Kafka's clients put them."""

import random

import pytest
from aiokafka.partitioner import murmur2

from streamdedup.events import Column
from streamdedup.keys import placement
from streamdedup.keys.placement import partitions_of
from tests.keys.test_placement import POSITIVE
from tests.rows import table
from tests.watching import watched


@table([1, 2, 3, 12, 10_000, POSITIVE])
def test_every_length_is_placed_as_by_a_client(partitions: int) -> None:
    """Of 0 to 100 bytes, which is every rest after blocks of four, aiokafka's own function finds the same."""
    chance = random.Random(partitions)
    given = [chance.randbytes(size) for size in range(101) for _ in range(20)]
    expected = [(murmur2(key) & POSITIVE) % partitions for key in given]
    assert partitions_of(Column.of(given), partitions).tolist() == expected


def test_many_and_long_keys_take_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is short, however many rows or bytes there are, and all rows are placed."""
    spent: list[float] = []
    monkeypatch.setattr(placement, "_fill", watched(placement._fill, spent))
    given = [b"%d" % row for row in range(100_000)] + [bytes(1 << 20)] * 24
    placed = partitions_of(Column.of(given), 12).tolist()
    assert placed[:100:7] == [(murmur2(key) & POSITIVE) % 12 for key in given[:100:7]]
    assert placed[-24:] == [(murmur2(bytes(1 << 20)) & POSITIVE) % 12] * 24
    assert len(spent) >= 4 + 24 // 5
    assert sorted(spent)[-2] < 0.01, spent  # the machine may have had other work once
