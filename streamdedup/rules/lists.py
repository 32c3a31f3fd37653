"""The lists of a worker: which keys the blocklist holds, and which of these the allowlist exempts.

One pair of lists judges a whole batch. A pair is never changed, only replaced. The allowlist corrects false positives
of the blocklist. The rules that follow still judge an exempt key; a blocked key reaches none of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from streamdedup.events import Column, Integers
from streamdedup.keys.hashing import MURMUR3, Digests, Hash

Matches = npt.NDArray[np.uint8]
Answers = npt.NDArray[np.uint8]


class Match(IntEnum):
    """Which part of a key is on a list; one uint8."""

    NONE = 0
    ADDRESS = 1  # the whole key
    DOMAIN = 2  # the domain of an address or the host of a URL, or a domain above it


class Answer(IntEnum):
    """What an exact store found for a whole key that its list was asked for; one uint8."""

    UNASKED = 0  # the list itself was not asked: a single change decides about the key
    ABSENT = 1  # the list does not match it; its domain may be on it
    CONFIRMED = 2  # the list matches it, and the store contains it
    FALSE_POSITIVE = 3  # the list matches it, and the store does not contain it


class Cause(NamedTuple):
    """What blocks a key: `file`, that of the list; or `change`, a single change, and its `reason`, if that is known."""

    by: Literal["file", "change"]
    reason: str = ""


class Causes(NamedTuple):
    """The causes of k matches: that of the i-th is `each[which[i]]`."""

    which: Integers
    each: Sequence[Cause]

    @classmethod
    def file_alone(cls, count: int) -> "Causes":
        """Return those of so many keys that the file of the list blocks."""
        return cls(np.zeros(count, dtype=np.int64), _FILE_ALONE)

    def head(self, count: int) -> "Causes":
        """Return the first `count`."""
        return self._replace(which=self.which[:count])


_FILE_ALONE = (Cause("file"),)


class Matcher(Protocol):
    """One version of a list of keys. It may match a key wrongly, and never misses a key that is on it."""

    @property
    def name(self) -> str:
        """The name for people, in headers, logs and metrics."""

    @property
    def version(self) -> str:
        """The version; it differs whenever the entries may differ."""

    @property
    def is_mapped(self) -> bool:
        """Whether `match` reads a mapped file, so that it may wait for a disk whose pages are not in memory."""

    def match(self, keys: Column, digests: Digests) -> Matches:
        """Return a `Match` for each key, shape (n,), dtype uint8.

        `digests` (n, 2) are those of `keys`, none of which is null.
        """

    def causes(self, keys: Column, digests: Digests, matches: Matches) -> Causes:
        """Return why each of `keys` matches, all of which do, as `match` returned in `matches` (n,).

        If both have the entry, the change is the cause, since it wins over the file.
        """


@runtime_checkable
class Sized(Protocol):
    """A `Matcher` that knows how large it is."""

    @property
    def entries(self) -> int:
        """How many entries its file has."""

    @property
    def changes(self) -> int | None:
        """How many keys have single changes; None if there is no control topic."""


@runtime_checkable
class Verifier(Protocol):
    """A `Matcher` with an exact store.

    The list in memory is asked first. Only for its matches is the store asked, in a thread.
    """

    def suspects(self, keys: Column, digests: Digests) -> "StoreQuery":
        """Ask the list in memory. The arguments are those of `Matcher.match`."""


class StoreQuery(Protocol):
    """The matches of a `Verifier` in a batch. Only for these must its store be asked."""

    def __len__(self) -> int: ...

    def verify(self) -> tuple[Matches, Answers]:
        """Return the matches that the store confirms, as `Matcher.match` would, and an `Answer` for each key.

        Both are (n,), uint8. This blocks while a disk is read, unless there are no suspects.
        """


class Verified(NamedTuple):
    """The rows of a batch for which a list with an exact store was asked, ascending, and its answers: both (n,)."""

    rows: Integers
    answers: Answers

    def head(self, count: int) -> "Verified":
        """Return the same for the first `count` rows of the batch."""
        kept = int(np.searchsorted(self.rows, count))
        return Verified(self.rows[:kept], self.answers[:kept])


_NO_ROWS: Integers = np.zeros(0, dtype=np.int64)
_NO_MATCHES: Matches = np.zeros(0, dtype=np.uint8)
NOT_VERIFIED = Verified(_NO_ROWS, _NO_MATCHES)


class BlockedRows(NamedTuple):
    """The blocked rows of a batch, ascending, which part of each key matched, both (k,), and the `causes` of both.

    `lists` have judged. `exempt` are the rows, ascending, that the blocklist matches and the allowlist exempts.
    `verified` has no rows if no exact store was asked.
    """

    rows: Integers
    matches: Matches
    causes: Causes
    exempt: Integers
    lists: "Lists"
    verified: Verified = NOT_VERIFIED

    def head(self, count: int) -> "BlockedRows":
        """Return the same for the first `count` rows of the batch."""
        kept = int(np.searchsorted(self.rows, count))
        exempt = self.exempt[: int(np.searchsorted(self.exempt, count))]
        verified = self.verified.head(count)
        causes = self.causes.head(kept)
        return BlockedRows(
            self.rows[:kept], self.matches[:kept], causes, exempt, self.lists, verified
        )

    @classmethod
    def none_of(cls, lists: "Lists") -> "BlockedRows":
        """Return that `lists` block nothing."""
        return cls(_NO_ROWS, _NO_MATCHES, Causes.file_alone(0), _NO_ROWS, lists)


@dataclass(frozen=True, slots=True)
class Lists:
    """The lists that judge a batch. Each is optional. `hash` makes the digests by which both are looked up."""

    allow: Matcher | None = None
    block: Matcher | None = None
    hash: Hash = MURMUR3

    @property
    def by_section(self) -> dict[str, Matcher]:
        """The lists that there are, each by its section of the configuration."""
        both = {"allowlist": self.allow, "blocklist": self.block}
        return {section: listed for section, listed in both.items() if listed is not None}

    @property
    def are_mapped(self) -> bool:
        """Whether a list is a mapped file, so that `ask` may wait for a disk."""
        return any(listed.is_mapped for listed in self.by_section.values())

    def ask(
        self, rows: Integers, keys: Column, digests: Digests, hash_: Hash
    ) -> "BlockedRows | NeedsStore":
        """Return which of `rows` (n,) of a batch, ascending, are blocked; or what an exact store must be asked for.

        `keys` (n,) are those of the rows, `digests` (n, 2) theirs by `hash_`; if that is not the hash of the lists, and
        there are lists, the keys are hashed again. This may wait for the disk of a mapped list.
        """
        if self.block is None:
            return BlockedRows.none_of(self)
        if hash_ != self.hash:
            digests = self.hash.of_column(keys)
        if isinstance(self.block, Verifier):
            said = NeedsStore(self, rows, keys, digests, self.block.suspects(keys, digests))
            return said if len(said.suspects) else said.verified()
        return self.exempted(rows, keys, digests, self.block.match(keys, digests), NOT_VERIFIED)

    def screen(self, rows: Integers, keys: Column, digests: Digests, hash_: Hash) -> BlockedRows:
        """Do what `ask` does, and ask the exact store at once if it must be asked. This may wait for its disk, too."""
        said = self.ask(rows, keys, digests, hash_)
        return said.verified() if isinstance(said, NeedsStore) else said

    def exempted(
        self, rows: Integers, keys: Column, digests: Digests, matches: Matches, verified: Verified
    ) -> BlockedRows:
        """Return which rows are blocked: those that the blocklist matches, less those that the allowlist holds.

        `matches` (n,) are the blocklist's. The causes are asked for the blocked rows alone, which are few.
        """
        hits = np.flatnonzero(matches)
        allowed = np.zeros(len(hits), dtype=np.bool_)
        if self.allow is not None and len(hits):  # only for the matches, which are few
            allowed = self.allow.match(keys.take(hits), digests[hits]) != Match.NONE
        blocked, exempt = hits[~allowed], rows[hits[allowed]]
        if self.block is None or not len(blocked):
            return BlockedRows.none_of(self)._replace(exempt=exempt, verified=verified)
        found = matches[blocked]
        causes = self.block.causes(keys.take(blocked), digests[blocked], found)
        return BlockedRows(rows[blocked], found, causes, exempt, self, verified)


@dataclass(frozen=True, slots=True)
class NeedsStore:
    """A batch for which the lists were asked in memory; their exact store must still be asked for `suspects`."""

    lists: Lists
    rows: Integers
    keys: Column
    digests: Digests
    suspects: StoreQuery

    def verified(self) -> BlockedRows:
        """Ask the store, and return which rows are blocked. This blocks while a disk is read."""
        matches, answers = self.suspects.verify()
        verified = Verified(self.rows, answers)
        return self.lists.exempted(self.rows, self.keys, self.digests, matches, verified)


NO_LISTS = Lists()
NOTHING_BLOCKED = BlockedRows.none_of(NO_LISTS)


@dataclass
class ListsInForce:
    """The only holder of a worker's lists in force. It is read once a batch, and replaced between two batches.

    `refused` has the reason, by the list, if its file as it is now is not in force. It is replaced as a whole.
    """

    now: Lists = NO_LISTS
    refused: Mapping[str, str] = field(default_factory=dict)
