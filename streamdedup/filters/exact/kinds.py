"""The kind `exact`, described."""

from collections.abc import Mapping
from functools import partial

from streamdedup.errors import ConfigError
from streamdedup.filters.kind import Footprint, Kind, table_bytes
from streamdedup.filters.sizing import exact_error, exact_size

FINGERPRINTS = (8, 16)  # the sizes of a fingerprint, in bytes
LOAD_MIN, LOAD_MAX, LOAD = 0.5, 0.9, 0.8  # LOAD is the default


def _footprint(
    capacity: int, error_rate: float, fingerprint_bytes: int = FINGERPRINTS[0], load: float = LOAD
) -> Footprint:
    least = exact_error(fingerprint_bytes, capacity)
    if error_rate < least:
        longer = max(FINGERPRINTS)
        reason = f"with fingerprints of {fingerprint_bytes} bytes its error rate is {least:.2g}"
        if fingerprint_bytes < longer:
            reason += f", and {exact_error(longer, capacity):.2g} with {longer}"
        raise ConfigError(reason)
    size_bytes = table_bytes(sum(exact_size(capacity, load)) * fingerprint_bytes * 8)
    return Footprint(size_bytes, 1, partial(exact_error, fingerprint_bytes))


def _planned(capacity: int, error_rate: float) -> Mapping[str, int]:
    """The shorter fingerprint if it keeps the error rate."""
    keeps = exact_error(min(FINGERPRINTS), capacity) <= error_rate
    return {"fingerprint_bytes": min(FINGERPRINTS) if keeps else max(FINGERPRINTS)}


EXACT = Kind(
    "exact",
    "exact.exact:Exact",
    _footprint,
    ("add", "remove"),
    options=("fingerprint_bytes", "load"),
    planned=_planned,
)
