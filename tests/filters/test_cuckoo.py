"""Claims about the cuckoo filter: its sizes, its load, its errors, where fingerprints stand, and that none is lost.

A filter of B buckets and f bits is asked for by the capacity and the error rate from which these follow.
"""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.errors import ConfigError
from streamdedup.filters.cuckoo.cuckoo import Cuckoo
from streamdedup.filters.sizing import cuckoo_error, cuckoo_size
from tests.chosen import finalised
from tests.filters.cases import copies, random_digests
from tests.rows import table


def sized(buckets: int, bits: int) -> Cuckoo:
    """A filter of so many buckets, with fingerprints of so many bits."""
    seen = Cuckoo(buckets * 19 // 5, 7.6 / (0.9 * 2**bits), multiset=True)
    assert (seen.buckets, seen.fingerprint_bits) == (buckets, bits)
    return seen


def filled(buckets: int, bits: int, load: float, seed: int = 50) -> Cuckoo:
    """The same, with random keys up to that load."""
    seen = sized(buckets, bits)
    seen.add_many(random_digests(seed, round(load * 4 * buckets)))
    return seen


def in_stash(seen: Cuckoo) -> int:
    """How many additions the stash holds: the counts in the third column of its rows."""
    return int(np.frombuffer(seen.buffers()[1], "<u8").reshape(-1, 3)[:, 2].sum())


# --- sizes ---


@given(st.integers(1, 10**12), st.floats(1e-15, 0.99), st.sampled_from([4, 8]))
def test_sizes_keep_their_error_rate_at_the_least_cost(
    capacity: int, error_rate: float, cells: int
) -> None:
    """There are ceil(log2(2 b * 0.95 / p + 1)) bits, and the least buckets of b cells for a load of 0.95."""
    buckets, bits = cuckoo_size(capacity, error_rate, cells)
    full = 0.95 * cells
    assert cuckoo_error(buckets, bits, capacity, cells) <= error_rate
    assert bits == pytest.approx(math.log2(2 * full / error_rate + 1) + 0.5, abs=0.5 + 1e-9)
    assert capacity <= full * buckets * (1 + 1e-12)
    assert capacity > full * (buckets - 1) * (1 - 1e-12)


@table([1e-18, 5e-324])
def test_fingerprints_that_are_too_wide_are_named(error_rate: float) -> None:
    """Above 60 bits, which are read out of two words, they are the operator's error."""
    with pytest.raises(ConfigError, match=r"it takes fingerprints.+; raise filter.error_rate"):
        Cuckoo(10, error_rate)


# --- where fingerprints stand ---


def places(seen: Cuckoo, a: int, b: int) -> tuple[int, int, int]:
    """The fingerprint and the two buckets, as the documentation gives them."""
    mark = (b * (2**seen.fingerprint_bits - 1) >> 64) + 1
    one = a * seen.buckets >> 64
    return mark, one, ((finalised(mark) * seen.buckets >> 64) - one) % seen.buckets


def cells_of(seen: Cuckoo) -> "np.ndarray[Any, np.dtype[np.uint64]]":
    """The fingerprints, read by Python's integers: cell i from bit i * f on."""
    bits, table = seen.fingerprint_bits, int.from_bytes(seen.buffers()[0], "little")
    cells = 4 * seen.buckets
    assert table >> cells * bits == 0
    text = f"{table:0{cells * bits}b}"
    found = [int(text[i : i + bits], 2) for i in range(0, cells * bits, bits)]
    return np.array(found[::-1], dtype=np.uint64)


@table([4, 7, 8, 13, 16, 21, 31, 32, 33, 48, 59, 60])
def test_fingerprints_of_any_width_are_packed_and_found(bits: int) -> None:
    """A dozen widths; proof/ has all."""
    packed(bits)


def packed(bits: int) -> None:
    """Cells hold the fingerprints of all keys, each in one of its buckets; a digest is present just where one stands.

    The table has 61 buckets: cells begin at every bit of a word, and cross its end.
    """
    seen = sized(61, bits)
    keys, others = random_digests(54, 244), random_digests(55, 300)
    seen.add_many(keys)
    cells = cells_of(seen).reshape(-1, 4)
    stash = np.frombuffer(seen.buffers()[1], "<u8").reshape(-1, 3)
    stashed = {(int(a), int(b)) for a, b, count in stash if count}
    held = Counter[int]()
    for a, b in keys.tolist():
        mark, one, other = places(seen, a, b)
        held[mark] += (a, b) not in stashed
        assert (a, b) in stashed or mark in cells[[one, other]]
    assert Counter(int(mark) for mark in cells.flat if mark) == +held
    model = [places(seen, a, b) for a, b in others.tolist()]
    expected = [mark in cells[[one, other]] for mark, one, other in model]
    assert seen.contains_many(others).tolist() == expected
    assert seen.fill_ratio == np.count_nonzero(cells) / 244 > 0.9


# --- nothing is lost ---


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1, 7),
    st.integers(4, 6),
    st.lists(st.tuples(st.booleans(), st.integers(0, 39)), max_size=200),
)
def test_members_stay_while_others_come_and_go(
    buckets: int, bits: int, steps: list[tuple[bool, int]]
) -> None:
    """Where most keys look alike and overflow: every member is found, every removal of one succeeds."""
    seen, members = sized(buckets, bits), Counter[int]()
    keys = random_digests(56, 40)
    for adds, key in steps:
        row = keys[key : key + 1]
        if adds:
            assert not (seen.add_many(row)[0] and members[key])
        elif members[key]:
            assert seen.remove_many(row)[0]
        members[key] = max(0, members[key] + (1 if adds else -1))
        assert seen.contains_many(keys[sorted(+members)]).all()
        assert 0 <= len(seen) <= members.total()
    assert round(seen.fill_ratio * 4 * buckets) + in_stash(seen) == members.total()
    rest = np.repeat(keys, [members[key] for key in range(40)], axis=0)
    assert seen.remove_many(rest).all()
    assert len(seen) == 0
    assert not any(b"".join(bytes(buffer) for buffer in seen.buffers()))


def test_copies_of_a_key_fill_its_buckets_and_then_the_stash() -> None:
    """Eight copies have cells, the rest is counted exactly, and each is taken back once."""
    seen = Cuckoo(1000, 1e-9, multiset=True)
    rows = np.repeat(seen.digests([b"hot"]), 1000, axis=0)
    assert seen.add_many(rows).tolist() == [True] + [False] * 999
    assert np.count_nonzero(cells_of(seen)) == 8
    assert in_stash(seen) == 992
    assert len(seen) == 1
    assert seen.remove_many(rows[:999]).all()
    assert "hot" in seen
    assert seen.discard("hot")
    assert not seen.discard("hot")
    assert "hot" not in seen
    assert len(seen) == 0


def test_a_stash_that_none_wrote_is_refused() -> None:
    """Of a filter without one, too."""
    seen = Cuckoo(100, 1e-3)
    table, stash = copies(seen)
    stash[0] = 1
    with pytest.raises(ValueError, match="stash"):
        Cuckoo.from_parts(seen.header(), [table, stash])
