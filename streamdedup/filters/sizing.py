"""The formulas: the bits and hashes a key needs for an error rate, and the error rate of a table of a given size."""

import math
import sys
from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # reading the settings does not need it
    import numpy as np
    import numpy.typing as npt

FLOAT_MAX = sys.float_info.max

# 1 TiB, for every kind: more memory than any machine that runs this has, and far below the limit of uint64.
TABLE_BITS_MAX = 1 << 43
BLOOM_HASHES_MAX = 1074  # the hashes for the smallest float above 0 as error rate


def bloom_error(bits: int, hashes: int, keys: float) -> float:
    """(1 - e^(-kn/m))^k: the error rate of a Bloom filter with m bits, k hashes and n keys (Bloom 1970)."""
    return float((-math.expm1(-hashes * keys / bits)) ** hashes)


def bloom_size(capacity: int, error_rate: float) -> tuple[int, int]:
    """The fewest bits that keep `error_rate` at `capacity` keys, and the number of hashes that goes with them.

    For k hashes m = -kn / ln(1 - p^(1/k)), and k/4 + 1 more; the best k is near log2(1/p). The formula is the limit for
    many keys. With few, the share of bits that are set varies, and the mean of its k-th power is larger by about
    (0.15 k (k - 1) + 0.35 k) / m of itself (Bose et al. 2008). That costs 0.22 k + 0.3 bits, whatever n is.
    """
    ideal = -math.log2(error_rate)
    candidates = {max(1, math.floor(ideal)), max(1, math.ceil(ideal))}

    def bits(hashes: int) -> int:
        limit = math.ceil(-hashes * capacity / math.log1p(-(error_rate ** (1 / hashes))))
        return limit + hashes // 4 + 1

    return min((bits(hashes), hashes) for hashes in candidates)


def bloom_keys(bits: int, hashes: int, bits_set: int) -> float:
    """The approximate number of keys that have set `bits_set` bits: -m/k ln(1 - x/m) (Swamidass, Baldi 2007)."""
    return -bits / hashes * math.log1p(-min(bits_set, bits - 0.5) / bits)


def keys_of_both(found: float, some: int, others: int) -> int:
    """The number of keys of a union whose bits are those of about `found`: at least as many as one, at most as both."""
    return min(max(round(found), some, others), some + others)


def window_share(capacity: int, generations: int) -> int:
    """The width of one of a window's G generations, if G - 1 of them make up `capacity` keys or ms; rounded up."""
    return -(-capacity // (generations - 1))


def any_of(rates: Iterable[float]) -> float:
    """The probability that at least one of several independent events happens. It is precise for small `rates`, too."""
    return 0.0 - math.expm1(math.fsum(math.log1p(-min(rate, _BELOW_1)) for rate in rates))


_BELOW_1 = 1 - sys.float_info.epsilon


def fuse_bits(error_rate: float) -> int:
    """The fewest fingerprint bits that keep `error_rate`: a fuse filter errs with 2^-bits, whatever its size."""
    return max(1, math.ceil(-math.log2(error_rate)))


def fuse_size(keys: int) -> tuple[int, int]:
    """The slots of a segment, and how many segments a first slot may be in, for one part of `keys` distinct keys.

    Two more segments follow these. The constants are those of 3-wise binary fuse filters (Graf, Lemire 2022): 1.125
    slots a key from a million keys on, and more slots a key for fewer keys. A part without keys has no segments.
    """
    if not keys:
        return 1, 0
    length = 1 << math.floor(math.log(keys) / math.log(3.33) + 2.25)
    factor = max(1.125, 0.875 + 0.25 * math.log(1_000_000) / math.log(max(2, keys)))
    return length, max(1, math.ceil(round(keys * factor) / length) - 2)


CUCKOO_CELLS = 4  # in a bucket
WINDOW_CELLS = 8  # in steady churn at the same load, a search looks at a quarter of the buckets that 4 cells take
CUCKOO_BITS_MAX = 60  # of a fingerprint: the code reads a cell out of two words at most
CUCKOO_LOAD = 0.95  # reached with 4 cells a bucket and two buckets a key: Fan et al. 2014


def cuckoo_error(
    buckets: int, fingerprint_bits: int, keys: float, cells: int = CUCKOO_CELLS
) -> float:
    """1 - (1 - 1/(2^f - 1))^(2 b load): a search reads two buckets of b cells, and `keys` keys make up the load."""
    met = 2 * min(keys / buckets, cells)
    return float(-math.expm1(met * math.log1p(-1 / (2**fingerprint_bits - 1))))


def cuckoo_size(capacity: int, error_rate: float, cells: int = CUCKOO_CELLS) -> tuple[int, int]:
    """Buckets and fingerprint bits, f = ceil(log2(2 b load / p + 1)), that keep `error_rate` at `capacity` keys.

    These are the fewest buckets of b cells that are filled to 0.95 at most, and the fewest bits for which 2^f - 1 is at
    least 2 b * 0.95 / p.
    """
    buckets = -(-capacity * 20 // (19 * cells))  # 0.95 in integers, so without rounding
    marks = math.ceil(min(2 * cells * CUCKOO_LOAD / error_rate, FLOAT_MAX))
    return buckets, marks.bit_length()


WINDOW_GENERATIONS = 31  # unless stated: a key is kept at most a thirtieth longer than `retention`


WINDOW_WHOLE_BITS = 32  # all eight cells of a bucket are compared at once if they have this width


def window_size(keys: int, error_rate: float, generations: int) -> tuple[int, int]:
    """Buckets and fingerprint bits that keep `error_rate` while `keys` keys are live.

    A cell of 29 to 31 bits gets 32: for 3 to 10 % more memory, keys are found in less than half of the time.
    """
    buckets, bits = cuckoo_size(keys, error_rate, WINDOW_CELLS)
    spare = WINDOW_WHOLE_BITS - bits - window_tag_bits(generations)
    return buckets, bits + (spare if 0 <= spare <= 3 else 0)


def window_tag_bits(generations: int) -> int:
    """The bits of a generation's tag: one more than numbering G generations takes, so that a tag returns late."""
    return (generations - 1).bit_length() + 1


def beside(error_rate: float) -> tuple[float, float]:
    """A rate just above `error_rate` and one just below.

    Another platform's logarithm may round so that `error_rate` gets the size that one of these two has here.
    """
    return error_rate ** (1 - 1e-12), error_rate ** (1 + 1e-12)


def bitmap_size(capacity: int, error_rate: float) -> int:
    """The fewest bits that keep 1 - (1 - 1/m)^n at `error_rate` for n = `capacity`: 1 / (1 - (1 - p)^(1/n))."""
    share = max(-math.log1p(-error_rate) / capacity, sys.float_info.min)
    return math.ceil(-1 / math.expm1(-share))


def counter_reaches(count: int, counters: int, hashes: int, keys: float) -> float:
    """The probability that a given one of m counters reaches `count` after n keys: Poisson, mean kn/m.

    A counter of 4 bits overflows at 16. For 16 and the best k, for which kn/m = ln 2, the probability is below
    (e ln 2 / 16)^16 = 1.4e-15 (Fan, Cao, Almeida, Broder 2000).
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


# d and w (the cells of a bucket) of Bonomi et al. 2006: with these values no overflow has been observed.
DLEFT_TABLES = 4
DLEFT_CELLS = 8
DLEFT_MEAN_LOAD = 6  # keys in a bucket at capacity: three of four cells are in use


def dleft_buckets(capacity: int) -> int:
    """The number of buckets in each of the four subtables."""
    return -(-capacity // (DLEFT_TABLES * DLEFT_MEAN_LOAD))


def dleft_remainder_bits(capacity: int, buckets: int, error_rate: float, reserved: int = 0) -> int:
    """The fewest bits r for which n / (B (2^r - reserved)) is at most `error_rate`: about log2(24 / error rate).

    `reserved` is the number of remainders that mean something other than a key. The function uses no logarithm, so its
    result is the same on every platform.
    """
    bits = 1
    while bits < 64 and capacity > error_rate * buckets * ((1 << bits) - reserved):
        bits += 1
    return bits


def dleft_error(buckets: int, remainders: int, keys: float) -> float:
    """The share of the U = B * remainders fingerprints that n keys take; each cell holds at most one.

    Each subtable stores a fingerprint through a permutation of its own. A key is therefore found if and only if its own
    fingerprint is in the table: the four buckets that are searched add no factor.
    """
    universe = buckets * remainders
    taken = -universe * math.expm1(-keys / universe)
    return min(taken, buckets * DLEFT_TABLES * DLEFT_CELLS) / universe


BLOCK_BITS = 512  # a cache line
BLOCKED_HASHES_MAX = 16
BLOCKED_ERROR_MIN = 1e-9  # here a key costs twice the bits of a Bloom filter, and more below


def blocked_error(blocks: int, hashes: int, keys: int) -> float:
    """The error rate of a Bloom filter in blocks of 512 bits: the mean over the loads of its blocks.

    The source is Putze et al. 2007. One block has j of the n keys; j is binomial, nearly Poisson. If f is the share of
    the block's bits that kj hashes set, then the error rate is E[f^k]. For F = E[f] this is near
    F^k + k(k-1)/2 Var(f) F^(k-2). F and Var(f) are those of the occupancy problem (balls thrown into bins).
    """
    if keys * hashes > 1e5 * blocks:  # then all bits are set, to the precision of a float
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
    """The fewest blocks that keep `error_rate` at `capacity` keys, and the fewest hashes that suffice with them."""
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
    """The approximate number of keys that have set `bits_set` bits.

    One key leaves a given bit clear with a probability of 1 - (1 - (1 - 1/512)^k) / blocks.
    """
    bits = blocks * BLOCK_BITS
    of_a_key = -math.expm1(hashes * math.log1p(-1 / BLOCK_BITS)) / blocks
    return math.log1p(-min(bits_set, bits - 0.5) / bits) / math.log1p(-of_a_key)


def _block_loads(
    blocks: int, keys: int
) -> tuple["npt.NDArray[np.float64]", "npt.NDArray[np.float64]"]:
    """The numbers of keys that a block may have, and the probability of each, from ratios, which lose no precision."""
    import numpy as np

    if blocks == 1:
        return np.array([float(keys)]), np.ones(1)
    mean = keys / blocks
    reach = 12 * math.sqrt(mean) + 40  # the probability beyond it is less than 1e-25
    loads = np.arange(max(0, int(mean - reach)), min(keys, int(mean + reach)) + 1.0)
    ratios = np.log((keys - loads[:-1]) / loads[1:] / (blocks - 1))
    logs = np.concatenate(([0.0], np.cumsum(ratios)))
    weights = np.exp(logs - logs.max())
    return loads, weights / weights.sum()


EXACT_TAIL_MAX = 4096


def exact_size(keys: int, load: float) -> tuple[int, int]:
    """Slots for `keys` at a load factor, and the extra slots after them.

    The extra slots take keys that probing moves beyond the last slot; one of them stays empty. At a load of 0.9 a run
    of 4096 begins at a given slot with a probability of e^(-4096 (0.9 - 1 - ln 0.9)) = 3e-10, and less at lower loads.
    """
    return math.ceil(keys / load), min(keys, EXACT_TAIL_MAX)


def exact_steps(load: float) -> float:
    """How many slots a new fingerprint at random passes until one is empty, on average (Knuth 1973): 13 at 0.8."""
    return (1 + 1 / (1 - load) ** 2) / 2


def exact_error(fingerprint_bytes: int, keys: int) -> float:
    """The probability n / 2^bits that an absent key has the same fingerprint as one of n keys."""
    return math.ldexp(keys, -8 * fingerprint_bytes)


TABLE_RATIOS = range(2, 33)  # m/n, the bits a key, in the published table
TABLE_HASHES_MAX = 8


def false_positive_table() -> list[tuple[int, float, list[float]]]:
    """The rows of the published table: m/n, the best k = ln 2 m/n, and the error rates for k = 1, 2, and so on.

    From Fan, Cao, Almeida, Broder 2000. A row ends one after the best k rounded up, and never beyond m/n or 8: 225
    error rates in all.
    """
    rows = []
    for ratio in TABLE_RATIOS:
        best = math.log(2) * ratio
        last = min(ratio, math.ceil(best) + 1, TABLE_HASHES_MAX)
        rows.append((ratio, best, [bloom_error(ratio, k, 1) for k in range(1, last + 1)]))
    return rows
