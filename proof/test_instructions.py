"""Claims about instructions that kernels call: they give what Python's integers and bytes give."""

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.instructions import bits_set, copy_bytes, lanes_within, prefetch, upper_half

WORDS = st.integers(0, (1 << 64) - 1).map(np.uint64)
NUMBERS = st.integers(0, (1 << 32) - 1)

_copied: Any = numba.njit(lambda *arguments: copy_bytes(*arguments))  # noqa: PLW0108
_upper_half_of: Any = numba.njit(lambda a, b: upper_half(a, b))  # noqa: PLW0108 - an intrinsic is no function
_prefetched: Any = numba.njit(lambda words, at: prefetch(words, at))  # noqa: PLW0108
_bits_set_in: Any = numba.njit(lambda word: bits_set(word))  # noqa: PLW0108
_within: Any = numba.njit(lambda *arguments: lanes_within(*arguments))  # noqa: PLW0108


@given(WORDS, WORDS)
@settings(deadline=None)  # the first call compiles
def test_the_upper_half_is_that_of_the_product(a: np.uint64, b: np.uint64) -> None:
    """The upper 64 bits of a product of two words are those of Python's integers."""
    assert int(_upper_half_of(a, b)) == int(a) * int(b) >> 64


@given(WORDS)
@settings(deadline=None)
def test_prefetching_does_no_harm(at: np.uint64) -> None:
    """A place outside of the array may be prefetched: nothing is read, nothing changes."""
    words = np.arange(3, dtype=np.uint64)
    _prefetched(words, at)
    assert words.tolist() == [0, 1, 2]


@given(WORDS)
@settings(deadline=None)
def test_bits_are_counted(word: np.uint64) -> None:
    """As many as Python counts."""
    assert int(_bits_set_in(word)) == int(word).bit_count()


@given(
    st.lists(NUMBERS, min_size=10, max_size=10),
    st.integers(0, 1),
    NUMBERS | st.integers((1 << 32) - 9, 1 << 33),
    st.integers(0, 31),
    NUMBERS,
)
@settings(deadline=None)
def test_numbers_within_a_range_are_found(
    numbers: list[int], at: int, start: int, shift: int, size: int
) -> None:
    """Those for which the formula holds, whatever lies beside them, also if the range goes on at 0."""
    words = np.array(numbers, dtype="<u4").view(np.uint64)
    found = _within(words, *map(np.uint64, (at, start, shift, size)))
    eight = numbers[2 * at : 2 * at + 8]
    near = [(number - start) * 2**shift % 2**32 < size for number in eight]
    assert int(found) == sum(is_near << i for i, is_near in enumerate(near))


@given(st.binary(max_size=300), st.data())
@settings(deadline=None)
def test_bytes_are_copied(given: bytes, data: Any) -> None:
    """From their place to the other, and no other byte changes."""
    start, at, room = (data.draw(st.integers(0, most)) for most in (len(given), 50, 50))
    count = data.draw(st.integers(0, len(given) - start))
    source, out = np.frombuffer(given, np.uint8), np.full(at + count + room, 7, np.uint8)
    _copied(source, *map(np.uint64, (start, count)), out, np.uint64(at))
    assert out.tobytes() == b"\7" * at + given[start : start + count] + b"\7" * room


def test_only_bytes_are_copied() -> None:
    """Of other numbers, with steps between them, to what is read-only, or from a signed place: nothing is copied."""
    eight, one = np.zeros(8, np.uint8), np.uint64(1)
    fixed = np.frombuffer(bytes(8), np.uint8)
    for arguments in (
        (eight, 1, one, eight, one),
        (eight, one, one, eight.view(np.int8), one),
        (eight[::2], one, one, eight, one),
        (eight, one, one, fixed, one),
    ):
        with pytest.raises(numba.TypingError):
            _copied(*arguments)


def test_only_words_are_taken() -> None:
    """Of a signed integer there is no upper half, no bits are counted, and nothing is prefetched."""
    with pytest.raises(numba.TypingError):
        _upper_half_of(1, -1)
    with pytest.raises(numba.TypingError):
        _bits_set_in(-1)
    with pytest.raises(numba.TypingError):
        _prefetched(np.arange(3, dtype=np.uint64), -1)
    with pytest.raises(numba.TypingError):
        _prefetched(np.arange(6, dtype=np.uint64)[::2], np.uint64(1))


def test_only_ranges_of_words_are_looked_through() -> None:
    """Not a signed place, other numbers than words, or words with steps between them."""
    words, one = np.arange(8, dtype=np.uint64), np.uint64(1)
    assert _within(words, one, one, one, one) == 0b1
    for arguments in (
        (words, 1, one, one, one),
        (words, one, one, one, -1),
        (words.view(np.uint32), one, one, one, one),
        (words[::2], one, one, one, one),
    ):
        with pytest.raises(numba.TypingError):
            _within(*arguments)
