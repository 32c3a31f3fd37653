"""Claims about the bytes of a key: whoever knows the format reads the key from them, so no two keys share them."""

import enum
import traceback
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import permutations
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamdedup.keys.encoding import DEPTH_MAX, SIZE_MAX, Key, encoded
from streamdedup.keys.hashing import KERNEL_FROM, MURMUR3, Hash
from tests.rows import table

SIPHASH = Hash("siphash", bytes(range(16)))
ID = UUID("12345678-9abc-4def-8123-456789abcdef")


class Color(enum.IntEnum):
    """An integer with a name."""

    RED = 5


class Point(NamedTuple):
    """A tuple with names."""

    x: int
    y: str


texts = st.text(st.characters(codec="utf-8"), max_size=9)
binary = st.binary(max_size=9) | st.binary(max_size=9).map(b"\xff".__add__)
integers = st.integers() | st.integers(-(2**200), 2**200)
single = texts | binary | integers | st.uuids()
keys = st.recursive(single, lambda parts: st.lists(parts, max_size=4).map(tuple), max_leaves=9)


def decoded(content: bytes) -> Any:
    """Return the key that has these bytes, a text as its UTF-8."""
    tag, rest = content[:2], content[2:]
    if content[:1] != b"\xff":
        return content
    if tag == b"\xffb":
        assert rest[:1] == b"\xff"
        return rest
    if tag == b"\xffi":
        return int.from_bytes(rest, "big", signed=True)
    if tag == b"\xffu":
        return UUID(bytes=rest)
    assert tag == b"\xfft"
    parts = []
    while rest:
        end = 4 + int.from_bytes(rest[:4], "little")
        parts.append(decoded(rest[4:end]))
        assert end <= len(rest)
        rest = rest[end:]
    return tuple(parts)


def without_texts(key: Any) -> Any:
    """Return the key with the UTF-8 of each text in its place."""
    if isinstance(key, tuple):
        return tuple(map(without_texts, key))
    return key.encode() if isinstance(key, str) else key


@given(keys)
@example(())
@example((b"", "", ()))
@example(b"\xffi\x05")
@example((b"\xff", (b"\xfft",)))
@example(-1)
def test_a_key_can_be_read_from_its_bytes(key: Key) -> None:
    """So two keys have the same bytes only if they are equal, apart from a text and its UTF-8."""
    assert decoded(encoded(key)) == without_texts(key)


@given(st.lists(keys, min_size=2, max_size=2))
def test_keys_have_one_digest_if_and_only_if_they_are_equal(two: list[Key]) -> None:
    """As in a `dict`, where a text is its UTF-8."""
    one, other = two
    is_equal = without_texts(one) == without_texts(other)
    assert (MURMUR3.digest(one) == MURMUR3.digest(other)) == is_equal


@table(
    [
        ("", ""),
        ("é", "c3a9"),
        (b"\xfe", "fe"),
        (b"\xff", "ff62ff"),
        (b"\xffb", "ff62ff62"),
        (0, "ff6900"),
        (1, "ff6901"),
        (-1, "ff69ff"),
        (127, "ff697f"),
        (128, "ff690080"),
        (-128, "ff6980"),
        (-129, "ff69ff7f"),
        (255, "ff6900ff"),
        (-256, "ff69ff00"),
        (2**63, "ff69008000000000000000"),
        (-(2**63), "ff698000000000000000"),
        (ID, "ff75123456789abc4def8123456789abcdef"),
        ((), "ff74"),
        (("",), "ff7400000000"),
        (("a", 5), "ff74010000006103000000ff6905"),
        ((("a",), b"\xff"), "ff7407000000ff74010000006103000000ff62ff"),
    ]
)
def test_the_bytes_of_keys(key: Key, content: str) -> None:
    """As docs/keys.md states them: filters on disk were made of these."""
    assert encoded(key).hex() == content


@table(
    [
        (5, "939c7cb7ef69043b6dd1156f45304edc", "4d9efe75397e4fc6a6cc964ac584e274"),
        (ID, "fb422488e6009a72eb7fa4c2a24163ed", "1657582aba3045e9f013e08a2650c450"),
        (("a", 5), "7d7565c78c7ed40826cd7e3fe1626700", "fe4e677154a5ce044096960a1ef81c95"),
        (b"\xff\xfe", "3f97e61f086ef2b619c4a494df41d5b8", "5dcd0a75e0cc18c27509caeacc314502"),
    ]
)
def test_digests_never_change(key: Key, murmur3: str, siphash: str) -> None:
    """Of a key alone and in a batch, under both hashes."""
    for hash_, digest in ((MURMUR3, murmur3), (SIPHASH, siphash)):
        for found in (np.array([hash_.digest(key)], np.uint64), hash_.digests([key])):
            assert found.astype("<u8").tobytes().hex() == digest


@table(
    [
        (5, (Color.RED, np.int64(5), np.uint8(5), np.int8(5))),
        (2**64 - 1, (np.uint64(2**64 - 1),)),
        ("a", (np.str_("a"), b"a", np.bytes_(b"a"))),
        ((1, "a"), (Point(1, "a"), (np.int16(1), b"a"))),
    ]
)
def test_what_python_calls_equal_is_one_key(key: Key, others: tuple[Any, ...]) -> None:
    """Subclasses, and the integers of numpy."""
    for other in others:
        assert encoded(other) == encoded(key)
        assert MURMUR3.digests([other, key]).tolist() == [list(MURMUR3.digest(key))] * 2


@table(
    [
        (True, "bool, and True would be the integer 1; give int"),
        (np.bool_(True), "numpy.bool"),
        (0.5, "float, not str, bytes, int, uuid.UUID or a tuple of these"),
        (np.float64(5), "numpy.float64, not str"),
        (Decimal(5), "decimal.Decimal"),
        (Fraction(5), "fractions.Fraction"),
        (None, "NoneType"),
        (["sekrit"], "list"),
        (frozenset(["sekrit"]), "frozenset"),
        (bytearray(b"sekrit"), "bytearray"),
        (np.array(5), "numpy.ndarray"),
    ]
)
def test_what_is_no_key_is_named_by_its_type(wrong: Any, named: str) -> None:
    """Alone, in a tuple, and in a batch with its row; never with its content."""
    alone: list[Callable[[Any], Any]] = [MURMUR3.digest, SIPHASH.digest]
    batch: list[Callable[[Any], Any]] = [MURMUR3.digests, SIPHASH.digests]
    few, many = ["sekrit", 3], ["sekrit"] * KERNEL_FROM + [3]
    for calls, key, name in (
        (alone, wrong, "the key is of type "),
        (alone, ("sekrit", (wrong,)), "a part of the key is of type "),
        (batch, [*few, wrong], "key 2 is of type "),
        (batch, [*many, ("sekrit", wrong)], f"a part of key {KERNEL_FROM + 1} is of type "),
    ):
        for call in calls:
            with pytest.raises(TypeError, match=name + named) as caught:
                call(key)
            assert "sekrit" not in traceback.format_exception_only(caught.value)[0]


def within(key: Key, depth: int) -> Key:
    """Return a tuple of a tuple, and so on, of the key."""
    for _ in range(depth):
        key = (key,)
    return key


@table(
    [
        (within("a", DEPTH_MAX + 1), "a part of the key is the 17th tuple within another"),
        (("a" * (SIZE_MAX - 3),), "the key is a tuple of more than 1,048,576 bytes"),
        (((b"a" * SIZE_MAX,), 1), "a part of the key is a tuple of more than 1,048,576 bytes"),
        (1 << 8 * SIZE_MAX - 1, "the key is an integer of 1,048,577 bytes, above 1,048,576"),
        (("sekrit\ud800",), "a part of the key has a lone surrogate"),
    ]
)
def test_what_is_too_large_is_refused(wrong: Any, named: str) -> None:
    """A ValueError says what of it, and the limit."""
    with pytest.raises(ValueError, match=named) as caught:
        MURMUR3.digest(wrong)
    assert "sekrit" not in traceback.format_exception_only(caught.value)[0]


def test_what_is_just_within_the_limits_is_a_key() -> None:
    """A byte more is refused above."""
    for key in (
        within("a", DEPTH_MAX),
        ("a" * (SIZE_MAX - 4),),
        (1 << 8 * SIZE_MAX - 1) - 1,
        -(1 << 8 * SIZE_MAX - 1),
    ):
        assert decoded(encoded(key)) == without_texts(key)


def test_a_tuple_that_holds_itself_many_times_is_refused_at_the_limit() -> None:
    """It would have 1000^15 parts, and takes as long as one of the largest size."""
    key: Any = ()
    for _ in range(DEPTH_MAX - 1):
        key = (key,) * 1000
    with pytest.raises(ValueError, match="of more than 1,048,576 bytes"):
        MURMUR3.digest(key)


@pytest.mark.parametrize("hash_", [MURMUR3, SIPHASH], ids=lambda hash_: hash_.name)
def test_a_list_of_integers_is_as_each_alone(hash_: Hash) -> None:
    """Of any size, at each border of a byte, few or many; with larger ones, or others, among them."""
    borders = [
        sign * (1 << bits) + add for bits in range(65) for sign in (1, -1) for add in (-1, 0, 1)
    ]
    small = [number for number in borders if -(2**63) <= number < 2**63]
    lists: list[list[Any]] = [small[:9], small * 3, borders * 3]
    for numbers in (*lists, [*small * 3, "7"], [*small * 3, Color.RED]):
        expected = [list(hash_.digest(number)) for number in numbers]
        assert hash_.digests(numbers).tolist() == expected
    with pytest.raises(TypeError, match=f"key {3 * len(small)} is of type bool"):
        hash_.digests([*small * 3, True])


@table(
    [
        [*two, *more]
        for two in permutations((3, "a", b"\xff\x01", ID, (1, "b")), 2)
        for more in ("", "c")
    ]
)
def test_a_tuple_of_keys_is_a_batch(batch: list[Key]) -> None:
    """As a list of them is, but for `bytes` with a tuple, which may be meant as a buffer with its offsets."""
    expected = [list(MURMUR3.digest(key)) for key in batch]
    assert MURMUR3.digests(batch).tolist() == expected
    if batch == [b"\xff\x01", (1, "b")]:
        with pytest.raises(TypeError, match="offsets are of type tuple"):
            MURMUR3.digests(tuple(batch))
    else:
        assert MURMUR3.digests(tuple(batch)).tolist() == expected
