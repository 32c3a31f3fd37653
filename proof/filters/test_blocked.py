"""The blocked Bloom filter: its error by the exact chain and measured."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from streamdedup.filters.bloom.blocked import BlockedBloom
from streamdedup.filters.sizing import BLOCK_BITS, BLOCKED_HASHES_MAX, blocked_error, blocked_keys
from tests.filters.cases import band, random_digests
from tests.rows import table


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


def _found(seen: BlockedBloom, seed: int, probes: int) -> int:
    """How many of `probes` digests that were not added are found."""
    random = np.random.default_rng(seed)
    absent = random.integers(0, 1 << 64, (probes, 2), dtype=np.uint64)
    return int(np.count_nonzero(seen.contains_many(absent)))


def test_extremes_have_an_error() -> None:
    """No keys, one key, and more than there is room for."""
    assert blocked_error(1, 6, 0) == blocked_error(1000, 6, 0) == 0
    assert blocked_error(10**6, 1, 1) == pytest.approx(1 / 512e6)
    assert blocked_error(1, 6, 10**13) == blocked_error(3, 1, 10**13) == 1
    assert 0.999 < blocked_error(100, 6, 300_000) <= 1


@table([(1, 6), (2, 6), (1000, 9), (10**9, 16)])
def test_the_keys_follow_from_the_bits(row: tuple[int, int]) -> None:
    """The estimate is the inverse of the share of bits that so many keys set."""
    blocks, hashes = row
    keys = 40 * blocks
    a_key = 1 - (1 - 1 / BLOCK_BITS) ** hashes
    bits_set = BLOCK_BITS * blocks * -math.expm1(keys * math.log1p(-a_key / blocks))
    assert blocked_keys(blocks, hashes, round(bits_set)) == pytest.approx(keys, rel=0.01)
    assert math.isfinite(blocked_keys(blocks, hashes, blocks * BLOCK_BITS))
