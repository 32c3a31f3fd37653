"""The kind `bitmap`, described."""

from functools import partial

from streamdedup.filters.kind import Footprint, Kind, table_bytes
from streamdedup.filters.sizing import bitmap_size, bloom_error


def _footprint(capacity: int, error_rate: float) -> Footprint:
    bits = bitmap_size(capacity, error_rate)
    return Footprint(table_bytes(bits), 1, partial(bloom_error, bits, 1))


BITMAP = Kind(
    "bitmap",
    "bitmap.bitmap:Bitmap",
    _footprint,
    ("add", "union"),
    options=("probe", "range"),
    only_sets_bits=True,
    no_stages="at 1/p bits a key, twice the keys at half the error take four times the memory",
)
