"""The lists of a worker: which keys the block list holds, and which of these the allow list exempts.

A batch is judged by one pair of lists, which is never changed, only replaced. What the block list matches wrongly, the
allow list makes good; what it exempts is still judged by the rules that follow. What is blocked reaches none of them.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from streamdedup.events import Column, Integers
from streamdedup.keys.hashing import Digests, Hash

Matches = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


class Match(IntEnum):
    """What of a key stands on a list: one uint8."""

    NONE = 0
    ADDRESS = 1  # the whole key
    DOMAIN = 2  # the domain of an address, or one above it


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


class Blocked(NamedTuple):
    """The rows of a batch that are blocked, ascending, and what of each was matched: both (k,); by which lists.

    `exempt` are the rows, ascending, that the block list matches and the allow list exempts.
    """

    rows: Integers
    matches: Matches
    exempt: Integers
    lists: "Lists"

    def head(self, count: int) -> "Blocked":
        """The same of the first `count` rows of the batch."""
        kept = int(np.searchsorted(self.rows, count))
        exempt = self.exempt[: int(np.searchsorted(self.exempt, count))]
        return Blocked(self.rows[:kept], self.matches[:kept], exempt, self.lists)


@dataclass(frozen=True, slots=True)
class Lists:
    """The lists by which a batch is judged, each optional."""

    allow: Matcher | None = None
    block: Matcher | None = None

    def screen(self, rows: Integers, keys: Column, digests: Digests) -> Blocked:
        """Which of `rows` (n,) of a batch, ascending, are blocked; `keys` and `digests` (n, 2) are theirs."""
        if self.block is None:
            return Blocked(_NO_ROWS, _NO_MATCHES, _NO_ROWS, self)
        return self._blocked(rows, *self._ask(self.block, keys, digests))

    def asked(self, keys: Column, hash_: Hash) -> "Lists":
        """The same, which know already what they say of all keys of a batch, nulls among them. For a thread."""
        if self.block is None:
            return self
        there = np.flatnonzero(keys.sizes >= 0)
        given = keys.take(there)
        digests = hash_.of_column(given.buffer, given.starts, given.sizes)
        matches = np.zeros(len(keys), dtype=np.uint8)
        allowed = np.zeros(len(keys), dtype=np.bool_)
        matches[there], allowed[there] = self._ask(self.block, given, digests)
        return _AskedLists(self.allow, self.block, matches, allowed)

    def _ask(self, block: Matcher, keys: Column, digests: Digests) -> tuple[Matches, Mask]:
        """What the block list matches, and what of it the allow list exempts, both (n,)."""
        matches = block.match(keys, digests)
        allowed = np.zeros(len(matches), dtype=np.bool_)
        hits = np.flatnonzero(matches)
        if self.allow is not None and len(hits):  # few are: it is not asked for the others
            allowed[hits] = self.allow.match(keys.take(hits), digests[hits]) != Match.NONE
        return matches, allowed

    def _blocked(self, rows: Integers, matches: Matches, allowed: Mask) -> Blocked:
        hits = matches != Match.NONE
        blocked = hits & ~allowed
        return Blocked(rows[blocked], matches[blocked], rows[allowed], self)


@dataclass(frozen=True, slots=True)
class _AskedLists(Lists):
    """Lists with what they say of each row of one batch, and of no other."""

    matches: Matches = field(default_factory=lambda: _NO_MATCHES)
    allowed: Mask = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def screen(
        self,
        rows: Integers,
        keys: Column,  # noqa: ARG002 - they were asked for already
        digests: Digests,  # noqa: ARG002
    ) -> Blocked:
        """As `Lists.screen`."""
        return self._blocked(rows, self.matches[rows], self.allowed[rows])


_NO_ROWS: Integers = np.zeros(0, dtype=np.int64)
_NO_MATCHES: Matches = np.zeros(0, dtype=np.uint8)

NO_LISTS = Lists()
NOTHING_BLOCKED = Blocked(_NO_ROWS, _NO_MATCHES, _NO_ROWS, NO_LISTS)


@dataclass
class InForce:
    """The one place of a worker that holds its lists: read once a batch, replaced between two."""

    now: Lists = NO_LISTS
