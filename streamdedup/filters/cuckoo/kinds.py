"""The kind `cuckoo`, described."""

from functools import partial

from streamdedup.filters.kind import Footprint, Kind, celled, check_width
from streamdedup.filters.sizing import CUCKOO_BITS_MAX, CUCKOO_CELLS, cuckoo_error, cuckoo_size


def _footprint(capacity: int, error_rate: float) -> Footprint:
    buckets, bits = cuckoo_size(capacity, error_rate)
    check_width("fingerprints", bits, CUCKOO_BITS_MAX)
    return celled(buckets * CUCKOO_CELLS, bits, 2, partial(cuckoo_error, buckets, bits))


CUCKOO = Kind(
    "cuckoo",
    "cuckoo.cuckoo:Cuckoo",
    _footprint,
    ("add", "remove"),
    options=("multiset",),
    celled=True,
)
