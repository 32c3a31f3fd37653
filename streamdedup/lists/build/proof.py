"""`lists build --check`: read all inputs once more and look up every entry in the file, as a worker would.

If an exact store was built too, it must also contain every entry.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from streamdedup.errors import StreamdedupError
from streamdedup.events import Integers
from streamdedup.filters.base import Mask
from streamdedup.lists.build.builder import BuildRequest
from streamdedup.lists.build.inputs import Input, size_bytes
from streamdedup.lists.build.keys import KeyedEntries
from streamdedup.lists.exact_store import ExactStore, place_of
from streamdedup.lists.key_list import KeyList, load
from streamdedup.lists.progress import BuildProgress
from streamdedup.rules.lists import Match


def prove(
    path: Path, recipe: BuildRequest, inputs: Sequence[Input], progress: BuildProgress
) -> int:
    """Return the number of entries looked up, all of which were found.

    StreamdedupError if one was not found; it names the line of the first.
    """
    listed = load(path, hash_key=recipe.hash.key)
    listed.refuse_unless(recipe.normalizing.normalizer())
    store = ExactStore.open(place_of(path), listed) if recipe.exact else None
    progress.begin("checking", size_bytes(inputs))
    found = 0
    for given, piece, keyed in recipe.keying.pieces(inputs, progress):
        for place, rows in _missing(listed, store, keyed):
            if len(rows):
                raise StreamdedupError(
                    f"{given.name} line {int(piece.numbers[rows[0]]):,}: its entry is not found in {place}; do not use"
                    " that list; check whether the inputs or the file were changed meanwhile, and build it again"
                )
        found += len(keyed.rows) + len(keyed.domain_rows)
    progress.end()
    return found


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
