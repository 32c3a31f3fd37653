"""Claims about the blocked Bloom filter: its theorems, its one cache line a key, what it says of itself."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.errors import ConfigError
from streamdedup.filters.bloom.blocked import BlockedBloom
from streamdedup.filters.sizing import (
    BLOCK_BITS,
    BLOCKED_ERROR_MIN,
    BLOCKED_HASHES_MAX,
    blocked_error,
    blocked_keys,
    blocked_size,
    bloom_size,
)
from streamdedup.keys.hashing import Digests
from tests.filters.cases import band, random_digests

MULTIPLIER = 0xD1342543DE82EF95


# --- theorems ---


@pytest.mark.parametrize(
    ("error_rate", "hashes", "bits_a_key"),
    [(1e-2, 6, 9.92), (1e-3, 9, 15.55), (1e-4, 12, 22.03), (1e-6, 16, 38.8), (1e-9, 16, 85.3)],
)
def test_what_a_key_costs(error_rate: float, hashes: int, bits_a_key: float) -> None:
    """Bits a key and hashes at capacity, of the mixture: 3 % more than Bloom's at 1 %, twice as many at the least."""
    blocks, best = blocked_size(10**8, error_rate)
    assert best == hashes
    assert blocks * BLOCK_BITS / 10**8 == pytest.approx(bits_a_key, rel=1e-3)
    assert 1.03 < blocks * BLOCK_BITS / bloom_size(10**8, error_rate)[0] < 2


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 10**12), st.floats(BLOCKED_ERROR_MIN, 0.5))
def test_sizes_keep_their_error_rate_at_the_least_cost(capacity: int, error_rate: float) -> None:
    """At capacity the error is at most the rate, and with one block less it is above, for every number of hashes."""
    blocks, hashes = blocked_size(capacity, error_rate)
    assert blocked_error(blocks, hashes, capacity) <= error_rate
    for other in range(1, BLOCKED_HASHES_MAX + 1):
        assert blocks == 1 or blocked_error(blocks - 1, other, capacity) > error_rate
        assert other >= hashes or blocked_error(blocks, other, capacity) > error_rate


@pytest.mark.parametrize(("hashes", "load"), [(1, 300), (3, 110), (6, 50), (12, 23), (16, 13)])
def test_the_error_is_that_of_the_exact_chain(hashes: int, load: int) -> None:
    """The mean and variance of an occupancy give what following every single bit gives, within 0.3 %.

    That blocks fill unevenly costs more the more hashes there are; with one, whose error is concave, nothing.
    """
    of_load = _chain(hashes, 3 * load + 100)
    logs = [j * math.log(load) - load - math.lgamma(j + 1) for j in range(len(of_load))]
    mixture = float(of_load @ np.exp(logs))
    assert blocked_error(10**9, hashes, load * 10**9) == pytest.approx(mixture, rel=3e-3)
    assert blocked_error(1, hashes, load) == pytest.approx(of_load[load], rel=3e-3)
    assert (mixture > of_load[load] * 1.001) == (hashes > 1)


def test_few_blocks_are_no_poisson_mixture() -> None:
    """With three blocks the keys of one are binomial, less spread than Poisson's, and the error is smaller by it."""
    of_load = _chain(6, 111)
    binomial = [math.comb(110, j) * 2.0 ** (110 - j) / 3.0**110 for j in range(111)]
    error = blocked_error(3, 6, 110)
    assert error == pytest.approx(float(of_load @ np.array(binomial)), rel=3e-3)
    assert error < 0.95 * blocked_error(3000, 6, 110_000)


def test_extremes_have_an_error() -> None:
    """No keys, one key, and more than there is room for."""
    assert blocked_error(1, 6, 0) == blocked_error(1000, 6, 0) == 0
    assert blocked_error(10**6, 1, 1) == pytest.approx(1 / 512e6)
    assert blocked_error(1, 6, 10**13) == blocked_error(3, 1, 10**13) == 1
    assert 0.999 < blocked_error(100, 6, 300_000) <= 1


@pytest.mark.parametrize(("blocks", "hashes"), [(1, 6), (2, 6), (1000, 9), (10**9, 16)])
def test_the_keys_follow_from_the_bits(blocks: int, hashes: int) -> None:
    """The estimate is the inverse of the share of bits that so many keys set."""
    keys = 40 * blocks
    a_key = 1 - (1 - 1 / BLOCK_BITS) ** hashes
    bits_set = BLOCK_BITS * blocks * -math.expm1(keys * math.log1p(-a_key / blocks))
    assert blocked_keys(blocks, hashes, round(bits_set)) == pytest.approx(keys, rel=0.01)
    assert math.isfinite(blocked_keys(blocks, hashes, blocks * BLOCK_BITS))


# --- measured ---


def test_the_measured_error_at_a_ten_thousandth() -> None:
    """Twelve bits of a key, from 64 of its digest, are as good as independent ones."""
    seen, probes = BlockedBloom(200_000, 1e-4), 8
    assert seen.hashes == 12
    seen.add_many(random_digests(20, 200_000))
    found = sum(_found(seen, seed, 1_000_000) for seed in range(21, 21 + probes))
    low, high = band(seen.expected_error(200_000) * probes * 1_000_000)
    assert low < found < high < 1.25e-4 * probes * 1_000_000


def test_sixteen_bits_of_an_overfull_table() -> None:
    """At the most hashes, filled until errors can be counted: theory, and what the table says, are what is met."""
    seen, probes = BlockedBloom(100_000, 1e-6), 4_000_000
    assert seen.hashes == BLOCKED_HASHES_MAX
    seen.add_many(random_digests(30, 300_000))
    found = sum(_found(seen, seed, 1_000_000) for seed in range(31, 35))
    low, high = band(seen.expected_error(300_000) * probes)
    assert low > 2000
    assert low < found < high
    assert seen.error_rate_now * probes == pytest.approx(found, rel=0.05)


@pytest.mark.parametrize("capacity", [25, 110])
def test_small_tables_on_average(capacity: int) -> None:
    """In a table of one or of three blocks, over many fills, the error is the theorem's, within 6 %."""
    fills, probes = 400, 20_000
    keys, absent = random_digests(36, fills * capacity), random_digests(37, probes)
    found = 0
    for fill in range(fills):
        seen = BlockedBloom(capacity, 1e-2)
        seen.add_many(keys[fill * capacity : (fill + 1) * capacity])
        found += int(np.count_nonzero(seen.contains_many(absent)))
    assert seen.blocks == (1 if capacity == 25 else 3)
    assert found / (fills * probes) == pytest.approx(seen.expected_error(capacity), rel=0.06)


# --- layout ---

words = st.integers(0, 2**64 - 1)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(words, words), max_size=30),
    st.integers(1, 3000),
    st.sampled_from([0.5, 0.1, 1e-3, 1e-9]),
)
def test_bits_land_where_the_formula_says(
    rows: list[tuple[int, int]], capacity: int, error_rate: float
) -> None:
    """The table is what big integers give; a digest is present where all its bits are."""
    seen = BlockedBloom(capacity, error_rate)
    model = 0
    fresh = []
    for a, b in rows:
        mask = sum({1 << at for at in _places(a, b, seen)})
        fresh.append(mask & ~model != 0)
        model |= mask
    assert seen.add_many(_as_digests(rows)).tolist() == fresh
    assert bytes(seen.buffers()[0]) == model.to_bytes(seen.size_bytes, "little")
    others = [(b, a) for a, b in rows]
    assert seen.contains_many(_as_digests(others)).tolist() == [
        all(model >> at & 1 for at in _places(a, b, seen)) for a, b in others
    ]


def test_a_key_touches_one_cache_line() -> None:
    """All bits of a key are in one 64-byte line, and the table begins on one."""
    for digest in np.split(random_digests(38, 50), 50):
        seen = BlockedBloom(1000, 1e-6)
        seen.add_many(digest)
        table = np.frombuffer(seen.buffers()[0], np.uint8)
        assert table.ctypes.data % 64 == 0
        assert len(set(np.flatnonzero(table) // 64)) == 1


def test_bits_land_above_32_bit_indices() -> None:
    """In a table of more than 2^32 bits those beyond the 2^32nd are set and read back; pages unwritten cost nothing."""
    seen = BlockedBloom(450_000_000, 1e-2)
    assert seen.blocks * BLOCK_BITS > 1 << 32
    rows = [((1 << 64) - 1, 3), ((1 << 64) - (1 << 50), 0x9E3779B97F4A7C15), (1, (1 << 64) - 5)]
    places = {at for a, b in rows for at in _places(a, b, seen)}
    assert sum(at > 1 << 32 for at in places) > 6
    assert seen.add_many(_as_digests(rows)).all()
    (table,) = seen.buffers()
    assert all(table[at // 8] >> at % 8 & 1 for at in places)
    assert seen.fill_ratio == len(places) / (seen.blocks * BLOCK_BITS)
    assert seen.contains_many(_as_digests(rows)).all()


# --- what it says of itself ---


def test_its_error_and_fill_are_those_of_its_bits() -> None:
    """After additions in batches and alone, a union and a restore: as counted anew from the table."""
    seen, other = BlockedBloom(5000, 1e-3), BlockedBloom(5000, 1e-3)
    for part in np.array_split(random_digests(39, 4000), 7):
        seen.add_many(part)
    for number in range(500):
        seen.add(b"%d" % number)
    _check_counts(seen)
    other.add_many(random_digests(40, 3000))
    seen |= other
    _check_counts(seen)
    _check_counts(BlockedBloom.from_parts(seen.header(), seen.buffers()))


def test_keys_whose_bits_were_not_saved_do_not_count() -> None:
    """A snapshot's header may be newer than its bits: there are never more keys than bits that are set."""
    seen = BlockedBloom(100, 1e-3)
    seen.add_many(random_digests(41, 2))
    restored = BlockedBloom.from_parts({**seen.header(), "keys": 90}, seen.buffers())
    bits = seen.blocks * BLOCK_BITS
    assert len(restored) == round(restored.fill_ratio * bits) < 90


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"capacity": 90}, "do not follow"),
        ({"error_rate": 2e-3}, "do not follow"),
        ({"error_rate": 1e-10}, "error_rate 1e-10 is below"),
        ({"hashes": 17}, "hashes 17 is not an integer from 1 to 16"),
        ({"blocks": 1 << 40}, "blocks .* is not an integer"),
        ({"keys": -1}, "keys -1 is not"),
    ],
)
def test_contradictory_headers_are_refused(change: dict[str, object], said: str) -> None:
    """A header that does not fit itself or the table is refused, and says why."""
    seen = BlockedBloom(200, 1e-3)
    with pytest.raises(ValueError, match=said):
        BlockedBloom.from_parts({**seen.header(), **change}, seen.buffers())


def test_rates_that_are_another_kinds_are_refused_with_its_name() -> None:
    """Below 1e-9, where a key costs more than twice Bloom's bits; and tables that no machine holds."""
    with pytest.raises(ConfigError, match="choose kind bloom"):
        BlockedBloom(1000, BLOCKED_ERROR_MIN * 0.99)
    with pytest.raises(ConfigError, match=r"filter\.capacity 10000000000000 .* lower the capacity"):
        BlockedBloom(10**13, 1e-6)


def _chain(hashes: int, loads: int) -> npt.NDArray[np.float64]:
    """E[(share of set bits)^k] of one block with 0, 1, ... `loads` - 1 keys, bit by bit."""
    shares = np.arange(BLOCK_BITS + 1) / BLOCK_BITS
    probable = np.zeros(BLOCK_BITS + 1)
    probable[0] = 1
    errors = []
    for _ in range(loads):
        errors.append(float(probable @ shares**hashes))
        for _ in range(hashes):
            newly = probable * (1 - shares)
            probable = probable * shares
            probable[1:] += newly[:-1]
    return np.array(errors)


def _places(a: int, b: int, seen: BlockedBloom) -> list[int]:
    """Follow the documented sequence, in integers that do not overflow."""
    block = a * seen.blocks >> 64
    places = []
    for _ in range(seen.hashes):
        places.append(block * BLOCK_BITS + (b >> 55))
        b = (b * MULTIPLIER + a) % 2**64
    return places


def _as_digests(rows: list[tuple[int, int]]) -> Digests:
    return np.array(rows, dtype=np.uint64).reshape(-1, 2)


def _found(seen: BlockedBloom, seed: int, probes: int) -> int:
    """How many of `probes` digests that were not added are found."""
    random = np.random.default_rng(seed)
    absent = random.integers(0, 1 << 64, (probes, 2), dtype=np.uint64)
    return int(np.count_nonzero(seen.contains_many(absent)))


def _check_counts(seen: BlockedBloom) -> None:
    bits = np.unpackbits(np.frombuffer(seen.buffers()[0], np.uint8)).reshape(-1, BLOCK_BITS)
    shares = bits.mean(axis=1)
    assert seen.fill_ratio == pytest.approx(shares.mean(), rel=1e-12)
    assert seen.error_rate_now == pytest.approx((shares**seen.hashes).mean(), rel=1e-12)
