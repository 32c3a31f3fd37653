"""Ten seeds of the simulation, whole deployments with faults: proof/simulation has more, and what they are made of."""

import pytest

from proof.simulation.plan import SORTS
from proof.simulation.run import simulate


@pytest.mark.parametrize("plan", SORTS)
def test_two_seeds_keep_every_promise(plan: str) -> None:
    """Of each sort of plan."""
    for seed in range(2):
        assert simulate(seed, changed=SORTS[plan].changed).breach is None
