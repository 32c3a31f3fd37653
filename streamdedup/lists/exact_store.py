"""The exact store of a list: the digests of all its entries, on disk, looked up only for keys that the list matches.

A digest has 128 bits. With n entries, a key that is not on the list is found with probability n/2^128: 3e-31 for 100
million. So no key is stored. With siphash, nobody can find the digest of a key without the secret.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Mask
from streamdedup.keys.hashing import Digests
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.rocks import opened, rocks_errors, rocksdict
from streamdedup.lists.store_facts import (
    AGAIN,
    Owner,
    StoreFacts,
    check_files,
    read_facts,
    refuse_other,
    store_of,
)

EXACT_KIND = "exact"  # a list of this kind needs no verification
DIGEST_BYTES = 16
# Other threads run while rocksdict reads, but not while keys are made and passed to it: below 1 ms for this many.
KEYS_A_CALL = 1024


class ExactStore:
    """It stays open until nothing refers to it. Its files may be removed or replaced meanwhile without harm to it."""

    def __init__(self, path: Path, facts: StoreFacts, rows: Any) -> None:  # noqa: ANN401 - a Rdict
        self.path, self.facts, self._rows = path, facts, rows

    @classmethod
    def open(cls, place: Path, listed: KeyList) -> Self:
        """Open the store of `listed` in `place`. Blocking: all of its bytes are read and their checksums compared.

        ConfigError if there is none, if it belongs to another list, or if rocksdict is missing. SnapshotError if it is
        damaged.
        """
        rocksdict()
        if listed.kind == EXACT_KIND:
            raise ConfigError(
                f"the list {listed.path or listed.name} is of kind exact, whose error rate is n/2^64 already, so it has"
                " no exact store; build it with --exact and another --kind"
            )
        directory = store_of(place, listed)
        facts = read_facts(directory)
        refuse_other(directory, facts.owner, Owner.of(listed))
        check_files(directory, facts)
        with rocks_errors("open", directory, AGAIN):
            return cls(directory, facts, opened(directory, list(facts.files)))

    def holds(self, digests: Digests) -> Mask:
        """Return which of `digests` (n, 2) the store holds, (n,). Blocking. SnapshotError if it cannot be read."""
        found: Mask = np.zeros(len(digests), dtype=np.bool_)
        start = 0
        with rocks_errors("ask", self.path, "check its disk; " + AGAIN):
            for keys in rows_of(digests):
                values = self._rows.get(keys)
                found[start : start + len(keys)] = [value is not None for value in values]
                start += len(keys)
        return found


def rows_of(digests: Digests) -> Iterator[list[bytes]]:
    """Yield the keys of a store, in the order of `digests` (n, 2), KEYS_A_CALL at a time.

    They are big-endian, so that they sort as the digests do.
    """
    for start in range(0, len(digests), KEYS_A_CALL):
        text = digests[start : start + KEYS_A_CALL].astype(">u8").tobytes()
        yield [text[at : at + DIGEST_BYTES] for at in range(0, len(text), DIGEST_BYTES)]
