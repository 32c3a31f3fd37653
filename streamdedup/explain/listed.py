"""What the lists say of a key, and which list, entry or single change it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamdedup.events import Column, Integers
from streamdedup.rules.lists import NOT_VERIFIED, Cause, Causes, Lists, Match, Matcher, Matches

_HELD = {"address": "the whole key", "domain": "its domain or host"}


@dataclass(frozen=True, slots=True)
class Listed:
    """A key that the block list matches: by `match`. `exempt`: the allow list lets it pass all the same.

    `cause` is the list's file, or a single change of the control topic with its reason.
    """

    name: str
    version: str
    match: Match
    exempt: bool
    cause: Cause

    @property
    def rule(self) -> str:
        """The rule that decides."""
        return "allowlist" if self.exempt else "blocklist"

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain JSON values."""
        return {
            "list": self.name,
            "version": self.version,
            "match": self.match.name.lower(),
            "exempt": self.exempt,
            "source": self.cause.by,
            "reason": self.cause.reason or None,
        }

    def __str__(self) -> str:
        """Return it for a person."""
        values = self.name, self.version, self.match.name.lower(), self.cause.by, self.cause.reason
        how = blocked_by("holds", values)
        return f"{how}; the allow list exempts it" if self.exempt else how


def blocked_by(holds: str, values: Sequence[str]) -> str:
    """Return, for a person, which list blocks a key and why. `holds` is the verb, in its tense.

    `values` are those of the headers `BLOCKED_BY` of a letter, in their order.
    """
    name, version, match, source, reason = values
    held = _HELD.get(match, match)
    how = ", by a single change of the control topic" if source == "change" else ""
    why = f" (reason: {reason})" if reason else ""
    return f"the list {name}, version {version}, {holds} {held}{how}{why}"


def listed(lists: Lists, keys: Column) -> dict[int, Listed]:
    """Return what the lists say of `keys`, by row; nothing for one that the block list does not match.

    This may wait for the disk of a mapped list.
    """
    block = lists.block
    if block is None or not len(keys):
        return {}
    rows, digests = np.arange(len(keys)), lists.hash.of_column(keys)
    matches = block.match(keys, digests)
    blocked = lists.exempted(rows, keys, digests, matches, NOT_VERIFIED)
    exempt, found = blocked.exempt, matches[blocked.exempt]
    why = block.causes(keys.take(exempt), digests[exempt], found)
    return {
        **_by_row(block, blocked.rows, blocked.matches, blocked.causes, exempt=False),
        **_by_row(block, exempt, found, why, exempt=True),
    }


def _by_row(
    block: Matcher, rows: Integers, matches: Matches, causes: Causes, *, exempt: bool
) -> dict[int, Listed]:
    return {
        row: Listed(block.name, block.version, Match(match), exempt, causes.each[which])
        for row, match, which in zip(
            rows.tolist(), matches.tolist(), causes.which.tolist(), strict=True
        )
    }
