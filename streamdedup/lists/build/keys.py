"""From entries to the digests by which a list holds them: digests of addresses, and of the keys of domain entries."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamdedup.errors import MalformedError
from streamdedup.events import Column, Integers
from streamdedup.keys.hashing import Digests, Hash
from streamdedup.keys.normalizers.ascii_text import trim_column
from streamdedup.keys.normalizers.base import BELOW, EXACT, DomainNormalizer, Normalizer
from streamdedup.lists.build.entries import Entries, first_bytes
from streamdedup.lists.build.formats import entries
from streamdedup.lists.build.inputs import Input
from streamdedup.lists.progress import BuildProgress

_MARKS = np.frombuffer(EXACT + BELOW, dtype=np.uint8)
_TEXT_MARKS = (EXACT.decode(), BELOW.decode())


class KeyedEntries(NamedTuple):
    """The keys of a piece, and the reasons why other rows have none.

    - `keys` (n,) are the addresses, `digests` (n, 2) theirs, `rows` (n,) their rows in the piece, ascending.
    - `domains` (m, 2) are digests of domain entries, of which each has one key or more; `domain_rows` (m,) are their
      rows.
    - `bad` maps a row to the reason why it has no key, in ascending order.
    """

    keys: Column
    digests: Digests
    rows: Integers
    domains: Digests
    domain_rows: Integers
    bad: dict[int, str]


@dataclass(frozen=True)
class EntryKeys:
    """How entries become digests: the normalizer of their text, and the hash."""

    normalizer: Normalizer | None
    hash: Hash

    def pieces(
        self, inputs: Sequence[Input], progress: BuildProgress
    ) -> Iterator[tuple[Input, Entries, KeyedEntries]]:
        """Read all inputs once; yield each piece with its input and its keys."""
        for given in inputs:
            for piece in entries(given, progress.through(given.chunks())):
                yield given, piece, self.keyed(piece)

    def keyed(self, piece: Entries) -> KeyedEntries:
        """Return the keys of one piece. An empty entry, before or after normalizing, has no key, and is not bad."""
        cells, bad = piece.cells, dict(piece.bad)
        domains: list[bytes] = []
        domain_rows: list[int] = []
        if isinstance(self.normalizer, DomainNormalizer):
            marked = _marked(cells)
            for row in marked.tolist():
                try:
                    found = self.normalizer.of_domain_entry(cells[row] or b"").keys
                except MalformedError as error:
                    bad[row] = str(error)
                else:
                    domains += found
                    domain_rows += [row] * len(found)
            cells = cells.nulled(marked)
        cells = cells.nulled(np.flatnonzero(cells.sizes == 0))
        keys, malformed = self.normalizer.of_column(cells) if self.normalizer else (cells, {})
        rows = np.flatnonzero(keys.sizes > 0)
        keys = keys.take(rows)
        return KeyedEntries(
            keys=keys,
            digests=self.hash.of_column(keys),
            rows=rows,
            domains=self.hash.digests(domains),
            domain_rows=np.array(domain_rows, dtype=np.int64),
            bad=dict(sorted((bad | malformed).items())),
        )


def _marked(cells: Column) -> Integers:
    """Return the rows that are domain entries, that is, that begin with a mark after any white space."""
    found = trim_column(cells)
    marked = np.isin(first_bytes(found), _MARKS)
    for row in np.flatnonzero(
        (found.sizes < 0) & (cells.sizes > 0)
    ).tolist():  # these are not ASCII
        marked[row] = (cells[row] or b"").decode(errors="replace").lstrip()[:1] in _TEXT_MARKS
    return np.flatnonzero(marked)
