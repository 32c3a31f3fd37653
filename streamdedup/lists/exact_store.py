"""The exact store of a list: the digests of all its entries on a disk, asked for those that the list matches.

A digest has 128 bits: of n entries, one stands for a key that is not there with a probability of n/2^128, 3e-31 for
100 million. So no key is kept, and with siphash nobody without the secret can tell one from the digests.
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

EXACT_KIND = "exact"  # of a list that has nothing to verify
DIGEST_BYTES = 16
KEYS_A_CALL = 1024  # others run while rocksdict reads, not while keys are made or taken in: below 1 ms for so many


class ExactStore:
    """Open until nobody holds it any more; what is removed or replaced meanwhile does it no harm."""

    def __init__(self, path: Path, facts: StoreFacts, rows: Any) -> None:  # noqa: ANN401 - a Rdict
        self.path, self.facts, self._rows = path, facts, rows

    @classmethod
    def open(cls, place: Path, listed: KeyList) -> Self:
        """The store of `listed` in `place`. Blocking: all of its bytes are read, and their checksums compared.

        ConfigError where there is none, or it is of another list, or rocksdict is missing; SnapshotError where it is
        damaged.
        """
        rocksdict()
        if listed.kind == EXACT_KIND:
            raise ConfigError(
                f"the list {listed.path or listed.name} is of kind exact, which errs with n/2^64, and so has no exact"
                " store; build it with --exact and another --kind"
            )
        directory = store_of(place, listed)
        facts = read_facts(directory)
        refuse_other(directory, facts.owner, Owner.of(listed))
        check_files(directory, facts)
        with rocks_errors("open", directory, AGAIN):
            return cls(directory, facts, opened(directory, list(facts.files)))

    def holds(self, digests: Digests) -> Mask:
        """Which of `digests` (n, 2) are those of entries, shape (n,). Blocking. SnapshotError where it is not read."""
        found: Mask = np.zeros(len(digests), dtype=np.bool_)
        start = 0
        with rocks_errors("ask", self.path, "look at its disk; " + AGAIN):
            for keys in rows_of(digests):
                values = self._rows.get(keys)
                found[start : start + len(keys)] = [value is not None for value in values]
                start += len(keys)
        return found


def rows_of(digests: Digests) -> Iterator[list[bytes]]:
    """The keys of a store, in the order of `digests` (n, 2), KEYS_A_CALL at a time.

    They are big-endian, so that they sort as the digests do.
    """
    for start in range(0, len(digests), KEYS_A_CALL):
        text = digests[start : start + KEYS_A_CALL].astype(">u8").tobytes()
        yield [text[at : at + DIGEST_BYTES] for at in range(0, len(text), DIGEST_BYTES)]
