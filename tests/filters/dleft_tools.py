"""A d-left table as the tests see it: its cells decoded from the bytes, its places crafted, churned at random."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamdedup.filters.dleft.shape import Shape
from streamdedup.filters.dleft.table import DLeftTable
from streamdedup.keys.hashing import Digests
from tests.filters.cases import random_digests

CHURN = {"buckets": 2048, "remainder_bits": 14, "counter_bits": 2}
RESIDENT = 49_152
OPERATIONS = 1 << 20


def cells(table: DLeftTable, subtable: int, bucket: int) -> list[tuple[int, int]]:
    """The remainder and the count of each cell in use, as the docstring of `buffers` lays them out."""
    shape = table.shape
    content = int.from_bytes(table.words.tobytes(), "little")
    content >>= (subtable * shape.buckets + bucket) * shape.cells * shape.cell_bits
    counters = [content >> j * shape.counter_bits for j in range(shape.cells)]
    content >>= shape.cells * shape.counter_bits
    remainders = [content >> j * shape.remainder_bits for j in range(shape.cells)]
    pairs = [
        (remainder % (1 << shape.remainder_bits), count % (1 << shape.counter_bits))
        for remainder, count in zip(remainders, counters, strict=True)
    ]
    return [pair for pair in pairs if any(pair)]


def digest(shape: Shape, *spots: tuple[int, int]) -> Digests:
    """A digest whose places, where there are no permutations, are these (bucket, remainder) in each subtable."""
    a = b = 0
    for i, (bucket, remainder) in enumerate(spots):
        a |= -(-(bucket << 16) // shape.buckets) << (48 - 16 * i)
        b |= remainder << (64 - 16 * i - shape.remainder_bits)
    return np.array([[a, b]], dtype=np.uint64)


@dataclass
class Churned:
    """What became of a table in which random members were replaced, one after the other."""

    table: DLeftTable
    resident: Digests
    shares: npt.NDArray[
        np.float64
    ]  # of buckets with 0, 1, .. 8 cells or more: mean of many moments
    not_found: int  # of what was in it when it was removed
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
