"""The d-left counting Bloom filter: its loads, its errors, and that without permutations it loses members."""

import math

import numpy as np

from bench.acceptance import fluid
from bench.acceptance.chance import found_in, occupancy_spread, random_keys
from bench.acceptance.report import Figure, Section, near, share
from proof.filters.churn import CHURN, OPERATIONS, Churned, churned
from streamdedup.filters.dleft.dlcbf import DLCBF
from streamdedup.filters.sizing import dleft_error
from tests.filters.cases import SIGMAS
from tests.filters.dleft_tools import RESIDENT

PAPER = {5: 0.9502, 6: 0.7655, 7: 0.2868, 8: 0.0022, 9: 0.0}
PAPER_ADDED = {5: 0.9971, 6: 0.8747, 7: 0.1283, 8: 1.3e-10, 9: 2.6e-138}
SEEDS = (60, 61, 62)
UNIVERSE = CHURN["buckets"] << CHURN["remainder_bits"]
BUCKETS = 4 * CHURN["buckets"]


def churn() -> Section:
    """The paper's simulation."""
    runs = [churned("published", seed) for seed in SEEDS]
    without = churned("none", SEEDS[0])
    return Section(
        "d-left: 2^20 replacements",
        f"""Paper: Bonomi, Mitzenmacher, Panigrahy, Singh, Varghese 2006, its simulation: 4 subtables of
        {CHURN["buckets"]} buckets of 8 cells, remainders of 14 bits, the published permutations,
        {RESIDENT:,} members; then {OPERATIONS:,} times a random member leaves and a new key comes. Mean
        of {len(SEEDS)} runs; 0.0005 off the paper are allowed. Theory: the differential equations of
        d-left hashing, with departures, for as many members as have fingerprints of their own. The plain
        d-left table, without permutations, takes the cells of others when it removes: it must lose
        members.""",
        [*_loads(runs), *_kept(runs), *_error(runs[0]), _lost(without)],
    )


def _loads(runs: list[Churned]) -> list[Figure]:
    shares = np.mean([run.shares for run in runs], axis=0)
    fingerprints = dleft_error(CHURN["buckets"], 1 << CHURN["remainder_bits"], RESIDENT) * UNIVERSE
    theory = fluid.churned(fingerprints / BUCKETS)
    figures = [
        near(
            f"share of buckets with {load} cells or more",
            float(shares[load]),
            PAPER[load],
            off=0.0005,
            theory=float(theory[load]),
            paper=PAPER[load],
            style=".4f",
        )
        for load in range(5, 9)
    ]
    overflows = max(run.overflowed_max for run in runs)
    return [*figures, Figure("overflows (a ninth cell), at any moment", overflows, 0, 0, 0, 0)]


def _kept(runs: list[Churned]) -> list[Figure]:
    not_found = sum(run.not_found for run in runs)
    absent = sum(_absent(run) for run in runs)
    return [Figure("false negatives, in all runs", not_found + absent, 0, 0, 0)]


def _error(run: Churned) -> list[Figure]:
    fingerprints, probes = int(run.table.counts[0]), 20 << 20
    found = sum(int(np.count_nonzero(run.table.contains(keys))) for keys in random_keys(90, probes))
    held = fingerprints / UNIVERSE
    return [
        near(
            "fingerprints / 2^25", held, 24 * 2**-14, rel=2e-3, theory=24 * 2**-14, paper=0.001463
        ),
        share("error after it, of that", found, probes, held, paper=0.001463),
    ]


def _lost(run: Churned) -> Figure:
    lost = run.not_found + _absent(run)
    return Figure("false negatives without permutations", lost, 24, math.inf)


def _absent(run: Churned) -> int:
    return int(np.count_nonzero(~run.table.contains(run.resident)))


def errors() -> Section:
    """Error and loads of filters that are filled and not churned."""
    return Section(
        "d-left: filled to capacity",
        """Paper: as above; an error of 24 * 2^-r, whatever the number of buckets. Theory: all distinct
        fingerprints, as a share of those there are, since each subtable holds a permutation of them. B
        = 2048 with the published permutations, 50,001 with those for any number of buckets; the loads
        and the overflow of 4.8 million keys, without departures.""",
        [
            *(_filled("published", 2048, bits, 91 + bits) for bits in (8, 10, 12, 14, 16)),
            *(_filled("any", 50_001, bits, 191 + bits) for bits in (10, 14)),
            *_added(),
        ],
    )


def _filled(permutations: str, buckets: int, bits: int, seed: int) -> Figure:
    capacity, probes = 24 * buckets, 20 << 20
    seen = DLCBF(capacity, 24 * 2.0**-bits, permutations=permutations)
    if (seen.buckets, seen.remainder_bits) != (buckets, bits):
        raise AssertionError(f"{seen.header()} is not of {buckets} buckets and {bits} bits")
    for keys in random_keys(seed, capacity):
        seen.add_many(keys)
    return share(
        f"error, r = {bits}, B = {buckets:,}, {permutations}",
        found_in(seen, seed + 1, probes),
        probes,
        seen.expected_error(capacity),
        spread=occupancy_spread(buckets << bits, capacity),
        paper=24 * 2.0**-bits,
    )


def _added() -> list[Figure]:
    buckets = 200_000
    seen, theory = DLCBF(24 * buckets, 1e-6), fluid.added(6)
    for keys in random_keys(95, 24 * buckets):
        seen.add_many(keys)
    shares = seen.loads()[::-1].cumsum()[::-1] / (4 * buckets)
    figures = []
    for load in range(5, 9):
        expected = float(theory[load])
        # Buckets share the keys, so their loads spread less than if they were independent.
        room = SIGMAS * math.sqrt(expected * (1 - expected) / (4 * buckets))
        figures.append(
            near(
                f"share of buckets with {load} cells or more",
                float(shares[load]),
                expected,
                off=room,
                theory=expected,
                paper=PAPER_ADDED[load],
            )
        )
    ninth = float(theory[9])
    return [
        *figures,
        Figure("overflows (a ninth cell)", seen.overflowed, 0, 0, ninth, PAPER_ADDED[9]),
    ]
