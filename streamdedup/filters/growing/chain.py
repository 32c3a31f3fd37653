"""A filter that grows: a chain of filters of one kind, each twice as large as the one before (Almeida et al. 2007).

New keys go to the newest stage until it holds as many as it was made for. Look-ups ask all stages. `stages` has the
sizes. A chain is a set: a key that one stage holds is not added again, there or in another stage.
"""

import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Addable, Mask
from streamdedup.filters.digest_filter import DigestFilter, describe, empty_mask, number, slices
from streamdedup.filters.growing.stages import (
    Stage,
    adding_up,
    expected_error,
    follows,
    stages,
    stated_for,
    stated_stages,
    within,
)
from streamdedup.filters.kinds import KINDS, kind_of
from streamdedup.filters.memory import READ_ONLY, touch_pages
from streamdedup.filters.sizing import any_of
from streamdedup.keys.hashing import MURMUR3, Digests, Hash
from streamdedup.units import counted

Rows = npt.NDArray[np.intp]


class _Stage(Addable, Protocol):
    """What a chain uses of a stage. The kinds that are `GROWABLE` have it from `DigestFilter`."""

    def _add_one(self, a: int, b: int) -> bool: ...

    def _contains_one(self, a: int, b: int) -> bool: ...


class Chain(DigestFilter):
    """A filter of kind `of` that begins with `capacity` keys and stays within `error_rate` while it grows.

    `of` is one of `filters.GROWABLE`, and `options` are those of that kind. `max_size`, in bytes or as text ("4GiB"),
    bounds all stages together, with what chosen keys make their stashes take; unless given, it is 16 times the size of
    the first stage. When the last stage that it permits is full, further keys go into that one, as into any filter
    beyond its capacity, and none is refused. Then `error_rate` no longer holds, nor does `max_size` for kinds that grow
    by themselves (`exact`, and the stash of `cuckoo`, `dleft` and `dlcbf`). A caller detects this by
    `len(f) > f.capacity`, and the effect by `error_rate_now`, `size_bytes` and `overfull`.

    A chain is only `Addable`: it has no `discard` and no `|=`. A removal could take a look-alike out of the wrong
    stage, so that a key that was added would be reported absent. Two chains with keys in different stages have no union
    that keeps each stage within its capacity.
    """

    kind = "chain"

    def __init__(
        self,
        of: str,
        /,
        capacity: int,
        error_rate: float = 1e-6,
        *,
        max_size: int | str | None = None,
        hash_: Hash = MURMUR3,
        **options: object,
    ) -> None:
        super().__init__(capacity, error_rate, hash_)
        self._of, self._options = of, options
        first = self._first()
        self._hold([first], self._permitted(max_size))

    def permit(self, max_size: int | str | None) -> None:
        """Set another `max_size`, from now on. Existing stages stay. Raises ConfigError if the first would not fit."""
        plan = self._permitted(max_size)
        there = islice(stages(self._of, *self._stated, self._options), self._next)
        self._plan = max(plan, tuple(there), key=len)

    def _permitted(self, max_size: int | str | None) -> tuple[Stage, ...]:
        return within(max_size, self._of, *self._stated, self._options)

    def _hold(self, made: list[_Stage], plan: tuple[Stage, ...]) -> None:
        self._stages, self._plan = made, plan
        self._parked: dict[int, _Stage] = {}
        self._read_only = any(part.readonly for stage in made for part in stage.buffers())
        self.only_sets_bits = made[0].only_sets_bits

    @property
    def stages(self) -> str:
        """A description for people: "bloom in 2 stages"."""
        return f"{self._of} in {counted(len(self._stages), 'stage')}"

    @override
    def __repr__(self) -> str:
        return describe(self, self.stages)

    @property
    @override
    def capacity(self) -> int:
        """The number of keys up to which `error_rate` holds: the sum over all stages that `max_size` permits."""
        return sum(stage.capacity for stage in self._plan)

    @property
    def error_rate_now(self) -> float:
        """The probability that at least one stage errs: 1 - prod(1 - e_i) over their present errors."""
        return any_of(stage.error_rate_now for stage in self._stages)

    @property
    @override
    def strained(self) -> bool:
        return any(stage.strained for stage in self._stages)

    @property
    @override
    def overfull(self) -> bool:
        return any(stage.overfull for stage in self._stages)

    @property
    def fill_ratio(self) -> float:
        """The share in use of all the memory that the chain may come to take."""
        taken = zip(self._stages, self._plan, strict=False)
        used = sum(stage.fill_ratio * planned.size_bytes for stage, planned in taken)
        return used / self.size_bytes_max

    @property
    @override
    def size_bytes(self) -> int:
        """The memory of all stages, in bytes, including those that `grow` has made ahead."""
        return sum(stage.size_bytes for stage in [*self._stages, *self._parked.values()])

    @property
    def size_bytes_max(self) -> int:
        """The memory of all stages that `max_size` permits, in bytes."""
        return sum(stage.size_bytes for stage in self._plan)

    @property
    @override
    def layout(self) -> int:
        """The number of stages. If it changes, so do the number and the sizes of the buffers."""
        return len(self._stages)

    @override
    def __len__(self) -> int:
        return sum(map(len, self._stages))

    def expected_error(self, keys: int) -> float:
        """1 - prod(1 - e_i) over stages that are filled in order. The last one takes all keys beyond the capacity."""
        return expected_error(self._plan, keys)

    def grows_within(self, rows: int) -> bool:
        """Whether adding `rows` more keys may need a stage that does not exist yet."""
        there = self._next
        room = sum(stage.capacity for stage in self._plan[:there]) - sum(
            min(len(stage), planned.capacity)
            for stage, planned in zip(self._stages, self._plan, strict=False)
        )
        return there < len(self._plan) and rows > room

    def grow(self) -> None:
        """Make the next stage now, with its memory in place, so that `add_many` can use it when it is due. Blocking.

        Call it in a thread while other threads add. If `max_size` permits no further stage, the call does nothing.
        """
        self._writable()
        due = self._next
        if due == len(self._plan):
            return
        made = self._made(due)
        for buffer in made.buffers():
            touch_pages(buffer)
        self._parked[due] = made
        if due < len(self._stages):  # `add_many` has made it while this thread did
            self._parked.pop(due, None)

    def add_many(self, digests: Digests) -> Mask:
        """Add all of `digests` (n, 2); return True, shape (n,), for each that was absent."""
        self._writable()
        fresh = empty_mask(digests)
        for part, rows in slices(digests):
            self._add(part, fresh[rows])
        return fresh

    def contains_many(self, digests: Digests) -> Mask:
        """Whether each of `digests` (n, 2) is present, shape (n,)."""
        present = empty_mask(digests)
        for part, rows in slices(digests):
            present[rows] = self._stages[-1].contains_many(part)
            for stage in reversed(self._stages[:-1]):
                left = np.flatnonzero(~present[rows])
                present[rows][left] = stage.contains_many(part[left])
        return present

    def header(self) -> dict[str, Any]:
        """Kind, first stage's capacity, error rate and size of the whole; of each stage its header and buffer count."""
        return self._header(
            size_bytes_max=self.size_bytes_max,
            stages=[stage.header() for stage in self._stages],
            buffers=[len(stage.buffers()) for stage in self._stages],
        )

    def buffers(self) -> list[memoryview]:
        """The buffers of all stages, the oldest stage first."""
        return [buffer for stage in self._stages for buffer in stage.buffers()]

    @override
    def _restore(self, header: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        headers, counts = stated_stages(header, len(buffers))
        self._of = str(headers[0].get("kind"))
        names = (name for name in KINDS[self._of].options if name != "multiset")
        self._options = {name: headers[0].get(name) for name in names}
        made, left = [], list(buffers)
        for place, (of_stage, parts) in enumerate(zip(headers, counts, strict=True)):
            follows(place, of_stage, self._of, *self._stated, self._options)
            made.append(kind_of(self._of).from_parts(of_stage, left[:parts], self._hash))
            del left[:parts]
        plan = adding_up(
            number(header, "size_bytes_max", 1, sys.maxsize),
            len(made),
            self._of,
            *self._stated,
            self._options,
        )
        self._hold(made, plan)

    @property
    def _next(self) -> int:
        """The number of the first stage that does not exist, not even made ahead."""
        there = len(self._stages)
        while there in self._parked:
            there += 1
        return there

    @property
    def _room(self) -> int:
        """How many keys the newest stage takes before another stage is due; the last stage takes any number."""
        if len(self._stages) == len(self._plan):
            return sys.maxsize
        newest = self._stages[-1]
        return max(0, newest.capacity - len(newest))

    @property
    def _stated(self) -> tuple[int, float]:
        return self._capacity, self._error_rate

    def _first(self) -> _Stage:
        try:
            return self._made(0)
        except ConfigError as error:
            raise ConfigError(
                f"the first stage of a filter that grows has half of its error rate: {error}"
            ) from None

    def _made(self, place: int) -> _Stage:
        capacity, error_rate = stated_for(place, *self._stated)
        kind = kind_of(self._of)
        return cast(
            "_Stage",
            kind(capacity=capacity, error_rate=error_rate, hash_=self._hash, **self._options),
        )

    def _append(self) -> None:
        due = len(self._stages)
        stage = self._parked.get(due)
        if stage is None:
            stage = self._made(due)
        # Unless a signal handler has added a key while the stage was made.
        if len(self._stages) == due:
            self._stages.append(stage)
        # Only now, after the append: `grow` in another thread finds the stage here or there at every moment.
        self._parked.pop(due, None)

    def _add(self, digests: Digests, fresh: Mask) -> None:
        """Add a slice, split where the newest stage is full. Each round adds at least one key, and usually all."""
        if len(self._stages) == 1 and len(digests) <= self._room:
            fresh[:] = self._add_to_newest(digests)
            return
        rows = _absent(digests, self._stages[:-1])
        while len(rows):
            room = self._room
            if len(rows) > room:  # the stage may become full: keys that it already has take no room
                rows = rows[_absent(digests[rows], self._stages[-1:])]
                if room == 0 and len(rows):
                    self._append()
                    continue
            here, rows = rows[:room], rows[room:]
            fresh[here] = self._add_to_newest(digests[here])

    def _add_to_newest(self, digests: Digests) -> Mask:
        return self._stages[-1].add_many(digests)

    @override
    def _add_one(self, a: int, b: int) -> bool:
        self._writable()
        if self._contains_one(a, b):
            return False
        if self._room == 0:
            self._append()
        return self._stages[-1]._add_one(a, b)

    @override
    def _contains_one(self, a: int, b: int) -> bool:
        return any(stage._contains_one(a, b) for stage in reversed(self._stages))

    def _writable(self) -> None:
        if self._read_only:
            raise ConfigError(READ_ONLY)


def _absent(digests: Digests, among: Sequence[_Stage]) -> Rows:
    """The rows of `digests` that no stage holds. The newest stage is asked first, because it has half of the keys."""
    rows: Rows = np.arange(len(digests))
    for stage in reversed(among):
        rows = rows[~stage.contains_many(digests[rows])]
    return rows
