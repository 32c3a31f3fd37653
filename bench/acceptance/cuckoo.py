"""The cuckoo filter: how full it gets before a key finds no room, and its errors when it is."""

from itertools import chain

import numpy as np

from bench.acceptance.chance import found_in, random_keys
from bench.acceptance.report import Figure, Section, near, share
from streamdedup.filters.cuckoo.cuckoo import Cuckoo
from streamdedup.filters.sizing import CUCKOO_CELLS, cuckoo_size
from tests.filters.cases import probes_for

BUCKETS = 1 << 18
LOAD = 0.96
PAPER = {8: 0.02973, 12: 0.001875, 13: 0.000938, 16: 0.0001167}
PROBES_MAX = 40 << 20


def section() -> Section:
    """Loads and errors."""
    return Section(
        "cuckoo: loads and errors",
        f"""Paper: Fan, Andersen, Kaminsky, Mitzenmacher 2014, (2, 4): a load of 0.95, 0.96 measured; errors
        at full load in 2^18 buckets. Theory: 1 - (1 - 1/(2^f - 1))^(8 load). The first failure is where
        the first key goes to the exact stash; errors are at a load of {LOAD}.""",
        [
            *(_first_failure(buckets, 12) for buckets in (BUCKETS, 200_003)),
            *chain.from_iterable(_filled(bits) for bits in PAPER),
        ],
    )


def _sized(buckets: int, bits: int) -> Cuckoo:
    capacity, error_rate = buckets * 19 // 5, 7.6 / (0.9 * 2**bits)
    if cuckoo_size(capacity, error_rate) != (buckets, bits):
        raise AssertionError(f"{buckets} buckets of {bits} bits are not those of {capacity} keys")
    return Cuckoo(capacity, error_rate)


def _first_failure(buckets: int, bits: int) -> Figure:
    seen, keys = _sized(buckets, bits), next(random_keys(70, CUCKOO_CELLS * buckets))
    start = 0
    while not _stashed(seen) and start < len(keys):
        step = max(1, (buckets * 19 // 5 - start) // 2)  # one by one where it becomes full
        seen.add_many(keys[start : start + step])
        start += step
    name = f"load at the first failure, {buckets:,} buckets"
    return Figure(name, (start - 1) / (CUCKOO_CELLS * buckets), 0.95, 1.0, paper=LOAD, style=".3f")


def _stashed(seen: Cuckoo) -> int:
    """The keys in the stash: rows of digest and count, where a count is not 0."""
    return int(np.count_nonzero(np.frombuffer(seen.buffers()[1], "<u8")[2::3]))


def _filled(bits: int) -> list[Figure]:
    seen = _sized(BUCKETS, bits)
    keys = round(LOAD * CUCKOO_CELLS * BUCKETS)
    for part in random_keys(71, keys):
        seen.add_many(part)
    expected = seen.expected_error(keys)
    probes = min(4 * probes_for(expected), PROBES_MAX)
    found = found_in(seen, 72, probes)
    return [
        near(
            f"f = {bits}: `expected_error`",
            expected,
            PAPER[bits],
            rel=0.005,
            theory=expected,
            paper=PAPER[bits],
        ),
        share(f"f = {bits}: error", found, probes, expected, paper=PAPER[bits]),
    ]
