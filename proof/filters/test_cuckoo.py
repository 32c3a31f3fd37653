"""The cuckoo filter at its loads, all widths, large tables, and searches."""

from typing import Any

import numpy as np
import pytest

from streamdedup.filters.cuckoo import cuckoo
from streamdedup.filters.cuckoo.cuckoo import Cuckoo
from streamdedup.filters.cuckoo.rows import add_rows
from streamdedup.filters.stash import ROWS
from tests.chosen import WORD
from tests.filters.cases import random_digests, state
from tests.filters.test_cuckoo import cells_of, filled, in_stash, packed, places, sized
from tests.rows import table


@pytest.mark.parametrize("bits", [7, 8, 12, 16, 20, 33])
@pytest.mark.parametrize("buckets", [1 << 14, 30_011])
def test_nothing_overflows_below_a_load_of_95_percent(buckets: int, bits: int) -> None:
    """The first key that finds no room comes beyond a load of 0.95, whatever the number of buckets."""
    seen = filled(buckets, bits, 0.95)
    assert in_stash(seen) == 0
    assert seen.fill_ratio == pytest.approx(0.95, abs=1e-4)
    seen.add_many(random_digests(51, buckets // 5))
    assert in_stash(seen) > 0
    assert seen.fill_ratio > 0.96


def test_two_buckets_are_independent_of_the_fingerprint() -> None:
    """Keys of equal fingerprints begin in all buckets, and all buckets are partners: no part of the table is idle."""
    seen = sized(1000, 8)
    seen.add_many(random_digests(53, 3800))
    cells = cells_of(seen).reshape(-1, 4)
    assert cells.any(axis=1).all()
    assert len(np.unique(cells)) == 256


def test_cells_lie_above_32_bit_indices() -> None:
    """In a table of more than 2^32 bits keys are put beyond the 2^32nd, and read back.

    The pages of the 685 MB are the system's zero page until written; three keys write few.
    """
    seen = Cuckoo(400_000_000, 1e-3)
    rows = [(WORD, 3), (0xF0FFEE0123456789, 0x9E3779B97F4A7C15), (0xE123456789ABCDEF, WORD)]
    digests = np.array(rows, dtype=np.uint64)
    assert seen.add_many(digests).all()
    assert seen.contains_many(digests).all()
    table = seen.buffers()[0]
    for a, b in rows:
        mark, bucket, _ = places(seen, a, b)
        at = bucket * 4 * seen.fingerprint_bits
        assert at > 1 << 32
        word = int.from_bytes(table[at // 8 : at // 8 + 16], "little") >> at % 8
        assert word & ((1 << seen.fingerprint_bits) - 1) == mark
    assert seen.remove_many(digests).all()
    assert not seen.contains_many(digests).any()


def test_look_alikes_on_both_sides_of_the_stash() -> None:
    """What the stash has is taken from it, never from the cell of a look-alike; the length stays above -1."""
    seen = sized(1, 4)  # one bucket: keys of equal fingerprints look alike
    keys = random_digests(62, 100)
    marks = [places(seen, a, b)[0] for a, b in keys.tolist()]
    alike = [i for i in range(100) if marks[i] == marks[0]][:2]
    others = [i for i in range(100) if marks[i] != marks[0]][:3]
    held, stashed = (keys[i : i + 1] for i in alike)
    seen.add_many(keys[[alike[0], *others]])
    assert not seen.add_many(stashed)[0]
    assert in_stash(seen) == 1
    assert seen.remove_many(keys[others[:1]])[0]
    seen.add_many(stashed)
    assert in_stash(seen) == 2  # one place for all of a key's copies: no search for the next one
    assert seen.remove_many(np.repeat(stashed, 2, axis=0)).all()
    assert in_stash(seen) == 0
    assert seen.contains_many(held)[0]
    seen.add_many(keys[others[:1]])
    seen.add_many(stashed)
    for gone in (keys[others], held, stashed):
        assert seen.remove_many(gone).all()
    assert len(seen) == 0


def test_a_search_leaves_the_kernel_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where room is hard to find a call ends before its rows do, and the answers are the same."""
    stopped: list[bool] = []
    kernel = add_rows

    def watched(*arguments: Any) -> int:
        done = int(kernel(*arguments))
        full = arguments[3][ROWS] >= len(arguments[2]) * 3 // 4
        stopped.append(done < len(arguments[6]) and not full)
        return done

    monkeypatch.setattr(cuckoo, "add_rows", watched)
    keys = random_digests(58, 65_000)
    seen, single = sized(1 << 14, 12), sized(1 << 14, 12)
    fresh = seen.add_many(keys)
    assert any(stopped)
    assert [bool(single.add_many(row[None])[0]) for row in keys] == fresh.tolist()
    assert state(single) == state(seen)


def test_a_search_that_fails_changes_nothing() -> None:
    """The key that finds no room is in the stash; the cells are those from before it came."""
    seen = filled(1 << 10, 12, 0.94)
    for row in random_digests(59, 200):
        cells, stashed = bytes(seen.buffers()[0]), in_stash(seen)
        seen.add_many(row[None])
        if in_stash(seen) > stashed:
            assert bytes(seen.buffers()[0]) == cells
            assert seen.fill_ratio < cuckoo.SEARCH_LOAD
            return
    pytest.fail("no search failed")


@table(range(4, 61))
def test_every_width_of_fingerprint_is_packed_and_found(bits: int) -> None:
    """At every bit of a word."""
    packed(bits)
