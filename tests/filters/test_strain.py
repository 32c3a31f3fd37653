"""Claims about keys that somebody chose: they take at most so long, and are refused by name; keys at random never are.

Work is counted in steps: the slots that an addition passes in `exact`, the buckets that it looks at in `cuckoo`.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, cast

import numpy as np
import pytest

from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.filters.cuckoo.cuckoo import CREDIT_A_KEY, Cuckoo
from streamdedup.filters.dleft.dleft import DLeft
from streamdedup.filters.exact.exact import Exact
from streamdedup.filters.sizing import exact_steps
from streamdedup.filters.stash import COUNT, ROWS_SPARE, RUN_MAX, Stash
from streamdedup.filters.strain import (
    STRAIN,
    STRAIN_MAX,
    ChosenKeysError,
)
from streamdedup.keys.hashing import MURMUR3, Digests, Hash
from tests.chosen import (
    for_few_buckets,
    for_few_of_each,
    for_one_slot,
    for_rows,
    murmur3_key,
)
from tests.filters.cases import HASH_KEY, random_digests, state
from tests.rows import table

STEP_MAX = 500  # buckets in one search of a cuckoo table
STEPS_AT_ONCE = STRAIN_MAX // STEP_MAX  # searches that find nothing, one after the other


def accepted(seen: Any, digests: Digests) -> int:
    """How many of `digests` are added, one after the other, before one is refused."""
    for row in range(len(digests)):
        try:
            seen.add_absent(digests[row : row + 1])
        except ChosenKeysError:
            return row
    return len(digests)


def moves_in(seen: Exact) -> int:
    """How many slots all fingerprints together are beyond their homes: as many as additions have moved."""
    words = seen._words[:: seen.fingerprint_bytes // 8]
    at = np.flatnonzero(words)
    homes = [(int(word) * seen.slots) >> 64 for word in words[at]]
    return int((at - np.array(homes)).sum())


@table([(0.5, 8), (0.8, 8), (0.9, 8), (0.8, 16)])
def test_chosen_keys_of_an_exact_set_take_at_most_three_times_as_long(
    row: tuple[float, int],
) -> None:
    """However many come: all that they move is three times what random ones do, and one bound more."""
    load, size = row
    seen = Exact(20_000, load=load, fingerprint_bytes=size)
    chosen = for_one_slot(4000)
    count = accepted(seen, chosen)
    assert 100 < count < 1000
    assert seen.strained
    assert moves_in(seen) <= 3 * exact_steps(load) * count + STRAIN_MAX
    assert seen.contains_many(chosen[:count]).all()
    assert not seen.contains_many(chosen[count:]).any()


def steps_of(seen: Cuckoo, digests: Digests) -> Iterator[int]:
    """How many buckets the search for each looks at, up to capacity."""
    for row in range(len(digests)):
        seen._counts[STRAIN] = 1000
        seen.add_absent(digests[row : row + 1])
        yield int(seen._counts[STRAIN]) - 1000 + CREDIT_A_KEY


def test_chosen_keys_of_a_cuckoo_table_take_at_most_three_times_as_long() -> None:
    """Searches that fail are soon refused, while random ones at capacity take a third of what is paid in for them."""
    seen = Cuckoo(40_000, 1e-3)
    seen.add_many(random_digests(75, 39_000))
    at_random = np.mean(list(steps_of(seen, random_digests(76, 1000))))
    assert CREDIT_A_KEY / 6 < at_random < CREDIT_A_KEY / 2
    chosen = for_few_buckets(seen, 500)
    emptier = Cuckoo(40_000, 1e-3)
    count = accepted(emptier, chosen)
    assert emptier.strained
    assert 4 * 500 * 0.9 < count < 4 * 500 + 2 * STRAIN_MAX / (STEP_MAX - CREDIT_A_KEY)
    assert emptier._stash.used[0] <= ROWS_SPARE


SMALL = {"capacity": 600, "error_rate": 1e-4}


@cache
def chosen_for(kind: str) -> Digests:
    """Digests of which a small filter of this kind refuses some."""
    if kind == "exact":
        return for_one_slot(400)
    seen = cast("Any", filters.build({"kind": kind, **SMALL}))
    return for_few_buckets(seen, 20) if kind == "cuckoo" else for_few_of_each(seen, 3)


@table(["dleft", "dlcbf"])
def test_chosen_keys_of_a_d_left_table_are_refused(kind: str) -> None:
    """Those that overflow, as random ones hardly ever do, fill the stash with 64 rows and no more."""
    seen = cast("DLeft", filters.build({"kind": kind, **SMALL}))
    chosen = chosen_for(kind)
    count = accepted(seen, chosen)
    assert seen.strained
    assert count < len(chosen)
    assert seen.overflowed == ROWS_SPARE
    assert seen.contains_many(chosen[:count]).all()


def longest_run(stash: Stash) -> int:
    """Of rows in use, which a search for a digest that is not there may have to pass."""
    free = np.flatnonzero(stash.table[:, COUNT] == 0)
    around = np.append(free, free[0] + len(stash.table))
    return int(np.diff(around).max()) - 1


@table(["cuckoo", "dleft"])
def test_chosen_keys_next_to_one_another_make_no_long_search_in_the_stash(kind: str) -> None:
    """Each in its own place, so that none is far from its home; yet who asks for another would pass them all."""
    seen = cast("Any", filters.build({"kind": kind, "capacity": 10, "error_rate": 1e-9}))
    seen.add_many(random_digests(88, 8000))
    stash = seen._stash if kind == "cuckoo" else seen._table.stash
    room = int(stash._rows_max - stash.used[0]) - 1
    free = np.flatnonzero(stash.table[:, COUNT] == 0)[:room]
    assert room > 1.2 * RUN_MAX
    chosen = np.array(list(for_rows(len(stash.table), free.tolist())), dtype=np.uint64)
    assert accepted(seen, chosen) < len(chosen)
    assert seen.strained
    assert RUN_MAX // 2 < longest_run(stash) <= RUN_MAX


ADD: dict[str, Callable[[Any, bytes], object]] = {
    "add": lambda seen, key: seen.add(key),
    "add_many": lambda seen, key: seen.add_many(seen.digests([key])),
    "add_absent": lambda seen, key: seen.add_absent(seen.digests([key])),
}


@table(itertools.product(ADD, ["exact", "cuckoo", "dleft"]))
def test_the_error_names_the_hash_and_the_remedy(row: tuple[str, str]) -> None:
    """By real keys under murmur3, however they are added; the key is in no message, and nothing has changed."""
    way, kind = row
    seen = cast("Any", filters.build({"kind": kind, **SMALL}))
    chosen = chosen_for(kind)
    count = accepted(seen, chosen)
    before, key = state(seen), murmur3_key(*map(int, chosen[count]))
    with pytest.raises(
        ConfigError, match=r"filter\.hash murmur3: .* set filter\.hash: siphash"
    ) as e:
        ADD[way](seen, key)
    assert kind in str(e.value)
    assert key.hex() not in str(e.value)
    assert state(seen) == before
    restored = filters.from_parts(seen.header(), seen.buffers())
    assert restored.contains_many(chosen[:count]).all()


@pytest.mark.parametrize("on_full", [{}, {"on_full": "grow"}], ids=["fixed", "grows"])
@pytest.mark.parametrize("patient", [False, True])
def test_chosen_keys_of_a_window_are_refused(on_full: dict[str, Any], *, patient: bool) -> None:
    """In a row by their searches; with random keys between them, which pay for these, at the bound of the stash."""
    capacity, sized = 40_000, {"kind": "window", "retention": "1d", "error_rate": 0.01}
    seen = cast("Any", filters.build({**sized, "capacity": capacity, **on_full}))
    table = seen._table.tables[0] if on_full else seen._table
    chosen, random = for_few_buckets(table, 90), random_digests(89, capacity)
    added = 0
    with pytest.raises(ChosenKeysError, match=r"filter\.hash murmur3: .* kind window, .* siphash"):
        for row in range(len(chosen)):
            seen.add_many(chosen[row : row + 1], np.zeros(1, dtype=np.int64))
            if patient and table.counts[STRAIN] > STRAIN_MAX // 2:
                seen.add_many(random[added : added + 83], np.zeros(83, dtype=np.int64))
                added += 83
    used = int(table.stash.used[0])
    assert used == ROWS_SPARE if patient else STEPS_AT_ONCE <= used < ROWS_SPARE
    assert seen.strained
    assert len(seen) < capacity


def test_under_a_secret_the_remedy_is_another_one() -> None:
    """Who meets the bound under siphash knows the key."""
    seen = Exact(1000, hash_=Hash("siphash", HASH_KEY))
    with pytest.raises(
        ChosenKeysError, match=r"filter\.hash siphash: .* set filter\.hash_key to another"
    ):
        seen.add_many(for_one_slot(1000))
    assert HASH_KEY.hex() not in repr(seen)


def test_what_a_file_holds_of_the_stash_is_taken_as_it_is() -> None:
    """A filter that was filled before there were bounds loads, and takes more keys."""
    seen = Cuckoo(1000, 1e-3)
    seen.add_many(random_digests(86, 3000))
    restored = Cuckoo.from_parts(seen.header(), seen.buffers(), MURMUR3)
    restored.add_many(random_digests(87, 2000))
    assert not restored.strained
    assert isinstance(restored._stash, Stash)
