"""A d-left table as the tests see it: its cells decoded from the bytes, its places crafted."""

import numpy as np

from streamdedup.filters.dleft.shape import Shape
from streamdedup.filters.dleft.table import DLeftTable
from streamdedup.keys.hashing import Digests

RESIDENT = 49_152


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
