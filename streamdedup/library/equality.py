"""Whether two filters hold the same, whatever the order in which they got it, as far as their tables permit that."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamdedup.filters.base import Filter
from streamdedup.filters.memory import pieces
from streamdedup.kernel import Words

BUCKETS_A_CALL = 1 << 15
# What a header says of a table beside the options: it follows from the content, or from the way there.
COUNTED = ("keys", "saturated", "copied", "slots", "tail", "stages", "buffers")


def hold_the_same(one: Any, other: Any) -> bool:
    """Return whether both have the same options and hash, and hold the same.

    - The bits of `bitmap`, `blocked` and `bloom`, the counters of `counting`, the list of `fuse`, and the fingerprints
      of `exact` follow from the keys alone.
    - Of `cuckoo`, the fingerprints in each pair of buckets are compared, and the stash. They follow from the keys, too,
      but for two keys of one pair with one fingerprint, and for which keys are in the stash.
    - The other tables are compared as they are. They follow from the keys in their order.
    - Filters that grow are compared stage by stage, so they must have got the same keys in each.
    """
    if _options(one) != _options(other):
        return False
    if one.kind == "chain":
        stages = one._stages, other._stages
        return len(one._stages) == len(other._stages) and all(map(hold_the_same, *stages))
    if one.kind == "exact":
        return len(one) == len(other) and np.array_equal(one.fingerprints(), other.fingerprints())
    if one.kind == "cuckoo":
        return _same_cells(one, other)
    return _same_bytes(one.buffers(), other.buffers())


def _options(one: Filter) -> Mapping[str, Any]:
    return {name: value for name, value in one.header().items() if name not in COUNTED}


def _same_bytes(some: list[memoryview], others: list[memoryview]) -> bool:
    return [len(each) for each in some] == [len(each) for each in others] and all(
        np.array_equal(np.frombuffer(a, np.uint8), np.frombuffer(b, np.uint8))
        for mine, theirs in zip(some, others, strict=True)
        for a, b in zip(pieces(mine), pieces(theirs), strict=True)
    )


def _same_cells(one: Any, other: Any) -> bool:
    from streamdedup.filters.cuckoo.buckets import held_as_often
    from streamdedup.filters.cuckoo.rows import TAKEN

    if one._counts[TAKEN] != other._counts[TAKEN]:
        return False
    return np.array_equal(_rows(one._stash.table), _rows(other._stash.table)) and all(
        held_as_often(
            one._words, other._words, one._fields, start, min(start + BUCKETS_A_CALL, one.buckets)
        )
        for start in range(0, one.buckets, BUCKETS_A_CALL)
    )


def _rows(stash: Words) -> Words:
    """Return the rows of a stash that are in use, in one order."""
    rows = stash[stash[:, 2] != 0]
    ordered: Words = rows[np.lexsort(rows.T)]
    return ordered
