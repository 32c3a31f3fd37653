"""Normalization: what is done to a key's text before it is hashed, so that two ways to write it are one key.

Python's `str` says what is meant. Keys in ASCII, the many, go by kernels that agree with it; of the others, each that
differs is asked for once a batch.
"""

from functools import cache
from typing import Protocol
from zlib import crc32

import numpy as np

from streamdedup.errors import MalformedError
from streamdedup.events import Column, Integers
from streamdedup.keys.formats.registry import looks_registered

NOT_UTF8 = "the key is not UTF-8"
NO_TEXT = (
    "the key holds a zero byte, so it is no text: take its bytes as they are (key.normalize: none)"
)
ZERO = b"\0"
LONG_BYTES = 8  # an integer as Java writes it: of a small one the first byte is zero, too, and the rest tells who it is


class Normalizer(Protocol):
    """What becomes of a key."""

    @property
    def id(self) -> str:
        """Another one where any key could become another; it stands in each snapshot and list."""

    @property
    def takes_long(self) -> bool:
        """Whether a key that no kernel knows takes so long that many of them should keep nobody waiting."""

    def of_key(self, key: bytes) -> bytes:
        """One key; raises MalformedError."""

    def of_column(self, keys: Column) -> tuple[Column, dict[int, str]]:
        """The same for each row, nulls left as they are; and why a row has no key, in ascending order."""


def text_of(key: bytes) -> str:
    """The text of a key; MalformedError where it has none."""
    if ZERO in key:
        raise MalformedError(_registered(key) or NO_TEXT)
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise MalformedError(_registered(key) or NOT_UTF8) from None


def unknown(found: Column, keys: Column) -> Integers:
    """The rows of `keys`, ascending, that a kernel left null in `found`; ValueError where one is not in its buffer."""
    asked = np.flatnonzero((found.sizes < 0) & (keys.sizes >= 0))
    outside = (keys.starts < 0) | (keys.starts > len(keys.buffer) - keys.sizes)
    if outside[asked].any():
        raise ValueError(f"row {asked[outside[asked]][0]} is not within its buffer")
    return asked


@cache
def characters_check(*, lowers: bool) -> int:
    """Of what Python makes of all characters: another Unicode may know other letters and other white space."""
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    return crc32("".join((every.lower() if lowers else every).split()).encode())


def _registered(key: bytes) -> str | None:
    """What a key that is no text looks like, if it does."""
    looks = None if len(key) == LONG_BYTES else looks_registered(key)
    if looks is None:
        return None
    return f"the key {looks}: take its bytes as they are (key.normalize: none), or have a converter write plain text"
