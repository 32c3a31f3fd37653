"""A ring in time: its cells, its watermark, and how a new generation takes the place of an old one.

The kernels stop at a key that changes the current generation. The generations that leave the window are then cleared,
in pieces, and the kernels go on.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from streamdedup.filters.base import Mask, Times
from streamdedup.filters.digest_filter import empty_mask, number, slices
from streamdedup.filters.sizing import TABLE_BITS_MAX
from streamdedup.filters.window.clock import (
    FRESH,
    NEVER,
    TIME_MAX,
    Generations,
    clipped,
    watermark_or_none,
)
from streamdedup.filters.window.ring import BITS_SET, KEYS, Ring
from streamdedup.filters.window.rows import (
    GENERATION,
    REACHED,
    TURNS,
    WATERMARK,
    add_row,
    add_rows,
    contains_row,
    state_of,
)
from streamdedup.filters.window.rules import Rules
from streamdedup.keys.hashing import Digests, checked


class WindowTable:
    """`ring` under `rules`; at first it is empty and has no watermark."""

    def __init__(self, rules: Rules, ring: Ring) -> None:
        self.ring, self.rules, self.clock = ring, rules, rules.clock
        self._state = state_of(rules, ring.sizes, NEVER)

    def obey(self, rules: Rules) -> None:
        """Apply `rules`, which have the same clock, from now on."""
        self.rules = rules
        self._state = state_of(rules, self.ring.sizes, self._state[WATERMARK])

    @property
    def watermark(self) -> int | None:
        """The greatest time of the keys that were added; None before the first."""
        return watermark_or_none(self._state[WATERMARK])

    @property
    def current(self) -> int | None:
        """The generation of the watermark; None before the first key."""
        return self.clock.current(self.watermark)

    def add(self, digests: Digests, moments: Times) -> Mask:
        """Add all of `digests` at `moments`, which are times as the kernels take them.

        Returns True, shape (n,), for each that was absent; for a late one only if late keys pass.
        """
        ring = self.ring
        ring.change()
        fresh = empty_mask(digests)
        for part, rows in slices(digests, ring.rows_a_call):
            args = ring.cells, ring.counts, self._state, part, moments[rows]
            start = 0
            while (stop := add_rows(*args, start, fresh[rows])) < len(part):
                self._turn(part[stop : stop + 1])
                start = stop + 1
        return fresh

    def add_one(self, a: int, b: int, moment: int) -> bool:
        """Add one digest, given as signed integers, and return what `add` returns for it."""
        ring = self.ring
        if not ring.changeable:
            ring.change()
        flags = add_row(ring.cells, ring.counts, self._state, a, b, moment)
        if flags & TURNS:
            self._turn(checked(np.array([[a, b]], dtype=np.int64).view(np.uint64)))
        return bool(flags & FRESH)

    def contains_one(self, a: int, b: int) -> bool:
        """Whether one digest, given as signed integers, is present."""
        self.ring.settle()
        return bool(contains_row(self.ring.cells, self._state, a, b))

    def rotate(self, watermark: int | None) -> Iterator[None]:
        """Advance the watermark and clear what leaves, as `Window.rotate` describes."""
        before = self.watermark
        if watermark is None or watermark < (before if before is not None else -TIME_MAX):
            if watermark == before:
                return self.ring.clear(())  # clears what an earlier call may have left
            raise ValueError(f"the watermark is {before} and cannot go back to {watermark}")
        self.ring.change()
        # `clear` changes `layout` at once: before the watermark, and before the first bit is cleared.
        sweep = self.ring.clear(self.clock.leaving(before, watermark))
        self._state[WATERMARK] = clipped(watermark)
        return sweep

    def put(self, digests: Digests, generations: Generations) -> None:
        """Set digests, at least one, in their generations, as `Window.put_many` describes."""
        current = self.current
        if current is None or int(generations.max()) > current:
            raise ValueError(
                f"generation {generations.max()} is above the current, {current}; rotate to its time first"
            )
        self.ring.change()
        self.ring.put(digests, generations, current - self.clock.generations + 1)

    def restore(self, header: Mapping[str, Any]) -> None:
        """Take the watermark and the counts from a header.

        Raises ValueError if they contradict one another or the cells.
        """
        if "watermark" not in header or header["watermark"] is not None:
            self._state[WATERMARK] = number(header, "watermark", -TIME_MAX, TIME_MAX)
        if header.get("current", ...) != (current := self.current):
            raise ValueError(
                f"current {header.get('current')!r} is not {current}, the generation of the watermark"
            )
        keys, bits = header.get("generation_keys"), self.ring.counts[BITS_SET]
        if (
            not isinstance(keys, list)
            or len(keys) != self.clock.generations
            or not all(type(count) is int and 0 <= count <= TABLE_BITS_MAX for count in keys)
        ):
            raise ValueError(f"generation_keys are not {self.clock.generations} numbers of keys")
        if self.watermark is None and (any(keys) or bits.any()):
            raise ValueError(
                f"generation_keys are {keys}, or bits are set, but there is no watermark"
            )
        # Additions go on while a snapshot is written, so its counts may be older or newer than its bits. They are
        # limited to what the bits allow: each counted key set at least one bit, and at most one for each hash.
        self.ring.counts[KEYS] = np.clip(keys, -(-bits // self.ring.hashes), bits)

    def _turn(self, row: Digests) -> None:
        """Rotate for the digest at which a kernel stopped, since it changes the current generation; then add it."""
        generations = self._state[GENERATION : GENERATION + 1].copy()
        for _ in self.rotate(int(self._state[REACHED])):
            pass
        self.ring.put(row, generations, int(generations[0]))
