"""What all kinds share: one key at a time by the filter's hash, slices of a batch, and the header that is saved."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, Self, cast

import numpy as np

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Filter, Key, Mask, Parts
from streamdedup.filters.memory import Counts
from streamdedup.filters.sizing import beside
from streamdedup.kernel import Words
from streamdedup.keys.encoding import named
from streamdedup.keys.hashing import MURMUR3, Digests, Hash, checked
from streamdedup.units import sized

ROWS_A_CALL = 1 << 15  # of a kernel: it takes less than 10 ms if a key takes less than 300 ns
PROBES_A_CALL = 1 << 17  # the same limit, if each probe waits for memory twice
CAPACITY_MAX = 10**13
# The fields of a header that were asked for; the others follow from them.
ASKED = ("kind", "hash", "normalize", "multiset", "range", "capacity", "error_rate", "probe")
KEYS = 0  # the index of the number of keys in a filter's `_counts`


class DigestFilter:
    """A filter with `hash`, for `capacity` keys at `error_rate`. Subclasses give `_add_one` and `_contains_one`.

    A subclass that has a table and counts keeps them in `_words` and `_counts`. The first count is the number of keys.
    """

    kind: ClassVar[str]
    only_sets_bits: bool = False
    multiset: bool = False
    copies_max: ClassVar[int] = 1
    _words: Words
    _counts: Counts

    def __init__(self, capacity: int, error_rate: float, hash_: Hash) -> None:
        if type(capacity) is not int or not 1 <= capacity <= CAPACITY_MAX:
            raise ConfigError(
                f"filter.capacity is {capacity!r}; it must be an integer from 1 to {CAPACITY_MAX}"
            )
        if not is_rate(error_rate):
            raise ConfigError(
                f"filter.error_rate is {error_rate!r}; it must be a number above 0 and below 1"
            )
        self._capacity, self._error_rate, self._hash = capacity, float(error_rate), hash_

    @property
    def layout(self) -> int:
        """0, since the table changes by additions only."""
        return 0

    @property
    def strained(self) -> bool:
        """False: no key takes longer than others."""
        return False

    @property
    def overfull(self) -> bool:
        """False: the table takes any number of keys, with more errors."""
        return False

    @property
    def hash(self) -> Hash:
        """The hash that makes digests of keys."""
        return self._hash

    @property
    def capacity(self) -> int:
        """The number of keys up to which `error_rate` holds."""
        return self._capacity

    @property
    def error_rate(self) -> float:
        """The error rate at capacity."""
        return self._error_rate

    @property
    def size_bytes(self) -> int:
        """The memory of the table, in bytes."""
        return int(self._words.nbytes)

    def __len__(self) -> int:
        return int(self._counts[KEYS])

    def digests(self, keys: Any) -> Digests:  # noqa: ANN401 - see `Hash.digests`
        """The digests of `keys`, shape (n, 2)."""
        return self._hash.digests(keys)

    def add(self, key: Key, /) -> bool:
        """Add one key; return True if it was absent."""
        a, b = self._hash.signed(key)
        return self._add_one(a, b)

    def __repr__(self) -> str:
        return describe(cast("Filter", self), self.kind)

    def __contains__(self, key: Key, /) -> bool:
        """Whether `key` is present."""
        a, b = self._hash.signed(key)
        return self._contains_one(a, b)

    def _add_one(self, a: int, b: int) -> bool:
        raise NotImplementedError

    def _contains_one(self, a: int, b: int) -> bool:
        raise NotImplementedError

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash = MURMUR3
    ) -> Self:
        """The filter that was saved as these parts, over these very buffers.

        Raises ValueError if the parts contradict one another, or if `hash_` is not the hash that made the digests.
        """
        restored = cls.__new__(cls)
        DigestFilter.__init__(restored, *from_header(header, hash_), hash_)
        restored.multiset = header.get("multiset", False)
        if type(restored.multiset) is not bool or (restored.multiset and cls.copies_max == 1):
            raise ValueError(f"multiset {restored.multiset!r} is not for kind {cls.kind}")
        restored._restore(header, buffers)
        return restored

    def _restore(self, header: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        """Take what the header states of this kind, and stand on the buffers; ValueError if they do not fit."""
        raise NotImplementedError

    def _header(self, **own: object) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "capacity": self._capacity,
            "error_rate": self._error_rate,
            "hash": self._hash.name,
            "hash_check": self._hash.check,
            **self._hash.facts,
            **({"multiset": True} if self.multiset else {}),
            **own,
        }


def describe(filter_: Filter, name: str) -> str:
    """A description of the filter for people. It contains no key."""
    return (
        f"<streamdedup {name}: {len(filter_):,} of {filter_.capacity:,} keys,"
        f" {sized(filter_.size_bytes)}, error {filter_.error_rate:g}>"
    )


def is_rate(given: object) -> bool:
    """Whether `given` is a number above 0 and below 1."""
    return isinstance(given, Real) and 0 < cast("float", given) < 1


def from_header(header: Mapping[str, Any], hash_: Hash) -> tuple[int, float]:
    """The capacity and the error rate of a header, checked before anything is allocated for them.

    Raises ValueError if one of them is wrong, or if the header was made with another hash than `hash_`.
    """
    capacity, error_rate = header.get("capacity"), header.get("error_rate")
    if type(capacity) is not int or not 1 <= capacity <= CAPACITY_MAX:
        raise ValueError(f"capacity {capacity!r} is not an integer from 1 to {CAPACITY_MAX}")
    if not isinstance(error_rate, float) or not 0 < error_rate < 1:
        raise ValueError(f"error_rate {error_rate!r} is not between 0 and 1")
    if (header.get("hash"), header.get("hash_check")) != (hash_.name, hash_.check):
        raise ValueError(f"another hash than the given {hash_.name} made its digests")
    return capacity, error_rate


def number(header: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """The integer `name` of a header. Raises ValueError if it is missing or out of range."""
    value = header.get(name)
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} {value!r} is not an integer from {low} to {high}")
    return value


def sizes_from_header(
    header: Mapping[str, Any], size: Callable[[int, float], tuple[int, int]], **limits: int
) -> tuple[int, int]:
    """Two sizes of a header, each from 1 to its limit, that `size` computes from its capacity and error rate.

    The sizes of a slightly different error rate are accepted as well, because another platform's logarithm may round
    differently. Raises ValueError if the sizes do not fit.
    """
    first, second = (number(header, name, 1, most) for name, most in limits.items())
    (least, *some), (most, *others) = (
        size(header["capacity"], rate) for rate in beside(header["error_rate"])
    )
    if not least <= first <= most or second not in (*some, *others):
        names = " and ".join(limits)
        raise ValueError(
            f"{names} {first} and {second} do not follow from capacity and error rate; {least} and {some[0]} would"
        )
    return first, second


def slices(digests: Digests, rows: int = ROWS_A_CALL) -> Iterator[tuple[Digests, slice]]:
    """Check `digests`; yield slices of at most `rows`, each with its position, so that no kernel call takes long."""
    digests = checked(digests)
    for start in range(0, len(digests), rows):
        part = slice(start, min(start + rows, len(digests)))
        yield digests[part], part


def ask_in_slices(
    digests: Digests, ask: Callable[[Digests, Mask], object], rows: int = ROWS_A_CALL
) -> Mask:
    """A kernel's answers, shape (n,), about `digests` (n, 2), which it gets in slices.

    `ask` takes one slice, and the part of the answers that it must fill in.
    """
    answers = empty_mask(digests)
    for part, where in slices(digests, rows):
        ask(part, answers[where])
    return answers


def check_alike(joined: str, one: Parts, other: object, *sizes: str) -> None:
    """Raise ConfigError unless two filters agree in kind, hash and `sizes`; TypeError if `other` is not a filter.

    The message names what is to be `joined`, a union or an intersection, and an option that was asked for, if one
    differs; otherwise a size that followed from the options.
    """
    if not isinstance(other, Parts):
        article, of_keys = {
            "union": ("a", "add keys by f.update(keys)"),
            "intersection": ("an", "ask for each of yours: [key for key in keys if key in f]"),
        }[joined]
        raise TypeError(
            f"a filter has {article} {joined} with another filter, not with what is {named(other)}; {of_keys}"
        )
    mine, theirs = ({"multiset": False, **each.header()} for each in (one, other))
    due = ("kind", "hash", "hash_check", "normalize", "multiset", *sizes)
    if all(mine.get(name) == theirs.get(name) for name in due):
        return
    differing = [name for name in (*ASKED, *sizes) if mine.get(name) != theirs.get(name)]
    if not differing:
        raise ConfigError(f"the filters have no {joined}: hash_key differs; build both alike")
    difference = (
        f"{differing[0]} differs ({mine.get(differing[0])!r}, {theirs.get(differing[0])!r})"
    )
    raise ConfigError(f"the filters have no {joined}: {difference}; build both alike")


def one_row(a: int, b: int) -> Digests:
    """The digests (1, 2) of one digest, given as signed integers."""
    return np.array([[a, b]], dtype=np.int64).view(np.uint64)


def empty_mask(digests: Digests) -> Mask:
    """A mask of False for the answers about `digests`. Raises TypeError if these are not digests."""
    if not isinstance(digests, np.ndarray):  # else the error would only name a missing length
        checked(digests)
    return np.zeros(len(digests), dtype=np.bool_)
