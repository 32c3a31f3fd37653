"""The keys that are asked for: their normal forms, and their digests, by which events are searched for them.

Bounded: normal forms beyond `HELD_BYTES` lie in a temporary file without a name. The digests are by a hash of this run
alone, so nobody can make keys that look like the wanted ones.
"""

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
HELD_BYTES = 2 << 20  # of normal forms, in memory
BLOCK_KEYS = 1 << 14
BLOCK_BYTES = 1 << 20
REASONS_MAX = 1_000  # kept; of other malformed keys it is only known that they are
_BITS_MAX = 22  # of a digest, that one look-up of the table tests: 4 MB

Numbers = npt.NDArray[np.uint32]


class Found(NamedTuple):
    """The `rows` (k,), ascending, of a batch that have a wanted key, and which key each has, (k,)."""

    rows: Integers
    keys: Integers


class Wanted:
    """Keys, by their numbers from 0 in the order in which they were given; `usable` are those that are not malformed.

    A key that is given twice has two numbers. Without an `extractor`, the keys are normal forms. `malformed` has the
    first reasons, `first` the first key as it was given.
    """

    def __init__(self, given: Iterable[bytes], extractor: Extractor | None) -> None:
        self._extractor, self._hash = extractor, Hash.draw()
        self._texts: IO[bytes] = tempfile.SpooledTemporaryFile(HELD_BYTES)  # noqa: SIM115 - closed by `close`
        self._blocks = list[int]()  # how many keys each has
        self.malformed: dict[int, str] = {}
        self.count, self.first = 0, b""
        digests, usable = bytearray(), bytearray()
        try:
            for column, numbers in self._normalized(given):
                digests += self._hash.of_column(column).tobytes()
                usable += numbers.astype(np.uint32).tobytes()
        except BaseException:
            self.close()
            raise
        self.usable: Numbers = np.frombuffer(usable, dtype=np.uint32)
        self._index(np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2))

    def close(self) -> None:
        """Remove the temporary file."""
        self._texts.close()

    def __len__(self) -> int:
        """Return the number of usable keys."""
        return len(self.usable)

    def blocks(self) -> Iterator[tuple[Column, Integers]]:
        """Yield the normal forms of the usable keys, in blocks, with the place of each among them."""
        self._texts.seek(0)
        at = 0
        for count in self._blocks:
            sizes = np.frombuffer(self._texts.read(8 * count), dtype=np.int64)
            column = Column(self._texts.read(int(sizes.sum())), sizes.cumsum() - sizes, sizes)
            yield column, np.arange(at, at + count)
            at += count

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
        # By the first word alone, to save memory. Of a million keys two have one with a probability of 2^-25.
        order: Numbers = digests[:, 0].argsort(kind="stable").astype(np.uint32)
        self._sorted = digests[order]
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = (self._sorted[1:] != self._sorted[:-1]).any(axis=1)
        # The sort is stable, so the first of equal ones is the one that was given first.
        self._order = order[new]
        self.first_of: Numbers = np.empty(len(order), dtype=np.uint32)
        self.first_of[order] = self._order[new.cumsum(dtype=np.uint32) - 1]
        if len(self._order) < len(order):
            self._sorted = self._sorted[new]
        bits = min(_BITS_MAX, 10 + len(self._order).bit_length())
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
        if not self.count:
            self.first = block[0]
        column, malformed = Column.of(block), dict[int, str]()
        if self._extractor is not None:
            column, malformed = normal_forms(block, self._extractor)
        for row, reason in malformed.items():
            if len(self.malformed) < REASONS_MAX:
                self.malformed[self.count + row] = reason
        rows = (column.sizes >= 0).nonzero()[0]
        taken = column.take(rows)
        self._texts.write(taken.sizes.astype(np.int64).tobytes())
        self._texts.write(_together(taken))
        self._blocks.append(len(rows))
        numbers = rows + self.count
        self.count += len(block)
        return taken, numbers


def _together(column: Column) -> bytes | memoryview:
    """Return the cells one after the other."""
    ends = column.starts + column.sizes
    if len(ends) and (column.starts[1:] == ends[:-1]).all():
        return memoryview(column.buffer)[int(column.starts[0]) : int(ends[-1])]
    return b"".join(cell or b"" for cell in column)


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
