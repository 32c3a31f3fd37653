"""The plot of bits against errors: tables of every kind, filled to capacity, and how often they err."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench import contenders
from bench.clock import Clock
from bench.contenders import CHUNK, Ours, OursBuilt
from bench.measure import ABSENT
from bench.samples import random_digests
from streamdedup.keys.hashing import Digests

KEYS = 1_000_000
RATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
PROBES = 8 * CHUNK
TABLE_BYTES_MAX = 1 << 30


def measured() -> dict[str, list[dict[str, float]]]:
    """For each kind and rate that was asked for: bits a key, the error in theory, and the one that was seen."""
    absent = [random_digests(ABSENT + i, CHUNK) for i in range(PROBES // CHUNK)]
    return {
        name: [
            _point(name, rate, absent)
            for rate in RATES
            if contenders.size_bytes(name, KEYS, rate) <= TABLE_BYTES_MAX
        ]
        for name in contenders.KINDS
    }


def _point(name: str, rate: float, absent: Sequence[Digests]) -> dict[str, float]:
    made: Any
    if name == "fuse":
        made = OursBuilt(KEYS, rate)
        made.build(Clock(), 0)
    else:
        made = Ours(name, KEYS, rate)
        made.add("digests", random_digests(1, KEYS))
    found = sum(int(np.count_nonzero(made.contains("digests", digests))) for digests in absent)
    return {
        "asked": rate,
        "bits_a_key": round(made.bits_a_key(KEYS), 2),
        "expected": made.filter.expected_error(KEYS),
        "measured": found / PROBES,
    }
