"""The rounds: contenders take turns, so that a busy minute of the machine falls on all of them.

A large table is filled once, in tenths; in each some batches come in each of the ways and some keys singly, the rest
as is quickest: so an addition's time is the mean from empty to full. Then it is asked, in rounds, of which the median
counts. A small table is filled anew in every round, wholly in each of the ways.
"""

import gc
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bench import contenders
from bench.contenders import CHUNK, Contender, Ours, OursBuilt
from bench.harness import Clock, turns
from bench.samples import random_digests
from streamdedup import filters
from streamdedup.keys.hashing import Digests

TENTHS = 10
ROUNDS = 5
SINGLES = 2000
WHOLE_MAX = 1_000_000  # keys; below, a round fills the table
ABSENT = 10**11  # numbers from here on are never added
SMALL_BATCH_S = 3.0  # a small table that takes longer to fill is filled in one round only
WARM_KEYS = 1 << 20
ERROR_KEYS = 1_000_000
RATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
PROBES = 8 * CHUNK
TABLE_BYTES_MAX = 1 << 30


@dataclass
class Record:
    """What was measured of one contender at one size: seconds and keys, by what was done."""

    name: str
    capacity: int
    clock: Clock
    ways: Sequence[str]
    bits_a_key: float = 0.0
    keys: int = 0
    asked: int = 0
    false: int = 0
    times: dict[tuple[str, str], list[tuple[float, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def note(self, way: str, what: str, seconds: float, keys: int) -> None:
        """One batch."""
        self.times[way, what].append((seconds, keys))

    def ns(self, way: str, what: str) -> float | None:
        """Nanoseconds a key: of the additions to a large table the mean, else the median."""
        found = self.times.get((way, what))
        if not found:
            return None
        if what == "add" and self.capacity > WHOLE_MAX:
            return 1e9 * sum(s for s, _ in found) / sum(keys for _, keys in found)
        return 1e9 * statistics.median(seconds / keys for seconds, keys in found)

    def summary(self) -> dict[str, Any]:
        """As it stands in the results."""
        ways = (*self.ways, "single")
        ns = {way: {w: self.ns(way, w) for w in ("add", "hit", "miss")} for way in ways}
        return {
            "bits_a_key": round(self.bits_a_key, 2),
            "filled": round(self.keys / self.capacity, 4),
            "false": self.false / self.asked if self.asked else None,
            "ns": {
                way: {w: v and round(v, 1) for w, v in told.items()} for way, told in ns.items()
            },
        }


def at_size(
    names: Sequence[str], capacity: int, seconds_max: dict[str, float], clock: Clock
) -> dict[str, Any]:
    """All of `names` at one size, taking turns; `seconds_max` is how long each may take to be filled up."""
    records = {
        name: Record(name, capacity, clock, contenders.build(name, 1000).ways) for name in names
    }
    if capacity <= WHOLE_MAX:
        for number in range(ROUNDS):
            for name in turns(names, number):
                _whole_round(records[name])
    else:
        _large(records, seconds_max)
    return {name: record.summary() for name, record in records.items()}


# --- a small table ---


def _whole_round(record: Record) -> None:
    if sum(s for times in record.times.values() for s, _ in times) > SMALL_BATCH_S:
        return
    for way in record.ways:
        contender, added = contenders.build(record.name, record.capacity), record.capacity
        if isinstance(contender, OursBuilt):
            record.note(way, "add", contender.build(record.clock, added), added)
        else:
            keys = contender.given(way, 0, added)
            contender.add(way, keys[:0])
            seconds, _ = record.clock.once(partial(contender.add, way, keys))
            record.note(way, "add", seconds, added)
        _ask(record, contender, way, (0, ABSENT), added)
        record.keys, record.bits_a_key = added, contender.bits_a_key(added)
    _ask_singly(record, contender, 0)
    fresh = contenders.build(record.name, record.capacity)
    _add_singly(record, fresh, 0)


# --- a large table ---


def _large(records: dict[str, Record], seconds_max: dict[str, float]) -> None:
    held = {name: contenders.build(name, record.capacity) for name, record in records.items()}
    filling = [
        _tenths(record, held[name], seconds_max.get(name, float("inf")))
        for name, record in records.items()
    ]
    for tenth in range(TENTHS):
        for one in turns(filling, tenth):
            next(one)
    for number in range(ROUNDS):
        for name in turns([*records], number):
            _ask_round(records[name], held[name], number)
    for name, record in records.items():
        record.bits_a_key = held[name].bits_a_key(record.keys)
    held.clear()
    gc.collect()


def real_keys(contender: Contender) -> int:
    """How many numbers, from 0 on, are added as real keys to a large table."""
    return TENTHS * (len(contender.ways) * contender.batch + SINGLES)


def _tenths(record: Record, contender: Contender, seconds_max: float) -> Iterator[None]:
    """Fill by one tenth at a time."""
    if isinstance(contender, OursBuilt):
        seconds = contender.build(record.clock, real_keys(contender))
        record.note("digests", "add", seconds, record.capacity)
        record.keys = record.capacity
        yield from [None] * TENTHS
        return
    real = real_keys(contender)
    most = min(record.capacity, getattr(contender, "keys_max", record.capacity))
    for tenth in range(TENTHS):
        first = real // TENTHS * tenth
        for way in contender.ways:
            keys = contender.given(way, first, contender.batch)
            seconds, _ = record.clock.once(partial(contender.add, way, keys))
            record.note(way, "add", seconds, contender.batch)
            first += contender.batch
        _add_singly(record, contender, first)
        record.keys += real // TENTHS
        _bulk(record, contender, most * (tenth + 1) // TENTHS, seconds_max / TENTHS)
        yield


def _bulk(record: Record, contender: Contender, until: int, seconds_max: float) -> None:
    """Fill up until there are `until` keys, or the time is over."""
    spent, added = 0.0, 0
    while record.keys < until and spent < seconds_max:
        count = min(CHUNK, until - record.keys)
        way, keys = contender.bulk(real_keys(contender) + record.keys, count)
        if seconds_max < float("inf") and added:
            count = max(1, min(count, int((seconds_max - spent) * added / spent)))
        elif seconds_max < float("inf"):
            count = min(count, contender.batch)
        seconds, _ = record.clock.once(partial(contender.add, way, keys[:count]))
        record.note(way, "add", seconds, count)
        spent, added, record.keys = spent + seconds, added + count, record.keys + count


def _ask_round(record: Record, contender: Contender, number: int) -> None:
    batch = contender.batch
    first = number * batch % (real_keys(contender) - batch)
    if isinstance(contender, Ours):
        way, keys = "digests", random_digests(ABSENT + number, WARM_KEYS)
    else:
        way, keys = contender.bulk(ABSENT // 2, batch)
    contender.contains(way, keys)  # others had the cache
    for way in contender.ways:
        _ask(record, contender, way, (first, ABSENT + number * batch), batch)
    _ask_singly(record, contender, number)


# --- both ---


def _ask(
    record: Record,
    contender: Contender,
    way: str,
    firsts: tuple[int, int],
    count: int,
) -> None:
    """Ask for keys that were added, and for keys that were not, from the numbers `firsts` on."""
    for what, first in zip(("hit", "miss"), firsts, strict=True):
        keys = contender.given(way, first, count)
        seconds, answers = record.clock.quiet(partial(contender.contains, way, keys))
        record.note(way, what, seconds, count)
        found = int(np.count_nonzero(answers))
        if what == "miss":
            record.asked, record.false = record.asked + count, record.false + found
        elif found != count:
            raise SystemExit(f"{record.name} found {found} of {count} keys that were added")


def _add_singly(record: Record, contender: Contender, first: int) -> None:
    if isinstance(contender, OursBuilt):
        return
    add, _ = contender.singles()
    keys = contender.given("list", first, SINGLES)
    seconds, _ = record.clock.once(partial(_each, add, keys))
    record.note("single", "add", seconds, SINGLES)


def _ask_singly(record: Record, contender: Contender, number: int) -> None:
    _, contains = contender.singles()
    for what, first in (("hit", 0), ("miss", ABSENT)):
        keys = contender.given("list", first + number * SINGLES, SINGLES)
        seconds, _ = record.clock.quiet(partial(_each, contains, keys))
        record.note("single", what, seconds, SINGLES)


def _each(call: Any, keys: list[Any]) -> None:  # noqa: ANN401 - any function of one key
    for key in keys:
        call(key)


# --- errors ---


def errors() -> dict[str, list[dict[str, float]]]:
    """For each kind and rate that was asked for: bits a key, the error in theory, and the one that was seen."""
    absent = [random_digests(ABSENT + i, CHUNK) for i in range(PROBES // CHUNK)]
    return {
        name: [
            _point(name, rate, absent)
            for rate in RATES
            if contenders.size_bytes(name, ERROR_KEYS, rate) <= TABLE_BYTES_MAX
        ]
        for name in contenders.KINDS
    }


def _point(name: str, rate: float, absent: Sequence[Digests]) -> dict[str, float]:
    made: Ours
    if name in filters.STATIC:
        made = OursBuilt(name, ERROR_KEYS, rate)
        made.build(Clock(), 0)
    else:
        made = Ours(name, ERROR_KEYS, rate)
        made.add("digests", random_digests(1, ERROR_KEYS))
    found = sum(int(np.count_nonzero(made.contains("digests", digests))) for digests in absent)
    return {
        "asked": rate,
        "bits_a_key": round(made.bits_a_key(ERROR_KEYS), 2),
        "expected": made.filter.expected_error(ERROR_KEYS),
        "measured": found / PROBES,
    }
