"""The table of a window: G Bloom filters over the same positions, one for each bit of its cells.

Bit g % G of every cell belongs to generation g. The AND of a key's k cells has a bit for each generation that holds the
key. Generations leave the ring by one mask over the table, in pieces, between which others may work.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamdedup.filters.digest_filter import PROBES_A_CALL, slices
from streamdedup.filters.memory import (
    TABLE_PIECE_BYTES,
    Counts,
    aligned_words,
    word_pieces,
    words_over,
    writable,
)
from streamdedup.filters.probes import advance, ask, begin, position
from streamdedup.filters.sizing import any_of
from streamdedup.filters.window.clock import Generations
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.hashing import Digests, checked

Cells = npt.NDArray[np.unsignedinteger[Any]]
AHEAD = 16  # cells are prefetched this many rows before their use
KEYS, BITS_SET = 0, 1  # the rows of `counts`, which has a column for each bit of a cell


class Sizes(NamedTuple):
    """The number of cells, how many of them a key has, and whether these follow from the double probe sequence."""

    size: np.uint64
    hashes: np.uint64
    double: bool


def cell_bytes(generations: int) -> int:
    """The fewest of 1, 2, 4 or 8 bytes that have a bit for each generation."""
    return next(size for size in (1, 2, 4, 8) if generations <= 8 * size)


class Ring:
    """`size` cells with a bit for each of `generations`; a key has `hashes` of them. Empty, or over a saved `buffer`.

    Raises ValueError if the buffer has another size, or has bits set outside of its cells and generations.
    """

    def __init__(
        self,
        size: int,
        hashes: int,
        generations: int,
        *,
        double: bool,
        buffer: memoryview | None = None,
    ) -> None:
        self.size, self.hashes, self.generations = size, hashes, generations
        self.rows_a_call = PROBES_A_CALL // hashes
        self.layout = 0
        """How many times `clear` has cleared generations that held keys."""
        self.counts: Counts = np.zeros((2, generations), dtype=np.int64)
        """The keys (KEYS) and the bits (BITS_SET) that were set in each generation."""
        self._cell_bytes = cell_bytes(generations)
        words = -(-size * self._cell_bytes // 8)
        self.words = aligned_words(words) if buffer is None else words_over(buffer, words)
        self.cells: Cells = self.words.view(f"u{self._cell_bytes}")
        self.sizes = Sizes(np.uint64(size), np.uint64(hashes), double)
        self.changeable = False
        """Whether `change` has nothing to do, so that the addition of a single key can skip the call."""
        self._swept, self._kept = len(self.cells), self.cells.dtype.type(0)
        if buffer is not None:
            self._recount()

    @property
    def error_rate_now(self) -> float:
        """1 - prod(1 - fill^k) over the generations."""
        return any_of(((self.counts[BITS_SET] / self.size) ** self.hashes).tolist())

    @property
    def fill_ratio(self) -> float:
        """The share of bits that are set."""
        return float(self.counts[BITS_SET].sum() / (self.size * self.generations))

    def find(self, digests: Digests) -> Cells:
        """The bits, shape (n,), of the generations that hold each of `digests` (n, 2)."""
        self.settle()
        found: Cells = np.zeros(len(checked(digests)), dtype=self.cells.dtype)
        for part, rows in slices(digests, self.rows_a_call):
            _find(self.cells, self.sizes, part, found[rows])
        return found

    def put(self, digests: Digests, generations: Generations, oldest: int) -> None:
        """Set the bits of `digests` (n, 2) in their `generations` (n,), except in those before `oldest`."""
        for part, rows in slices(digests, self.rows_a_call):
            _put(
                self.cells,
                self.sizes,
                self.counts,
                part,
                np.ascontiguousarray(generations[rows]),
                oldest,
            )

    def clear(self, places: Sequence[int]) -> Iterator[None]:
        """Clear these bits of all cells, a piece at each step, and their counts at once.

        If none of the bits is set, the cells are left alone. If the iterator is dropped, `settle` clears the rest.
        """
        held = [place for place in places if self.counts[BITS_SET, place]]
        if held:
            self.counts[:, held] = 0
            cleared = sum(1 << place for place in held)
            self._kept = self.cells.dtype.type((1 << 8 * self._cell_bytes) - 1 - cleared)
            self.layout, self._swept, self.changeable = self.layout + 1, 0, False
        return self._sweep()

    def settle(self) -> None:
        """Finish what `clear` began. Call this before the table is read."""
        if self._swept < len(self.cells):
            for _ in self._sweep():
                pass

    def change(self) -> None:
        """Prepare the table for setting bits: `settle` it. Raises ConfigError if the table is read-only."""
        writable(self.words)
        self.settle()
        self.changeable = True

    def _sweep(self) -> Iterator[None]:
        step = TABLE_PIECE_BYTES // self._cell_bytes
        while self._swept < len(self.cells):
            self.cells[self._swept : self._swept + step] &= self._kept
            self._swept += step
            yield

    def _recount(self) -> None:
        """Count the bits of each generation. Raises ValueError if others are set."""
        ones = np.uint64(sum(1 << at for at in range(0, 64, 8 * self._cell_bytes)))
        others = ones * np.uint64((1 << 8 * self._cell_bytes) - (1 << self.generations))
        foreign = bool(self.cells[self.size :].any())
        for piece in word_pieces(self.words):
            foreign |= bool((piece & others).any())
            for place in range(self.generations):
                found = np.bitwise_count(piece & ones << np.uint64(place))
                self.counts[BITS_SET, place] += int(found.sum())
        if foreign:
            raise ValueError(
                f"bits are set beyond the last of {self.size} cells or {self.generations} generations"
            )


_0, _1 = np.uint64(0), np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
# With 8 generations half full, 2^(3 - 6) of the absent keys still have a bit in common after six cells.
_AT_ONCE = np.uint64(6)

# Additions prefetch cells AHEAD rows before their use, as `bloom` does. Look-ups do not: they read six cells of a key
# at once, most keys need no more of them, and the processor by itself begins to read the cells of the next keys.


@inlined
def ask_for(cells: Cells, sizes: Sizes, a: np.uint64, b: np.uint64) -> None:
    """Prefetch the cells of a digest."""
    ask(cells, _0, sizes.size, sizes.hashes, sizes.double, a, b)


@inlined
def found_in(cells: Cells, sizes: Sizes, a: np.uint64, b: np.uint64) -> np.uint64:
    """The generations that hold a digest, as bits."""
    found = _ALL
    state, step = begin(a, b, sizes.size, sizes.double)
    first = min(sizes.hashes, _AT_ONCE)
    for _ in range(first):
        found &= np.uint64(cells[position(state, sizes.size, sizes.double)])
        state = advance(state, step, sizes.size, sizes.double)
    if found != _0:
        for _ in range(first, sizes.hashes):
            found &= np.uint64(cells[position(state, sizes.size, sizes.double)])
            state = advance(state, step, sizes.size, sizes.double)
    return found


@inlined
def set_in(
    cells: Cells, sizes: Sizes, counts: Counts, place: int, a: np.uint64, b: np.uint64
) -> None:
    """Set a digest's bits at the place of a generation. The digest counts as a key if one of the bits is new."""
    shift, newly_set = np.uint64(place), _0
    state, step = begin(a, b, sizes.size, sizes.double)
    for _ in range(sizes.hashes):
        at = position(state, sizes.size, sizes.double)
        cell = np.uint64(cells[at])
        newly_set += _1 - ((cell >> shift) & _1)
        cells[at] = cell | (_1 << shift)
        state = advance(state, step, sizes.size, sizes.double)
    counts[KEYS, place] += newly_set > _0
    counts[BITS_SET, place] += np.int64(newly_set)


@kernel
def _put(
    cells: Cells,
    sizes: Sizes,
    counts: Counts,
    digests: Digests,
    generations: Generations,
    oldest: int,
) -> None:
    rows = digests.shape[0]
    for row in range(min(rows, AHEAD)):
        ask_for(cells, sizes, digests[row, 0], digests[row, 1])
    for row in range(rows):
        if row + AHEAD < rows:
            ask_for(cells, sizes, digests[row + AHEAD, 0], digests[row + AHEAD, 1])
        if generations[row] >= oldest:
            place = generations[row] % counts.shape[1]
            set_in(cells, sizes, counts, place, digests[row, 0], digests[row, 1])


@kernel
def _find(cells: Cells, sizes: Sizes, digests: Digests, found: Cells) -> None:
    for row in range(digests.shape[0]):
        found[row] = found_in(cells, sizes, digests[row, 0], digests[row, 1])
