"""The lists of a worker: which keys the block list holds, and which of these the allow list exempts.

A batch is judged by one pair of lists, which is never changed, only replaced. What the block list matches wrongly, the
allow list makes good; what it exempts is still judged by the rules that follow. What is blocked reaches none of them.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from streamdedup.events import Column, Integers
from streamdedup.keys.hashing import Digests

Matches = npt.NDArray[np.uint8]
Answers = npt.NDArray[np.uint8]


class Match(IntEnum):
    """What of a key stands on a list: one uint8."""

    NONE = 0
    ADDRESS = 1  # the whole key
    DOMAIN = 2  # the domain of an address, or one above it


class Answer(IntEnum):
    """What an exact store makes of what its list says of a whole key: one uint8."""

    UNASKED = 0  # the list itself was not asked: a single change says what becomes of the key
    ABSENT = 1  # the list does not match it; its domain may be on it
    CONFIRMED = 2  # the list matches it, and the store has it
    FALSE_POSITIVE = 3  # the list matches it, and the store has it not


class Matcher(Protocol):
    """A list of keys, in one version. It may match a key wrongly, and never misses one that is on it."""

    @property
    def name(self) -> str:
        """What people call it; it stands in headers, logs and metrics."""

    @property
    def version(self) -> str:
        """Another one wherever the entries may be others."""

    def match(self, keys: Column, digests: Digests) -> Matches:
        """A `Match` for each key, shape (n,), dtype uint8. `digests` (n, 2) are of `keys`, of which none is null."""


@runtime_checkable
class Verifier(Protocol):
    """A `Matcher` with an exact store behind it: it is asked in memory, then beside the loop, for what it matches."""

    def suspects(self, keys: Column, digests: Digests) -> "Suspects":
        """What may be on the list, told in memory; the arguments are those of `Matcher.match`."""


class Suspects(Protocol):
    """Of a batch, what a `Verifier` matches: for this, and for nothing else, its store is to be asked."""

    def __len__(self) -> int: ...

    def verify(self) -> tuple[Matches, Answers]:
        """As `Matcher.match`, without what the store has not; and an `Answer` for each key, shape (n,), uint8.

        Blocking, for a disk, unless there are none.
        """


class Verified(NamedTuple):
    """The rows of a batch that a list with an exact store was asked for, ascending, and its answers: both (n,)."""

    rows: Integers
    answers: Answers

    def head(self, count: int) -> "Verified":
        """The same of the first `count` rows of the batch."""
        kept = int(np.searchsorted(self.rows, count))
        return Verified(self.rows[:kept], self.answers[:kept])


_NO_ROWS: Integers = np.zeros(0, dtype=np.int64)
_NO_MATCHES: Matches = np.zeros(0, dtype=np.uint8)
NOT_VERIFIED = Verified(_NO_ROWS, _NO_MATCHES)


class Blocked(NamedTuple):
    """The rows of a batch that are blocked, ascending, and what of each was matched: both (k,); by which lists.

    `exempt` are the rows, ascending, that the block list matches and the allow list exempts. `verified` has no rows
    where no exact store was asked.
    """

    rows: Integers
    matches: Matches
    exempt: Integers
    lists: "Lists"
    verified: Verified = NOT_VERIFIED

    def head(self, count: int) -> "Blocked":
        """The same of the first `count` rows of the batch."""
        kept = int(np.searchsorted(self.rows, count))
        exempt = self.exempt[: int(np.searchsorted(self.exempt, count))]
        verified = self.verified.head(count)
        return Blocked(self.rows[:kept], self.matches[:kept], exempt, self.lists, verified)


@dataclass(frozen=True, slots=True)
class Lists:
    """The lists by which a batch is judged, each optional."""

    allow: Matcher | None = None
    block: Matcher | None = None

    @property
    def ask_a_disk(self) -> bool:
        """Whether `screen` waits for a disk."""
        return isinstance(self.block, Verifier)

    def screen(self, rows: Integers, keys: Column, digests: Digests) -> Blocked:
        """Which of `rows` (n,) of a batch, ascending, are blocked; `keys` and `digests` (n, 2) are theirs."""
        said = self.ask(rows, keys, digests)
        return (said.verified() if isinstance(said, Suspected) else said).blocked

    def ask(self, rows: Integers, keys: Column, digests: Digests) -> "Screened | Suspected":
        """As `screen`, but for a disk: where one is to be asked, what for."""
        if self.block is None:
            return Screened(Blocked(_NO_ROWS, _NO_MATCHES, _NO_ROWS, self))
        if isinstance(self.block, Verifier):
            said = Suspected(self, rows, keys, digests, self.block.suspects(keys, digests))
            return said if len(said.suspects) else said.verified()
        matches = self.block.match(keys, digests)
        return Screened(self.exempted(rows, keys, digests, matches, NOT_VERIFIED))

    def exempted(
        self, rows: Integers, keys: Column, digests: Digests, matches: Matches, verified: Verified
    ) -> Blocked:
        """What is blocked of the rows that the block list says `matches` (n,) of: all but what the allow list has."""
        hits = np.flatnonzero(matches)
        allowed = np.zeros(len(hits), dtype=np.bool_)
        if self.allow is not None and len(hits):  # few are: it is not asked for the others
            allowed = self.allow.match(keys.take(hits), digests[hits]) != Match.NONE
        blocked = hits[~allowed]
        return Blocked(rows[blocked], matches[blocked], rows[hits[allowed]], self, verified)


@dataclass(frozen=True, slots=True)
class Suspected:
    """A batch of which `lists` told all that they could in memory; their exact store is to be asked for `suspects`."""

    lists: Lists
    rows: Integers
    keys: Column
    digests: Digests
    suspects: Suspects

    def verified(self) -> "Screened":
        """What the store makes of it. Blocking, for a disk."""
        matches, answers = self.suspects.verify()
        asked = self.rows, self.keys, self.digests
        return Screened(self.lists.exempted(*asked, matches, Verified(self.rows, answers)))


@dataclass(frozen=True, slots=True)
class Screened:
    """In place of lists that were asked beforehand, in a thread: what they said of the batch."""

    blocked: Blocked

    def screen(self, _rows: Integers, _keys: Column, _digests: Digests) -> Blocked:
        """As `Lists.screen`."""
        return self.blocked


NO_LISTS = Lists()
NOTHING_BLOCKED = Blocked(_NO_ROWS, _NO_MATCHES, _NO_ROWS, NO_LISTS)


@dataclass
class InForce:
    """The one place of a worker that holds its lists: read once a batch, replaced between two."""

    now: Lists = NO_LISTS
