"""Binary fuse filter: a list built once; 1.13 r bits a key for an error rate of 2^-r, any r (Graf, Lemire 2022).

The first word of a digest chooses the part, the second is the key within it. The build needs memory for one
part at a time; a query reads the directory of the parts and three slots. The same set of digests gives the
same filter, to the bit, in any order. So do repeated digests, unless they change the number of parts.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from typing_extensions import override

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Mask
from streamdedup.filters.digest_filter import (
    CAPACITY_MAX,
    DigestFilter,
    empty_mask,
    is_rate,
    number,
    slices,
)
from streamdedup.filters.fuse.kinds import BITS_MAX
from streamdedup.filters.fuse.peel import (
    LENGTH_MAX,
    LINE_WORDS,
    SEEDS_MAX,
    FusePart,
    State,
    build_part,
    fingerprint,
    mixed,
    slots,
    words_of,
)
from streamdedup.filters.memory import aligned_words, fill, words_over
from streamdedup.filters.packed_cells import mask, read
from streamdedup.filters.sizing import fuse_bits
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.hashing import MURMUR3, Digests, Hash, checked

PART_KEYS = 1 << 22  # on average; the build of a part takes 140 MB
PARTS_MAX = -(-CAPACITY_MAX // PART_KEYS)

# The columns of the directory, which has a row for each part.
START, KEYS, SEED, LENGTH, SEGMENTS, COLUMNS = 0, 1, 2, 3, 4, 5


class Fuse(DigestFilter):
    """A list of keys, built by `from_digests` and never changed.

    `error_rate` is the filter's own, 2^-bits, which is at most the rate that was asked for. `len` is the
    number of distinct keys.
    """

    kind = "fuse"

    _keys: int
    _bits: np.uint64
    _words: Words  # read-only views, so that a kernel is compiled once, for memory and mapped files alike
    _directory: Words

    def __init__(self, **_: object) -> None:
        raise ConfigError(
            "filter.kind fuse takes no single keys: it is built once, from all of its keys, by build or by"
            " Fuse.from_digests; to add keys later, choose another kind"
        )

    @classmethod
    def from_digests(
        cls, digests: Digests, error_rate: float = 1e-6, hash_: Hash = MURMUR3
    ) -> Self:
        """Build the filter of `digests` (n, 2); equal digests count once.

        It takes the memory of the filter, 8 bytes a digest, and 140 MB for the part that is being built.
        Raises ConfigError if `error_rate` is below 2^-32.
        """
        return cls.from_chunks([digests], len(checked(digests)), error_rate, hash_)

    @classmethod
    def from_chunks(
        cls, chunks: Iterable[Digests], count_hint: int, error_rate: float, hash_: Hash = MURMUR3
    ) -> Self:
        """Build the filter of all rows of `chunks`, (n, 2) each; the caller need not keep a chunk.

        `count_hint` is about how many rows will come. If another number comes, the filter is right, but it
        has larger or more parts than is best. Raises ConfigError if `error_rate` is below 2^-32, or if a
        part has more than 16 times the keys that it should have.
        """
        if not is_rate(error_rate) or fuse_bits(error_rate) > BITS_MAX:
            raise ConfigError(
                f"filter.error_rate is {error_rate!r}; it must be a number below 1, and for fuse at least"
                f" {2.0**-BITS_MAX}"
            )
        if not 0 <= count_hint <= CAPACITY_MAX:
            raise ConfigError(
                f"a list of {count_hint} keys is too long; it may have up to {CAPACITY_MAX} keys"
            )
        parts, bits = max(1, -(-count_hint // PART_KEYS)), fuse_bits(error_rate)
        held = [divided(chunk, parts) for chunk in chunks]
        return cls.of_parts((build_part(_joined(held, i), bits) for i in range(parts)), bits, hash_)

    @classmethod
    def of_parts(cls, parts: Iterable[FusePart], bits: int, hash_: Hash = MURMUR3) -> Self:
        """Return the filter of all parts, in order: `build_part` of each range of keys that `divided` returns."""
        rows, tables, start = [], [], 0
        for part in parts:
            rows.append((start, part.keys, part.seed, part.length, part.segments))
            tables.append(part.table)
            start += words_of(part.length, part.segments, bits)
        words = aligned_words(start + LINE_WORDS)
        for row in reversed(rows):
            # Each table is freed after its copy, so that no table is in memory twice.
            table = tables.pop()[:-LINE_WORDS]
            target = words[row[START] : row[START] + len(table)]
            fill(target.data.cast("B"), table.data.cast("B"))
        directory = aligned_words(len(rows) * COLUMNS).reshape(-1, COLUMNS)
        directory[:] = rows
        made = cls.__new__(cls)
        DigestFilter.__init__(made, max(1, int(directory[:, KEYS].sum())), 2.0**-bits, hash_)
        made._stand_on(words, directory, bits)
        return made

    def _stand_on(self, words: Words, directory: Words, bits: int) -> None:
        self._keys = int(directory[:, KEYS].sum())
        self._bits, self._words, self._directory = np.uint64(bits), words.view(), directory.view()
        self._words.flags.writeable = self._directory.flags.writeable = False

    @property
    def bits(self) -> int:
        """The width r of a fingerprint, in bits."""
        return int(self._bits)

    @property
    def error_rate_now(self) -> float:
        """2^-r, or 0 for a list without keys."""
        return self.expected_error(self._keys)

    @property
    def fill_ratio(self) -> float:
        """The share of slots that a key has set; 0.885 for a long list."""
        lengths, segments = self._directory[:, LENGTH], self._directory[:, SEGMENTS]
        return self._keys / max(
            1, int((lengths * (segments + np.uint64(2)) * (segments > 0)).sum())
        )

    @property
    @override
    def size_bytes(self) -> int:
        return int(self._words.nbytes + self._directory.nbytes)

    @override
    def __len__(self) -> int:
        return self._keys

    def expected_error(self, keys: int) -> float:
        """Return 2^-r for any number of keys above 0.

        Two keys may also share 64 bits of their digests, which adds less than 1e-11.
        """
        return self._error_rate if keys else 0.0

    def contains_many(self, digests: Digests) -> Mask:
        """Look up all `digests` (n, 2). Return a mask, shape (n,): True for each digest that is present."""
        present = empty_mask(digests)
        for part, rows in slices(digests):
            _contains(self._words, self._directory, self._bits, part, present[rows])
        return present

    def header(self) -> dict[str, Any]:
        """Return the kind, the parameters, and the numbers of keys and parts."""
        return self._header(bits=self.bits, keys=self._keys, parts=len(self._directory))

    def buffers(self) -> list[memoryview]:
        """Return the slots of all parts, and the directory, as little-endian uint64 words; read-only.

        A part begins on a cache line, at word `start`, and has (segments + 2) * length slots of r bits:
        slot i is the r bits from bit i * r of the part on. A cache line of zeros ends the table. A row of
        the directory is start, keys, seed, length, segments.
        """
        return [self._words.data.cast("B"), self._directory.data.cast("B")]

    @override
    def _restore(self, header: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        """Stand on the very buffer of the table.

        It copies the directory, by which kernels find their way: whoever writes to a mapped file later would lead them
        out of the table. It does not read the table, which may be larger than memory.
        """
        if header.get("kind") != self.kind:
            raise ValueError(f"kind {header.get('kind')!r} is not {self.kind}")
        bits, keys = number(header, "bits", 1, BITS_MAX), number(header, "keys", 0, CAPACITY_MAX)
        if (self.capacity, self.error_rate) != (max(1, keys), 2.0**-bits):
            raise ValueError(
                f"capacity {self.capacity} and error rate {self.error_rate} do not follow from {keys} keys and {bits}"
                " bits"
            )
        parts = number(header, "parts", 1, PARTS_MAX)
        table, rows = buffers
        directory = words_over(rows, parts * COLUMNS).reshape(-1, COLUMNS).copy()
        words = words_over(table, _checked(directory, keys, bits) + LINE_WORDS)
        self._stand_on(words, directory, bits)

    @override
    def _add_one(self, _a: int, _b: int) -> bool:
        raise ConfigError(
            "a fuse filter takes no further keys; build it again from the longer list"
        )

    @override
    def _contains_one(self, a: int, b: int) -> bool:
        return bool(_contains_one(self._words, self._directory, self._bits, a, b))


def divided(digests: Digests, parts: int) -> tuple[Words, State]:
    """Return the second words of `digests` (n, 2), part after part, and where in them each part begins.

    Part i has the words from `ends[i]` to `ends[i + 1]`; `ends` has shape (parts + 1,).
    """
    ends: State = np.zeros(parts + 1, dtype=np.int64)
    for some, _ in slices(digests):
        _count_parts(some, np.uint64(parts), ends)
    np.cumsum(ends, out=ends)
    keys, filled = np.empty(len(digests), dtype=np.uint64), ends.copy()
    for some, _ in slices(digests):
        _divide(some, np.uint64(parts), keys, filled)
    return keys, ends


def _joined(held: Sequence[tuple[Words, State]], part: int) -> Words:
    """Return the keys of one part from all chunks."""
    pieces = [keys[ends[part] : ends[part + 1]] for keys, ends in held]
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, np.uint64), *pieces])


def _checked(directory: Words, keys: int, bits: int) -> int:
    """Return the size of all parts in words.

    Raises ValueError if a kernel could be led out of the table, or if the sums are wrong.
    """
    start = 0
    for row in directory.tolist():
        length, segments = row[LENGTH], row[SEGMENTS]
        table_slots = (segments + 2) * length if segments else 0
        if (
            row[START] != start
            or row[SEED] >= SEEDS_MAX
            or not 1 <= length <= LENGTH_MAX
            or length & (length - 1)
            or row[KEYS] > table_slots
            or (row[KEYS] == 0) != (segments == 0)
        ):
            raise ValueError(
                f"a part of a list cannot have {row} as start, keys, seed, length, segments"
            )
        start += words_of(length, segments, bits)
        keys -= row[KEYS]
    if keys:
        raise ValueError(f"the header has {keys} more keys than the parts")
    return start


_0, _1, _6, _32 = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(32)


@inlined
def _part_of(a: np.uint64, parts: np.uint64) -> np.uint64:
    return ((a >> _32) * parts) >> _32


@kernel
def _count_parts(digests: Digests, parts: np.uint64, counts: State) -> None:
    """Count the keys of part i into `counts[i + 1]`."""
    for i in range(digests.shape[0]):
        counts[_part_of(digests[i, 0], parts) + _1] += 1


@kernel
def _divide(digests: Digests, parts: np.uint64, keys: Words, filled: State) -> None:
    for i in range(digests.shape[0]):
        part = _part_of(digests[i, 0], parts)
        keys[filled[part]] = digests[i, 1]
        filled[part] += 1


@inlined
def _present(words: Words, directory: Words, bits: np.uint64, a: np.uint64, b: np.uint64) -> bool:
    """Return whether a key is present. No branch depends on a slot, so the reads of many keys overlap."""
    part = _part_of(a, np.uint64(directory.shape[0]))
    start, length = directory[part, START], directory[part, LENGTH]
    first = length * directory[part, SEGMENTS]
    if first == _0:
        return False
    hash_ = mixed(b, directory[part, SEED])
    one, two, three = slots(hash_, length, first)
    at = start << _6
    left = fingerprint(hash_, bits) ^ read(words, at + one * bits)
    left ^= read(words, at + two * bits) ^ read(words, at + three * bits)
    return bool(left & mask(bits) == _0)


@kernel
def _contains(
    words: Words, directory: Words, bits: np.uint64, digests: Digests, present: Mask
) -> None:
    for i in range(digests.shape[0]):
        present[i] = _present(words, directory, bits, digests[i, 0], digests[i, 1])


@kernel
def _contains_one(words: Words, directory: Words, bits: np.uint64, a: int, b: int) -> bool:
    return _present(words, directory, bits, np.uint64(a), np.uint64(b))
