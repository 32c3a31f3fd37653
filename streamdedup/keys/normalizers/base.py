"""Normalization: the change of a key's text before it is hashed, so that two ways to write it are one key.

Python's `str` methods define the result. Kernels that agree with them read keys in ASCII, which most are.
Of all other keys, Python reads each different one once a batch.
"""

from functools import cache
from typing import Protocol
from zlib import crc32

import numpy as np

from streamdedup.errors import MalformedError
from streamdedup.events import Column, Integers
from streamdedup.keys.formats.schema_registry import looks_registered

NOT_UTF8 = "the key is not UTF-8"
NO_TEXT = (
    "the key holds a zero byte, so it is not text: take its bytes as they are (key.normalize: none)"
)
ZERO = b"\0"
# The size of an integer as Java writes it. A small one begins with a zero byte, too, and the rest of it may
# identify a person.
LONG_BYTES = 8


class Normalizer(Protocol):
    """A way to change the keys of events."""

    @property
    def id(self) -> str:
        """The normalizer's identity, kept in each snapshot and list. It differs if any key could become another."""

    @property
    def rules_id(self) -> str:
        """The part of `id` that is ours: name, version and rules, without the tables of Python and its libraries.

        Workers of one group must agree in it.
        """

    @property
    def takes_long(self) -> bool:
        """Whether a key that no kernel can read takes so long that many of them would stall the event loop."""

    def of_key(self, key: bytes) -> bytes:
        """Return the normalized key. Raises MalformedError if there is none."""

    def of_column(self, keys: Column) -> tuple[Column, dict[int, str]]:
        """Return the normalized key of each row, and why a row has none, in ascending order.

        Nulls stay nulls.
        """


def text_of(key: bytes) -> str:
    """Return the text of a key. Raises MalformedError if it is not UTF-8, or has a zero byte."""
    if ZERO in key:
        raise MalformedError(_registered(key) or NO_TEXT)
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise MalformedError(_registered(key) or NOT_UTF8) from None


def unknown(found: Column, keys: Column) -> Integers:
    """Return the rows of `keys`, ascending, that a kernel left null in `found`.

    Raises ValueError if one of them is not in its buffer.
    """
    asked = np.flatnonzero((found.sizes < 0) & (keys.sizes >= 0))
    outside = (keys.starts < 0) | (keys.starts > len(keys.buffer) - keys.sizes)
    if outside[asked].any():
        raise ValueError(f"row {asked[outside[asked]][0]} is not within its buffer")
    return asked


@cache
def characters_check(*, lowers: bool) -> int:
    """Return a CRC-32 of all characters as Python normalizes them.

    Another version of Unicode may have other letters and other white space.
    """
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    return crc32("".join((every.lower() if lowers else every).split()).encode())


def _registered(key: bytes) -> str | None:
    """Return what a key that is not text looks like, if it looks like Schema Registry data."""
    looks = None if len(key) == LONG_BYTES else looks_registered(key)
    if looks is None:
        return None
    return f"the key {looks}: take its bytes as they are (key.normalize: none), or have a converter write plain text"
