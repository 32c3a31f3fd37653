"""`capacity` is distinct keys, however often each comes: no kind refuses a key below it, or errs more than it may."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

import streamdedup
from streamdedup.keys.hashing import Digests
from tests.library import HOLDING, in_time
from tests.rows import table

Rows = npt.NDArray[np.intp]


def built(kind: str, capacity: int, error_rate: float, options: Mapping[str, Any]) -> Any:
    """An empty filter of the library, for so many keys in all; it refuses any beyond them."""
    growth = 5 if "on_full" in options else 1
    timed = {"retention": "1d"} if kind == "window" else {}
    config = {"kind": kind, "error_rate": error_rate, "on_full": "stop", **timed, **options}
    return streamdedup.build({**config, "capacity": -(-capacity // growth)})


def add(seen: Any, digests: Digests) -> "npt.NDArray[np.bool_]":
    """Add them, all at one time."""
    times = np.zeros(len(digests), dtype=np.int64)
    fresh: npt.NDArray[np.bool_] = seen.add_many(digests, *in_time(seen, times))
    return fresh


def zipf(random: np.random.Generator, capacity: int, copies: float) -> Rows:
    """All numbers below `capacity`, and more of them by their rank: the first comes most often."""
    ranks = np.minimum(random.zipf(1.2, round(copies * capacity)) - 1, capacity - 1)
    return random.permutation(np.concatenate([np.arange(capacity), ranks]))


ORDERS: dict[str, Callable[[np.random.Generator, int, int], Rows]] = {
    "each n times in a row": lambda _, capacity, n: np.repeat(np.arange(capacity), n),
    "n rounds": lambda _, capacity, n: np.tile(np.arange(capacity), n),
    "at random": lambda random, capacity, n: random.permutation(np.repeat(np.arange(capacity), n)),
    "half of them hot": lambda random, capacity, n: random.permutation(
        np.concatenate([np.arange(capacity), np.zeros(capacity * n, dtype=np.intp)])
    ),
    "zipf": zipf,
}


def rates(kind: str) -> list[float]:
    """Those that a kind can be asked for without gigabytes."""
    return {"bitmap": [1e-2, 1e-3], "blocked": [1e-2, 1e-6]}.get(kind, [1e-2, 1e-6, 1e-9])


@table(HOLDING)
@settings(deadline=None, max_examples=5)
@given(st.sampled_from([1, 2, 7, 64, 600]), st.sampled_from(sorted(ORDERS)), st.data())
def test_no_key_is_refused_below_capacity(
    row: tuple[str, Mapping[str, Any]], capacity: int, order: str, data: st.DataObject
) -> None:
    """One by one and in batches, with the same answers: True for the first addition of each, at a low error rate."""
    kind, options = row
    n = data.draw(st.integers(1, 9))
    error_rate = data.draw(st.sampled_from(rates(kind)))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    rows = ORDERS[order](random, capacity, n)
    keys = [b"%d" % number for number in range(capacity)]
    together, single = (built(kind, capacity, error_rate, options) for _ in range(2))
    digests = together.digests(keys)[rows]
    cuts = np.sort(random.integers(0, len(rows), 3))
    fresh = np.concatenate([add(together, part) for part in np.split(digests, cuts)])
    timed = in_time(single, 0)
    assert [single.add(keys[row], *timed) for row in rows.tolist()] == fresh.tolist()
    first = np.zeros(len(rows), dtype=np.bool_)
    first[np.unique(rows, return_index=True)[1]] = True
    assert not np.any(fresh & ~first)
    if error_rate <= 1e-6:
        assert fresh.tolist() == first.tolist()
        assert len(together) == len(single) == capacity
    assert together.contains_many(digests).all()
    assert not together.strained
    assert len(together) <= capacity
