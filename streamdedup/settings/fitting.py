"""Checks, before anything starts, that a filter of the stated kind, capacity and error rate can be built at all.

The check takes the capacity of the whole topic. A partition's share is smaller, but only the broker knows how many
partitions there are.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from streamdedup.errors import ConfigError
from streamdedup.filters.kind import largest
from streamdedup.filters.options import FilterOptions
from streamdedup.filters.sizing import CUCKOO_BITS_MAX, CUCKOO_CELLS, TABLE_BITS_MAX, cuckoo_size
from streamdedup.units import size_bytes

if TYPE_CHECKING:  # it imports numpy; the check of the default kind needs neither
    from streamdedup.filters.kind import Footprint

Unfit = tuple[tuple[str, ...], str]


def unfit(options: FilterOptions) -> Iterator[Unfit]:
    """Yield why the filter cannot be built: the leaves of `filter` concerned, the faulty one first, and the remedy."""
    rate = options.first_error_rate
    if not options.remembers:
        return
    if options.kind == "cuckoo" and not options.max_size and _is_small(options.capacity, rate):
        return
    try:
        made = _footprint(options, options.capacity)
    except ConfigError as error:
        yield _refused(options, str(error))
        return
    most = made.size_bytes + made.spare_bytes
    if options.on_full == "grow" and (options.max_size or most) < most:
        least = size_bytes(1, most).format(most)
        yield (
            ("max_size", "capacity", "error_rate", "kind"),
            f"is less than the filters start with, which is {least} for filter.capacity at half of filter.error_rate;"
            " raise it well above that, or lower filter.capacity",
        )


def _is_small(capacity: int, error_rate: float) -> bool:
    """Whether a cuckoo filter takes no more than half of what a table may have, so that it surely can be made."""
    buckets, bits = cuckoo_size(capacity, error_rate)
    return bits <= CUCKOO_BITS_MAX and 2 * buckets * CUCKOO_CELLS * bits <= TABLE_BITS_MAX


def _footprint(options: FilterOptions, capacity: int) -> "Footprint":
    from streamdedup.filters.kinds import KINDS

    own = options.footprint_options
    return KINDS[options.kind].footprint(capacity, options.first_error_rate, **own)


def _refused(options: FilterOptions, reason: str) -> Unfit:
    stage = " (with on_full: grow, the first stage gets half of filter.error_rate)"
    why = f"does not fit filter.kind: {options.kind}: {reason}"
    why += stage if options.on_full == "grow" else ""
    if lower := largest(options.capacity, partial(_footprint, options)):
        return ("capacity", "error_rate", "kind"), f"{why}; {lower}, or raise filter.error_rate"
    return (
        ("error_rate", "capacity", "kind"),
        f"{why}; raise it, or choose another filter.kind",
    )
