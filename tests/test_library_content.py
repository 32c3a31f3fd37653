"""A filter of the library is used as a set: whole iterables, plain keys in batches, `clear`, `|`, `&`, `==`."""

import copy
import itertools
import operator as op
import random
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import streamdedup
from streamdedup import FilterFullError, FilterFullWarning
from streamdedup.errors import ConfigError, MalformedError
from streamdedup.filters.kinds import STATIC
from streamdedup.library.content import KEYS_A_BATCH
from streamdedup.library.refused import OPERATORS, REFUSED, REMOVABLE
from streamdedup.native import OPEN
from tests.filters.cases import HASH_KEY, state
from tests.library import WAYS, built, in_time, key_of, keys_of, pickled
from tests.rows import every

Way = tuple[str, Mapping[str, Any]]
TIMELESS = [way for way in WAYS if way[0] != "window" or way[1].get("retention", ...) is None]
"""Those that take keys without times."""
UNIONABLE: list[Way] = [
    *((kind, {}) for kind in ("bitmap", "blocked", "bloom", "counting")),
    ("bitmap", {"range": [0, 99_999]}),
]
MEETING: list[Way] = [
    ("exact", {}),
    ("exact", {"fingerprint_bytes": 8}),
    ("bitmap", {"range": [0, 99_999]}),
]


def plain(seen: Any, numbers: Any) -> list[Any]:
    """The keys of these numbers, as a program has them."""
    return [key_of(seen, int(number)) for number in numbers]


def holding(way: Way, numbers: Any, capacity: int = 1000, **more: Any) -> Any:
    """A filter with the keys of these numbers, all at one time."""
    kind, options = way
    seen = built(kind, capacity, **{**options, **more})
    numbers = np.array(numbers)
    seen.add_many(keys_of(seen, numbers), *in_time(seen, np.zeros(len(numbers), np.int64)))
    return seen


# --- update ---


def test_update_adds_what_iterables_yield() -> None:
    """As `add` of each, whatever yields them, in batches; a key counts once."""

    def check(way: Way) -> None:
        kind, options = way
        numbers = range(KEYS_A_BATCH + 500)
        seen = built(kind, 2 * len(numbers), **options)
        keys = plain(seen, numbers)
        assert (
            seen.update() is seen.update(iter(keys), set(keys[:5]), dict.fromkeys(keys), ()) is None
        )
        assert len(seen) == len(keys)
        assert seen.contains_many(keys_of(seen, numbers)).all()
        if not getattr(seen, "multiset", False):
            assert seen == holding(way, numbers, 2 * len(numbers))

    every(TIMELESS, check)


def test_update_takes_a_batch_at_once() -> None:
    """Digests, and a column of pyarrow."""
    seen = built("bloom", 1000)
    seen.update(seen.digests(["a"]), pa.array(["b", "c"]))
    assert [key for key in "abcd" if key in seen] == ["a", "b", "c"]


def failing() -> Iterator[str]:
    """What yields no key, but an error."""
    raise RuntimeError("no more")
    yield ""


@pytest.mark.parametrize(
    ("rest", "error"),
    [
        ([None, "c"], TypeError),
        (["\ud800", "c"], MalformedError),
        (["no URL", "c"], MalformedError),
        (failing, RuntimeError),
    ],
)
@pytest.mark.parametrize("before", [2, KEYS_A_BATCH + 2])
def test_update_adds_what_comes_before_an_error(rest: Any, error: type, before: int) -> None:
    """A key that is refused, or an iterable that fails, in the first batch or in a later one."""
    keys = [f"http://example.com/{number}" for number in range(before)]
    seen = built("cuckoo", 10_000, normalize="url")
    rest = rest() if callable(rest) else rest
    with pytest.raises(error):
        seen.update(itertools.chain(keys, rest), ["http://example.com/never"])
    assert len(seen) == before
    assert all(key in seen for key in keys)


def test_update_of_a_filter_that_stops_adds_whole_batches() -> None:
    """Those before the one that has more new keys than fit."""
    seen = built("cuckoo", KEYS_A_BATCH + 5, on_full="stop")
    with pytest.raises(FilterFullError):
        seen.update(map(str, range(KEYS_A_BATCH + 6)))
    assert len(seen) == KEYS_A_BATCH
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        built("cuckoo", 10).update(map(str, range(20)))
    assert [(one.category, one.filename) for one in caught] == [(FilterFullWarning, __file__)]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("a key", "update takes iterables of keys, not of type str"),
        (b"a key", "of a single key: f.add"),
        (5, "not iterable"),
        (streamdedup.build({"kind": "bloom", "capacity": 9}), r"cannot list its keys; a \|= b"),
    ],
)
def test_update_refuses_a_single_key(given: Any, text: str) -> None:
    """A text would be added letter by letter."""
    seen = built("bloom", 100)
    with pytest.raises(TypeError, match=text):
        seen.update(given)
    assert not seen


def test_update_of_a_window_by_time_asks_for_times() -> None:
    """By an error that names the option as `build` does, and the methods that take times."""
    with pytest.raises(ConfigError, match=r"f.add_many\(keys, times\).* leave retention out"):
        built("window", 100).update(["a"])


# --- batches of plain keys ---


def forms(seen: Any, keys: list[Any]) -> list[Any]:
    """The same keys, in all forms that a batch may have."""
    if hasattr(seen, "range"):
        return [keys, tuple(keys), seen.digests(keys)]
    offsets = np.cumsum([0, *map(len, keys)])
    return [keys, tuple(keys), pa.array(keys), (b"".join(keys), offsets), seen.digests(keys)]


def test_batches_take_plain_keys() -> None:
    """Each method answers and changes as with their digests."""

    def check(way: Way) -> None:
        kind, options = way
        one = built(kind, 1000, **options)
        keys = plain(one, [*range(300), *range(200)])
        names = ("add_many", "contains_many", "add_absent", "remove_many", "generations_many")
        for name in filter(lambda name: hasattr(one, name), names):
            outcomes = []
            for form in forms(one, keys):
                seen = holding(way, range(100))
                times = np.zeros(len(keys), np.int64)
                answer = getattr(seen, name)(
                    form, *(in_time(seen, times) if name == "add_many" else [])
                )
                outcomes.append((answer.tolist(), state(seen)))
            assert all(outcome == outcomes[-1] for outcome in outcomes), name

    every(WAYS, check)


def test_other_arrays_are_refused_as_before() -> None:
    """A kernel would read their numbers as hashes; and no message quotes a key."""
    seen = built("bloom", 100)
    wrong: list[Any] = [
        np.array(["a"]),
        np.arange(4),
        np.zeros((1, 2)),
        "a key",
        [1.5],
        None,
        {"a"},
    ]
    for name, keys in itertools.product(("add_many", "contains_many"), wrong):
        with pytest.raises(TypeError) as error:
            getattr(seen, name)(keys)
        assert "a key" not in str(error.value)
    assert not seen


# --- clear ---


@pytest.mark.parametrize(
    "more", [{}, {"on_full": "stop"}, {"hash": "siphash", "hash_key": HASH_KEY}]
)
@pytest.mark.filterwarnings("ignore::streamdedup.FilterFullWarning")
def test_a_cleared_filter_is_as_it_was_built(more: Mapping[str, Any], tmp_path: Path) -> None:
    """In all by which two could differ; and goes on so, also where it was loaded, and where it has grown."""

    def check(way: Way) -> None:
        kind, options = way
        if ("range" in options and "hash" in more) or ("on_full" in options and "on_full" in more):
            return
        count = 200 if more.get("on_full") == "stop" else 3000
        empty = built(kind, 200, **options, **more)
        seen = holding(way, range(count), 200, **more)
        streamdedup.save(seen, tmp_path / "saved")
        loaded: Any = streamdedup.load(tmp_path / "saved", hash_key=more.get("hash_key", b""))
        for one in (seen, loaded, pickled(seen)):
            assert one.clear() is None
            assert state(one) == state(empty)
            assert one == empty
            assert one.capacity == empty.capacity
            assert one.add(key_of(one, 7), *in_time(one, 0))
            assert len(one) == 1

    every(WAYS, check)


def test_builtins_do_not_meet_the_table_of_before() -> None:
    """They worked on it until it was cleared, and do so on the new one from the next call on."""

    def check(way: Way) -> None:
        kind, options = way
        seen = built(kind, 100, **options)
        for number in range(3):
            at = in_time(seen, 10**12)
            assert seen.add(key_of(seen, number), *at)
            assert not seen.add(key_of(seen, number), *at)
            had_builtins = seen._state[OPEN]
            seen.clear()
            assert not seen._state[OPEN]
            assert key_of(seen, number) not in seen
            assert seen._state[OPEN] == had_builtins

    every(WAYS, check)


def test_a_cleared_filter_keeps_its_normalization_and_warns_again() -> None:
    """Once more, as one that was just built."""
    seen = built("bloom", 10, normalize="lowercase")
    for _ in range(2):
        with pytest.warns(FilterFullWarning) as caught:
            for number in range(30):
                seen.add(f"{number}")
        assert len(caught) == 1
        seen.clear()
    assert seen.add("A")
    assert "a" in seen


def test_a_mapped_filter_cannot_be_cleared(tmp_path: Path) -> None:
    """Others may have mapped it, too."""

    def check(way: Way) -> None:
        seen = holding(way, range(3))
        streamdedup.save(seen, tmp_path / "saved")
        mapped: Any = streamdedup.load(tmp_path / "saved", mmap=True)
        with pytest.raises(ConfigError, match="read-only view of a file"):
            mapped.clear()
        assert len(mapped) == 3

    every(WAYS, check)


# --- unions and intersections ---


def test_a_union_by_an_operator_leaves_both_as_they_are() -> None:
    """It is a new filter, equal to what `|=` makes."""

    def check(way: Way) -> None:
        one, other = holding(way, range(60)), holding(way, range(40, 90))
        before = state(one), state(other)
        made = one | other
        assert (state(one), state(other)) == before
        assert made.contains_many(keys_of(made, range(90))).all()
        one |= other
        assert made == one
        assert type(made) is type(one)

    every(UNIONABLE, check)


@pytest.mark.parametrize("kind", ["blocked", "bloom", "counting"])
def test_a_union_has_no_fewer_keys_than_one_filter_nor_more_than_both(kind: str) -> None:
    """Its number is an estimate, but a full filter joined with an empty one is no more than full."""
    for seed in range(20):
        full, empty = (built(kind, 1000, on_full="stop") for _ in range(2))
        full.update(f"{seed} {number}" for number in range(1000))
        assert len(full | empty) == len(empty | full) == 1000


def test_an_intersection_holds_what_both_hold() -> None:
    """Exactly, whatever their capacities; in place, or as a new filter."""

    def check(way: Way) -> None:
        one = holding(way, range(5000), 6000)
        other = holding(way, range(3000, 9000), 6000 if "range" in way[1] else 9000)
        before = state(one), state(other)
        made = one & other
        assert (state(one), state(other)) == before
        assert made.contains_many(keys_of(made, range(10_000))).tolist() == [
            3000 <= number < 5000 for number in range(10_000)
        ]
        assert len(made) == 2000
        one &= other
        assert made == one == holding(way, range(3000, 5000), 6000)
        one &= one
        assert len(one) == 2000
        assert one.add(key_of(one, 1))
        assert not (one & built(way[0], 10 if "range" not in way[1] else 6000, **way[1]))

    every(MEETING, check)


def test_what_a_table_cannot_do_is_refused_with_the_reason() -> None:
    """A TypeError, by the operators as by those that work in place."""

    def check(way: Way) -> None:
        one, other = holding(way, range(9)), holding(way, range(9))
        before = state(one)
        if (way[0], {}) not in UNIONABLE or "on_full" in way[1]:
            with pytest.raises(TypeError, match=r"has no union: .* list its keys; .* bloom"):
                one | other
            with pytest.raises(TypeError, match="has no union"):
                one |= other
            with pytest.raises(TypeError, match="has no union"):
                one.union(other)
        if (way[0] != "exact" and "range" not in way[1]) or "on_full" in way[1]:
            with pytest.raises(TypeError, match=r"has no intersection: .* key in a and key in b"):
                one & other
            with pytest.raises(TypeError, match="has no intersection"):
                one &= other
            with pytest.raises(TypeError, match="has no intersection"):
                one.intersection(other)
        for name in REFUSED:
            with pytest.raises(TypeError, match=f"{name} is not for filters: .*; "):
                getattr(one, name)(other)
        for name, (shown, _) in OPERATORS.items():
            with pytest.raises(TypeError, match=rf"^{re.escape(shown)} is not for filters: .*; "):
                getattr(one, name)(other)
        assert state(one) == before

    every(WAYS, check)


@pytest.mark.parametrize(
    "operation", [op.le, op.lt, op.ge, op.gt, op.sub, op.xor, op.or_, op.and_], ids=str
)
def test_a_set_beside_a_filter_says_what_to_write(operation: Callable[[Any, Any], object]) -> None:
    """Also if the set stands on the left."""
    seen = built("cuckoo", 10)
    for one, other in (({"a"}, seen), (seen, {"a"})):
        with pytest.raises(TypeError, match=r"; (ask|add) "):
            operation(one, other)


def test_what_takes_no_key_out_says_which_kinds_do() -> None:
    """`remove` never does, since its error would have the key; and no attribute is there that cannot be called."""

    def check(way: Way) -> None:
        one: Any = (
            streamdedup.build({"kind": "fuse", "keys": ["a"]})
            if way[0] in STATIC
            else holding(way, range(9))
        )
        for name in ("discard", "remove_many"):
            assert hasattr(one, name) == isinstance(one, streamdedup.Removable)
            if not hasattr(one, name):
                with pytest.raises(
                    AttributeError, match=f"has no {name}.*; (take|build) "
                ) as error:
                    getattr(one, name)
                assert ", ".join(REMOVABLE) in str(error.value) or way[0] in STATIC
        helps = r"f\.discard\(key\) returns False" if hasattr(one, "discard") else "has no remove"
        with pytest.raises(TypeError, match=helps):
            one.remove(key_of(one, 1))

    every([*WAYS, ("fuse", {})], check)


def test_unions_and_intersections_take_any_number_of_filters() -> None:
    """By name, as those of a set; without one, they are copies."""
    some = [holding(("bloom", {}), range(start, start + 10)) for start in (0, 5, 20)]
    assert some[0].union(*some[1:]) == some[0] | some[1] | some[2]
    exact = [holding(("exact", {}), range(start, start + 10)) for start in (0, 5, 8)]
    assert exact[0].intersection(*exact[1:]) == exact[0] & exact[1] & exact[2]
    assert len(exact[0].intersection(*exact[1:])) == 2
    for copied, one in ((some[0].union(), some[0]), (exact[0].intersection(), exact[0])):
        assert copied == one
        assert copied is not one


def test_filters_that_do_not_fit_together_have_no_intersection() -> None:
    """Nor have a filter and a set."""
    one = built("exact", 100)
    for other in (built("exact", 100, fingerprint_bytes=8), built("cuckoo", 100)):
        with pytest.raises(ConfigError, match="the filters have no intersection: "):
            one & other
    with pytest.raises(TypeError, match=r"not with what is of type set; ask for each of yours"):
        one & {"a"}
    with pytest.raises(TypeError, match="a filter has a union with another filter"):
        built("bloom", 9) | {"a"}


# --- equality ---

ANY_ORDER = [
    way
    for way in WAYS
    if way[0] in {"bitmap", "blocked", "bloom", "counting", "cuckoo", "exact"}
    and "on_full" not in way[1]
]


def test_filters_with_the_same_keys_are_equal() -> None:
    """In whatever order they came, where a table does not keep it; one key more or less makes them differ."""

    def check(way: Way) -> None:
        draw = random.Random(520)
        numbers = list(range(950))
        one = holding(way, numbers)
        draw.shuffle(numbers)
        other = holding(way, numbers)
        assert one == other
        assert other.add(key_of(other, 5000))
        assert one != other
        if hasattr(one, "discard"):
            assert other.discard(key_of(other, 5000))
            assert one == other
            other.discard(key_of(other, numbers[0]))
            other.add(key_of(other, 5000))
            assert len(one) == len(other)
            assert one != other

    every(ANY_ORDER, check)


def test_an_equal_filter_has_got_the_same_in_the_same_order() -> None:
    """Of every kind; and a copy is equal until either changes."""

    def check(way: Way) -> None:
        one, other, less = (holding(way, range(count)) for count in (950, 950, 949))
        assert one == other
        assert one != less
        copied = one.copy()
        assert copied == one
        assert copied.add(key_of(one, 5000), *in_time(one, 0))
        assert copied != one

    every(WAYS, check)


def test_a_stash_counts_as_content() -> None:
    """Of a `cuckoo`: keys beyond its cells, in whatever rows they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FilterFullWarning)
        one, other = (holding(("cuckoo", {}), range(90), 40) for _ in range(2))
    assert one._stash.used[0] > 10
    assert one == other
    in_stash = next(
        f"{i}".encode()
        for i in range(89, 0, -1)
        if one._stash.has(*one.hash.signed(f"{i}".encode()))
    )
    assert other.discard(in_stash)
    assert one != other
    assert other.add(in_stash)
    assert one == other


@pytest.mark.parametrize(
    "more",
    [
        {"capacity": 1001},
        {"error_rate": 1e-3},
        {"hash": "siphash", "hash_key": HASH_KEY},
        {"multiset": True},
        {"normalize": "trim"},
        {"on_full": "stop"},
        {"kind": "dleft"},
    ],
    ids=str,
)
def test_filters_of_other_options_differ(more: Mapping[str, Any]) -> None:
    """Empty ones, too; and no filter equals what is none."""
    config = {"kind": "cuckoo", "capacity": 1000, "error_rate": 1e-6}
    one, other = streamdedup.build(config), streamdedup.build({**config, **more})
    assert one != other
    assert one != cast("object", set())
    assert one == streamdedup.build(config)


def test_static_filters_are_equal_if_their_lists_are() -> None:
    """In any order. They cannot change, so a copy is the same object."""
    keys = [f"{number}" for number in range(1000)]
    config = {"kind": "fuse", "error_rate": 0.01}
    one, other, less = (
        streamdedup.build({**config, "keys": some}) for some in (keys, keys[::-1], keys[1:])
    )
    assert one == other != less
    assert copy.copy(one) is one
    assert pickled(one) == one
    assert one.contains_many(keys).all()
    with pytest.raises(ConfigError, match="takes no further keys"):
        one.add("a")


def test_static_filters_refuse_what_would_change_them() -> None:
    """By an error that says why; not as if they lacked a method, or were mapped from a file."""
    seen: Any = streamdedup.build({"kind": "fuse", "keys": ["a"]})
    for change in (seen.clear, lambda: seen.update(["b"]), lambda: seen.add("b")):
        with pytest.raises(ConfigError, match=r"a fuse filter .*; build it again from"):
            change()
    assert "a" in seen


def test_a_filter_is_no_key() -> None:
    """It can change, as a set can."""
    for kind in ("bloom", *STATIC):
        options: dict[str, Any] = {"keys": []} if kind in STATIC else {"capacity": 9}
        seen = streamdedup.build({"kind": kind, **options})
        with pytest.raises(TypeError, match="unhashable"):
            hash(seen)


# --- what it says of itself ---


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"kind": "cuckoo", "capacity": "1M"}, "<Cuckoo 2 of 1,000,000 keys, error 1.8e-12>"),
        ({"kind": "dlcbf", "capacity": 1000}, "<DLCBF 2 of 1,000 keys, error 1.4e-09>"),
        ({"kind": "bitmap", "range": [0, 9]}, "<Bitmap 2 of 10 keys, error 0>"),
        ({"kind": "window", "capacity": 50}, "<Window 2 of 50 keys, error 6.6e-09>"),
        (
            {"kind": "bloom", "capacity": 1, "on_full": "grow"},
            "<Bloom in 2 stages, 2 of 15 keys, error 1.4e-08>",
        ),
    ],
    ids=str,
)
def test_a_filter_shows_how_full_it_is(config: Mapping[str, Any], text: str) -> None:
    """Its kind, its keys, and how often it errs now; no key."""
    seen: Any = streamdedup.build(config)
    seen.update([1, 2] if "range" in config else ["a", "b"])
    assert repr(seen) == text
    assert seen
    seen.clear()
    assert not seen


def test_help_says_what_a_method_takes_and_costs() -> None:
    """Of one key and of batches; before it is a builtin, and after."""

    def check(way: Way) -> None:
        kind, options = way
        seen = built(kind, 10, **options)
        for _ in range(2):
            for name in ("add", "add_many", "contains_many", "__contains__"):
                text = getattr(type(seen), name).__doc__
                assert "digests` (n, 2)" not in text
                assert "`str`" in text
                assert " cost" in text
            seen.add(key_of(seen, 1), *in_time(seen, 0))

    every(WAYS, check)


def test_errors_name_options_as_a_program_writes_them() -> None:
    """Those of `build`, and those of methods."""
    calls: list[Callable[[], object]] = [
        lambda: streamdedup.build({"kind": "bloom"}),
        lambda: streamdedup.build({"kind": "bloom", "capacity": 0}),
        lambda: streamdedup.build({"kind": "bloom", "capacity": 10**13, "error_rate": 1e-15}),
        lambda: streamdedup.build(
            {"kind": "bloom", "capacity": 10, "on_full": "grow", "max_size": 1}
        ),
        lambda: streamdedup.build({"kind": "bloom", "capacity": 10, "hash": "siphash"}),
        lambda: streamdedup.build({"kind": "window", "capacity": 10, "on_full": "grow"}),
        lambda: built("bitmap", 10, range=[0, 9]).add(10),
        lambda: built("bitmap", 10, range=[0, 9]).add_many([10]),
        lambda: built("bitmap", 10, range=[0, 9]).digests(["a"]),
        lambda: True in built("bitmap", 10, range=[0, 9]),
        lambda: built("window", 10).add("a"),
        lambda: built("window", 10).add_many(["a"]),
    ]

    def check(call: Callable[[], object]) -> None:
        with pytest.raises((ConfigError, ValueError, TypeError)) as error:
            call()
        assert "filter." not in str(error.value)
        assert "file" not in str(error.value)

    every(calls, check)
