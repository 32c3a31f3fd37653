"""Claims about work that takes long: it is done beside the loop, and what is decided does not depend on that."""

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from streamdedup.delivery import turns
from streamdedup.delivery.turns import digests_of
from streamdedup.events import Column
from streamdedup.keys.hashing import MURMUR3, Digests
from tests.delivery.test_shard import DROPPED, TOMBSTONE, Row, admit, contents, keys_of, shard_of


class NotedHash:
    """A hash that notes in which threads it was asked."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def of_column(self, keys: Column) -> Digests:
        """Hash them."""
        self.threads.append(threading.get_ident())
        return MURMUR3.of_column(keys)


async def test_long_keys_are_hashed_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above so many bytes of keys, in one or in several, a thread hashes them; below, it is left to who needs them."""
    monkeypatch.setattr(turns, "BYTES_A_TURN", 10)
    for cells, is_long in (
        ([b"12345", None, b"67890"], False),
        ([b"12345", None, b"6789012"], True),
    ):
        hash_, keys = NotedHash(), Column.of(cells)
        found = await digests_of(keys, hash_)  # type: ignore[arg-type]
        if is_long:
            assert found is not None
            both = np.array([0, 2])
            assert (found[both] == MURMUR3.of_column(keys.take(both))).all()
        assert (found is not None) is is_long
        assert [thread != threading.get_ident() for thread in hash_.threads] == [True] * is_long


@pytest.mark.parametrize("rejected", [(), (0,), (2, 5)])
async def test_what_is_decided_is_the_same(
    rejected: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With digests that were made before, verdicts and filter are those of digests that the shard makes."""
    monkeypatch.setattr(turns, "BYTES_A_TURN", 0)
    batch: list[Row] = [b"a", TOMBSTONE, b"b", b"a", DROPPED, b"c", b"c", b""]
    keys, times = keys_of(batch), np.zeros(len(batch), dtype=np.int64)
    one, other = shard_of(), shard_of()
    digests = await digests_of(keys.keys, other.filter.hash)
    assert digests is not None
    verdicts = one.decide(keys, times, rejected).verdicts
    assert (
        verdicts.tolist() == other.decide(keys, times, rejected, digests=digests).verdicts.tolist()
    )
    admit(one, 8)
    admit(other, 8)
    assert contents(one) == contents(other)
    folded, with_them = shard_of(), shard_of()
    for _ in folded.fold(keys.keys, times, 8):
        pass
    for _ in with_them.fold(keys.keys, times, 8, digests):
        pass
    assert contents(folded) == contents(with_them)
