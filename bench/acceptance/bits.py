"""Bloom filters of any m and k: the theorem, the exact probability where m is small, and both probe sequences."""

import math

import numpy as np

from bench.acceptance.chance import found_in, occupancy_spread, random_keys
from bench.acceptance.report import Figure, Section, near, share
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.filters.memory import aligned_words
from streamdedup.filters.sizing import bloom_error
from streamdedup.keys.hashing import Digests
from tests.filters.cases import SIGMAS, probes_for

SPOTS = {(8, 5): 0.0217, (10, 7): 0.00819, (16, 8): 0.000574, (20, 4): 0.00108, (32, 8): 5.73e-6}
KEYS = 100_000
SMALL = {(32, 4, 5): 0.051702, (128, 7, 13): 0.0094462, (1024, 10, 71): 0.00099524}


def bloom_of(bits: int, hashes: int, *, probe: str = "standard") -> Bloom:
    """A filter of so many bits and hashes, which no capacity and error rate need ask for."""
    seen = Bloom(1, 0.5, probe=probe)
    seen._size(bits, hashes)
    seen._words = aligned_words(-(-bits // 64))
    return seen


# --- the table ---


def table() -> Section:
    """Rows m/n of 2 to 32, columns k of 1 to 8."""
    return Section(
        "bloom: the table of the literature",
        f"""Paper: the false positives of m/n = 2 to 32 by k = 1 to 8 as they are printed. Theory: (1 -
        e^(-kn/m))^k. Spot values by many probes; then all 248 entries, each with {KEYS:,} keys and a
        million probes: the farthest from theory, in standard deviations.""",
        [*(_spot(*place, paper) for place, paper in SPOTS.items()), _whole_table()],
    )


def _filled(bits: int, hashes: int, keys: list[Digests], probe: str = "standard") -> Bloom:
    seen = bloom_of(bits, hashes, probe=probe)
    for part in keys:
        seen.add_many(part)
    return seen


def _spot(bits_a_key: int, hashes: int, paper: float) -> Figure:
    bits, keys = bits_a_key * KEYS, list(random_keys(1, KEYS))
    expected = bloom_error(bits, hashes, KEYS)
    probes = min(8 * probes_for(expected), 64 << 20)
    found = found_in(_filled(bits, hashes, keys), 2, probes)
    spread = hashes * occupancy_spread(bits, hashes * KEYS)
    name = f"error, m/n = {bits_a_key}, k = {hashes}"
    return share(name, found, probes, expected, spread=spread, paper=paper)


def _whole_table() -> Figure:
    keys, (absent,) = list(random_keys(3, KEYS)), random_keys(4, 1 << 20)
    farthest = 0.0
    for bits_a_key in range(2, 33):
        for hashes in range(1, 9):
            bits = bits_a_key * KEYS
            expected = bloom_error(bits, hashes, KEYS)
            found = int(np.count_nonzero(_filled(bits, hashes, keys).contains_many(absent)))
            spread = hashes * occupancy_spread(bits, hashes * KEYS)
            # Below 20 expected ones the number of false positives is not nearly normal.
            deviation = math.sqrt(max(20, expected * len(absent)) + (spread * found) ** 2)
            farthest = max(farthest, abs(found - expected * len(absent)) / deviation)
    return Figure("farthest of all 248 entries", farthest, 0, SIGMAS, style=".2f")


# --- small tables ---


def small() -> Section:
    """Against the exact probability, averaged over many fillings."""
    return Section(
        "bloom: small tables",
        """Paper: the exact probability, which exceeds the formula where m is small. Theory: the same, by
        the chain of how many of m bits are set after each of kn hashes. A filling's own spread is large
        (18 % at m = 1024), so thousands are averaged.""",
        [_small(*sizes, paper) for sizes, paper in SMALL.items()],
    )


def exact_error(bits: int, hashes: int, keys: int) -> tuple[float, float]:
    """The mean error over all fillings, and the standard deviation from one to another."""
    taken = np.zeros(bits + 1)
    taken[0] = 1.0  # how probable it is that so many bits are set
    share_set = np.arange(bits + 1) / bits
    for _ in range(hashes * keys):
        newly = taken * (1 - share_set)
        taken = taken * share_set
        taken[1:] += newly[:-1]
    errors = share_set**hashes
    mean = float(taken @ errors)
    return mean, math.sqrt(float(taken @ errors**2) - mean**2)


def _small(bits: int, hashes: int, keys: int, paper: float) -> Figure:
    expected, deviation = exact_error(bits, hashes, keys)
    fills, probes = (6000, 16_384) if bits > 1000 else (16_000, 2048)
    (members,), found = random_keys(5, fills * keys), 0
    for fill in range(fills):
        seen = _filled(bits, hashes, [members[fill * keys : (fill + 1) * keys]])
        found += found_in(seen, 10_000 + fill, probes)
    spread = deviation / expected / math.sqrt(fills)
    name = f"error, m = {bits}, k = {hashes}, n = {keys}, {fills:,} fillings"
    return share(name, found, fills * probes, expected, spread=spread, paper=paper)


# --- probe sequences ---


def probe_sequences() -> Section:
    """Where m is small and k large, hashes that are not independent show."""
    return Section(
        "probe sequences at m = 2^16, k = 20",
        """Reported: plain double hashing errs 18 times as often as independent hashes, 8 of these by steps
        of 0, with odd steps 7.5 times, enhanced double hashing 1.5 times. Ours, `standard`, must err as
        independent hashes do; `double` is the sequence of the literature, kept for comparison, where a
        step of 0 is taken as 1. Ideal: the fill ratio to the power of k, of each filling.""",
        [_ratio("standard", 4 << 20), _ratio("double", 1 << 20)],
    )


def _ratio(probe: str, probes: int) -> Figure:
    bits, hashes, fills = 1 << 16, 20, 60
    keys = round(bits * math.log(2) / hashes)
    expected, found = 0.0, 0
    for fill in range(fills):
        seen = _filled(bits, hashes, list(random_keys(1000 + fill, keys)), probe)
        expected += probes * seen.error_rate_now
        found += found_in(seen, 2000 + fill, probes)
    name, room = f"errors of `{probe}`, times the ideal", SIGMAS / math.sqrt(expected)
    if probe == "double":
        return Figure(name, found / expected, 7.5, 18, paper=18, style=".2f")
    return near(name, found / expected, 1, off=room, theory=1, paper=1, style=".2f")
