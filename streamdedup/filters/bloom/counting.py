"""Counting Bloom filter: a 4-bit counter for each bit of a Bloom filter, so that keys can be removed.

Fan, Cao, Almeida, Broder 2000. Its sizes and its probing are those of `bloom`. A counter that reaches 15 is
saturated and never counts down, since the number of additions that it stands for is no longer known. If two
probes of a key meet at one counter, both are counted.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from typing_extensions import override

from streamdedup.filters.base import Key, Mask
from streamdedup.filters.bloom.counters import (
    NONZERO,
    SATURATED,
    add_counts,
    add_row,
    add_rows,
    contains_row,
    contains_rows,
    counters_in_use,
    remove_row,
    remove_rows,
)
from streamdedup.filters.bloom.kinds import COUNTING
from streamdedup.filters.digest_filter import (
    KEYS,
    PROBES_A_CALL,
    DigestFilter,
    ask_in_slices,
    check_alike,
    number,
    one_row,
    sizes_from_header,
)
from streamdedup.filters.memory import Counts, aligned_words, words_over, writable
from streamdedup.filters.probes import PROBES, is_double, stated_probe
from streamdedup.filters.sizing import (
    BLOOM_HASHES_MAX,
    TABLE_BITS_MAX,
    bloom_error,
    bloom_keys,
    bloom_size,
    keys_of_both,
)
from streamdedup.kernel import Words
from streamdedup.keys.hashing import MURMUR3, Digests, Hash

COUNTERS_MAX = TABLE_BITS_MAX // 4
COUNT_MAX = 15


class Counting(DigestFilter):
    """A counting Bloom filter for `capacity` keys, with at most `error_rate` false positives at capacity.

    A key that a `multiset` was given 15 times can never be removed, since all of its counters are saturated then.
    Other keys that share its counters may saturate them a little sooner. `len` decreases if a removal leaves its
    key absent.
    """

    kind = "counting"
    copies_max: ClassVar[int] = COUNT_MAX
    sticky: ClassVar[bool] = True

    def __init__(
        self,
        capacity: int,
        error_rate: float = 1e-6,
        *,
        probe: str = "standard",
        multiset: bool = False,
        hash_: Hash = MURMUR3,
    ) -> None:
        super().__init__(capacity, error_rate, hash_)
        self.multiset = multiset
        COUNTING.check(capacity, error_rate)
        self._double = is_double(probe)
        self._size(*bloom_size(capacity, error_rate))
        self._words = aligned_words(-(-self.counters // 16))

    def _size(self, counters: int, hashes: int) -> None:
        self.counters, self.hashes = counters, hashes
        self._m, self._k = np.uint64(counters), np.uint64(hashes)
        self._rows = PROBES_A_CALL // hashes
        self._counts: Counts = np.zeros(3, dtype=np.int64)

    @property
    def error_rate_now(self) -> float:
        """The fill ratio to the power of k."""
        return float(self.fill_ratio**self.hashes)

    @property
    def fill_ratio(self) -> float:
        """The share of counters that are not 0; about one half at capacity."""
        return float(self._counts[NONZERO] / self.counters)

    @property
    def saturated(self) -> int:
        """How many counters are saturated, at 15.

        `sizing.counter_reaches(15, m, k, n)` gives the share of them that theory expects.
        """
        return int(self._counts[SATURATED])

    def expected_error(self, keys: int) -> float:
        """Return (1 - e^(-kn/m))^k for n = `keys`."""
        return bloom_error(self.counters, self.hashes, keys)

    def add_many(self, digests: Digests) -> Mask:
        """Add all `digests` (n, 2). Return a mask, shape (n,): True for each digest that was absent."""
        return self._add_all(digests, once=not self.multiset)

    def add_absent(self, digests: Digests) -> Mask:
        """Add the `digests` (n, 2) that are absent, each once, in a multiset, too. Return which these are."""
        return self._add_all(digests, once=True)

    def contains_many(self, digests: Digests) -> Mask:
        """Look up all `digests` (n, 2). Return a mask, shape (n,): True for each digest that is present."""
        return ask_in_slices(digests, partial(contains_rows, *self._table), self._rows)

    def remove_many(self, digests: Digests) -> Mask:
        """Do what `discard` does with each of `digests` (n, 2).

        Return a mask, shape (n,): True for each digest that was present.
        """
        writable(self._words)
        return ask_in_slices(digests, partial(remove_rows, *self._table, self._counts), self._rows)

    def discard(self, key: Key, /) -> bool:
        """Take `key` out, or one of its additions if this is a multiset. Return False if it was absent.

        A set may lose keys whose addition returned False, because other keys had set all of their counters. A multiset
        never loses a key that was added 15 times: each later call returns True and changes nothing.
        """
        writable(self._words)
        a, b = self._hash.signed(key)
        return bool(remove_row(self._words, self._m, self._k, self._double, a, b, self._counts))

    def __ior__(self, other: Self) -> Self:
        """Set each counter to the sum of both, at most 15: the sum of the multisets.

        So a key that two sets held takes two removals: fewer could take out other keys.
        After it, `len` is an estimate. Raises ConfigError if the two filters do not fit together.
        """
        check_alike("union", self, other, "counters", "hashes", "probe")
        writable(self._words)
        add_counts(self._words, other._words)
        self._recount()
        found = bloom_keys(self.counters, self.hashes, self._counts[NONZERO])
        keys = keys_of_both(found, len(self), len(other))
        self._counts[KEYS] = min(keys, self._counts[NONZERO])
        return self

    def header(self) -> dict[str, Any]:
        """Return the kind, the parameters, the sizes, and the numbers of keys and of saturated counters."""
        return self._header(
            counters=self.counters,
            hashes=self.hashes,
            probe=PROBES[self._double],
            keys=len(self),
            saturated=self.saturated,
        )

    def buffers(self) -> list[memoryview]:
        """Return the counters as little-endian uint64 words, 16 counters a word.

        Counter i is the four bits from bit 4 (i % 16) on of word i // 16.
        """
        return [self._words.data.cast("B")]

    @override
    def _restore(self, header: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        counters, hashes = sizes_from_header(
            header, bloom_size, counters=COUNTERS_MAX, hashes=BLOOM_HASHES_MAX
        )
        self._double = stated_probe(header)
        self._size(counters, hashes)
        (table,) = buffers
        self._words = words_over(table, -(-counters // 16))
        if int(self._words[-1]) >> 4 * (counters % 16 or 16):
            raise ValueError(f"counters beyond the last of {counters} are not 0")
        self._recount()
        saturated = number(header, "saturated", 0, counters)
        if saturated != self.saturated:
            raise ValueError(f"{self.saturated} counters are saturated, not {saturated}")
        # As in `bloom`, the header may be newer than the counters, if keys were added while these were
        # copied.
        keys = number(header, "keys", 0, COUNTERS_MAX)
        self._counts[KEYS] = min(keys, self._counts[NONZERO])

    @property
    def _table(self) -> tuple[Words, np.uint64, np.uint64, bool]:
        """The arguments that every kernel takes first."""
        return self._words, self._m, self._k, self._double

    def _recount(self) -> None:
        self._counts[NONZERO], self._counts[SATURATED] = counters_in_use(self._words)

    def _add_all(self, digests: Digests, *, once: bool) -> Mask:
        writable(self._words)
        return ask_in_slices(
            digests, partial(add_rows, *self._table, self._counts, once), self._rows
        )

    @override
    def _add_one(self, a: int, b: int) -> bool:
        if self.multiset:
            return bool(self._add_all(one_row(a, b), once=False)[0])
        writable(self._words)
        return bool(add_row(self._words, self._m, self._k, self._double, a, b, self._counts))

    @override
    def _contains_one(self, a: int, b: int) -> bool:
        return bool(contains_row(self._words, self._m, self._k, self._double, a, b))
