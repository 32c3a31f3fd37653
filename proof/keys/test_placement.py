"""Claims about placement: however many and long keys are, they lie where Kafka's clients put them."""

import pytest
from aiokafka.partitioner import murmur2

from streamdedup.events import Column
from streamdedup.keys import placement
from streamdedup.keys.placement import partitions_of
from tests.keys.test_placement import POSITIVE
from tests.watching import watched


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
