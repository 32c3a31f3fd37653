"""`capacity` is distinct keys, however often each comes: no kind refuses a key below it, or errs more than it may."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from streamdedup.keys.hashing import Digests
from tests.filters.cases import SIGMAS, band, random_digests
from tests.filters.test_distinct import ORDERS, Rows, add, built, zipf
from tests.library import HOLDING, in_time

ways = pytest.mark.parametrize(("kind", "options"), HOLDING, ids=str)
REPEATS = ["zipf", "each n times in a row"]


@ways
def test_a_million_keys_are_new_once_each(kind: str, options: Mapping[str, Any]) -> None:
    """In batches: of the first half more copies come by Zipf, of the other half each comes twice.

    At the lowest rate, where no key may be missed; with options, at 1 %, where the errors are counted.
    """
    rows, digests, stream = million()
    error_rate = 1e-2 if options else lowest(kind)
    seen = built(kind, len(digests), error_rate, options)
    fresh = np.concatenate([add(seen, part) for part in np.array_split(stream, 9)])
    check(seen, error_rate, digests, rows, fresh)


@cache
def million() -> tuple[Rows, Digests, Digests]:
    """Rows of a million digests, these, and those at the rows."""
    half = 500_000
    by_zipf = zipf(np.random.default_rng(3), half, 0.5)
    rows = np.concatenate([by_zipf, np.repeat(np.arange(half, 2 * half), 2)])
    digests = random_digests(403, 2 * half)
    return rows, digests, digests[rows]


@ways
@pytest.mark.parametrize("error_rate", [1e-2, 1e-3])
@pytest.mark.parametrize("capacity", [1, 2, 7, 100])
def test_few_keys_err_within_the_rate_on_average(
    kind: str, options: Mapping[str, Any], capacity: int, error_rate: float
) -> None:
    """Over many tables, which hold their keys by Zipf or n times, one by one or as a batch.

    One table may err more often. The deviation of the mean comes from the tables themselves; a mean at the rate exceeds
    it by five of them in one run of three million.
    """
    spread = 200 if kind in {"bitmap", "bloom", "counting"} else 30  # tables of these differ more
    tables = spread if capacity < 100 and kind != "blocked" else spread // 3
    probes = random_digests(404, round(5 / error_rate))
    random = np.random.default_rng(2)
    found = []
    for table in range(tables):
        seen = built(kind, capacity, error_rate, options)
        keys = [b"%d" % number for number in range(table * capacity, (table + 1) * capacity)]
        rows = ORDERS[REPEATS[table % 2]](random, capacity, 2)
        if table % 4 < 2:
            add(seen, seen.digests(keys)[rows])
        else:
            for row in rows.tolist():
                seen.add(keys[row], *in_time(seen, 0))
        found.append(np.count_nonzero(seen.contains_many(probes)) / len(probes))
    assert np.mean(found) <= error_rate + SIGMAS * np.std(found, ddof=1) / tables**0.5


def check(
    seen: Any, error_rate: float, digests: Digests, rows: Rows, fresh: "npt.NDArray[np.bool_]"
) -> None:
    """Each of `digests` is new at its first row, if ever, all are found, and of others as many as the rate allows.

    By chance a count is above its `band` once in three million runs.
    """
    first = np.zeros(len(rows), dtype=np.bool_)
    at = np.empty(len(digests), dtype=np.intp)
    at[rows[::-1]] = np.arange(len(rows))[::-1]  # the first row of a key is written last
    first[at] = True
    missing = np.count_nonzero(first & ~fresh)
    probes = random_digests(405, 60_000)
    wrong = np.count_nonzero(seen.contains_many(probes))
    assert not np.any(fresh & ~first)
    assert seen.contains_many(digests).all()
    assert not add(seen, digests[:1000]).any()
    assert len(seen) == len(digests) - missing
    assert not seen.strained
    if error_rate >= 1e-3:
        assert missing < band(error_rate * len(digests))[1]
        assert wrong < band(error_rate * len(probes))[1]
    else:
        assert not missing
        assert not wrong


def lowest(kind: str) -> float:
    """The lowest rate that a kind can be asked for without gigabytes."""
    return {"bitmap": 1e-3, "blocked": 1e-7}.get(kind, 1e-9)
