"""Claims about the static kind: no key of its list is absent, and errors and sizes are the theorem's.

Nothing but the set of keys decides the table. Whoever gives hostile keys or parts gets an error, not a wrong answer.
"""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamdedup
from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.filters.base import Addable, Static
from streamdedup.filters.fuse import fuse, peel
from streamdedup.filters.fuse.fuse import (
    COLUMNS,
    KEYS,
    LENGTH,
    SEED,
    SEGMENTS,
    START,
    Fuse,
    divided,
)
from streamdedup.filters.fuse.peel import SEEDS_MAX, build_part, words_of
from streamdedup.filters.sizing import fuse_bits, fuse_size
from streamdedup.keys.hashing import MURMUR3, Digests, Hash
from tests.filters.cases import HASH_KEY, band, copies, random_digests, state

PERCENT_039, PERCENT_00015 = 2.0**-8, 2.0**-16  # 0.39 % and 0.0015 %, as the literature rounds them
ABSENT = 6_000_000


def made(count: int, error_rate: float = 0.01, seed: int = 1) -> Fuse:
    """The filter of `count` random digests."""
    return Fuse.from_digests(random_digests(seed, count), error_rate)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 1000 keys, so that a short list has many."""
    monkeypatch.setattr(fuse, "PART_KEYS", 1000)


# --- membership ---


@pytest.mark.parametrize("error_rate", [0.01, PERCENT_00015])
def test_a_million_keys_are_all_found(error_rate: float) -> None:
    """Not one of a million is absent."""
    seen = made(1_000_000, error_rate)
    assert seen.contains_many(random_digests(1, 1_000_000)).all()
    assert len(seen) == seen.capacity == 1_000_000


@pytest.mark.parametrize("bits", [1, 7, 8, 31, 32])
def test_lists_of_every_short_length_are_found(bits: int) -> None:
    """All of 0 to 100 keys, at fingerprints that lie across words and that do not."""
    for count in range(101):
        seen = made(count, 2.0**-bits)
        assert len(seen) == count
        assert seen.contains_many(random_digests(1, count)).all()
        assert (bits < 31) or not seen.contains_many(random_digests(2, 1000)).any()


@pytest.mark.parametrize("bits", range(1, 33))
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


def test_an_empty_list_has_no_key() -> None:
    """No keys: nothing is present, not even by error."""
    seen = made(0, 0.5)
    assert not seen.contains_many(random_digests(2, 1000)).any()
    assert "a" not in seen
    assert (len(seen), seen.fill_ratio, seen.error_rate_now, seen.expected_error(0)) == (0, 0, 0, 0)
    assert seen.contains_many(seen.digests([])).shape == (0,)


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


def test_siphash_digests_serve_as_well() -> None:
    """A filter carries its hash, and asks single keys by it."""
    keyed = Hash("siphash", HASH_KEY)
    seen = Fuse.from_digests(keyed.digests(["a", "b"]), 1e-9, keyed)
    assert "a" in seen
    assert "c" not in seen
    restored = filters.from_parts(seen.header(), copies(seen), keyed)
    assert state(restored) == state(seen)
    with pytest.raises(ValueError, match="another hash than the given murmur3"):
        Fuse.from_parts(seen.header(), copies(seen), MURMUR3)


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


@pytest.mark.parametrize(
    ("error_rate", "bits", "bits_a_key"),
    [(0.01, 7, 7.92), (PERCENT_039, 8, 9.05), (0.001, 10, 11.31), (PERCENT_00015, 16, 18.1)],
)
def test_a_million_keys_cost_what_the_paper_says(
    error_rate: float, bits: int, bits_a_key: float
) -> None:
    """1.13 times the bits of fingerprint: 9.04 at 0.39 %, 18.1 at 0.0015 %; and the sizes follow from the theorem."""
    seen = made(1_000_000, error_rate)
    assert seen.bits == fuse_bits(error_rate) == bits
    assert bits * 1.125 < seen.size_bytes * 8 / 1_000_000 < bits_a_key
    assert seen.size_bytes == sum(len(buffer) for buffer in seen.buffers())


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


@pytest.mark.parametrize("template", ["%d", "user%d@example.com", "https://shop.example/p?id=%d"])
def test_structured_keys_err_no_more_than_random_ones(template: str) -> None:
    """Sequential ids, addresses of one domain and URLs of one site meet theory, too."""
    seen = Fuse.from_digests(MURMUR3.digests([template % i for i in range(50_000)]), 0.01)
    found = seen.contains_many(seen.digests([template % i for i in range(50_000, 200_000)]))
    low, high = band(seen.error_rate * 150_000)
    assert low < np.count_nonzero(found) < high


@given(st.integers(1, 1 << 26))
def test_every_size_has_room(keys: int) -> None:
    """1.125 slots a key or more, in segments of a power of two; a segment at most above the paper's factor."""
    length, segments = fuse_size(keys)
    assert length & (length - 1) == 0
    assert length <= peel.LENGTH_MAX
    slots = (segments + 2) * length
    factor = max(1.125, 0.875 + 0.25 * math.log(1e6) / math.log(max(keys, 2)))
    assert factor * keys - 1 <= slots <= max(factor * keys + length + 1, 3 * length)


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


@pytest.mark.parametrize("error_rate", [0.0, 1.0, -0.1, math.nan, math.inf, 2.0**-33])
def test_impossible_error_rates_are_named(error_rate: float) -> None:
    """What cannot be, and what takes more than 32 bits, is the operator's error."""
    with pytest.raises(ConfigError, match=rf"filter\.error_rate is {error_rate}"):
        Fuse.from_digests(random_digests(1, 10), error_rate)


def test_impossible_announcements_are_named() -> None:
    """A negative number of keys, or more than any filter holds."""
    for hint in (-1, 10**14):
        with pytest.raises(ConfigError, match=f"a list of {hint} keys"):
            Fuse.from_chunks([], hint, 0.01)


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.uint32])
def test_what_is_no_digest_is_refused(dtype: type[np.generic]) -> None:
    """Arrays that a kernel would misread are refused, in building and in asking."""
    wrong: Any
    for wrong in (np.ones((3, 2), dtype), np.ones((3, 1), np.uint64), np.ones(6, np.uint64)):
        for call in (made(10).contains_many, lambda digests: Fuse.from_digests(digests, 0.01)):
            with pytest.raises(TypeError, match="digests are uint64"):
                call(wrong)


# --- static ---


def test_it_is_static_and_nothing_else() -> None:
    """The Protocols tell what it can do."""
    seen = made(10)
    assert isinstance(seen, Static)
    assert not isinstance(seen, Addable)
    with pytest.raises(ConfigError, match="build it again"):
        seen.add("a")


@pytest.mark.parametrize("options", [{}, {"capacity": 10}, {"capacity": 10, "error_rate": 0.1}])
def test_no_empty_one_can_be_built(options: dict[str, Any]) -> None:
    """Where a filter is needed that grows, the configuration is refused, with what to do."""
    with pytest.raises(ConfigError, match=r"fuse, .* built once.* choose another kind"):
        filters.build({"kind": "fuse", **options})
    with pytest.raises(
        ConfigError, match=r"from all of its keys, by build or by Fuse\.from_digests"
    ):
        Fuse(**options)


# --- hostile keys ---


def unmixed(hash_: int, seed: int) -> int:
    """The key that `peeling.mixed` makes `hash_` of."""
    for multiplier in (0xC4CEB9FE1A85EC53, 0xFF51AFD7ED558CCD):
        hash_ ^= hash_ >> 33
        hash_ = hash_ * pow(multiplier, -1, 1 << 64) % (1 << 64)
    hash_ ^= hash_ >> 33
    return (hash_ - seed * 0x9E3779B97F4A7C15) % (1 << 64)


def colliding(seed: int, count: int) -> list[int]:
    """Keys whose three slots in a short list are the same, with this seed."""
    return [unmixed(0x1234 << 48 | i << 36 | seed, seed) for i in range(count)]


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
        assert restored.contains_many(random_digests(1, count)).all()
        assert (restored.contains_many(absent) == seen.contains_many(absent)).all()


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


def test_tables_begin_on_a_cache_line() -> None:
    """The table's address is a multiple of 64; buffers are plain bytes that nobody changes."""
    for count in (0, 1, 63, 1000):
        (table, _) = made(count).buffers()
        assert np.frombuffer(table, np.uint8).ctypes.data % 64 == 0
        for view in made(count).buffers():
            assert (view.format, view.contiguous, view.readonly) == ("B", True, True)


def test_headers_that_do_not_fit_are_refused() -> None:
    """Every field missing, of another type, or one off: ValueError."""
    seen = made(50)
    header, parts = seen.header(), copies(seen)
    for name, value in header.items():
        wrongs: list[Any] = [None, "x", -1, 1 << 70, 1.5, math.nan, [], 0, True]
        if isinstance(value, int):
            wrongs += [value - 1, value + 1]
        for wrong in wrongs:
            with pytest.raises(ValueError, match=r"."):
                Fuse.from_parts({**header, name: wrong}, parts)
        with pytest.raises(ValueError, match=r"."):
            Fuse.from_parts({field: v for field, v in header.items() if field != name}, parts)


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


@pytest.mark.parametrize(
    ("keys", "length", "segments"),
    [
        (0, 0, 0),
        (0, 64, 1),
        (5, 64, 0),
        (193, 64, 1),
        (10, 48, 1),
        (10, 2 * peel.LENGTH_MAX, 1),
    ],
)
def test_parts_that_cannot_be_are_refused_though_all_sums_agree(
    keys: int, length: int, segments: int
) -> None:
    """Header, directory and table of one size, for a part that no list has: ValueError."""
    header = {**made(1, 0.5).header(), "keys": keys, "capacity": max(1, keys)}
    row = np.array([0, keys, 0, length, segments], dtype=np.uint64)
    table = bytearray(8 * (words_of(length, segments, 1) + 8))
    with pytest.raises(ValueError, match="part of a list cannot"):
        Fuse.from_parts(header, [memoryview(table), row.data.cast("B")])


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


def test_a_layout_is_kept_for_ever() -> None:
    """The three slots of every key, as Python's integers find them in the documented layout, give its fingerprint."""
    keys: Digests = random_digests(1, 500)
    seen = Fuse.from_digests(keys, 2.0**-11)
    start, _, seed, length, segments = np.frombuffer(seen.buffers()[1], np.uint64).tolist()
    table = int.from_bytes(seen.buffers()[0], "little") >> (64 * start)
    for b in keys[:, 1].tolist():
        hash_ = (b + seed * 0x9E3779B97F4A7C15) % (1 << 64)
        for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            hash_ = (hash_ ^ hash_ >> 33) * multiplier % (1 << 64)
        hash_ ^= hash_ >> 33
        one = (hash_ >> 32) * length * segments >> 32
        two = one + length ^ hash_ >> 18 & length - 1
        three = one + 2 * length ^ hash_ & length - 1
        told = 0
        for slot in (one, two, three):
            told ^= table >> 11 * slot & 2047
        assert told == hash_ * 0xD1342543DE82EF95 % (1 << 64) >> 53


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
