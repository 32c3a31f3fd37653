"""The stash under damage and crowds."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.filters.stash import COUNT, Stash
from tests.filters.cases import random_digests
from tests.filters.test_stash import counted, grown


def test_it_grows_between_the_calls_of_a_kernel() -> None:
    """`feed` has every row done, however often the stash is full on the way; copies move along."""
    digests = np.repeat(random_digests(42, 50_000), 2, axis=0)
    stash = grown(digests)
    assert stash.used.tolist() == [50_000, 100_000]
    assert len(stash.table) == 1 << 17  # 2^16 would be full with 49,152
    assert counted(stash, digests[:1000]) == [2] * 1000
    assert not stash.full
    assert stash.table.ctypes.data % 64 == 0


def test_digests_that_share_a_bucket_do_not_collide() -> None:
    """What overflows together is alike in the upper bits of its first word: it is spread all the same."""
    count = 3000
    digests = random_digests(44, count).copy()
    digests[:, 0] = 7
    stash = grown(digests)
    taken = stash.table[:, COUNT] != 0
    assert len(stash.table) == 4096
    longest = max(len(run) for run in "".join("x" if row else " " for row in taken).split())
    assert longest < 100


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 24 * 16 - 1), st.integers(0, 7))
def test_every_flipped_bit_is_refused_or_harmless(byte: int, bit: int) -> None:
    """With one bit wrong it is refused, or still what it says: all that its rows hold is found in it."""
    saved = bytearray(grown(random_digests(47, 8)).buffer())
    saved[byte] ^= 1 << bit
    try:
        restored = Stash.over(memoryview(saved))
    except ValueError:
        return
    rows = restored.table[restored.table[:, COUNT] != 0]
    assert counted(restored, rows[:, :COUNT]) == rows[:, COUNT].tolist()
    assert restored.used.tolist() == [len(rows), rows[:, COUNT].sum()]
