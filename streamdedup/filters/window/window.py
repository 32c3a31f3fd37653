"""Sliding window: a ring of G Bloom filters, one for the keys of each generation. The oldest one is forgotten.

Time is that of the keys, or their number: equal input leads to equal state, whenever it comes. `ring` has the cells,
`table` adds time to them, `rules` and `clock` have the rules of time, `verdicts` decides before anything is added.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from typing_extensions import override

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Key, Mask, Times
from streamdedup.filters.digest_filter import CAPACITY_MAX, DigestFilter, sizes_from_header
from streamdedup.filters.probes import PROBES, is_double, stated_probe
from streamdedup.filters.sizing import (
    TABLE_BITS_MAX,
    bloom_error,
    window_error,
    window_room,
    window_size,
)
from streamdedup.filters.window.clock import Clock, Generations, checked_time, folded, given_times
from streamdedup.filters.window.ring import KEYS, Cells, Ring, cell_bytes
from streamdedup.filters.window.rules import Rules, rules_for, stated_rules
from streamdedup.filters.window.table import WindowTable
from streamdedup.filters.window.verdicts import NO_PENDING, PendingRows, WindowVerdicts, judge
from streamdedup.keys.hashing import MURMUR3, Digests, Hash, checked

ERROR_RATE_MIN = 1e-17  # takes 63 hashes with 64 generations
HASHES_MAX = 64


class Window(DigestFilter):
    """Remembers the keys of the last `retention` ms (or text, as "7d"), or at least the last `capacity` keys added.

    - `error_rate` holds as long as no `retention` brings more than `capacity` keys.
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
    only_sets_bits = True  # as long as `layout` is the same

    def __init__(
        self,
        capacity: int,
        error_rate: float = 1e-6,
        *,
        retention: int | str | None = None,
        generations: int = 8,
        late: str = "pass",
        refresh: bool = False,
        max_jump: int | str | None = None,
        probe: str = "standard",
        hash_: Hash = MURMUR3,
    ) -> None:
        super().__init__(capacity, error_rate, hash_)
        if error_rate < ERROR_RATE_MIN:
            raise ConfigError(f"filter.error_rate {error_rate} is below {ERROR_RATE_MIN}; raise it")
        rules = rules_for(capacity, retention, generations, late, refresh, max_jump)
        size, hashes = window_size(capacity, error_rate, generations)
        if 8 * size * cell_bytes(generations) > TABLE_BITS_MAX:
            raise ConfigError(
                f"filter.capacity {capacity} at error_rate {error_rate} takes {size * cell_bytes(generations)} bytes,"
                f" and the most is {TABLE_BITS_MAX // 8}; lower the capacity or raise the error rate"
            )
        self._hold(rules, Ring(size, hashes, generations, double=is_double(probe)))

    def _hold(self, rules: Rules, ring: Ring) -> None:
        self._ring, self._table = ring, WindowTable(rules, ring)

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
    @override
    def layout(self) -> int:
        """How many rotations have cleared bits. As long as it is the same, bits only change from 0 to 1."""
        return self._ring.layout

    @property
    def cells(self) -> int:
        """The number of cells. Each has a bit for every generation."""
        return self._ring.size

    @property
    def hashes(self) -> int:
        """The number of cells of a key."""
        return self._ring.hashes

    @property
    def error_rate_now(self) -> float:
        """1 - prod(1 - fill^k) over the live generations: the error rate of the bits that are set now."""
        return self._ring.error_rate_now

    @property
    def fill_ratio(self) -> float:
        """The share of the bits of all generations that are set; about one half at capacity."""
        return self._ring.fill_ratio

    @property
    @override
    def size_bytes(self) -> int:
        """The memory of the cells, in bytes."""
        return int(self._ring.words.nbytes)

    @override
    def __len__(self) -> int:
        """The keys in the live generations. A key that was renewed counts in each generation that has it."""
        return int(self._ring.counts[KEYS].sum())

    def expected_error(self, keys: int) -> float:
        """The error rate that theory predicts for `keys` keys.

        By count, it is the rate after `keys` keys. By time, it is the rate just before a rotation, when all G
        generations are full, if each `retention` brings `keys` keys, evenly spread: `len` is then `keys` * G / (G - 1).
        """
        slot, generations = self.clock.slot, self.clock.generations
        if not self.clock.by_count:
            return window_error(self.cells, self.hashes, [keys / (generations - 1)] * generations)
        full = min(generations, keys // slot)
        loads = [slot] * full + [keys % slot] * (full < generations)
        return window_error(self.cells, self.hashes, loads)

    def room(self) -> int:
        """How many more keys the current generation can take until the errors of all sum to `error_rate`.

        It is below 0 if there are too many keys already. It follows from theory and from the keys that were counted. By
        count there is always room: the result is then CAPACITY_MAX.
        """
        if self.clock.by_count:
            return CAPACITY_MAX
        loads = self._ring.counts[KEYS].tolist()
        here = loads.pop((self._table.current or 0) % self.clock.generations)
        return window_room(self.cells, self.hashes, self._error_rate, loads) - int(here)

    def fullest(self) -> tuple[int, int, int]:
        """The live generation with the most keys: its number, its keys, and how many keys it could hold alone.

        So many keys keep `error_rate`, by theory, if all other generations are empty. The generation begins at its
        number times `clock.slot`.
        """
        count, current = self.clock.generations, self._table.current or 0
        keys, generation = max(
            (int(self._ring.counts[KEYS][live % count]), live)
            for live in range(current - count + 1, current + 1)
        )
        alone = window_room(self.cells, self.hashes, self._error_rate, ())
        return generation, keys, alone

    def fits(self, generations: Generations) -> bool:
        """Whether `error_rate` still holds if each of `generations` (n,), int64, gets one more key.

        It holds while the errors of all generations sum to `error_rate` at most, by theory, from the keys that were
        counted. By count, keys always fit.
        """
        if self.clock.by_count or not len(generations):
            return True
        count, current = self.clock.generations, self._table.current
        newest = int(generations.max()) if current is None else max(current, int(generations.max()))
        live = np.arange(newest - count + 1, newest + 1)
        loads = np.bincount(generations[generations >= live[0]] - live[0], minlength=count)
        held = live <= (newest if current is None else current)
        loads[held] += self._ring.counts[KEYS][live[held] % count]
        errors = (bloom_error(self.cells, self.hashes, keys) for keys in loads.tolist())
        return math.fsum(errors) <= self._error_rate

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
        present: Mask = self._ring.find(digests) != 0
        return present

    def generations_many(self, digests: Digests) -> Cells:
        """The live generations that hold each of `digests` (n, 2), shape (n,), as bits: generation g is bit g % G."""
        return self._ring.find(digests)

    def judge(
        self, digests: Digests, times: Times | None = None, pending: PendingRows = NO_PENDING
    ) -> WindowVerdicts:
        """What `add_many` would do with `digests` (n, 2) if all of `pending` were in the filter. Nothing is added.

        To add the keys later, `rotate` to the watermark, then give the fresh ones and their generations to `put_many`,
        which skips those that are late. If keys are renewed, give it all of them. Chosen digests take no more work than
        others: the places of the rows are drawn for each call.
        """
        digests = checked(digests)
        return judge(
            self.clock,
            self.watermark,
            self._ring.find(digests).astype(np.uint64),
            digests,
            times,
            late_passes=self.late == "pass",
            refresh=self.refresh,
            pending=pending,
        )

    def folded(self, times: Times | int) -> tuple[Generations, int | None]:
        """The generations (n,) of keys with these `times` if every key is added, and the watermark after them.

        By count, `times` is the number of keys. A late key gets a generation that `put_many` skips.
        """
        return folded(self.clock, self.watermark, times)

    def rotate(self, watermark: int | None) -> Iterator[None]:
        """Advance the watermark at once, whatever `max_jump` is; then clear what leaves, one piece at each step.

        Between the steps others may work. If the iterator is dropped, the next call of any other method clears the
        rest. None changes nothing if there is no watermark. Raises ValueError if the watermark would go back.
        """
        return self._table.rotate(watermark)

    def put_many(self, digests: Digests, generations: Generations) -> None:
        """Set the bits of `digests` (n, 2) in their `generations` (n,), int64, whether they are present or not.

        The state therefore depends on the watermark and on all that was put, but not on the batches in which it was
        put. Generations that are no longer live are skipped. Raises ValueError, and does nothing, if a generation is
        above the current one.
        """
        digests = checked(digests)
        if not isinstance(generations, np.ndarray) or generations.dtype != np.int64:
            raise TypeError(f"generations are int64, shape (n,), not {type(generations).__name__}")
        if generations.shape != (len(digests),):
            raise TypeError(f"{len(digests)} digests, but generations of shape {generations.shape}")
        if len(digests):
            self._table.put(digests, generations)

    def header(self) -> dict[str, Any]:
        """Kind, parameters, sizes, the watermark, and the number of keys of each generation, beginning with bit 0."""
        return self._header(
            **self._table.rules.header(),
            cells=self.cells,
            hashes=self.hashes,
            probe=PROBES[self._ring.sizes.double],
            watermark=self.watermark,
            current=self._table.current,
            generation_keys=self._ring.counts[KEYS].tolist(),
        )

    def buffers(self) -> list[memoryview]:
        """The cells, little-endian. Each has the fewest of 1, 2, 4 or 8 bytes that give every generation a bit."""
        self._ring.settle()
        return [self._ring.words.data.cast("B")]

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash = MURMUR3
    ) -> Self:
        """The filter that was saved as these parts, over these very buffers.

        Raises ValueError if the parts contradict one another.
        """
        restored = cls._of_header(header, hash_)
        rules = stated_rules(header, restored.capacity)
        generations = rules.clock.generations
        cells, hashes = sizes_from_header(
            header,
            partial(window_size, generations=generations),
            cells=TABLE_BITS_MAX // (8 * cell_bytes(generations)),
            hashes=HASHES_MAX,
        )
        (buffer,) = buffers
        double = stated_probe(header)
        restored._hold(rules, Ring(cells, hashes, generations, double=double, buffer=buffer))
        restored._table.restore(header)
        return restored

    @override
    def _add_one(self, a: int, b: int) -> bool:
        return self._table.add_one(a, b, 0)

    @override
    def _contains_one(self, a: int, b: int) -> bool:
        return self._table.contains_one(a, b)
