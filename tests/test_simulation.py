"""Ten seeds of the simulation, whole deployments with faults: proof/simulation has more, and what they are made of."""

import pytest

from proof.simulation.run import simulate
from proof.simulation.seeds import SORTS


@pytest.mark.parametrize("plan", SORTS)
def test_two_seeds_keep_every_promise(plan: str) -> None:
    """Of each sort of plan."""
    for seed in range(2):
        assert simulate(seed, changed=SORTS[plan].changed).breach is None
