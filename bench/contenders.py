"""Who is measured: our kinds and the libraries that people use today, behind one interface.

Each is fed in the way that is best for it: whole batches where it takes them, else one key after the other by a bound
method; a column becomes a list first where no columns are taken, and that is part of its time.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bench.harness import Clock
from bench.samples import column, random_digests
from streamdedup import filters
from streamdedup.filters.fuse.fuse import Fuse
from streamdedup.filters.memory import touch_pages
from streamdedup.keys.hashing import MURMUR3

CHUNK = 1 << 20
CHURNED, CHURNED_MAX = (
    2 * 10**11,
    10**8,
)  # the keys that fill a window at first, and the largest that is filled so
WAYS = ("digests", "column", "list")


class Ours:
    """A kind that takes keys one after the other; `batch` keys are few enough for a batch not to take a second.

    `window` goes by count, so that at capacity it has forgotten none. It is full from the beginning, of keys that
    others replace one for one, unless filling it takes too long. It has `refresh`: otherwise a key that is taken for
    one of those would leave with it.
    """

    ways: ClassVar[tuple[str, ...]] = WAYS
    batch: ClassVar[int] = 1 << 17
    filter: Any

    def __init__(self, name: str, capacity: int, error_rate: float = 0.01) -> None:
        self.name, self.capacity, self.error_rate = name, capacity, error_rate
        self.make()

    def make(self) -> None:
        """Make the filter, and touch its memory."""
        config: dict[str, Any] = {
            "kind": self.name,
            "capacity": self.capacity,
            "error_rate": self.error_rate,
        }
        if self.name == "window":
            config["refresh"] = True
        self.filter = filters.build(config)
        for buffer in self.filter.buffers():
            touch_pages(buffer)
        if self.name == "window" and self.capacity <= CHURNED_MAX:
            for first in range(0, self.capacity, CHUNK):
                count = min(CHUNK, self.capacity - first)
                self.filter.add_many(random_digests(CHURNED + first, count))

    def given(self, way: str, first: int, count: int) -> Any:  # noqa: ANN401 - what `way` says
        """The keys of numbers from `first` on, as new objects: an old one may know its hash already."""
        keys = column(first, count)
        if way == "digests":
            return MURMUR3.digests(keys)
        return keys if way == "column" else keys.to_pylist()

    def bulk(self, first: int, count: int) -> tuple[str, Any]:
        """Any keys to fill up with, as costs least: digests of nobody's keys."""
        return "digests", random_digests(first, count)

    def add(self, way: str, keys: Any) -> None:  # noqa: ANN401
        """Add what `given` made."""
        self.filter.add_many(keys if way == "digests" else self.filter.digests(keys))

    def contains(self, way: str, keys: Any) -> Any:  # noqa: ANN401
        """Whether each is there."""
        return self.filter.contains_many(keys if way == "digests" else self.filter.digests(keys))

    def singles(self) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """To add one key, and to ask for one."""
        return self.filter.add, self.filter.__contains__

    def bits_a_key(self, keys: int) -> float:  # noqa: ARG002 - a table has its size from the beginning
        """The memory of the table for each key of the capacity."""
        return float(8 * self.filter.size_bytes / self.capacity)


class OursBuilt(Ours):
    """The kind that is built once, of all keys: `build` first. Nothing is added to it."""

    def make(self) -> None:
        """Nothing: `build` does."""

    def build(self, clock: Clock, real: int) -> float:
        """Build it of the keys of numbers below `real`, and others; the seconds without those to make keys."""
        making = 0.0

        def chunks() -> Iterator[Any]:
            nonlocal making
            for first in range(0, self.capacity, CHUNK):
                count = min(CHUNK, self.capacity - first)
                seconds, digests = clock.once(partial(self._digests, first, count, real))
                making += seconds
                yield digests

        seconds, self.filter = clock.once(
            lambda: Fuse.from_chunks(chunks(), self.capacity, self.error_rate)
        )
        return seconds - making

    def _digests(self, first: int, count: int, real: int) -> Any:  # noqa: ANN401
        known = max(0, min(count, real - first))
        digests = random_digests(first, count)
        return np.concatenate([self.given("digests", first, known), digests[known:]])

    def singles(self) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """To ask for one key; to add one does nothing."""
        return (lambda _key: None), self.filter.__contains__


@dataclass
class Peer:
    """Another library, by functions of its table, or the usual ones; at most `keys_max` keys are put in.

    `text`: it takes `str` and would make one of `bytes`.
    """

    ways: ClassVar[tuple[str, ...]] = ("list", "column")

    name: str
    table: Any
    bits: Callable[[int], float]
    add_all: Callable[[list[Any]], Any] | None = None
    contains_all: Callable[[list[Any]], Sequence[bool]] | None = None
    add_one: Callable[[Any], Any] | None = None
    contains_one: Callable[[Any], bool] | None = None
    batch: int = 1 << 17
    text: bool = False
    keys_max: int = sys.maxsize

    def given(self, way: str, first: int, count: int) -> Any:  # noqa: ANN401
        """As above; `str` where it takes them."""
        keys = column(first, count)
        keys = keys.cast("string") if self.text else keys
        return keys if way == "column" else keys.to_pylist()

    def bulk(self, first: int, count: int) -> tuple[str, Any]:
        """A list of keys."""
        return "list", self.given("list", first, count)

    def add(self, way: str, keys: Any) -> None:  # noqa: ANN401
        """Add what `given` made."""
        keys = keys if way == "list" else keys.to_pylist()
        if self.add_all:
            self.add_all(keys)
        else:
            add = self.table.add
            [add(key) for key in keys]

    def contains(self, way: str, keys: Any) -> Any:  # noqa: ANN401
        """Whether each is there."""
        keys = keys if way == "list" else keys.to_pylist()
        if self.contains_all:
            return self.contains_all(keys)
        table = self.table
        return [key in table for key in keys]

    def singles(self) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """To add one key, and to ask for one."""
        return self.add_one or self.table.add, self.contains_one or self.table.__contains__

    def bits_a_key(self, keys: int) -> float:
        """As the library says."""
        return self.bits(keys)


def _rbloom(capacity: int) -> Peer:
    import rbloom

    return _of_rbloom("rbloom", rbloom.Bloom(capacity, 0.01), capacity)


def _rbloom_mmh3(capacity: int) -> Peer:
    """With a hash that is the same in the next process; a lambda is quicker here than `functools.partial`."""
    import mmh3
    import rbloom

    def signed(key: Any) -> int:  # noqa: ANN401
        return mmh3.hash128(key, signed=True)

    return _of_rbloom("rbloom, mmh3", rbloom.Bloom(capacity, 0.01, hash_func=signed), capacity)


def _of_rbloom(name: str, table: Any, capacity: int) -> Peer:  # noqa: ANN401
    return Peer(name, table, lambda _: table.size_in_bits / capacity, add_all=table.update)


def _fastbloom(capacity: int) -> Peer:
    import fastbloom_rs

    table = fastbloom_rs.FilterBuilder(capacity, 0.01).build_bloom_filter()
    return Peer(
        "fastbloom-rs",
        table,
        lambda _: table.config().size() / capacity,
        add_all=table.add_bytes_batch,
        contains_all=table.contains_bytes_batch,
        add_one=table.add_bytes,
        contains_one=table.contains_bytes,
    )


def _pybloom(capacity: int) -> Peer:
    import pybloom_live

    table = pybloom_live.BloomFilter(capacity, 0.01)
    return Peer(
        "pybloom-live", table, lambda _: table.num_bits / capacity, batch=1 << 15, text=True
    )


def _probables(capacity: int) -> Peer:
    import probables

    table = probables.BloomFilter(est_elements=capacity, false_positive_rate=0.01)
    return Peer("pyprobables", table, lambda _: 8 * table.bloom_length / capacity, batch=1 << 13)


SET_KEYS_MAX = 10_000_000  # 1.2 GB


def _set(_capacity: int) -> Peer:
    """Holds the keys themselves, of which a hundred million are 11 GB: so it gets fewer."""
    table: set[Any] = set()
    key = sys.getsizeof(next(iter(column(0, 1).to_pylist())))
    return Peer(
        "set",
        table,
        lambda keys: 8 * (sys.getsizeof(table) / max(1, keys) + key),
        add_all=table.update,
        keys_max=SET_KEYS_MAX,
    )


Contender = Ours | Peer

PEERS: dict[str, Callable[[int], Peer]] = {
    "rbloom": _rbloom,
    "rbloom, mmh3": _rbloom_mmh3,
    "fastbloom-rs": _fastbloom,
    "pybloom-live": _pybloom,
    "pyprobables": _probables,
    "set": _set,
}
KINDS = tuple(filters.KINDS)


def build(name: str, capacity: int) -> Contender:
    """An empty one."""
    if name in PEERS:
        return PEERS[name](capacity)
    return (OursBuilt if name in filters.STATIC else Ours)(name, capacity)


def compile_kernels() -> None:
    """Use each kind once, beyond its capacity, where some have kernels of their own."""
    for name in KINDS:
        made: Any = build(name, 500)
        if isinstance(made, OursBuilt):
            made.build(Clock(), 500)
        else:
            made.add("digests", random_digests(0, 2000))
        add, contains = made.singles()
        for way in WAYS:
            made.contains(way, made.given(way, 0, 1000))
        for key in ("a", "b"):
            add(key)
            contains(key)


def size_bytes(name: str, capacity: int, error_rate: float = 0.01) -> int:
    """The memory that a kind of ours would take; nothing is touched of it."""
    if name in filters.STATIC:
        return int(1.2 * capacity)
    return filters.build({"kind": name, "capacity": capacity, "error_rate": error_rate}).size_bytes
