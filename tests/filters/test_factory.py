"""`build`: whatever it is given becomes a filter, or an error of ours that names the option, the value, what to do."""

import inspect
import itertools
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import streamdedup
from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.filters import GROWABLE, KINDS
from streamdedup.filters.base import Addable, Removable, Static
from streamdedup.filters.bitmap.direct import DirectBitmap
from streamdedup.filters.bitmap.hashed import HashedBitmap
from streamdedup.filters.factory import COMMON
from streamdedup.filters.fuse.fuse import Fuse
from streamdedup.filters.kinds import CELLED
from streamdedup.filters.stash import spare_bytes
from tests.filters.cases import CASES, HASH_KEY, Case, random_digests
from tests.rows import table

BLOOM: dict[Any, Any] = {"kind": "bloom", "capacity": 10}
CUCKOO: dict[Any, Any] = {"kind": "cuckoo", "capacity": 10}


@table(
    [
        ("bloom", r'build takes a mapping, such as {"kind": "bloom", .*}, and not \'bloom\''),
        (None, "build takes a mapping, .* and not None"),
        ([("kind", "bloom")], "build takes a mapping"),
        ({}, r"kind is required; choose one of: bitmap, blocked, bloom"),
        ({"capacity": 10}, r"kind is required"),
        ({"kind": None}, r"kind None is unknown; choose one of"),
        ({"kind": "blom", "capacity": 10}, r"kind 'blom' is unknown; .*bloom"),
        ({"kind": ["bloom"]}, r"kind \['bloom'\] is unknown"),
        ({"kind": "bloom"}, r'capacity is required: .*{"kind": "bloom", "capacity": 1_0'),
        ({"kind": "exact"}, r"capacity is required"),
        ({"kind": "bitmap", "range": None}, r"capacity is required"),
        ({"kind": "window", "retention": "7d"}, r"capacity is required"),
        ({**BLOOM, "capacty": 10}, r"capacty is unknown; did you mean capacity\?"),
        ({**BLOOM, "hash_": "siphash"}, r"hash_ is unknown; did you mean hash\?"),
        (
            {**BLOOM, 7: 7},
            r"7 is unknown; bloom takes capacity, error_rate, hash, hash_key",
        ),
        (
            {**BLOOM, "retention": "7d"},
            r"retention is not for kind bloom, but for window; leave it out, or choose that kind",
        ),
        (
            {**CUCKOO, "probe": "double"},
            r"probe is not for .*cuckoo, but for bitmap, bloom, counting; leave it",
        ),
        ({**BLOOM, "range": [0, 9]}, r"range is not for .*bloom, but for bitmap; leave"),
        ({**BLOOM, "keys": ["a"]}, r"keys is not for kind bloom, but for fuse"),
        ({**BLOOM, "on_full": "full"}, r"on_full 'full' is unknown; .*: warn, stop, grow"),
        ({**BLOOM, "on_full": ["grow"]}, r"on_full \['grow'\] is unknown"),
        ({**BLOOM, "on_full": None}, r"on_full None is unknown"),
        ({**BLOOM, "max_size": "1MB"}, r"max_size .*give on_full: grow"),
        ({**BLOOM, "hash_key": "0" * 32, "hash": "siphash"}, r"is of type str, .*bytes\.fromhex"),
        ({**BLOOM, "hash": ["murmur3"]}, "is unknown; choose one of: murmur3, siphash"),
        ({**BLOOM, "hash": "md5"}, "hash 'md5' is unknown"),
        ({**BLOOM, "hash": "siphash"}, "siphash takes 16 bytes"),
        ({**CUCKOO, "multiset": 1}, r"multiset is 1; it must be True or False"),
        ({**CUCKOO, "multiset": "yes"}, r"multiset is 'yes'"),
        (
            {**CUCKOO, "multiset": True, "on_full": "grow"},
            r"multiset is not for on_full grow",
        ),
        (
            {"kind": "exact", "capacity": 10, "multiset": True},
            r"multiset is not for kind exact, but for counting, cuckoo",
        ),
        ({**BLOOM, "multiset": False}, r"multiset is not for kind bloom"),
        ({"kind": "exact", "capacity": 10, "load": "0.8"}, r"load is '0\.8'; it must be a"),
        ({"kind": "exact", "capacity": 10, "load": None}, r"load is None; it must be a"),
        ({"kind": "exact", "capacity": 10, "fingerprint_bytes": 8.0}, r"is 8\.0; choose 8 or 16"),
        ({**BLOOM, "probe": ["double"]}, r"probe \['double'\] is unknown"),
        ({**BLOOM, "on_full": "grow", "max_size": [1]}, r"max_size \[1\] is not a size"),
    ]
)
def test_what_cannot_be_built_is_named_with_the_remedy(row: tuple[Any, str]) -> None:
    """Nothing of Python's own is told: no constructor, no argument count."""
    config, said = row
    with pytest.raises(ConfigError, match=said) as told:
        streamdedup.build(config)
    assert not re.search(r"__init__|argument|unhashable|object|filter\.", str(told.value))


@table(
    itertools.product(
        [True, 1e6, None, [10], np.float64(10), "many", "-3", "1.5"],
        [kind for kind in KINDS if kind != "fuse"],
    )
)
def test_a_capacity_of_another_type_is_quoted(row: tuple[object, str]) -> None:
    """As it was written, for every kind."""
    wrong, kind = row
    with pytest.raises(ConfigError, match=rf"capacity (is )?{re.escape(repr(wrong))}"):
        streamdedup.build({"kind": kind, "capacity": wrong})


@table(itertools.product(["0.01", [0.01], True, 1 + 0j, 10**400, Fraction(3, 2)], list(KINDS)))
def test_an_error_rate_of_another_type_is_quoted(row: tuple[object, str]) -> None:
    """As it was written, for every kind."""
    wrong, kind = row
    config = {"kind": kind, "error_rate": wrong}
    config |= {"keys": ["a"]} if kind == "fuse" else {"capacity": 10}
    with pytest.raises(ConfigError, match=rf"error_rate is {re.escape(repr(wrong))}; it"):
        streamdedup.build(config)


@table(CASES)
def test_numbers_are_taken_as_text_and_as_numpy_has_them(case: Case) -> None:
    """Sizes and headers are those of the plain numbers, so what is saved comes back."""
    rate = case.error_rates[0]
    plain = filters.build({"kind": case.kind, "capacity": 1000, "error_rate": rate, **case.options})
    for capacity in ("1k", "1_000", np.int64(1000), np.uint16(1000)):
        config = {"kind": case.kind, "capacity": capacity, "error_rate": np.float64(rate)}
        seen = filters.build({**config, **case.options})
        assert seen.header() == plain.header()
        assert type(seen.header()["error_rate"]) is float
        assert type(seen.capacity) is int
    short = {"kind": case.kind, "capacity": 10**6, "error_rate": np.float32(0.01), **case.options}
    seen = filters.build(
        short
    )  # as it is, its logarithms would have few digits, and other sizes follow
    assert case.restore(seen.header(), seen.buffers()).header() == seen.header()


@table([kind for kind in KINDS if kind not in ("fuse", "bitmap")])
def test_the_options_of_a_kind_are_those_of_its_constructor(kind: str) -> None:
    """So none is refused that it takes, and none let through that it does not."""
    parameters = set(inspect.signature(filters.kind_of(kind)).parameters)
    assert {*KINDS[kind].options, "capacity", "error_rate", "hash_"} == parameters


def test_the_options_of_a_bitmap_are_those_of_both() -> None:
    """The one by hash and the one of a range; `build` tells which takes which."""
    both = [set(inspect.signature(one).parameters) for one in (HashedBitmap, DirectBitmap)]
    assert set.union(*both) == {*KINDS["bitmap"].options, "capacity", "error_rate", "hash_"}


def test_the_docstring_lists_every_kind_and_option() -> None:
    """Whoever asks for help on `build` sees what there is."""
    told = streamdedup.build.__doc__ or ""
    for name in (*KINDS, *COMMON, *(name for kind in KINDS.values() for name in kind.options)):
        assert f"`{name}`" in told, name


# --- fuse ---


@table([["a", "b"], [b"a", b"b"], pa.array(["a", "b"]), (b"ab", [0, 1, 2])])
def test_a_list_is_built_of_its_keys(keys: Any) -> None:
    """In whatever form `digests` takes them; the filter is that of `from_digests`."""
    config = {"kind": "fuse", "keys": keys, "error_rate": 0.01}
    seen: Any = streamdedup.build({**config, "hash": "siphash", "hash_key": HASH_KEY})
    with pytest.raises(ConfigError, match="build it again"):
        seen.add("c")
    assert isinstance(seen, Static)
    assert not isinstance(seen, Addable)
    same = Fuse.from_digests(seen.digests(["b", "a"]), 0.01, seen.hash)
    assert (seen.header(), seen.buffers()) == (same.header(), same.buffers())
    assert "a" in seen
    assert seen.contains_many(seen.digests(keys)).all()
    assert len(seen) == 2
    assert streamdedup.build({"kind": "fuse", "keys": keys}).error_rate == 2.0**-20


@table(
    itertools.product(
        [{}, {"on_full": "grow"}], sorted(set(KINDS) - {"bitmap"}), [1e-80, 1e-40, 5e-324]
    )
)
def test_error_rates_below_those_of_digests_are_refused(
    row: tuple[dict[str, str], str, float],
) -> None:
    """By every kind: of a thousand digests of 128 bits, one in 3e35 is that of an absent key."""
    on_full, kind, error_rate = row
    sized: dict[str, object] = {"keys": ["a"]} if kind == "fuse" else {"capacity": 1000, **on_full}
    timed = {"retention": "1d"} if kind == "window" else {}
    with pytest.raises(ConfigError, match=r"error_rate|error rate|takes"):
        streamdedup.build({"kind": kind, "error_rate": error_rate, **sized, **timed})
    if kind in ("bloom", "counting"):
        with pytest.raises(ConfigError, match=r"its lowest error rate is 2\.9e-36"):
            KINDS[kind].footprint(1000, error_rate)


def test_a_list_without_keys_is_refused_with_an_example() -> None:
    """And one with a capacity, which follows from the keys; what is no key is told by `digests`."""
    example = r'^keys is required .*{"kind": "fuse", "keys": \["a", "b"\], "error_rate"'
    with pytest.raises(ConfigError, match=example):
        streamdedup.build({"kind": "fuse", "capacity": 10})
    with pytest.raises(ConfigError, match=r"^capacity is not for kind fuse.*leave"):
        streamdedup.build({"kind": "fuse", "capacity": 10, "keys": ["a"]})
    with pytest.raises(TypeError, match=r"give list\(keys\)"):
        streamdedup.build({"kind": "fuse", "keys": {"a"}})
    with pytest.raises(ConfigError, match=r"filter\.error_rate is None; it must be a number"):
        Fuse.from_digests(random_digests(1, 3), cast("float", None))


# --- what a filter says of itself, and of what it is given ---


@table(CASES)
def test_a_filter_shows_what_it_is_and_no_key(case: Case) -> None:
    """Kind, keys, capacity, memory, error."""
    seen = case.build(1000, case.error_rates[0])
    seen.add("sekrit")
    name = re.escape(getattr(seen, "stages", case.kind))
    shown = (
        rf"<streamdedup {name}: 1 of {seen.capacity:,} keys, [\d.]+ (bytes|[kM]B), error 0\.0\d+>"
    )
    assert re.fullmatch(shown, repr(seen))


def test_those_that_are_no_common_case_are_shown_too() -> None:
    """A bitmap of a range makes no errors; a list has the error of its bits; sizes are of a thousand each."""
    direct = filters.build({"kind": "bitmap", "range": [0, 63]})
    assert repr(direct) == "<streamdedup bitmap: 0 of 64 keys, 8 bytes, error 0>"
    fuse = filters.build({"kind": "fuse", "keys": ["sekrit"], "error_rate": 0.5})
    assert re.fullmatch(r"<streamdedup fuse: 1 of 1 keys, \d+ bytes, error 0\.5>", repr(fuse))
    bloom = filters.build({"kind": "bloom", "capacity": "1M", "error_rate": 0.001})
    assert repr(bloom) == "<streamdedup bloom: 0 of 1,000,000 keys, 1.8 MB, error 0.001>"


@table(CASES)
def test_keys_in_the_place_of_digests_are_told_the_way(case: Case) -> None:
    """By every call that takes many, whatever it is given."""
    seen = case.build(10)
    calls: list[Callable[..., Any]] = [seen.add_many, seen.contains_many]
    if isinstance(seen, Removable):
        calls += [seen.add_absent, seen.remove_many]
    for call in calls:
        for wrong in (["a"], None, 7, np.array(["a"])):
            with pytest.raises(TypeError, match=r"see f\.digests, .*add_many\(f\.digests\(keys\)"):
                call(wrong)
    assert len(seen) == 0


@table(["bitmap", "blocked", "bloom", "counting"])
def test_a_union_tells_what_was_asked_for_differently(kind: str) -> None:
    """Capacity, rate, hash, key, rather than the sizes that follow; what is no filter has its own remedy."""
    asked: dict[str, Any] = {"kind": kind, "capacity": 1000, "error_rate": 0.01}
    keyed = {"hash": "siphash", "hash_key": HASH_KEY}
    differences: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, {"capacity": 2000}, r"capacity differs \(1000, 2000\); build both alike"),
        ({}, {"error_rate": 0.1}, r"error_rate differs \(0\.01, 0\.1\)"),
        ({}, keyed, r"hash differs \('murmur3', 'siphash'\)"),
        (keyed, {**keyed, "hash_key": bytes(16)}, "hash_key differs; build both alike"),
    ]
    if kind != "blocked":
        probes = r"probe differs \('standard', 'double'\)"
        differences.append(({}, {"probe": "double"}, probes))
    if kind == "counting":
        differences.append(({}, {"multiset": True}, r"multiset differs \(False, True\)"))
    for one, other, said in differences:
        seen: Any = streamdedup.build({**asked, **one})
        with pytest.raises(ConfigError, match=said):
            seen |= streamdedup.build({**asked, **other})
    for stranger in ({"a"}, "a", None, 7):
        seen = streamdedup.build(asked)
        with pytest.raises(TypeError, match=r"is of type .*; add keys by f\.update\(keys\)"):
            seen |= stranger


@pytest.mark.parametrize("kind", GROWABLE)
def test_beyond_max_size_a_growing_filter_takes_keys_and_tells(kind: str) -> None:
    """As the docstring says: none is refused, all are found, `len` is above `capacity`, and the remedy is told."""
    config: dict[str, Any] = {"kind": kind, "capacity": 100, "error_rate": 0.01, "on_full": "grow"}
    timed = kind == "window"
    config |= {"retention": "1d"} if timed else {}
    first = streamdedup.build({**config, "max_size": "1MiB"}).size_bytes
    spare = spare_bytes() if kind in CELLED else 0
    seen: Any = streamdedup.build({**config, "max_size": first + spare})
    keys = random_digests(5, 1000)
    said = rf"of {kind} in \d stages? is .* a greater max_size"
    with pytest.warns(streamdedup.FilterFullWarning, match=said):
        seen.add_many(keys, *([np.arange(1000)] if timed else []))
    assert seen.contains_many(keys).all()
    assert len(seen) > seen.capacity == 100
    assert seen.error_rate_now > 0
