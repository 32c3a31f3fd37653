"""A sample of keys, and in which partitions each of them came.

It begins with every key. Before it would hold more keys than its bound, it halves the share of all keys that belong to
it, and drops the others. A hash of a key's bytes decides, under random words of this sample: nobody can choose keys
that stay out of it, that crowd into it, or that meet in one place of its table. The hash is cheaper than a digest; only
keys that the table does not know in their partition are digested, and compared by that.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamdedup.events import Column, Integers, Verdict, Verdicts
from streamdedup.instructions import prefetch, upper_half
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.hashing import (
    MURMUR3,
    ROWS_A_CALL,
    SYSTEM,
    Digests,
    Hash,
    RandomSource,
    frozen,
)
from streamdedup.keys.multilinear import SecretWords, drawn_words, words_of
from streamdedup.keys.words import BYTES_A_CALL, Bytes, last, within, word

KEPT_MAX = 1 << 16
SIZE_MAX = 4096  # longer keys are never sampled: a digest of them would take long
PROBES = 128  # slots that a key may be in; with half of them taken, the longest run has some 60

Places = npt.NDArray[np.uint8]
# What the table knew of a key: nothing; that it came in this partition; that it came, but only in other partitions.
NEW, AGAIN, ELSEWHERE = range(3)


class Looked(NamedTuple):
    """The sampled rows (m,) of a batch, ascending, and what was known of the key of each before, (m,)."""

    rows: Integers
    places: Places


class Sample:
    """The sample. It takes 96 bytes of memory for each of at most `kept_max` keys."""

    def __init__(self, kept_max: int = KEPT_MAX, random: RandomSource = SYSTEM) -> None:
        self._kept_max = np.uint64(kept_max)
        self._words = frozen(drawn_words(random), np.uint64)
        slots = 1 << (2 * kept_max - 1).bit_length()
        self._table = np.zeros((slots, _COLUMNS), dtype=np.uint64)
        self._state = np.zeros(_STATES, dtype=np.uint64)
        self._found = np.zeros((ROWS_A_CALL, _PARTS), dtype=np.uint64)

    @property
    def halvings(self) -> int:
        """How often the share was halved: one key in 2^halvings is sampled."""
        return int(self._state[_MASK]).bit_length()

    @property
    def kept(self) -> int:
        """The number of keys in the sample."""
        return int(self._state[_KEPT])

    @property
    def in_several(self) -> int:
        """How many of these came in several partitions."""
        return int(self._state[_SEVERAL])

    @property
    def without_record_key(self) -> int:
        """How many sampled events had no record key."""
        return int(self._state[_NULLS])

    @property
    def under_several(self) -> int:
        """How many keys were found to come under more than one record key."""
        return int(self._state[_UNDER_SEVERAL])

    def look(
        self,
        partition: int,
        keys: Column,
        verdicts: Verdicts,
        record_keys: Column | None = None,
        hash_: Hash = MURMUR3,
    ) -> Looked:
        """Note that `keys` (n,) came in `partition`, and return what was known before of those that are sampled.

        `verdicts` (m,) are those of the first m of them; the others are not looked at. A null, a key above SIZE_MAX, or
        one whose verdict is neither PASS nor DUPLICATE is never sampled. Nor is what follows the first `BYTES_A_CALL`
        bytes of sampled keys. `hash_` makes the digests, which all calls must share. `record_keys` (n,) are those of
        the same events, if they matter.
        """
        mask, self._state[_BYTES] = self._state[_MASK], 0
        found = [
            self._look(partition, start, keys, verdicts, record_keys, hash_)
            for start in range(0, max(1, len(verdicts)), ROWS_A_CALL)
        ]
        sampled = found[0] if len(found) == 1 else np.concatenate(found)
        if self._state[_MASK] != mask:
            sampled = sampled[sampled[:, _ITS_HASH] & self._state[_MASK] == _0]
        return Looked(sampled[:, _ROW].astype(np.int64), sampled[:, _PLACE].astype(np.uint8))

    def _look(
        self,
        partition: int,
        start: int,
        keys: Column,
        verdicts: Verdicts,
        record_keys: Column | None,
        hash_: Hash,
    ) -> Words:
        """Look at the next rows from `start` on; return a row of `_PARTS` for each that was sampled."""
        part, where = slice(start, start + ROWS_A_CALL), np.uint64(partition)
        count = _pick(
            *(self._words, self._table, self._state, where),
            *_cells(keys, part),
            frozen(verdicts[part], np.uint8),
            *(_NO_CELLS if record_keys is None else _cells(record_keys, part)),
            self._found,
        )
        found = self._found[:count].copy()
        if not count:
            return found
        found[:, _ROW] += np.uint64(start)
        new = (found[:, _PLACE] == _IS_NEW).nonzero()[0]
        if len(new):
            rows = found[new, _ROW].astype(np.int64)
            digests = frozen(hash_.of_column(keys.take(rows)), np.uint64)
            found[new] = self._noted(where, digests, found[new])
        return found

    def _noted(self, partition: np.uint64, digests: Digests, found: Words) -> Words:
        done = 0
        while True:
            done += _note(
                *(self._table, self._state, self._kept_max, partition), digests[done:], found[done:]
            )
            if done == len(found):
                return found
            self._halve()

    def _halve(self) -> None:
        self._state[_MASK] = self._state[_MASK] << _1 | _1
        smaller = np.zeros_like(self._table)
        _move(self._table, smaller, self._state)
        self._table = smaller


def warm_up() -> None:
    """Compile the kernels, or load them from the cache."""
    sample = Sample(1)
    keys = Column.of([b"warm up", b"and halve", b"the share"])
    for partition in range(2):
        sample.look(partition, keys, np.zeros(3, dtype=np.uint8), keys)


# The columns of the table, which has one row for each key: the hash of the key; the two halves of its digest; the
# partition in which it came first, with the three flags that follow; one bit for each other partition, modulo 64; the
# hash of the record key under which it came first.
_HASH, _DIGEST_A, _DIGEST_B, _FIRST, _OTHERS, _RECORD, _COLUMNS = range(7)
_IN_SEVERAL, _UNDER_MORE, _TAKEN = (np.uint64(1 << bit) for bit in (32, 33, 63))
_PARTITION = np.uint64(0xFFFFFFFF)

# The columns of what is found, one row for each sampled row of a batch: its row; the hashes of its key and of
# its record key; its place.
_ROW, _ITS_HASH, _ITS_RECORD, _PLACE, _PARTS = range(5)
_IS_NEW, _IS_AGAIN, _IS_ELSEWHERE = (np.uint64(place) for place in (NEW, AGAIN, ELSEWHERE))

# The elements of the state. A key is sampled if the bits of the mask are zero in its hash.
_MASK, _KEPT, _SEVERAL, _NULLS, _UNDER_SEVERAL, _BYTES, _STATES = range(7)

AHEAD = 16  # rows between the prefetch of a key and its use
_0, _1, _8, _16, _24, _32, _40, _63 = (np.uint64(n) for n in (0, 1, 8, 16, 24, 32, 40, 63))
_NOWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)
_NO_RECORD_KEY = _0
_PASS, _DUPLICATE = np.uint8(Verdict.PASS), np.uint8(Verdict.DUPLICATE)
_BYTES_MAX = np.uint64(BYTES_A_CALL)
# An odd number from the fraction of the square root of 2.
_FACTOR = np.uint64(0x6A09E667F3BCC909)


def _cells(keys: Column, part: slice) -> tuple[Bytes, Integers, Integers]:
    buffer = frozen(np.frombuffer(keys.buffer, dtype=np.uint8), np.uint8)
    return buffer, frozen(keys.starts[part], np.int64), frozen(keys.sizes[part], np.int64)


_NO_CELLS = _cells(Column.of([]), slice(0))


@inlined
def _folded(a: np.uint64, b: np.uint64) -> np.uint64:
    return (a * b) ^ upper_half(a, b)


@inlined
def _hashed(words: SecretWords, buffer: Bytes, start: np.uint64, size: np.uint64) -> np.uint64:
    """Hash a key: folded products of its words, each XORed with a random one, as in wyhash."""
    end, at = start + size, start
    mixed = words.m0 ^ (size * _FACTOR)
    while end - at > _32:
        first = _folded(word(buffer, at) ^ words.m1, word(buffer, at + _8) ^ mixed)
        mixed = first ^ _folded(word(buffer, at + _16) ^ words.m4, word(buffer, at + _24) ^ mixed)
        at += _32
    if end - at > _16:
        mixed = _folded(word(buffer, at) ^ words.m1, word(buffer, at + _8) ^ mixed)
        at += _16
    if size >= _16:
        a, b = word(buffer, end - _16), word(buffer, end - _8)
    elif size >= _8:
        a, b = word(buffer, start), word(buffer, end - _8)
    else:
        a, b = last(buffer, end, size), _0
    return _folded(_folded(a ^ words.m2, b ^ mixed), words.m3 | _1)


@inlined
def _sought(table: Words, hashed: np.uint64) -> np.uint64:
    """Return the slot of a key with that hash; NOWHERE if there is none."""
    slots = np.uint64(table.shape[0]) - _1
    at = (hashed >> _40) & slots
    for _ in range(PROBES):
        if table[at, _FIRST] == _0:
            return _NOWHERE
        if table[at, _HASH] == hashed:
            return at
        at = (at + _1) & slots
    return _NOWHERE


@inlined
def _is_known(table: Words, at: np.uint64, partition: np.uint64) -> bool:
    """Whether the key in the slot came in that partition before."""
    if table[at, _FIRST] & _PARTITION == partition:
        return True
    return bool((table[at, _OTHERS] >> (partition & _63)) & _1 != _0)


@inlined
def _compare_record(table: Words, state: Words, at: np.uint64, record: np.uint64) -> None:
    if table[at, _RECORD] != record and table[at, _FIRST] & _UNDER_MORE == _0:
        table[at, _FIRST] |= _UNDER_MORE
        state[_UNDER_SEVERAL] += _1


@kernel
def _pick(
    random_words: Words,
    table: Words,
    state: Words,
    partition: np.uint64,
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    verdicts: Verdicts,
    record_buffer: Bytes,
    record_starts: Integers,
    record_sizes: Integers,
    found: Words,
) -> int:
    """Find the sampled rows; return how many there are. Their place is AGAIN, or NEW if the table must be changed."""
    words, count, mask = words_of(random_words), 0, state[_MASK]
    with_records = record_starts.shape[0] == starts.shape[0]
    for row in range(verdicts.shape[0]):
        prefetch(buffer, np.uint64(starts[min(row + AHEAD, starts.shape[0] - 1)]))
        start, size = starts[row], sizes[row]
        if size > SIZE_MAX or verdicts[row] > _DUPLICATE:
            continue
        if not within(start, start + size, buffer.shape[0]):
            continue
        hashed = _hashed(words, buffer, np.uint64(start), np.uint64(size))
        if hashed & mask != _0:
            continue
        state[_BYTES] += np.uint64(size)
        if state[_BYTES] > _BYTES_MAX:
            return count
        record = _NO_RECORD_KEY
        if with_records:
            at, length = record_starts[row], min(record_sizes[row], SIZE_MAX)
            if within(at, at + length, record_buffer.shape[0]):
                record = _hashed(words, record_buffer, np.uint64(at), np.uint64(length)) | _1
            else:
                state[_NULLS] += _1
        place, slot = _IS_NEW, _sought(table, hashed)
        if slot != _NOWHERE and _is_known(table, slot, partition):
            _compare_record(table, state, slot, record)
            place = _IS_AGAIN
        found[count, _ROW], found[count, _ITS_HASH] = np.uint64(row), hashed
        found[count, _ITS_RECORD], found[count, _PLACE] = record, place
        count += 1
    return count


@kernel
def _note(
    table: Words,
    state: Words,
    kept_max: np.uint64,
    partition: np.uint64,
    digests: Digests,
    found: Words,
) -> int:
    """Note keys in the table, and write their places. Returns how many rows were done before the table was full."""
    slots = np.uint64(table.shape[0]) - _1
    for row in range(digests.shape[0]):
        hashed, a, b = found[row, _ITS_HASH], digests[row, 0], digests[row, 1]
        found[row, _PLACE] = _IS_NEW
        if hashed & state[_MASK] != _0:
            continue
        at = (hashed >> _40) & slots
        for _ in range(PROBES):
            if table[at, _FIRST] == _0:
                if state[_KEPT] == kept_max:
                    return row
                table[at, _HASH], table[at, _DIGEST_A], table[at, _DIGEST_B] = hashed, a, b
                table[at, _FIRST], table[at, _RECORD] = partition | _TAKEN, found[row, _ITS_RECORD]
                state[_KEPT] += _1
                break
            if table[at, _DIGEST_A] == a and table[at, _DIGEST_B] == b:
                _compare_record(table, state, at, found[row, _ITS_RECORD])
                if _is_known(table, at, partition):
                    found[row, _PLACE] = _IS_AGAIN
                else:
                    found[row, _PLACE] = _IS_ELSEWHERE
                    if table[at, _FIRST] & _IN_SEVERAL == _0:
                        state[_SEVERAL] += _1
                    table[at, _FIRST] |= _IN_SEVERAL
                    table[at, _OTHERS] |= _1 << (partition & _63)
                break
            at = (at + _1) & slots
    return int(digests.shape[0])


@kernel
def _move(table: Words, smaller: Words, state: Words) -> None:
    """Move the keys that are still sampled to another table, and count them anew."""
    slots = np.uint64(smaller.shape[0]) - _1
    state[_KEPT] = state[_SEVERAL] = _0
    for row in range(table.shape[0]):
        if table[row, _FIRST] == _0 or table[row, _HASH] & state[_MASK] != _0:
            continue
        at = (table[row, _HASH] >> _40) & slots
        for _ in range(PROBES):
            if smaller[at, _FIRST] == _0:
                for column in range(_COLUMNS):
                    smaller[at, column] = table[row, column]
                state[_KEPT] += _1
                if table[row, _FIRST] & _IN_SEVERAL != _0:
                    state[_SEVERAL] += _1
                break
            at = (at + _1) & slots
