"""What the conformance suite is run over: every kind, with each of its options; one line makes a kind part of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

from streamdedup import filters, library
from streamdedup.filters.base import Addable, Filter, Removable, Unionable
from streamdedup.filters.window.protocol import Windowed
from streamdedup.keys.hashing import Digests, Hash

HASH_KEY = bytes(range(16))
Made = TypeVar("Made", bound=Filter)


@dataclass(frozen=True)
class Case:
    """A kind with options. `error_rates` are those that it can be asked for in a small test; 1e-9 should be one."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    error_rates: tuple[float, ...] = (1e-2, 1e-3)
    exact_below: float = 1e-9  # an error rate at which a small test meets no false positive
    growth: int = 1  # how many times what it is first made for a filter that grows holds in a test
    for_programs: bool = False  # made as the library makes it: its methods of one key are builtins

    def __str__(self) -> str:
        told = (
            name if value is True else f"{value}"
            for name, value in self.options.items()
            if name != "hash_key"
        )
        return "-".join([self.kind, *told, *(["library"] if self.for_programs else [])])

    def build(self, capacity: int, error_rate: float | None = None) -> Addable:
        """An empty filter; at `exact_below` unless told otherwise."""
        first = -(-capacity // self.growth)
        config = {"kind": self.kind, "capacity": first, **self.options}
        return self._given(filters.build({**config, "error_rate": error_rate or self.exact_below}))

    def holding(self, count: int, capacity: int) -> Filter:
        """A filter for so many keys with `count` of them; one that is static is made of these."""
        digests = random_digests(9, count)
        if self.kind in STATIC_KINDS:
            made: Filter = filters.kind_of(self.kind).from_digests(digests, self.error_rates[0])
            return made
        seen = self.build(capacity, self.error_rates[0])
        seen.add_many(digests)
        return seen

    def restore(self, header: Mapping[str, Any], buffers: list[memoryview]) -> Filter:
        """Return the filter of these parts, under the hash key of this case."""
        hash_ = Hash.under(self.options.get("hash_key", b""))
        return self._given(filters.from_parts(header, buffers, hash_))

    def _given(self, made: Made) -> Made:
        return library.shared(made, library.WARNED) if self.for_programs else made

    @property
    def abilities(self) -> list[type]:
        """Which of the further Protocols the kind meets."""
        made = self.build(10)
        return [
            ability for ability in (Removable, Unionable, Windowed) if isinstance(made, ability)
        ]


SIPHASH = {"hash": "siphash", "hash_key": HASH_KEY}
CASES = [
    Case("bloom"),
    Case("bloom", {"probe": "double"}, exact_below=1e-12),
    Case("bloom", SIPHASH),
    Case("bitmap", exact_below=1e-5),
    Case("bitmap", {"probe": "double"}, exact_below=1e-5),
    Case("counting"),
    Case("counting", {"probe": "double"}, exact_below=1e-12),
    Case("cuckoo"),
    Case("dlcbf"),
    Case("dlcbf", {"permutations": "published"}),
    Case("dleft"),
    Case("counting", {"multiset": True}),
    Case("cuckoo", {"multiset": True}),
    Case("dlcbf", {"multiset": True}),
    Case("dlcbf", {"permutations": "published", "multiset": True}),
    Case("dleft", {"multiset": True}),
    Case("exact"),
    Case("exact", {"fingerprint_bytes": 16, "load": 0.9}),
    Case("blocked"),
    Case("bloom", {"on_full": "grow"}, growth=5),
    Case("cuckoo", {"on_full": "grow"}, growth=5),
    Case("window"),
    Case("window", {"generations": 12, "refresh": True}),
    Case("window", {"generations": 64}),
]
STATIC_KINDS = {"fuse"}  # built once, of all keys: each has a file of tests of its own
ALL = [*CASES, *map(Case, STATIC_KINDS)]
KEEPING = [case for case in CASES if Windowed not in case.abilities]  # whatever comes after
REMOVABLE = [case for case in CASES if Removable in case.abilities]
MULTISETS = [case for case in CASES if "multiset" in case.options]
UNIONABLE = [case for case in CASES if Unionable in case.abilities]


def both(cases: Sequence[Case]) -> list[Case]:
    """For claims about single keys: each with its methods in Python, and with the builtins that programs get."""
    return [*cases, *(replace(case, for_programs=True) for case in cases)]


@cache
def random_digests(seed: int, count: int) -> Digests:
    """`count` digests of keys that nobody has; read-only, and the same wherever they are asked for."""
    made = np.random.default_rng(seed).integers(0, 1 << 64, (count, 2), dtype=np.uint64)
    made.flags.writeable = False
    return made


def as_digests(rows: Sequence[tuple[int, int]]) -> Digests:
    """The digests of these words."""
    return np.array(rows, dtype=np.uint64).reshape(-1, 2)


SIGMAS = 5.0  # beyond them a count lies by chance in one run of a million, on either side


def band(expected: float, sigmas: float = SIGMAS) -> tuple[float, float]:
    """Where a count of rare, independent events lies; beyond it by chance in one run of a million."""
    return expected - sigmas * math.sqrt(expected) - 1, expected + sigmas * math.sqrt(expected) + 1


def probes_for(rate: float) -> int:
    """How many absent keys tell a rate from one that is a quarter above it, or below: 1.2e5 at 1 %, 1.2e6 at 0.1 %.

    A count with the mean pN leaves its `band` by chance once in a million times. One with the mean 1.25 pN is beyond
    it in all but one of a thousand, since sqrt(pN) / 4 is at least 5 + 3.09 sqrt(1.25), with something for the +1.
    """
    return math.ceil(((SIGMAS + 3.09 * math.sqrt(1.25)) / 0.25) ** 2 / rate * 1.01)


def copies(seen: Filter) -> list[memoryview]:
    """The buffers as they are now."""
    return [memoryview(bytearray(buffer)) for buffer in seen.buffers()]


def state(seen: Filter) -> tuple[Any, ...]:
    """All by which two filters could differ."""
    told = (len(seen), seen.fill_ratio, seen.error_rate_now, seen.size_bytes, seen.hash)
    return (seen.header(), [bytes(buffer) for buffer in seen.buffers()], *told)
