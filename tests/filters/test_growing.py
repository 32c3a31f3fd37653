"""Claims about filters that grow, beyond the contract of every kind: stages, borders, memory, and what is refused."""

import itertools
from typing import Any, cast

import numpy as np
import pytest

import streamdedup
from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.filters.base import Addable, Filter, Growing, Removable, Unionable
from streamdedup.filters.growing import chain, stages
from streamdedup.filters.growing.chain import Chain
from streamdedup.filters.stash import spare_bytes
from tests.filters.cases import random_digests, state
from tests.rows import table

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


def growing(kind: str, capacity: int, error_rate: float = 0.01, **more: Any) -> Chain:
    """Build a filter that grows."""
    config = {"kind": kind, "capacity": capacity, "error_rate": error_rate, "on_full": "grow"}
    return cast("Chain", streamdedup.build({**config, **more}))


# --- stages ---


@table(itertools.product(OPTIONS, [(1, 0.5), (777, 1e-3), (200_000, 1e-6)]))
def test_stages_are_made_as_planned(
    row: tuple[tuple[str, dict[str, Any]], tuple[int, float]],
) -> None:
    """Twice the keys at half the error, of the very size and error that was foreseen, and all together below P."""
    (kind, options), (capacity, error_rate) = row
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


@table(KINDS)
def test_theory_knows_the_stages_to_come(kind: str) -> None:
    """The error with n keys is the same before and after they came, and is within the rate at capacity."""
    seen = growing(kind, 50, 0.01)
    asked = (0, 1, 50, 51, 149, seen.capacity, 2 * seen.capacity)
    before = [seen.expected_error(keys) for keys in asked]
    assert before == sorted(before)
    assert before[0] == 0 < before[5] <= 0.01
    seen.add_many(random_digests(62, seen.capacity))
    assert [seen.expected_error(keys) for keys in asked] == before


# --- one after the other ---


@table(KINDS)
def test_a_duplicate_beyond_a_border_is_seen(kind: str) -> None:
    """In one call, the copies of keys of the stages that filled up in that call are not new."""
    seen = growing(kind, 100, 1e-8)
    keys = random_digests(64, 650)
    batch = np.concatenate([keys[:90], keys[:90], keys[90:400], keys[:400], keys[400:], keys])
    fresh = seen.add_many(batch)
    assert seen.layout == 3
    assert np.flatnonzero(fresh).tolist() == [*range(90), *range(180, 490), *range(890, 1140)]
    assert len(seen) == 650


@table(KINDS)
def test_copies_take_no_room(kind: str) -> None:
    """A chain is a set, also of kinds that count: what comes again changes nothing, to the bit."""
    counts = "multiset" in filters.KINDS[kind].options
    seen = growing(kind, 30, 0.01, **({"multiset": False} if counts else {}))
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
    first = growing("cuckoo", 100_000).size_bytes + spare_bytes()
    with pytest.raises(ConfigError, match=rf"max_size 4kB is 4,000 bytes.* takes {first:,}; raise"):
        growing("cuckoo", 100_000, max_size="4kB")
    for wrong in ("much", -1, 1.5, True, "1XB", 0):
        with pytest.raises(ConfigError, match=r"^max_size"):
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


@table(KINDS)
def test_what_a_chain_can_do_its_types_say(kind: str) -> None:
    """It takes keys and grows; it neither removes nor unites, whatever its stages can; bits are bits."""
    seen: Filter = growing(kind, 10)
    assert isinstance(seen, Addable)
    assert isinstance(seen, Growing)
    assert not isinstance(seen, Removable)
    assert not isinstance(seen, Unionable)
    assert seen.only_sets_bits == streamdedup.build({"kind": kind, "capacity": 10}).only_sets_bits
    assert not isinstance(streamdedup.build({"kind": kind, "capacity": 10}), Growing)


@table(
    [
        (
            {"kind": "bitmap", "capacity": 10},
            "bitmap: .*four times the memory; leave on_full out",
        ),
        ({"kind": "bitmap", "range": [0, 9]}, "grow is not for kind bitmap"),
        (
            {"kind": "fuse"},
            "on_full is not for kind fuse, which takes no key .*; leave it out",
        ),
        ({"kind": "chain", "capacity": 10}, "chain is made by on_full: grow, .*choose one of"),
        ({"kind": "bloom", "capacity": 10, "capacty": 1}, "capacty .* mean capacity"),
        ({"kind": "bloom", "capacity": 10, "of": "cuckoo"}, "of is unknown; bloom takes"),
        ({"kind": "bloom", "capacity": 10, "probe": "x"}, "probe 'x' is unknown"),
        ({"kind": "blocked", "capacity": 10, "error_rate": 1e-9}, "has half of its error rate: "),
        ({"kind": "bloom", "capacity": 10, "error_rate": 5e-324}, "has half of its error rate: "),
    ]
)
def test_what_cannot_grow_is_refused(row: tuple[Any, str]) -> None:
    """With the reason and what to do."""
    config, message = row
    with pytest.raises(ConfigError, match=message):
        streamdedup.build({**config, "on_full": "grow"})
