"""The theorems: how many bits and hashes a key costs for an error rate, and the error a table of a size has."""

import math

BLOOM_BITS_MAX = (
    1 << 43
)  # 1 TiB: beyond any machine this runs on, and far below where uint64 arithmetic ends


def bloom_error(bits: int, hashes: int, keys: float) -> float:
    """(1 - e^(-kn/m))^k: the error of a Bloom filter of m bits, k hashes, n keys (Bloom 1970)."""
    return float((-math.expm1(-hashes * keys / bits)) ** hashes)


def bloom_size(capacity: int, error_rate: float) -> tuple[int, int]:
    """The fewest bits, with their number of hashes, that keep `error_rate` at `capacity` keys.

    For k hashes m = -kn / ln(1 - p^(1/k)); the best k is near log2(1/p).
    """
    ideal = -math.log2(error_rate)
    candidates = {max(1, math.floor(ideal)), max(1, math.ceil(ideal))}
    return min(
        (math.ceil(-hashes * capacity / math.log1p(-(error_rate ** (1 / hashes)))), hashes)
        for hashes in candidates
    )


def bloom_excess(capacity: int, error_rate: float) -> str | None:
    """Why no Bloom filter is made that large, with the remedy, to follow the capacity; None where it is."""
    bits, _ = bloom_size(capacity, error_rate)
    if bits <= BLOOM_BITS_MAX:
        return None
    fitting = math.floor(capacity * (BLOOM_BITS_MAX / bits) / 1e9)  # at any rate there are some
    return (
        f"takes {bits / BLOOM_BITS_MAX:,.2f} TiB at an error rate of {error_rate:g}, and the most is 1 TiB;"
        f" set filter.capacity to {fitting}G at most, or raise filter.error_rate"
    )
