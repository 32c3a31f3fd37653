"""Parameters of a query that only track: `data/tracking_parameters.tsv` has each name with its source."""

from functools import cache
from importlib.resources import files
from zlib import crc32

PREFIX = "*"  # ends what is only the beginning of names


def is_tracking(name: bytes) -> bool:
    """Whether the parameter of this name, unescaped, only tracks."""
    names, beginnings = tracking_names()
    return name in names or name.startswith(beginnings)


@cache
def tracking_names() -> tuple[frozenset[bytes], tuple[bytes, ...]]:
    """Return the names, and the beginnings of names. All are of letters, digits and underscores."""
    lines = [line for line in _table().splitlines() if not line.startswith("#")]
    found = [line.partition("\t")[0].encode() for line in lines]
    star = PREFIX.encode()
    return (
        frozenset(name for name in found if not name.endswith(star)),
        tuple(name.removesuffix(star) for name in found if name.endswith(star)),
    )


@cache
def table_check() -> int:
    """Return the CRC-32 of the table."""
    return crc32(_table().encode())


def _table() -> str:
    return files("streamdedup.data").joinpath("tracking_parameters.tsv").read_text(encoding="utf-8")
