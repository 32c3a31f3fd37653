"""The kind `window`, described."""

from functools import partial

from streamdedup.filters.kind import Footprint, Kind, celled, check_width
from streamdedup.filters.sizing import (
    WINDOW_CELLS,
    WINDOW_GENERATIONS,
    cuckoo_error,
    window_share,
    window_size,
    window_tag_bits,
)

CELL_BITS_MAX = 63  # the code reads a cell out of two words at most
TABLE = "cells"
"""The table, by name in what is saved, and in a snapshot's identity."""


def _footprint(
    capacity: int,
    error_rate: float,
    generations: int = WINDOW_GENERATIONS,
    *,
    by_count: bool = False,
) -> Footprint:
    if by_count:  # then all generations are full, and none has less than one key
        generations = min(generations, capacity + 1)
        capacity = window_share(capacity, generations) * generations
    buckets, fingerprint_bits = window_size(capacity, error_rate, generations)
    bits = fingerprint_bits + window_tag_bits(generations)
    check_width("cells", bits, CELL_BITS_MAX)
    error = partial(cuckoo_error, buckets, fingerprint_bits, cells=WINDOW_CELLS)
    return celled(buckets * WINDOW_CELLS, bits, 2, error)


WINDOW = Kind(
    "window",
    "window.window:Window",
    _footprint,
    ("add", "window"),
    options=("retention", "generations", "late", "refresh", "max_jump"),
    celled=True,
)
