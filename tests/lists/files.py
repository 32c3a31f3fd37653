"""The file of a list, as `lists build` writes it, made at once."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streamdedup.lists import KeyList
from streamdedup.lists.facts import EntryCounts
from streamdedup.lists.normalization import Normalizing
from streamdedup.snapshot import files
from tests.lists.listed import exact


def list_file(path: Path, keys: Iterable[bytes]) -> Path:
    """Put a list of `keys`, as they are, at `path`."""
    held = exact(sorted(keys))
    counts = EntryCounts(len(held), 0, 0, 0)
    given: Any = {"name": "spam", "built_at": 1, "normalizing": Normalizing(), "counts": counts}
    files.save(KeyList.of(held, None, **given), path)
    return path
