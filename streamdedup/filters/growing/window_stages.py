"""The tables of a window that grows, one a stage: which there are, and which of them takes new keys.

All of it follows from the keys and the generations that were put, in their order, whatever the batches:

- Additions go to the *newest* stage. When it holds as many live keys as it is for, the stage with the lowest index that
  does not exist follows. If `most` permits no further one, the stage with the most room takes over.
- When a generation begins, stages without live keys are dropped. If all live keys fill at most half of a smaller stage
  that does not exist, that one takes over, so that the larger ones drain.
- A key is found in any stage, in the latest generation. Put again in a later one, it goes to the newest stage.
"""

import sys
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from streamdedup.filters.base import Mask, Times
from streamdedup.filters.digest_filter import empty_mask, slices
from streamdedup.filters.growing.stages import stated_for
from streamdedup.filters.memory import Counts, touch_pages, touching, writable
from streamdedup.filters.sizing import window_size
from streamdedup.filters.window.clock import NEVER, Generations
from streamdedup.filters.window.in_time import TableInTime, is_undated, not_behind
from streamdedup.filters.window.rules import Rules
from streamdedup.filters.window.table import ROWS_A_CHANGE, WindowTable
from streamdedup.keys.hashing import Digests, Hash, checked, frozen

Parts = tuple[()] | tuple[memoryview, memoryview]
"""The cells and the stash that were saved of a stage."""


class StagedTable(TableInTime):
    """`tables` by their index; that of index i is for `capacity` * 2^i keys. It begins with the first one, empty.

    `most` is how many stages there may be. Over `parts` that were saved, by index, it needs `restore`.
    """

    def __init__(
        self,
        rules: Rules,
        capacity: int,
        error_rate: float,
        hash_: Hash,
        most: int,
        parts: Mapping[int, Parts] = MappingProxyType({0: ()}),
    ) -> None:
        self.rules, self.clock, self.most = rules, rules.clock, most
        self._asked, self._hash = (capacity, error_rate), hash_
        self.tables = {index: self._made(index, saved) for index, saved in parts.items()}
        self.newest = 0
        self.changes = 0
        """How often the stages changed."""
        self._ahead: dict[int, WindowTable] = {}

    def restore(self, newest: int, watermark: int | None, *, waits: bool) -> None:
        """Take what was saved beside the parts. Raises ValueError if it contradicts them."""
        if newest not in self.tables:
            raise ValueError(f"newest {newest} is no stage")
        self.newest = newest
        for index, table in self.tables.items():
            table.restore(watermark, waits=waits)
            if not table.keys and index != newest:
                raise ValueError(f"stage {index} has no live key")

    # --- what there is ---

    @property
    @override
    def watermark(self) -> int | None:
        return self._newest.watermark

    @property
    @override
    def current(self) -> int:
        return self._newest.current

    @property
    @override
    def oldest(self) -> int | None:
        return self._newest.oldest

    @property
    @override
    def keys(self) -> int:
        return sum(table.keys for table in self.tables.values())

    @property
    @override
    def loads(self) -> Counts:
        loads: Counts = np.sum([table.loads for table in self.tables.values()], axis=0)
        return loads

    @property
    @override
    def undated(self) -> int:
        return sum(table.undated for table in self.tables.values())

    @property
    @override
    def waits(self) -> bool:
        return self._newest.waits

    @property
    @override
    def strained(self) -> bool:
        return any(table.strained for table in self.tables.values())

    @property
    @override
    def overfull(self) -> bool:
        return any(table.overfull for table in self.tables.values())

    @property
    def size_bytes(self) -> int:
        """The memory of all stages, in bytes, including those that were made ahead."""
        return sum(table.size_bytes for table in (*self.tables.values(), *self._ahead.values()))

    @override
    def obey(self, rules: Rules) -> None:
        self.rules = rules
        for table in (*self.tables.values(), *self._ahead.values()):
            table.obey(rules)

    @override
    def find(self, digests: Digests) -> Generations:
        here, elsewhere = self._found(digests)
        return here if len(self.tables) == 1 else np.maximum(here, elsewhere)

    @override
    def contains_one(self, a: int, b: int) -> bool:
        return any(table.contains_one(a, b) for table in self.tables.values())

    # --- growth ---

    def grows_within(self, rows: int) -> bool:
        """Whether `rows` more keys may need a stage that does not exist, not even ahead."""
        room = max(0, self._newest.room)
        for index in self._missing():
            if rows <= room:
                return False
            if index not in self._ahead:
                return True
            room += stated_for(index, *self._asked)[0]
        return False

    def grow(self) -> None:
        """Make the next stage ahead, with its memory in place. Blocking; call it in a thread while others add."""
        due = next((index for index in self._missing() if index not in self._ahead), None)
        if due is None:
            return
        made = self._made(due)
        for buffer in made.buffers():
            touch_pages(buffer)
        self._ahead[due] = made
        if due in self.tables:  # made by an addition, while this thread did
            self._ahead.pop(due, None)

    def _made(self, index: int, parts: Parts = ()) -> WindowTable:
        capacity, error_rate = stated_for(index, *self._asked)
        sizes = window_size(capacity, error_rate, self.clock.generations)
        return WindowTable(self.rules, *sizes, capacity, self._hash, parts)

    def _missing(self) -> Iterator[int]:
        return (index for index in range(self.most) if index not in self.tables)

    @property
    def _newest(self) -> WindowTable:
        return self.tables[self.newest]

    @property
    def newest_last(self) -> list[WindowTable]:
        """All tables, the newest at the end."""
        others = [table for index, table in self.tables.items() if index != self.newest]
        return [*others, self._newest]

    @property
    def room(self) -> int:
        """How many keys the newest stage takes before another one follows; any number if there is none."""
        room = self._newest.room
        if room > 0:
            return room
        return sys.maxsize if self._next() is None else 0

    def _next(self) -> int | None:
        """The stage that follows when the newest is full."""
        if (index := next(self._missing(), None)) is not None:
            return index
        index = max(self.tables, key=lambda one: (self.tables[one].room, -one))
        return index if self.tables[index].room > 0 else None

    def _follow(self, index: int) -> None:
        """Make the stage `index` the newest."""
        watermark, current, waits = self.watermark, self.current, self.waits
        if index not in self.tables:
            ahead = self._ahead.get(index)
            self.tables[index] = self._made(index) if ahead is None else ahead
            # Only now: `grow` in another thread finds the stage here or there at every moment.
            self._ahead.pop(index, None)
            self.changes += 1
        self.newest = index
        self._newest.set_time(watermark, current, waits=waits)

    def _begin(self, generation: int) -> Iterator[None]:
        """Begin a generation in all stages: at once, but for sweeps and the memory of a smaller stage: in steps."""
        if generation == self.current:
            return
        for table in self.tables.values():
            table.advance(generation)
        yield from self._turned()

    def _renumber(self, newest: int, to: int, *, waits: bool = False) -> Iterator[None]:
        """Do the same when undated keys move `to` another generation, as `WindowTable.renumber` describes."""
        for table in self.tables.values():
            table.renumber(newest, to, waits=waits)
        yield from self._turned()

    def _turned(self) -> Iterator[None]:
        self._drop()
        keys = self.keys
        smaller = (
            index
            for index in self._missing()
            if index < self.newest and 2 * keys <= stated_for(index, *self._asked)[0]
        )
        if (index := next(smaller, None)) is not None:
            self._follow(index)
            self._drop()
        if 2 * self._newest.room >= self._newest.capacity:
            self._ahead.clear()  # what was made ahead is not needed soon
        for table in [*self.tables.values()]:
            yield from table.swept()
        if index is not None:  # otherwise the next keys would wait for all its pages at once
            yield from touching(self._newest.words.data.cast("B"))

    def _drop(self) -> None:
        for index in [one for one, table in self.tables.items() if not table.keys]:
            if index != self.newest:
                del self.tables[index]
                self.changes += 1

    # --- changes ---

    @override
    def add(self, digests: Digests, moments: Times) -> Mask:
        writable(self._newest.words)
        if self.waits and len(moments):
            deque(self.date(int(moments[0]) // self.clock.slot), maxlen=0)
        fresh = empty_mask(digests)
        for part, rows in slices(digests, ROWS_A_CHANGE):
            done = 0
            while done < len(part):
                left = slice(done, None)
                done += self._add_some(part[left], moments[rows][left], fresh[rows][left])
        return fresh

    @override
    def add_one(self, a: int, b: int, moment: int) -> bool:
        if self._is_alone(1, moment // self.clock.slot):
            return self._newest.add_one(a, b, moment)
        one = checked(np.array([[a, b]], dtype=np.int64).view(np.uint64))
        return bool(self.add(one, np.array([moment], dtype=np.int64))[0])

    @override
    def put(self, digests: Digests, generations: Generations) -> Iterator[None]:
        writable(self._newest.words)
        if is_undated(generations):
            for table in self.tables.values():
                table.wait()
            generations = np.full(len(digests), self.current)
        return self._put(digests, generations)

    @override
    def date(self, generation: int) -> Iterator[None]:
        if not self.waits:
            return iter(())
        writable(self._newest.words)
        return self._renumber(max(self.current - 1, generation), generation)

    @override
    def rotate(self, watermark: int | None) -> Iterator[None]:
        if watermark is None and self.watermark is None:
            return iter(())
        ahead = not_behind(self, watermark)
        writable(self._newest.words)
        return self._rotate(ahead)

    def _rotate(self, watermark: int) -> Iterator[None]:
        generation = self.clock.generation(watermark)
        if self.waits and generation >= self.current:
            yield from self._renumber(generation, generation, waits=True)
        elif not self.waits:
            yield from self._begin(generation)
        self._newest.set_time(watermark, self.current, waits=self.waits)

    def _is_alone(self, rows: int, latest: int) -> bool:
        """Whether the newest stage can do all by itself: it is the only one, with room for `rows`, and stays so.

        `latest` is the latest generation of the rows. If one begins, the first stage alone has nothing else to do.
        """
        stays = latest <= self.current or (self.newest == 0 and not self._ahead)
        return stays and len(self.tables) == 1 and rows <= self.room

    def _add_some(self, digests: Digests, moments: Times, fresh: Mask) -> int:
        """Add the first rows, up to one that needs another stage or generation; that one alone. Returns how many."""
        rows = len(digests)
        if self._is_alone(rows, int(moments.max()) // self.clock.slot):
            fresh[:] = self._newest.add(digests, moments)
            return rows
        live = self.current - self.clock.generations
        own = moments // self.clock.slot
        here, elsewhere = self._found(digests)
        present = np.maximum(here, elsewhere) > np.maximum(own - self.clock.generations, live)
        known = present & (not self.rules.refresh)
        stop = _first((own > self.current) & ~known)
        if stop == 0:
            self._begin_with(digests[:1], int(moments[0]))
            fresh[0] = not present[0]
            return 1
        todo = np.flatnonzero(~known[:stop])
        count = self._fitting(((here == NEVER) & (own > live))[todo])
        if count == 0 < len(todo):
            return 0
        todo, left = todo[:count], todo[count:]
        at = frozen(moments[todo], np.int64)
        fresh[todo] = self._newest.add(digests[todo], at) & ~present[todo]
        return int(left[0]) if len(left) else stop

    def _begin_with(self, row: Digests, moment: int) -> None:
        """Add a row that is new, and ahead of the current generation."""
        before = self.watermark
        ahead = moment if before is None else min(moment, before + self.clock.max_jump)
        deque(self._rotate(ahead), maxlen=0)
        deque(self._put(row, np.array([self.current], dtype=np.int64)), maxlen=0)

    def _put(self, digests: Digests, generations: Generations) -> Iterator[None]:
        for part, rows in slices(digests, ROWS_A_CHANGE):
            own, done = np.ascontiguousarray(generations[rows]), 0
            while done < len(part):
                done += yield from self._put_some(part[done:], own[done:])

    def _put_some(self, digests: Digests, own: Generations) -> Generator[None, None, int]:
        """Put the first rows, up to one that needs another stage, or a later generation. Returns how many."""
        rows = len(digests)
        if self._is_alone(rows, int(own.max())):
            yield from self._newest.put(digests, own)
            return rows
        if own[0] > self.current:
            yield from self._begin(int(own[0]))
        stop = _first(own > self.current)
        here, elsewhere = self._found(digests[:stop])
        live = self.current - self.clock.generations
        todo = np.flatnonzero(own[:stop] > np.maximum(np.maximum(here, elsewhere), live))
        count = self._fitting((here == NEVER)[todo])
        if count == 0 < len(todo):
            return 0
        todo, left = todo[:count], todo[count:]
        yield from self._newest.put(digests[todo], own[todo])
        return int(left[0]) if len(left) else stop

    def _found(self, digests: Digests) -> tuple[Generations, Generations]:
        """The generations in which the newest stage, and all others, have the digests."""
        elsewhere = np.full(len(digests), NEVER)
        for index, table in self.tables.items():
            if index != self.newest:
                np.maximum(elsewhere, table.find(digests), out=elsewhere)
        return self._newest.find(digests), elsewhere

    def _fitting(self, takes: Mask) -> int:
        """How many of the first rows fit into the newest stage, if each that `takes` room does.

        If that is none, the next stage becomes the newest.
        """
        room = self.room
        if len(takes) <= room:
            return len(takes)
        count = int(np.searchsorted(np.cumsum(takes), room, side="right"))
        if count == 0 and (index := self._next()) is not None:
            self._follow(index)
        return count


def _first(mask: npt.NDArray[np.bool_]) -> int:
    """The first row that is True; the number of rows if none is."""
    return int(mask.argmax()) if mask.any() else len(mask)
