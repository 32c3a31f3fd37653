"""Every kind with each of its options: its error at capacity, and that ten million keys are all found."""

import numpy as np

from bench.acceptance.report import Figure, Section, share
from proof.filters.key_families import digests_of
from streamdedup.filters.base import Filter
from streamdedup.filters.fuse.fuse import Fuse
from streamdedup.keys.hashing import MURMUR3
from tests.filters.cases import CASES, Case, probes_for

FAMILY = "suffix"
CAPACITY = 400_000
MEMBERS = 10_000_000
FUSE_RATES = (1e-2, 1e-3)


def errors() -> Section:
    """Measured against `expected_error`, on both sides."""
    figures = [
        _error(str(case), _filled(case, CAPACITY, rate), rate)
        for case in CASES
        for rate in case.error_rates
    ]
    members = digests_of(FAMILY, MURMUR3, MEMBERS)[:CAPACITY]
    figures += [_error("fuse", Fuse.from_digests(members, rate), rate) for rate in FUSE_RATES]
    return Section(
        "Errors at capacity, every kind",
        f"""Theory: the kind's own `expected_error` at capacity, which rounding may put well below what was
        asked for. {CAPACITY:,} addresses of one domain; twice as many others are asked for as tell a
        rate from 1.25 times itself, with errors of 1e-6 of the first and 1e-3 of the second kind: 2,310
        / p. `exact`, whose error is n / 2^64 or less, must find none.""",
        figures,
    )


def _error(name: str, seen: Filter, rate: float) -> Figure:
    expected = seen.expected_error(CAPACITY)
    absent = digests_of(FAMILY, seen.hash, MEMBERS)[CAPACITY : CAPACITY + 2 * probes_for(rate)]
    found = int(np.count_nonzero(seen.contains_many(absent)))
    return share(f"{name}: error, asked for {100 * rate:g} %", found, len(absent), expected)


def members() -> Section:
    """No false negative."""
    figures = [
        Figure(
            f"{case}: keys not found",
            _missing(_filled(case, MEMBERS, case.error_rates[0])),
            0,
            0,
            0,
        )
        for case in CASES
    ]
    fuse = Fuse.from_digests(digests_of(FAMILY, MURMUR3, MEMBERS), FUSE_RATES[0])
    return Section(
        f"No false negative among {MEMBERS:,} keys",
        f"""{MEMBERS:,} addresses of one domain, at capacity, at the least strict of the error rates that
        the conformance suite takes.""",
        [*figures, Figure("fuse: keys not found", _missing(fuse), 0, 0, 0)],
    )


def _filled(case: Case, keys: int, rate: float) -> Filter:
    seen = case.build(keys, rate)
    seen.add_many(digests_of(FAMILY, seen.hash, MEMBERS)[:keys])
    return seen


def _missing(seen: Filter) -> int:
    return int(np.count_nonzero(~seen.contains_many(digests_of(FAMILY, seen.hash, MEMBERS))))
