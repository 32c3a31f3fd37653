"""Bitmap for integers of a declared range: one bit for each integer of the range. No hash, and so no error.

It is an exact set, and its members can be removed. It has the methods of the Protocols in `base`, but they
take integers in place of keys and digests, as the annotations show.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Filter, Mask
from streamdedup.filters.bitmap.bit_table import BitPositions, BitTable
from streamdedup.filters.digest_filter import ROWS_A_CALL, check_alike, describe
from streamdedup.filters.sizing import TABLE_BITS_MAX
from streamdedup.keys.encoding import named
from streamdedup.keys.hashing import MURMUR3, Hash

LOWEST, HIGHEST = -(1 << 63), (1 << 64) - 1  # the range of numpy's integer dtypes

Integers = npt.NDArray[np.integer[Any]]


class DirectBitmap(BitTable):
    """An exact set of the integers from a to b, both included, for `range` = (a, b).

    A method that takes one key takes an integer; one that takes many takes an array of shape (n,) and any
    integer dtype. To add an integer out of the range raises ValueError; if one integer of an array is out of the
    range, the call adds nothing. Whoever asks for such an integer, or takes it out, learns that it is absent.
    `capacity` is the size of the range unless it is given.
    """

    only_sets_bits: ClassVar[bool] = False
    multiset: bool = False
    copies_max: ClassVar[int] = 1
    sticky: ClassVar[bool] = False

    def __init__(
        self,
        *,
        range: Sequence[int],  # noqa: A002 - the option's name
        capacity: int | None = None,
        hash_: Hash = MURMUR3,
    ) -> None:
        if hash_ != MURMUR3:
            raise ConfigError("a bitmap with filter.range hashes nothing; leave filter.hash out")
        try:
            self._first, self._last = _bounds(range)
            size = self._last - self._first + 1
            self._capacity = _part_of(size, size if capacity is None else capacity)
        except ValueError as error:
            raise ConfigError(f"filter.{error}") from None
        self._allocate(size, remedy="narrow filter.range")

    def __repr__(self) -> str:
        return describe(cast("Filter", self), self.kind)

    @property
    def hash(self) -> Hash:
        """The default hash. Every filter names a hash, but this one hashes nothing."""
        return MURMUR3

    @property
    def layout(self) -> int:
        """Always 0: only additions and removals change the table."""
        return 0

    @property
    def strained(self) -> bool:
        """False: each integer has its own bit."""
        return False

    @property
    def overfull(self) -> bool:
        """False: each integer has its own bit."""
        return False

    @property
    def range(self) -> tuple[int, int]:
        """The first and the last integer of the range."""
        return self._first, self._last

    @property
    def capacity(self) -> int:
        """How many integers the operator means to add; at most the size of the range."""
        return self._capacity

    @property
    def error_rate(self) -> float:
        """Always 0: an exact set has no false positives."""
        return 0.0

    @property
    def error_rate_now(self) -> float:
        """Always 0: an exact set has no false positives."""
        return 0.0

    def expected_error(self, keys: int) -> float:  # noqa: ARG002 - the Protocol's argument
        """Return 0: an exact set has no false positives."""
        return 0.0

    def digests(self, keys: Any) -> Integers:  # noqa: ANN401 - all that numpy can make an array of
        """Return the integers `keys`, a sequence or an array, as an array of shape (n,). Nothing is hashed.

        One that is out of the range, and that a list of Python's may have, may become another that is. Raises TypeError
        if they are not integers.
        """
        values = np.asarray(keys)
        if isinstance(keys, list | tuple):
            if bool in set(map(type, keys)):
                raise _no_integer(True)
            if values.dtype.kind not in "iu":
                values = self._fitted(keys, values)
        if values.dtype.kind not in "iu" or values.ndim != 1:
            raise TypeError(
                f"with filter.range, keys are integers, shape (n,), not {values.dtype}, shape {values.shape}"
            )
        return values

    def add(self, key: SupportsIndex, /) -> bool:
        """Add one integer. Return True if it was absent. Raises ValueError if it is out of the range."""
        if (place := self._place(key)) is None:
            raise self._out_of_range()
        return self._set_one(place)

    def __contains__(self, key: SupportsIndex, /) -> bool:
        place = self._place(key)
        return place is not None and self._is_set(place)

    def discard(self, key: SupportsIndex, /) -> bool:
        """Remove one integer. Return False if it was absent."""
        place = self._place(key)
        return place is not None and self._clear_one(place)

    def add_many(self, values: Integers) -> Mask:
        """Add all integers. Return a mask, shape (n,): True for each integer that was absent.

        Raises ValueError, and adds nothing, if one of them is out of the range.
        """
        values = self.digests(values)
        if not self._are_within(values):
            raise self._out_of_range()
        return self._set_all(self._places(values), len(values))

    def add_absent(self, values: Integers) -> Mask:
        """Do the same as `add_many`: a set keeps no copies."""
        return self.add_many(values)

    def contains_many(self, values: Integers) -> Mask:
        """Return a mask, shape (n,): True for each integer that is present."""
        return self._of_those_within(values, self._look_up)

    def remove_many(self, values: Integers) -> Mask:
        """Remove all integers. Return a mask, shape (n,): True for each integer that was present."""
        return self._of_those_within(values, self._clear_all)

    def __ior__(self, other: Self) -> Self:
        check_alike("union", self, other, "range")
        self._take_in(other._words)
        return self

    def __iand__(self, other: Self) -> Self:
        """Keep what both hold. Raises ConfigError if the two filters do not fit together."""
        check_alike("intersection", self, other, "range")
        self._keep(other._words)
        return self

    def header(self) -> dict[str, Any]:
        """Return the kind, the range, the capacity, and the default hash, since every header names a hash."""
        return {
            "kind": self.kind,
            "capacity": self._capacity,
            "error_rate": 0.0,
            "hash": MURMUR3.name,
            "hash_check": MURMUR3.check,
            "range": [self._first, self._last],
        }

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash = MURMUR3
    ) -> Self:
        """Restore the filter that gave these parts, over these very buffers.

        Raises ValueError if the parts contradict one another.
        """
        restored = cls.__new__(cls)
        restored._first, restored._last = _bounds(header.get("range"))
        size = restored._last - restored._first + 1
        restored._capacity = _part_of(size, header.get("capacity"))
        named = (header.get("error_rate"), header.get("hash"), header.get("hash_check"))
        if named != (0.0, MURMUR3.name, MURMUR3.check) or hash_ != MURMUR3:
            raise ValueError(
                "a bitmap with a range must have the error rate 0 and the default hash"
            )
        restored._stand_on(size, buffers)
        return restored

    def _fitted(self, keys: Sequence[object], otherwise: Integers) -> Integers:
        """Return `keys` in a dtype that holds the range, or `otherwise` if they are not all integers.

        numpy makes floats of an empty list, and of a list of integers around 2^63. Integers out of the range become one
        that is, in this dtype: the range is too narrow to leave none.
        """
        if not all(isinstance(key, int) for key in keys):
            return otherwise
        is_signed = self._last < 1 << 63
        outside = self._last + 1 if self._last + 1 < 1 << 63 else self._first - 1
        within = [
            key if self._first <= key <= self._last else outside
            for key in cast("Sequence[int]", keys)
        ]
        return np.array(within, dtype=np.int64 if is_signed else np.uint64)

    def _are_within(self, values: Integers) -> bool:
        return not len(values) or (
            self._first <= int(values.min()) and int(values.max()) <= self._last
        )

    def _of_those_within(
        self,
        values: Integers,
        answer: Callable[[Iterator[tuple[BitPositions, slice]], int], Mask],
    ) -> Mask:
        """Return what `answer` says of the positions of `values`; False for those that are out of the range."""
        values = self.digests(values)
        if self._are_within(values):
            return answer(self._places(values), len(values))
        within = (values >= self._first) & (values <= self._last)
        answers = np.zeros(len(values), dtype=np.bool_)
        answers[within] = answer(self._places(values[within]), int(np.count_nonzero(within)))
        return answers

    def _places(self, values: Integers) -> Iterator[tuple[BitPositions, slice]]:
        """Yield the positions of the bits of `values`, which are in the range, in slices, each with its rows."""
        first = np.uint64(self._first % (1 << 64))
        for start in range(0, len(values), ROWS_A_CALL):
            rows = slice(start, start + ROWS_A_CALL)
            # The difference is modulo 2^64, so it is right for negative integers, too.
            yield values[rows].astype(np.uint64) - first, rows

    def _place(self, key: SupportsIndex) -> int | None:
        """Return the position of the bit of one integer; None if that is out of the range."""
        if isinstance(key, bool) or not hasattr(key, "__index__"):
            raise _no_integer(key)
        value = operator.index(key)
        return value - self._first if self._first <= value <= self._last else None

    def _out_of_range(self) -> ValueError:
        return ValueError(
            f"a key is out of filter.range, {self._first} to {self._last}; nothing was done"
        )


def _no_integer(key: object) -> TypeError:
    """TypeError, which names the type of `key` and not the key."""
    remedy = "give int(key)" if isinstance(key, bool) else "give integers"
    return TypeError(f"with filter.range, keys are integers, and one is {named(key)}; {remedy}")


def _bounds(given: object) -> tuple[int, int]:
    """Return the bounds that `given` states. Raises ValueError if it states none."""
    match given:
        case [int(first), int(last)] if LOWEST <= first <= last <= HIGHEST:
            if last - first < TABLE_BITS_MAX:
                return first, last
    raise ValueError(
        f"range {given!r} is not two integers [a, b], {LOWEST} <= a <= b <= {HIGHEST}, at most {TABLE_BITS_MAX} apart"
    )


def _part_of(size: int, capacity: object) -> int:
    if type(capacity) is not int or not 1 <= capacity <= size:
        raise ValueError(f"capacity {capacity!r} is not an integer from 1 to the range's {size}")
    return capacity
