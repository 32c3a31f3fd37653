"""`lists check`: whether each key is blocked, and by which rule, in the order of a worker's rules."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

import numpy as np

from streamdedup.errors import ConfigError
from streamdedup.events import Column
from streamdedup.filters.base import Mask
from streamdedup.keys.hashing import MURMUR3, Digests, Hash
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.lists.build.blocks import LINE_BYTES_MAX, blocks
from streamdedup.lists.build.entries import TOO_LONG
from streamdedup.lists.exact_store import ExactStore
from streamdedup.lists.key_list import KeyList, load
from streamdedup.lists.matching import Entry, Source
from streamdedup.lists.verified_list import VerifiedList
from streamdedup.rules.lists import Answer, Lists, Match, Matcher
from streamdedup.snapshot.files import OtherHashError
from streamdedup.units import escaped

_PLAIN = re.compile(rb"[ -~]*")
# Bytes that are no UTF-8, nor control characters anywhere.
_NO_TEXT = "".join(map(chr, range(0xDCA0, 0xDD00)))


@runtime_checkable
class Asked(Matcher, Protocol):
    """A block list that can be asked why it does not match."""

    def removed(self, keys: Column, digests: Digests) -> Mask:
        """Return which of `keys` a single change has removed, or a domain of theirs: (n,)."""

    def source_of(self, entry: Entry) -> Source:
        """Return what has `entry`. This may read a disk."""


def asked(lists: Lists) -> Asked:
    """Return the block list of a worker. ConfigError if there is none."""
    if not isinstance(lists.block, Asked):
        raise ConfigError(
            "blocklist.file is not set, so workers block nothing; set it to the list of the workers"
        )
    return lists.block


class Verdicts:
    """Keys that `block` matches are blocked, unless its exact store does not hold them or `allow` exempts them.

    Both are asked by `hash_`, for keys as `normalizer` makes them. `names_sources`: a line says, before the key, what
    decides: the `file` of a list, or a `change`.
    """

    def __init__(
        self,
        block: Asked,
        allow: Matcher | None,
        hash_: Hash,
        normalizer: Normalizer | None,
        *,
        names_sources: bool,
    ) -> None:
        self._block, self._allow, self._hash = block, allow, hash_
        self._normalizer, self._names_sources = normalizer, names_sources

    @classmethod
    def of_files(cls, block: KeyList, allow: KeyList | None, store: ExactStore | None) -> Self:
        """Return those of a list alone, with the exact store of its file, if that is to be asked.

        ConfigError if the two lists normalize keys differently.
        """
        normalizer = block.normalizer()
        if allow is not None:
            allow.refuse_unless(normalizer)
        asked = block if store is None else VerifiedList(block, store)
        return cls(asked, allow, block.hash, normalizer, names_sources=False)

    @classmethod
    def in_force(cls, lists: Lists, normalizer: Normalizer | None) -> Self:
        """Return those of the lists of a worker. ConfigError if there is no block list."""
        return cls(asked(lists), lists.allow, lists.hash, normalizer, names_sources=True)

    def of_lines(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the answers of `of_keys` for every line of `chunks`, empty ones included."""
        for block in blocks(chunks):
            yield self._verdict_lines(block.lines)

    def of_keys(self, keys: list[bytes]) -> bytes:
        """Return a line for each key: verdict, rule or reason, what decides if that is named, and the key, by tabs.

        The key is as it was given, but for control characters, which are escaped.
        """
        return self._verdict_lines(Column.of(keys)) if keys else b""

    def _verdict_lines(self, given: Column) -> bytes:
        long = (given.sizes > LINE_BYTES_MAX).nonzero()[0]  # these are cut
        keys, malformed = given.nulled(long), dict[int, str]()
        if self._normalizer is not None:
            keys, malformed = self._normalizer.of_column(keys)
        malformed |= dict.fromkeys(long.tolist(), TOO_LONG)
        rows = (keys.sizes >= 0).nonzero()[0]
        said = {row: ("malformed", escaped(reason), "-") for row, reason in malformed.items()}
        said |= zip(rows.tolist(), self._of_normalized(keys.take(rows)), strict=True)
        fields = 3 if self._names_sources else 2
        return b"".join(
            "\t".join(said[row][:fields]).encode()
            + b"\t"
            + _shown((key or b"")[:LINE_BYTES_MAX])
            + b"\n"
            for row, key in enumerate(given)
        )

    def _of_normalized(self, keys: Column) -> Iterator[tuple[str, str, str]]:
        """Yield verdict, rule and what decides, of each key."""
        digests, answers = self._hash.of_column(keys), np.zeros(len(keys), dtype=np.uint8)
        if isinstance(self._block, VerifiedList):
            matches, answers = self._block.verify(keys, digests)
        else:
            matches = self._block.match(keys, digests)
        sources = np.full(len(keys), "file", dtype=object)
        hits, rest = matches.nonzero()[0], (matches == 0).nonzero()[0]
        which, causes = self._block.causes(keys.take(hits), digests[hits], matches[hits])
        sources[hits] = [causes[number].by for number in which.tolist()]
        removed = np.zeros(len(keys), dtype=np.bool_)
        removed[rest] = self._block.removed(keys.take(rest), digests[rest])
        exempt = np.zeros(len(keys), dtype=np.bool_)
        if self._allow is not None:
            exempt = self._allow.match(keys, digests) != Match.NONE
        for match, answer, source, is_removed, is_exempt in zip(
            matches.tolist(), answers.tolist(), sources, removed, exempt, strict=True
        ):
            if is_exempt:
                yield "pass", "allowlist", "file"
            elif match:
                yield "blocked", Match(match).name.lower(), source
            elif is_removed and self._names_sources:
                yield "pass", "removed", "change"
            elif answer == Answer.FALSE_POSITIVE:
                yield "pass", "false-positive", "file"
            else:
                yield "pass", "-", "-"


def _shown(key: bytes) -> bytes:
    """Return the key for a line: as it was given, but for what would end the line or steer a terminal."""
    if _PLAIN.fullmatch(key):
        return key
    text = key.decode("utf-8", "surrogateescape")
    return escaped(text, keep=_NO_TEXT).encode("utf-8", "surrogateescape")


def loaded(path: Path, hash_key: bytes) -> KeyList:
    """Return the list at `path`, by `load`. Its errors name the option of the command line instead of `hash_key`."""
    try:
        return load(path, hash_key=hash_key)
    except OtherHashError as error:
        how = f"cannot use {path}: its hash is {error.name}"
        if hash_key and error.name == MURMUR3.name:
            raise ConfigError(f"{how}, which has no secret: leave out --hash-key-file") from None
        secret = "another secret than that of --hash-key-file" if hash_key else "a secret"
        raise ConfigError(
            f"{how} under {secret}: give the worker's configuration (-c my.yaml), or the file of the secret"
            " (--hash-key-file)"
        ) from None
    except ConfigError as error:
        raise ConfigError(re.sub(r"\bhash_key\b", "--hash-key-file", str(error))) from None
