"""The loads of a d-left table in the limit of many buckets, as differential equations (Mitzenmacher 2000).

Time is counted in additions a bucket of one subtable. `shares[j, i]` is the share of the buckets of subtable j that
have i cells or more in use.
"""

import numpy as np
import numpy.typing as npt

from streamdedup.filters.sizing import DLEFT_TABLES

LOAD_MAX = 12  # beyond it stands nothing that a float could tell from 0
STEP = 0.05

Shares = npt.NDArray[np.float64]


def added(mean_load: float) -> Shares:
    """The shares of all buckets with 0, 1, .. cells or more in use, after additions only."""
    return _of_all(_after(_empty(), DLEFT_TABLES * mean_load))


def churned(mean_load: float) -> Shares:
    """The same, after so many replacements of random members that more change nothing."""
    full = _after(_empty(), DLEFT_TABLES * mean_load)
    return _of_all(_after(full, 8 * DLEFT_TABLES * mean_load, DLEFT_TABLES * mean_load))


def _of_all(shares: Shares) -> Shares:
    return np.asarray(shares.mean(axis=0), dtype=np.float64)


def _empty() -> Shares:
    shares = np.zeros((DLEFT_TABLES, LOAD_MAX + 1))
    shares[:, 0] = 1
    return shares


def _after(shares: Shares, time: float, members: float = np.inf) -> Shares:
    """Runge and Kutta's fourth order; with each addition one of `members`, a bucket of one subtable, leaves."""
    steps = round(time / STEP)
    step = time / steps
    for _ in range(steps):
        first = _change(shares, members)
        second = _change(shares + step / 2 * first, members)
        third = _change(shares + step / 2 * second, members)
        last = _change(shares + step * third, members)
        shares = shares + step / 6 * (first + 2 * second + 2 * third + last)
    return shares


def _change(shares: Shares, members: float) -> Shares:
    """A bucket gets its i-th cell where it has i - 1, those on its left i or more, those on its right i - 1 or more."""
    change = np.zeros_like(shares)
    for j in range(len(shares)):
        left = shares[:j, 1:].prod(axis=0)
        right = shares[j + 1 :, :-1].prod(axis=0)
        change[j, 1:] = (shares[j, :-1] - shares[j, 1:]) * left * right
    exactly = shares - np.pad(shares[:, 1:], ((0, 0), (0, 1)))
    return change - np.arange(LOAD_MAX + 1) * exactly / members
