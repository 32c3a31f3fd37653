"""What `lists build --check` does: all inputs are read once more, and every entry found in the file, as by a worker."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from streamdedup.errors import StreamdedupError
from streamdedup.events import Integers
from streamdedup.lists.building import Recipe
from streamdedup.lists.inputs import Input, size_bytes
from streamdedup.lists.key_list import KeyList, load
from streamdedup.lists.keying import Keyed
from streamdedup.lists.progress import Progress
from streamdedup.rules.listed import Match


def prove(path: Path, recipe: Recipe, inputs: Sequence[Input], progress: Progress) -> int:
    """How many entries were looked for, and all found; StreamdedupError with the line of the first that was not."""
    listed = load(path, hash_key=recipe.hash.key)
    listed.refuse_unless(recipe.normalizing.normalizer())
    progress.begin("checking", size_bytes(inputs))
    found = 0
    for given, piece, keyed in recipe.keying.pieces(inputs, progress):
        rows = _missing(listed, keyed)
        if len(rows):
            raise StreamdedupError(
                f"{given.name} line {int(piece.numbers[rows[0]]):,}: its entry is not found in {path}; do not use that"
                " file; see whether the inputs or the file were changed meanwhile, and build it again"
            )
        found += len(keyed.rows) + len(keyed.domain_rows)
    progress.end()
    return found


def _missing(listed: KeyList, keyed: Keyed) -> Integers:
    """The rows of a piece, ascending, with a key that is not there."""
    addresses = listed.match(keyed.keys, keyed.digests) != Match.ADDRESS
    domains = np.ones(len(keyed.domains), dtype=np.bool_)
    if listed.domains is not None:
        domains = ~listed.domains.contains_many(keyed.domains)
    return np.sort(np.concatenate([keyed.rows[addresses], keyed.domain_rows[domains]]))
