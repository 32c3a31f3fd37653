"""Every kind that grows: errors, plans, and headers that contradict themselves."""

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
from streamdedup.filters.base import Filter
from streamdedup.filters.digest_filter import CAPACITY_MAX
from streamdedup.filters.growing import stages
from streamdedup.filters.growing.chain import Chain
from streamdedup.keys.hashing import MURMUR3
from streamdedup.snapshot import files
from tests.filters.cases import band, copies, random_digests, state
from tests.filters.test_growing import KINDS, OPTIONS, every, growing, made_ahead_bytes
from tests.rows import table

pytestmark = pytest.mark.filterwarnings("ignore::streamdedup.FilterFullWarning")


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


@table(itertools.product(OPTIONS, [(10**6, 1e-8), (10**12, 0.1), (10, 1e-15), (1, 1e-321)]))
def test_no_stage_is_planned_that_the_kind_refuses(
    row: tuple[tuple[str, dict[str, Any]], tuple[int, float]],
) -> None:
    """However much memory is permitted: the last one that is planned can be restored, and the next one not."""
    (kind, options), (capacity, error_rate) = row
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


@table(KINDS)
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


@table(OPTIONS)
@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(0, 90), max_size=150),
    st.lists(st.integers(1, 40), min_size=1, max_size=20),
)
def test_borders_of_batches_leave_no_trace(
    row: tuple[str, dict[str, Any]], numbers: list[int], sizes: list[int]
) -> None:
    """One by one, in any batches, and all at once are the same to the bit, also where keys look alike."""
    kind, options = row
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


def of_stages(seen: Filter) -> list[tuple[int, int, float]]:
    """Say how many keys each stage has and may have, and its error rate."""
    header = seen.header()
    parts = iter(seen.buffers())
    made = [
        filters.from_parts(of_stage, [next(parts) for _ in range(count)])
        for of_stage, count in zip(header["stages"], header["buffers"], strict=True)
    ]
    return [(len(stage), stage.capacity, stage.error_rate) for stage in made]


@table(KINDS)
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
