"""A window's table in time: its cells and its stash, the watermark, and how a new generation takes over.

The kernels stop at a key that begins a new generation. Then a part of the table is swept, in pieces, and they go on. A
tag comes back after as many generations as there are tags; each part is swept once in the fewer generations in which a
key may have left the window before that. Which part it is follows from the number of the generation, so a sweep needs
no memory of its own, and a fold repeats it.

Undated keys (see `clock`) are in the generation after the current one, which no other key can have; so that it is live,
one more generation is live then. When they get a time, the whole table is swept, and their cells get another tag.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from streamdedup.filters.base import Mask, Times
from streamdedup.filters.digest_filter import KEYS, ROWS_A_CALL, empty_mask, slices
from streamdedup.filters.memory import (
    TABLE_PIECE_BYTES,
    Counts,
    aligned_words,
    words_over,
    writable,
)
from streamdedup.filters.sizing import WINDOW_CELLS, cuckoo_error, window_tag_bits
from streamdedup.filters.stash import ROWS, ROWS_A_SLICE, Stash
from streamdedup.filters.strain import COUNTS, CREDIT, FLAGS, STRAINED, chosen_keys, take_refusal
from streamdedup.filters.window.cells import GENERATIONS, layout_fields
from streamdedup.filters.window.clock import (
    FRESH,
    NEVER,
    Generations,
    in_kernels,
    or_none,
)
from streamdedup.filters.window.in_time import is_undated, not_behind
from streamdedup.filters.window.placing import (
    CURRENT,
    GENERATION,
    REACHED,
    TAGS,
    WATERMARK,
    Table,
)
from streamdedup.filters.window.rows import (
    LATER,
    add_row,
    add_rows,
    contains_row,
    find_rows,
    put_rows,
    state_of,
)
from streamdedup.filters.window.rules import Rules
from streamdedup.filters.window.search import search_queue
from streamdedup.filters.window.sweeping import keep_rows, sweep, tags_of_rows, tally
from streamdedup.keys.hashing import Digests, Hash, checked

SEARCH_LOAD = 0.97  # of the cells in use; above it no search begins, since hardly any succeeds
ROWS_A_CHANGE = 1 << 12  # rows in one call of a kernel that changes cells
# Three times the buckets that a random new key searches in steady churn: on average 1.9 at capacity.
CREDIT_A_KEY = 6


class WindowTable:
    """`buckets` under `rules`, with fingerprints of some bits, for `capacity` keys that are live at once.

    It is empty; or it stands over `parts` that were saved, the cells and the stash, and then needs `restore`. Raises
    ValueError if these are of another size.
    """

    def __init__(
        self,
        rules: Rules,
        buckets: int,
        fingerprint_bits: int,
        capacity: int,
        hash_: Hash,
        parts: Sequence[memoryview] = (),
    ) -> None:
        self.rules, self.clock, self._hash = rules, rules.clock, hash_
        self.buckets, self.fingerprint_bits = buckets, fingerprint_bits
        self.cells, self.capacity = buckets * WINDOW_CELLS, capacity
        self.waits = False
        """Whether the current generation is that of undated keys."""
        generations, tag_bits = self.clock.generations, window_tag_bits(self.clock.generations)
        self._tags = 1 << tag_bits
        self._parts = self._tags - generations
        self._bits = fingerprint_bits + tag_bits
        # One word more than the bits take, since the last cell, too, is read out of two words.
        words = -(-self.cells * self._bits // 64) + 1
        if parts:
            table, stash = parts
            self.words, self.stash = words_over(table, words), Stash.over(stash)
        else:
            self.words, self.stash = aligned_words(words), Stash()
        searched = int(SEARCH_LOAD * self.cells)
        sizes = buckets, self._bits, tag_bits, generations, searched, capacity
        self._fields = layout_fields(*sizes)
        self.counts: Counts = np.zeros(COUNTS + self._tags, dtype=np.int64)
        self.counts[CREDIT] = CREDIT_A_KEY
        self._state = state_of(rules, NEVER, self.clock.before_all)
        self._queue = search_queue()
        self._due: deque[Callable[[], None]] = deque()
        # Asked once: to ask the array at each addition of a single key would slow that down.
        self._is_plain = self._is_writable = bool(self.words.flags.writeable)

    def obey(self, rules: Rules) -> None:
        """Apply `rules`, which have the same clock, from now on."""
        self.rules = rules
        self._state = state_of(rules, self._state[WATERMARK], self._state[CURRENT])

    @property
    def watermark(self) -> int | None:
        """The greatest time of the keys that were added; None before the first."""
        return or_none(self._state[WATERMARK])

    @property
    def current(self) -> int:
        """The newest live generation; before the first key, one that is below all others."""
        return int(self._state[CURRENT])

    @property
    def oldest(self) -> int | None:
        """The oldest live generation at the watermark; None before the first key."""
        reached = self.watermark
        return (
            None if reached is None else self.clock.generation(reached) - self.clock.generations + 1
        )

    @property
    def keys(self) -> int:
        """The keys in live generations."""
        return int(self.counts[KEYS])

    @property
    def loads(self) -> Counts:
        """The keys of each live generation, shape (G,), the oldest first; without the undated keys."""
        count, newest = self.clock.generations, self.current - self.waits
        live = np.arange(newest - count + 1, newest + 1)
        loads: Counts = self.counts[TAGS + (live & self._tags - 1)]
        return loads

    @property
    def undated(self) -> int:
        """How many keys are undated."""
        return int(self.counts[self._count_of(self.current)]) if self.waits else 0

    @property
    def room(self) -> int:
        """How many more keys can be live within the capacity; below 0 if there are too many."""
        return self.capacity - self.keys

    @property
    def size_bytes(self) -> int:
        """The memory of the cells and the stash, in bytes."""
        return int(self.words.nbytes) + self.stash.size_bytes

    def error(self, keys: int) -> float:
        """The error rate that theory gives for `keys` live keys."""
        return cuckoo_error(self.buckets, self.fingerprint_bits, keys, WINDOW_CELLS)

    def buffers(self) -> list[memoryview]:
        """The cells and the stash, as `Window.buffers` describes."""
        self.settle()
        return [self.words.data.cast("B"), self.stash.buffer()]

    @property
    def strained(self) -> bool:
        """Whether keys have taken so long that more of them are soon refused."""
        return bool(self.counts[FLAGS] & STRAINED)

    @property
    def overfull(self) -> bool:
        """Whether the stash has so many keys that a caller which must not wait adds none."""
        return self.stash.overfull

    def add(self, digests: Digests, moments: Times) -> Mask:
        """Add all of `digests` at `moments`, which are times as the kernels take them.

        Returns True, shape (n,), for each that was absent; for a late one only if late keys pass.
        """
        self._change()
        if self.waits and len(moments):
            deque(self.date(int(moments[0]) // self.clock.slot), maxlen=0)
        fresh = empty_mask(digests)
        for part, rows in slices(digests, ROWS_A_CHANGE):
            start = 0
            while start < len(part):
                start = add_rows(self._table, part, moments[rows], start, fresh[rows])
                self._after()
                if start < len(part) and self._state[REACHED] != NEVER:
                    self._begin_for(part[start : start + 1])
                    start += 1
        return fresh

    def add_one(self, a: int, b: int, moment: int) -> bool:
        """Add one digest, given as signed integers, and return what `add` returns for it."""
        flags = LATER
        if self._is_plain and not self._due and not self.stash.used.item(ROWS):
            flags = add_row(
                self.words, self._fields, self._queue, self.counts, self._state, a, b, moment
            )
        if flags == LATER:
            one = checked(np.array([[a, b]], dtype=np.int64).view(np.uint64))
            return bool(self.add(one, np.array([moment], dtype=np.int64))[0])
        return bool(flags & FRESH)

    def find(self, digests: Digests) -> Generations:
        """The live generation, shape (n,), that holds each of `digests` (n, 2); NEVER if there is none.

        That of an undated key is the current one.
        """
        self.settle()
        found: Generations = np.empty(len(checked(digests)), dtype=np.int64)
        for part, rows in slices(digests, ROWS_A_CALL):
            find_rows(self._table, part, found[rows])
        return found

    def contains_one(self, a: int, b: int) -> bool:
        """Whether one digest, given as signed integers, is present."""
        self.settle()
        if self.stash.used[ROWS]:
            one = checked(np.array([[a, b]], dtype=np.int64).view(np.uint64))
            return bool(self.find(one)[0] != NEVER)
        return bool(contains_row(self.words, self._fields, self._state, a, b))

    def put(self, digests: Digests, generations: Generations) -> Iterator[None]:
        """Add digests to their generations, as `Window.put_many` describes."""
        self._change()
        if is_undated(generations):
            self.wait()
            generations = np.full(len(digests), self.current)
        return self._put(digests, generations)

    def date(self, generation: int) -> Iterator[None]:
        """Move the undated keys to `generation`, as `Window.date` describes."""
        if not self.waits:
            return iter(())
        self._change()
        self.renumber(max(self.current - 1, generation), generation)
        return self.swept()

    def rotate(self, watermark: int | None) -> Iterator[None]:
        """Advance the watermark and sweep what is due, as `Window.rotate` describes."""
        if watermark is None and self.watermark is None:
            return iter(())
        ahead = not_behind(self, watermark)
        self._change()
        return self._rotate(ahead)

    def wait(self) -> None:
        """Begin the generation of undated keys, unless it is the current one. Its tag is free: no cell has it."""
        if not self.waits:
            self.settle()
            self._set_current(self.current + 1, waits=True)

    def renumber(self, newest: int, to: int, *, waits: bool = False) -> None:
        """Make `newest` the newest generation, and move the undated keys `to` another; or let them wait after it.

        All of the table is to be swept then: see `swept`.
        """
        self.settle()
        base, moving = self.current, self.undated
        leaving = int(self.loads[: newest - base + 1].sum())
        if waits:
            to = newest + 1
        stays = to > newest - self.clock.generations
        self.counts[KEYS] -= leaving + (0 if stays else moving)
        if stays:
            self.counts[self._count_of(base)] -= moving
            self.counts[self._count_of(to)] += moving
        self._set_current(newest + waits, waits=waits)
        for part in range(self._parts):
            for start, stop in self._pieces(part):
                self._due.append(partial(sweep, self._table, start, stop, base, base, to))
        if self.stash.used[ROWS]:
            self._sweep_stash(base, base, to)

    def settle(self) -> None:
        """Sweep what an advance has left to be swept. Call this before the table is read."""
        while self._due:
            self._due[0]()
            self._due.popleft()

    def set_time(self, watermark: int | None, current: int, *, waits: bool = False) -> None:
        """Take the time of another table, or that of a saved one. Keys stay: none may leave the window by this."""
        self._state[WATERMARK] = in_kernels(watermark)
        self._set_current(current, waits=waits)

    def restore(self, watermark: int | None, *, waits: bool) -> None:
        """Take the watermark of the saved parts, and count their keys. Raises ValueError if they contradict it.

        `waits` says whether some are undated.
        """
        if watermark is None and not waits:
            if self.words.any() or self.stash.used[ROWS]:
                raise ValueError("cells are in use, but there is no watermark")
            return
        clock = self.clock
        newest = clock.before_all if watermark is None else clock.generation(watermark)
        self.set_time(watermark, newest + waits, waits=waits)
        for part in range(self._parts):
            oldest = clock.generations - 1 + (newest - part) % self._parts
            for start, stop in self._pieces(part):
                if not tally(self._table, start, stop, oldest + waits):
                    raise ValueError("a cell is of no generation that the window can have")
        tags = tags_of_rows(self._table, self._tags)
        self.counts[TAGS:] += np.bincount(tags, minlength=self._tags)
        self.counts[KEYS] = self.loads.sum() + self.undated
        if watermark is None and self.counts[TAGS:].sum() != self.undated:
            raise ValueError("keys have a time, but there is no watermark")
        tail = int(self.words[-2]) | int(self.words[-1]) << 64
        if tail >> (self.cells * self._bits % 64 or 64):
            raise ValueError(f"bits are set beyond the last cell of {self.cells}")

    @property
    def _table(self) -> Table:
        """The arrays for the kernels: anew for each call, since the stash may have grown."""
        stash = self.stash
        return Table(
            self.words, self._fields, stash.table, stash.used, self._queue, self.counts, self._state
        )

    def _change(self) -> None:
        """Prepare the table for a change. Raises ConfigError if it is read-only."""
        writable(self.words)
        self.settle()

    def _after(self) -> None:
        """Grow the stash, or report a refusal, after a kernel that adds."""
        self.stash.make_room()
        if take_refusal(self.counts):
            raise chosen_keys("window", self._hash)

    def _put(self, digests: Digests, generations: Generations) -> Iterator[None]:
        for part, rows in slices(digests, ROWS_A_CHANGE):
            own, start = np.ascontiguousarray(generations[rows]), 0
            while start < len(part):
                start = put_rows(self._table, part, own, start)
                self._after()
                if start < len(part) and own[start] > self.current:
                    yield from self._begin(int(own[start]))
            yield

    def _rotate(self, watermark: int) -> Iterator[None]:
        generation = self.clock.generation(watermark)
        if self.waits and generation >= self.current:
            self.renumber(generation, generation, waits=True)
            yield from self.swept()
        elif not self.waits:
            yield from self._begin(generation)
        self._state[WATERMARK] = watermark

    def _begin_for(self, row: Digests) -> None:
        """Begin the generation to which a row leads at which a kernel stopped; then add the row."""
        reached, generations = (
            int(self._state[REACHED]),
            self._state[GENERATION : GENERATION + 1].copy(),
        )
        deque(self._begin(self.clock.generation(reached)), maxlen=0)
        self._state[WATERMARK] = reached
        deque(self._put(row, generations), maxlen=0)

    def _begin(self, generation: int) -> Iterator[None]:
        self.advance(generation)
        yield from self.swept()

    def advance(self, generation: int) -> None:
        """Make `generation` the current one, which is not below it. What is to be swept is due: see `swept`."""
        self.settle()
        base, moved = self.current, generation - self.current
        if not moved:
            return
        leaving = int(self.loads[:moved].sum())
        self.counts[KEYS] -= leaving
        self._state[CURRENT] = generation
        if self.counts[TAGS:].sum() > self.counts[KEYS]:
            for part in range(generation, max(base, generation - self._parts), -1):
                for start, stop in self._pieces(part % self._parts):
                    self._due.append(partial(sweep, self._table, start, stop, base, NEVER, NEVER))
        if leaving and self.stash.used[ROWS]:
            self._sweep_stash(base, NEVER, NEVER)

    def swept(self) -> Iterator[None]:
        """Sweep what is due, a piece at each step. If the caller stops before the last one, `settle` does the rest."""
        while self._due:
            self._due[0]()
            self._due.popleft()
            yield

    def _sweep_stash(self, base: int, moved: int, to: int) -> None:
        former = self.stash.emptied()
        for start in range(0, len(former), ROWS_A_SLICE):
            rows = former[start : start + ROWS_A_SLICE]
            self._due.append(partial(keep_rows, self._table, rows, base, moved, to))

    def _set_current(self, current: int, *, waits: bool) -> None:
        self._state[CURRENT], self.waits = current, waits
        self._fields[GENERATIONS] = self.clock.generations + waits
        self._is_plain = self._is_writable and not waits

    def _count_of(self, generation: int) -> int:
        """Where `counts` has the number of keys of this generation."""
        return TAGS + (generation & self._tags - 1)

    def _pieces(self, part: int) -> Iterator[tuple[int, int]]:
        """The buckets of a part of the table, in pieces: the first one of each, and the one after its last."""
        step = max(1, 8 * TABLE_PIECE_BYTES // (WINDOW_CELLS * self._bits))
        end = self.buckets * (part + 1) // self._parts
        for start in range(self.buckets * part // self._parts, end, step):
            yield start, min(start + step, end)
