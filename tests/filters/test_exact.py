"""Claims about the exact set: its table follows from its set, growth loses nothing, damage is found."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.errors import ConfigError
from streamdedup.filters.exact.exact import Exact
from streamdedup.filters.sizing import exact_error, exact_size
from tests.filters.cases import as_digests, copies, random_digests, state
from tests.rows import table

Fingerprint = tuple[int, ...]
LAST = 2**64 - 1

# First words that crowd: at the beginning, in the middle, at the end, and anywhere.
crowded = st.one_of(
    st.integers(0, 5),
    st.integers(2**63 - 3, 2**63 + 3),
    st.integers(LAST - 40, LAST),
    st.integers(0, LAST),
)
rows = st.lists(st.tuples(crowded, st.integers(0, 2)), max_size=60)


# --- the table ---


@table([8, 16])
@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.booleans(), rows), max_size=6),
    st.integers(1, 60),
    st.sampled_from([0.5, 0.8, 0.9]),
)
def test_the_table_follows_from_its_set(
    size: int, steps: list[tuple[bool, list[tuple[int, int]]]], capacity: int, load: float
) -> None:
    """However it came about: ascending fingerprints, each in its home or right behind the one before; no tombstones."""
    seen = Exact(capacity, fingerprint_bytes=size, load=load)
    model: set[Fingerprint] = set()
    for adds, digests in steps:
        expected = []
        for digest in digests:
            fingerprint = _fingerprint(digest, size)
            expected.append((fingerprint in model) != adds)
            (model.add if adds else model.discard)(fingerprint)
        answer = (seen.add_many if adds else seen.remove_many)(as_digests(digests))
        assert answer.tolist() == expected
        assert len(seen) == len(model)
        header = seen.header()
        assert bytes(seen.buffers()[0]) == _laid_out(model, size, header["slots"], header["tail"])
        assert state(Exact.from_parts(header, copies(seen))) == state(seen)
    asked = [digest for _, digests in steps for digest in digests] + [(7, 7), (LAST - 50, 0)]
    present = [_fingerprint(digest, size) in model for digest in asked]
    assert seen.contains_many(as_digests(asked)).tolist() == present


# --- growth ---


def test_up_to_its_capacity_it_does_not_grow() -> None:
    """The memory stated at the start is the memory until capacity is passed, by one key; known keys do not count."""
    for capacity in (1, 2, 7, 1000):
        seen = Exact(capacity)
        size, keys = seen.size_bytes, random_digests(52, capacity + 1)
        seen.add_many(keys[:-1])
        seen.add_many(keys[:-1])
        assert seen.size_bytes == size
        assert seen.add_many(keys[-1:]).all()
        assert seen.size_bytes > size


# --- sizes and errors ---


@table([(8, 0.5, 1.6), (8, 0.8, 1.0), (8, 0.9, 0.889), (16, 0.8, 2.0)])
def test_what_a_hundred_million_keys_cost(row: tuple[int, float, float]) -> None:
    """At half load the 1.6 GB of the literature; 1.0 at the default; no rounding to a power of two."""
    size, load, gigabytes = row
    words = sum(exact_size(10**8, load))
    assert words * size / 1e9 == pytest.approx(gigabytes, rel=1e-3)
    small = Exact(10_000, fingerprint_bytes=size, load=load)
    assert small.size_bytes == sum(exact_size(10_000, load)) * size


def test_the_error_is_that_of_its_fingerprints() -> None:
    """A 2^64th, or a 2^128th, for each key that is in; unless a higher rate was asked for."""
    for size, rate in ((8, 1000 / 2**64), (16, 1000 / 2**128)):
        seen = Exact(1000, fingerprint_bytes=size)
        assert seen.error_rate == seen.expected_error(1000) == exact_error(size, 1000) == rate
        seen.add_many(random_digests(54, 500))
        assert seen.error_rate_now == rate / 2
        assert seen.fill_ratio == 500 / 1250
    assert Exact(1000, 1e-6).error_rate == 1e-6


def test_impossible_options_are_named() -> None:
    """A rate that 64 bits cannot keep, with the remedy; sizes, loads and capacities that there are not."""
    with pytest.raises(
        ConfigError, match=r"with fingerprints of 8 bytes its error rate is .*raise"
    ):
        Exact(10**9, 1e-12)
    assert Exact(1000, 1e-20, fingerprint_bytes=16).error_rate == 1e-20
    with pytest.raises(ConfigError, match=r"filter\.fingerprint_bytes is 4"):
        Exact(10, fingerprint_bytes=4)
    for load in (0.49, 0.91, 1.0, math.nan):
        with pytest.raises(ConfigError, match=rf"filter\.load is {load}"):
            Exact(10, load=load)


# --- damage ---


def _swap(table: Any) -> None:
    first, second = np.flatnonzero(table)[:2]
    table[[first, second]] = table[[second, first]]


def _alone(table: Any) -> int:
    """Where a fingerprint stands that has an empty slot on either side."""
    empty = table == 0
    return int(np.flatnonzero(~empty[1:-1] & empty[:-2] & empty[2:])[0]) + 1


def _move_up(table: Any) -> None:
    at = _alone(table)
    table[at + 1], table[at] = table[at], 0


def _move_down(table: Any) -> None:
    at = _alone(table)
    table[at - 1], table[at] = table[at], 0


def _double(table: Any) -> None:
    at = _alone(table)
    table[at + 1] = table[at]


def _drop(table: Any) -> None:
    table[np.flatnonzero(table)[-1]] = 0


@table([_swap, _move_up, _move_down, _double, _drop])
def test_a_table_that_no_set_has_is_refused(damage: Callable[[Any], None]) -> None:
    """Fingerprints out of order, away from their place, twice, or missing."""
    seen = Exact(100)
    seen.add_many(random_digests(55, 30))
    (table,) = copies(seen)
    Exact.from_parts(seen.header(), [table])
    damage(np.frombuffer(table, np.uint64))
    with pytest.raises(ValueError, match="fingerprints, each in its place"):
        Exact.from_parts(seen.header(), [table])


@table(
    [
        ({"capacity": 90}, "slots do not follow"),
        ({"load": 0.7}, "slots do not follow"),
        ({"load": 0.95}, "load 0.95 is not from"),
        ({"slots": 126, "tail": 99}, "slots do not follow"),
        ({"error_rate": 1e-19}, "error_rate 1e-19 is below"),
        ({"fingerprint_bytes": 12}, "neither 8 nor 16"),
        ({"fingerprint_bytes": 16}, "bytes of table"),
        ({"keys": 31}, "does not hold 31"),
        ({"keys": 101}, "keys 101 is not an integer from 0 to 100"),
        ({"tail": 101}, "bytes of table"),
        ({"tail": 0}, "tail 0 is not an integer"),
    ]
)
def test_contradictory_headers_are_refused(row: tuple[Any, str]) -> None:
    """A header that does not fit itself or the table is refused, and says why."""
    change, said = row
    seen = Exact(100)
    seen.add_many(random_digests(55, 30))
    with pytest.raises(ValueError, match=said):
        Exact.from_parts({**seen.header(), **change}, seen.buffers())


def _fingerprint(digest: tuple[int, int], size: int) -> Fingerprint:
    a, b = max(digest[0], 1), digest[1]
    return (a,) if size == 8 else (a, b)


def _laid_out(model: set[Fingerprint], size: int, slots: int, tail: int) -> bytes:
    """The table, built from its documentation, in integers that do not overflow."""
    table = bytearray((slots + tail) * size)
    free = 0
    for fingerprint in sorted(model):
        at = max(fingerprint[0] * slots >> 64, free)
        table[at * size : (at + 1) * size] = b"".join(w.to_bytes(8, "little") for w in fingerprint)
        free = at + 1
    return bytes(table)
