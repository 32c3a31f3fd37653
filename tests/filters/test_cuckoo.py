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
from streamdedup.filters.cuckoo import cuckoo
from streamdedup.filters.cuckoo.cuckoo import Cuckoo
from streamdedup.filters.cuckoo.rows import add_rows
from streamdedup.filters.sizing import cuckoo_error, cuckoo_size
from streamdedup.filters.stash import ROWS
from tests.filters.cases import band, copies, random_digests, state

LOW_64 = (1 << 64) - 1


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


@pytest.mark.parametrize(
    ("error_rate", "bits_a_key", "bits"), [(1e-2, 10.5, 10), (1e-3, 13.7, 13), (1e-4, 17.9, 17)]
)
def test_a_key_costs_the_published_bits(error_rate: float, bits_a_key: float, bits: int) -> None:
    """10.5, 13.7 and 17.9 bits a key: fingerprints are packed to the bit, and there is any number of buckets."""
    seen = Cuckoo(1_000_000, error_rate)
    assert seen.fingerprint_bits == bits
    assert seen.size_bytes * 8 / 1_000_000 == pytest.approx(bits_a_key, abs=0.05)


@given(st.integers(1, 10**12), st.floats(1e-15, 0.99))
def test_sizes_keep_their_error_rate_at_the_least_cost(capacity: int, error_rate: float) -> None:
    """There are ceil(log2(8 * 0.95 / p + 1)) bits and the least buckets for a load of 0.95."""
    buckets, bits = cuckoo_size(capacity, error_rate)
    assert cuckoo_error(buckets, bits, capacity) <= error_rate
    assert bits == pytest.approx(math.log2(7.6 / error_rate + 1) + 0.5, abs=0.5 + 1e-9)
    assert capacity <= 3.8 * buckets * (1 + 1e-12)
    assert capacity > 3.8 * (buckets - 1) * (1 - 1e-12)


def test_what_would_not_fit_is_named() -> None:
    """Fingerprints above 60 bits and tables above 1 TiB are the operator's error."""
    for capacity, error_rate in ((10, 1e-18), (10, 5e-324), (10**13, 1e-6)):
        with pytest.raises(ConfigError, match=r"raise (it|filter\.error_rate)$"):
            Cuckoo(capacity, error_rate)


# --- load and errors ---


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


def test_nothing_overflows_at_capacity_in_a_large_table() -> None:
    """A million keys in 2^18 buckets, at the size from which the published load comes."""
    assert in_stash(filled(1 << 18, 8, 0.95)) == 0


@pytest.mark.parametrize(
    ("bits", "published"), [(8, 0.02973), (12, 0.001875), (13, 0.000938), (16, 0.0001167)]
)
def test_the_error_at_full_load_is_the_published_one(bits: int, published: float) -> None:
    """At the load of 0.96, where the first key overflows, in theory, by the table's own account and measured."""
    seen = filled(1 << 15, bits, 0.96)
    probes = random_digests(52, 2_000_000)
    assert seen.expected_error(round(0.96 * 4 * seen.buckets)) == pytest.approx(published, rel=0.01)
    assert seen.error_rate_now == pytest.approx(published, rel=0.01)
    low, high = band(seen.error_rate_now * len(probes))
    assert low < np.count_nonzero(seen.contains_many(probes)) < high


def test_two_buckets_are_independent_of_the_fingerprint() -> None:
    """Keys of equal fingerprints begin in all buckets, and all buckets are partners: no part of the table is idle."""
    seen = sized(1000, 8)
    seen.add_many(random_digests(53, 3800))
    cells = cells_of(seen).reshape(-1, 4)
    assert cells.any(axis=1).all()
    assert len(np.unique(cells)) == 256


# --- where fingerprints stand ---


def finalised(x: int) -> int:
    """SplitMix64's, in integers that do not overflow."""
    x = (x + 0x9E3779B97F4A7C15) & LOW_64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & LOW_64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & LOW_64
    return x ^ (x >> 31)


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


@pytest.mark.parametrize("bits", range(4, 61))
def test_every_width_of_fingerprint_is_packed_and_found(bits: int) -> None:
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


def test_cells_lie_above_32_bit_indices() -> None:
    """In a table of more than 2^32 bits keys are put beyond the 2^32nd, and read back.

    The pages of the 685 MB are the system's zero page until written; three keys write few.
    """
    seen = Cuckoo(400_000_000, 1e-3)
    rows = [(LOW_64, 3), (0xF0FFEE0123456789, 0x9E3779B97F4A7C15), (0xE123456789ABCDEF, LOW_64)]
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


def test_far_beyond_capacity_it_is_exact_and_not_slow() -> None:
    """Fifty times its capacity: every key is found, and searches for room have ended."""
    seen = sized(1000, 12)
    keys = random_digests(57, 190_000)
    seen.add_many(keys)
    assert seen.contains_many(keys).all()
    assert seen.fill_ratio > 0.97
    assert seen.size_bytes > in_stash(seen) * 24
    assert seen.expected_error(190_000) == pytest.approx(seen.error_rate_now, rel=0.04)


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


# --- parts ---


def test_what_overflowed_comes_back() -> None:
    """A filter with a stash goes on from its parts as it would have, through removals, too."""
    keys = random_digests(60, 9000)
    seen = filled(2000, 10, 1.1, seed=60)
    restored = Cuckoo.from_parts(seen.header(), copies(seen))
    assert in_stash(seen) > 500
    for one in (seen, restored):
        one.remove_many(keys[2000:7000])
        one.add_many(keys[1000:4000])
    assert state(restored) == state(seen)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"buckets": 1 << 41}, r"\(buckets, bits of a fingerprint\) follow"),
        ({"buckets": 1}, r"\(buckets, bits of a fingerprint\) follow"),
        ({"fingerprint_bits": 12}, r"\(buckets, bits of a fingerprint\) follow"),
        ({"fingerprint_bits": 61}, "fingerprint_bits 61 is not an integer"),
        ({"capacity": 10**12}, r"\(buckets, bits of a fingerprint\) follow"),
        ({"error_rate": 1e-4}, r"\(buckets, bits of a fingerprint\) follow"),
        ({"keys": 51}, "keys 51 is not an integer from 0 to 50"),
        ({"keys": -1}, "keys -1 is not"),
    ],
    ids=repr,
)
def test_contradictory_headers_are_refused(change: dict[str, Any], said: str) -> None:
    """A header that does not fit itself or its table is refused."""
    seen = Cuckoo(100, 1e-3)
    seen.add_many(random_digests(61, 50))
    with pytest.raises(ValueError, match=said):
        Cuckoo.from_parts({**seen.header(), **change}, seen.buffers())


def test_a_damaged_table_is_refused() -> None:
    """Bits behind the last cell, and a stash that was not written by one."""
    seen = Cuckoo(100, 1e-3)
    cells = seen.buckets * 4 * seen.fingerprint_bits
    for at, fits in ((cells - 1, True), (cells, False), (seen.buffers()[0].nbytes * 8 - 1, False)):
        table, stash = copies(seen)
        table[at // 8] |= 1 << at % 8
        if fits:
            assert Cuckoo.from_parts(seen.header(), [table, stash]).fill_ratio > 0
        else:
            with pytest.raises(ValueError, match="beyond the last cell"):
                Cuckoo.from_parts(seen.header(), [table, stash])
    table, stash = copies(seen)
    stash[0] = 1
    with pytest.raises(ValueError, match="stash"):
        Cuckoo.from_parts(seen.header(), [table, stash])


def test_a_large_header_over_a_small_table_allocates_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A header that fits itself but promises another table is refused before there is memory for one."""
    buckets, bits = cuckoo_size(10**10, 1e-3)
    large = {"capacity": 10**10, "buckets": buckets, "fingerprint_bits": bits}
    seen = Cuckoo(100, 1e-3)
    monkeypatch.setattr(cuckoo, "aligned_words", lambda *_: pytest.fail("it allocated"))
    with pytest.raises(ValueError, match="bytes of table"):
        Cuckoo.from_parts({**seen.header(), **large}, seen.buffers())
