"""Exact set: an open-addressing table of 64- or 128-bit fingerprints of the keys, never the keys themselves.

The fingerprint is the digest's first word, or both; an empty slot is 0, so a first word of 0 becomes 1. Its
home, the high word of a * slots, ascends with the fingerprint, and so does the table (Amble, Knuth 1974):
the set alone determines the table, and growth reads and writes it once from end to end. Fingerprints that
the last slots cannot hold go into a tail, so the table does not wrap around.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from typing_extensions import override

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Key, Mask
from streamdedup.filters.digest_filter import (
    KEYS,
    DigestFilter,
    ask_in_slices,
    check_alike,
    empty_mask,
    number,
    slices,
)
from streamdedup.filters.exact.kinds import EXACT, FINGERPRINTS, LOAD, LOAD_MAX, LOAD_MIN
from streamdedup.filters.exact.rows import (
    NEW,
    ROOM,
    THERE,
    add_row,
    add_rows,
    contains_row,
    contains_rows,
    remove_row,
    remove_rows,
)
from streamdedup.filters.exact.scan import fingerprints_in, move
from streamdedup.filters.memory import Counts, aligned_words, words_over, writable
from streamdedup.filters.sizing import TABLE_BITS_MAX, exact_error, exact_size, exact_steps
from streamdedup.filters.strain import (
    COUNTS,
    CREDIT,
    FLAGS,
    STRAINED,
    chosen_keys,
    take_refusal,
)
from streamdedup.kernel import Words
from streamdedup.keys.hashing import MURMUR3, Digests, Hash

WORDS_MAX = TABLE_BITS_MAX // 64


class Exact(DigestFilter):
    """An exact set for `capacity` keys. It takes more: each time its room is used up it grows by half, at once.

    While it grows, the old and the new table are in memory, 2.5 times the old one, and buffers that
    `buffers` returned before are those of the old table. It is no multiset: a removal takes a key out,
    however often it was added.

    With the hash `murmur3`, somebody can choose keys that make one long run. A search there takes logarithmic
    time. An addition may move so much of it as `filters.strain` allows: chosen keys take at most three times as
    long as random ones, and one that would take longer is refused by ChosenKeysError, which stops the partition
    of a worker. With a secret, as of `siphash`, nobody can.

    `load` is the share of slots in use at capacity. An addition moves (1 + 1/(1 - load)^2) / 2 fingerprints
    on average (Knuth 1973): 3 at a load of 0.5 (16 bytes a key), 13 at 0.8 (10 bytes), 50 at 0.9 (8.9
    bytes). At 0.8 they are still within two cache lines.
    """

    kind = "exact"
    copies_max: ClassVar[int] = 1
    sticky: ClassVar[bool] = False

    def __init__(
        self,
        capacity: int,
        error_rate: float | None = None,
        *,
        fingerprint_bytes: int = 8,
        load: float = LOAD,
        hash_: Hash = MURMUR3,
    ) -> None:
        if type(fingerprint_bytes) is not int or fingerprint_bytes not in FINGERPRINTS:
            raise ConfigError(f"filter.fingerprint_bytes is {fingerprint_bytes!r}; choose 8 or 16")
        if not _is_load(load):
            raise ConfigError(
                f"filter.load is {load!r}; it must be a number from {LOAD_MIN} to {LOAD_MAX}"
            )
        own = exact_error(fingerprint_bytes, capacity)
        super().__init__(capacity, own if error_rate is None else error_rate, hash_)
        options = {"fingerprint_bytes": fingerprint_bytes, "load": load}
        EXACT.check(capacity, self._error_rate, **options)
        self._load, self._width = float(load), fingerprint_bytes // 8
        self._count(0, capacity)
        slots, tail = exact_size(capacity, load)
        self._over(slots, self._allocated(slots, tail))

    def _count(self, keys: int, room: int) -> None:
        self._counts: Counts = np.zeros(COUNTS, dtype=np.int64)
        self._counts[KEYS], self._counts[ROOM] = keys, room
        self._counts[CREDIT] = math.ceil(3 * exact_steps(self._load))

    def _over(self, slots: int, table: Words) -> None:
        # All at once: a KeyboardInterrupt may come with the end of any call.
        m, w = np.uint64(slots), np.uint64(self._width)
        self.slots, self._words, self._m, self._w = slots, table, m, w

    def _allocated(self, slots: int, tail: int) -> Words:
        words = (slots + tail) * self._width
        if words > WORDS_MAX:
            raise ConfigError(
                f"filter.capacity {self._capacity}: a table of {words * 8:,} bytes is above the"
                f" {WORDS_MAX * 8:,} that are possible; lower the capacity"
            )
        return aligned_words(words)

    @property
    def fingerprint_bytes(self) -> int:
        """The size of a fingerprint: 8 or 16 bytes."""
        return self._width * 8

    @property
    def error_rate_now(self) -> float:
        """The probability that a key's fingerprint equals that of another key in the table."""
        return exact_error(self.fingerprint_bytes, len(self))

    @property
    @override
    def strained(self) -> bool:
        return bool(self._counts[FLAGS] & STRAINED)

    @property
    def fill_ratio(self) -> float:
        """The number of keys divided by the number of slots; `load` at capacity."""
        return len(self) / self.slots

    def expected_error(self, keys: int) -> float:
        """Return n / 2^64 for fingerprints of 8 bytes, n / 2^128 for 16, for n = `keys`."""
        return exact_error(self.fingerprint_bytes, keys)

    def add_many(self, digests: Digests) -> Mask:
        """Add all `digests` (n, 2). Return a mask, shape (n,): True for each digest that was absent."""
        writable(self._words)
        fresh = empty_mask(digests)
        for part, rows in slices(digests):
            done = self._add(part, fresh[rows])
            while done < len(part):
                self._make_room()
                done += self._add(part[done:], fresh[rows][done:])
        return fresh

    def add_absent(self, digests: Digests) -> Mask:
        """Do the same as `add_many`: a set keeps no copies."""
        return self.add_many(digests)

    def contains_many(self, digests: Digests) -> Mask:
        """Look up all `digests` (n, 2). Return a mask, shape (n,): True for each digest that is present."""
        return ask_in_slices(digests, partial(contains_rows, self._words, self._w, self._m))

    def discard(self, key: Key, /) -> bool:
        """Remove `key`. Return False if it was absent."""
        writable(self._words)
        a, b = self._hash.signed(key)
        return bool(remove_row(self._words, self._w, self._m, a, b, self._counts))

    def remove_many(self, digests: Digests) -> Mask:
        """Remove all `digests` (n, 2).

        Return a mask, shape (n,): True for each digest that was present.
        """
        writable(self._words)
        table = self._words, self._w, self._m, self._counts
        return ask_in_slices(digests, partial(remove_rows, *table))

    def __iand__(self, other: Self) -> Self:
        """Keep what both hold. Raises ConfigError if the two filters do not fit together."""
        check_alike("intersection", self, other, "fingerprint_bytes")
        held = self.fingerprints()
        if self._width == 1:  # the second word of a digest is not in the table
            held = np.stack([held, np.zeros_like(held)], axis=1)
        self.remove_many(held[~other.contains_many(held)])
        return self

    def fingerprints(self) -> Words:
        """Return all fingerprints, in ascending order: of 8 bytes, shape (n,), or of 16, shape (n, 2), dtype uint64."""
        rows = self._words.reshape(-1, self._width)
        held: Words = rows[rows[:, 0] != 0]
        return held[:, 0] if self._width == 1 else held

    def header(self) -> dict[str, Any]:
        """Return the kind, the parameters, the sizes and the number of keys."""
        return self._header(
            fingerprint_bytes=self.fingerprint_bytes,
            load=self._load,
            slots=self.slots,
            tail=self._tail,
            keys=len(self),
        )

    def buffers(self) -> list[memoryview]:
        """Return the slots and the tail: ascending fingerprints, with zeros between them.

        A fingerprint is one or two little-endian uint64.
        """
        return [self._words.data.cast("B")]

    @override
    def _restore(self, header: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        size, load = number(header, "fingerprint_bytes", 8, 16), header.get("load")
        if size not in FINGERPRINTS:
            raise ValueError(f"fingerprint_bytes {size} is neither 8 nor 16")
        if not isinstance(load, float) or not LOAD_MIN <= load <= LOAD_MAX:
            raise ValueError(f"load {load!r} is not from {LOAD_MIN} to {LOAD_MAX}")
        if self.error_rate < exact_error(size, self.capacity):
            raise ValueError(
                f"error_rate {self.error_rate} is below the error rate of its fingerprints"
            )
        slots, tail = number(header, "slots", 1, WORDS_MAX), number(header, "tail", 1, WORDS_MAX)
        room = self.capacity
        while exact_size(room, load)[0] < slots:
            room = _more(room)
        if exact_size(room, load)[0] != slots:
            raise ValueError(f"{slots} slots do not follow from capacity and load")
        self._load, self._width = load, size // 8
        (table,) = buffers
        self._over(slots, words_over(table, (slots + tail) * self._width))
        keys = number(header, "keys", 0, room)
        if fingerprints_in(self._words, self._width, slots) != keys:
            raise ValueError(f"the table does not hold {keys} fingerprints, each in its place")
        self._count(keys, room)

    @property
    def _tail(self) -> int:
        return len(self._words) // self._width - self.slots

    def _add(self, digests: Digests, fresh: Mask) -> int:
        return int(add_rows(self._words, self._w, self._m, self._counts, digests, fresh))

    def _make_room(self) -> None:
        """Grow for the addition that has not been done. Raises ChosenKeysError if it was refused."""
        if take_refusal(self._counts):
            raise chosen_keys(self.kind, self._hash)
        self._grow()

    def _grow(self) -> None:
        """Make room for at least one key.

        If the number of keys has reached its limit, make half as many slots again; otherwise double the
        tail.
        """
        slots, tail, room = self.slots, self._tail, int(self._counts[ROOM])
        if len(self) == room:
            room = _more(room)
            slots, least = exact_size(room, self._load)
            tail = max(tail, least)
        else:
            tail *= 2
        grown = self._allocated(slots, tail)
        move(self._words, grown, self._width, slots)
        self._over(slots, grown)
        self._counts[ROOM] = room

    @override
    def _add_one(self, a: int, b: int) -> bool:
        writable(self._words)
        while True:
            new = add_row(self._words, self._w, self._m, a, b, self._counts)
            if new >= THERE:
                return bool(new == NEW)
            self._make_room()

    @override
    def _contains_one(self, a: int, b: int) -> bool:
        return bool(contains_row(self._words, self._w, self._m, a, b))


def _is_load(given: object) -> bool:
    return isinstance(given, Real) and LOAD_MIN <= float(given) <= LOAD_MAX


def _more(room: int) -> int:
    return room + room // 2 + 1
