"""Claims about memory beyond the cells: up to the capacity little, whatever keys come; then bounded for who asks."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.filters import KINDS, STATIC, stash
from streamdedup.filters.growing.stages import stages
from streamdedup.filters.kinds import CELLED
from streamdedup.filters.stash import (
    ROWS_A_SLICE,
    ROWS_MANY,
    ROWS_SPARE,
    Stash,
    spare_bytes,
    stash_bytes,
)
from streamdedup.filters.strain import STRAIN
from streamdedup.keys.hashing import Digests
from tests.chosen import for_few_buckets, for_few_of_each
from tests.filters.cases import copies, random_digests, state
from tests.rows import table

ROWS_A_CALL = 4096
STASHED = (
    ROWS_SPARE - 8
)  # the others are left to keys at random, of which a few overflow in a small table


def built(kind: str, capacity: int, **options: Any) -> Any:
    """An empty filter, or an empty window of a day."""
    timed = {"retention": "1d"} if kind == "window" else {}
    config = {"kind": kind, "capacity": capacity, "error_rate": 1e-3, **timed, **options}
    return filters.build(config)


def added(seen: Any, digests: Any) -> None:
    """Add these keys, all at one time, each once; a chain has `add_many` only, which does so."""
    if seen.kind in ("window", "windows"):
        seen.add_many(digests, np.zeros(len(digests), dtype=np.int64))
    elif seen.kind == "chain":
        seen.add_many(digests)
    else:
        seen.add_absent(digests)


def tables(seen: Any) -> Sequence[Any]:
    """What has cells and a stash, one a stage, in the order of the stages."""
    if seen.kind == "windows":
        return [seen._table.tables[index] for index in sorted(seen._table.tables)]
    return [stage if stage.kind == "cuckoo" else stage._table for stage in seen._stages]


def stash_of(table: Any) -> Stash:
    """The stash of a table, whatever it is called there."""
    return cast("Stash", table._stash if hasattr(table, "_stash") else table.stash)


def counts_of(table: Any) -> Any:
    """Its counts, among which is the strain."""
    return table._counts if hasattr(table, "_counts") else table.counts


def chosen_for(seen: Any, place: int) -> Digests:
    """Keys that all meet in few buckets of one stage."""
    if "dl" in seen.header()["stages"][0].get("kind", ""):
        return for_few_of_each(seen._stages[place], 4 << place)
    return for_few_buckets(tables(seen)[place], 10)


@pytest.mark.parametrize("kind", CELLED)
def test_what_somebody_chooses_stays_within_max_size(kind: str) -> None:
    """Each stage with a stash as large as it ever is up to the capacity."""
    timed = {"generations": 31} if kind == "window" else {}
    capacity = 3000 if kind == "window" else 600
    planned = [
        stage for stage, _ in zip(stages(kind, capacity, 1e-3, timed), range(3), strict=False)
    ]
    max_size = sum(stage.size_bytes + stage.spare_bytes for stage in planned)
    seen = built(kind, capacity, on_full="grow", max_size=max_size)
    assert seen.capacity == 7 * capacity
    for place in range(3):
        table = tables(seen)[place]
        for key in chosen_for(seen, place):
            if stash_of(table).used[0] < STASHED:
                counts_of(table)[STRAIN] = 0
                added(seen, key[None])
        for key in random_digests(311 + place, 7 * capacity):
            if len(tables(seen)) > place + 1 or len(seen) == seen.capacity:
                break
            counts_of(table)[STRAIN] = 0
            added(seen, key[None])
        assert stash_of(table).used[0] >= STASHED
        assert seen.size_bytes <= max_size
    assert seen.size_bytes == max_size
    assert len(seen) == seen.capacity


@table(sorted(set(KINDS) - STATIC))
def test_the_footprint_says_what_a_stash_may_take(kind: str) -> None:
    """Only kinds whose keys take a cell each have one."""
    options = {"generations": 31} if kind == "window" else {}
    assert KINDS[kind].footprint(1000, 1e-2, **options).spare_bytes == spare_bytes() * (
        kind in CELLED
    )


@pytest.mark.parametrize("on_full", [{}, {"on_full": "grow", "max_size": "64KiB"}])
@pytest.mark.parametrize("kind", CELLED)
def test_until_it_is_overfull_no_call_moves_more_than_one_slice(
    kind: str, on_full: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the stash takes 1.5 MB; whatever the batches, it is the same. None of the keys is lost."""
    move, moved = stash._move, [0]

    def counting(rows: Any, larger: Any) -> None:
        moved[-1] += len(rows)
        move(rows, larger)

    monkeypatch.setattr(stash, "_move", counting)
    seen, other = (built(kind, 1000, **on_full) for _ in range(2))
    size, keys = seen.size_bytes, random_digests(316, 80_000)
    count = 0
    while not seen.overfull and count < len(keys):
        moved.append(0)
        added(seen, keys[count : count + ROWS_A_CALL])
        count += ROWS_A_CALL
    assert seen.overfull
    assert 0 < max(moved) <= ROWS_A_SLICE
    assert size < seen.size_bytes <= 64 * 1024 + stash_bytes(ROWS_MANY + ROWS_A_CALL)
    for part in np.array_split(keys[:count], 11):
        added(other, part)
    assert state(other) == state(seen)
    assert seen.contains_many(keys[:count]).all()
    assert filters.from_parts(seen.header(), copies(seen)).overfull


@table(["bitmap", "blocked", "bloom", "counting"])
def test_kinds_of_one_size_are_never_overfull(kind: str) -> None:
    """Ten times as many keys as they are for take no further memory."""
    seen = built(kind, 100)
    size = seen.size_bytes
    seen.add_many(random_digests(317, 1000))
    assert (seen.overfull, seen.size_bytes) == (False, size)


def test_the_least_max_size_has_room_for_a_stash() -> None:
    """The error of a lower one names it."""
    least = KINDS["cuckoo"].footprint(100, 1e-3 / 2).size_bytes + spare_bytes()
    assert built("cuckoo", 100, on_full="grow", max_size=least).capacity == 100
    with pytest.raises(ConfigError, match=f"the first stage, .* takes {least:,}"):
        built("cuckoo", 100, on_full="grow", max_size=least - 1)
