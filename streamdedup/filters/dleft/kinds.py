"""The kinds `dlcbf` and `dleft`, described."""

from functools import partial

from streamdedup.filters.kind import Footprint, Kind, celled, check_width
from streamdedup.filters.sizing import DLEFT_TABLES, dleft_error

REMAINDER_BITS_MAX = 48
COUNTER_BITS = 2  # of a cell of `dlcbf`
FINGERPRINT_BITS_MAX = 64  # the published permutations multiply a fingerprint in one word


def _footprint(
    counter_bits: int, capacity: int, error_rate: float, permutations: str = "any"
) -> Footprint:
    from streamdedup.filters.dleft.shape import shape_for

    shape = shape_for(capacity, error_rate, counter_bits, permutations)
    check_width("remainders", shape.remainder_bits, REMAINDER_BITS_MAX)
    if permutations == "published":
        what = "with permutations: published, fingerprints"
        check_width(what, shape.fingerprint_bits, FINGERPRINT_BITS_MAX)
    error = partial(dleft_error, shape.buckets, shape.remainders)
    return celled(shape.cells_all, shape.cell_bits, DLEFT_TABLES, error)


DLCBF = Kind(
    "dlcbf",
    "dleft.dlcbf:DLCBF",
    partial(_footprint, COUNTER_BITS),
    ("add", "remove"),
    options=("permutations", "multiset"),
    celled=True,
)
DLEFT = Kind(
    "dleft",
    "dleft.dleft:DLeft",
    partial(_footprint, 0),
    ("add", "remove"),
    options=("multiset",),
    celled=True,
)
