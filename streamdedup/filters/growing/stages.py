"""The stages of a growing filter, before they are made: each for twice the keys of the one before, at half its error.

The first stage has half of the whole error rate. The sum therefore stays below the whole, however many stages follow
(Almeida, Baquero, Preguiça, Hutchison 2007). Sizes and errors come from `footprint`; nothing is allocated here.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from streamdedup.errors import ConfigError
from streamdedup.filters.digest_filter import CAPACITY_MAX
from streamdedup.filters.kinds import GROWABLE, GROWTH, KINDS
from streamdedup.filters.sizing import any_of, beside
from streamdedup.units import parse_bytes

STAGES_MAX = CAPACITY_MAX.bit_length()  # one key, doubled this often, exceeds CAPACITY_MAX
BUFFERS_MAX = 8  # of one stage


@dataclass(frozen=True, slots=True)
class Stage:
    """A filter that could be made: its parameters, its bytes as in `Footprint`, and its error with n keys in it."""

    capacity: int
    error_rate: float
    size_bytes: int
    spare_bytes: int
    error: Callable[[int], float]


def stages(
    kind: str, capacity: int, error_rate: float, options: Mapping[str, Any]
) -> Iterator[Stage]:
    """Yield the stages up to the last one that the kind can make: a few dozen."""
    for number in count():
        keys, rate = stated_for(number, capacity, error_rate)
        if keys > CAPACITY_MAX or not rate:  # the rate is below the smallest float
            return
        try:
            made = KINDS[kind].footprint(keys, rate, **options)
        except ConfigError:
            return
        yield Stage(keys, rate, made.size_bytes, made.spare_bytes, made.error)


def within(
    max_size: int | str | None,
    kind: str,
    capacity: int,
    error_rate: float,
    options: Mapping[str, Any],
) -> tuple[Stage, ...]:
    """The stages that together take no more than `max_size`, whatever keys come; the first one can be made.

    Raises ConfigError if `max_size` is not a size, or is less than the first stage takes.
    """
    fitting: list[Stage] = []
    left, counts_spare = 0, max_size is not None
    for stage in stages(kind, capacity, error_rate, options):
        most = stage.size_bytes + counts_spare * stage.spare_bytes
        if not fitting:
            left = _bound(max_size, most, capacity)
        left -= most
        if left < 0:
            break
        fitting.append(stage)
    return tuple(fitting)


def _bound(max_size: int | str | None, first_bytes: int, capacity: int) -> int:
    if max_size is None:
        return first_bytes * GROWTH
    try:
        size_bytes_max = parse_bytes(max_size)
    except ValueError as error:
        raise ConfigError(f"filter.max_size {max_size!r} {error}") from None
    if size_bytes_max < first_bytes:
        raise ConfigError(
            f"filter.max_size {max_size} is {size_bytes_max:,} bytes, and the first stage, for filter.capacity"
            f" {capacity}, takes {first_bytes:,}; raise the one or lower the other"
        )
    return size_bytes_max


def adding_up(
    size_bytes: int,
    least: int,
    kind: str,
    capacity: int,
    error_rate: float,
    options: Mapping[str, Any],
) -> tuple[Stage, ...]:
    """The stages, `least` or more, whose sizes add up to `size_bytes`, here or on another platform.

    Another platform's logarithm may round differently. Raises ValueError if there are no such stages.
    """
    found: list[Stage] = []
    low = high = 0
    larger, smaller = beside(error_rate)
    for stage, fewest, most in zip(
        *(stages(kind, capacity, rate, options) for rate in (error_rate, larger, smaller)),
        strict=False,
    ):
        found.append(stage)
        low, high = low + fewest.size_bytes, high + most.size_bytes
        if len(found) >= least and low <= size_bytes <= high:
            return tuple(found)
    raise ValueError(f"{size_bytes} bytes is not the size of any chain of {least} or more stages")


def expected_error(plan: Sequence[Stage], keys: int) -> float:
    """1 - prod(1 - e_i) over stages that are filled in order. The last one takes all keys beyond the capacity."""
    errors, left = [], keys
    for stage in plan:
        here = left if stage is plan[-1] else min(left, stage.capacity)
        errors.append(stage.error(here) if here else 0.0)
        left -= here
    return any_of(errors)


def stated_for(number: int, capacity: int, error_rate: float) -> tuple[int, float]:
    """The capacity and the error rate of the stage of this number, counted from 0."""
    return capacity << number, math.ldexp(error_rate, -number - 1)


def stated_stages(
    header: Mapping[str, Any], buffers: int
) -> tuple[list[Mapping[str, Any]], list[int]]:
    """The headers of the stages, and how many buffers each has, checked before anything is made from them.

    Raises ValueError if they are wrong.
    """
    headers, counts = header.get("stages"), header.get("buffers")
    if not isinstance(headers, list) or not all(isinstance(one, dict) for one in headers):
        raise ValueError("stages is not a list of headers")
    if not isinstance(counts, list) or not all(
        type(one) is int and 1 <= one <= BUFFERS_MAX for one in counts
    ):
        raise ValueError(f"buffers is not a list of numbers from 1 to {BUFFERS_MAX}")
    if not len(headers) == len(counts) or not 1 <= len(headers) <= STAGES_MAX:
        raise ValueError(f"{len(headers)} stages, but {len(counts)} numbers of buffers")
    if sum(counts) != buffers:
        raise ValueError(f"{buffers} buffers, but the header describes {sum(counts)}")
    if headers[0].get("kind") not in GROWABLE:
        raise ValueError(f"kind {headers[0].get('kind')!r} cannot be that of a stage")
    return headers, counts


def follows(
    place: int,
    header: Mapping[str, Any],
    kind: str,
    capacity: int,
    error_rate: float,
    options: Mapping[str, Any],
) -> None:
    """Raise ValueError unless the header of the stage at `place` states what follows from the chain's header."""
    keys, rate = stated_for(place, capacity, error_rate)
    due = {"kind": kind, "capacity": keys, "error_rate": rate, "multiset": None, **options}
    for name, value in due.items():
        if header.get(name) != value:
            raise ValueError(f"stage {place}: {name} {header.get(name)!r}, not {value!r}")
