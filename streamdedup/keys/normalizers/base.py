"""Normalization: the change of a key's text before it is hashed, so that two ways to write it are one key.

Python's `str` methods define the result. Kernels that agree with them read keys in ASCII, which most are.
Of all other keys, Python reads each different one once a batch.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple, Protocol, runtime_checkable
from zlib import crc32

import numpy as np

from streamdedup.errors import MalformedError
from streamdedup.events import Column, Integers
from streamdedup.keys.formats.schema_registry import PREFIX_BYTES, looks_registered
from streamdedup.keys.steps import Steps

NOT_UTF8 = "the key is not UTF-8"
NO_TEXT = (
    "the key holds a zero byte, so it is not text: take its bytes as they are (key.normalize: none)"
)
ZERO = b"\0"
# The size of an integer as Java writes it. A small one begins with a zero byte, too, and the rest of it may
# identify a person.
INTEGER_BYTES = 8
LONG_BYTES = 1 << 16  # a longer key is normalized piece by piece
# The first byte of a list's entry for a domain: that domain alone, or the domain with all of its subdomains.
EXACT, BELOW = b"@", b"."


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

    def steps(self, keys: Column) -> Steps[tuple[Column, dict[int, str]]]:
        """Return what `of_column` returns, in steps: one for each different key that no kernel can read, or more."""


class DomainEntry(NamedTuple):
    """An entry of a list that stands for all keys of a domain: as it is written once normalized, and what a list holds.

    Usually it has one of `keys`; it has two if the domain is an alias of another that has other subdomains.
    """

    text: bytes
    keys: list[bytes]


@runtime_checkable
class DomainNormalizer(Protocol):
    """A `Normalizer` of keys that have a domain, which a list may hold in their place."""

    def of_domain_entry(self, entry: bytes) -> DomainEntry:
        """Return what a list holds for `@example.com`, that domain alone, or `.example.com`, also those below it.

        `domains.candidates` makes the same keys of a key. Raises MalformedError if the entry is not a domain.
        """


def text_of(key: bytes) -> str:
    """Return the text of a key. Raises MalformedError if it is not UTF-8, or has a zero byte."""
    if ZERO in key:
        raise MalformedError(no_text(key))
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise MalformedError(not_utf8(key)) from None


def no_text(key: bytes | memoryview) -> str:
    """Return the reason why a key with a zero byte is malformed."""
    return _registered(key) or NO_TEXT


def not_utf8(key: bytes | memoryview) -> str:
    """Return the reason why a key without a zero byte that is not UTF-8 is malformed."""
    return _registered(key) or NOT_UTF8


def with_rest(
    found: Column,
    keys: Column,
    of_key: Callable[[bytes], bytes],
    of_long_key: Callable[[memoryview], Steps[bytes]],
) -> Steps[tuple[Column, dict[int, str]]]:
    """Return `found`, completed by the keys that a kernel left null, and why a row has none, in ascending order.

    `of_key` reads each different key once, a step each. A key of more than LONG_BYTES is not copied, and `of_long_key`
    must not hold the GIL for long.
    """
    asked = unknown(found, keys)
    if not len(asked):
        return found, {}
    answers: list[bytes | None] = []
    reasons: dict[int, str] = {}
    known: dict[bytes, bytes | MalformedError] = {}
    for row, cell in zip(asked.tolist(), _cells(keys.take(asked)), strict=True):
        if isinstance(cell, memoryview):
            answer = yield from _outcome(of_long_key(cell))
        elif cell in known:
            answer = known[cell]
        else:
            answer = known[cell] = _answer(of_key, cell)
            yield
        if isinstance(answer, MalformedError):
            reasons[row] = str(answer)
        answers.append(None if isinstance(answer, MalformedError) else answer)
    return found.replaced(asked, Column.of(answers)), reasons


def _answer(of_key: Callable[[bytes], bytes], key: bytes) -> bytes | MalformedError:
    try:
        return of_key(key)
    except MalformedError as reason:
        return reason.with_traceback(None)


def _outcome(steps: Steps[bytes]) -> Steps[bytes | MalformedError]:
    try:
        return (yield from steps)
    except MalformedError as reason:
        return reason.with_traceback(None)


def _cells(keys: Column) -> Iterator[bytes | memoryview]:
    """Yield each key, and a view of one that is long."""
    whole = memoryview(keys.buffer)
    for start, size in zip(keys.starts.tolist(), keys.sizes.tolist(), strict=True):
        cell = whole[start : start + size]
        yield cell if size > LONG_BYTES else bytes(cell)


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


def _registered(key: bytes | memoryview) -> str | None:
    """Return what a key that is not text looks like, if it looks like Schema Registry data."""
    looks = None if len(key) == INTEGER_BYTES else looks_registered(bytes(key[:PREFIX_BYTES]))
    if looks is None:
        return None
    return f"the key {looks}: take its bytes as they are (key.normalize: none), or have a converter write plain text"
