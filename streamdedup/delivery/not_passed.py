"""The events that did not pass lately: the place of each, and why it did not pass; never its key.

Of each batch, one event of every verdict and reason is noted: the last one. It is kept once its transaction is
committed, so an event that is taken back is not among them. In shadow mode only rejected events do not pass.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from streamdedup.delivery.transactions import DecidedBatch
from streamdedup.events import NO_TIMESTAMP, NULL, EventBatch, Verdict
from streamdedup.rules.lists import BlockedRows, Match

KEPT_MAX = 256

EMITTED_BEFORE = "its key was emitted before"
ON_THE_LIST = "it is on the block list"
IS_TOMBSTONE = "it is a tombstone, and source.tombstones is drop"
IS_LATE = "it is older than the window, and filter.late is drop"


class NotPassed(NamedTuple):
    """An event that did not pass: its place in the input, its verdict, and the `reason`, which never holds its key.

    `event_time_ms` (since 1970) is None if the event has no timestamp. The four last are set if a list blocked it: its
    name and version, whether its `file` or a single `change` did, and whether the `address` or its `domain` is on it.
    """

    topic: str
    partition: int
    offset: int
    verdict: Verdict
    reason: str
    event_time_ms: int | None
    list_name: str | None = None
    list_version: str | None = None
    list_source: str | None = None
    rule: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values, under names that do not change."""
        values = {**self._asdict(), "verdict": self.verdict.name.lower()}
        return {"list" if name == "list_name" else name: value for name, value in values.items()}


class LastNotPassed:
    """The last `KEPT_MAX` events that did not pass, of all partitions of a worker. Any thread may read them."""

    def __init__(self) -> None:
        self._kept = deque[NotPassed](maxlen=KEPT_MAX)

    def add(self, events: Iterable[NotPassed]) -> None:
        """Add events whose transaction is committed."""
        self._kept.extend(events)

    @property
    def events(self) -> list[NotPassed]:
        """What is kept, in the order of the commits."""
        return list(self._kept)

    def as_json(self) -> list[dict[str, Any]]:
        """Return the same as plain JSON values."""
        return [event.as_json() for event in self.events]


def not_passed(
    part: DecidedBatch, verdicts: Iterable[Verdict], *, drops_tombstones: bool
) -> list[NotPassed]:
    """Return one event of `part` for each reason why events have one of `verdicts`; at most `KEPT_MAX` a verdict.

    `drops_tombstones`: a BLOCKED event with a null value is so as the operator wants no tombstones.
    """
    decided, found = part.verdicts.tobytes(), list[NotPassed]()
    for verdict in verdicts:
        if (row := decided.rfind(verdict)) < 0:
            continue
        match verdict:
            case Verdict.MALFORMED:
                reasons = _last_of_each(part.malformed, decided, verdict)
            case Verdict.REJECTED:
                reasons = _last_of_each(part.rejected, decided, verdict)
            case Verdict.BLOCKED:
                found += _by_list(part.batch, part.blocked)
                reasons = _by_wish(part, drops_tombstones=drops_tombstones)
            case _:
                reasons = {EMITTED_BEFORE: row}
        found += [_noted(part.batch, at, verdict, why) for why, at in reasons.items()]
    return found


def _last_of_each(reasons: Mapping[int, str], decided: bytes, verdict: Verdict) -> dict[str, int]:
    """Return each reason with the last row that has it, and the verdict: a malformed event may be rejected besides."""
    last = dict(zip(reasons.values(), reasons, strict=True))
    if any(row >= len(decided) or decided[row] != verdict for row in last.values()):
        held = ((why, row) for row, why in reasons.items() if row < len(decided))
        last = {why: row for why, row in held if decided[row] == verdict}
    return dict(islice(last.items(), KEPT_MAX))


def _by_list(batch: EventBatch, blocked: BlockedRows) -> Iterator[NotPassed]:
    """Yield the last event that a list blocked, for each rule and each source."""
    block, causes = blocked.lists.block, blocked.causes
    if block is None or not len(blocked.rows):
        return
    is_change = np.array([cause.by == "change" for cause in causes.each], dtype=np.uint8)
    sorts = (is_change[causes.which] * len(Match) + blocked.matches).astype(np.uint8).tobytes()
    for sort in sorted(set(sorts)):
        place = sorts.rfind(sort)
        yield _noted(batch, int(blocked.rows[place]), Verdict.BLOCKED, ON_THE_LIST)._replace(
            list_name=block.name,
            list_version=block.version,
            list_source=causes.each[int(causes.which[place])].by,
            rule=Match(sort % len(Match)).name.lower(),
        )


def _by_wish(part: DecidedBatch, *, drops_tombstones: bool) -> dict[str, int]:
    """Return the last rows that are BLOCKED by no list, each with the reason."""
    left = part.verdicts == Verdict.BLOCKED
    left[part.blocked.rows] = False
    dead = part.batch.values.sizes == NULL if drops_tombstones else np.zeros_like(left)
    sorts = {IS_TOMBSTONE: left & dead, IS_LATE: left & ~dead}
    rows = {why: mask.tobytes().rfind(1) for why, mask in sorts.items()}
    return {why: row for why, row in rows.items() if row >= 0}


def _noted(batch: EventBatch, row: int, verdict: Verdict, reason: str) -> NotPassed:
    time_ms = int(batch.timestamps[row])
    return NotPassed(
        *batch.place(row), verdict, reason, None if time_ms == NO_TIMESTAMP else time_ms
    )
