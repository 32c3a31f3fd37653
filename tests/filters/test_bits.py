"""Where the bits of a digest stand in Bloom filters and bitmaps: by the documented sequences, to the bit."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup import filters
from streamdedup.filters.base import Filter
from streamdedup.filters.bloom.blocked import BlockedBloom
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.filters.bloom.counting import Counting
from streamdedup.filters.cuckoo.cuckoo import Cuckoo
from streamdedup.filters.sizing import BLOCK_BITS
from tests.filters.cases import Case, as_digests, copies, random_digests
from tests.rows import table

MULTIPLIER = 0xD1342543DE82EF95
BITS = [
    Case("bloom"),
    Case("bloom", {"probe": "double"}),
    Case("bitmap"),
    Case("bitmap", {"probe": "double"}),
    Case("blocked"),
]

words = st.integers(0, 2**64 - 1)


def probed(a: int, b: int, size: int, hashes: int, probe: str = "standard") -> list[int]:
    """The places of a digest among `size`, in integers that do not overflow."""
    if probe == "double":
        step = b % size or 1
        return [(a + i * step) % size for i in range(hashes)]
    places = []
    for _ in range(hashes):
        places.append(a * size >> 64)
        a = (a * MULTIPLIER + b) % 2**64
    return places


def places_in(seen: Any, a: int, b: int) -> list[int]:
    """The bits of a digest in a filter. Those of a blocked one are in one block; a bitmap has one."""
    if not isinstance(seen, BlockedBloom):
        return probed(a, b, seen.bits, getattr(seen, "hashes", 1), seen.header()["probe"])
    block = a * seen.blocks >> 64
    places = []
    for _ in range(seen.hashes):
        places.append(block * BLOCK_BITS + (b >> 55))
        b = (b * MULTIPLIER + a) % 2**64
    return places


def bits_of(seen: Any) -> int:
    """How many bits there are."""
    return int(seen.blocks * BLOCK_BITS if isinstance(seen, BlockedBloom) else seen.bits)


@table(BITS)
@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(words, words), max_size=30),
    st.integers(1, 3000),
    st.sampled_from([0.5, 0.1, 1e-3, 1e-9]),
)
def test_bits_land_where_the_formula_says(
    case: Case, rows: list[tuple[int, int]], capacity: int, error_rate: float
) -> None:
    """The table is what big integers give; a digest is present where all its bits are."""
    lowest = 1e-3 if case.kind == "bitmap" else 0
    seen: Any = case.build(capacity, max(error_rate, lowest))
    model = 0
    fresh = []
    for row in rows:
        mask = sum({1 << at for at in places_in(seen, *row)})
        fresh.append(mask & ~model != 0)
        model |= mask
    assert seen.add_many(as_digests(rows)).tolist() == fresh
    assert bytes(seen.buffers()[0]) == model.to_bytes(seen.size_bytes, "little")
    assert seen.fill_ratio == pytest.approx(model.bit_count() / bits_of(seen), rel=1e-12)
    others = [(b, a) for a, b in rows]
    assert seen.contains_many(as_digests(others)).tolist() == [
        all(model >> at & 1 for at in places_in(seen, *row)) for row in others
    ]


@table([Bloom, BlockedBloom])
def test_keys_whose_bits_were_not_saved_do_not_count(kind: type[Any]) -> None:
    """A snapshot's header may be newer than its bits: there are never more keys than bits that are set."""
    seen = kind(100, 1e-3)
    seen.add_many(random_digests(41, 2))
    restored = kind.from_parts({**seen.header(), "keys": 90}, seen.buffers())
    assert len(restored) == round(restored.fill_ratio * bits_of(restored)) < 90


def test_bits_beyond_the_last_are_refused() -> None:
    """A bit that is set in the last word, after the last one that is used, is damage."""
    bloom, counting, cuckoo = Bloom(100, 1e-3), Counting(100, 1e-3), Cuckoo(100, 1e-3)
    bits: list[tuple[Filter, int]] = [(bloom, bloom.bits), (counting, 4 * counting.counters)]
    bits.append((cuckoo, 4 * cuckoo.buckets * cuckoo.fingerprint_bits))
    for seen, used in bits:
        end = 8 * seen.buffers()[0].nbytes
        assert used % 64
        for at in (used - 1, used, end - 1):
            parts = copies(seen)
            parts[0][at // 8] |= 1 << at % 8
            if at < used:
                assert filters.from_parts(seen.header(), parts).fill_ratio > 0
            else:
                with pytest.raises(ValueError, match="beyond the last"):
                    filters.from_parts(seen.header(), parts)
