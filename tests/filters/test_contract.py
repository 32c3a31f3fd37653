"""The contract of every kind of filter, with each of its options: a new kind is held to it by its line in CASES.

Each test goes through all cases. How often they err is measured in proof/filters/test_error_rates.py.
"""

import itertools
import json
import math
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.filters.base import Addable, Filter, Removable, Unionable
from streamdedup.keys.hashing import Hash
from streamdedup.native import OPEN
from tests.filters.cases import (
    ALL,
    CASES,
    HASH_KEY,
    KEEPING,
    MULTISETS,
    REMOVABLE,
    STATIC_KINDS,
    UNIONABLE,
    Case,
    band,
    both,
    copies,
    random_digests,
    state,
)
from tests.rows import table


def test_every_kind_has_a_case() -> None:
    """What is registered is tested; windows that grow are in test_growing_window."""
    made = {case.build(10).kind for case in CASES}
    assert made | STATIC_KINDS | {"windows"} == {*filters.KINDS, *filters.LOADED}


# --- membership ---


@table(both(KEEPING))
@settings(deadline=None, max_examples=15)
@given(st.lists(st.binary(max_size=4), max_size=200, unique=True), st.integers(1, 50))
def test_what_was_added_is_found(case: Case, keys: list[bytes], capacity: int) -> None:
    """No key that was added is ever absent, also far beyond capacity."""
    seen = case.build(capacity, case.error_rates[0])
    seen.add_many(seen.digests(keys))
    assert seen.contains_many(seen.digests(keys)).all()
    assert all(key in seen for key in keys)


@table(CASES)
def test_keys_of_uneven_batches_are_all_found(case: Case) -> None:
    """Not one of 50,000 is absent."""
    keys = random_digests(1, 50_000)
    seen = case.build(50_000, case.error_rates[0])
    for part in np.array_split(keys, [1, 10, 5_000, 5_001, 20_000]):
        seen.add_many(part)
    assert seen.contains_many(keys).all()


@table(CASES)
def test_equal_digests_see_one_another_in_order(case: Case) -> None:
    """Within one call the first of equal digests is new and the later ones are not."""
    seen = case.build(100)
    fresh = seen.add_many(seen.digests([b"a", b"b", b"a", b"a"]))
    assert fresh.tolist() == [True, True, False, False]
    assert seen.add_many(seen.digests([b"c", b"b"])).tolist() == [True, False]
    assert len(seen) == 3


@table(both(CASES))
@settings(deadline=None, max_examples=8)
@given(st.lists(st.integers(0, 40), max_size=60))
def test_one_by_one_is_the_same_as_all_at_once(case: Case, numbers: list[int]) -> None:
    """Batch borders leave no trace: the same verdicts, the same table, to the bit."""
    keys = [b"%d" % number for number in numbers]
    together, single, rows = (case.build(30, case.error_rates[0]) for _ in range(3))
    expected = together.add_many(together.digests(keys)).tolist()
    assert [single.add(key) for key in keys] == expected
    assert not (keys and case.for_programs) or cast("Any", single)._state[OPEN]
    digests = rows.digests(keys)
    assert [bool(rows.add_many(digests[i : i + 1])[0]) for i in range(len(keys))] == expected
    assert state(single) == state(rows) == state(together)


@table(both(CASES))
def test_texts_are_their_utf_8(case: Case) -> None:
    """A `str` and its bytes are one key; nothing is normalized."""
    seen = case.build(100)
    assert seen.add("Zoë")
    assert "Zoë".encode() in seen
    assert not seen.add("Zoë".encode())
    assert seen.contains_many(seen.digests(["Zoë", "zoë", "Zoe\u0308"])).tolist() == [
        True,
        False,
        False,
    ]


@table(CASES)
def test_batches_may_be_empty(case: Case) -> None:
    """No digests give no answers and change nothing."""
    seen = case.build(100)
    none = seen.digests([])
    assert seen.add_many(none).shape == seen.contains_many(none).shape == (0,)
    assert (len(seen), seen.fill_ratio, seen.error_rate_now) == (0, 0, 0)


@table(CASES)
def test_every_layout_of_digests_means_the_same(case: Case) -> None:
    """Read-only, strided and column-major digests are added and found like any others."""
    rows = random_digests(2, 50)
    expected = case.build(100)
    expected.add_many(rows.copy())
    for layout in (rows, np.asfortranarray(rows), np.repeat(rows, 2, axis=0)[::2]):
        seen = case.build(100)
        assert seen.add_many(layout).all()
        assert seen.contains_many(layout).all()
        assert state(seen) == state(expected)


@table(CASES)
def test_what_is_no_digest_is_refused(case: Case) -> None:
    """Arrays that a kernel would misread are refused, and nothing is added."""
    seen = case.build(100)
    shapes: list[Any] = [np.ones((3, 1), np.uint64), np.ones(6, np.uint64)]
    for wrong in shapes + [np.ones((3, 2), dtype) for dtype in ("i8", "f8", "u4")]:
        for call in (seen.add_many, seen.contains_many):
            with pytest.raises(TypeError, match="digests are uint64"):
                call(wrong)
    assert (len(seen), seen.fill_ratio) == (0, 0)


# --- errors ---


@table(CASES)
def test_the_error_grows_with_the_keys(case: Case) -> None:
    """Theory and the table's own estimate begin at 0 and never fall while keys come."""
    seen = case.build(5000, case.error_rates[0])
    told = [(seen.error_rate_now, seen.fill_ratio, seen.expected_error(0))]
    for keys in np.array_split(random_digests(5, 5000), 10):
        seen.add_many(keys)
        told.append((seen.error_rate_now, seen.fill_ratio, seen.expected_error(len(seen))))
    assert told[0] == (0, 0, 0)
    for column in zip(*told, strict=True):
        assert list(column) == sorted(column)
    assert all(0 <= value <= 1 for row in told for value in row)


# --- parts ---


@table(itertools.product(CASES, [0, 1, 60, 300, 800]))
def test_a_filter_comes_back_from_its_parts(case: Case, keys: int) -> None:
    """Header (through JSON) and a copy of the buffers make an equal filter, which goes on alike, overfull ones, too."""
    seen = case.build(100, case.error_rates[-1])
    seen.add_many(random_digests(6, keys))
    header = json.loads(json.dumps(seen.header()))
    restored = cast("Addable", case.restore(header, copies(seen)))
    assert state(restored) == state(seen)
    more = random_digests(7, 100)
    assert restored.contains_many(more).tolist() == seen.contains_many(more).tolist()
    before = state(seen)
    fresh = restored.add_many(more)
    assert state(seen) == before != state(restored)
    assert seen.add_many(more).tolist() == fresh.tolist()
    assert state(seen) == state(restored)


@table(itertools.product([Case("bloom"), Case("counting")], [1e-37, 0.5, 1 - 1e-7, 1 - 2**-53]))
def test_extreme_error_rates_make_filters_that_come_back(case: Case, error_rate: float) -> None:
    """Every rate that digests of 128 bits can give has a size, and a header that is accepted again."""
    seen = case.build(10, error_rate)
    assert seen.add("a")
    assert state(case.restore(seen.header(), copies(seen))) == state(seen)


@table(both(CASES))
def test_a_filter_may_stand_on_read_only_buffers(case: Case) -> None:
    """As of a mapped file: it answers, and refuses every change with the remedy."""
    seen = case.build(100)
    seen.add("there")
    frozen = [memoryview(bytes(buffer)) for buffer in seen.buffers()]
    restored: Any = case.restore(seen.header(), frozen)
    assert "there" in restored
    assert restored.contains_many(seen.digests(["there", "absent"])).tolist() == [True, False]
    changes: list[Callable[[], object]] = [
        lambda: restored.add("more"),
        lambda: restored.add_many(random_digests(8, 3)),
    ]
    if isinstance(seen, Removable):
        changes.append(lambda: restored.discard("there"))
        changes.append(lambda: restored.remove_many(seen.digests(["there"])))
    if isinstance(seen, Unionable):
        changes.append(lambda: restored.__ior__(seen))
    for change in changes:
        with pytest.raises(ConfigError, match="load it without mmap"):
            change()
    assert state(restored)[1] == [bytes(buffer) for buffer in frozen]


@table(both(CASES))
def test_buffers_are_the_live_table(case: Case) -> None:
    """Buffers are views: what is added later shows in them. They are plain bytes."""
    seen = case.build(100)
    views = seen.buffers()
    before = [bytes(view) for view in views]
    seen.add("a")
    assert [bytes(view) for view in views] != before
    assert all((view.format, view.contiguous) == ("B", True) for view in views)
    assert seen.size_bytes == pytest.approx(sum(len(view) for view in views), abs=4096)


@table(ALL)
def test_tables_begin_on_a_cache_line(case: Case) -> None:
    """The table's address is a multiple of 64, whatever its size."""
    for capacity in (1, 63, 1000, 1_000_003) * 2:
        table = case.holding(min(capacity, 1000), capacity).buffers()[0]
        assert np.frombuffer(table, np.uint8).ctypes.data % 64 == 0


@table(ALL)
def test_headers_that_do_not_fit_are_refused(case: Case) -> None:
    """Every field missing, of another type, or one off: ValueError or ConfigError, never a usable wrong filter."""
    seen = case.holding(50, 100)
    header, parts = seen.header(), copies(seen)
    for name, value in header.items():
        wrongs: list[Any] = [None, "x", -1, 1 << 70, 10**400, 1.5, math.nan, []]
        if type(value) is int:
            wrongs.append(True)
            if value != 0 and name != "keys":  # a table of bits cannot count its keys
                wrongs.append(0)
        if isinstance(value, int) and name not in ("keys", "capacity", "watermark"):
            wrongs += [value - 1, value + 1 if name != "bits" else value + 64]
        if name == "capacity":
            wrongs += [2 * value]
        for wrong in wrongs:
            changed = {**header, name: wrong}
            with pytest.raises((ValueError, TypeError, ConfigError)):
                case.restore(changed, parts)
        if name == "multiset":  # a file that does not say so holds a set
            continue
        with pytest.raises((ValueError, TypeError, ConfigError)):
            case.restore({field: v for field, v in header.items() if field != name}, parts)


@table(ALL)
def test_buffers_that_do_not_fit_are_refused(case: Case) -> None:
    """One missing, one too many, or one of another size is refused, before memory is taken."""
    seen = case.holding(100, 100)
    header, parts = seen.header(), copies(seen)
    longer = memoryview(bytearray(bytes(parts[0]) + bytes(64)))
    shorter = parts[0][:-8]
    for wrong in (parts[:-1], [*parts, parts[0]], [longer, *parts[1:]], [shorter, *parts[1:]]):
        with pytest.raises((ValueError, TypeError, ConfigError)):
            case.restore(header, wrong)


@table(CASES)
def test_a_large_header_over_a_small_table_takes_no_memory(case: Case) -> None:
    """A header that fits itself but promises another table is refused before there is memory for one."""
    large, small = case.build(1_000_000, case.error_rates[0]), case.build(100, case.error_rates[0])
    header, parts = large.header(), copies(small)
    size = large.size_bytes
    del large
    tracemalloc.start()
    try:
        with pytest.raises((ValueError, TypeError, ConfigError)):
            case.restore(header, parts)
        assert tracemalloc.get_traced_memory()[1] < 100_000 < size
    finally:
        tracemalloc.stop()


# --- building ---


IMPOSSIBLE: list[tuple[str, float]] = [
    *(("capacity", value) for value in (0, -1, 10**15, 1.5)),
    *(("error_rate", value) for value in (0.0, 1.0, -0.1, math.nan, math.inf)),
]


@table(itertools.product(CASES, IMPOSSIBLE))
def test_impossible_parameters_are_named(row: tuple[Case, tuple[str, float]]) -> None:
    """A size or rate that cannot be is the operator's error, named with its value."""
    case, (option, value) = row
    config = {"kind": case.kind, "capacity": 10, "error_rate": 0.1, **case.options, option: value}
    with pytest.raises(ConfigError, match=rf"filter\.{option} (is )?{value}"):
        filters.build(config)


@table(CASES)
def test_a_table_beyond_any_machine_is_refused(case: Case) -> None:
    """The operator's error, with the remedy, before memory is asked for."""
    said = rf"filter\.capacity 10000000000000 .*kind {case.kind}: it takes .* TiB.*; .*raise filter.error_rate"
    with pytest.raises(ConfigError, match=said):
        case.build(case.growth * 10**13, 1e-3)


def test_another_hash_is_refused() -> None:
    """A filter does not come back with a hash that would not find its keys."""
    config = {"kind": "bloom", "capacity": 10, "hash": "siphash"}
    seen = filters.build({**config, "hash_key": HASH_KEY})
    with pytest.raises(ValueError, match="siphash"):
        filters.from_parts(seen.header(), seen.buffers(), Hash("siphash", bytes(16)))
    with pytest.raises(ValueError, match="murmur3"):
        filters.from_parts({**seen.header(), "hash": "murmur3"}, seen.buffers())


# --- removal: a set, or a multiset ---


OFTEN = 20  # beyond the counters of `counting`, and the cells of two buckets of `cuckoo`


class Members(RuleBasedStateMachine):
    """A removable filter beside a Counter, at an error rate at which they never differ by chance."""

    case: Case

    def __init__(self) -> None:
        super().__init__()
        self.seen = cast("Removable", self.case.build(300))
        self.model: Counter[int] = Counter()
        self.stuck: set[int] = set()  # counted to the end: such a key never leaves
        self.united = False

    @rule(keys=st.lists(st.integers(0, 60), max_size=30))
    def add(self, keys: list[int]) -> None:
        """Added keys are new exactly where the model has none, in order; in a multiset each addition counts."""
        fresh = []
        for key in keys:
            fresh.append(self.model[key] == 0)
            if self.seen.multiset or not self.model[key]:
                self.count(key)
        assert self.seen.add_many(ids(self.seen, keys)).tolist() == fresh

    def count(self, key: int) -> None:
        """One addition more, as far as additions are counted: of a set by unions only."""
        self.model[key] = min(self.model[key] + 1, self.seen.copies_max)
        if self.model[key] == self.seen.copies_max and self.seen.sticky:
            self.stuck.add(key)

    @rule(key=st.integers(0, 60), more=st.integers(0, 3))
    def add_often(self, key: int, more: int) -> None:
        """A key may be added as often as is counted, and beyond; or more often than its buckets have cells."""
        self.add([key] * (min(self.seen.copies_max, OFTEN) + more))

    @rule(keys=st.lists(st.integers(0, 60), max_size=30))
    def add_absent(self, keys: list[int]) -> None:
        """What is there is not counted again, and what is not there once."""
        fresh = []
        for key in keys:
            fresh.append(self.model[key] == 0)
            self.model[key] = max(self.model[key], 1)
        assert self.seen.add_absent(ids(self.seen, keys)).tolist() == fresh

    @rule(keys=st.lists(st.integers(0, 60), max_size=30))
    def remove(self, keys: list[int]) -> None:
        """A removal takes one addition back, and finds nothing where there is none."""
        gone = []
        for key in keys:
            gone.append(self.model[key] > 0)
            if self.model[key] and key not in self.stuck:
                self.model[key] -= 1
        assert self.seen.remove_many(ids(self.seen, keys)).tolist() == gone

    @rule(key=st.integers(0, 60))
    def remove_often(self, key: int) -> None:
        """As many removals as additions were counted take a key away, but for one that is counted for good."""
        self.remove([key] * (self.model[key] + 1))
        assert (b"%d" % key in self.seen) == (key in self.stuck)

    @rule(key=st.integers(0, 60))
    def discard(self, key: int) -> None:
        """One key at a time is the same."""
        assert self.seen.discard(b"%d" % key) == (self.model[key] > 0)
        if self.model[key] and key not in self.stuck:
            self.model[key] -= 1

    @rule(keys=st.lists(st.integers(0, 120), max_size=30))
    def ask(self, keys: list[int]) -> None:
        """A key is present exactly where the model has one."""
        present = self.seen.contains_many(ids(self.seen, keys)).tolist()
        assert present == [self.model[key] > 0 for key in keys]

    @rule()
    def restore(self) -> None:
        """Go on with what comes back from the parts, which makes no difference."""
        header = json.loads(json.dumps(self.seen.header()))
        self.seen = cast("Removable", self.case.restore(header, copies(self.seen)))

    @precondition(lambda self: isinstance(self.seen, Unionable))
    @rule(keys=st.lists(st.integers(0, 60), max_size=30))
    def unite(self, keys: list[int]) -> None:
        """A union has the additions of both, of two sets as well."""
        other = self.case.build(300)
        other.add_many(ids(other, keys))
        self.seen |= cast("Any", other)
        for key in keys if self.seen.multiset else set(keys):
            self.count(key)
        self.united = True

    @invariant()
    def holds_all(self) -> None:
        """Every key that the model has is found, and `len` tells how many they are; near it after a union."""
        held = [key for key, count in self.model.items() if count]
        assert self.seen.contains_many(ids(self.seen, held)).all()
        low, high = (0.8 * len(held) - 3, 1.2 * len(held) + 3) if self.united else (len(held),) * 2
        assert low <= len(self.seen) <= high


@table(both(REMOVABLE))
def test_removable_kinds_are_sets_or_multisets(case: Case) -> None:
    """Additions, removals, restores in any order: never another answer than a set gives, or a multiset if asked for."""
    assert cast("Removable", case.build(10)).multiset == ("multiset" in case.options)
    played(case, 3)


def played(case: Case, examples: int) -> None:
    """Play so many examples of the machine."""
    machine = type("Members", (Members,), {"case": case})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, deadline=None))


@table(itertools.product(both(MULTISETS), [-1, 0, 1, 20]))
def test_a_key_leaves_after_as_many_removals_as_additions(case: Case, more: int) -> None:
    """One by one and in a batch; but if it was added as often as is counted, from where no removal leads down."""
    seen = cast("Removable", case.build(100))
    often = min(seen.copies_max, OFTEN) + more
    stays = seen.sticky and often >= seen.copies_max
    assert seen.add_many(seen.digests(["a"] * often)).tolist() == [True] + [False] * (often - 1)
    assert [seen.add("b") for _ in range(often)] == [True] + [False] * (often - 1)
    gone = seen.remove_many(seen.digests(["a"] * (often + 1)))
    assert gone.tolist() == [True] * often + [stays]
    assert [seen.discard("b") for _ in range(often + 1)] == [True] * often + [stays]
    assert ("a" in seen, "b" in seen, len(seen)) == (stays, stays, 2 * stays)


@table(REMOVABLE)
def test_churn_loses_no_member(case: Case) -> None:
    """A filter at capacity, half of it replaced four times: all members are found, and the error stays in its rate."""
    replaced(case, 4000)


def replaced(case: Case, capacity: int) -> None:
    """Fill a filter, and replace half of it four times.

    Members of a set are those whose addition returned True: the others are found until the first removal only.
    """
    seen = cast("Removable", case.build(capacity, case.error_rates[0]))
    keys = random_digests(10, 3 * capacity)
    fresh = np.ones(len(keys), dtype=np.bool_)
    fresh[:capacity] = seen.add_many(keys[:capacity]) | seen.multiset
    assert seen.contains_many(keys[:capacity]).all()
    for step in range(4):
        leave = slice(step * capacity // 2, (step + 1) * capacity // 2)
        come = slice(leave.start + capacity, leave.stop + capacity)
        assert seen.remove_many(keys[leave][fresh[leave]]).all()
        fresh[come] = seen.add_many(keys[come]) | seen.multiset
        assert seen.contains_many(keys[come]).all()
    assert seen.contains_many(keys[2 * capacity :][fresh[2 * capacity :]]).all()
    absent = random_digests(11, 12 * capacity)
    found = int(np.count_nonzero(seen.contains_many(absent)))
    assert found < band(case.error_rates[0] * len(absent))[1]


@table(REMOVABLE)
def test_all_that_was_added_can_be_taken_back(case: Case) -> None:
    """After as many removals as additions the filter is empty, to the bit, also far beyond its capacity.

    A multiset counts all of them, a set those that returned True.
    """
    seen = cast("Removable", case.build(500, case.error_rates[0]))
    keys = random_digests(12, 520)
    fresh = seen.add_many(keys)
    assert seen.remove_many(keys if seen.multiset else keys[fresh]).all()
    assert not seen.contains_many(keys).any()
    assert (len(seen), seen.fill_ratio, seen.error_rate_now) == (0, 0, 0)


@table([("cuckoo", 0.02), ("dleft", 0.05), ("dlcbf", 0.05), ("counting", 0.02)])
def test_a_key_that_a_set_did_not_add_rests_on_others(row: tuple[str, float]) -> None:
    """If its addition returned False, it is found until another key is removed; of a multiset it stays."""
    kind, error_rate = row
    keys = random_digests(14, 4000)
    absent = {}
    for multiset in (False, True):
        seen = cast("Removable", Case(kind, {"multiset": multiset}).build(4000, error_rate))
        fresh = seen.add_many(keys)
        assert seen.contains_many(keys).all()
        first, leaving = keys[:2000][fresh[:2000]], keys[2000:][~fresh[2000:]]
        assert len(leaving) > 5
        seen.remove_many(first)
        absent[multiset] = int(np.count_nonzero(~seen.contains_many(leaving)))
        assert seen.contains_many(keys[2000:][fresh[2000:]]).all()
    assert absent[False] > 2
    assert absent[True] == 0


@table(case for case in CASES if case.kind in ("exact", "bloom", "cuckoo"))
def test_only_a_multiset_comes_back_as_one(case: Case) -> None:
    """A header that says so of a kind that counts nothing, or says anything else, is refused."""
    seen = case.build(100)
    can = case.kind == "cuckoo" and "on_full" not in case.options
    if can:
        header = {**seen.header(), "multiset": True}
        assert cast("Removable", case.restore(header, copies(seen))).multiset
    for value in ("x", 1) if can else (True, "x", 1):
        with pytest.raises(ValueError, match="multiset"):
            case.restore({**seen.header(), "multiset": value}, copies(seen))


# --- union ---


@table(UNIONABLE)
def test_a_union_holds_what_both_hold(case: Case) -> None:
    """As if all had been added to one; its length is an estimate near the truth."""
    one, other, both = (cast("Unionable", case.build(3000, 1e-3)) for _ in range(3))
    keys = random_digests(13, 3000)
    one.add_many(keys[:2000])
    other.add_many(keys[1000:])
    both.add_many(keys)
    joined = one
    joined |= other
    assert joined is one
    assert joined.contains_many(keys).all()
    assert joined.fill_ratio == both.fill_ratio
    assert len(joined) == pytest.approx(3000, rel=0.05)


@table(UNIONABLE)
def test_a_union_of_what_does_not_fit_is_refused(case: Case) -> None:
    """Another size or another kind: a clear error, and nothing changes."""
    one = cast("Unionable", case.build(100))
    one.add("a")
    before = state(one)
    strangers: list[Addable] = [case.build(1000)]
    strangers += [other.build(100) for other in UNIONABLE if other != case]
    for stranger in strangers:
        with pytest.raises(ConfigError, match="build both alike"):
            one |= cast("Any", stranger)
        assert state(one) == before


def ids(seen: Filter, keys: list[int]) -> Any:
    """The digests of small numbers."""
    return seen.digests([b"%d" % key for key in keys])
