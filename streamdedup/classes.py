"""The classes of a program's filters: what each kind is, how it is made, and what it can do.

They carry types and documentation, for people, editors and type checkers, and so import no numpy. `library` has the
code: the class of each filter is made there of one of these, which stands last, so none of the methods here is called.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import signature
from os import PathLike
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Required,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    get_overloads,
    overload,
)

from typing_extensions import override

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from streamdedup.filters.base import Key, Mask, Times
    from streamdedup.filters.memory import Counts
    from streamdedup.filters.window.clock import Clock, Marks
    from streamdedup.keys.hashing import Digests, Hash
    from streamdedup.keys.key_normalizer import KeyNormalizer
    from streamdedup.snapshot.streams import Readable, Writable

    Source: TypeAlias = str | PathLike[str] | Readable
    Target: TypeAlias = str | PathLike[str] | Writable

Count = int | str
"""A number of keys: an integer, or text such as "100M"."""
Batch = Any
"""What `digests` takes, or returns."""
OnFull = Literal["warn", "stop"]
HashName = Literal["murmur3", "siphash"]
Growable = Literal["blocked", "bloom", "counting", "cuckoo", "dlcbf", "dleft", "exact"]
K = TypeVar("K", bound=str)
NOTHING: Mapping[str, Any] = MappingProxyType({})
Span = int | str
"""A time in ms, or text such as "7d"."""


class Further(TypedDict, total=False):
    """The options of all kinds that are given by name alone. `build` says which kind takes which."""

    hash: HashName
    hash_key: bytes
    normalize: "str | KeyNormalizer | None"
    probe: Literal["standard", "double"]
    multiset: bool
    permutations: Literal["any", "published"]
    fingerprint_bytes: Literal[8, 16]
    load: float
    retention: Span | None
    generations: int
    late: Literal["pass", "drop"]
    refresh: bool
    max_jump: Span | None


class Grown(Further, total=False):
    """The same, of a filter that grows."""

    on_full: Required[Literal["grow"]]
    max_size: int | str | None


class Of(Further, Generic[K], total=False):
    """All options of a filter of kind `K`."""

    kind: Required[K]
    capacity: Required[Count]
    error_rate: float
    on_full: OnFull


class GrownOf(Grown, Generic[K], total=False):
    """All options of a filter of kind `K` that grows."""

    kind: Required[K]
    capacity: Required[Count]
    error_rate: float


class OfRange(TypedDict, total=False):
    """The options of a bitmap with a range."""

    kind: Required[Literal["bitmap"]]
    range: Required[Sequence[int]]
    capacity: Count
    on_full: OnFull


class OfKeys(TypedDict, total=False):
    """The options of a filter that is made of its keys."""

    kind: Required[Literal["fuse"]]
    keys: Required[Batch]
    error_rate: float
    hash: HashName
    hash_key: bytes
    normalize: "str | KeyNormalizer | None"


class Filter:
    """A set of keys in a few bits a key. It may find a key that was never added, but finds all that were.

    Threads may share it. It is no subclass of `set`, cannot list its keys, and is unhashable.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment] # as a set
    kind: ClassVar[str]
    """The name of its kind, as `build` takes it."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Refuse to be made: only kinds are."""
        raise TypeError(
            f"{cls.__name__} is what several kinds of filter can do; make one of them, such as"
            " streamdedup.Cuckoo(1_000_000)"
        )

    def __init_subclass__(cls, *, of_library: bool = False) -> None:
        if not of_library and cls.__module__ != __name__:
            raise TypeError(
                f"class {cls.__name__}: a filter has no subclasses, since its class is made for its methods in C; keep"
                " a filter as an attribute, as in self.seen = streamdedup.Bloom(1_000_000)"
            )
        made = get_overloads(vars(cls).get("__new__", object.__new__))
        if made:
            _, *taken = signature(made[0]).parameters.values()
            cls.__signature__ = signature(made[0]).replace(parameters=taken)  # type: ignore[attr-defined]

    @property
    def capacity(self) -> int:
        """The number of distinct keys up to which `error_rate` holds. Of a filter that grows, the most it may hold."""

    @property
    def error_rate(self) -> float:
        """The greatest probability, at capacity, that a key which was never added is found."""

    @property
    def error_rate_now(self) -> float:
        """The same probability with the keys that it has now."""

    @property
    def fill_ratio(self) -> float:
        """The share of the table that is in use, from 0 to 1."""

    @property
    def size_bytes(self) -> int:
        """The memory of the table, in bytes."""

    @property
    def hash(self) -> "Hash":
        """The hash that makes digests of keys."""

    @property
    def strained(self) -> bool:
        """Whether keys take so long that more of them are soon refused: somebody seems to choose them."""

    @property
    def overfull(self) -> bool:
        """Whether it is so far beyond its capacity that further keys take ever more memory, and time."""

    def expected_error(self, keys: int) -> float:
        """Return the error rate that theory predicts for this table with `keys` keys in it."""

    def __len__(self) -> int:
        """Return how many keys it has: of those added, the ones that were absent. After a union it is an estimate."""

    def __contains__(self, key: "Key") -> bool:
        """Return whether `key`, such as a `str` or `bytes`, was added.

        It is wrongly True with a probability of `error_rate`, up to the capacity. It costs about as much as in a `set`.
        """

    def digests(self, keys: Batch) -> Any:
        """Return the digests of `keys`, shape (n, 2), dtype uint64: 16 bytes a key, for filters with the same hash.

        `keys` is a sequence of keys; a pyarrow column of text or bytes; or a tuple of a buffer and n + 1 ascending
        offsets into it. TypeError for anything else; ValueError for a null, or a key that has no UTF-8.
        """

    def contains_many(self, keys: Batch, /) -> "Mask":
        """Return whether each of `keys`, such as a list of `str`, or digests, is present: shape (n,), bool.

        A key costs a tenth of `in`, if they are many.
        """

    def copy(self) -> Self:
        """Return a filter of its own with the same content, options and secret. It costs a copy of the table.

        A copy of a filter that is mapped from a file can change.
        """

    def save(self, target: "Target") -> None:
        """Put the filter at a path, or into a binary file object, as `streamdedup.save` does."""

    def to_bytes(self) -> bytes:
        """Return what a file of the filter would hold. It costs as much as a copy of the table, twice for a moment."""

    @classmethod
    def load(
        cls, source: "Source", *, mmap: bool = False, hash_key: bytes = b"", verify: bool = True
    ) -> Self:
        """Return the filter that was saved there, as `streamdedup.load` does. ConfigError: it is of another class."""
        from streamdedup import library

        loaded = library.load(source, mmap=mmap, hash_key=hash_key, verify=verify)
        return library.of_class(cls, loaded)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, *, hash_key: bytes = b"") -> Self:
        """Return the filter that these bytes are, of `to_bytes` or of a file; it keeps none of them.

        SnapshotError: they are damaged. ConfigError: `hash_key` is wrong, or the filter is of another class.
        """
        from streamdedup import library

        return library.of_class(cls, library.from_bytes(data, hash_key))

    if TYPE_CHECKING:  # what this package, too, asks of a filter

        @property
        def only_sets_bits(self) -> bool: ...
        @property
        def layout(self) -> int: ...
        def header(self) -> dict[str, Any]: ...
        def buffers(self) -> list[memoryview]: ...
        @classmethod
        def from_parts(
            cls, header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash
        ) -> Self: ...


class Addable(Filter):
    """A filter that takes keys one after the other."""

    __slots__ = ()

    def add(self, key: "Key", /) -> bool:
        """Add one key, such as a `str` or `bytes`. Return True if it was absent; a known key changes nothing.

        It costs about as much as in a `set`; docs/library.md has the exceptions.

        FilterFullError, with `on_full` "stop": the filter has as many keys as its capacity, and this one is new.
        """

    def add_many(self, keys: Batch, /) -> "Mask":
        """Add `keys`, such as a list of `str`, or digests, in order. Return True, shape (n,), for each that was absent.

        A key costs a tenth of `add`, if they are many. FilterFullError, with `on_full` "stop": more are new than fit;
        nothing was added.
        """

    def update(self, *iterables: "Iterable[Key]") -> None:
        """Add all keys of `iterables`, as `set.update` does, in batches of 4,096; digests and a pyarrow column are one.

        Keys before one that is refused are added, then its error is raised. FilterFullError: a batch has more new keys
        than fit; those before it were added. Other threads have their turn between two batches.
        """

    def clear(self) -> None:
        """Forget all keys: the filter is as it was built, with the same options and secret. It costs as much.

        A filter that has grown gives its memory back. ConfigError: it is a read-only view of a file.
        """


class Removable(Addable):
    """A filter from which keys can be taken.

    Take out only keys whose `add` returned True: the removal of a key that only looks present takes out another key.
    """

    __slots__ = ()
    multiset: bool
    """Whether the additions of a key are counted, up to `copies_max`, and each removal takes one back."""
    copies_max: ClassVar[int]
    """How many additions of one key a multiset counts."""
    sticky: ClassVar[bool]
    """Whether a key that was counted up to `copies_max` stays forever."""

    def discard(self, key: "Key", /) -> bool:
        """Take `key` out, or one of its additions if this is a multiset. Return False if it was absent.

        It costs about as much as in a `set`.
        """

    def remove_many(self, keys: Batch, /) -> "Mask":
        """Do what `discard` does with each of `keys`, or digests. Return True, shape (n,), for each that was present.

        A key costs a tenth of `discard`, if they are many.
        """

    def add_absent(self, keys: Batch, /) -> "Mask":
        """Add each of `keys`, or digests, that is absent, once. Return True, shape (n,), for each of those."""


class Unionable(Addable):
    """A filter that can take in all that another of the same kind, sizes and hash holds."""

    __slots__ = ()

    def __or__(self, other: Self) -> Self:
        """Return a new filter with the keys of both. ConfigError: they were not built alike."""

    def __ior__(self, other: Self) -> Self:
        """Add all that `other` holds. ConfigError: they were not built alike."""

    def union(self, *others: Self) -> Self:
        """Return a new filter with the keys of all. ConfigError: they were not built alike."""


class Growing(Addable):
    """A filter that takes more memory, in stages, as keys come: what `on_full="grow"` makes of any kind.

    It stays within its `error_rate`, and only adds. Beyond `max_size`, its capacity, it warns and goes on.
    """

    __slots__ = ()

    @property
    def stages(self) -> str:
        """A description for people: "bloom in 2 stages"."""

    @property
    def size_bytes_max(self) -> int:
        """The memory, in bytes, of all the stages that it may come to have."""

    def permit(self, max_size: int | str | None) -> None:
        """Set another bound on the size, in bytes or as text ("4GiB"), from now on. Stages that it has stay."""

    def grows_within(self, rows: int) -> bool:
        """Return whether adding `rows` more keys may need a stage that does not exist yet."""

    def grow(self) -> None:
        """Make the next stage now, so that `add` and `add_many` need not. Blocking; it costs the memory of the stage.

        Call it in a thread while other threads add. If the filter may not grow further, it does nothing.
        """


class Bitmap(Unionable):
    """One bit a position: the fastest to ask, at ten times the memory of a `Bloom` filter, which it is with one hash.

    With a `range`, [a, b], it is a `DirectBitmap` of the integers from a to b, which makes no errors.

    `probe`: "standard", or "double", which errs more if the filter is small.
    """

    __slots__ = ()
    kind: ClassVar[str] = "bitmap"

    @overload
    def __new__(
        cls,
        capacity: Count,
        error_rate: float = 1e-2,
        *,
        range: None = None,
        probe: Literal["standard", "double"] = "standard",
        on_full: OnFull = "warn",
        hash: HashName = "murmur3",
        hash_key: bytes = b"",
        normalize: "str | KeyNormalizer | None" = None,
    ) -> Self: ...
    @overload
    def __new__(
        cls,
        capacity: Count | None = None,
        *,
        range: Sequence[int],
        on_full: OnFull = "warn",
    ) -> "DirectBitmap": ...
    def __new__(cls, *given: Any, **options: Any) -> Any:
        """Make an empty filter."""
        return _built(cls, given, options)


class DirectBitmap(Bitmap, Removable):
    """A `Bitmap` with a `range`: a set of integers, each with a bit of its own, which is never wrong."""

    __slots__ = ()

    @property
    def range(self) -> tuple[int, int]:
        """The first and the last integer of the range."""

    def __and__(self, other: Self) -> Self:
        """Return a new filter with the keys that are in both. ConfigError: they were not built alike."""

    def __iand__(self, other: Self) -> Self:
        """Keep only what `other` holds, too. ConfigError: they were not built alike."""

    def intersection(self, *others: Self) -> Self:
        """Return a new filter with the keys that are in all. ConfigError: they were not built alike."""


class BlockedBloom(Unionable):
    """A Bloom filter within one line of memory a key: the most keys a second.

    Take it for speed. It costs 3 % more bits than `Bloom` at 1 %, 35 % at one in a million, and twice at 1e-9, which is
    its lowest error rate.
    """

    __slots__ = ()
    kind: ClassVar[str] = "blocked"

    @overload
    def __new__(
        cls,
        capacity: Count,
        error_rate: float = 1e-6,
        *,
        on_full: OnFull = "warn",
        hash: HashName = "murmur3",
        hash_key: bytes = b"",
        normalize: "str | KeyNormalizer | None" = None,
    ) -> Self: ...
    @overload
    def __new__(  # type: ignore[misc] # of another class
        cls, capacity: Count, error_rate: float = 1e-6, **options: Unpack[Grown]
    ) -> Growing: ...
    def __new__(cls, *given: Any, **options: Any) -> Any:
        """Make an empty filter."""
        return _built(cls, given, options)


class Bloom(Unionable):
    """The filter of Bloom: the least memory at 1 % and above, with unions.

    It costs 1.44 log2(1/p) bits a key for an error rate of p; each key touches k = log2(1/p) lines of memory.

    `probe`: "standard", or "double", the h1 + i * h2 of the literature, which errs more if the filter is small.
    """

    __slots__ = ()
    kind: ClassVar[str] = "bloom"

    @overload
    def __new__(
        cls,
        capacity: Count,
        error_rate: float = 1e-6,
        *,
        probe: Literal["standard", "double"] = "standard",
        on_full: OnFull = "warn",
        hash: HashName = "murmur3",
        hash_key: bytes = b"",
        normalize: "str | KeyNormalizer | None" = None,
    ) -> Self: ...
    @overload
    def __new__(  # type: ignore[misc] # of another class
        cls, capacity: Count, error_rate: float = 1e-6, **options: Unpack[Grown]
    ) -> Growing: ...
    def __new__(cls, *given: Any, **options: Any) -> Any:
        """Make an empty filter."""
        return _built(cls, given, options)


class Counting(Unionable, Removable):
    """A Bloom filter of counters: keys can be taken out, and there are unions.

    It costs four times the bits of `Bloom`.

    `probe` as for `Bloom`. `multiset`: each addition of a key counts, up to 15, and `discard` takes one back.
    """

    __slots__ = ()
    kind: ClassVar[str] = "counting"

    @overload
    def __new__(
        cls,
        capacity: Count,
        error_rate: float = 1e-6,
        *,
        probe: Literal["standard", "double"] = "standard",
        multiset: bool = False,
        on_full: OnFull = "warn",
        hash: HashName = "murmur3",
        hash_key: bytes = b"",
        normalize: "str | KeyNormalizer | None" = None,
    ) -> Self: ...
    @overload
    def __new__(  # type: ignore[misc] # of another class
        cls, capacity: Count, error_rate: float = 1e-6, **options: Unpack[Grown]
    ) -> Growing: ...
    def __new__(cls, *given: Any, **options: Any) -> Any:
        """Make an empty filter."""
        return _built(cls, given, options)


class Cuckoo(Removable):
    """Fingerprints, each in one of two buckets: small and fast, and keys can be taken out. The first choice.

    It costs log2(7.6/p) bits a key, rounded up, at 95 % of the cells, for an error rate of p; each key touches two
    lines of memory. Additions slow down as it fills up.

    `multiset`: each addition of a key counts, and `discard` takes one back.
    """

    __slots__ = ()
    kind: ClassVar[str] = "cuckoo"

    @overload
    def __new__(
        cls,
        capacity: Count,
        error_rate: float = 1e-6,
        *,
        multiset: bool = False,
        on_full: OnFull = "warn",
        hash: HashName = "murmur3",
        hash_key: bytes = b"",
        normalize: "str | KeyNormalizer | None" = None,
    ) -> Self: ...
    @overload
    def __new__(  # type: ignore[misc] # of another class
        cls, capacity: Count, error_rate: float = 1e-6, **options: Unpack[Grown]
    ) -> Growing: ...
    def __new__(cls, *given: Any, **options: Any) -> Any:
        """Make an empty filter."""
        return _built(cls, given, options)


class DLeft(Removable):
    """Fingerprints in the emptiest of four buckets: keys can be taken out, and each addition is as quick as the last.

    It costs 1.5 times the bits of `Cuckoo` at 1 %.

    `multiset`: each addition of a key counts, and `discard` takes one back.
    """

    __slots__ = ()
    kind: ClassVar[str] = "dleft"

    @overload
    def __new__(
        cls,
        capacity: Count,
        error_rate: float = 1e-6,
        *,
        multiset: bool = False,
        on_full: OnFull = "warn",
        hash: HashName = "murmur3",
        hash_key: bytes = b"",
        normalize: "str | KeyNormalizer | None" = None,
    ) -> Self: ...
    @overload
    def __new__(  # type: ignore[misc] # of another class
        cls, capacity: Count, error_rate: float = 1e-6, **options: Unpack[Grown]
    ) -> Growing: ...
    def __new__(cls, *given: Any, **options: Any) -> Any:
        """Make an empty filter."""
        return _built(cls, given, options)


class DLCBF(Removable):
    """A `DLeft` filter with a counter in each cell, so that further copies of a key take no room: for multisets.

    It costs 1.8 times the bits of `Cuckoo` at 1 %.

    `permutations`: "any", or "published", those of the paper. `multiset`: each addition of a key counts, up to 3, and
    `discard` takes one back.
    """

    __slots__ = ()
    kind: ClassVar[str] = "dlcbf"

    @overload
    def __new__(
        cls,
        capacity: Count,
        error_rate: float = 1e-6,
        *,
        permutations: Literal["any", "published"] = "any",
        multiset: bool = False,
        on_full: OnFull = "warn",
        hash: HashName = "murmur3",
        hash_key: bytes = b"",
        normalize: "str | KeyNormalizer | None" = None,
    ) -> Self: ...
    @overload
    def __new__(  # type: ignore[misc] # of another class
        cls, capacity: Count, error_rate: float = 1e-6, **options: Unpack[Grown]
    ) -> Growing: ...
    def __new__(cls, *given: Any, **options: Any) -> Any:
        """Make an empty filter."""
        return _built(cls, given, options)


class Exact(Removable):
    """A hash table of 8 or 16 bytes of each digest: practically no errors, and intersections.

    It costs some 80 bits a key with 8 bytes, and errs with a probability of n / 2^64 with n keys.

    `fingerprint_bytes`: 8 or 16. `load`: the share of the table that is in use at capacity, from 0.5 to 0.9.
    """

    __slots__ = ()
    kind: ClassVar[str] = "exact"

    @overload
    def __new__(
        cls,
        capacity: Count,
        error_rate: float | None = None,
        *,
        fingerprint_bytes: Literal[8, 16] = 8,
        load: float = 0.8,
        on_full: OnFull = "warn",
        hash: HashName = "murmur3",
        hash_key: bytes = b"",
        normalize: "str | KeyNormalizer | None" = None,
    ) -> Self: ...
    @overload
    def __new__(  # type: ignore[misc] # of another class
        cls, capacity: Count, error_rate: float | None = None, **options: Unpack[Grown]
    ) -> Growing: ...
    def __new__(cls, *given: Any, **options: Any) -> Any:
        """Make an empty filter."""
        return _built(cls, given, options)

    def __and__(self, other: Self) -> Self:
        """Return a new filter with the keys that are in both. ConfigError: they were not built alike."""

    def __iand__(self, other: Self) -> Self:
        """Keep only what `other` holds, too. ConfigError: they were not built alike."""

    def intersection(self, *others: Self) -> Self:
        """Return a new filter with the keys that are in all. ConfigError: they were not built alike."""


class Window(Addable):
    """Remembers the keys of the last `retention`, or at least the last `capacity` keys that were added.

    It costs 1.2 times the bits of `Bloom` at 1e-6, 1.9 times at 1 %.

    `retention`: ms or text ("7d"); `capacity` is then the most distinct keys of any span of `retention` and one
    generation. `generations`: the steps in which it forgets. `late`: what it says of a key older than the window,
    "pass" (new) or "drop". `refresh`: a key that is found is renewed. `max_jump`: how far one key may move the time.
    """

    __slots__ = ()
    kind: ClassVar[str] = "window"

    @overload
    def __new__(
        cls,
        capacity: Count,
        error_rate: float = 1e-6,
        *,
        retention: Span | None = None,
        generations: int = 31,
        late: Literal["pass", "drop"] = "pass",
        refresh: bool = False,
        max_jump: Span | None = None,
        on_full: OnFull = "warn",
        hash: HashName = "murmur3",
        hash_key: bytes = b"",
        normalize: "str | KeyNormalizer | None" = None,
    ) -> Self: ...
    @overload
    def __new__(
        cls, capacity: Count, error_rate: float = 1e-6, **options: Unpack[Grown]
    ) -> "GrowingWindow": ...
    def __new__(cls, *given: Any, **options: Any) -> Any:
        """Make an empty filter."""
        return _built(cls, given, options)

    @property
    def retention(self) -> int | None:
        """How long it remembers a key, in ms; None of a window by count."""

    @property
    def late(self) -> str:
        """What it says of a key that is older than the window: "pass" or "drop"."""

    @property
    def refresh(self) -> bool:
        """Whether a key that is found is renewed."""

    @property
    def watermark(self) -> int | None:
        """The greatest time of the keys that were added, or None before the first. The window reaches back from it."""

    @override
    def add(self, key: "Key", /, time: int | None = None) -> bool:
        """Add one key, such as a `str` or `bytes`, at its event time in ms since 1970. Return True if it was absent.

        A window by count takes no `time`. It costs about as much as in a `set`. FilterFullError, with `on_full` "stop":
        the window has as many keys as its capacity, and this one is new.
        """

    @override
    def add_many(self, keys: Batch, /, times: "Times | None" = None) -> "Mask":
        """Add `keys`, such as a list of `str`, or digests, in order, at their `times`: ms since 1970, shape (n,).

        Return True, shape (n,), for each that was absent. A window by count takes no `times`. A key costs a tenth of
        `add`, if they are many. FilterFullError, with `on_full` "stop": more are new than fit; nothing was added.
        """

    if TYPE_CHECKING:  # for those who decide first, and add later: `filters.window.protocol`

        @property
        def clock(self) -> Clock: ...
        @property
        def marks(self) -> Marks: ...
        @property
        def undated(self) -> int: ...
        def set_untimed(self, time: int | None) -> None: ...
        def set_policy(self, late: str, refresh: bool) -> None: ...
        def room(self) -> int: ...
        def loads(self) -> tuple[int, Counts, int]: ...
        def generations_many(self, digests: Digests) -> npt.NDArray[np.int64]: ...
        def folded(self, times: Times | int) -> tuple[npt.NDArray[np.int64], int | None]: ...
        def put_many(
            self, digests: Digests, generations: npt.NDArray[np.int64]
        ) -> Iterator[None]: ...
        def date(self, generation: int) -> Iterator[None]: ...
        def rotate(self, watermark: int | None) -> Iterator[None]: ...


class GrowingWindow(Window, Growing):
    """A `Window` that grows with the keys of its time, and gives memory back as it forgets: with `on_full="grow"`."""

    __slots__ = ()


class Fuse(Filter):
    """A filter that is built at once, from all of its keys, and then only asked: the smallest for one list.

    It costs some 1.13 log2(1/p) bits a key; to build it, 8 bytes a key more, and 140 MB.

    `keys`: what `digests` takes; of a set or an iterator, give list(keys).
    """

    __slots__ = ()
    kind: ClassVar[str] = "fuse"

    def __new__(
        cls,
        keys: Batch,
        error_rate: float = 1e-6,
        *,
        hash: HashName = "murmur3",
        hash_key: bytes = b"",
        normalize: "str | KeyNormalizer | None" = None,
    ) -> Self:
        """Make the filter of `keys`."""
        given = {"hash": hash, "hash_key": hash_key, "normalize": normalize}
        made: Self = _built(cls, (keys, error_rate), given)
        return made


def class_of(name: str) -> type[Filter]:
    """Return the class here of the filters whose class is called `name` in `filters`."""
    found: type[Filter] = globals()[{"Chain": "Growing", "HashedBitmap": "Bitmap"}.get(name, name)]
    return found


def _built(cls: type[Filter], given: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    by_place = signature(cls).bind_partial(*given).arguments
    if twice := by_place.keys() & options.keys():
        raise TypeError(f"{cls.__name__} got {min(twice)} twice: by position, and by name")
    return build({"kind": cls.kind, **by_place, **options})


@overload
def build(config: OfRange, /) -> DirectBitmap: ...
@overload
def build(config: OfKeys, /) -> Fuse: ...
@overload
def build(config: Of[Literal["bitmap"]], /) -> Bitmap: ...
@overload
def build(config: Of[Literal["blocked"]], /) -> BlockedBloom: ...
@overload
def build(config: Of[Literal["bloom"]], /) -> Bloom: ...
@overload
def build(config: Of[Literal["counting"]], /) -> Counting: ...
@overload
def build(config: Of[Literal["cuckoo"]], /) -> Cuckoo: ...
@overload
def build(config: Of[Literal["dlcbf"]], /) -> DLCBF: ...
@overload
def build(config: Of[Literal["dleft"]], /) -> DLeft: ...
@overload
def build(config: Of[Literal["exact"]], /) -> Exact: ...
@overload
def build(config: Of[Literal["window"]], /) -> Window: ...
@overload
def build(config: GrownOf[Literal["window"]], /) -> GrowingWindow: ...
@overload
def build(config: GrownOf[Growable], /) -> Growing: ...
@overload
def build(config: Mapping[str, Any], /, **options: Any) -> Addable: ...
@overload
def build(**options: Unpack[OfRange]) -> DirectBitmap: ...
@overload
def build(**options: Unpack[OfKeys]) -> Fuse: ...
@overload
def build(**options: Unpack[Of[Literal["bitmap"]]]) -> Bitmap: ...
@overload
def build(**options: Unpack[Of[Literal["blocked"]]]) -> BlockedBloom: ...
@overload
def build(**options: Unpack[Of[Literal["bloom"]]]) -> Bloom: ...
@overload
def build(**options: Unpack[Of[Literal["counting"]]]) -> Counting: ...
@overload
def build(**options: Unpack[Of[Literal["cuckoo"]]]) -> Cuckoo: ...
@overload
def build(**options: Unpack[Of[Literal["dlcbf"]]]) -> DLCBF: ...
@overload
def build(**options: Unpack[Of[Literal["dleft"]]]) -> DLeft: ...
@overload
def build(**options: Unpack[Of[Literal["exact"]]]) -> Exact: ...
@overload
def build(**options: Unpack[Of[Literal["window"]]]) -> Window: ...
@overload
def build(**options: Unpack[GrownOf[Literal["window"]]]) -> GrowingWindow: ...
@overload
def build(**options: Unpack[GrownOf[Growable]]) -> Growing: ...
@overload
def build(**options: Any) -> Addable: ...
def build(config: Any = NOTHING, /, **options: Any) -> Any:
    """Return an empty filter of `config["kind"]`, with the rest of `config` as its options. Threads may share it.

    It is a set: `add` returns False for a key that it has, and changes nothing. `capacity`: the number of distinct keys
    it is for, however often each comes, an integer or text such as "100M". `error_rate`: its greatest error rate with
    that many keys; 1e-6 unless given. `on_full`: what it does with a new key beyond its capacity. `warn`, the default,
    gives a FilterFullWarning, once for each filter, and adds the key: the error rate grows, and so may the memory.
    `stop` raises FilterFullError and changes nothing; `add_many` then adds nothing of the call. `grow`: see below.

    `hash`: `murmur3` (the default), or `siphash` with `hash_key`, 16 bytes. `normalize`: a name that `normalizer`
    takes, or what it returns, by which `add`, `in` and `digests` then change keys first; MalformedError if a key has no
    such form. It is saved with the filter. Further options by kind:

    - `bloom`, `counting`: `probe` (`standard` or `double`); `blocked`: none
    - `counting`, `cuckoo`, `dleft`, `dlcbf`: `multiset` (False). With True, each addition of a key counts, and
      `discard` takes one back. The file says so, and a set and a multiset have no union
    - `dlcbf`: `permutations` (`any` or `published`); `exact`: `fingerprint_bytes` (8 or 16), `load` (0.5 to 0.9)
    - `bitmap`: `probe`, with an `error_rate` of 0.01 unless given; or `range`, [a, b], for integers, with an optional
      `capacity`
    - `window`: `retention` in ms or as text ("7d"), without which it remembers the last `capacity` keys; `generations`
      (31), `late` (`pass` or `drop`), `refresh`, `max_jump`. `capacity` is then the most distinct keys of any span of
      `retention` and one generation
    - `fuse`: `keys`, as `digests` takes them, and no `capacity`. It is built from these keys and can only be asked:
      `build({"kind": "fuse", "keys": ["a", "b"], "error_rate": 0.01})` returns a `Static` filter, not an `Addable` one

    With `on_full: grow`, all kinds but `bitmap` and `fuse` take more memory as keys come, within `error_rate`, up to
    `max_size`, in bytes or as text ("4GiB"). Unless given, that is 16 times the memory at the beginning: seven times
    `capacity`. Such a filter can only add: it has no `discard` and no `|=`. A `window`, which then needs a `retention`,
    gives memory back as it forgets; by count it is never full. `f.capacity` is then the
    number of keys that `max_size` permits, and beyond it the filter does as with `warn`. `f.error_rate_now` and
    `f.size_bytes` show how far beyond its capacity it is.

    ConfigError if an option does not fit; it names the option, its value and the remedy. `keys` raise the TypeError or
    ValueError of `digests`.
    """
    from streamdedup import library

    if isinstance(config, Mapping):
        config = {**config, **options}
    return library.build(config)
