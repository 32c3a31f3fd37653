"""Bitmap for integers of a declared range: one bit for each that there could be. No hash, no error.

So it is an exact set, whose members can be taken back. It does what the Protocols say, but with integers in place of
keys and digests, as its types tell.
"""

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Filter, Mask
from streamdedup.filters.bitmap.bit_table import BitTable, Places
from streamdedup.filters.keyed import ROWS_A_CALL, described, same
from streamdedup.filters.sizing import TABLE_BITS_MAX
from streamdedup.keys.hashing import MURMUR3, Hash

LOWEST, HIGHEST = -(1 << 63), (1 << 64) - 1  # what arrays of integers can hold

Integers = npt.NDArray[np.integer[Any]]


class DirectBitmap(BitTable):
    """An exact set of integers from a to b, both included, `range` = (a, b): one bit for each that there could be.

    Its methods take integers; those of many take arrays of shape (n,), of any integer dtype. An integer out of the
    range raises ValueError, and of an array with one nothing is done. `capacity` is the range's size unless given.
    """

    only_sets_bits: ClassVar[bool] = False
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
        return described(cast("Filter", self), self.kind)

    @property
    def hash(self) -> Hash:
        """The default hash: a filter names one, but nothing is hashed here."""
        return MURMUR3

    @property
    def layout(self) -> int:
        """0: the table changes by additions and removals only."""
        return 0

    @property
    def range(self) -> tuple[int, int]:
        """The first and the last integer that there is a bit for."""
        return self._first, self._last

    @property
    def capacity(self) -> int:
        """How many integers are meant to be in; at most the size of the range."""
        return self._capacity

    @property
    def error_rate(self) -> float:
        """0: it never errs."""
        return 0.0

    @property
    def error_rate_now(self) -> float:
        """0: it never errs."""
        return 0.0

    def expected_error(self, keys: int) -> float:  # noqa: ARG002 - the Protocol's argument
        """0: it never errs."""
        return 0.0

    def digests(self, keys: Any) -> Integers:  # noqa: ANN401 - whatever numpy makes an array of
        """The integers `keys`, a sequence or an array, as an array of shape (n,): nothing is hashed.

        Raises TypeError where they are not integers, ValueError where one is out of the range.
        """
        values = np.asarray(keys)
        if values.dtype.kind not in "iu" and isinstance(keys, list | tuple):
            values = self._fitted(keys, values)
        if values.dtype.kind not in "iu" or values.ndim != 1:
            raise TypeError(
                f"with filter.range, keys are integers, shape (n,), not {values.dtype}, shape {values.shape}"
            )
        if not len(values):
            return values
        if int(values.min()) < self._first or int(values.max()) > self._last:
            raise self._out_of_range()
        return values

    def add(self, key: SupportsIndex) -> bool:
        """Add one integer; True where it was not there."""
        return self._set_one(self._place(key))

    def __contains__(self, key: SupportsIndex) -> bool:
        return self._is_set(self._place(key))

    def discard(self, key: SupportsIndex) -> bool:
        """Take one integer out; False where it was not there."""
        return self._clear_one(self._place(key))

    def add_many(self, values: Integers) -> Mask:
        """Add all; True, shape (n,), where it was not there."""
        return self._set_all(self._places(values), len(values))

    def add_absent(self, values: Integers) -> Mask:
        """As `add_many`: no copies are kept."""
        return self.add_many(values)

    def contains_many(self, values: Integers) -> Mask:
        """True, shape (n,), where it is present."""
        return self._look_up(self._places(values), len(values))

    def remove_many(self, values: Integers) -> Mask:
        """Take all out; True, shape (n,), where it was there."""
        return self._clear_all(self._places(values), len(values))

    def __ior__(self, other: Self) -> Self:
        same(self, other, "range")
        self._take_in(other._words)
        return self

    def header(self) -> dict[str, Any]:
        """Kind, range and capacity, with the hash that every header names."""
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
        """The filter that gave these parts, over these very buffers; ValueError where they contradict one another."""
        restored = cls.__new__(cls)
        restored._first, restored._last = _bounds(header.get("range"))
        size = restored._last - restored._first + 1
        restored._capacity = _part_of(size, header.get("capacity"))
        named = (header.get("error_rate"), header.get("hash"), header.get("hash_check"))
        if named != (0.0, MURMUR3.name, MURMUR3.check) or hash_ != MURMUR3:
            raise ValueError("a bitmap of a range has no error and no hash but the default")
        restored._stand_on(size, buffers)
        return restored

    def _fitted(self, keys: Sequence[object], otherwise: Integers) -> Integers:
        """`keys` in a dtype that holds the range: numpy makes floats of an empty list, and of integers around 2^63."""
        if not all(isinstance(key, int) for key in keys):
            return otherwise
        try:
            return np.array(keys, dtype=np.int64 if self._last < 1 << 63 else np.uint64)
        except OverflowError:
            raise self._out_of_range() from None

    def _places(self, values: Integers) -> Iterator[tuple[Places, slice]]:
        """Where the bits of `values` stand, a slice at a time, each with its rows; errors as `digests`, before any."""
        values = self.digests(values)
        first = np.uint64(self._first % (1 << 64))
        for start in range(0, len(values), ROWS_A_CALL):
            rows = slice(start, start + ROWS_A_CALL)
            yield values[rows].astype(np.uint64) - first, rows  # modulo 2^64, so negative ones, too

    def _place(self, key: SupportsIndex) -> int:
        value = operator.index(key)
        if not self._first <= value <= self._last:
            raise self._out_of_range()
        return value - self._first

    def _out_of_range(self) -> ValueError:
        return ValueError(
            f"a key is out of filter.range, {self._first} to {self._last}; nothing was done"
        )


def _bounds(given: object) -> tuple[int, int]:
    """The bounds that `given` states; ValueError where it states none."""
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
