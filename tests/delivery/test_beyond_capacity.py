"""Claims about `filter.on_full: warn`: it goes on beyond the capacity, in small steps, and has an end."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamdedup.delivery.shard import Shard
from streamdedup.events import Verdict
from streamdedup.filters import build
from streamdedup.filters.stash import ROWS_MANY, stash_bytes
from streamdedup.keys.hashing import Digests
from tests.delivery.test_recipe import recipe
from tests.filters.cases import random_digests

CAPACITY = 10_000
BATCH = 5000
CELLED = ["cuckoo", "dleft", "window"]


def shard_of(kind: str) -> Shard:
    """An empty shard that goes on beyond its capacity; a window is one of a day."""
    timed = {"retention": "1d"} if kind == "window" else {}
    config = {"kind": kind, "capacity": CAPACITY, "error_rate": 1e-6, **timed}
    return Shard(0, build(config), stop_when_full=False)


def passed(shard: Shard, digests: Digests, at: int = 0) -> int:
    """How many of these events are decided; those that pass are admitted."""
    rows, none = np.arange(len(digests)), np.zeros(len(digests), dtype=np.uint8)
    verdicts = shard.decide(none, rows, digests, np.full(len(digests), at)).verdicts
    assert (verdicts == Verdict.PASS).all()
    shard.seal()
    for _ in shard.admit(shard.label + len(digests)):
        assert shard.moving
    return len(verdicts)


@pytest.mark.parametrize("kind", CELLED)
def test_it_stops_before_its_memory_grows_without_end(kind: str) -> None:
    """Known keys are still duplicates then; and the key at which it stops is not lost, but not consumed."""
    shard, count = shard_of(kind), 0
    keys = random_digests(330, 100_000)
    while not shard.full and count < len(keys):
        assert passed(shard, keys[count : count + BATCH]) == BATCH
        count += BATCH
    assert shard.full
    assert shard.beyond_capacity
    assert ROWS_MANY < count <= CAPACITY * 2 + ROWS_MANY + BATCH
    cells = build({"kind": kind, "capacity": CAPACITY, "error_rate": 1e-6}).size_bytes
    assert shard.filter.size_bytes <= cells + stash_bytes(ROWS_MANY + BATCH)
    assert passed(shard, keys[count : count + BATCH]) == 0
    assert shard.filter.contains_many(keys[:count]).all()


def test_a_window_goes_on_once_its_keys_have_left() -> None:
    """The next event may be of a time in which there is room."""
    shard, keys = shard_of("window"), random_digests(331, 60_000)
    count = 0
    while not shard.full and count < len(keys):
        count += passed(shard, keys[count : count + BATCH])
    assert passed(shard, keys[:BATCH] ^ np.uint64(1), at=3 * 86_400_000) == BATCH
    assert not shard.full


@pytest.mark.parametrize("kind", ["bloom", "blocked"])
def test_a_filter_of_one_size_never_stops(kind: str) -> None:
    """Its errors grow, and not its memory."""
    shard = shard_of(kind)
    shard.filter.add_many(random_digests(332, 100_000))
    assert shard.beyond_capacity
    assert not shard.full


def test_beyond_the_capacity_steps_are_short() -> None:
    """There a key may be searched for long: so many keys a turn of the loop, and no more."""
    shard, keys = shard_of("cuckoo"), random_digests(333, CAPACITY + 20_000)
    steps = []
    for keys_of_step in (keys[:CAPACITY], keys[CAPACITY : CAPACITY + 1], keys[CAPACITY + 1 :]):
        held = [len(shard.filter)]
        for _ in shard.fold(keys_of_step, np.zeros(len(keys_of_step), dtype=np.int64), 1):
            held.append(len(shard.filter))
        steps.append(int(np.diff(held).max()))
    assert steps == [4096, 1, 256]


@pytest.mark.parametrize(
    ("kind", "on_full", "stops", "advice"),
    [
        ("cuckoo", "stop", True, ["grow", "warn"]),
        ("cuckoo", "warn", False, ["grow"]),
        ("exact", "stop", True, ["grow"]),
        ("exact", "warn", True, ["grow"]),
        ("bloom", "warn", False, ["grow"]),
        ("bitmap", "stop", True, ["warn"]),
        ("cuckoo", "grow", True, ["warn"]),
        ("exact", "grow", True, []),
    ],
)
def test_the_remedy_is_one_that_helps(
    tmp_path: Path, kind: str, on_full: str, advice: list[str], *, stops: bool
) -> None:
    """`exact` does not err more beyond its capacity, but moves at once: it stops there."""
    made = recipe(
        tmp_path, f"filter.kind={kind}", f"filter.on_full={on_full}", "filter.error_rate=1e-6"
    )
    assert made.stops_when_full == stops
    assert re.findall(r"set filter\.on_full: (\w+)", made.remedy()) == advice
    assert made.remedy().startswith("set filter.on_full: grow, or raise") == ("grow" in advice)
    goes_on = (kind, stops) == ("cuckoo", False)
    assert made.stash_bytes == (stash_bytes(ROWS_MANY + 150_000) if goes_on else 0) <= 6_300_000


def test_the_reason_is_that_no_cell_is_left(tmp_path: Path) -> None:
    """And not that the filter is above its capacity, which was allowed."""
    made = recipe(tmp_path, "filter.on_full=warn", "filter.capacity=4000")
    seen: Any = made.empty_filter()
    assert made.held(seen) == "its filter holds 0 keys of 1200"
    seen.add_absent(random_digests(334, 40_000))
    held = f"its filter holds {len(seen)} keys of 1200, and has no cells for more"
    assert made.held(seen) == held
