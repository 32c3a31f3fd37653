"""Claims about filters that grow, beyond the contract of every kind: stages, borders, memory, and what is refused."""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamdedup
from streamdedup import filters
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.filters.base import Addable, Filter, Growing, Removable, Unionable
from streamdedup.filters.digest_filter import CAPACITY_MAX
from streamdedup.filters.footprint import SPARE_BYTES
from streamdedup.filters.growing import chain, stages
from streamdedup.filters.growing.chain import Chain
from streamdedup.keys.hashing import MURMUR3
from streamdedup.snapshot import files
from tests.filters.cases import HASH_KEY, band, copies, random_digests, state

KINDS = tuple(
    kind for kind in filters.GROWABLE if kind != "window"
)  # test_growing_window.py has that
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in KINDS),
    ("bloom", {"probe": "double"}),
    ("counting", {"probe": "double"}),
    ("dlcbf", {"permutations": "published"}),
    ("exact", {"fingerprint_bytes": 16, "load": 0.9}),
]
pytestmark = pytest.mark.filterwarnings("ignore::streamdedup.FilterFullWarning")
every = pytest.mark.parametrize("kind", KINDS)
with_options = pytest.mark.parametrize(("kind", "options"), OPTIONS, ids=str)


def growing(kind: str, capacity: int, error_rate: float = 0.01, **more: Any) -> Chain:
    """Build a filter that grows."""
    config = {"kind": kind, "capacity": capacity, "error_rate": error_rate, "on_full": "grow"}
    return cast("Chain", streamdedup.build({**config, **more}))


def of_stages(seen: Filter) -> list[tuple[int, int, float]]:
    """Say how many keys each stage has and may have, and its error rate."""
    header = seen.header()
    parts = iter(seen.buffers())
    made = [
        filters.from_parts(of_stage, [next(parts) for _ in range(count)])
        for of_stage, count in zip(header["stages"], header["buffers"], strict=True)
    ]
    return [(len(stage), stage.capacity, stage.error_rate) for stage in made]


@every
def test_an_addition_while_a_stage_is_made_adds_no_stage_twice(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As by a signal handler of the same thread: the file had a stage twice, and could not be loaded."""
    seen, made, late = growing(kind, 64), Chain._made, itertools.count()

    def interrupted(self: Chain, place: int) -> Any:
        stage = made(self, place)
        with monkeypatch.context() as patch:
            patch.setattr(Chain, "_made", made)
            self.add(f"late {next(late)}")
        return stage

    monkeypatch.setattr(Chain, "_made", interrupted)
    for number in range(500):
        seen.add(f"{number}")
    assert next(late) > 1
    streamdedup.save(seen, tmp_path / "filter")
    restored = streamdedup.load(tmp_path / "filter")
    assert all(f"{number}" in restored for number in range(500))
    assert all(f"late {number}" in restored for number in range(next(late) - 1))


# --- stages ---


@with_options
@pytest.mark.parametrize(("capacity", "error_rate"), [(1, 0.5), (777, 1e-3), (200_000, 1e-6)])
def test_stages_are_made_as_planned(
    kind: str, options: dict[str, Any], capacity: int, error_rate: float
) -> None:
    """Twice the keys at half the error, of the very size and error that was foreseen, and all together below P."""
    ahead = stages.stages(kind, capacity, error_rate, options)
    planned = [stage for _, stage in zip(range(5), ahead, strict=False)]
    assert len(planned) == 5
    for stage in planned:
        config = {"kind": kind, "capacity": stage.capacity, "error_rate": stage.error_rate}
        made = streamdedup.build({**config, **options})
        assert made.size_bytes == stage.size_bytes
        for keys in (1, stage.capacity // 2, stage.capacity, 2 * stage.capacity):
            assert made.expected_error(keys) == stage.error(keys)
        assert stage.error(stage.capacity) <= stage.error_rate
    assert planned[0].error_rate == error_rate / 2
    for one, next_ in itertools.pairwise(planned):
        assert next_.capacity == 2 * one.capacity
        assert next_.error_rate == one.error_rate / 2


@with_options
@pytest.mark.parametrize(
    ("capacity", "error_rate"), [(10**6, 1e-8), (10**12, 0.1), (10, 1e-15), (1, 1e-321)]
)
def test_no_stage_is_planned_that_the_kind_refuses(
    kind: str, options: dict[str, Any], capacity: int, error_rate: float
) -> None:
    """However much memory is permitted: the last one that is planned can be restored, and the next one not."""
    planned = list(stages.stages(kind, capacity, error_rate, options))
    assert len(planned) < 60
    for number in {max(len(planned) - 1, 0), len(planned)}:
        keys, rate = stages.stated_for(number, capacity, error_rate)
        refused = ""
        try:
            made = filters.build({"kind": kind, "capacity": keys, "error_rate": rate, **options})
            filters.from_parts(made.header(), [])
        except (ConfigError, ValueError) as error:
            refused = str(error)
        if "fit into memory" not in refused and "unpack" not in refused:
            assert (refused != "") == (number == len(planned)), refused


@every
def test_the_error_stays_within_the_budget_while_it_grows(kind: str) -> None:
    """With each stage full: every key is found, and the errors are those of theory, below the rate in all."""
    capacity, error_rate = 8_000, 0.02
    seen = growing(kind, capacity, error_rate, max_size="1GiB")
    keys, absent = random_digests(60, 15 * capacity), random_digests(61, 500_000)
    for growth in range(4):
        filled = capacity * (2 ** (growth + 1) - 1)
        seen.add_many(keys[len(seen) : filled])
        seen.add_many(keys[len(seen) : filled])  # some only looked present
        assert seen.layout == growth + 1
        assert seen.contains_many(keys[:filled]).all()
        found = int(np.count_nonzero(seen.contains_many(absent)))
        expected = seen.expected_error(len(seen)) * len(absent)
        low, high = band(expected)
        assert low < found < high
        assert found < error_rate * len(absent)
        assert seen.error_rate_now == pytest.approx(expected / len(absent), rel=0.05, abs=1e-12)


@every
def test_theory_knows_the_stages_to_come(kind: str) -> None:
    """The error with n keys is the same before and after they came, and is within the rate at capacity."""
    seen = growing(kind, 50, 0.01)
    asked = (0, 1, 50, 51, 149, seen.capacity, 2 * seen.capacity)
    before = [seen.expected_error(keys) for keys in asked]
    assert before == sorted(before)
    assert before[0] == 0 < before[5] <= 0.01
    seen.add_many(random_digests(62, seen.capacity))
    assert [seen.expected_error(keys) for keys in asked] == before


@every
def test_no_stage_holds_more_than_it_is_made_for(kind: str) -> None:
    """While it may grow; beyond capacity the last one takes what comes, and loses none."""
    seen = growing(kind, 20, 0.01)
    keys = random_digests(63, 3 * seen.capacity)
    permitted = seen.header()["size_bytes_max"]
    for start in range(0, len(keys), 7):
        seen.add_many(keys[start : start + 7])
        *older, newest = of_stages(seen)
        assert all(held == capacity for held, capacity, _ in older)
        assert newest[0] <= newest[1] or len(seen) > seen.capacity
        assert seen.size_bytes <= permitted or len(seen) > seen.capacity
    assert sum(capacity for _, capacity, _ in of_stages(seen)) == seen.capacity
    assert len(seen) > seen.capacity
    assert seen.contains_many(keys).all()


# --- one after the other ---


@with_options
@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(0, 90), max_size=150),
    st.lists(st.integers(1, 40), min_size=1, max_size=20),
)
def test_borders_of_batches_leave_no_trace(
    kind: str, options: dict[str, Any], numbers: list[int], sizes: list[int]
) -> None:
    """One by one, in any batches, and all at once are the same to the bit, also where keys look alike."""
    error_rate = 0.1
    together, single, parts = (growing(kind, 5, error_rate, **options) for _ in range(3))
    keys = [b"%d" % number for number in numbers]
    digests = MURMUR3.digests(keys)
    expected = together.add_many(digests).tolist()
    assert [single.add(key) for key in keys] == expected
    told: list[bool] = []
    while len(told) < len(keys):
        size = sizes[len(told) % len(sizes)]
        told += parts.add_many(digests[len(told) : len(told) + size]).tolist()
    assert told == expected
    assert state(together) == state(single) == state(parts)


@every
def test_a_duplicate_beyond_a_border_is_seen(kind: str) -> None:
    """In one call, the copies of keys of the stages that filled up in that call are not new."""
    seen = growing(kind, 100, 1e-8)
    keys = random_digests(64, 650)
    batch = np.concatenate([keys[:90], keys[:90], keys[90:400], keys[:400], keys[400:], keys])
    fresh = seen.add_many(batch)
    assert seen.layout == 3
    assert np.flatnonzero(fresh).tolist() == [*range(90), *range(180, 490), *range(890, 1140)]
    assert len(seen) == 650


@every
def test_copies_take_no_room(kind: str) -> None:
    """A chain is a set, also of kinds that count: what comes again changes nothing, to the bit."""
    seen = growing(kind, 30, 0.01)
    keys = random_digests(65, 80)
    seen.add_many(keys)
    before = state(seen)
    for _ in range(20):
        assert not seen.add_many(np.repeat(keys, 3, axis=0)).any()
    assert not seen.add_many(np.repeat(keys, 2000, axis=0)).any()
    assert state(seen) == before


# --- memory ---


def test_max_size_is_a_size() -> None:
    """As text or in bytes; what does not reach for the next stage is not used."""
    first = growing("bloom", 1000).size_bytes
    for given_size, stages_max in ((first, 1), (f"{first}B", 1), (3 * first, 1), ("1MiB", 8)):
        seen = growing("bloom", 1000, max_size=given_size)
        assert seen.capacity == 1000 * (2**stages_max - 1)
        seen.add_many(random_digests(66, seen.capacity + 50))
        assert (seen.layout, seen.size_bytes) == (stages_max, seen.header()["size_bytes_max"])
    by_default = growing("bloom", 1000)
    assert by_default.capacity == growing("bloom", 1000, max_size=16 * first).capacity > 1000


def test_a_max_size_below_the_first_stage_is_refused() -> None:
    """With both sizes; so is what is no size."""
    first = growing("cuckoo", 100_000).size_bytes + SPARE_BYTES
    with pytest.raises(ConfigError, match=rf"max_size 4kB is 4,000 bytes.* takes {first:,}; raise"):
        growing("cuckoo", 100_000, max_size="4kB")
    for wrong in ("much", -1, 1.5, True, "1XB", 0):
        with pytest.raises(ConfigError, match=r"filter\.max_size"):
            growing("cuckoo", 100, max_size=wrong)


@every
def test_a_stage_made_ahead_is_used_and_changes_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same header and bytes as where `add_many` makes it; the memory that was put in place is the one used."""
    ahead, late = growing(kind, 40), growing(kind, 40)
    ahead.add_many(random_digests(67, 30))
    late.add_many(random_digests(67, 30))
    small, made = ahead.size_bytes, []
    monkeypatch.setattr(chain, "touch_pages", lambda buffer: made.append(address(buffer)))
    ahead.grow()
    assert ahead.layout == 1
    assert state(ahead)[:2] == state(late)[:2]
    assert ahead.size_bytes > small
    for part in np.array_split(random_digests(68, 80), 3):
        assert ahead.add_many(part).tolist() == late.add_many(part).tolist()
    assert ahead.layout == late.layout == 2
    assert state(ahead) == state(late)
    assert made
    assert [address(buffer) for buffer in ahead.buffers()][-len(made) :] == made


def address(buffer: memoryview) -> int:
    """Where it is in memory."""
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


def made_ahead_bytes(seen: Filter) -> int:
    """How much memory the stages take that are no part of it yet."""
    return seen.size_bytes - sum(len(buffer) for buffer in seen.buffers())


@every
def test_it_is_said_when_a_stage_may_be_due(kind: str) -> None:
    """Whoever heeds it before each addition has `add_many` make no stage."""
    seen = growing(kind, 10, 1e-3)
    assert (seen.grows_within(10), seen.grows_within(11)) == (False, True)
    before = seen.layout
    for key in random_digests(69, 1800).reshape(-1, 6, 2):
        while seen.grows_within(6):
            seen.grow()
        ready = made_ahead_bytes(seen) > 0
        seen.add_many(key)
        assert seen.layout == before or ready
        before = seen.layout
    assert len(seen) > seen.capacity
    assert not seen.grows_within(10**9)
    told = state(seen)
    seen.grow()
    assert state(seen) == told


def test_several_stages_are_made_ahead() -> None:
    """One by one, until the rows find room."""
    seen = growing("bloom", 10, 1e-6, max_size="1MiB")
    rows = 10 + 20 + 40 + 1
    calls = 0
    while seen.grows_within(rows):
        seen.grow()
        calls += 1
    assert calls == 3
    assert not seen.grows_within(150)
    seen.add_many(random_digests(70, rows))
    assert seen.layout == 4
    assert made_ahead_bytes(seen) == 0


def test_a_stage_that_comes_too_late_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `add_many` has made it meanwhile, the other one is not used for the next stage."""
    seen, expected = growing("bloom", 40), growing("bloom", 40)
    keys = random_digests(71, 270)

    def slowly(_: memoryview) -> None:
        seen.add_many(keys[:50])

    monkeypatch.setattr(chain, "touch_pages", slowly)
    seen.grow()
    monkeypatch.undo()
    assert seen.layout == 2
    assert made_ahead_bytes(seen) == 0
    seen.add_many(keys[50:])
    expected.add_many(keys)
    assert state(seen) == state(expected)
    assert seen.layout == 3


# --- what it can do ---


@every
def test_what_a_chain_can_do_its_types_say(kind: str) -> None:
    """It takes keys and grows; it neither removes nor unites, whatever its stages can; bits are bits."""
    seen: Filter = growing(kind, 10)
    assert isinstance(seen, Addable)
    assert isinstance(seen, Growing)
    assert not isinstance(seen, Removable)
    assert not isinstance(seen, Unionable)
    assert seen.only_sets_bits == streamdedup.build({"kind": kind, "capacity": 10}).only_sets_bits
    assert not isinstance(streamdedup.build({"kind": kind, "capacity": 10}), Growing)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"kind": "bitmap", "capacity": 10},
            "bitmap: .*four times the memory; leave filter.on_full out",
        ),
        ({"kind": "bitmap", "range": [0, 9]}, "grow is not for filter.kind bitmap"),
        (
            {"kind": "fuse"},
            "on_full is not for filter.kind fuse, which takes no key .*; leave it out",
        ),
        ({"kind": "chain", "capacity": 10}, "chain is made by on_full: grow, .*choose one of"),
        ({"kind": "blom", "capacity": 10}, "'blom' is unknown"),
        ({"kind": "bloom"}, "filter.capacity is required"),
        ({"kind": "bloom", "capacity": 10, "capacty": 1}, "filter.capacty .* mean capacity"),
        ({"kind": "bloom", "capacity": 10, "of": "cuckoo"}, "filter.of is unknown; bloom takes"),
        ({"kind": "bloom", "capacity": 10, "probe": "x"}, "probe 'x' is unknown"),
        ({"kind": "blocked", "capacity": 10, "error_rate": 1e-9}, "has half of its error rate: "),
        ({"kind": "bloom", "capacity": 10, "error_rate": 5e-324}, "has half of its error rate: "),
    ],
)
def test_what_cannot_grow_is_refused(config: dict[str, Any], message: str) -> None:
    """With the reason and what to do."""
    with pytest.raises(ConfigError, match=message):
        streamdedup.build({**config, "on_full": "grow"})


@pytest.mark.parametrize("on_full", ["full", "Stop", None, True, ["grow"]])
def test_what_a_full_filter_cannot_do_is_named(on_full: object) -> None:
    """With what it can; and a size for a filter that does not grow means nothing."""
    with pytest.raises(ConfigError, match=r"on_full .* is unknown; .*: warn, stop, grow"):
        streamdedup.build({"kind": "bloom", "capacity": 10, "on_full": on_full})
    with pytest.raises(ConfigError, match=r"max_size .*give filter\.on_full: grow"):
        streamdedup.build({"kind": "bloom", "capacity": 10, "max_size": "1MB"})


# --- parts and files ---


@with_options
@pytest.mark.parametrize("mmap", [False, True], ids=["read", "mapped"])
def test_a_saved_chain_comes_back(
    kind: str, options: dict[str, Any], mmap: bool, tmp_path: Path
) -> None:
    """With all stages and none that was only made ahead; what was read grows on alike."""
    saved = growing(kind, 40, 0.01, hash="siphash", hash_key=HASH_KEY, **options)
    keys = random_digests(72, 100)
    saved.add_many(keys)
    before = state(saved)
    saved.grow()
    streamdedup.save(saved, tmp_path / "chain")
    loaded = cast("Chain", streamdedup.load(tmp_path / "chain", mmap=mmap, hash_key=HASH_KEY))
    assert (state(loaded), loaded.layout, loaded.capacity) == (before, 2, saved.capacity)
    assert loaded.contains_many(keys).all()
    if not mmap:
        more = random_digests(73, 500)
        assert loaded.add_many(more).tolist() == saved.add_many(more).tolist()
        assert loaded.layout == saved.layout > 2
        assert state(loaded) == state(saved)


@every
def test_a_mapped_chain_does_not_grow(kind: str, tmp_path: Path) -> None:
    """Also where the next key would go to a stage that is no part of the file."""
    saved = growing(kind, 40)
    saved.add_many(random_digests(74, 200)[:40])
    while len(saved) < 40:
        saved.add_many(random_digests(75 + len(saved), 1))
    streamdedup.save(saved, tmp_path / "full")
    mapped = cast("Chain", streamdedup.load(tmp_path / "full", mmap=True))
    told = state(mapped)
    for change in (
        mapped.grow,
        lambda: mapped.add("more"),
        lambda: mapped.add_many(random_digests(74, 1)),
    ):
        with pytest.raises(ConfigError, match="load it without mmap"):
            change()
    assert state(mapped) == told


def test_a_chain_that_grows_while_it_is_saved_is_not_saved(tmp_path: Path) -> None:
    """Its first stages without the next are no filter that could be loaded: what was at the path stays."""
    seen = growing("bloom", 10, 1e-3)
    (path := tmp_path / "chain").write_bytes(b"before")
    content = files.content_of(seen, 0.0)
    first = next(content)
    seen.add_many(random_digests(77, 50))
    with pytest.raises(SnapshotError, match="grew while it was saved; save it again"):
        files.publish(os, tmp_path / "tmp", path, itertools.chain([first], content), "give up")
    assert path.read_bytes() == b"before"


def test_headers_that_contradict_themselves_are_refused() -> None:
    """Stages of other kinds, sizes, rates, hashes or options than the chain's, and chains in chains."""
    for kind, options in OPTIONS:
        seen = growing(kind, 40, 0.01, **options)
        seen.add_many(random_digests(76, 100))
        header = json.loads(json.dumps(seen.header()))
        filters.from_parts(header, copies(seen))
        for wrong in _broken(header):
            with pytest.raises((ValueError, TypeError, ConfigError)):
                filters.from_parts(wrong, copies(seen))


def _broken(header: dict[str, Any]) -> Iterator[dict[str, Any]]:
    first, second = header["stages"]
    one, two = header["buffers"]
    stages_wrong: list[Any] = [
        [],
        [first],
        [second, first],
        [first, first],
        [first, second, second],
        [first] * 1000,
        [first, None],
        [header, second],
        [first, header],
        {"0": first},
    ]
    for name, value in first.items():
        if name == "keys":  # of which a header may tell more than there are
            continue
        near = value + 1 if isinstance(value, int) else 0.3
        others: list[Any] = [None, "x", [], 1 << 70, -1, near]
        for other in others:
            stages_wrong.append([{**first, name: other}, second])
            stages_wrong.append([first, {**second, name: other}])
            stages_wrong.append([{**first, name: other}, {**second, name: other}])
    for wrong in stages_wrong:
        if wrong != header["stages"]:  # the second's number may be one above the first's
            yield {**header, "stages": wrong}
    for counts in (
        [],
        [one],
        [two],
        [one, two, 1],
        [one + two, 0],
        [0, one + two],
        [True, 1],
        "11",
    ):
        yield {**header, "buffers": counts}
    size = header["size_bytes_max"]
    sizes: list[Any] = [0, -1, size - 1, size + 1, first["capacity"], 1 << 62, 1 << 70, float(size)]
    for wrong in sizes:
        yield {**header, "size_bytes_max": wrong}
    for capacity in (39, 41, 80, CAPACITY_MAX):
        yield {**header, "capacity": capacity}
    yield {**header, "error_rate": 0.02}


def test_a_header_takes_no_memory_that_its_buffers_do_not_justify() -> None:
    """One of a few bytes that announces a terabyte is refused."""
    seen = growing("bloom", 40)
    header = seen.header()
    stage = {**header["stages"][0], "capacity": 10**12}
    with pytest.raises(ValueError, match="follow from capacity"):
        filters.from_parts({**header, "capacity": 10**12, "stages": [stage]}, copies(seen))
