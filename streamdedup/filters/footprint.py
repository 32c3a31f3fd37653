"""The memory and the error rate of a filter of each kind, from capacity and error rate: one function for each kind.

Each function describes the filter that the constructor would make. It refuses what the constructor refuses, and what
restoring a saved filter refuses. Nothing is allocated here. Each function imports its kind when it is called: a module
of kernels takes time to load, and a worker serves one kind.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from streamdedup.errors import ConfigError
from streamdedup.filters.sizing import (
    BLOCK_BITS,
    BLOCKED_ERROR_MIN,
    CUCKOO_BITS_MAX,
    CUCKOO_CELLS,
    DLEFT_TABLES,
    TABLE_BITS_MAX,
    WINDOW_CELLS,
    WINDOW_GENERATIONS,
    bitmap_size,
    blocked_error,
    blocked_size,
    bloom_error,
    bloom_size,
    cuckoo_error,
    cuckoo_size,
    digests_err_more,
    dleft_error,
    exact_error,
    exact_size,
    fuse_bits,
    fuse_size,
    window_share,
    window_size,
    window_tag_bits,
)
from streamdedup.filters.stash import ROWS_SPARE, STASH_BYTES_MIN, stash_bytes

# After the cells come one more word, because the last cell is read from two words, and an empty stash.
BEHIND_CELLS_BYTES = 8 + STASH_BYTES_MIN
SPARE_BYTES = stash_bytes(ROWS_SPARE) - STASH_BYTES_MIN


@dataclass(frozen=True, slots=True)
class Footprint:
    """The size and error rate of a filter that could be made.

    `hashes` is the number of places in which a key is looked up: bits, counters, slots or buckets. `error` returns the
    error rate that theory predicts for a number of keys. `spare_bytes` is what the stash may take beyond `size_bytes`
    up to the capacity, if somebody chooses keys.
    """

    size_bytes: int
    hashes: int
    error: Callable[[int], float]
    spare_bytes: int = 0


def footprint(kind: str, capacity: int, error_rate: float, **options: object) -> Footprint:
    """What a filter of `kind` takes; `options` are those of the kind.

    Raises ConfigError if no such filter can be made. Its text is the reason only, without the option or a remedy.
    """
    if not error_rate:
        raise ConfigError("an error rate of 0 is not possible")
    return _OF[kind](capacity, error_rate, **options)


def _bitmap(capacity: int, error_rate: float) -> Footprint:
    bits = bitmap_size(capacity, error_rate)
    return Footprint(_bytes(bits), 1, partial(bloom_error, bits, 1))


def _blocked(capacity: int, error_rate: float) -> Footprint:
    if error_rate < BLOCKED_ERROR_MIN:
        raise ConfigError(_made_from(BLOCKED_ERROR_MIN))
    blocks, hashes = blocked_size(capacity, error_rate)
    return Footprint(_bytes(blocks * BLOCK_BITS), hashes, partial(blocked_error, blocks, hashes))


def _bloom(capacity: int, error_rate: float, **_probe: object) -> Footprint:
    bits, hashes = _bloom_size(capacity, error_rate)
    return Footprint(_bytes(bits), hashes, partial(bloom_error, bits, hashes))


def _counting(capacity: int, error_rate: float, **_probe: object) -> Footprint:
    counters, hashes = _bloom_size(capacity, error_rate)
    return Footprint(_bytes(4 * counters), hashes, partial(bloom_error, counters, hashes))


def _bloom_size(capacity: int, error_rate: float) -> tuple[int, int]:
    if digests_err_more(capacity, error_rate):
        raise ConfigError(_made_from(exact_error(16, capacity)))
    return bloom_size(capacity, error_rate)


def _cuckoo(capacity: int, error_rate: float) -> Footprint:
    buckets, bits = cuckoo_size(capacity, error_rate)
    _check("fingerprints", bits, CUCKOO_BITS_MAX)
    size_bytes = _bytes(buckets * CUCKOO_CELLS * bits) + BEHIND_CELLS_BYTES
    return Footprint(size_bytes, 2, partial(cuckoo_error, buckets, bits), SPARE_BYTES)


def _dlcbf(capacity: int, error_rate: float, permutations: str = "any") -> Footprint:
    from streamdedup.filters.dleft import dlcbf

    return _dleft(capacity, error_rate, dlcbf.COUNTER_BITS, permutations)


def _dleft(
    capacity: int, error_rate: float, counter_bits: int = 0, permutations: str = "any"
) -> Footprint:
    from streamdedup.filters.dleft import dlcbf, dleft
    from streamdedup.filters.dleft.shape import shape_for

    shape = shape_for(capacity, error_rate, counter_bits, permutations)
    _check("remainders", shape.remainder_bits, dleft.REMAINDER_BITS_MAX)
    if permutations == "published":
        _check("fingerprints", shape.fingerprint_bits, dlcbf.FINGERPRINT_BITS_MAX)
    size_bytes = _bytes(shape.bits) + BEHIND_CELLS_BYTES
    error = partial(dleft_error, shape.buckets, shape.remainders)
    return Footprint(size_bytes, DLEFT_TABLES, error, SPARE_BYTES)


def _exact(
    capacity: int,
    error_rate: float,
    fingerprint_bytes: int | None = None,
    load: float | None = None,
) -> Footprint:
    from streamdedup.filters.exact import exact

    fingerprint_bytes = exact.FINGERPRINTS[0] if fingerprint_bytes is None else fingerprint_bytes
    load = exact.LOAD if load is None else load
    least = exact_error(fingerprint_bytes, capacity)
    if error_rate < least:
        raise ConfigError(
            f"with fingerprints of {fingerprint_bytes} bytes its error rate is {least:.2g}"
        )
    size_bytes = _bytes(sum(exact_size(capacity, load)) * fingerprint_bytes * 8)
    return Footprint(size_bytes, 1, partial(exact_error, fingerprint_bytes))


def _fuse(capacity: int, error_rate: float) -> Footprint:
    from streamdedup.filters.fuse import fuse
    from streamdedup.filters.fuse.peel import LINE_WORDS, words_of

    bits = fuse_bits(error_rate)
    if bits > fuse.BITS_MAX:
        raise ConfigError(_made_from(2.0**-fuse.BITS_MAX))
    parts = -(-capacity // fuse.PART_KEYS)
    part = words_of(*fuse_size(-(-capacity // parts)), bits)
    words = parts * (part + fuse.COLUMNS) + LINE_WORDS
    return Footprint(_bytes(64 * words), 3, lambda keys: 2.0**-bits if keys else 0.0)


def _window(
    capacity: int,
    error_rate: float,
    generations: int = WINDOW_GENERATIONS,
    *,
    by_count: bool = False,
) -> Footprint:
    from streamdedup.filters.window import window

    if by_count:  # then all generations are full, and none has less than one key
        generations = min(generations, capacity + 1)
        capacity = window_share(capacity, generations) * generations
    buckets, fingerprint_bits = window_size(capacity, error_rate, generations)
    bits = fingerprint_bits + window_tag_bits(generations)
    _check("cells", bits, window.CELL_BITS_MAX)
    size_bytes = _bytes(buckets * WINDOW_CELLS * bits) + BEHIND_CELLS_BYTES
    error = partial(cuckoo_error, buckets, fingerprint_bits, cells=WINDOW_CELLS)
    return Footprint(size_bytes, 2, error, SPARE_BYTES)


_OF: Mapping[str, Callable[..., Footprint]] = {
    "bitmap": _bitmap,
    "blocked": _blocked,
    "bloom": _bloom,
    "counting": _counting,
    "cuckoo": _cuckoo,
    "dlcbf": _dlcbf,
    "dleft": _dleft,
    "exact": _exact,
    "fuse": _fuse,
    "window": _window,
}


def _bytes(bits: int) -> int:
    """The bytes of so many bits, in whole words. Raises ConfigError if they are more than 1 TiB."""
    if bits > TABLE_BITS_MAX:
        raise ConfigError(f"it takes {bits / TABLE_BITS_MAX:.3g} TiB, and the most is 1 TiB")
    return -(-bits // 64) * 8


def _check(what: str, bits: int, most: int) -> None:
    if bits > most:
        raise ConfigError(f"it takes {what} of {bits} bits, and the most is {most}")


def _made_from(error_rate: float) -> str:
    return f"its lowest error rate is {error_rate:.2g}"
