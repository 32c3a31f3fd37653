"""The kind `fuse`, described."""

from streamdedup.filters.kind import Footprint, Kind, table_bytes, too_low
from streamdedup.filters.sizing import fuse_bits, fuse_size

BITS_MAX = 32


def _footprint(capacity: int, error_rate: float) -> Footprint:
    from streamdedup.filters.fuse import fuse
    from streamdedup.filters.fuse.peel import LINE_WORDS, words_of

    bits = fuse_bits(error_rate)
    if bits > BITS_MAX:
        raise too_low(2.0**-BITS_MAX)
    parts = -(-capacity // fuse.PART_KEYS)
    part = words_of(*fuse_size(-(-capacity // parts)), bits)
    words = parts * (part + fuse.COLUMNS) + LINE_WORDS
    return Footprint(table_bytes(64 * words), 3, lambda keys: 2.0**-bits if keys else 0.0)


FUSE = Kind("fuse", "fuse.fuse:Fuse", _footprint, ("static",), options=("keys",))
