"""`lists build --check`: read all inputs by other code, and look up every entry in the file, as a worker would.

If an exact store was built too, it must also contain every entry. Lines that the build left out are not looked up.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from streamdedup.errors import StreamdedupError
from streamdedup.events import Column, Integers
from streamdedup.filters.base import Mask
from streamdedup.keys.formats import csv_records
from streamdedup.lists.build.builder import BuildRequest
from streamdedup.lists.build.inputs import Input, size_bytes
from streamdedup.lists.build.keys import KeyedEntries
from streamdedup.lists.build.rejects import Rejects
from streamdedup.lists.build.second_reader import SecondReading, read_again
from streamdedup.lists.exact_store import ExactStore, place_of
from streamdedup.lists.key_list import KeyList, load
from streamdedup.progress import Progress
from streamdedup.rules.lists import Match

ENTRIES_A_PIECE = 1 << 15


def prove(
    path: Path,
    recipe: BuildRequest,
    inputs: Sequence[Input],
    rejects: Rejects,
    progress: Progress,
) -> int:
    """Return the number of entries that were found: all, but for those that the build left out.

    StreamdedupError if one was not found whose line is not one of `rejects`; it names the line of the first. Lines that
    were read as parts of other records, and are records by themselves, may be an outsider's notes: as many as may be
    bad are only reported.
    """
    listed = load(path, hash_key=recipe.hash.key)
    listed.refuse_unless(recipe.normalizing.normalizer())
    store = ExactStore.open(place_of(path), listed) if recipe.exact else None
    keying = recipe.keying
    progress.begin("checking", size_bytes(inputs))
    found, swallowed = 0, list[str]()
    for given in inputs:
        readings = read_again(given)
        while piece := list(islice(readings, ENTRIES_A_PIECE)):
            cells = Column.of([reading.cell for reading in piece])
            progress.advance(len(cells.buffer) + len(piece), len(piece))
            keyed = keying.keyed(cells, {})
            counts = np.array([not reading.within for reading in piece])
            for place, rows in _missing(listed, store, keyed):
                missing = [piece[row] for row in rows.tolist()]
                swallowed += _refused(given, missing, rejects, place)
                counts[rows] = False
            found += int(np.count_nonzero(counts[np.append(keyed.rows, keyed.domain_rows)]))
    progress.end()
    if swallowed:
        said = csv_records.swallowed(len(swallowed), swallowed[0])
        if not rejects.accepts(len(swallowed)):
            raise StreamdedupError(
                f"{said} do not use that list; correct that record, and build it again, or accept such lines by"
                " --bad-max"
            )
        progress.say(said)
    return found


def _refused(
    given: Input, missing: Sequence[SecondReading], rejects: Rejects, place: Path | None
) -> list[str]:
    """Return the places of the entries not found in `place` that were swallowed by other records.

    Raises StreamdedupError for the first of all others, unless its line was left out.
    """
    numbers = np.array([reading.number for reading in missing], dtype=np.int64)
    left_out = set(rejects.has(given.name, numbers).tolist())
    swallowed = list[str]()
    for at, reading in enumerate(missing):
        where = f"{given.name} line {reading.number:,}"
        if reading.within and at not in left_out:
            swallowed.append(f"{where}, in the record at line {reading.within:,}")
        elif at not in left_out:
            raise StreamdedupError(
                f"{where}: its entry is not found in {place}; do not use that list; check whether the inputs or the"
                " file were changed meanwhile, and build it again"
            )
    return swallowed


def _missing(
    listed: KeyList, store: ExactStore | None, keyed: KeyedEntries
) -> Iterator[tuple[Path | None, Integers]]:
    """Yield each place where keys must be, and the rows of the piece, ascending, with a key that is not there."""
    addresses = listed.match(keyed.keys, keyed.digests) == Match.ADDRESS
    domains = np.zeros(len(keyed.domains), dtype=np.bool_)
    if listed.domains is not None:
        domains = listed.domains.contains_many(keyed.domains)
    yield listed.path, _others(keyed, addresses, domains)
    if store is not None:
        there = store.holds(keyed.digests), store.holds(keyed.domains)
        yield store.path, _others(keyed, *there)


def _others(keyed: KeyedEntries, addresses: Mask, domains: Mask) -> Integers:
    """Return the rows, ascending, of the addresses and the domains whose mask is False."""
    return np.sort(np.concatenate([keyed.rows[~addresses], keyed.domain_rows[~domains]]))
