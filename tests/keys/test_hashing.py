"""Claims about digests: they are MurmurHash3 x64 128 with seed 0, or SipHash-2-4 with 128 bits, however keys come.

What is claimed of one way in is claimed of all: lists, pyarrow arrays, buffers with offsets, columns of events.
"""

import random
import traceback
from collections.abc import Callable, Sequence
from itertools import accumulate, product
from typing import Any, cast

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from streamdedup.errors import ConfigError
from streamdedup.events import Column
from streamdedup.keys.hashing import (
    KERNEL_FROM,
    KEYS_A_PIECE,
    MURMUR3,
    ROWS_A_CALL,
    Digests,
    Hash,
    checked,
    digests,
)
from streamdedup.keys.sip_lanes import LANES
from streamdedup.keys.siphash import WORDS_MAX
from streamdedup.keys.words import BYTES_A_CALL
from tests.rows import table

SECRET = bytes(range(16))
SIPHASH = Hash("siphash", SECRET)
Way = Callable[[Sequence[bytes]], Any]  # to give keys
HASHES = [MURMUR3, SIPHASH]
both = pytest.mark.parametrize("hash_", HASHES, ids=lambda hash_: hash_.name)


# --- what a digest is ---


@table(
    [  # seed 0, as published in the tests of Guava's Murmur3Hash128
        (b"", 0, 0),
        (b"hell", 0x629942693E10F867, 0x92DB0B82BAEB5347),
        (b"The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C, 0x7A433CA9C49A9347),
    ]
)
def test_published_vectors_of_murmur3(key: bytes, first: int, second: int) -> None:
    """A digest is the pair of words that other implementations publish, in their order, from a list or a buffer."""
    assert MURMUR3.digest(key) == (first, second)
    assert digests([key]).tolist() == [[first, second]]
    assert MURMUR3.digests([key]).tolist() == [[first, second]]
    assert MURMUR3.digests(with_offsets([key])).tolist() == [[first, second]]


@table(
    [  # vectors_sip128 of the reference implementation: key 00..0f, of `size` bytes 00, 01, 02...
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (2, "8177228da4a45dc7fca38bdef60affe4"),
        (3, "9c70b60c5267a94e5f33b6b02985ed51"),
        (4, "f88164c12d9c8faf7d0f6e7c7bcd5579"),
        (5, "1368875980776f8854527a07690e9627"),
        (6, "14eeca338b208613485ea0308fd7a15e"),
        (7, "a1f1ebbed8dbc153c0b84aa61ff08239"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (9, "264499060ad9baabc47f8b02bb6d71ed"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
        (16, "6ee2a4ca67b054bbfd3315bf85230577"),
        (17, "473d06e8738db89854c066c47ae47740"),
        (63, "5150d1772f50834a503e069a973fbd7c"),
    ]
)
def test_published_vectors_of_siphash(size: int, digest: str) -> None:
    """A digest, as little-endian words, is what the authors of SipHash publish for a key of that size."""
    key = bytes(range(size))
    a, b = SIPHASH.digest(key)
    assert (a.to_bytes(8, "little") + b.to_bytes(8, "little")).hex() == digest
    assert SIPHASH.digests([key]).astype("<u8").tobytes().hex() == digest
    assert (
        SIPHASH.digests(with_offsets([b"before", key]))[1].astype("<u8").tobytes().hex() == digest
    )


def test_the_kernel_agrees_with_mmh3_at_every_length_and_address() -> None:
    """Keys of 0 to 300 bytes, each beginning at the buffer's first to 17th byte, hash as in mmh3."""
    buffer = np.random.default_rng(1).bytes(400).replace(b"\xff", b"x")  # of a tag, others claim
    starts, sizes = (grid.ravel() for grid in np.meshgrid(np.arange(18), np.arange(301)))
    keys = [buffer[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    assert MURMUR3.of_column(Column(buffer, starts, sizes)).tolist() == by_mmh3(keys)


@pytest.mark.bounds
def test_keys_that_are_hashed_together_agree_with_each_alone() -> None:
    """At every length up to where keys are hashed alone, and beyond; beside others of any length, in any lane."""
    chance = random.Random(5)
    longest = 8 * WORDS_MAX + 9
    sizes = [size for size in range(longest + 1) for _ in range(LANES)]
    for shuffled in (sizes, sorted(sizes, reverse=True), chance.sample(sizes, len(sizes))):
        keys = [chance.randbytes(size) for size in shuffled]
        together = SIPHASH.digests(keys)
        assert together.tolist() == [list(SIPHASH.digest(key)) for key in keys]
    few = [b"k" * size for size in range(LANES - 1)]
    assert SIPHASH.digests(few).tolist() == [list(SIPHASH.digest(key)) for key in few]


@both
def test_one_key_at_a_time_is_the_same(hash_: Hash) -> None:
    """`digest` gives the row of `digests`, `signed` the same words as signed integers; a `str` is its UTF-8."""
    keys = ["", "key", "Zoë", "a longer key of 32 bytes, exactly", "鍵" * 20]
    rows = hash_.digests(keys)
    assert [list(hash_.digest(key)) for key in keys] == rows.tolist()
    assert [list(hash_.digest(key.encode())) for key in keys] == rows.tolist()
    assert [list(hash_.signed(key)) for key in keys] == rows.view(np.int64).tolist()


def test_the_check_values_never_change() -> None:
    """Snapshots store these values: another one means that every filter on disk is lost."""
    assert MURMUR3.check == "cddf1073b55db7f8328e11423406045d"
    assert SIPHASH.check == "35f9737c598d629e26c5849e173f93fe"
    assert Hash("siphash", bytes(16)).check != SIPHASH.check


# --- ways in ---


def with_offsets(keys: Sequence[bytes]) -> tuple[bytes, npt.NDArray[np.int64]]:
    """The keys in one buffer, and where each begins and ends."""
    return b"".join(keys), np.array([0, *accumulate(map(len, keys))], dtype=np.int64)


def _offsets_as(dtype: Any) -> Way:
    return lambda keys: (with_offsets(keys)[0], with_offsets(keys)[1].astype(dtype))


def buffer_as(kind: Callable[[bytes], Any]) -> Way:
    """In a buffer of this kind, with offsets."""
    return lambda keys: (kind(with_offsets(keys)[0]), with_offsets(keys)[1])


def arrow_as(kind: pa.DataType) -> Way:
    """In an array of this type."""
    return lambda keys: pa.array(keys, pa.binary()).cast(kind)


WAYS: dict[str, Way] = {
    "list": list,
    "tuple": tuple,
    "strings": lambda keys: [key.decode() for key in keys],
    "mixed": lambda keys: [key.decode() if i % 3 else key for i, key in enumerate(keys)],
    "int64 offsets": with_offsets,
    "int32 offsets": _offsets_as(np.int32),
    "memoryview": buffer_as(memoryview),
    "arrow string": arrow_as(pa.string()),
    "arrow large_string": arrow_as(pa.large_string()),
    "arrow binary": arrow_as(pa.binary()),
    "arrow slice": lambda keys: pa.array([b"x", b"yy", *keys, b"z"], pa.binary())[2:-1],
    "arrow chunks": lambda keys: pa.chunked_array(
        [keys[:2], [], keys[2:3], keys[3:]], pa.large_string()
    ),
    "arrow without a null": lambda keys: pa.array([None, *keys], pa.string())[1:],
}
KEYS = [["", "one", "deux", "", "trés" * 9, "四"], ["", ""], ["ab"], []]


@table(product(HASHES, WAYS.values(), KEYS))
def test_every_way_in_gives_the_same_digests(hash_: Hash, way: Way, keys: list[str]) -> None:
    """However keys are given, their digests are those of one key at a time, shape (n, 2), uint64."""
    has_their_digests(hash_, way, keys)


def has_their_digests(hash_: Hash, way: Way, keys: list[str]) -> None:
    """Compare the digests of keys that are given in this way with those of one key at a time."""
    found = hash_.digests(way([key.encode() for key in keys]))
    assert found.shape == (len(keys), 2)
    assert found.dtype == np.uint64
    assert found.tolist() == [list(hash_.digest(key)) for key in keys]


TAGGED = [
    b"\xff",
    b"",
    b"a",
    b"\xff\xff",
    b"\xffb",
    b"\xfe\xff",
    b"\xff" + bytes(300),
    b"\xffi\x05",
]
OF_BYTES = (
    "list",
    "tuple",
    "int64 offsets",
    "int32 offsets",
    "memoryview",
    "arrow binary",
    "arrow slice",
)


@pytest.mark.bounds
@table(product(HASHES, OF_BYTES, [1, 2, LANES, 3 * LANES, KERNEL_FROM, ROWS_A_CALL + 9]))
def test_bytes_that_begin_as_a_tag_have_one_of_their_own(hash_: Hash, way: str, count: int) -> None:
    """In every way in, also in a column; wherever they stand among others, and if there are no others."""
    chance = random.Random(count)
    for drawn in (TAGGED, TAGGED[:1], [*TAGGED, *[b"another"] * 20]):
        keys = chance.choices(drawn, k=count)
        first = {key: index for index, key in enumerate(keys)}
        given = WAYS[way](keys)
        column = hash_.of_column(Column.of(keys))
        found = hash_.digests(given)
        assert np.array_equal(found, column)
        assert np.array_equal(found, found[[first[key] for key in keys]])
        for key, index in first.items():
            bare = hash_._signed(b"\xffb" + key if key[:1] == b"\xff" else key)
            assert hash_.signed(key) == bare == tuple(found[index].view(np.int64).tolist())


@table(
    product(
        ["list", "strings", "mixed", "int32 offsets", "arrow string"],
        [KERNEL_FROM - 1, KERNEL_FROM, KEYS_A_PIECE, KEYS_A_PIECE + 1, ROWS_A_CALL + 1],
    )
)
def test_no_border_shows(way: str, count: int) -> None:
    """On both sides of where another way of computing takes over, and of every slice, digests are the same."""
    keys = [b"%x" % (number**5) for number in range(count)]
    keys[-1] = "é".encode()
    assert MURMUR3.digests(WAYS[way](keys)).tolist() == by_mmh3(keys)


def _narrow(column: Column) -> Column:
    """Give the same column with int32 places, as another library may make them."""
    starts: Any = column.starts.astype(np.int32)
    sizes: Any = column.sizes.astype(np.int32)
    return Column(column.buffer, starts, sizes)


@both
def test_columns_of_events(hash_: Hash) -> None:
    """A column, of all rows or of some, has the digests of its cells."""
    column = Column.of([b"one", b"", b"two", None, b"three"])
    with pytest.raises(ValueError, match="row 3 is null"):
        hash_.of_column(column)
    some = column.take(np.array([4, 0, 1, 0]))
    found = hash_.of_column(some)
    assert found.tolist() == hash_.digests(cast("list[bytes]", list(some))).tolist()
    small = hash_.of_column(_narrow(some))
    assert found.tolist() == small.tolist()


def test_the_arrays_of_the_caller_stay_as_they_are() -> None:
    """What was given can still be written, and what is given back is nobody else's."""
    buffer, offsets = bytearray(b"abc"), np.array([0, 1, 3])
    found = MURMUR3.digests((buffer, offsets))
    offsets[:] = 0
    buffer[0] = 0
    buffer.append(1)
    found[:] = 0
    for keys in (["a"], ["a"] * 1000):
        MURMUR3.digests(keys)[:] = 0


@both
def test_no_call_of_a_kernel_is_long(hash_: Hash) -> None:
    """Rows and bytes of one call are bounded, so that none lasts; all rows are done, in order."""
    fresh = Hash(hash_.name, hash_.key)
    fill, calls = fresh._fill, []

    def spy(*arguments: Any) -> int:
        done = fill(*arguments)
        starts, ends = arguments[1:3]
        calls.append((done, int((ends - starts)[:done].sum())))
        return done

    fresh.__dict__["_fill"] = spy
    large = BYTES_A_CALL // 2
    buffer = bytes(3 * large)
    sizes = np.array([large, 0, large, large, 5, large, 3 * large, 2, *[1] * 3 * ROWS_A_CALL])
    found = fresh.of_column(Column(buffer, np.zeros(len(sizes), dtype=np.int64), sizes))
    assert sum(rows for rows, _ in calls) == len(sizes)
    assert max(rows for rows, _ in calls) <= ROWS_A_CALL
    assert (
        len([size for _, size in calls if size > 2 * large]) == 2
    )  # by the key that takes it over
    for row in (0, 1, 4, 6, 7, len(sizes) - 1):
        assert tuple(found[row].tolist()) == fresh.digest(buffer[: sizes[row]])


# --- what is refused ---

ZERO = np.zeros(2, dtype=np.int64)


@table(
    [
        ("sekrit", r"not of type str; of a single key: \[key\]"),
        (b"sekrit", "not of type bytes"),
        (bytearray(b"sekrit"), "not of type bytearray"),
        (memoryview(b"sekrit"), "not of type memoryview"),
        ({"sekrit"}, "not of type set"),
        ({"sekrit": 1}, "not of type dict"),
        (iter(["sekrit"]), r"not of type list_iterator; give list\(keys\)"),
        (np.array(["sekrit"]), r"not of type numpy.ndarray; give keys\.tolist\(\)"),
        (None, "not of type NoneType"),
        (["sekrit", None], "key 1 is of type NoneType"),
        (["sekrit"] * 5000 + [7.5], "key 5000 is of type float"),
        ([b"sekrit"] * 5000 + [bytearray(b"sekrit")], "key 5000 is of type bytearray"),
        ((b"sekrit", None), "offsets are of type NoneType"),
        ((b"sekrit", [0, 0.5]), "offsets are int32 or int64, .* not float64"),
        ((b"sekrit", np.zeros(2)), "offsets are int32 or int64, .* not float64"),
        ((b"sekrit", np.zeros(2, np.uint64)), "not uint64"),
        ((b"sekrit", np.zeros(2, ">i8")), "not >i8"),
        ((b"sekrit", np.zeros((2, 2), np.int64)), r"shape \(2, 2\)"),
        (("sekrit", ZERO), "key 1 is of type numpy.ndarray"),
        ((7.5, ZERO), "buffer of the keys is of type float"),
        ((np.zeros(6), ZERO), "not one row of bytes"),
        ((np.zeros((6, 2), np.uint8), ZERO), "not one row of bytes"),
        ((np.zeros(6, np.uint8)[::2], ZERO), "not one row of bytes"),
        (pa.array([1, 2]), "not of type pyarrow.lib.Int64Array of int64"),
        (pa.array(["sekrit"]).dictionary_encode(), "of dictionary<"),
        (pa.array(["sekrit"], pa.string_view()), "of string_view"),
        (pa.array([b"sekrit"], pa.binary(6)), "of fixed_size_binary"),
        (pa.chunked_array([[1], [2]]), "ChunkedArray of int64"),
        (pa.scalar("sekrit"), "not of type pyarrow.lib.StringScalar"),
        (pa.table({"key": ["sekrit"]}), "not of type pyarrow.lib.Table"),
    ]
)
def test_what_is_no_key_is_named_by_its_type(wrong: Any, named: str) -> None:
    """Whatever else is given: a TypeError that says what it is, and where, but never what is in it."""
    for hash_ in HASHES:
        with pytest.raises(TypeError, match=named) as caught:
            hash_.digests(wrong)
        _unsaid(caught.value)


def _damaged(offsets: list[int]) -> pa.ChunkedArray:
    """A sound chunk of one row and one whose offsets, of which pyarrow looks at the last only, are `offsets`."""
    parts = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(b"sekrit")]
    damaged = pa.Array.from_buffers(pa.string(), len(offsets) - 1, parts)
    return pa.chunked_array([["sound"], damaged])


@table(
    [
        ((b"sekrit", np.array([], np.int64)), "n keys there are n \\+ 1"),
        ((b"sekrit", np.array([0, 3, 2, 6])), "row 1 lies from byte 3 to 2 of a buffer of 6"),
        ((b"sekrit", np.array([0, 3, 7])), "row 1 lies from byte 3 to 7 of a buffer of 6"),
        ((b"sekrit", np.array([-1, 3])), "row 0 lies from byte -1 to 3"),
        ((b"sekrit", np.array([0] * 40_000 + [7])), "row 39999 lies"),
        ((b"sekrit", np.array([0, 2**63 - 1])), "row 0 lies"),
        (_damaged([0, 7, 6]), "row 1 lies from byte 0 to 7 of a buffer of 6"),
        (_damaged([0, 3, 2, 6]), "row 2 lies from byte 3 to 2 of a buffer of 6"),
        (pa.array(["sekrit", None, None]), "2 of 3 keys are null"),
        (pa.chunked_array([["sekrit"], [None]]), "1 of 2 keys are null"),
        (["sekrit", "sekrit\ud800"], "key 1 has a lone surrogate"),
        (["sekrit"] * 5000 + ["sekrit\ud800"], "key 5000 has a lone surrogate"),
        ([b"sekrit"] * 600 + ["sekrit\udfff"], "key 600 has a lone surrogate"),
    ]
)
def test_what_has_no_digest_is_refused(wrong: Any, named: str) -> None:
    """Nulls, offsets that descend or lead out of the buffer, texts without UTF-8: ValueError, naming the row."""
    for hash_ in HASHES:
        with pytest.raises(ValueError, match=named) as caught:
            hash_.digests(wrong)
        _unsaid(caught.value)


@table(
    [
        (0, -1, ValueError, "row 1 is null"),
        (3, 4, ValueError, "row 1 lies from byte 3 to 7"),
        (-1, 2, ValueError, "row 1 lies from byte -1"),
        (2**63 - 1, 5, ValueError, "row 1 lies"),
        (0, 0.5, TypeError, "sizes are int32 or int64"),
        (0.5, 0, TypeError, "starts are int32 or int64"),
    ]
)
def test_columns_that_do_not_fit_are_refused(
    start: float, size: float, error: type[Exception], named: str
) -> None:
    """No byte outside of the buffer is read, whatever a column says."""
    for hash_ in HASHES:
        with pytest.raises(error, match=named):
            hash_.of_column(Column(b"sekrit", np.array([0, start]), np.array([1, size])))
        far = _narrow(Column(b"sekrit", np.array([2**31 - 1]), np.array([5])))
        with pytest.raises(ValueError, match="row 0 lies from byte 2147483647 to 2147483652"):
            hash_.of_column(far)
        with pytest.raises(ValueError, match="2 starts, but 3 sizes"):
            hash_.of_column(Column(b"sekrit", ZERO, np.zeros(3, dtype=np.int64)))


@both
@pytest.mark.parametrize("call", ["digest", "signed"])
def test_one_key_that_is_none_is_refused(hash_: Hash, call: str) -> None:
    """As in a batch: the type is named, a text without UTF-8 is a ValueError, and the key stays unsaid."""
    wrong: object
    for wrong in (None, 7.5, bytearray(b"sekrit"), ["sekrit"]):
        with pytest.raises(TypeError, match=f"the key is of type {type(wrong).__name__}") as caught:
            getattr(hash_, call)(wrong)
        _unsaid(caught.value)
    cut = "sekrit\ud800"
    with pytest.raises(ValueError, match="the key has a lone surrogate") as surrogate:
        getattr(hash_, call)(cut)
    _unsaid(surrogate.value)


def _unsaid(error: BaseException) -> None:
    """Nothing that is shown of `error` or of what it came from has a key, or a character of one."""
    (shown,) = [line for line in traceback.format_exception(error) if "Error:" in line]
    assert "sekrit" not in shown
    assert "codec" not in shown


def test_a_secret_is_sixteen_bytes_and_is_not_shown() -> None:
    """Another name, size or type is the operator's error; no text about a hash has its key."""
    for name, key in (("md5", b""), ("siphash", b"short"), ("siphash", ""), ("murmur3", b"k" * 16)):
        with pytest.raises(ConfigError, match=f"hash '?{name}"):
            Hash(name, cast("bytes", key))
    with pytest.raises(ConfigError, match="its key is of type str"):
        Hash("siphash", cast("bytes", "sixteen letters!"))
    assert "letters" not in repr(Hash("siphash", b"sixteen letters!"))


# --- digests that are given ---


@table(
    [
        np.zeros((3, 2), np.int64),
        np.zeros((3, 2), np.float64),
        np.zeros((3, 2), np.uint32),
        np.zeros((3, 2), ">u8"),
        np.zeros((3, 1), np.uint64),
        np.zeros((3, 3), np.uint64),
        np.zeros(6, np.uint64),
        np.zeros((3, 2, 1), np.uint64),
        *(["a key"], b"0" * 16, None, (1, 2)),
    ]
)
def test_anything_else_is_refused(wrong: Any) -> None:
    """An array that a kernel would misread is refused by its type and shape, what is none by its type, not shown."""
    is_array = isinstance(wrong, np.ndarray)
    named = "uint64, shape" if is_array else f"not of type {type(wrong).__name__}; see f.digests, "
    with pytest.raises(TypeError, match=named):
        checked(wrong)


def test_every_layout_becomes_one() -> None:
    """Digests in any memory layout come back in rows, aligned and read-only; the right one is not copied."""
    straight = digests([b"a", b"b", b"c"])
    assert np.shares_memory(checked(straight), straight)
    moved = np.frombuffer(b"x" + straight.tobytes(), np.uint64, offset=1).reshape(-1, 2)
    frozen = straight.copy()
    frozen.flags.writeable = False
    layouts = [straight, frozen, moved, np.asfortranarray(straight)]
    for layout in (*layouts, np.repeat(straight, 2, axis=0)[::2], straight.view(np.matrix)):
        found = checked(cast("Digests", layout))
        assert type(found) is np.ndarray
        assert found.flags.c_contiguous
        assert found.flags.aligned
        assert not found.flags.writeable
        assert found.tolist() == straight.tolist()
    assert straight.flags.writeable


def by_mmh3(keys: Sequence[bytes]) -> list[list[int]]:
    """What mmh3 makes of them."""
    return [list(mmh3.mmh3_x64_128_utupledigest(key)) for key in keys]
