"""Claims about `ClassicBloom`: the worked examples of the literature, its hashes to the bit, and what it refuses."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamdedup
from streamdedup import ClassicBloom, filters
from streamdedup.errors import ConfigError
from streamdedup.filters.bloom.classic import STRING_HASHES
from tests.broker.base import DEADLINE_S
from tests.rows import table

ADDRESS = "user@example.com"
SINGLE: list[Callable[[Any], int]] = [lambda x: x % 8]
THREE = [*SINGLE, lambda x: (x + 11) % 7, lambda x: (x + 13) % 7]


# --- the worked examples ---


def test_one_hash_has_a_false_positive() -> None:
    """With m = 8 and x mod 8: after 15 and 21, 11 is absent and 13 is found though nobody added it."""
    seen = ClassicBloom(8, SINGLE)
    assert (seen.add(15), seen.add(21)) == (True, True)
    assert (15 in seen, 21 in seen, 11 in seen, 13 in seen) == (True, True, False, True)
    assert (seen.add(13), len(seen), seen.fill_ratio) == (False, 2, 2 / 8)


def test_three_hashes_have_it_no_more() -> None:
    """With (x + 11) mod 7 and (x + 13) mod 7 as well, 13 is absent."""
    seen = ClassicBloom(8, THREE)
    seen.add(15)
    seen.add(21)
    assert seen.positions(13) == [5, 3, 5]
    assert (15 in seen, 21 in seen, 13 in seen) == (True, True, False)


# --- hashes ---


@table([(ADDRESS, [851014, 613276, 40710]), ("a", [294147, 99859, 417480])])
def test_salted_md5_is_as_published(row: tuple[str, list[int]]) -> None:
    """r_i = md5(str(i - 1) + key) mod m for m = 1000003, of a `str` and of its UTF-8."""
    key, places = row
    seen = ClassicBloom(1_000_003, 3, family="salted_md5")
    assert seen.positions(key) == seen.positions(key.encode()) == places
    assert ClassicBloom(1_000_003, 64).positions(key)[:3] == places


@table(
    [
        ("js", 0xB8658B2E),
        ("pjw", 0x014D67DD),
        ("elf", 0x014D67DD),
        ("bkdr", 0xE989F350),
        ("sdbm", 0xFB542BC8),
        ("djb", 0x8F08BC9D),
        ("dek", 0xDFCE57F4),
        ("fnv1", 0x4F908A8B),
    ]
)
def test_string_hashes_are_as_published(row: tuple[str, int]) -> None:
    """In unsigned arithmetic of 32 bits, alone and as members of their family."""
    name, value = row
    assert STRING_HASHES[name](ADDRESS) == value
    assert ClassicBloom(1 << 32, [name]).positions(ADDRESS) == [value]
    place = list(STRING_HASHES).index(name)
    assert ClassicBloom(1 << 32, 8, family="strings").positions(ADDRESS.encode())[place] == value


# --- the filter ---


@given(st.lists(st.text(max_size=5), max_size=60), st.integers(1, 300), st.integers(1, 8))
def test_it_does_what_a_set_of_positions_does(keys: list[str], bits: int, hashes: int) -> None:
    """A key is new where it sets a bit, and present where all of its bits are set, for both families."""
    for family in ("salted_md5", "strings"):
        seen, bits_set, new = ClassicBloom(bits, hashes, family=family), set[int](), 0
        for key in keys:
            places = set(seen.positions(key))
            assert (key in seen) == (places <= bits_set)
            assert seen.add(key) == (not places <= bits_set)
            new += not places <= bits_set
            bits_set |= places
        assert (len(seen), seen.fill_ratio) == (new, len(bits_set) / bits)
        assert seen.error_rate_now == seen.fill_ratio**hashes
        assert all(key in seen for key in keys)


def test_bits_land_at_the_end_of_the_largest_table() -> None:
    """Of 2^32 bits the last one can be set."""
    seen = ClassicBloom(1 << 32, [lambda x: x])
    assert seen.add(-1)
    assert -1 in seen
    assert seen.positions(-1) == [(1 << 32) - 1]


# --- refusals ---


@table([0, -1, (1 << 32) + 1, 1.5, "8"])
def test_impossible_sizes_are_named(bits: Any) -> None:
    """From 1 to 2^32 bits, as far as 32 bits of a hash reach."""
    with pytest.raises(ConfigError, match=f"bits is {bits}; it must be"):
        ClassicBloom(bits)


@table(
    [
        (0, "salted_md5", "hashes is 0; the family salted_md5 has 1 to 64"),
        (65, "salted_md5", "hashes is 65; the family salted_md5"),
        (9, "strings", "hashes is 9; the family strings has 1 to 8"),
        (3, "murmur3", "family 'murmur3' is unknown; choose one of: salted_md5, strings"),
        ([], "strings", "give a number, or a list"),
        (["crc"], "strings", r"hashes is \['crc'\]; .* js, pjw"),
        ("djb", "strings", "hashes is 'djb'"),
    ]
)
def test_impossible_hashes_are_named(row: tuple[Any, str, str]) -> None:
    """Too many of a family, an unknown one, or names that are none, with those that there are."""
    hashes, family, said = row
    with pytest.raises(ConfigError, match=said):
        ClassicBloom(100, hashes, family=family)


@table([["djb"], 2])
def test_named_hashes_take_texts_only(hashes: Any) -> None:
    """An integer has no bytes of its own: TypeError, and nothing is added."""
    seen = ClassicBloom(100, hashes)
    with pytest.raises(TypeError, match="the key is of type int"):
        seen.add(7)
    assert (len(seen), seen.fill_ratio) == (0, 0)


# --- where it stands ---


def test_it_is_no_kind() -> None:
    """No configuration can name it, for its hashes are weak."""
    assert not any("classic" in kind.path.lower() for kind in filters.KINDS.values())
    with pytest.raises(ConfigError, match="is unknown"):
        streamdedup.build({"kind": "classic", "capacity": 10})


def test_the_package_has_it_without_importing_it() -> None:
    """`streamdedup.ClassicBloom` is there when it is asked for; before, not even numpy is imported."""
    code = (
        "import sys, streamdedup; assert 'numpy' not in sys.modules and 'bitarray' not in sys.modules;"
        "streamdedup.ClassicBloom(8); assert 'bitarray' in sys.modules and 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE_S)
    with pytest.raises(AttributeError, match="'ClassicBlom'"):
        _ = streamdedup.ClassicBlom  # type: ignore[attr-defined]
