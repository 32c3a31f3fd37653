"""What filters can do. A filter is a set of digests that may say "present" wrongly, never "absent" wrongly.

One Protocol for what all can do, one for each further ability. Filters do no I/O, read no clock and hold no locks.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from streamdedup.keys.hashing import Digests, Hash

Key = str | bytes
Mask = npt.NDArray[np.bool_]
Times = npt.NDArray[np.int64]


@runtime_checkable
class Parts(Protocol):
    """What is saved of a filter."""

    def header(self) -> dict[str, Any]:
        """All but the table, as plain JSON values."""

    def buffers(self) -> list[memoryview]:
        """The table, as contiguous bytes."""


@runtime_checkable
class Filter(Protocol):
    """A set of digests of shape (n, 2), dtype uint64, made by `hash`."""

    kind: ClassVar[str]

    @property
    def only_sets_bits(self) -> bool:
        """Whether additions change nothing but bits from 0 to 1: then the table may be copied while they go on."""

    @property
    def layout(self) -> int:
        """Grows when the table changes otherwise than by additions: a copy that spans such a moment is void."""

    @property
    def hash(self) -> Hash:
        """What makes digests of keys; for life."""

    @property
    def capacity(self) -> int:
        """The number of keys up to which `error_rate` holds."""

    @property
    def error_rate(self) -> float:
        """The probability, at most, that a key which was never added is reported present, at capacity."""

    @property
    def error_rate_now(self) -> float:
        """The same at the present fill, as what is set in the table says."""

    @property
    def fill_ratio(self) -> float:
        """The share of the table that is in use, 0 to 1."""

    @property
    def size_bytes(self) -> int:
        """The memory of the table, in bytes."""

    def __len__(self) -> int:
        """The additions that returned True, less the removals that left their key absent; after a union an estimate."""

    def expected_error(self, keys: int) -> float:
        """The error rate that theory gives for this table with `keys` keys in it."""

    def digests(self, keys: Any) -> Digests:  # noqa: ANN401 - see `Hash.digests`
        """The digests of `keys`: a sequence of `str` or `bytes`, a pyarrow array, or (buffer, offsets)."""

    def __contains__(self, key: Key) -> bool:
        """Whether one key is present; a `str` is its UTF-8."""

    def contains_many(self, digests: Digests) -> Mask:
        """True, shape (n,), where present."""

    def header(self) -> dict[str, Any]:
        """All but the table, as plain JSON values."""

    def buffers(self) -> list[memoryview]:
        """The live table, as contiguous bytes."""

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash
    ) -> Self:
        """The filter that gave these parts, over these very buffers, which may be read-only.

        Raises ValueError where they do not fit together, or `hash_` is not the one that made the digests.
        """


@runtime_checkable
class Addable(Filter, Protocol):
    """Takes keys one after the other."""

    def add(self, key: Key) -> bool:
        """Add one key; True where it was not there."""

    def add_many(self, digests: Digests) -> Mask:
        """Add all; True, shape (n,), where it was not there. Equal digests see one another in order."""


@runtime_checkable
class Removable(Addable, Protocol):
    """A multiset: additions are counted up to `copies_max`, and a removal takes one back.

    Where that is 1, as for `exact` and a `bitmap` with a `range`, it is a set: one removal takes a key out, however
    often it was added. Remove only what was added: the removal of a key that merely looks present takes that of another
    one, but for a set of integers, which is never wrong.
    """

    copies_max: ClassVar[int]
    """How many additions of one key are counted; of those beyond, nothing is kept but that they were."""
    sticky: ClassVar[bool]
    """Whether a key that was counted to `copies_max` can never be taken back; else it goes with that many removals."""

    def add_absent(self, digests: Digests) -> Mask:
        """Add what is not there, each once; True, shape (n,), where so."""

    def discard(self, key: Key) -> bool:
        """Take one addition of `key` back; False where it was not there.

        Of a `sticky` kind, a key that was counted to `copies_max` stays, though this says True.
        """

    def remove_many(self, digests: Digests) -> Mask:
        """Take one addition of each back; True, shape (n,), where it was there."""


@runtime_checkable
class Unionable(Addable, Protocol):
    """Takes in all that another filter of the same kind, sizes and hash holds."""

    def __ior__(self, other: Self) -> Self:
        """Raises ConfigError where the two do not fit together."""


@runtime_checkable
class Growing(Addable, Protocol):
    """Takes more memory as keys come, in stages; `capacity` is what it may come to hold."""

    @property
    def stages(self) -> str:
        """What it is, for people: "bloom in 2 stages"."""

    @property
    def size_bytes_max(self) -> int:
        """The memory of all that it may become, in bytes."""

    def permit(self, max_size: int | str | None) -> None:
        """Another bound of its size in bytes, from now on; what is there stays."""

    def grows_within(self, rows: int) -> bool:
        """Whether `rows` more keys may need a stage that is not there yet."""

    def grow(self) -> None:
        """Make the next stage now, its memory in place, for `add_many` to use when it is due. Blocking.

        For a thread, while others add. Without it `add_many` makes a stage when it is due. Nothing happens where the
        filter may not grow further.
        """


@runtime_checkable
class Static(Filter, Protocol):
    """Built once, from all of its keys."""

    @classmethod
    def from_digests(cls, digests: Digests, error_rate: float, hash_: Hash) -> Self:
        """The filter of these digests; equal ones count once."""
