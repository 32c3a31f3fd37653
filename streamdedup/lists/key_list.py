"""A list of keys, as in its file: a filter of addresses and, if there are domain entries, an exact set of those.

It is built once, mapped read-only, and shared by all processes that map it. `docs/snapshot-format.md` describes its
header.
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
from streamdedup.events import Column, Integers
from streamdedup.filters.base import Filter, Mask
from streamdedup.filters.memory import pieces
from streamdedup.keys.hashing import MURMUR3, Digests, Hash
from streamdedup.keys.normalizers import domains, host_column
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.keys.options import UrlRules
from streamdedup.lists.facts import EntryCounts, Facts, shown_rate
from streamdedup.lists.matching import Entry, Source
from streamdedup.lists.normalization import Normalizing, id_of
from streamdedup.rules.lists import Causes, Match, Matches
from streamdedup.snapshot import files
from streamdedup.snapshot.header import field, number
from streamdedup.units import counted, sized

CHECKSUM_BYTES = 4
COPIED_BYTES_MAX = 16 << 20


@dataclass(frozen=True)
class KeyList:
    """The entries of a list, and the facts of its header; `path` is the file that it was loaded from, or is mapped."""

    facts: Facts
    addresses: Filter
    domains: Filter | None
    path: Path | None = None
    is_mapped: bool = False

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
        """Return the list made of these filters, whose digests come from one hash. `built_at` is in Unix seconds."""
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
        """The name for people."""
        return self.facts.name

    @property
    def version(self) -> str:
        """When it was built, in UTC, and the checksum of the contents. Equal checksums show equal contents."""
        return self.facts.version

    @property
    def entries(self) -> int:
        """How many entries its file has, addresses and domains."""
        return self.facts.counts.addresses + self.facts.counts.domains

    @property
    def changes(self) -> None:
        """No single changes: there is no control topic."""
        return None

    @property
    def hash(self) -> Hash:
        """The hash of the digests by which it is looked up."""
        return self.addresses.hash

    @property
    def kind(self) -> str:
        """The kind of the filter of addresses."""
        return self.addresses.kind

    @property
    def error_rate(self) -> float:
        """The greatest probability that a key which is not on the list matches an address."""
        return self.addresses.error_rate

    def summary(self) -> str:
        """Return a description for people. It holds no key."""
        counts, tables = self.facts.counts, self.buffers()
        entries = counted(counts.addresses + counts.domains, "entry", "entries")
        addresses = counted(counts.addresses, "address", "addresses")
        of = f"{addresses}, {counted(counts.domains, 'domain')}"
        size_bytes = sum(table.nbytes for table in tables)
        rate = shown_rate(self.kind, self.error_rate)
        return (
            f"the list {self.name}, version {self.version}: {entries} ({of}); left"
            f" out: {counts.left_out(self.kind)}; {self.kind}, {sized(size_bytes)}, error rate {rate}"
        )

    def match(self, keys: Column, digests: Digests) -> Matches:
        """Return a `Match` for each of `keys`, shape (n,), as `Matcher.match` does.

        The whole key is looked up first; if it is not there, the domains of the address are.
        """
        matches = self.addresses.contains_many(digests).astype(np.uint8) * np.uint8(Match.ADDRESS)
        if self.domains is None:
            return matches
        rest = np.flatnonzero(matches == Match.NONE)
        rows, asked = self.candidates(keys.take(rest))
        there = self.domains.contains_many(self.hash.of_column(asked))
        matches[rest[rows[there]]] = Match.DOMAIN
        return matches

    def causes(self, _keys: Column, _digests: Digests, matches: Matches) -> Causes:
        """Return that the file of the list is why keys match."""
        return Causes.file_alone(len(matches))

    def removed(self, keys: Column, _digests: Digests) -> Mask:
        """Return that no single change has removed any of `keys`: there are none."""
        return np.zeros(len(keys), dtype=np.bool_)

    def source_of(self, entry: Entry) -> Source:
        """Return whether the file has `entry`; perhaps wrongly, as `match` does."""
        held = self.domains if entry.kind == "domain" else self.addresses
        there = held is not None and held.contains_many(self.hash.digests([entry.key]))[0]
        return "file" if there else "-"

    def candidates(self, keys: Column) -> tuple[Integers, Column]:
        """Return the keys by which the list may hold the domains of `keys`, as `Normalizing.candidates` does."""
        return self.facts.normalizing.candidates(keys)

    def warm_up(self) -> None:
        """Compile the kernels that `match` runs, or load them from the cache, so that no batch waits for that."""
        domains.warm_up()
        if isinstance(self.facts.normalizing.rules, UrlRules):
            host_column.warm_up()
        digest = np.zeros((1, 2), dtype=np.uint64)
        for held in (self.addresses, self.domains):
            if held is not None:
                held.contains_many(digest)

    def refuse_unless(self, found: Normalizer | None) -> None:
        """Raise ConfigError if the list was built with another normalizer than `found`; None changes no key."""
        built = self.facts
        if id_of(found) != built.normalize:
            raise ConfigError(
                f"the list {self.path or self.name} holds keys normalized by {built.normalize!r}, but would be asked"
                f" for keys normalized by {id_of(found)!r}",
                remedy=f"build it again with the worker's key.normalize and"
                f" its rules (`lists build -c`), or set the worker's key.normalize: {built.normalizing.name}, with"
                " the rules of this list",
            )

    def normalizer(self) -> Normalizer | None:
        """Return the normalizer of the build. ConfigError if it makes other keys in this version of streamdedup."""
        made = self.facts.normalizing.normalizer()
        self.refuse_unless(made)
        return made

    def header(self) -> dict[str, Any]:
        """Return everything but the tables, as plain JSON values."""
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
        """Return the tables of addresses, then those of domains."""
        return _buffers(self.addresses, self.domains)

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], buffers: list[memoryview], hash_: Hash) -> Self:
        """Return the list with this header, over these buffers without a copy.

        ValueError or another error if they do not fit together; `files.made_by` turns it into a SnapshotError.
        """
        of_addresses = number(header, "address_buffers", 0, len(buffers))
        parts = field(header, "addresses", dict), buffers[:of_addresses]
        addresses = filters.from_parts(*parts, hash_)
        domains = None
        if header.get("domains") is not None:
            parts = field(header, "domains", dict), buffers[of_addresses:]
            domains = filters.from_parts(*parts, hash_)
        elif of_addresses != len(buffers):
            raise ValueError("it has tables that belong to nothing")
        return cls(Facts.from_header(header), addresses, domains)


def load(path: str | os.PathLike[str], *, hash_key: bytes = b"", verify: bool = True) -> KeyList:
    """Return the list at `path`, mapped read-only: all processes share its pages. Blocking, 0.1 s for 100 MB.

    If its hash is siphash, pass the `hash_key` of the build. With `verify=False` the checksums of the tables are not
    compared. A list of at most COPIED_BYTES_MAX is copied into memory if it is verified. Replace a mapped one only by
    a rename: cutting the file short or writing to it breaks the processes that map it.

    SnapshotError: the file cannot be read or is damaged. ConfigError: it is not a list, or `hash_key` is wrong.
    """
    source = Path(path)
    mapped = not verify or not _is_small(source)
    with files.reading(source, mmap=mapped, verify=verify) as reader:
        if (kind := reader.header.filter.get("kind")) != files.LIST:
            raise ConfigError(
                f"cannot use {source}: it is a filter of kind {kind}, not a list",
                remedy="`streamdedup lists build` makes one",
            )
        made = files.made_by(KeyList.from_parts, reader, hash_key, source)
        return replace(made, path=source, is_mapped=mapped)


def load_for_worker(path: Path, secret: bytes) -> KeyList:
    """Return the list at `path` for a worker that has this `secret`, if any, by `load`.

    If the list is of another hash, the ConfigError names the options of a worker.
    """
    try:
        return load(path, hash_key=secret)
    except files.OtherHashError as error:
        if not secret:
            how = (
                f"{path} was built with {error.name} under a secret, and this worker has none: set filter.hash_key_file"
                " to that secret, or"
            )
        elif error.name == MURMUR3.name:
            how = f"{path} was built with murmur3, and this worker has filter.hash_key_file:"
        else:
            how = f"{path} was built under another secret than filter.hash_key_file:"
        raise ConfigError(f"{how} build it again with `lists build -c CONFIGURATION`") from None


def _is_small(path: Path) -> bool:
    """Return whether a copy costs next to nothing. With a copy, writing to the file, as `cp` does, harms nobody."""
    try:
        return path.stat().st_size <= COPIED_BYTES_MAX
    except OSError:
        return False  # `reading` reports the error


def _buffers(addresses: Filter, domains: Filter | None) -> list[memoryview]:
    return [*addresses.buffers(), *([] if domains is None else domains.buffers())]
