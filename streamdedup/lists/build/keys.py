"""From entries to the digests by which a list holds them: digests of addresses, and of the keys of domain entries."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamdedup.errors import MalformedError
from streamdedup.events import Column, Integers
from streamdedup.keys.hashing import Digests, Hash
from streamdedup.keys.normalizers.ascii_text import trim_column
from streamdedup.keys.normalizers.base import BELOW, EXACT, DomainNormalizer, Normalizer, text_of
from streamdedup.keys.normalizers.url import UrlNormalizer
from streamdedup.lists.build.entries import Entries, first_bytes
from streamdedup.lists.build.formats import entries
from streamdedup.lists.build.inputs import Input
from streamdedup.lists.entry import (
    MARKS,
    WILD,
    WILD_IN_URLS,
    EntriesAs,
    bare_address,
    hinted,
    marked,
    wildcard,
)
from streamdedup.progress import Progress

MARK_BYTES = np.frombuffer(EXACT + BELOW, dtype=np.uint8)


class KeyedEntries(NamedTuple):
    """The keys of a piece, and the reasons why other rows have none.

    - `keys` (n,) are the addresses, `digests` (n, 2) theirs, `rows` (n,) their rows in the piece, ascending.
    - `domains` (m, 2) are digests of domain entries, of which each has one key or more; `domain_rows` (m,) are their
      rows.
    - `bad` maps a row to the reason why it, or one of its several domains, has no key, in ascending order.
    """

    keys: Column
    digests: Digests
    rows: Integers
    domains: Digests
    domain_rows: Integers
    bad: dict[int, str]


@dataclass(frozen=True)
class EntryKeys:
    """How entries become digests: what they are, the normalizer of their text, and the hash."""

    normalizer: Normalizer | None
    hash: Hash
    entries: EntriesAs = "addresses"

    def pieces(
        self, inputs: Sequence[Input], progress: Progress
    ) -> Iterator[tuple[Input, Entries, KeyedEntries]]:
        """Read all inputs once; yield each piece with its input and its keys."""
        for given in inputs:
            for piece in entries(given, progress.through(given.chunks())):
                yield given, piece, self.keyed(piece.cells, piece.bad)

    def keyed(self, cells: Column, bad: dict[int, str]) -> KeyedEntries:
        """Return the keys of one piece, whose rows in `bad` have no cell for that reason.

        An empty entry, before or after normalizing, has no key, and is not bad.
        """
        domains: list[bytes] = []
        domain_rows: list[int] = []
        bad, normal = dict(bad), self.normalizer
        if isinstance(normal, DomainNormalizer):
            if self.entries == "mailboxes":
                cells, without = _bare(cells)
                bad |= without
            of_domains = self._domain_rows(cells)
            for row in of_domains.tolist():
                try:
                    for found in self._domain_keys(cells[row] or b"", normal):
                        domains += found
                        domain_rows += [row] * len(found)
                except MalformedError as reason:
                    bad[row] = str(reason)
            cells = cells.nulled(of_domains)
            wild = _refused(cells, normal)
            bad |= wild
            cells = cells.nulled(np.array(list(wild), dtype=np.int64))
        cells = cells.nulled(np.flatnonzero(cells.sizes == 0))
        keys, malformed = normal.of_column(cells) if normal else (cells, {})
        if isinstance(normal, DomainNormalizer):
            malformed = {
                row: hinted(why, _text(cells[row]), normal) for row, why in malformed.items()
            }
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

    def _domain_rows(self, cells: Column) -> Integers:
        if self.entries in ("domains", "hosts"):
            return np.flatnonzero(cells.sizes > 0)
        return _marked(cells)

    def _domain_keys(self, cell: bytes, normal: DomainNormalizer) -> Iterator[list[bytes]]:
        """Yield the keys of each domain that an entry stands for. MalformedError, at the end, if one is none."""
        text, wrong = text_of(cell), ""
        for entry in marked(text, self.entries) if self.entries in ("domains", "hosts") else [text]:
            try:
                yield normal.of_domain_entry(entry.encode()).keys
            except MalformedError as error:
                wrong = wrong or hinted(str(error), entry, normal)
        if wrong:
            raise MalformedError(wrong)


def _bare(cells: Column) -> tuple[Column, dict[int, str]]:
    """Return the addresses of entries that have a name or `mailto:` beside it; other entries as they are.

    Rows without an address become null; the dict has the reasons.
    """
    found, bad = dict[int, bytes | None](), dict[int, str]()
    for row, cell in enumerate(cells):
        text = _text(cell)
        try:
            if (bare := bare_address(text)) != text:
                found[row] = bare.encode()
        except MalformedError as reason:
            found[row], bad[row] = None, str(reason)
    if found:
        cells = cells.replaced(
            np.array(list(found), dtype=np.int64), Column.of(list(found.values()))
        )
    return cells, bad


def _refused(cells: Column, normal: DomainNormalizer) -> dict[int, str]:
    """Return why rows that are written as patterns have no key. Only rows with a byte of patterns are looked into."""
    wanted = WILD_IN_URLS if isinstance(normal, UrlNormalizer) else WILD
    found = {row: wildcard(_text(cells[row]), normal) for row in _with_bytes(cells, wanted)}
    return {row: why for row, why in found.items() if why}


def _with_bytes(cells: Column, wanted: bytes) -> Iterable[int]:
    """Return the rows, ascending, that have one of the bytes `wanted`."""
    there = [byte for byte in wanted if byte in cells.buffer]
    if not there:
        return ()
    at = np.flatnonzero(np.isin(np.frombuffer(cells.buffer, dtype=np.uint8), there))
    first = np.searchsorted(at, cells.starts)
    beyond = np.searchsorted(at, cells.starts + np.maximum(cells.sizes, 0))
    rows: list[int] = np.flatnonzero(first < beyond).tolist()
    return rows


def _text(cell: bytes | None) -> str:
    return (cell or b"").decode(errors="replace")


def _marked(cells: Column) -> Integers:
    """Return the rows that are domain entries, that is, that begin with a mark after any white space."""
    found = trim_column(cells)
    are_marked = np.isin(first_bytes(found), MARK_BYTES)
    for row in np.flatnonzero(
        (found.sizes < 0) & (cells.sizes > 0)
    ).tolist():  # these are not ASCII
        are_marked[row] = _text(cells[row]).lstrip()[:1] in MARKS
    return np.flatnonzero(are_marked)
