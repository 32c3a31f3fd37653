"""A list for tests: exact filters of addresses and of domains, as the lists of `lists build` judge, but in memory."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from streamdedup.events import Column
from streamdedup.filters import build
from streamdedup.filters.base import Addable
from streamdedup.keys.hashing import Digests, digests
from streamdedup.rules.lists import Causes, Match, Matches


def exact(keys: Iterable[bytes]) -> Addable:
    """An exact filter of these keys."""
    held = build({"kind": "exact", "capacity": 1000})
    held.add_many(digests(list(keys)))
    return held


@dataclass
class Listed:
    """Holds `addresses`, and every address of one of `domains`. `asked` notes the keys of each call."""

    addresses: Iterable[bytes] = ()
    domains: Iterable[bytes] = ()
    name: str = "spam"
    version: str = "1"
    is_mapped: bool = False
    asked: list[list[bytes | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._addresses, self._domains = exact(self.addresses), exact(self.domains)

    def match(self, keys: Column, digests_: Digests) -> Matches:
        """Return what each key matches, and note that it was asked."""
        self.asked.append(list(keys))
        of = [(key or b"").rpartition(b"@")[2] for key in keys]
        matches = np.full(len(keys), Match.NONE, dtype=np.uint8)
        matches[self._domains.contains_many(digests(of))] = Match.DOMAIN
        matches[self._addresses.contains_many(digests_)] = Match.ADDRESS
        return matches

    def causes(self, _keys: Column, _digests: Digests, matches: Matches) -> Causes:
        """Return that the list itself is why keys match."""
        return Causes.file_alone(len(matches))
