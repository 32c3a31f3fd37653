"""What an exact store records about itself: the list that it belongs to, and its files.

The stores of the list FILE are the directories FILE.exact/VERSION, one for each version of the list. Each consists of
RocksDB's files and of `store.json`, which is written last and names the others, with sizes and checksums.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import crc32c

from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.lists.key_list import KeyList
from streamdedup.snapshot.files import blaming
from streamdedup.snapshot.header import DamagedFileError, field, number, parse_object

FACTS = "store.json"
FORMAT = 1
SUFFIX = ".exact"
FACTS_BYTES_MAX = 1 << 20
CHUNK_BYTES = 1 << 20
CRC_MAX = (1 << 32) - 1
VERSION = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ-[0-9a-f]{8}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
AGAIN = "build the list again, with --exact"


def place_of(listed: Path) -> Path:
    """Return the directory of the stores of the list at that path."""
    return listed.with_name(listed.name + SUFFIX)


@dataclass(frozen=True)
class Owner:
    """The list that a store belongs to: its version, and how its keys became digests."""

    version: str
    hash: str
    hash_check: str
    normalize: str

    @classmethod
    def of(cls, listed: KeyList) -> Self:
        """Return the owner that `listed` is."""
        facts, hash_ = listed.facts, listed.hash
        return cls(facts.version, hash_.name, hash_.check, facts.normalize)


@dataclass(frozen=True)
class Sized:
    """A file's length in bytes, and the CRC-32C of all its bytes."""

    size_bytes: int
    checksum: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Measure a file. Blocking."""
        size_bytes = checksum = 0
        for chunk in _chunks(path):
            size_bytes += len(chunk)
            checksum = crc32c.crc32c(chunk, checksum)
        return cls(size_bytes, checksum)


@dataclass(frozen=True)
class StoreFacts:
    """`entries` are the keys that the store holds, each once, of addresses and domains; `files` are by name."""

    owner: Owner
    entries: int
    files: Mapping[str, Sized]

    @property
    def size_bytes(self) -> int:
        """The size of all its files together."""
        return sum(file.size_bytes for file in self.files.values())

    def text(self) -> bytes:
        """Return the text that `read_facts` reads."""
        found = {
            "format": FORMAT,
            "owner": asdict(self.owner),
            "entries": self.entries,
            "files": {name: asdict(file) for name, file in self.files.items()},
        }
        return _json({"checksum": crc32c.crc32c(_json(found)), "store": found})


def read_facts(directory: Path) -> StoreFacts:
    """Return what the store in `directory` records. SnapshotError if it is not a store, or `store.json` is damaged."""
    with blaming("read", directory / FACTS, AGAIN), (directory / FACTS).open("rb") as file:
        text = file.read(FACTS_BYTES_MAX + 1)
    try:
        return _parsed(text)
    except SnapshotError as error:
        raise SnapshotError(f"cannot use {directory}: {FACTS}: {error}; {AGAIN}") from None


def check_files(directory: Path, facts: StoreFacts) -> None:
    """SnapshotError if a file of the store has changed. Blocking: all of them are read."""
    for name, file in facts.files.items():
        with blaming("read", directory / name, AGAIN):
            found = Sized.of(directory / name)
        if found.size_bytes != file.size_bytes:
            raise SnapshotError(
                f"cannot use {directory}: {name} has {found.size_bytes:,} bytes instead of {file.size_bytes:,};"
                f" {AGAIN}"
            )
        if found.checksum != file.checksum:
            raise SnapshotError(
                f"cannot use {directory}: the checksum of {name} does not hold; {AGAIN}"
            )


def store_of(place: Path, listed: KeyList) -> Path:
    """Return the directory in `place` that holds the store of `listed`. ConfigError if there is none.

    SnapshotError if `place` cannot be read.
    """
    there = versions_in(place)
    if listed.version in there:
        return place / listed.version
    found = f"{place} holds only version {', '.join(there)}" if there else _no_store(place)
    raise ConfigError(
        f"the list {listed.path or listed.name}, version {listed.version}, has no exact store: {found}; {AGAIN}"
    )


def versions_in(place: Path) -> list[str]:
    """Return the versions that have a store in `place`, by the directories' names, ascending.

    SnapshotError if `place` cannot be read. If there is no such directory, there are none.
    """
    with blaming("read", place, AGAIN):
        try:
            there = [path for path in place.iterdir() if VERSION.fullmatch(path.name)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(path.name for path in there if (path / FACTS).is_file())


def refuse_other(directory: Path, found: Owner, asked: Owner) -> None:
    """ConfigError unless `found`, the owner of a store, is the list `asked`."""
    for each in fields(Owner):
        theirs, ours = getattr(found, each.name), getattr(asked, each.name)
        if theirs != ours:
            raise ConfigError(
                f"{directory} is not the exact store of this list: it has {each.name} {theirs!r} instead of {ours!r};"
                f" {AGAIN}"
            )


def _no_store(place: Path) -> str:
    return f"{place} holds none" if place.is_dir() else f"{place} does not exist"


def _parsed(text: bytes) -> StoreFacts:
    if len(text) > FACTS_BYTES_MAX:
        raise DamagedFileError(f"it has more than {FACTS_BYTES_MAX:,} bytes")
    raw = parse_object(bytearray(text))
    found = field(raw, "store", dict)
    if number(raw, "checksum", 0, CRC_MAX) != crc32c.crc32c(_json(found)):
        raise DamagedFileError("its checksum does not hold")
    if (version := number(found, "format", 1)) != FORMAT:
        raise SnapshotError(f"it has format {version}, but this streamdedup reads format {FORMAT}")
    owner = field(found, "owner", dict)
    return StoreFacts(
        owner=Owner(**{each.name: field(owner, each.name, str) for each in fields(Owner)}),
        entries=number(found, "entries", 0),
        files={name: _sized(name, file) for name, file in field(found, "files", dict).items()},
    )


def _sized(name: str, file: Any) -> Sized:  # noqa: ANN401 - any JSON
    if not _NAME.fullmatch(name) or not isinstance(file, dict):
        raise DamagedFileError("it names a file that no store can have")
    return Sized(number(file, "size_bytes", 0), number(file, "checksum", 0, CRC_MAX))


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
