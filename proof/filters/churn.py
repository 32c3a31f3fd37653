"""A d-left table after random members were replaced, one after the other."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamdedup.filters.dleft.shape import Shape
from streamdedup.filters.dleft.table import DLeftTable
from streamdedup.keys.hashing import Digests
from tests.filters.cases import random_digests
from tests.filters.dleft_tools import RESIDENT

CHURN = {"buckets": 2048, "remainder_bits": 14, "counter_bits": 2}
OPERATIONS = 1 << 20


@dataclass
class Churned:
    """What became of a table in which random members were replaced, one after the other."""

    table: DLeftTable
    resident: Digests
    # Of buckets with 0, 1, .. 8 cells or more: mean of many moments.
    shares: npt.NDArray[np.float64]
    # Of what was in it when it was removed.
    not_found: int
    overflowed_max: int


def churned(permutations: str, seed: int, operations: int = OPERATIONS) -> Churned:
    """Fill the table of the paper's simulation, and replace random members; loads are counted once it is steady."""
    table = DLeftTable(Shape(**CHURN, permutations=permutations))
    digests = random_digests(seed, RESIDENT + operations)
    table.add(digests[:RESIDENT])
    rows: list[list[int]] = digests.view(np.int64).tolist()
    resident = list(range(RESIDENT))  # where in `digests` the members stand
    leaving = np.random.default_rng(seed).integers(0, RESIDENT, operations).tolist()
    loads, not_found, overflowed_max = np.zeros(9), 0, 0
    for coming, place in enumerate(leaving, RESIDENT):
        not_found += not table.remove_one(*rows[resident[place]])
        resident[place] = coming
        table.add_one(*rows[coming])
        overflowed_max = max(overflowed_max, int(table.stash.used[0]))
        if coming % 4096 == 0 and coming > min(6 * RESIDENT, operations):
            loads += table.loads()
    shares = loads[::-1].cumsum()[::-1] / loads.sum()
    return Churned(table, digests[resident], shares, not_found, overflowed_max)
