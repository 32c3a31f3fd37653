"""What a filter can do. A filter is a set of digests that may report a key present wrongly, but never absent wrongly.

One Protocol states what all filters can do, and each further ability has a Protocol of its own. Filters do no I/O, read
no clock and hold no locks.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from streamdedup.keys import encoding
from streamdedup.keys.hashing import Digests, Hash

Key = encoding.Key
Mask = npt.NDArray[np.bool_]
Times = npt.NDArray[np.int64]


@runtime_checkable
class Parts(Protocol):
    """What is saved of a filter: its two parts, and the secret of its hash if that was drawn."""

    @property
    def hash(self) -> Hash:
        """The hash that makes digests of keys. It never changes."""

    def header(self) -> dict[str, Any]:
        """Everything except the table, as plain JSON values."""

    def buffers(self) -> list[memoryview]:
        """The table, as contiguous bytes."""


@runtime_checkable
class Filter(Protocol):
    """A set of digests of shape (n, 2), dtype uint64, made by `hash`."""

    kind: ClassVar[str]

    @property
    def only_sets_bits(self) -> bool:
        """Whether additions only change bits from 0 to 1. If so, the table may be copied while additions go on."""

    @property
    def layout(self) -> int:
        """A number that grows whenever the table changes by anything other than additions.

        A copy is void if this number changed while the copy was made.
        """

    @property
    def hash(self) -> Hash:
        """The hash that makes digests of keys. It never changes."""

    @property
    def capacity(self) -> int:
        """The number of keys up to which `error_rate` holds."""

    @property
    def error_rate(self) -> float:
        """The greatest probability, at capacity, that a key which was never added is reported present."""

    @property
    def error_rate_now(self) -> float:
        """The same probability at the present fill, computed from what is set in the table."""

    @property
    def fill_ratio(self) -> float:
        """The share of the table that is in use, from 0 to 1."""

    @property
    def size_bytes(self) -> int:
        """The memory of the table, in bytes."""

    @property
    def strained(self) -> bool:
        """Whether keys have taken so long that more of them are soon refused: somebody seems to choose them.

        Keys at random never get there. An addition beyond twice that raises ChosenKeysError.
        """

    @property
    def overfull(self) -> bool:
        """Whether the table is so far beyond its capacity that further keys take ever more memory, and time to move.

        It refuses none; a caller that must not wait adds none.
        """

    def __len__(self) -> int:
        """The additions that returned True, minus the removals that left their key absent.

        After a union it is an estimate.
        """

    def expected_error(self, keys: int) -> float:
        """The error rate that theory predicts for this table with `keys` keys in it."""

    def digests(self, keys: Any) -> Digests:  # noqa: ANN401 - see `Hash.digests`
        """The digests of `keys`: a sequence of keys, a pyarrow array, or (buffer, offsets)."""

    def __contains__(self, key: Key, /) -> bool:
        """Whether `key` is present. A `str` and its UTF-8 are one key; `keys.encoding` says what others are."""

    def contains_many(self, digests: Digests, /) -> Mask:
        """Whether each digest is present, shape (n,)."""

    def header(self) -> dict[str, Any]:
        """Everything except the table, as plain JSON values."""

    def buffers(self) -> list[memoryview]:
        """The table, as contiguous bytes: the live memory, not a copy."""

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash
    ) -> Self:
        """The filter that was saved as these parts, over these very buffers, which may be read-only.

        Raises ValueError if the parts do not fit together, or if `hash_` is not the hash that made the digests.
        """


@runtime_checkable
class Addable(Filter, Protocol):
    """A filter that takes keys one after the other."""

    def add(self, key: Key, /) -> bool:
        """Add one key; return True if it was absent."""

    def add_many(self, digests: Digests, /) -> Mask:
        """Add all of `digests` in order; return True, shape (n,), for each that was absent.

        If several of them are equal, the later ones find the first.
        """


@runtime_checkable
class Removable(Addable, Protocol):
    """A set from which keys can be taken; with `multiset`, one that counts how often each was added.

    Remove only keys whose addition returned True (of a multiset: keys that were added). The removal of a key that only
    looks present takes out another key. A set adds nothing for a key that looks present: its addition returns False,
    at most as often as `error_rate` says. Such a key is found until another one is removed, and may be absent then; of
    a multiset, it stays. Only a `bitmap` with a `range`, which is a set of integers, is never wrong.
    """

    multiset: bool
    """Whether the additions of a key are counted, up to `copies_max`, and each removal takes one back."""
    copies_max: ClassVar[int]
    """How many additions of one key a multiset counts. Further additions only mark that there were more."""
    sticky: ClassVar[bool]
    """Whether a key that was counted up to `copies_max` stays forever. If not, that many removals take it out."""

    def add_absent(self, digests: Digests, /) -> Mask:
        """Add each digest that is absent, once; return True, shape (n,), for each of those."""

    def discard(self, key: Key, /) -> bool:
        """Take `key` out, or one of its additions if this is a multiset; return False if it was absent.

        Keys whose addition returned False because they looked like this one may be absent afterwards, but in a
        multiset. If the kind is `sticky`, a multiset keeps a key that was counted up to `copies_max`, although this
        returns True.
        """

    def remove_many(self, digests: Digests, /) -> Mask:
        """Do what `discard` does with each digest; return True, shape (n,), for each that was present."""


@runtime_checkable
class Unionable(Addable, Protocol):
    """A filter that can take in all that another filter of the same kind, sizes and hash holds."""

    def __ior__(self, other: Self) -> Self:
        """Add all that `other` holds. Raises ConfigError if the two filters do not fit together."""


@runtime_checkable
class Growing(Addable, Protocol):
    """A filter that takes more memory, in stages, as keys come. `capacity` is the most keys it may come to hold."""

    @property
    def stages(self) -> str:
        """A description for people: "bloom in 2 stages"."""

    @property
    def size_bytes_max(self) -> int:
        """The memory, in bytes, of all the stages that the filter may come to have."""

    def permit(self, max_size: int | str | None) -> None:
        """Set another bound on the size, in bytes, from now on. Existing stages stay."""

    def grows_within(self, rows: int) -> bool:
        """Whether adding `rows` more keys may need a stage that does not exist yet."""

    def grow(self) -> None:
        """Make the next stage now, with its memory in place, so that `add_many` can use it when it is due. Blocking.

        Call it in a thread while other threads add. Without this call, `add_many` makes a stage when it is due. If the
        filter may not grow further, the call does nothing.
        """


@runtime_checkable
class Static(Filter, Protocol):
    """A filter that is built once, from all of its keys."""

    @classmethod
    def from_digests(cls, digests: Digests, error_rate: float, hash_: Hash) -> Self:
        """The filter of these digests. Equal digests count once."""
