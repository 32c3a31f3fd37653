"""The exact set in large tables, under crowds, and without memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamdedup.errors import ConfigError
from streamdedup.filters.exact import exact
from streamdedup.filters.exact.exact import Exact
from streamdedup.filters.exact.scan import WORDS_A_CALL
from streamdedup.filters.strain import CREDIT
from tests.filters.cases import as_digests, copies, random_digests, state
from tests.filters.test_exact import LAST


@pytest.mark.parametrize("size", [8, 16])
def test_beyond_its_capacity_it_grows_and_loses_nothing(size: int) -> None:
    """Three times as many keys as stated, in a table moved in several parts: all found, never above its load."""
    seen = Exact(200_000, fingerprint_bytes=size)
    keys, before = random_digests(50, 600_000), seen.size_bytes
    for part in np.array_split(keys, 4):
        assert seen.add_many(part).all()
        assert seen.contains_many(keys[: len(seen)]).all()
        assert seen.fill_ratio <= 0.8
    assert len(seen) == 600_000
    assert 3 * before < seen.size_bytes < 3.5 * before
    assert len(seen.buffers()[0]) > 8 * WORDS_A_CALL
    assert seen.capacity == 200_000
    assert not seen.contains_many(random_digests(51, 600_000)).any()
    assert state(Exact.from_parts(seen.header(), copies(seen))) == state(seen)


def test_slots_above_32_bit_indices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a table of more than 2^32 slots, in a sparse file, fingerprints stand beyond the 2^32nd and are found."""

    def sparse(words: int) -> Any:
        return np.memmap(tmp_path / "table", np.uint64, "w+", shape=(words,)).view(np.ndarray)

    monkeypatch.setattr(exact, "aligned_words", sparse)
    seen = Exact(4_000_000_000)
    assert seen.slots == 5_000_000_000 > 1 << 32
    digests = as_digests([(LAST, 1), (LAST, 2), (LAST - 1, 1), (15 << 60, 1), (1 << 60, 1), (0, 0)])
    assert seen.add_many(digests).tolist() == [True, False, True, True, True, True]
    table = np.frombuffer(seen.buffers()[0], np.uint64)
    for at, first in ((4_999_999_999, LAST - 1), (5_000_000_000, LAST), (4_687_500_000, 15 << 60)):
        assert table[at] == first
    assert seen.contains_many(digests).all()
    assert not seen.contains_many(as_digests([(LAST - 2, 1), (15 << 60 | 1, 1)])).any()
    assert seen.remove_many(digests).tolist() == [True, False, True, True, True, True]
    assert not any(table[at] for at in (4_999_999_999, 5_000_000_000, 4_687_500_000))


def test_keys_that_crowd_at_the_end_lengthen_the_tail_only() -> None:
    """First words chosen to have the last slot for their home: memory follows their number, and all are found.

    They would be refused much earlier; what they cost is allowed here.
    """
    seen = Exact(100_000)
    seen._counts[CREDIT] = 1 << 20
    slots = seen.slots
    crowd = np.column_stack(
        [LAST - np.arange(20_000, dtype=np.uint64), np.zeros(20_000, np.uint64)]
    )
    order = np.random.default_rng(1).permutation(len(crowd))
    assert seen.add_many(crowd[order]).all()
    assert seen.contains_many(crowd).all()
    assert seen.slots == slots
    assert 20_000 < seen.header()["tail"] < 40_000
    assert state(Exact.from_parts(seen.header(), copies(seen))) == state(seen)
    assert seen.remove_many(crowd[:10_000]).all()
    assert seen.contains_many(crowd).tolist() == [False] * 10_000 + [True] * 10_000


def test_without_memory_to_grow_it_says_so_and_keeps_its_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A clear error; what was in is found, and once there is room additions go on."""
    seen, keys = Exact(1000), random_digests(53, 1500)

    def none_left(_: int) -> Any:
        raise ConfigError("a filter does not fit into memory")

    with monkeypatch.context() as patched:
        patched.setattr(exact, "aligned_words", none_left)
        for change in (lambda: seen.add_many(keys), lambda: seen.add("one more")):
            with pytest.raises(ConfigError, match="does not fit into memory"):
                change()
        assert len(seen) == 1000
        assert seen.contains_many(keys).tolist() == [True] * 1000 + [False] * 500
        assert seen.remove_many(keys[:500]).all()
        assert seen.add_many(keys[1000:]).all()
    assert seen.add_many(keys[:500]).all()
    assert seen.contains_many(keys).all()


def test_a_table_whose_tail_is_full_is_refused() -> None:
    """In order or not: a search in it would not end."""
    seen = Exact(10_000)
    tail = seen.header()["tail"]
    (table,) = copies(seen)
    over = np.frombuffer(table, np.uint64)
    for crowd, fits in ((tail, True), (tail + 1, False)):
        over[seen.slots - 1 :][:crowd] = LAST - np.arange(crowd, dtype=np.uint64)[::-1]
        header = {**seen.header(), "keys": crowd}
        if fits:
            assert len(Exact.from_parts(header, [table])) == crowd
        else:
            with pytest.raises(ValueError, match="fingerprints, each in its place"):
                Exact.from_parts(header, [table])


def test_a_second_word_without_a_first_is_refused() -> None:
    """An empty slot of 16 bytes is empty in both halves."""
    seen = Exact(100, fingerprint_bytes=16)
    (table,) = copies(seen)
    np.frombuffer(table, np.uint64)[11] = 1
    with pytest.raises(ValueError, match="fingerprints, each in its place"):
        Exact.from_parts(seen.header(), [table])
