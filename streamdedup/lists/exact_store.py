"""The exact store of a list: the digests of all its entries, on disk, looked up only for keys that the list matches.

A digest has 128 bits. With n entries, a key that is not on the list is found with probability n/2^128: 3e-31 for 100
million. So no key is stored. With siphash, nobody can find the digest of a key without the secret.

The stores of the list FILE are the files FILE.exact/VERSION, one for each version of the list.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.filters.base import Mask
from streamdedup.keys.hashing import Digests
from streamdedup.lists.digest_blocks import warm_up
from streamdedup.lists.facts import Facts
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.sorted_digests import SortedDigests
from streamdedup.snapshot import files
from streamdedup.snapshot.header import field

EXACT_KIND = "exact"  # a list of this kind needs no verification
SUFFIX = ".exact"
VERSION = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ-[0-9a-f]{8}", re.ASCII)
NAMED_MAX = 3  # versions in a message, the newest
AGAIN = "build the list again, with --exact"


@dataclass(frozen=True)
class Owner:
    """The list that a store belongs to: its version, and how its keys became digests."""

    version: str
    hash: str
    hash_check: str
    normalize: str

    @classmethod
    def from_header(cls, raw: Mapping[str, Any]) -> Self:
        """Return the owner that a store's header names. SnapshotError if it names none."""
        return cls(**{each.name: field(raw, each.name, str) for each in fields(cls)})

    @classmethod
    def of_list(cls, raw: Mapping[str, Any]) -> Self:
        """Return the owner that the list with this header is. SnapshotError if it is no header of a list."""
        facts = Facts.from_header(raw)
        hash_, check = (field(raw, name, str) for name in ("hash", "hash_check"))
        return cls(facts.version, hash_, check, facts.normalize)

    def header(self, entries: int) -> dict[str, Any]:
        """Return the header of this owner's store, which has that many entries, as plain JSON values."""
        return {"kind": files.STORE, "entries": entries, **asdict(self)}


class ExactStore:
    """It stays open until nothing refers to it. Its file may be removed or replaced without harm to it."""

    def __init__(self, path: Path) -> None:
        """Open the store at `path`, whatever list it belongs to.

        Blocking: all of its bytes are read and their checksums compared. SnapshotError if it is damaged.
        """
        self.path, self._digests = path, SortedDigests(path, AGAIN)
        self.size_bytes = self._digests.size_bytes
        try:
            self._owner = Owner.from_header(self._digests.header)
        except SnapshotError as error:
            raise SnapshotError(f"cannot use {path}: {error}", remedy=AGAIN) from None

    @classmethod
    def open(cls, place: Path, listed: KeyList) -> Self:
        """Open the store of `listed` in `place`. Blocking.

        ConfigError if there is none, or if it belongs to another list. SnapshotError if it is damaged.
        """
        if listed.kind == EXACT_KIND:
            raise ConfigError(
                f"the list {listed.path or listed.name} is of kind exact, whose error rate is n/2^64 already, so it has"
                " no exact store",
                remedy="build it with --exact and another --kind",
            )
        store = cls(_store_of(place, listed))
        store.refuse_other(Owner.of_list(listed.header()))
        warm_up()
        return store

    @property
    def entries(self) -> int:
        """The number of entries, of addresses and domains, each once."""
        return self._digests.count

    def holds(self, digests: Digests) -> Mask:
        """Return which of `digests` (n, 2) the store holds, (n,). Blocking. SnapshotError if it cannot be read."""
        return self._digests.find(digests)

    def refuse_other(self, asked: Owner) -> None:
        """ConfigError unless the store belongs to the list `asked`."""
        for each in fields(Owner):
            theirs, ours = getattr(self._owner, each.name), getattr(asked, each.name)
            if theirs != ours:
                raise ConfigError(
                    f"{self.path} is not the exact store of this list: it has {each.name} {theirs!r} instead of"
                    f" {ours!r}",
                    remedy=AGAIN,
                )


def place_of(listed: Path) -> Path:
    """Return the directory of the stores of the list at that path."""
    return listed.with_name(listed.name + SUFFIX)


def versions_in(place: Path) -> list[str]:
    """Return the versions that have a store in `place`, by the files' names, ascending.

    SnapshotError if `place` cannot be read. If there is no such directory, there are none.
    """
    with files.blaming("read", place, AGAIN):
        try:
            there = [path for path in place.iterdir() if VERSION.fullmatch(path.name)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(path.name for path in there if path.is_file())


def _store_of(place: Path, listed: KeyList) -> Path:
    """Return the path of the store of `listed` in `place`. ConfigError if there is none."""
    there = versions_in(place)
    if listed.version in there:
        return place / listed.version
    found = (
        f"{place} holds only version {', '.join(there[-NAMED_MAX:])}" if there else _no_store(place)
    )
    raise ConfigError(
        f"the list {listed.path or listed.name}, version {listed.version}, has no exact store: {found}",
        remedy=AGAIN,
    )


def _no_store(place: Path) -> str:
    if place.is_dir():
        return f"{place} holds none"
    return f"{place} is no directory of stores" if place.exists() else f"{place} does not exist"
