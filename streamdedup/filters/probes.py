"""The probe sequences: the position of the i-th bit or counter of a digest (a, b) in a table of m.

`standard`: the position is the high word of a * m, then a becomes a * MULTIPLIER + b mod 2^64. The high
word of a 128-bit product has no modulo bias, and the sequence behaves like independent hashes in small
tables, too. `double`: (a + i * b) mod m (Kirsch, Mitzenmacher 2006), the sequence of the literature, which
errs more if m is small.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streamdedup.errors import ConfigError
from streamdedup.instructions import prefetch, upper_half
from streamdedup.kernel import inlined

PROBES = ("standard", "double")
MULTIPLIER = np.uint64(0xD1342543DE82EF95)  # Steele, Vigna 2021: a multiplier with good spectra
_1, _0 = np.uint64(1), np.uint64(0)
_27, _30, _31, _GOLDEN = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def is_double(probe: str) -> bool:
    """Return whether `probe` names the double sequence. Raises ConfigError if it names no sequence."""
    if probe not in PROBES:
        raise ConfigError(f"filter.probe {probe!r} is unknown; choose one of: {', '.join(PROBES)}")
    return probe == "double"


def stated_probe(header: Mapping[str, Any]) -> bool:
    """Return whether a header names the double sequence. Raises ValueError if it names no sequence."""
    if header.get("probe") not in PROBES:
        raise ValueError(f"probe {header.get('probe')!r} is unknown")
    return is_double(header["probe"])


@inlined
def high_word(a: np.uint64, b: np.uint64) -> np.uint64:
    """Return the upper 64 bits of the product."""
    return upper_half(a, b)


@inlined
def begin(a: np.uint64, b: np.uint64, size: np.uint64, double: bool) -> tuple[np.uint64, np.uint64]:
    """Return the state and the step of the sequence for (a, b) in a table of `size` positions.

    `position` takes the state, `advance` both.
    """
    if not double:
        return a, b
    step = b % size
    return a % size, step if step != _0 else _1 % size


@inlined
def position(state: np.uint64, size: np.uint64, double: bool) -> np.uint64:
    """Return the position of this state."""
    return state if double else high_word(state, size)


@inlined
def advance(state: np.uint64, step: np.uint64, size: np.uint64, double: bool) -> np.uint64:
    """Return the next state."""
    if not double:
        return state * MULTIPLIER + step
    state += step
    return state - size if state >= size else state


@inlined
def ask(
    table: npt.NDArray[Any],
    shift: np.uint64,
    size: np.uint64,
    hashes: np.uint64,
    double: bool,
    a: np.uint64,
    b: np.uint64,
) -> None:
    """Prefetch the elements of `table` in which the positions of a digest are.

    An element has 2^shift positions.
    """
    state, step = begin(a, b, size, double)
    for _ in range(hashes):
        prefetch(table, position(state, size, double) >> shift)
        state = advance(state, step, size, double)


@inlined
def partner(mark: np.uint64, bucket: np.uint64, buckets: np.uint64) -> np.uint64:
    """Return the other bucket of a fingerprint in a cuckoo table. The sum of the two depends on the fingerprint alone.

    Partial-key cuckoo hashing (Fan et al. 2014), for any number of buckets.
    """
    total = high_word(finalised(mark), buckets)
    return np.uint64(total - bucket if total >= bucket else total + (buckets - bucket))


@inlined
def finalised(x: np.uint64) -> np.uint64:
    """Return `x` mixed by a bijection, so that every bit of the result depends on all 64.

    Stafford 2011, variant 13, as in SplitMix64.
    """
    x += _GOLDEN
    x = (x ^ (x >> _30)) * _FIRST
    x = (x ^ (x >> _27)) * _SECOND
    return x ^ (x >> _31)
