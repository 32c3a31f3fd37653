"""The counting Bloom filter: how its counters are distributed, and what the d-left one saves beside it."""

import math

import numpy as np
import numpy.typing as npt

from bench.acceptance.chance import found_in, occupancy_spread, random_keys
from bench.acceptance.report import Figure, Section, near, share
from streamdedup.filters.bloom.counting import COUNT_MAX, Counting
from streamdedup.filters.dleft.dlcbf import DLCBF
from streamdedup.filters.sizing import bloom_error, bloom_size, counter_reaches
from tests.filters.cases import SIGMAS
from tests.filters.dleft_tools import RESIDENT

BOUND = (math.e * math.log(2) / 16) ** 16
KEYS = 2_000_000


def counters() -> Section:
    """Overflow, as a probability, and the distribution that it is the tail of."""
    seen = Counting(KEYS, 1e-3)
    for keys in random_keys(80, KEYS):
        seen.add_many(keys)
    overflow = counter_reaches(16, seen.counters, seen.hashes, KEYS)
    best = counter_reaches(16, 10**6, 1, 10**6 * math.log(2))
    return Section(
        "counting: overflow",
        f"""Paper: Fan, Cao, Almeida, Broder 2000: at the best k a counter goes above 15 with a probability
        of at most (e ln 2 / 16)^16 = 1.4e-15. That cannot be measured, so the distribution is of which
        it is the tail: theory is Poisson's. {KEYS:,} keys at 0.1 %; then eight times a filter's
        capacity, where counters do reach 15.""",
        [
            Figure(
                "P(counter > 15) by `counter_reaches`, kn/m = ln 2", best, 0, BOUND, best, BOUND
            ),
            Figure("the same, of the filter below", overflow, 0, BOUND, overflow, BOUND),
            *_distribution(seen),
            Figure("saturated counters at capacity", seen.saturated, 0, 0, 0, 0),
            _overfull(8),
        ],
    )


def _distribution(seen: Counting) -> list[Figure]:
    counts = np.bincount(_counts(seen), minlength=16)
    rates = [counter_reaches(i, seen.counters, seen.hashes, KEYS) for i in range(1, 11)]
    shares = [rate - after for rate, after in zip([1.0, *rates[:-1]], rates, strict=True)]
    # That no key is added to a counter twice, nor all to one, spreads them less than independent ones.
    return [
        share(f"share of counters at {count}", int(counts[count]), seen.counters, expected)
        for count, expected in enumerate(shares[:9])
    ]


def _counts(seen: Counting) -> npt.NDArray[np.uint8]:
    """What stands in each counter, from the low half of each byte on."""
    pairs = np.frombuffer(seen.buffers()[0], np.uint8)
    return np.stack([pairs & 15, pairs >> 4], axis=1).reshape(-1)[: seen.counters]


def _overfull(times: int) -> Figure:
    seen = Counting(100_000, 1e-2, multiset=True)  # a set adds nothing for a key that looks present
    for keys in random_keys(81, 100_000 * times):
        seen.add_many(keys)
    expected = counter_reaches(COUNT_MAX, seen.counters, seen.hashes, 100_000 * times)
    name = f"share of saturated counters at {times} times the capacity"
    return share(name, seen.saturated, seen.counters, expected)


def beside_dlcbf() -> Section:
    """Size at equal error, and error at equal size."""
    return Section(
        "dlcbf beside counting",
        f"""Paper: Bonomi et al. 2006, {RESIDENT:,} keys, B = 2048; the tables that are built, and the keys
        that they report. Equal error: m = 1.44 n log2(1/p) counters of 4 bits. Equal size: the best k,
        which theory takes as a fraction, and a filter as a whole number; the often quoted hundredth
        needs r = 16.""",
        [_smaller(), *(figure for bits in (14, 16) for figure in _fewer(bits))],
    )


def _dlcbf(bits: int) -> DLCBF:
    return DLCBF(RESIDENT, 24 * 2.0**-bits)


def _smaller() -> Figure:
    dlcbf = _dlcbf(14)
    counting = Counting(RESIDENT, 24 * 2**-14)
    ratio = counting.size_bytes / dlcbf.size_bytes
    theory = 4 * bloom_size(RESIDENT, 24 * 2**-14)[0] / (RESIDENT * 4 / 3 * 16)
    name = "times smaller at equal error, r = 14"
    return near(name, ratio, 2.55, off=0.01, theory=theory, paper=2.55, style=".3f")


def _fewer(bits: int) -> list[Figure]:
    dlcbf = _dlcbf(bits)
    counters = RESIDENT * (bits + 2) // 3  # 4 bits each: as many as 4/3 (r + 2) bits a key
    theory = 0.5 ** (math.log(2) * counters / RESIDENT) / (24 * 2.0**-bits)
    hashes = round(math.log(2) * counters / RESIDENT)
    counting = Counting(RESIDENT, bloom_error(counters, hashes, RESIDENT))
    for keys in random_keys(82, RESIDENT):
        dlcbf.add_many(keys)
        counting.add_many(keys)
    probes = 48 << 20
    ours = found_in(dlcbf, 83, probes)
    theirs = found_in(counting, 83, probes >> 4) << 4
    spread = counting.hashes * occupancy_spread(counters, counters * math.log(2))
    room = SIGMAS * math.hypot(spread, math.sqrt(1 / ours))
    ratio = bloom_error(counters, hashes, RESIDENT) / dlcbf.expected_error(RESIDENT)
    paper = 52.7 if bits == 14 else 100.0
    return [
        near(
            f"memory beside counting's, r = {bits}",
            dlcbf.size_bytes / counting.size_bytes,
            1,
            rel=0.005,  # the stash and the last word of a small table
            theory=1,
            style=".3f",
        ),
        Figure(
            f"times fewer errors at equal size, best k, r = {bits}",
            theory,
            52.6 if bits == 14 else paper,
            52.8 if bits == 14 else math.inf,
            theory,
            paper,
        ),
        near(
            f"the same, measured with k = {hashes}",
            theirs / ours,
            ratio,
            rel=room,
            theory=ratio,
            paper=paper,
        ),
    ]
