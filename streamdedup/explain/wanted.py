"""The keys that are asked for: their normal forms, and their digests, by which events are searched for them.

Bounded: normal forms beyond `HELD_BYTES` lie in a temporary file without a name. The digests are by a hash of this run
alone, so nobody can make keys that look like the wanted ones.
"""

import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from streamdedup.errors import ConfigError, MalformedError
from streamdedup.events import Column, Integers
from streamdedup.keys.extract import Extractor
from streamdedup.keys.hashing import Digests, Hash

KEYS_MAX = 1_000_000
KEY_BYTES_MAX = 16 << 20  # no record that Kafka takes by default comes near
HELD_BYTES = 8 << 20  # of normal forms, in memory
BLOCK_KEYS = 1 << 16
BLOCK_BYTES = 1 << 22
REASONS_MAX = 1_000  # kept of malformed keys; of the others it is known that they are
_HEAD = struct.Struct("<I")
_BITS_MAX = 24  # of a digest, that one look-up of the table tests: 16 MB

Numbers = npt.NDArray[np.uint32]


class Found(NamedTuple):
    """The `rows` (k,), ascending, of a batch that have a wanted key, and which key each has, (k,)."""

    rows: Integers
    keys: Integers


class Wanted:
    """Keys, by their numbers from 0 in the order in which they were given; `usable` are those that are not malformed.

    A key that is given twice has two numbers. Without an `extractor`, the keys are normal forms.
    """

    def __init__(self, given: Iterable[bytes], extractor: Extractor | None) -> None:
        self._extractor, self._hash = extractor, Hash.draw()
        self._texts: IO[bytes] = tempfile.SpooledTemporaryFile(HELD_BYTES)  # noqa: SIM115 - closed by `close`
        self.malformed: dict[int, str] = {}
        self.count = 0
        digests, usable = list[Digests](), list[Integers]()
        try:
            for column, numbers in self._normalized(given):
                digests.append(self._hash.of_column(column))
                usable.append(numbers)
        except BaseException:
            self.close()
            raise
        self.usable: Integers = np.concatenate([np.zeros(0, np.int64), *usable])
        self._index(np.concatenate([np.empty((0, 2), np.uint64), *digests]))

    def close(self) -> None:
        """Remove the temporary file."""
        self._texts.close()

    def __len__(self) -> int:
        """Return the number of usable keys."""
        return len(self.usable)

    def blocks(self) -> Iterator[tuple[Column, Integers]]:
        """Yield the normal forms of the usable keys, in blocks, with the place of each among them."""
        self._texts.seek(0)
        at, cells, size = 0, list[bytes](), 0
        while head := self._texts.read(_HEAD.size):
            cells.append(self._texts.read(_HEAD.unpack(head)[0]))
            size += len(cells[-1])
            if len(cells) == BLOCK_KEYS or size >= BLOCK_BYTES:
                yield Column.of(cells), np.arange(at, at + len(cells))
                at, cells, size = at + len(cells), [], 0
        if cells:
            yield Column.of(cells), np.arange(at, at + len(cells))

    def find(self, keys: Column, rows: Integers) -> Found:
        """Return which of `rows` of a batch have a wanted key, by its place among the usable ones.

        Of equal keys it is the place of the first that was given (`first_of`). No key of `rows` is null.
        """
        digests = self._hash.of_column(keys.take(rows))
        maybe = self._table[digests[:, 0] >> self._shift].nonzero()[0]
        if not len(maybe):
            return Found(rows[:0], rows[:0])
        digests = digests[maybe]
        at = np.minimum(self._sorted[:, 0].searchsorted(digests[:, 0]), len(self._sorted) - 1)
        same = (self._sorted[at] == digests).all(axis=1)
        return Found(rows[maybe[same]], self._order[at[same]].astype(np.int64))

    def _index(self, digests: Digests) -> None:
        order = np.lexsort((digests[:, 1], digests[:, 0]))
        self._sorted = digests[order]
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = (self._sorted[1:] != self._sorted[:-1]).any(axis=1)
        starts = new.nonzero()[0]
        # lexsort is stable, so the first of equal ones is the one that was given first.
        self.first_of: Numbers = np.empty(len(order), dtype=np.uint32)
        self.first_of[order] = order[starts][new.cumsum() - 1]
        self._sorted, self._order = self._sorted[starts], order[starts].astype(np.uint32)
        bits = min(_BITS_MAX, 10 + len(starts).bit_length())
        self._shift = np.uint64(64 - bits)
        self._table = np.zeros(1 << bits, dtype=np.bool_)
        self._table[self._sorted[:, 0] >> self._shift] = True

    def _normalized(self, given: Iterable[bytes]) -> Iterator[tuple[Column, Integers]]:
        """Yield the normal forms in blocks, with their numbers; write them to the file; note what is malformed."""
        block, size = list[bytes](), 0
        for text in given:
            if self.count + len(block) >= KEYS_MAX:
                raise ConfigError(
                    f"more than {KEYS_MAX:,} keys are asked for at once; split the list into several"
                )
            if len(text) > KEY_BYTES_MAX:
                raise ConfigError(
                    f"key {self.count + len(block) + 1} has more than {KEY_BYTES_MAX:,} bytes; no event has such a key:"
                    " leave it out"
                )
            block.append(text)
            size += len(text)
            if len(block) == BLOCK_KEYS or size >= BLOCK_BYTES:
                yield self._taken(block)
                block, size = [], 0
        if block:
            yield self._taken(block)

    def _taken(self, block: Sequence[bytes]) -> tuple[Column, Integers]:
        column, malformed = Column.of(block), dict[int, str]()
        if self._extractor is not None:
            column, malformed = normal_forms(block, self._extractor)
        for row, reason in malformed.items():
            self.malformed[self.count + row] = (
                reason if len(self.malformed) < REASONS_MAX else "it is malformed"
            )
        rows = (column.sizes >= 0).nonzero()[0]
        taken = column.take(rows)
        for cell in taken:
            self._texts.write(_HEAD.pack(len(cell or b"")) + (cell or b""))
        numbers = rows + self.count
        self.count += len(block)
        return taken, numbers


def normal_forms(given: Sequence[bytes], extractor: Extractor) -> tuple[Column, dict[int, str]]:
    """Return the keys that events with these keys would have, and why a row has none.

    If a key joins several fields, each is given as a JSON array of their texts, in the order of the configuration.
    """
    parts = len(extractor.parts)
    if parts <= 1:
        return _normalized(Column.of(given), extractor)
    from streamdedup.keys.join import joined  # imported here: few use its kernels

    malformed = dict[int, str]()
    cells: list[list[bytes | None]] = [[] for _ in range(parts)]
    for row, text in enumerate(given):
        try:
            texts = _texts(text, parts)
        except MalformedError as error:
            malformed[row], texts = str(error), [None] * parts
        for column, cell in zip(cells, texts, strict=True):
            column.append(cell)
    columns = []
    for column in cells:
        taken, reasons = _normalized(Column.of(column), extractor)
        malformed |= {row: reason for row, reason in reasons.items() if row not in malformed}
        columns.append(taken)
    return joined(columns), malformed


def _normalized(column: Column, extractor: Extractor) -> tuple[Column, dict[int, str]]:
    return (column, {}) if extractor.normalizer is None else extractor.normalizer.of_column(column)


def _texts(text: bytes, parts: int) -> list[bytes | None]:
    wrong = f"a key here joins {parts} fields: write a JSON array of {parts} texts, in their order"
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise MalformedError(wrong) from None
    if not isinstance(found, list) or len(found) != parts:
        raise MalformedError(wrong)
    if not all(isinstance(each, str) for each in found):
        raise MalformedError(wrong)
    return [each.encode() for each in found]
