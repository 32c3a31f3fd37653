"""The theorems: how many bits and hashes a key costs for an error rate, and the error a table of a size has."""

import math
import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the settings are read without it
    import numpy as np
    import numpy.typing as npt

FLOAT_MAX = sys.float_info.max

TABLE_BITS_MAX = (
    1 << 43
)  # 1 TiB, of any kind: beyond any machine this runs on, far below where uint64 ends
BLOOM_HASHES_MAX = 1074  # what the smallest float above 0 leads to


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


def bloom_keys(bits: int, hashes: int, bits_set: int) -> float:
    """About how many keys have set so many bits: -m/k ln(1 - x/m) (Swamidass, Baldi 2007)."""
    return -bits / hashes * math.log1p(-min(bits_set, bits - 0.5) / bits)


def window_share(capacity: int, generations: int) -> int:
    """The keys of one of G generations of a window, of which G - 1 hold `capacity` together, rounded up."""
    return -(-capacity // (generations - 1))


def window_size(capacity: int, error_rate: float, generations: int) -> tuple[int, int]:
    """The fewest cells of G bits, with their number of hashes, that keep `error_rate`.

    Each generation is a Bloom filter of its own, of n/(G-1) keys, over one bit of every cell; a query asks all G at
    once. So G (1 - e^(-kn/((G-1)m)))^k is at most the rate: that of each is the G-th part of it.
    """
    return bloom_size(window_share(capacity, generations), error_rate / generations)


def window_error(cells: int, hashes: int, loads: Iterable[float]) -> float:
    """The probability that a key is found in one generation or another, which hold `loads` keys each."""
    return any_of(bloom_error(cells, hashes, keys) for keys in loads)


def window_room(cells: int, hashes: int, error_rate: float, loads: Sequence[float]) -> int:
    """How many keys one more generation can hold beside `loads` until the sum of all errors is above `error_rate`."""
    left = error_rate - sum(bloom_error(cells, hashes, keys) for keys in loads)
    if left <= 0:
        return 0
    return math.floor(-cells / hashes * math.log1p(-(min(left, _BELOW_1) ** (1 / hashes))))


def any_of(rates: Iterable[float]) -> float:
    """The probability that at least one of independent events happens; small ones do not cancel."""
    return 0.0 - math.expm1(math.fsum(math.log1p(-min(rate, _BELOW_1)) for rate in rates))


_BELOW_1 = 1 - sys.float_info.epsilon


def fuse_bits(error_rate: float) -> int:
    """The fewest bits of fingerprint that keep `error_rate`: a fuse filter errs with 2^-bits, whatever its size."""
    return max(1, math.ceil(-math.log2(error_rate)))


def fuse_size(keys: int) -> tuple[int, int]:
    """Slots in a segment, and how many segments a first slot may stand in, for one part of `keys` distinct keys.

    Two more segments follow. The constants are those of 3-wise binary fuse filters (Graf, Lemire 2022): 1.125 slots a
    key from a million keys on, more for fewer. No keys take no segments.
    """
    if not keys:
        return 1, 0
    length = 1 << math.floor(math.log(keys) / math.log(3.33) + 2.25)
    factor = max(1.125, 0.875 + 0.25 * math.log(1_000_000) / math.log(max(2, keys)))
    return length, max(1, math.ceil(round(keys * factor) / length) - 2)


CUCKOO_CELLS = 4  # a bucket
CUCKOO_LOAD = 0.95  # with 4 cells a bucket, two buckets a key: Fan et al. 2014


def cuckoo_error(buckets: int, fingerprint_bits: int, keys: float) -> float:
    """1 - (1 - 1/(2^f - 1))^(2 b load): a search meets two buckets of b cells, of which `keys` fill the load."""
    met = 2 * min(keys / buckets, CUCKOO_CELLS)
    return float(-math.expm1(met * math.log1p(-1 / (2**fingerprint_bits - 1))))


def cuckoo_size(capacity: int, error_rate: float) -> tuple[int, int]:
    """Buckets and fingerprint bits, f = ceil(log2(8 load / p + 1)), that keep `error_rate` at `capacity` keys.

    The fewest for which 4 buckets are filled to 0.95 and 2^f - 1 is at least 8 * 0.95 / p.
    """
    buckets = -(-capacity * 5 // 19)  # 19/5 is 4 * 0.95, without rounding
    marks = math.ceil(min(2 * CUCKOO_CELLS * CUCKOO_LOAD / error_rate, FLOAT_MAX))
    return buckets, marks.bit_length()


def beside(error_rate: float) -> tuple[float, float]:
    """Rates just above and just below: another platform's logarithm may give this one the size of one of them."""
    return error_rate ** (1 - 1e-12), error_rate ** (1 + 1e-12)


def bitmap_size(capacity: int, error_rate: float) -> int:
    """The fewest bits that keep 1 - e^(-n/m) at `error_rate` for n = `capacity`: -n / ln(1 - p)."""
    return math.ceil(min(-capacity / math.log1p(-error_rate), FLOAT_MAX))


def counter_reaches(count: int, counters: int, hashes: int, keys: float) -> float:
    """The probability that a given one of m counters reaches `count` when n keys are in: Poisson, mean kn/m.

    For 16, where 4 bits overflow, and the best k, kn/m = ln 2, it is below (e ln 2 / 16)^16 = 1.4e-15 (Fan, Cao,
    Almeida, Broder 2000).
    """
    mean = hashes * keys / counters
    if mean >= count:
        return max(0.0, 1 - sum(_poisson(i, mean) for i in range(count)))
    term = tail = _poisson(count, mean)
    while term > tail * 1e-17:
        count += 1
        term *= mean / count
        tail += term
    return tail


def _poisson(count: int, mean: float) -> float:
    return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1)) if mean else 0.0


DLEFT_TABLES = 4  # d and w of Bonomi et al. 2006: the choice that has not been seen to overflow
DLEFT_CELLS = 8
DLEFT_MEAN_LOAD = 6  # keys a bucket at capacity: three cells in four are in use


def dleft_buckets(capacity: int) -> int:
    """The buckets of each of the four subtables."""
    return -(-capacity // (DLEFT_TABLES * DLEFT_MEAN_LOAD))


def dleft_remainder_bits(capacity: int, buckets: int, error_rate: float, reserved: int = 0) -> int:
    """The fewest bits r for which n / (B (2^r - reserved)) is at most `error_rate`: about log2(24 / error rate).

    `reserved` is the number of remainders that stand for something else. No logarithm: the same on every platform.
    """
    bits = 1
    while bits < 64 and capacity > error_rate * buckets * ((1 << bits) - reserved):
        bits += 1
    return bits


def dleft_error(buckets: int, remainders: int, keys: float) -> float:
    """The share of the U = B * remainders fingerprints that n keys take, at most one a cell.

    Each subtable holds a fingerprint through a permutation of its own, so a key is found where, and only where, its
    very fingerprint is in: no factor for the four buckets that are searched.
    """
    universe = buckets * remainders
    taken = -universe * math.expm1(-keys / universe)
    return min(taken, buckets * DLEFT_TABLES * DLEFT_CELLS) / universe


BLOCK_BITS = 512  # a cache line
BLOCKED_HASHES_MAX = 16
BLOCKED_ERROR_MIN = 1e-9  # there a key costs twice the bits of a Bloom filter, and below it more


def blocked_error(blocks: int, hashes: int, keys: int) -> float:
    """The error of a Bloom filter in blocks of 512 bits: the mean over the loads of its blocks (Putze et al. 2007).

    A block has j of the n keys with binomial probability, nearly Poisson's. With the share f of its bits set, by kj
    hashes, the error is E[f^k], near F^k + k(k-1)/2 Var(f) F^(k-2) for F = E[f]: the balls of an occupancy.
    """
    if keys * hashes > 1e5 * blocks:  # all bits are set, to the last digit of a float
        return 1.0
    import numpy as np

    loads, weights = _block_loads(blocks, keys)
    clear = np.exp(hashes * math.log1p(-1 / BLOCK_BITS) * loads)
    two_clear = np.exp(hashes * math.log1p(-2 / BLOCK_BITS) * loads)
    variance = clear / BLOCK_BITS + (1 - 1 / BLOCK_BITS) * two_clear - clear * clear
    share = 1 - clear
    spread = hashes * (hashes - 1) / 2 * variance * share ** max(hashes - 2, 0)
    return min(float((share**hashes + spread) @ weights), 1.0)


def blocked_size(capacity: int, error_rate: float) -> tuple[int, int]:
    """The fewest blocks, with the fewest hashes that do with them, that keep `error_rate` at `capacity` keys."""
    blocks, hashes = 1 << 50, BLOCKED_HASHES_MAX
    ideal = -math.log2(error_rate)
    for candidate in sorted(range(1, BLOCKED_HASHES_MAX + 1), key=lambda k: abs(k - ideal)):

        def holds(size: int, hashes: int = candidate) -> bool:
            return size > 0 and blocked_error(size, hashes, capacity) <= error_rate

        if holds(blocks - 1):
            blocks, hashes = 1 + bisect_left(range(1, blocks), True, key=holds), candidate
        elif candidate < hashes and holds(blocks):
            hashes = candidate
    return blocks, hashes


def blocked_keys(blocks: int, hashes: int, bits_set: int) -> float:
    """About how many keys have set so many bits: one key leaves a bit clear with 1 - (1 - (1 - 1/512)^k) / blocks."""
    bits = blocks * BLOCK_BITS
    of_a_key = -math.expm1(hashes * math.log1p(-1 / BLOCK_BITS)) / blocks
    return math.log1p(-min(bits_set, bits - 0.5) / bits) / math.log1p(-of_a_key)


def _block_loads(
    blocks: int, keys: int
) -> tuple["npt.NDArray[np.float64]", "npt.NDArray[np.float64]"]:
    """The numbers of keys that a block may have, and how probable each is: by ratios, which do not cancel."""
    import numpy as np

    if blocks == 1:
        return np.array([float(keys)]), np.ones(1)
    mean = keys / blocks
    reach = 12 * math.sqrt(mean) + 40  # beyond lies less than 1e-25
    loads = np.arange(max(0, int(mean - reach)), min(keys, int(mean + reach)) + 1.0)
    ratios = np.log((keys - loads[:-1]) / loads[1:] / (blocks - 1))
    logs = np.concatenate(([0.0], np.cumsum(ratios)))
    weights = np.exp(logs - logs.max())
    return loads, weights / weights.sum()


EXACT_TAIL_MAX = 4096


def exact_size(keys: int, load: float) -> tuple[int, int]:
    """Slots for `keys` at a load factor, and those behind them for what is moved up from the last ones, one empty.

    At a load of 0.9 a run of 4096 begins at a given slot with e^(-4096 (0.9 - 1 - ln 0.9)) = 3e-10, less at others.
    """
    return math.ceil(keys / load), min(keys, EXACT_TAIL_MAX)


def exact_error(fingerprint_bytes: int, keys: int) -> float:
    """The probability n / 2^bits that one of n fingerprints is that of another key."""
    return math.ldexp(keys, -8 * fingerprint_bytes)


def bloom_excess(capacity: int, error_rate: float) -> str | None:
    """Why no Bloom filter is made that large, with the remedy, to follow the capacity; None where it is."""
    bits, _ = bloom_size(capacity, error_rate)
    if bits <= TABLE_BITS_MAX:
        return None
    fitting = math.floor(capacity * (TABLE_BITS_MAX / bits) / 1e9)  # at any rate there are some
    return (
        f"takes {bits / TABLE_BITS_MAX:,.2f} TiB at an error rate of {error_rate:g}, and the most is 1 TiB;"
        f" set filter.capacity to {fitting}G at most, or raise filter.error_rate"
    )


TABLE_RATIOS = range(2, 33)  # of the table in the literature: m/n, bits a key
TABLE_HASHES_MAX = 8


def false_positive_table() -> list[tuple[int, float, list[float]]]:
    """Its rows: m/n, the best k = ln 2 m/n, the errors for k = 1, 2, and so on (Fan, Cao, Almeida, Broder 2000).

    A row goes one beyond the best k rounded up, to no more than m/n and 8: 225 errors in all.
    """
    rows = []
    for ratio in TABLE_RATIOS:
        best = math.log(2) * ratio
        last = min(ratio, math.ceil(best) + 1, TABLE_HASHES_MAX)
        rows.append((ratio, best, [bloom_error(ratio, k, 1) for k in range(1, last + 1)]))
    return rows
