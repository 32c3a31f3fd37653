"""Sliding window: a ring of G Bloom filters, each for the keys of one generation, the oldest of which is forgotten.

Time is that of the keys, or their number: with equal input equal state, whenever it comes. `ring` has the cells,
`window_table` those in time, `clock` the rules of time, `judging` the verdicts before anything is added.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Key, Mask, Times
from streamdedup.filters.keyed import CAPACITY_MAX, Keyed, stated_sizes
from streamdedup.filters.probing import PROBES, is_double, stated_probe
from streamdedup.filters.sizing import (
    TABLE_BITS_MAX,
    bloom_error,
    window_error,
    window_room,
    window_size,
)
from streamdedup.filters.window.clock import Clock, Generations, checked_time, folded, given_times
from streamdedup.filters.window.judging import NOTHING, Judged, Pending, judge
from streamdedup.filters.window.ring import KEYS, Cells, Ring, cell_bytes
from streamdedup.filters.window.rules import Rules, rules_for, stated_rules
from streamdedup.filters.window.table import Table
from streamdedup.keys.hashing import MURMUR3, Digests, Hash, checked

ERROR_RATE_MIN = 1e-17  # with 64 generations, 63 hashes
HASHES_MAX = 64


class Window(Keyed):
    """Remembers the keys of the last `retention` ms (or text, as "7d"), or at least the last `capacity` keys added.

    - `error_rate` holds while no `retention` brings more than `capacity` keys.
    - A key belongs to one of `generations`, that of its time; each is a slot of retention / (generations - 1) wide.
      It is found while watermark - time <= retention, and forgotten once that is a slot more; the time of the key
      that is looked for moves the watermark, too.
    - The watermark is the greatest time of the keys that were added. With `max_jump`, in ms, one key moves it by no
      more, and counts as of the time to which it does: a wrong time far ahead does not empty the window.
    - A key that is not there and older than all generations is not added; `late` "pass" reports it as new, "drop" as
      not new.
    - The first occurrence counts, unless `refresh`: then each one renews its key.
    """

    kind = "window"
    only_sets_bits = True  # while `layout` is the same

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
                f" of at most {TABLE_BITS_MAX // 8}; lower the one or raise the other"
            )
        self._hold(rules, Ring(size, hashes, generations, double=is_double(probe)))

    def _hold(self, rules: Rules, ring: Ring) -> None:
        self._ring, self._table = ring, Table(rules, ring)

    @property
    def clock(self) -> Clock:
        """The width and number of generations, and how far one key moves the watermark."""
        return self._table.clock

    @property
    def retention(self) -> int | None:
        """For how long a key is surely remembered, in ms; None by count."""
        return self._table.rules.retention

    @property
    def late(self) -> str:
        """What becomes of a key that is older than the window: "pass" or "drop"."""
        return self._table.rules.late

    @property
    def refresh(self) -> bool:
        """Whether a key that is found is renewed."""
        return self._table.rules.refresh

    def set_policy(self, late: str, refresh: bool) -> None:
        """Another `late` and `refresh`, from now on."""
        self._table.obey(self._table.rules.with_policy(late, refresh))

    @property
    def watermark(self) -> int | None:
        """The greatest time of the keys that were added, within `max_jump`; by count, their number less one.

        None before the first.
        """
        return self._table.watermark

    @property
    def layout(self) -> int:
        """How many rotations have cleared bits: while it is the same, bits only went from 0 to 1."""
        return self._ring.layout

    @property
    def cells(self) -> int:
        """The positions of the table; each has a bit for every generation."""
        return self._ring.size

    @property
    def hashes(self) -> int:
        """The cells of a key."""
        return self._ring.hashes

    @property
    def error_rate_now(self) -> float:
        """1 - prod(1 - fill^k) over the live generations: what the bits that are set now really give."""
        return self._ring.error_rate_now

    @property
    def fill_ratio(self) -> float:
        """The share of bits, of all generations, that are set; about one half at capacity."""
        return self._ring.fill_ratio

    @property
    def size_bytes(self) -> int:
        """The memory of the cells, in bytes."""
        return int(self._ring.words.nbytes)

    def __len__(self) -> int:
        """The keys in the live generations; one that was renewed counts in each that it is in."""
        return int(self._ring.counts[KEYS].sum())

    def expected_error(self, keys: int) -> float:
        """By count, after `keys` keys; by time, where each `retention` brings `keys` keys, evenly spread.

        By time it is that of G full generations, as just before a rotation: `len` is then `keys` * G / (G - 1).
        """
        slot, generations = self.clock.slot, self.clock.generations
        if not self.clock.by_count:
            return window_error(self.cells, self.hashes, [keys / (generations - 1)] * generations)
        full = min(generations, keys // slot)
        loads = [slot] * full + [keys % slot] * (full < generations)
        return window_error(self.cells, self.hashes, loads)

    def room(self) -> int:
        """How many keys the current generation can take until the errors of all sum to `error_rate`; below 0 beyond.

        By theory, from the keys that were counted. By count it is never full.
        """
        if self.clock.by_count:
            return CAPACITY_MAX
        loads = self._ring.counts[KEYS].tolist()
        here = loads.pop((self._table.current or 0) % self.clock.generations)
        return window_room(self.cells, self.hashes, self._error_rate, loads) - int(here)

    def fullest(self) -> tuple[int, int, int]:
        """The live generation of the most keys: its number, its keys, and how many fit where the others are empty.

        So many keep `error_rate`, by theory. The number times `clock.slot` is where the generation begins.
        """
        count, current = self.clock.generations, self._table.current or 0
        keys, generation = max(
            (int(self._ring.counts[KEYS][live % count]), live)
            for live in range(current - count + 1, current + 1)
        )
        alone = window_room(self.cells, self.hashes, self._error_rate, ())
        return generation, keys, alone

    def fits(self, generations: Generations) -> bool:
        """Whether the errors of all generations still sum to `error_rate` if these get a key more each; (n,), int64.

        By theory, from the keys that were counted. By count they always fit.
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

    def add(self, key: Key, time: int | None = None) -> bool:
        """Add one key at its `time` in ms since 1970; by count there is none.

        True where it was not there, or is late and passes. ConfigError where `time` does not fit, as beyond year 9999.
        """
        a, b = self._hash.signed(key)
        return self._table.add_one(a, b, checked_time(self._table.clock, time))

    def add_many(self, digests: Digests, times: Times | None = None) -> Mask:
        """Add all of `digests` (n, 2), in order, at their `times` (n,), int64, ms since 1970; by count there are none.

        True, shape (n,), where it was not there, or is late and passes. ConfigError where `times` do not fit, as beyond
        the year 9999: they are no ms then. Nothing was added.
        """
        digests = checked(digests)
        return self._table.add(digests, given_times(self.clock, times, len(digests)))

    def contains_many(self, digests: Digests) -> Mask:
        """True, shape (n,), where a digest of `digests` (n, 2) is present."""
        present: Mask = self._ring.find(digests) != 0
        return present

    def generations_many(self, digests: Digests) -> Cells:
        """The live generations that have each of `digests` (n, 2), shape (n,): generation g is bit g % G."""
        return self._ring.find(digests)

    def judge(
        self, digests: Digests, times: Times | None = None, pending: Pending = NOTHING
    ) -> Judged:
        """What `add_many` would do with `digests` (n, 2) if all of `pending` was in; nothing is added.

        To add them, `rotate` to the watermark, then `put_many` those that are fresh (late ones are skipped), and where
        keys are renewed all, in their generations.
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
        """The generations (n,) of keys of these `times` if each of them is added, and the watermark then.

        By count, their number takes the place of `times`. Late ones have a generation that `put_many` skips.
        """
        return folded(self.clock, self.watermark, times)

    def rotate(self, watermark: int | None) -> Iterator[None]:
        """Advance the watermark at once, whatever `max_jump`; then clear what falls out, a piece at each step.

        Between the steps others may work. If the iterator is dropped, the next call of any other method does the rest.
        None changes nothing where there is no watermark. ValueError where it would go back.
        """
        return self._table.rotate(watermark)

    def put_many(self, digests: Digests, generations: Generations) -> None:
        """Set the bits of `digests` (n, 2) in their `generations` (n,), int64, whether they are present or not.

        So the state follows from the watermark and all that was put, in whatever batches. Generations that are not live
        any more are skipped. ValueError, and nothing is done, where one is above the current.
        """
        digests = checked(digests)
        if not isinstance(generations, np.ndarray) or generations.dtype != np.int64:
            raise TypeError(f"generations are int64, shape (n,), not {type(generations).__name__}")
        if generations.shape != (len(digests),):
            raise TypeError(f"{len(digests)} digests, but generations of shape {generations.shape}")
        if len(digests):
            self._table.put(digests, generations)

    def header(self) -> dict[str, Any]:
        """Kind, parameters, sizes, the watermark, and the keys of each generation, that of bit 0 first."""
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
        """The cells, little-endian, each of the fewest bytes of 1, 2, 4, 8 that have a bit for every generation."""
        self._ring.settle()
        return [self._ring.words.data.cast("B")]

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash = MURMUR3
    ) -> Self:
        """The filter that gave these parts, over these very buffers; ValueError where they contradict one another."""
        restored = cls._of_header(header, hash_)
        rules = stated_rules(header, restored.capacity)
        generations = rules.clock.generations
        cells, hashes = stated_sizes(
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

    def _add_one(self, a: int, b: int) -> bool:
        return self._table.add_one(a, b, 0)

    def _contains_one(self, a: int, b: int) -> bool:
        return self._table.contains_one(a, b)
