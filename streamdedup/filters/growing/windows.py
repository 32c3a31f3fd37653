"""A window that grows: a further table when the newest is full, and none for keys that have left the window.

`window_stages` has the tables. The sizes are those of `stages`: each for twice the keys of the one before, at half its
error. Each index exists once at a time, so the errors stay within the whole, however often a stage is made again.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

from typing_extensions import override

from streamdedup.errors import ConfigError
from streamdedup.filters.digest_filter import describe, number
from streamdedup.filters.growing.stages import (
    STAGES_MAX,
    Stage,
    adding_up,
    expected_error,
    stages,
    stated_for,
    within,
)
from streamdedup.filters.growing.window_stages import StagedTable
from streamdedup.filters.kinds import KINDS, WINDOW_TABLE
from streamdedup.filters.sizing import WINDOW_GENERATIONS, any_of
from streamdedup.filters.window.in_time import InTime
from streamdedup.filters.window.rules import Rules, rules_for, stated_rules
from streamdedup.filters.window.table import WindowTable
from streamdedup.filters.window.window import (
    check_oldest,
    check_table,
    stated_marks,
    stated_sizes,
)
from streamdedup.keys.hashing import MURMUR3, Hash
from streamdedup.units import counted


class GrowingWindow(InTime):
    """A `Window` by time that begins with `capacity` keys, and stays within `error_rate` while it grows and shrinks.

    `max_size`, in bytes or as text ("4GiB"), bounds all stages together; unless given, it is 16 times the size of the
    first stage. `capacity` is then the number of keys that can be live at once, in all stages that it permits. Beyond
    it no key is refused, and `error_rate` no longer holds, as in any filter.
    """

    kind = "windows"
    _of = "window"
    _table: StagedTable

    def __init__(
        self,
        capacity: int,
        error_rate: float = 1e-6,
        *,
        max_size: int | str | None = None,
        retention: int | str | None = None,
        generations: int = WINDOW_GENERATIONS,
        late: str = "pass",
        refresh: bool = False,
        max_jump: int | str | None = None,
        hash_: Hash = MURMUR3,
    ) -> None:
        super().__init__(capacity, error_rate, hash_)
        rules = rules_for(capacity, retention, generations, late, refresh, max_jump)
        if rules.clock.by_count:
            raise ConfigError(
                "filter.on_full grow is not for a window by count, which is never full; leave filter.on_full out, or"
                " set filter.retention"
            )
        self._plan = self._permitted(rules, max_size)
        self._table = StagedTable(rules, *self._stated, hash_, len(self._plan))

    def permit(self, max_size: int | str | None) -> None:
        """Set another `max_size`, from now on. Existing stages stay. Raises ConfigError if the first would not fit."""
        plan = self._permitted(self._table.rules, max_size)
        there = islice(self._planned(self._table.rules), max(self._table.tables) + 1)
        self._plan = max(plan, tuple(there), key=len)
        self._table.most = len(self._plan)

    def _permitted(self, rules: Rules, max_size: int | str | None) -> tuple[Stage, ...]:
        capacity, error_rate = stated_for(0, *self._stated)
        options = _options(rules)
        try:
            KINDS["window"].check(capacity, error_rate, **options)
        except ConfigError as error:
            raise ConfigError(
                f"the first stage of a filter that grows has half of its error rate: {error}"
            ) from None
        return within(max_size, "window", *self._stated, options)

    def _planned(self, rules: Rules) -> Iterator[Stage]:
        return stages("window", *self._stated, _options(rules))

    @property
    def _stages(self) -> list[WindowTable]:
        return self._table.newest_last

    @property
    def _room(self) -> int:
        return self._table.room

    @property
    def _stated(self) -> tuple[int, float]:
        return self._capacity, self._error_rate

    @property
    def stages(self) -> str:
        """A description for people: "window in 2 stages"."""
        return f"window in {counted(len(self._table.tables), 'stage')}"

    @override
    def __repr__(self) -> str:
        return describe(self, self.stages)

    @property
    @override
    def capacity(self) -> int:
        """The number of live keys up to which `error_rate` holds: the sum over all stages that `max_size` permits."""
        return sum(stage.capacity for stage in self._plan)

    @property
    def error_rate_now(self) -> float:
        """The probability that at least one stage errs: 1 - prod(1 - e_i), by the live keys of each."""
        return any_of(table.error(table.keys) for table in self._table.tables.values())

    @property
    def fill_ratio(self) -> float:
        """The share in use of all the memory that the window may come to take."""
        tables = self._table.tables.values()
        used = sum(table.keys / table.cells * table.size_bytes for table in tables)
        return used / self.size_bytes_max

    @property
    @override
    def size_bytes(self) -> int:
        """The memory of all stages, in bytes, including those that `grow` has made ahead."""
        return self._table.size_bytes

    @property
    def size_bytes_max(self) -> int:
        """The memory of all stages that `max_size` permits, in bytes."""
        return sum(stage.size_bytes for stage in self._plan)

    @property
    @override
    def layout(self) -> int:
        """How many stages came and went. If it changes, so may the number and the sizes of the buffers."""
        return self._table.changes

    def expected_error(self, keys: int) -> float:
        """1 - prod(1 - e_i) over stages that are filled in order. The last one takes all keys beyond the capacity."""
        return expected_error(self._plan, keys)

    def grows_within(self, rows: int) -> bool:
        """Whether adding `rows` more keys may need a stage that does not exist yet."""
        return self._table.grows_within(rows)

    def grow(self) -> None:
        """Make the next stage now, with its memory in place, so that it can be used when it is due. Blocking.

        Call it in a thread while other threads add. If `max_size` permits no further stage, the call does nothing.
        """
        self._table.grow()

    def header(self) -> dict[str, Any]:
        """Kind, parameters, the fields of `_time`; of each stage its index and its sizes."""
        return self._header(
            **self._table.rules.header(),
            table=WINDOW_TABLE,
            size_bytes_max=self.size_bytes_max,
            **self._time(),
            newest=self._table.newest,
            stages=[
                {
                    "index": index,
                    "buckets": table.buckets,
                    "fingerprint_bits": table.fingerprint_bits,
                }
                for index, table in sorted(self._table.tables.items())
            ],
        )

    def buffers(self) -> list[memoryview]:
        """The cells and the stash of each stage, as those of a `Window`, by index."""
        tables = sorted(self._table.tables.items())
        return [buffer for _, table in tables for buffer in table.buffers()]

    @override
    def _restore(self, header: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        check_table(header)
        rules = stated_rules(header, self._capacity)
        if rules.clock.by_count:
            raise ValueError("by 'count' is not for a window that grows")
        generations = rules.clock.generations
        indexes = _stated_indexes(header, self._stated, generations, len(buffers))
        size_bytes_max = number(header, "size_bytes_max", 1, sys.maxsize)
        options = _options(rules)
        plan = adding_up(size_bytes_max, indexes[-1] + 1, "window", *self._stated, options)
        newest, (marks, waits) = number(header, "newest", 0, STAGES_MAX), stated_marks(header)
        parts = zip(indexes, zip(buffers[::2], buffers[1::2], strict=True), strict=True)
        self._plan = plan
        self._table = StagedTable(rules, *self._stated, self._hash, len(plan), dict(parts))
        self._table.restore(newest, marks.watermark, waits=waits)
        self.set_untimed(marks.untimed)
        check_oldest(header, self._table.oldest)


def _options(rules: Rules) -> dict[str, Any]:
    return {"generations": rules.clock.generations}


def _stated_indexes(
    header: Mapping[str, Any], stated: tuple[int, float], generations: int, buffers: int
) -> list[int]:
    """The indexes of the stages, ascending, before anything is made from them. Raises ValueError if they are wrong."""
    headers = header.get("stages")
    if not isinstance(headers, list) or not all(isinstance(one, dict) for one in headers):
        raise ValueError("stages is not a list of headers")
    if not headers or 2 * len(headers) != buffers:
        raise ValueError(f"{len(headers)} stages, but {buffers} buffers; each has two")
    indexes = [number(one, "index", 0, STAGES_MAX - 1) for one in headers]
    if any(one >= next_ for one, next_ in pairwise(indexes)):
        raise ValueError(f"stages {indexes} are not in order")
    for index, one in zip(indexes, headers, strict=True):
        stated_sizes(one, *stated_for(index, *stated), generations)
    return indexes
