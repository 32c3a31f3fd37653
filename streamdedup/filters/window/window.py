"""Sliding window: a cuckoo table of fingerprints, each with the generation of its key, which is forgotten as a whole.

Time is that of the keys, or their number. Table and stash follow from the keys and the times that were put, in their
order, whatever the batches. `cells` has the layout, `search` the moves, `rows` the kernels, `table` adds time to them,
`rules` and `clock` have the rules of time. B. Fan and others 2014 describe the cuckoo filter.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from streamdedup.filters.digest_filter import number
from streamdedup.filters.sizing import (
    TABLE_BITS_MAX,
    WINDOW_GENERATIONS,
    window_size,
)
from streamdedup.filters.window.clock import NEVER, TIME_MAX, Marks
from streamdedup.filters.window.in_time import InTime
from streamdedup.filters.window.kinds import CELL_BITS_MAX, TABLE, WINDOW
from streamdedup.filters.window.rules import Rules, rules_for, stated_rules
from streamdedup.filters.window.sweeping import keep_rows
from streamdedup.filters.window.table import WindowTable
from streamdedup.keys.hashing import MURMUR3, Hash


class Window(InTime):
    """Remembers the keys of the last `retention` ms (or text, as "7d"), or at least the last `capacity` keys added.

    - `capacity` is the number of distinct keys, up to which `error_rate` holds, of any span of `retention` and one
      generation, however they come. By count the window is never full.
    - A key belongs to the one of `generations` in which its time lies. Each of them covers a slot of time of
      retention / (generations - 1).
    - A key is found while watermark - time <= retention, and is forgotten at most one slot later. When a key is added
      or judged, its own time takes the place of the watermark if it is later.
    - The watermark is the greatest time of the keys that were added. With `max_jump`, in ms, one key moves it by at
      most that much, and counts as a key of the time that the watermark reaches. So a wrong time far ahead does not
      empty the window.
    - A key that is absent and older than all generations is not added. `late` "pass" reports it as new, "drop" as not
      new.
    - The first occurrence of a key counts. With `refresh`, each later one renews the key.
    """

    kind = "window"
    _table: WindowTable

    def __init__(
        self,
        capacity: int,
        error_rate: float = 1e-6,
        *,
        retention: int | str | None = None,
        generations: int = WINDOW_GENERATIONS,
        late: str = "pass",
        refresh: bool = False,
        max_jump: int | str | None = None,
        hash_: Hash = MURMUR3,
    ) -> None:
        super().__init__(capacity, error_rate, hash_)
        rules = rules_for(capacity, retention, generations, late, refresh, max_jump)
        clock = rules.clock
        options = {"generations": clock.generations, "by_count": clock.by_count}
        WINDOW.check(capacity, error_rate, **options)
        self._hold(rules, *window_size(rules.held(capacity), error_rate, clock.generations))

    def _hold(self, rules: Rules, buckets: int, fingerprint_bits: int, *parts: memoryview) -> None:
        held = rules.held(self._capacity)
        self._table = WindowTable(rules, buckets, fingerprint_bits, held, self._hash, parts)

    @property
    def error_rate_now(self) -> float:
        """The error rate that theory gives for the keys in live generations."""
        return self.expected_error(len(self))

    @property
    def fill_ratio(self) -> float:
        """The share of cells in use by live generations; 0.95 at capacity."""
        return len(self) / self._table.cells

    @property
    @override
    def size_bytes(self) -> int:
        """The memory of the cells and the stash, in bytes."""
        return self._table.size_bytes

    def expected_error(self, keys: int) -> float:
        """1 - (1 - 1/(2^f - 1))^(16 load), for the load of `keys` keys in live generations."""
        return self._table.error(keys)

    def header(self) -> dict[str, Any]:
        """Kind, parameters, sizes, and the fields of `_time`."""
        return self._header(
            **self._table.rules.header(),
            table=TABLE,
            buckets=self._table.buckets,
            fingerprint_bits=self._table.fingerprint_bits,
            **self._time(),
        )

    def buffers(self) -> list[memoryview]:
        """The cells, as little-endian uint64 words, and the stash.

        Cell i is the f + t bits from bit i * (f + t) on, where bit x is bit x % 64 of word x // 64: a tag of t bits,
        and above it a fingerprint of f bits. A row of the stash is a fingerprint, the smaller of its buckets, and the
        tag plus one.
        """
        return self._table.buffers()

    @override
    def _restore(self, header: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        check_table(header)
        rules = stated_rules(header, self.capacity)
        keys, generations = rules.held(self.capacity), rules.clock.generations
        sizes = stated_sizes(header, keys, self.error_rate, generations)
        marks, waits = stated_marks(header)
        self._hold(rules, *sizes, *buffers)
        self._table.restore(marks.watermark, waits=waits)
        self.set_untimed(marks.untimed)
        check_oldest(header, self._table.oldest)


def check_table(header: Mapping[str, Any]) -> None:
    """Raise ValueError unless the header is that of a table as it is today."""
    if header.get("table") != TABLE:
        raise ValueError(
            f"table {header.get('table')!r} is not {TABLE!r}: an older version saved this window; build it anew"
        )


def stated_sizes(
    header: Mapping[str, Any], keys: int, error_rate: float, generations: int
) -> tuple[int, int]:
    """Buckets and bits of a fingerprint, for `keys` keys. Raises ValueError if the header states others."""
    follow = window_size(keys, error_rate, generations)
    stated = (
        number(header, "buckets", 1, TABLE_BITS_MAX),
        number(header, "fingerprint_bits", 1, CELL_BITS_MAX),
    )
    if stated != follow:
        raise ValueError(
            f"{follow} (buckets, bits of a fingerprint) follow from capacity and error rate, not {stated}"
        )
    return follow


def stated_marks(header: Mapping[str, Any]) -> tuple[Marks, bool]:
    """The marks of a header, and whether it has undated keys. Raises ValueError if they contradict one another."""
    watermark = _time_in(header, "watermark")
    untimed = _time_in(header, "untimed") if "untimed" in header else watermark
    if untimed is not None and (watermark is None or watermark < untimed):
        raise ValueError(f"untimed {untimed} is after the watermark {watermark}")
    if type(waits := header.get("undated", False)) is not bool or (waits and untimed is not None):
        raise ValueError(f"undated {waits!r} does not fit untimed {untimed}")
    return Marks(watermark, untimed), waits


def _time_in(header: Mapping[str, Any], name: str) -> int | None:
    if name in header and header[name] is None:
        return None
    return number(header, name, -TIME_MAX, TIME_MAX)


def check_oldest(header: Mapping[str, Any], oldest: int | None) -> None:
    """Raise ValueError unless the header states this oldest generation."""
    if header.get("oldest", ...) != oldest:
        raise ValueError(
            f"oldest {header.get('oldest')!r} is not {oldest}, which follows from the watermark"
        )


def warm_up() -> None:
    """Compile the kernel that sweeps the stash, or load it from the cache, so that no sweep waits for it."""
    table = Window(10)._table
    keep_rows(table._table, table.stash.table[:0], 0, NEVER, NEVER)
