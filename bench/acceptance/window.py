"""The window: no member of it is ever absent, what is older is forgotten, and its error at a full ring."""

from typing import cast

import numpy as np

from bench.acceptance.chance import found_in, random_keys
from bench.acceptance.report import Figure, Section, near, share
from streamdedup import filters
from streamdedup.filters.base import Times
from streamdedup.filters.window.protocol import Windowed
from streamdedup.keys.hashing import Digests
from tests.filters.cases import probes_for

GENERATIONS = 8
SLOT = 86_400_000  # ms
RETENTION = (GENERATIONS - 1) * SLOT
CAPACITY = 140_000  # keys a retention
ROTATIONS = 3 * GENERATIONS
CHECKS = 6  # in each generation
PAPER = {1e-2: (10, 0.00994, 15.9), 1e-3: (13, 0.00100, 21.4), 1e-4: (16, 0.000103, 26.9)}


def section() -> Section:
    """Three times round the ring, at each of the three error rates."""
    return Section(
        "window: a ring of generations",
        f"""Paper: bits a key and errors as measured elsewhere, G = {GENERATIONS} and k = 10, 13, 16. {CAPACITY:,} keys
        arrive in each retention of seven days, at even distances, for {ROTATIONS} generations of a day.
        {CHECKS} times a day all keys of the last seven days are looked up that were new when they came: the
        first occurrence counts, and of a key that then looked present, by a false positive, nothing is kept,
        as of any duplicate. With `refresh` that is renewed, too, so all keys are looked up. The error is that
        of the last moment before a rotation, when all generations are full.""",
        [*(figure for rate in PAPER for figure in _turned(rate)), _refreshed(1e-2)],
    )


def _turned(rate: float) -> list[Figure]:
    hashes, paper_error, paper_bits = PAPER[rate]
    window = _window(rate)
    size_bytes, (keys, times) = window.size_bytes, _stream()
    missed = _missed(window, keys, times)
    old = keys[times < times[-1] - RETENTION - SLOT]
    kept = (
        len(window) * (GENERATIONS - 1) // GENERATIONS
    )  # a retention: but for those false positives
    expected, probes = window.expected_error(kept), 2 * probes_for(rate)
    title = f"{100 * rate:g} %"
    return [
        Figure(f"{title}: k", int(window.header()["hashes"]), hashes, hashes, paper=hashes),
        near(
            f"{title}: bits a key",
            8 * size_bytes / CAPACITY,
            paper_bits,
            rel=0.012,
            paper=paper_bits,
        ),
        Figure(f"{title}: false negatives within the window", missed, 0, 0, 0, 0),
        share(
            f"{title}: error", found_in(window, 131, probes), probes, expected, paper=paper_error
        ),
        share(
            f"{title}: share of forgotten keys that is found",
            int(np.count_nonzero(window.contains_many(old))),
            len(old),
            expected,
        ),
        Figure(f"{title}: growth of its memory, bytes", window.size_bytes - size_bytes, 0, 0, 0),
    ]


def _refreshed(rate: float) -> Figure:
    missed = _missed(_window(rate, refresh=True), *_stream(), every=True)
    name = f"{100 * rate:g} %, `refresh`: false negatives within the window, of all keys"
    return Figure(name, missed, 0, 0, 0, 0)


def _window(rate: float, *, refresh: bool = False) -> Windowed:
    config = {"kind": "window", "capacity": CAPACITY, "error_rate": rate, "refresh": refresh}
    made = filters.build({**config, "retention": RETENTION, "generations": GENERATIONS})
    return cast("Windowed", made)


def _stream() -> tuple[Digests, Times]:
    """Keys at even distances, the last of them in the last moment before a rotation."""
    count = CAPACITY * ROTATIONS // (GENERATIONS - 1)
    times = np.arange(1, count + 1, dtype=np.int64) * (ROTATIONS * SLOT) // count - 1
    return np.concatenate(list(random_keys(130, count))), times


def _missed(window: Windowed, keys: Digests, times: Times, *, every: bool = False) -> int:
    """Add the stream; how often a key of the window, new or `every` one, was absent."""
    kept, missed = np.full(len(keys), every), 0
    step = -(-len(keys) // (ROTATIONS * CHECKS))
    for start in range(0, len(keys), step):
        stop = min(start + step, len(keys))
        kept[start:stop] |= window.add_many(keys[start:stop], times[start:stop])
        oldest = np.searchsorted(times, times[stop - 1] - RETENTION)
        members = keys[oldest:stop][kept[oldest:stop]]
        missed += int(np.count_nonzero(~window.contains_many(members)))
    return missed
