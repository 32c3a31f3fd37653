"""Claims about the static kind: no key of its list is absent, and errors and sizes are the theorem's.

Nothing but the set of keys decides the table. Whoever gives hostile keys or parts gets an error, not a wrong answer.
"""

import copy
import json
import math
import pickle
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamdedup
from streamdedup import filters, library
from streamdedup.errors import ConfigError
from streamdedup.filters.fuse import fuse, peel
from streamdedup.filters.fuse.fuse import (
    COLUMNS,
    Fuse,
    divided,
)
from streamdedup.filters.fuse.peel import build_part
from streamdedup.filters.sizing import fuse_size
from streamdedup.keys.hashing import MURMUR3
from streamdedup.native import OPEN
from tests.filters.cases import copies, random_digests, state
from tests.rows import table


def made(count: int, error_rate: float = 0.01, seed: int = 1) -> Fuse:
    """The filter of `count` random digests."""
    return Fuse.from_digests(random_digests(seed, count), error_rate)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 1000 keys, so that a short list has many."""
    monkeypatch.setattr(fuse, "PART_KEYS", 1000)


# --- membership ---


@table(range(1, 33))
def test_every_number_of_bits_is_kept_as_it_is(bits: int) -> None:
    """Any r: no rounding to bytes, all keys found, and the size is the slots' to the bit, up to two cache lines."""
    seen = made(5000, 2.0**-bits)
    assert seen.bits == bits
    assert seen.contains_many(random_digests(1, 5000)).all()
    length, segments = fuse_size(5000)
    slots = (segments + 2) * length
    assert 0 <= seen.size_bytes - slots * bits / 8 - COLUMNS * 8 <= 128
    assert seen.fill_ratio == 5000 / slots


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=4), max_size=200))
def test_keys_are_found_one_by_one_and_all_at_once(keys: list[bytes]) -> None:
    """Both ways of asking agree, for keys that are there and keys that are not; equal keys count once."""
    seen = Fuse.from_digests(MURMUR3.digests(keys), 1e-9)
    assert len(seen) == len(set(keys))
    asked = [*keys, *(key + b"?????" for key in keys)]
    expected = [True] * len(keys) + [False] * len(keys)
    assert seen.contains_many(seen.digests(asked)).tolist() == expected
    assert [key in seen for key in asked] == expected
    ours = library.shared(seen)
    for one in (ours, copy.copy(ours), pickle.loads(pickle.dumps(ours))):  # noqa: S301 - our own
        assert [key in one for key in asked] == expected
        assert not asked or cast("Any", one)._state[OPEN]


def test_what_a_program_makes_of_a_class_answers() -> None:
    """Whichever way it is made."""
    ours: Any = library.shared(made(5))
    for one in (
        type(ours).from_digests(random_digests(1, 50), 0.01),
        type(ours).from_parts(ours.header(), ours.buffers()),
    ):
        assert "a key" not in one
        assert one.contains_many(random_digests(1, 5)).all()


def test_an_empty_list_has_no_key() -> None:
    """No keys: nothing is present, not even by error."""
    seen = made(0, 0.5)
    assert not seen.contains_many(random_digests(2, 1000)).any()
    assert "a" not in seen
    assert (len(seen), seen.fill_ratio, seen.error_rate_now, seen.expected_error(0)) == (0, 0, 0, 0)
    assert seen.contains_many(seen.digests([])).shape == (0,)


# --- the table is a function of the set ---


@pytest.mark.usefixtures("small_parts")
def test_order_and_chunks_leave_no_trace() -> None:
    """Shuffled, in chunks of any size, read-only, strided: the same filter, to the bit."""
    keys = random_digests(1, 5000)
    expected = state(Fuse.from_digests(keys, 0.01))
    shuffled = np.random.default_rng(3).permutation(keys)
    assert state(Fuse.from_digests(shuffled, 0.01)) == expected
    assert state(Fuse.from_digests(np.asfortranarray(keys), 0.01)) == expected
    chunks = iter(np.array_split(keys, [0, 1, 700, 4999]))
    assert state(Fuse.from_chunks(chunks, 5000, 0.01)) == expected


def test_an_announcement_that_is_far_too_low_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that would take too much memory is the caller's error, with the remedy."""
    monkeypatch.setattr(peel, "PART_KEYS_MAX", 100)
    with pytest.raises(ConfigError, match=r"101 keys in one part .* announce"):
        Fuse.from_chunks([random_digests(1, 101)], 10, 0.01)


def test_the_digests_that_are_given_stay_as_they_are() -> None:
    """Building sorts copies."""
    keys = random_digests(1, 1000).copy()
    before = keys.copy()
    Fuse.from_digests(keys, 0.01)
    assert (keys == before).all()
    column = keys[:, 1].copy()
    build_part(column, 8)
    assert (column == before[:, 1]).all()


def test_a_division_puts_every_key_into_one_part() -> None:
    """Parts are the equal ranges of a digest's first half, and hold its second half, as Python's integers say."""
    keys = random_digests(1, 1000)
    held, ends = divided(keys, 7)
    parts: list[list[int]] = [[] for _ in range(7)]
    for a, b in keys.tolist():
        parts[(a >> 32) * 7 >> 32].append(b)
    assert [held[ends[i] : ends[i + 1]].tolist() for i in range(7)] == parts


# --- errors and sizes ---


@table([0.0, 1.0, -0.1, math.nan, math.inf, 2.0**-33])
def test_impossible_error_rates_are_named(error_rate: float) -> None:
    """What cannot be, and what takes more than 32 bits, is the operator's error."""
    with pytest.raises(ConfigError, match=rf"filter\.error_rate is {error_rate}"):
        Fuse.from_digests(random_digests(1, 10), error_rate)


def test_impossible_announcements_are_named() -> None:
    """A negative number of keys, or more than any filter holds."""
    for hint in (-1, 10**14):
        with pytest.raises(ConfigError, match=f"a list of {hint} keys"):
            Fuse.from_chunks([], hint, 0.01)


@table([np.int64, np.float64, np.uint32])
def test_what_is_no_digest_is_refused(dtype: Any) -> None:
    """Arrays that a kernel would misread are refused, in building and in asking."""
    wrong: Any
    for wrong in (np.ones((3, 2), dtype), np.ones((3, 1), np.uint64), np.ones(6, np.uint64)):
        for call in (made(10).contains_many, lambda digests: Fuse.from_digests(digests, 0.01)):
            with pytest.raises(TypeError, match="digests are uint64"):
                call(wrong)


# --- static ---


@table([{}, {"capacity": 10}, {"capacity": 10, "error_rate": 0.1}])
def test_no_empty_one_can_be_built(options: Any) -> None:
    """Where a filter is needed that grows, the configuration is refused, with what to do."""
    with pytest.raises(ConfigError, match=r"fuse, .* built once.* choose another kind"):
        filters.build({"kind": "fuse", **options})
    with pytest.raises(
        ConfigError, match=r"from all of its keys, by build or by Fuse\.from_digests"
    ):
        Fuse(**options)


# --- parts ---


@pytest.mark.parametrize("count", [0, 1, 60, 3000])
@pytest.mark.usefixtures("small_parts")
def test_a_filter_comes_back_from_its_parts(count: int) -> None:
    """Header (through JSON) and buffers, copied or read-only, make an equal filter, which answers alike."""
    seen = made(count)
    header, absent = json.loads(json.dumps(seen.header())), random_digests(2, 5000)
    frozen = [memoryview(bytes(buffer)) for buffer in seen.buffers()]
    for parts in (copies(seen), frozen, seen.buffers()):
        restored = filters.from_parts(header, parts)
        assert state(restored) == state(seen)
        assert all(view.readonly and view.contiguous for view in restored.buffers())
        assert restored.contains_many(random_digests(1, count)).all()
        assert (restored.contains_many(absent) == seen.contains_many(absent)).all()


def test_buffers_that_do_not_fit_are_refused() -> None:
    """One missing, one too many, or one of another size: ValueError."""
    seen = made(100)
    header, (table, rows) = seen.header(), copies(seen)
    longer = memoryview(bytearray(bytes(table) + bytes(64)))
    cut = [[table[:size], rows] for size in range(0, len(table), 8)]
    cut += [[table, rows[:size]] for size in range(len(rows))]
    for wrong in ([table], [], [table, rows, rows], [longer, rows], [rows, table], *cut):
        with pytest.raises(ValueError, match=r"."):
            Fuse.from_parts(header, wrong)


@pytest.mark.parametrize("written", [b"\xff", b"\x00", b"\x7f"])
def test_who_writes_to_a_mapped_file_leads_no_kernel_out_of_it(
    tmp_path: Any, written: bytes
) -> None:
    """The directory is a copy. What is written over the rest of the file makes wrong answers, and no more."""
    keys = random_digests(1, 1000)
    seen = Fuse.from_digests(keys, 2.0**-14)
    path = tmp_path / "a.filter"
    streamdedup.save(seen, path)
    mapped: Any = streamdedup.load(path, mmap=True)
    content, directory = path.read_bytes(), bytes(seen.buffers()[1])
    at = content.index(directory)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(written * len(directory))
    assert mapped.contains_many(keys).all()
    with path.open("r+b") as file:
        file.write(written * len(content))
    mapped.contains_many(keys)
