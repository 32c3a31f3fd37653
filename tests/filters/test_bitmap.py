"""Claims about bitmaps beyond the contract of every kind: where hashed bits stand, and that direct ones never err."""

import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.filters.base import Addable, Filter, Removable, Unionable
from streamdedup.filters.bitmap.bitmap import Bitmap
from streamdedup.filters.bitmap.direct import DirectBitmap
from streamdedup.filters.bitmap.hashed import HashedBitmap
from streamdedup.filters.sizing import TABLE_BITS_MAX
from tests.filters.cases import HASH_KEY, copies, state
from tests.rows import table

# --- hashed ---


def test_a_hashed_bitmap_takes_nothing_back() -> None:
    """A bit may be that of several keys, so there is no removal."""
    assert not isinstance(filters.build({"kind": "bitmap", "capacity": 10}), Removable)


@table([1e-9, 1e-300, 5e-324])
def test_what_takes_too_many_bits_is_refused(error_rate: float) -> None:
    """Small rates take more than any machine has: the operator's mistake, named before memory is taken."""
    with pytest.raises(
        ConfigError, match=r"filter\.capacity 100000 at filter.error_rate .* choose another"
    ):
        HashedBitmap(100_000, error_rate)


# --- direct: integers of a range ---

RANGES = [
    (0, 0),
    (0, 999),
    (-5, 5),
    (-(2**63), -(2**63) + 200),
    (2**40, 2**40 + 129),
    (2**63 - 70, 2**63 + 70),
    (2**64 - 100, 2**64 - 1),
    (-130, -3),
]


@table(RANGES)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_direct_bitmaps_are_sets(bounds: tuple[int, int], data: st.DataObject) -> None:
    """Additions, removals, questions, restores in any order, one by one and many: always what a set answers."""
    seen, model = DirectBitmap(range=bounds), set[int]()
    numbers = st.lists(st.integers(*bounds) | st.sampled_from(bounds), max_size=20)
    for step in data.draw(st.lists(st.sampled_from(["add", "remove", "ask", "restore"]))):
        values, many = data.draw(numbers), data.draw(st.booleans())
        expected, gotten = [], list[bool]()
        for value in values:
            expected.append((value in model) != (step == "add"))
            model = (
                model | {value} if step == "add" else model - {value} if step == "remove" else model
            )
        if step == "add":
            gotten = seen.add_many(_array(values)).tolist() if many else [*map(seen.add, values)]
        elif step == "remove":
            gotten = (
                seen.remove_many(_array(values)).tolist() if many else [*map(seen.discard, values)]
            )
        elif step == "ask":
            asked = seen.contains_many(_array(values)).tolist()
            gotten = asked if many else [value in seen for value in values]
        else:
            header = json.loads(json.dumps(seen.header()))
            seen, expected = _restore(header, copies(cast("Filter", seen))), []
        assert gotten == expected
        assert len(seen) == len(model)
    first, last = bounds
    table = int.from_bytes(bytes(seen.buffers()[0]), "little")
    assert table == sum(1 << value - first for value in model)
    assert seen.fill_ratio == len(model) / (last - first + 1)


@table(["i1", "u1", "<i2", ">i2", "u4", "<i8", ">i8", ">u8"])
def test_integers_of_every_dtype_and_layout_are_taken(dtype: str) -> None:
    """Narrow, unsigned, of the other byte order, strided or read-only: the same integers."""
    numbers = [0, 100, 7, 101, 100]
    for values in (np.array(numbers, dtype), np.repeat(np.array(numbers, dtype), 3)[::3]):
        values.flags.writeable = False
        seen = DirectBitmap(range=(-20, 120))
        assert seen.add_many(values).tolist() == [True, True, True, True, False]
        assert [value for value in range(-20, 121) if value in seen] == [0, 7, 100, 101]
        assert seen.remove_many(values).tolist() == [True, True, True, True, False]


@table(
    [
        ((10, 20), np.array([15, 9])),
        ((10, 20), np.array([21, 15], np.uint8)),
        ((10, 20), np.array([15, 15 + 2**32])),
        ((-5, 5), np.array([0, 2**64 - 1], np.uint64)),  # the bits of -1
        ((2**64 - 9, 2**64 - 1), np.array([-1])),
        ((-5, 5), [0, 2**63]),
        ((0, 5), [1, 2**70]),
        ((0, 5), [-(2**70)]),
        ((0, 2**20), np.array([-1], np.int8)),
    ]
)
def test_what_is_out_of_range_is_absent(row: tuple[tuple[int, int], Any]) -> None:
    """It cannot be added: the error names the range and not the key, and nothing of the array is added."""
    bounds, values = row
    seen = DirectBitmap(range=bounds)
    seen.add(bounds[0])
    before = state(cast("Filter", seen))
    are_within = [bounds[0] <= int(value) <= bounds[1] for value in values]
    wrong = next(
        value for value, is_within in zip(values, are_within, strict=True) if not is_within
    )
    calls: list[Callable[[], object]] = [
        lambda: seen.add_many(values),
        lambda: seen.add_absent(values),
        lambda: seen.add(wrong),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=rf"filter\.range, {bounds[0]} to {bounds[1]}") as told:
            call()
        assert str(int(wrong)) not in str(told.value).replace(str(bounds[0]), "")
    assert wrong not in seen
    assert not seen.discard(wrong)
    assert not seen.contains_many(values).any()
    assert not seen.remove_many(values).any()
    assert state(cast("Filter", seen)) == before
    for value, is_within in zip(values, are_within, strict=True):
        if is_within:
            seen.add(value)
    assert seen.contains_many(seen.digests(values)).tolist() == are_within
    assert seen.remove_many(values).tolist() == [
        is_within and value not in values[:row]
        for row, (value, is_within) in enumerate(zip(values, are_within, strict=True))
    ]


@table(
    [
        np.array([1.0]),
        np.array([True]),
        np.array(["1"]),
        np.array([1], object),
        np.ones((3, 2), np.uint64),
        np.int64(1),
        [1.5],
        ["1"],
        [None],
        [True, 1],
        (1, False),
        [[1], [2]],
        "1",
        b"1",
    ]
)
def test_what_are_no_integers_are_refused(wrong: Any) -> None:
    """Floats, texts, digests: TypeError, and nothing is added."""
    seen = DirectBitmap(range=(0, 99))
    for call in (seen.add_many, seen.contains_many, seen.remove_many, seen.digests):
        with pytest.raises(TypeError):
            call(wrong)
    for single in ("1", b"1", 1.0, None, True, np.bool_(False)):
        for one in (seen.add, seen.discard, seen.__contains__):
            with pytest.raises(TypeError):
                one(cast("int", single))
    assert len(seen) == 0


def test_its_digests_are_the_integers() -> None:
    """`digests` gives back the very array, or makes one of a list; nothing is hashed."""
    seen = DirectBitmap(range=(2**63 - 9, 2**63 + 9))
    values = np.array([2**63 + 1, 2**63 - 1], np.uint64)
    assert seen.digests(values) is values
    assert seen.digests(values.tolist()).tolist() == values.tolist()
    assert seen.add_many(seen.digests((2**63 - 1, 2**63 + 1))).all()
    for nothing in (list[int](), np.empty(0, np.int32)):
        assert seen.add_many(seen.digests(nothing)).shape == (0,)


def test_it_is_reached_by_its_range() -> None:
    """`kind: bitmap` with `range` is exact and removable, without it hashed; types tell the two apart."""
    direct = filters.build({"kind": "bitmap", "range": [-3, 8]})
    assert isinstance(direct, DirectBitmap)
    assert (direct.range, direct.capacity, direct.kind) == ((-3, 8), 12, "bitmap")
    for ability in (Filter, Addable, Removable, Unionable):
        assert isinstance(direct, ability)
    hashed = filters.build({"kind": "bitmap", "capacity": 12})
    assert isinstance(hashed, HashedBitmap)
    assert isinstance(Bitmap(range=(0, 1)), DirectBitmap)
    assert filters.build({"kind": "bitmap", "range": (0, 99), "capacity": 5}).capacity == 5


@table(
    [
        [1],
        [1, 2, 3],
        [2, 1],
        [0, 1.0],
        ["0", "1"],
        "01",
        7,
        {},
        [0, TABLE_BITS_MAX],
        [-(2**63) - 1, 0],
        [2**64 - 1, 2**64],
    ]
)
def test_what_is_no_range_is_refused(given: Any) -> None:
    """Two integers, ascending, not too far apart; anything else is the operator's error."""
    with pytest.raises(ConfigError, match=r"filter\.range .* is not two integers \[a, b\]"):
        filters.build({"kind": "bitmap", "range": given})


@table(
    [
        ({"capacity": 0}, r"filter\.capacity 0 is not an integer from 1 to the range's 10"),
        ({"capacity": 11}, r"filter\.capacity 11 is not"),
        ({"capacity": "x"}, r"filter\.capacity 'x' is not"),
        (
            {"error_rate": 0.01},
            r"filter\.error_rate means nothing with filter\.range.*leave it out",
        ),
        ({"probe": "double"}, r"filter\.probe means nothing with filter\.range"),
        ({"hash": "siphash", "hash_key": HASH_KEY}, r"leave filter\.hash out"),
    ]
)
def test_options_that_would_do_nothing_are_refused(row: tuple[Any, str]) -> None:
    """With a range there is no error to ask for and nothing to hash, and a capacity lies within it."""
    more, said = row
    with pytest.raises(ConfigError, match=said):
        filters.build({"kind": "bitmap", "range": [0, 9], **more})


def test_a_union_of_direct_bitmaps_is_that_of_sets() -> None:
    """Of equal ranges; others, and hashed ones, are refused."""
    one, other = DirectBitmap(range=(0, 99)), DirectBitmap(range=(0, 99))
    one.add_many(np.arange(0, 60))
    other.add_many(np.arange(50, 80))
    one |= other
    assert [value for value in range(100) if value in one] == list(range(80))
    assert (len(one), len(other)) == (80, 30)
    strangers = (DirectBitmap(range=(0, 100)), DirectBitmap(range=(1, 100)), HashedBitmap(1, 0.01))
    for stranger in strangers:
        with pytest.raises(ConfigError, match="build both alike"):
            one |= cast("DirectBitmap", stranger)
    assert len(one) == 80


def test_a_range_beyond_the_memory_is_told_to_be_narrower(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy names the option that says how much memory it takes."""

    def fail(*_arguments: object, **_options: object) -> None:
        raise MemoryError

    monkeypatch.setattr("numpy.zeros", fail)
    with pytest.raises(ConfigError, match=r"does not fit into memory; narrow filter\.range$"):
        filters.build({"kind": "bitmap", "range": [0, 1 << 40]})


def test_a_direct_bitmap_may_stand_on_read_only_buffers() -> None:
    """It answers, and refuses every change with the remedy."""
    seen = DirectBitmap(range=(0, 99))
    seen.add(7)
    frozen = _restore(seen.header(), [memoryview(bytes(seen.buffers()[0]))])
    assert (7 in frozen, 8 in frozen, frozen.contains_many(np.array([7, 8])).tolist()) == (
        True,
        False,
        [True, False],
    )
    changes: Sequence[Callable[[], object]] = [
        lambda: frozen.add(1),
        lambda: frozen.add_many(np.array([1])),
        lambda: frozen.discard(7),
        lambda: frozen.remove_many(np.array([7])),
        lambda: frozen.__ior__(seen),
    ]
    for change in changes:
        with pytest.raises(ConfigError, match="load it without mmap"):
            change()
    assert 7 in frozen


def test_damaged_parts_of_a_direct_bitmap_are_refused() -> None:
    """Every field missing, of another type or beside itself, and tables that do not fit: ValueError."""
    seen = DirectBitmap(range=(0, 99), capacity=50)
    seen.add(7)
    header, parts = seen.header(), copies(cast("Filter", seen))
    wrongs: dict[str, list[Any]] = {
        "capacity": [0, 101, None, "50", 50.0],
        "error_rate": [0.1, None, "0"],
        "hash": ["siphash", "md5", None],
        "hash_check": ["", None],
        "range": [[0], [99, 0], None, "x", [0, 128], [0, 1 << 50], [0, 1 << 70], [0.0, 99.0]],
    }
    for name, values in wrongs.items():
        for wrong in values:
            with pytest.raises((ValueError, ConfigError)):
                filters.from_parts({**header, name: wrong}, parts)
        with pytest.raises((ValueError, ConfigError)):
            filters.from_parts({k: v for k, v in header.items() if k != name}, parts)
    beyond = memoryview(bytearray(16))
    beyond[12] = 1 << 4  # bit 100
    for wrong_parts in ([], [*parts, *parts], [parts[0][:-8]], [beyond]):
        with pytest.raises(ValueError, match=r"values to unpack|bytes of table|beyond the last"):
            filters.from_parts(header, wrong_parts)


def _restore(header: dict[str, Any], buffers: list[memoryview]) -> DirectBitmap:
    restored = filters.from_parts(header, buffers)
    assert isinstance(restored, DirectBitmap)
    assert state(cast("Filter", restored))[0] == header
    return restored


def _array(values: list[int]) -> "np.ndarray[Any, np.dtype[np.integer[Any]]]":
    """In the narrowest dtype that holds them all, since any is allowed."""
    lowest, highest = min(values, default=0), max(values, default=0)
    for dtype in (np.uint8, np.int8, np.uint16, np.int32, np.int64):
        if np.iinfo(dtype).min <= lowest and highest <= np.iinfo(dtype).max:
            return np.array(values, dtype)
    return np.array(values, np.uint64)
