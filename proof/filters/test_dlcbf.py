"""The churn table of the paper of `dlcbf`, and what its permutations are for."""

import numpy as np
import pytest

from proof.filters.churn import Churned, churned
from tests.filters.cases import band, random_digests
from tests.filters.test_dlcbf import FULL_ERROR

REPLACED = 1 << 17  # an eighth of the paper's, which `python -m bench acceptance` plays


@pytest.fixture(scope="module")
def published() -> Churned:
    """Give the table after an eighth of the paper's simulation, with its permutations."""
    return churned("published", 60, REPLACED)


def test_loads_under_churn_are_those_of_the_paper(published: Churned) -> None:
    """To the second decimal (`python -m bench acceptance`: to the third); and no bucket ever needed a ninth cell."""
    assert published.shares[5:].tolist() == pytest.approx(
        [0.9501, 0.7653, 0.2868, 0.0022], abs=3e-3
    )
    assert published.overflowed_max == 0


def test_churn_loses_nothing_and_errs_as_fingerprints_are_in(published: Churned) -> None:
    """All members are found, and false positives are the distinct fingerprints' share of all, 24 * 2^-14."""
    assert published.not_found == 0
    assert published.table.contains(published.resident).all()
    fingerprints = int(published.table.counts[0])
    assert fingerprints / 2**25 == pytest.approx(FULL_ERROR, rel=2e-3)
    found = np.count_nonzero(published.table.contains(random_digests(62, 2_000_000)))
    low, high = band(2_000_000 * fingerprints / 2**25)
    assert low < found < high


def test_without_permutations_churn_loses_dozens() -> None:
    """The same replacements with independent places: members vanish, since removals take the cells of others."""
    lost = churned("none", 60, REPLACED)
    absent = int(np.count_nonzero(~lost.table.contains(lost.resident)))
    assert lost.not_found + absent > 24
