"""Hashes of `ClassicBloom`, and its errors, on many keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup import ClassicBloom
from streamdedup.filters.bloom.classic import STRING_HASHES
from tests.rows import table


def test_salted_md5_errs_as_the_theorem_says() -> None:
    """With 10 bits a key and 7 hashes 0.82 % of other keys are found, of sequential ids, too."""
    seen = ClassicBloom(50_000, 7)
    for i in range(5000):
        seen.add(f"{i}")
    found = sum(f"{i}" in seen for i in range(5000, 35_000))
    assert seen.expected_error(5000) == pytest.approx(0.00819, rel=2e-3)
    assert found / 30_000 == pytest.approx(0.00819, rel=0.35)
    assert (seen.bits, seen.hashes, seen.size_bytes) == (50_000, 7, 6256)


@table(STRING_HASHES)
@given(key=st.binary(max_size=80))
def test_string_hashes_have_32_bits(name: str, key: bytes) -> None:
    """Whatever the key, long ones too, a hash is an unsigned integer of 32 bits."""
    assert 0 <= STRING_HASHES[name](key) < 1 << 32


@given(st.binary(max_size=40))
def test_the_hash_of_elf_files_is_that_of_pjw(key: bytes) -> None:
    """Written as in the System V interface, it gives the same for every key, so the two count as one hash."""
    state = 0
    for byte in key:
        state = ((state << 4) + byte) & 0xFFFFFFFF
        high = state & 0xF0000000
        if high:
            state ^= high >> 24
        state &= ~high & 0xFFFFFFFF
    assert STRING_HASHES["elf"](key) == state
