"""Sliding window: a cuckoo table of fingerprints, each with the generation of its key, which is forgotten as a whole.

Time is that of the keys, or their number. Table and stash follow from the keys and the times that were put, in their
order, whatever the batches. `cells` has the layout, `search` the moves, `rows` the kernels, `table` adds time to them,
`rules` and `clock` have the rules of time. B. Fan and others 2014 describe the cuckoo filter.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from typing_extensions import override

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Key, Mask, Times
from streamdedup.filters.digest_filter import CAPACITY_MAX, DigestFilter, number
from streamdedup.filters.kinds import WINDOW_TABLE
from streamdedup.filters.memory import Counts
from streamdedup.filters.sizing import (
    TABLE_BITS_MAX,
    WINDOW_CELLS,
    WINDOW_GENERATIONS,
    cuckoo_error,
    window_size,
    window_tag_bits,
)
from streamdedup.filters.window.clock import (
    NEVER,
    TIME_MAX,
    Clock,
    Generations,
    checked_time,
    folded,
    given_times,
)
from streamdedup.filters.window.rules import Rules, rules_for, stated_rules
from streamdedup.filters.window.table import WindowTable
from streamdedup.keys.hashing import MURMUR3, Digests, Hash, checked

CELL_BITS_MAX = 63  # the code reads a cell out of two words at most


class Window(DigestFilter):
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
        sizes = window_size(rules.held(capacity), error_rate, rules.clock.generations)
        self._check_size(*sizes, rules.clock.generations)
        self._hold(rules, *sizes)

    def _check_size(self, buckets: int, fingerprint_bits: int, generations: int) -> None:
        cell_bits = fingerprint_bits + window_tag_bits(generations)
        bits = buckets * WINDOW_CELLS * cell_bits
        if cell_bits > CELL_BITS_MAX or bits > TABLE_BITS_MAX:
            raise ConfigError(
                f"filter.capacity {self._capacity} at error_rate {self._error_rate} takes {bits} bits, of at most"
                f" {TABLE_BITS_MAX}, in cells of {cell_bits} bits, of at most {CELL_BITS_MAX}; lower the capacity or"
                " raise the error rate"
            )

    def _hold(self, rules: Rules, buckets: int, fingerprint_bits: int, *parts: memoryview) -> None:
        held = rules.held(self._capacity)
        self._table = WindowTable(rules, buckets, fingerprint_bits, held, self._hash, parts)

    @property
    def clock(self) -> Clock:
        """The width and the number of generations, and how far one key may move the watermark."""
        return self._table.clock

    @property
    def retention(self) -> int | None:
        """For how long a key is certainly remembered, in ms; None by count."""
        return self._table.rules.retention

    @property
    def late(self) -> str:
        """What happens to a key that is older than the window: "pass" or "drop"."""
        return self._table.rules.late

    @property
    def refresh(self) -> bool:
        """Whether a key that is found is renewed."""
        return self._table.rules.refresh

    def set_policy(self, late: str, refresh: bool) -> None:
        """Set another `late` and `refresh`, from now on. Raises ConfigError if a value is unknown."""
        self._table.obey(self._table.rules.with_policy(late, refresh))

    @property
    def watermark(self) -> int | None:
        """The greatest time of the keys that were added, within `max_jump`; by count, their number minus one.

        None before the first key.
        """
        return self._table.watermark

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
    def strained(self) -> bool:
        return self._table.strained

    @property
    @override
    def size_bytes(self) -> int:
        """The memory of the cells and the stash, in bytes."""
        return int(self._table.words.nbytes) + self._table.stash.size_bytes

    @override
    def __len__(self) -> int:
        """The keys in the live generations, each in the newest that holds it."""
        return self._table.keys

    def expected_error(self, keys: int) -> float:
        """1 - (1 - 1/(2^f - 1))^(16 load), for the load of `keys` keys in live generations."""
        return cuckoo_error(self._table.buckets, self._table.fingerprint_bits, keys, WINDOW_CELLS)

    def room(self) -> int:
        """How many more keys can be live within `error_rate`; below 0 if there are too many. CAPACITY_MAX by count."""
        return CAPACITY_MAX if self.clock.by_count else self._capacity - len(self)

    def loads(self) -> tuple[int, Counts, int]:
        """The current generation; the keys of each live one, shape (G,), int64, the oldest first; the most in all."""
        most = CAPACITY_MAX if self.clock.by_count else self._capacity
        return self._table.current, self._table.loads, most

    @override
    def add(self, key: Key, time: int | None = None) -> bool:
        """Add one key at its `time` in ms since 1970; by count there is none.

        Returns True if the key was absent; if it is also late, only if `late` is "pass". Raises ConfigError if `time`
        does not fit, for example if it is beyond the year 9999.
        """
        a, b = self._hash.signed(key)
        return self._table.add_one(a, b, checked_time(self._table.clock, time))

    def add_many(self, digests: Digests, times: Times | None = None) -> Mask:
        """Add all of `digests` (n, 2), in order, at their `times` (n,), int64, ms since 1970; by count there are none.

        Returns True, shape (n,), for each that was absent; for a late one only if `late` is "pass". Raises ConfigError,
        and adds nothing, if `times` do not fit. Times beyond the year 9999 do not fit, because they cannot be ms.
        """
        digests = checked(digests)
        return self._table.add(digests, given_times(self.clock, times, len(digests)))

    def contains_many(self, digests: Digests) -> Mask:
        """Whether each of `digests` (n, 2) is present, shape (n,)."""
        present: Mask = self._table.find(digests) != NEVER
        return present

    def generations_many(self, digests: Digests) -> Generations:
        """The live generation that holds each of `digests` (n, 2), shape (n,), int64; NEVER for one that is absent."""
        return self._table.find(digests)

    def folded(self, times: Times | int) -> tuple[Generations, int | None]:
        """The generations (n,) of keys with these `times` if every key is added, and the watermark after them.

        By count, `times` is the number of keys. A late key gets a generation that `put_many` skips.
        """
        return folded(self.clock, self.watermark, times)

    def put_many(self, digests: Digests, generations: Generations) -> Iterator[None]:
        """Add `digests` (n, 2) to their `generations` (n,), int64, in order, in steps; between two others may work.

        A key that is present keeps the later generation. A generation above the current one becomes current: the window
        moves on to it at that row, and what leaves it is swept. Generations that are no longer live are skipped. The
        watermark stays until `rotate`. So the table depends on all that was put, in its order, and not on the batches;
        and to put the same again, from the same watermark on, changes nothing.
        """
        digests = checked(digests)
        if not isinstance(generations, np.ndarray) or generations.dtype != np.int64:
            raise TypeError(f"generations are int64, shape (n,), not {type(generations).__name__}")
        if generations.shape != (len(digests),):
            raise TypeError(f"{len(digests)} digests, but generations of shape {generations.shape}")
        return self._table.put(digests, generations)

    def rotate(self, watermark: int | None) -> Iterator[None]:
        """Advance the watermark, whatever `max_jump` is, and sweep what leaves the window, in steps like `put_many`.

        None changes nothing if there is no watermark. Raises ValueError if the window would go back.
        """
        return self._table.rotate(watermark)

    def header(self) -> dict[str, Any]:
        """Kind, parameters, sizes, the watermark and the oldest live generation."""
        return self._header(
            **self._table.rules.header(),
            table=WINDOW_TABLE,
            buckets=self._table.buckets,
            fingerprint_bits=self._table.fingerprint_bits,
            watermark=self.watermark,
            oldest=self._table.oldest,
        )

    def buffers(self) -> list[memoryview]:
        """The cells, as little-endian uint64 words, and the stash.

        Cell i is the f + t bits from bit i * (f + t) on, where bit x is bit x % 64 of word x // 64: a tag of t bits,
        and above it a fingerprint of f bits. A row of the stash is a fingerprint, the smaller of its buckets, and the
        tag plus one.
        """
        self._table.settle()
        return [self._table.words.data.cast("B"), self._table.stash.buffer()]

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash = MURMUR3
    ) -> Self:
        """The filter that was saved as these parts, over these very buffers.

        Raises ValueError if the parts contradict one another, or are those of a ring of Bloom filters.
        """
        restored = cls._of_header(header, hash_)
        if header.get("table") != WINDOW_TABLE:
            raise ValueError(
                f"table {header.get('table')!r} is not {WINDOW_TABLE!r}: an older version saved this window; build it"
                " anew"
            )
        rules = stated_rules(header, restored.capacity)
        keys, generations = rules.held(restored.capacity), rules.clock.generations
        follow = window_size(keys, restored.error_rate, generations)
        stated = (
            number(header, "buckets", 1, TABLE_BITS_MAX),
            number(header, "fingerprint_bits", 1, CELL_BITS_MAX),
        )
        if stated != follow:
            raise ValueError(
                f"{follow} (buckets, bits of a fingerprint) follow from capacity and error rate, not {stated}"
            )
        if "watermark" not in header or header["watermark"] is not None:
            number(header, "watermark", -TIME_MAX, TIME_MAX)
        cells, stash = buffers
        restored._hold(rules, *follow, cells, stash)
        restored._table.restore(header["watermark"])
        if header.get("oldest", ...) != (oldest := restored._table.oldest):
            raise ValueError(
                f"oldest {header.get('oldest')!r} is not {oldest}, which follows from the watermark"
            )
        return restored

    @override
    def _add_one(self, a: int, b: int) -> bool:
        return self._table.add_one(a, b, 0)

    @override
    def _contains_one(self, a: int, b: int) -> bool:
        return self._table.contains_one(a, b)
