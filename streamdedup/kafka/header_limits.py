"""How many headers an event of the input may have, and how many bytes: decided from sizes, before any header is read.

A record of a few kB on the wire may hold millions of headers. An event above a limit goes on without its headers, so
nothing after this can take long with them. A fold of the output has no such limit: what was emitted stays known.
"""

import numpy as np

from streamdedup.events import EventBatch, Integers
from streamdedup.kafka.options import SourceOptions
from streamdedup.kafka.records.cuts import without_headers

TOO_MANY = "above source.headers_max"
TOO_LARGE = "above source.headers_bytes_max"
REASONS = frozenset((TOO_MANY, TOO_LARGE))
HEADER_BYTES_MIN = 2  # the sizes of an empty name and an empty value


def within_limits(batch: EventBatch, options: SourceOptions) -> tuple[EventBatch, dict[int, str]]:
    """Return `batch` with no headers in the rows that are above a limit, and the reason for each such row."""
    many, large = _above(batch, options)
    reasons = dict.fromkeys(large.tolist(), TOO_LARGE) | dict.fromkeys(many.tolist(), TOO_MANY)
    if not reasons:
        return batch, reasons
    return without_headers(batch, np.array(sorted(reasons), dtype=np.int64)), reasons


def _above(batch: EventBatch, options: SourceOptions) -> tuple[Integers, Integers]:
    """Return the rows with too many headers, and those with too large ones."""
    headers, count_max, bytes_max = batch.headers, options.headers_max, options.headers_bytes_max
    perhaps = np.flatnonzero(headers.sizes > HEADER_BYTES_MIN * count_max)
    if len(perhaps):
        perhaps = perhaps[headers.take(perhaps).counts() > count_max]
    return perhaps, np.flatnonzero(headers.sizes > bytes_max)
