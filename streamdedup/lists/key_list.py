"""A list of keys, as a file holds it: a filter of addresses and, where there are domain entries, an exact set of those.

It is built once, mapped read-only, and shared by all who map it. `docs/snapshot-format.md` has its header.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import numpy as np

from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.events import Column
from streamdedup.filters.base import Filter
from streamdedup.filters.memory import pieces
from streamdedup.keys.hashing import Digests, Hash
from streamdedup.keys.normalizers import domains
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.keys.normalizers.domains import candidates
from streamdedup.lists.facts import EntryCounts, Facts, duplicates_told
from streamdedup.lists.normalization import Normalizing, id_of
from streamdedup.lists.progress import sized
from streamdedup.rules.lists import Match, Matches
from streamdedup.snapshot import files
from streamdedup.snapshot.header import field, number

CHECKSUM_BYTES = 4
COPIED_BYTES_MAX = 16 << 20


@dataclass(frozen=True)
class KeyList:
    """What is on the list, and what its header tells; `path` is the file that it was loaded from."""

    facts: Facts
    addresses: Filter
    domains: Filter | None
    path: Path | None = None

    @classmethod
    def of(
        cls,
        addresses: Filter,
        domains: Filter | None,
        *,
        name: str,
        built_at: int,
        normalizing: Normalizing,
        counts: EntryCounts,
    ) -> Self:
        """The list of these filters, whose digests are of one hash; `built_at` is in Unix seconds."""
        content = blake2b(digest_size=CHECKSUM_BYTES)
        content.update(f"{normalizing.id} {addresses.hash.check}".encode())
        for table in _buffers(addresses, domains):
            for piece in pieces(table):
                content.update(piece)
        id_, checksum = normalizing.id, content.hexdigest()
        return cls(
            Facts(
                name=name,
                built_at=built_at,
                normalizing=normalizing,
                normalize=id_,
                counts=counts,
                checksum=checksum,
            ),
            addresses,
            domains,
        )

    @property
    def name(self) -> str:
        """What people call it."""
        return self.facts.name

    @property
    def version(self) -> str:
        """When it was built, in UTC, and the checksum of what is in it: equal contents show."""
        return self.facts.version

    @property
    def hash(self) -> Hash:
        """What makes the digests that it is asked for."""
        return self.addresses.hash

    @property
    def kind(self) -> str:
        """Of the filter of addresses."""
        return self.addresses.kind

    @property
    def error_rate(self) -> float:
        """The probability, at most, that a key which is not on the list matches an address."""
        return self.addresses.error_rate

    def told(self) -> str:
        """What it is, for people, without a key."""
        counts, tables = self.facts.counts, self.buffers()
        return (
            f"the list {self.name}, version {self.version}: {counts.addresses + counts.domains:,} entries, of which"
            f" {counts.domains:,} domains, without {duplicates_told(self.kind, counts.duplicates)}; {self.kind},"
            f" {sized(sum(table.nbytes for table in tables))}, error rate {self.error_rate:.3g}"
        )

    def match(self, keys: Column, digests: Digests) -> Matches:
        """As `Matcher.match`: an address where the whole key is there, else a domain where one of its own is."""
        matches = self.addresses.contains_many(digests).astype(np.uint8) * np.uint8(Match.ADDRESS)
        if self.domains is None:
            return matches
        rest = np.flatnonzero(matches == Match.NONE)
        rows, asked = candidates(keys.take(rest))
        there = self.domains.contains_many(self.hash.of_column(asked))
        matches[rest[rows[there]]] = Match.DOMAIN
        return matches

    def warm_up(self) -> None:
        """Compile, or load from the cache, the kernels that `match` runs, so that no batch waits for it."""
        domains.warm_up()
        digest = np.zeros((1, 2), dtype=np.uint64)
        for held in (self.addresses, self.domains):
            if held is not None:
                held.contains_many(digest)

    def refuse_unless(self, found: Normalizer | None) -> None:
        """ConfigError unless keys that `found` normalized may be looked up: None where they are as they came."""
        built = self.facts
        if id_of(found) != built.normalize:
            raise ConfigError(
                f"the list {self.path or self.name} holds keys normalized by {built.normalize!r}, and would be asked"
                f" for keys normalized by {id_of(found)!r}; build it again as key.normalize and key.email_... of the"
                f" worker say (`lists build -c`), or set key.normalize: {built.normalizing.name} there, with the rules"
                " of this one"
            )

    def normalizer(self) -> Normalizer | None:
        """The one with which it was built; ConfigError where this version of streamdedup would make other keys."""
        made = self.facts.normalizing.normalizer()
        self.refuse_unless(made)
        return made

    def header(self) -> dict[str, Any]:
        """All but the tables, as plain JSON values."""
        return {
            "kind": files.LIST,
            "hash": self.hash.name,
            "hash_check": self.hash.check,
            **self.facts.header(),
            "addresses": self.addresses.header(),
            "address_buffers": len(self.addresses.buffers()),
            "domains": None if self.domains is None else self.domains.header(),
        }

    def buffers(self) -> list[memoryview]:
        """The tables of addresses, then those of domains."""
        return _buffers(self.addresses, self.domains)

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], buffers: list[memoryview], hash_key: bytes
    ) -> Self:
        """The list that gave these parts, over these very buffers; an error where they do not fit together."""
        of_addresses = number(header, "address_buffers", 0, len(buffers))
        parts = field(header, "addresses", dict), buffers[:of_addresses]
        addresses = filters.from_parts(*parts, hash_key)
        domains = None
        if header.get("domains") is not None:
            parts = field(header, "domains", dict), buffers[of_addresses:]
            domains = filters.from_parts(*parts, hash_key)
        elif of_addresses != len(buffers):
            raise ValueError("it has tables that belong to nothing")
        return cls(Facts.from_header(header), addresses, domains)


def load(path: str | os.PathLike[str], *, hash_key: bytes = b"", verify: bool = True) -> KeyList:
    """The list at `path`, mapped read-only: all who map it share its pages. Blocking, a tenth of a second for 100 MB.

    Where its hash is siphash, `hash_key` is the one it was built with. Without `verify` the checksums of its tables are
    not compared. One of at most COPIED_BYTES_MAX is read instead. Replace larger ones by a rename: whoever cuts them
    short or writes to them breaks those who map them.

    SnapshotError: the file cannot be read, or must not be believed. ConfigError: it is no list, or `hash_key` is wrong.
    """
    source = Path(path)
    mapped = not verify or not _is_small(source)
    with files.reading(source, mmap=mapped, verify=verify) as reader:
        if (kind := reader.header.filter.get("kind")) != files.LIST:
            raise ConfigError(
                f"cannot use {source}: it is a filter of kind {kind}, and no list; `streamdedup lists build` makes one"
            )
        return replace(files.made_by(KeyList.from_parts, reader, hash_key, source), path=source)


def _is_small(path: Path) -> bool:
    """Whether a copy costs next to nothing: then whoever writes to the file, as `cp` does, harms nobody."""
    try:
        return path.stat().st_size <= COPIED_BYTES_MAX
    except OSError:
        return False  # which `reading` tells


def _buffers(addresses: Filter, domains: Filter | None) -> list[memoryview]:
    return [*addresses.buffers(), *([] if domains is None else domains.buffers())]
