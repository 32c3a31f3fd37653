"""Claims about digests: they are MurmurHash3 x64 128 with seed 0, and will stay so."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.keys import hashing
from streamdedup.keys.hashing import checked, digests

WORD = (1 << 64) - 1
C1, C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F  # constants of the algorithm, A. Appleby 2011


@pytest.mark.parametrize(
    ("key", "first", "second"),
    [  # seed 0, as published in the tests of Guava's Murmur3Hash128
        (b"", 0, 0),
        (b"hell", 0x629942693E10F867, 0x92DB0B82BAEB5347),
        (
            b"The quick brown fox jumps over the lazy dog",
            0xE34BBC7BBC071B6C,
            0x7A433CA9C49A9347,
        ),
    ],
)
def test_published_vectors(key: bytes, first: int, second: int) -> None:
    """A digest is the pair of words that other implementations publish, in their order."""
    assert digests([key]).tolist() == [[first, second]]


@given(st.lists(st.binary(max_size=70), max_size=20))
def test_agrees_with_the_algorithm_written_out(keys: list[bytes]) -> None:
    """Keys of any length, block borders included, hash as the published algorithm says."""
    assert digests(keys).tolist() == [list(_murmur3_x64_128(key)) for key in keys]


def test_the_check_value_never_changes() -> None:
    """Snapshots store this value: another one means that every filter on disk is lost."""
    assert hashing.HASH_ID == "murmur3_x64_128/0"
    assert hashing.HASH_CHECK == "cddf1073b55db7f8328e11423406045d"


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_shape_and_type(count: int) -> None:
    """However many keys there are, the digests are uint64 of shape (n, 2)."""
    found = digests([b"%d" % i for i in range(count)])
    assert found.shape == (count, 2)
    assert found.dtype == np.uint64


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((3, 2), np.int64),
        np.zeros((3, 2), np.float64),
        np.zeros((3, 2), np.uint32),
        np.zeros((3, 2), ">u8"),
        np.zeros((3, 1), np.uint64),
        np.zeros((3, 3), np.uint64),
        np.zeros(6, np.uint64),
        np.zeros((3, 2, 1), np.uint64),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
def test_anything_else_is_refused(wrong: hashing.Digests) -> None:
    """An array that a kernel would misread is refused, with its type and shape in the message."""
    with pytest.raises(TypeError, match="uint64, shape"):
        checked(wrong)


def test_any_layout_is_made_contiguous() -> None:
    """Digests in another memory layout come back with the same values, in rows."""
    straight = digests([b"a", b"b", b"c"])
    for layout in (np.asfortranarray(straight), np.repeat(straight, 2, axis=0)[::2]):
        assert not layout.flags.c_contiguous
        assert checked(layout).flags.c_contiguous
        assert checked(layout).tolist() == straight.tolist()


def _murmur3_x64_128(key: bytes) -> tuple[int, int]:
    """MurmurHash3 x64 128 with seed 0 in Python's own integers."""
    first = second = 0
    whole = len(key) // 16 * 16
    for at in range(0, whole, 16):
        first ^= _scrambled(int.from_bytes(key[at : at + 8], "little"), C1, 31, C2)
        first = ((_rotated(first, 27) + second) * 5 + 0x52DCE729) & WORD
        second ^= _scrambled(int.from_bytes(key[at + 8 : at + 16], "little"), C2, 33, C1)
        second = ((_rotated(second, 31) + first) * 5 + 0x38495AB5) & WORD
    tail = key[whole:]
    first ^= _scrambled(int.from_bytes(tail[:8], "little"), C1, 31, C2) ^ len(key)
    second ^= _scrambled(int.from_bytes(tail[8:], "little"), C2, 33, C1) ^ len(key)
    first = (first + second) & WORD
    second = (second + first) & WORD
    first, second = _finished(first), _finished(second)
    first = (first + second) & WORD
    return first, (second + first) & WORD


def _scrambled(word: int, factor: int, by: int, then: int) -> int:
    return _rotated(word * factor & WORD, by) * then & WORD


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & WORD


def _finished(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & WORD
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & WORD
    return word ^ word >> 33
