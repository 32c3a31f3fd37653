"""The static kind: large lists, short ones, many parts, and keys that collide."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.errors import ConfigError
from streamdedup.filters.fuse import peel
from streamdedup.filters.fuse.fuse import COLUMNS, KEYS, LENGTH, SEED, SEGMENTS, START, Fuse
from streamdedup.filters.fuse.peel import SEEDS_MAX, build_part, words_of
from streamdedup.filters.sizing import fuse_size
from tests.chosen import WORD, unmixed
from tests.filters.cases import band, copies, random_digests, state
from tests.filters.test_fuse import made
from tests.filters.test_fuse import small_parts as small_parts  # noqa: PLC0414 - a fixture
from tests.rows import table

PERCENT_039, PERCENT_00015 = 2.0**-8, 2.0**-16  # 0.39 % and 0.0015 %, as the literature rounds them


ABSENT = 6_000_000


@pytest.mark.parametrize("error_rate", [0.01, PERCENT_00015])
def test_a_million_keys_are_all_found(error_rate: float) -> None:
    """Not one of a million is absent."""
    seen = made(1_000_000, error_rate)
    assert seen.contains_many(random_digests(1, 1_000_000)).all()
    assert len(seen) == seen.capacity == 1_000_000


@pytest.mark.parametrize("error_rate", [0.5, 0.01, PERCENT_039, PERCENT_00015])
@pytest.mark.parametrize("count", [300, 200_000])
def test_the_measured_error_is_the_expected_one(error_rate: float, count: int) -> None:
    """2^-bits on both sides, whatever the size, and at most what was asked for."""
    seen = made(count, error_rate)
    expected = seen.expected_error(count)
    assert seen.error_rate == seen.error_rate_now == expected == 2.0**-seen.bits <= error_rate
    found = int(np.count_nonzero(seen.contains_many(random_digests(4, ABSENT))))
    low, high = band(expected * ABSENT)
    assert low < found < high


def test_no_seed_fails_often() -> None:
    """Of 2000 short lists nearly all are built with one of the first seeds; none needs many."""
    rng = np.random.default_rng(5)
    seeds = [
        build_part(rng.integers(0, 1 << 64, count, dtype=np.uint64), 8).seed
        for count in (2, 3, 5, 10, 30, 100, 300, 1000)
        for _ in range(250)
    ]
    assert sum(seeds) < 400
    assert max(seeds) < 10


@table([1, 7, 8, 31, 32])
def test_lists_of_every_short_length_are_found(bits: int) -> None:
    """All of 0 to 100 keys, at fingerprints that lie across words and that do not."""
    for count in range(101):
        seen = made(count, 2.0**-bits)
        assert len(seen) == count
        assert seen.contains_many(random_digests(1, count)).all()
        assert (bits < 31) or not seen.contains_many(random_digests(2, 1000)).any()


@pytest.mark.usefixtures("small_parts")
def test_a_list_in_many_parts_is_one_list() -> None:
    """Keys of all parts are found, parts without a key have none, and the error is that of one part."""
    keys = random_digests(1, 20_500)
    seen = Fuse.from_digests(keys, 0.01)
    assert seen.header()["parts"] == 21
    assert seen.contains_many(keys).all()
    found = int(np.count_nonzero(seen.contains_many(random_digests(2, 500_000))))
    low, high = band(seen.error_rate * 500_000)
    assert low < found < high
    upper = keys[keys[:, 0] >> np.uint64(63) == 1]
    half = Fuse.from_chunks([upper], 20_500, 0.01)
    assert half.contains_many(upper).all()
    lower = random_digests(2, 10_000) >> np.uint64(2)
    assert not half.contains_many(lower).any()


def test_repetitions_leave_no_trace() -> None:
    """A list with every key several times is the list with every key once."""
    keys = random_digests(1, 3000)
    repeated = np.concatenate([keys, keys[::-1], keys[:7], keys[:7]])
    assert state(Fuse.from_digests(repeated, 0.01)) == state(Fuse.from_digests(keys, 0.01))
    one = Fuse.from_digests(np.repeat(keys[:1], 100_000, axis=0), 0.01)
    assert len(one) == 1
    assert one.contains_many(keys[:1]).all()


@pytest.mark.parametrize("hint", [0, 1, 10**6])
@pytest.mark.usefixtures("small_parts")
def test_a_wrong_announcement_costs_space_only(hint: int) -> None:
    """Fewer or more keys than announced are found all the same."""
    keys = random_digests(1, 3000)
    seen = Fuse.from_chunks([keys[:10], keys[10:]], hint, 0.01)
    assert seen.contains_many(keys).all()
    assert len(seen) == 3000


@given(st.integers(1, 1 << 26))
def test_every_size_has_room(keys: int) -> None:
    """1.125 slots a key or more, in segments of a power of two; a segment at most above the paper's factor."""
    length, segments = fuse_size(keys)
    assert length & (length - 1) == 0
    assert length <= peel.LENGTH_MAX
    slots = (segments + 2) * length
    factor = max(1.125, 0.875 + 0.25 * math.log(1e6) / math.log(max(keys, 2)))
    assert factor * keys - 1 <= slots <= max(factor * keys + length + 1, 3 * length)


def colliding(seed: int, count: int) -> list[int]:
    """Keys whose three slots in a short list are the same, with this seed."""
    hashes = [0x1234 << 48 | i << 36 | seed for i in range(count)]
    return [(unmixed(hash_) - seed * 0x9E3779B97F4A7C15) & WORD for hash_ in hashes]


def test_keys_that_collide_take_another_seed() -> None:
    """Two keys with the same slots, or more than a slot can count, make a seed fail; the next one is taken."""
    for count in (2, 300):
        keys = np.array(colliding(0, count) + colliding(1, 2), dtype=np.uint64)
        part = build_part(keys, 8)
        assert part.seed >= 2
        assert part.keys == count + 2
        digests = np.stack([keys, keys], axis=1)
        assert Fuse.from_digests(digests, 0.01).contains_many(digests).all()


def test_a_slot_that_cannot_count_its_keys_fails_the_seed() -> None:
    """A count of one byte never wraps: 255 keys of one slot are counted, 256 are not."""
    for count in (255, 256):
        counts, sums = np.zeros(192, dtype=np.uint8), np.zeros(192, dtype=np.uint64)
        hashes = np.arange(count, dtype=np.uint64) << np.uint64(36)
        size = np.uint64(64)
        assert peel._count(hashes, size, size, counts, sums) == (count == 255)
        assert counts.max() == 255


def test_keys_that_collide_for_every_seed_are_refused() -> None:
    """After a bounded number of tries the list is refused, with the remedy."""
    keys = [key for seed in range(SEEDS_MAX) for key in colliding(seed, 2)]
    with pytest.raises(ConfigError, match=r"200 keys .*siphash"):
        build_part(np.array(keys, dtype=np.uint64), 8)


def test_a_mapped_filter_is_not_read_until_it_is_asked(tmp_path: Any) -> None:
    """Over a sparse file of 67 GB, whose last part alone has a table: there at once, and those keys are found."""
    parts, claimed, held = 1 << 13, 1 << 22, random_digests(1, 1000)[:, 1]
    last, (length, segments) = build_part(held, 14), fuse_size(claimed)
    words = words_of(length, segments, 14)
    rows = np.zeros((parts, COLUMNS), dtype=np.uint64)
    rows[:, START] = np.arange(parts) * words
    rows[:, KEYS], rows[:, LENGTH], rows[:, SEGMENTS] = claimed, length, segments
    rows[-1, 1:] = last[:-1]
    path = tmp_path / "table"
    with path.open("wb") as file:
        file.seek(8 * (parts - 1) * words)
        assert file.tell() > 1 << 35
        file.write(last.table.data)
    table = np.memmap(path, dtype=np.uint8, mode="r")
    keys = int(rows[:, KEYS].sum())
    header = {**made(1, 2.0**-14).header(), "keys": keys, "capacity": keys, "parts": parts}
    seen = Fuse.from_parts(header, [table.data, rows.data.cast("B")])
    assert len(seen) == keys
    asked = np.stack([np.full_like(held, (1 << 64) - 1), held], axis=1)
    assert seen.contains_many(asked).all()
    asked[:, 1] += np.uint64(1)
    assert np.count_nonzero(seen.contains_many(asked)) < 5


@pytest.mark.usefixtures("small_parts")
def test_directories_that_do_not_fit_are_refused() -> None:
    """A row that leads out of the table, overlaps, or miscounts is refused, before any slot is read."""
    seen = made(2500)
    header = seen.header()
    for row in range(3):
        for column in range(COLUMNS):
            table, rows = copies(seen)
            directory = np.frombuffer(rows, dtype=np.uint64).reshape(-1, COLUMNS)
            value = int(directory[row, column])
            wrongs = {0, value - 1, value + 1, 2 * value, value // 2, 1 << 32, (1 << 64) - 1}
            if column == SEED:
                # no other seed can be told from the right one
                wrongs = {SEEDS_MAX, 1 << 32, (1 << 64) - 1}
            for wrong in wrongs - {value, -1}:
                directory[row, column] = wrong
                with pytest.raises(
                    ValueError,
                    match=r"part of a list cannot|more keys than|but the header describes",
                ):
                    Fuse.from_parts(header, [table, rows])
            directory[row, column] = value
            assert state(Fuse.from_parts(header, [table, rows])) == state(seen)


@table(
    [
        (0, 0, 0),
        (0, 64, 1),
        (5, 64, 0),
        (193, 64, 1),
        (10, 48, 1),
        (10, 2 * peel.LENGTH_MAX, 1),
    ]
)
def test_parts_that_cannot_be_are_refused_though_all_sums_agree(row: tuple[int, int, int]) -> None:
    """Header, directory and table of one size, for a part that no list has: ValueError."""
    keys, length, segments = row
    header = {**made(1, 0.5).header(), "keys": keys, "capacity": max(1, keys)}
    part = np.array([0, keys, 0, length, segments], dtype=np.uint64)
    table = bytearray(8 * (words_of(length, segments, 1) + 8))
    with pytest.raises(ValueError, match="part of a list cannot"):
        Fuse.from_parts(header, [memoryview(table), part.data.cast("B")])
