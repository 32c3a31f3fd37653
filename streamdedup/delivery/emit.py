"""Sends each event where its verdict takes it: to the output, to a side topic, or nowhere.

No event is dropped unless the operator asked for that. An event that the output would refuse goes to the dead-letter
topic; without such a topic it stops the shard.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import structlog

from streamdedup.delivery.not_passed import NotPassed, not_passed
from streamdedup.delivery.side_topics import Letters, send, send_skipped
from streamdedup.delivery.transactions import DecidedBatch
from streamdedup.delivery.turns import beside, is_large
from streamdedup.errors import DeliveryError
from streamdedup.events import (
    NO_TIMESTAMP,
    Damage,
    EventBatch,
    Headers,
    Integers,
    Verdict,
    Verdicts,
)
from streamdedup.filters.base import Mask
from streamdedup.kafka import header_limits
from streamdedup.kafka.base import Sender
from streamdedup.kafka.broker_clock import Span
from streamdedup.kafka.limits import Limits
from streamdedup.kafka.options import BLOCKED_BY, MARK
from streamdedup.kafka.records.marks import MARK_BYTES_MAX, appended, mark, marked_rows
from streamdedup.kafka.sink import RefusedError
from streamdedup.kafka.topics import Topology, sink_topics, stamped_topics
from streamdedup.keys.extract import Keys
from streamdedup.keys.formats.schema_registry import UNKNOWN_SCHEMA
from streamdedup.logs import RateLimit
from streamdedup.rules.lists import BlockedRows, Cause, Match, Matcher
from streamdedup.settings import Settings

log = structlog.get_logger(__name__)


class Emitter:
    """Sends the events of one shard through its writer."""

    def __init__(self, settings: Settings, writer: Sender) -> None:
        self._settings, self._sink = settings, settings.sink
        self._on_malformed = "pass" if settings.sink.shadow else settings.key.on_malformed
        self._writer = writer
        self._limits: dict[str, Limits] = {}
        self._malformed_logged = RateLimit()
        self._stamps_letters = True
        every = np.array(Verdict, dtype=np.uint8)
        self._holding = [Verdict(each) for each in every[~self._passing(every)].tolist()]
        self._drops_tombstones = settings.source.tombstones == "drop"

    def observe(self, topology: Topology) -> None:
        """Take over the limits of the topics, as they are now."""
        compression = self._sink.compression
        self._limits = {
            name: Limits.of(topology[name], compression) for name in sink_topics(self._sink)
        }

    async def rejected(
        self, batch: EventBatch, keys: Keys, present: Span | None, refused: Mapping[int, str]
    ) -> dict[int, str]:
        """Return row -> reason for the events bound for the output that it would refuse, or delete at once.

        `present` is the time on the broker; None if it is not known, and then nothing is rejected by its time.
        `refused` (input offset -> reason) are the events that the broker has refused before; they are included.
        """
        limits = self._limits[self._sink.topic]
        takes_long = is_large(batch) or limits.takes_long_for(batch)
        reasons = await beside(takes_long, refused_by, limits, self._settings, batch, keys, present)
        if refused:
            for row in np.flatnonzero(np.isin(batch.offsets, list(refused))).tolist():
                reasons[row] = refused[int(batch.offsets[row])]
        return reasons

    def letter_ms(self, present: Span | None, now_ms: int) -> int:
        """Return the timestamp of letters: the broker's time; `now_ms`, our own, if it is not known."""
        if not self._stamps_letters:
            return NO_TIMESTAMP
        return now_ms if present is None else present.middle

    def unstamp_letters(self, error: RefusedError) -> bool:
        """If a letter was refused for its timestamp, send letters without one from now on: any topic takes these.

        Return False if no letter was refused for that, or if they have no timestamp already. It happens if our clock is
        wrong and the broker's time is not known yet, and if the clocks of two brokers differ.
        """
        letters = stamped_topics(self._sink)
        if not (self._stamps_letters and error.by_time and error.topic in letters):
            return False
        self._stamps_letters = False
        log.warning(
            "letters_unstamped",
            topic=error.topic,
            reason="the broker refused their timestamp: its clock and this machine's, or another broker's, differ",
            remedy="set the clocks right (NTP), then restart the worker",
        )
        return True

    async def emit(self, part: DecidedBatch) -> list[NotPassed]:
        """Send every event of `part` where its verdict takes it; return those that do not pass, one for each reason.

        DeliveryError if an event is rejected and `sink.on_rejected` is `stop`.
        """
        batch, verdicts, sink = part.batch, part.verdicts, self._sink
        if batch.damage is not None:
            await self._report(batch.damage, part)
            return []
        passing = self._passing(verdicts)
        marked = await beside(is_large(batch), self._marked, part, passing)
        await self._copy(sink.topic, marked, np.flatnonzero(passing))
        if sink.duplicates_topic and not sink.shadow:
            duplicates = np.flatnonzero(verdicts == Verdict.DUPLICATE)
            if sink.duplicates_headers:
                await self._send(sink.duplicates_topic, part, _duplicate_letters(duplicates))
            else:
                await self._copy(sink.duplicates_topic, batch, duplicates)
        if sink.blocked_topic and not sink.shadow:
            await self._send(sink.blocked_topic, part, _blocked_letters(part.blocked))
        reasons = self._reasons(part)
        if sink.dead_letter_topic:
            await self._send(sink.dead_letter_topic, part, _dead_letters(reasons))
        return not_passed(part, self._holding, drops_tombstones=self._drops_tombstones)

    async def _report(self, damage: Damage, part: DecidedBatch) -> None:
        """Log and send what was skipped. The line comes before the commit, so it comes again if that fails."""
        log.error(
            "batch_skipped",
            topic=part.batch.topic,
            partition=part.batch.partition,
            first_offset=damage.first_offset,
            last_offset=damage.last_offset,
            size_bytes=len(damage.raw),
            reason=damage.reason,
        )
        if topic := self._sink.dead_letter_topic:
            await send_skipped(self._writer, self._limits[topic], part, damage)

    def _passing(self, verdicts: Verdicts) -> Mask:
        """Return which events go to the output, as a mask (n,)."""
        if self._sink.shadow:
            return np.asarray(verdicts != Verdict.REJECTED)
        passing = np.asarray(verdicts == Verdict.PASS)
        if self._on_malformed == "pass":
            passing |= verdicts == Verdict.MALFORMED
        return passing

    def _marked(self, part: DecidedBatch, passing: Mask) -> EventBatch:
        """Return the batch with a mark on those `passing` events that need one; in most batches none does.

        In shadow mode every event needs one. Otherwise only an event that came with a mark does: the last mark counts.
        """
        batch, blocked = part.batch, part.blocked
        rows = np.arange(len(batch)) if self._sink.shadow else marked_rows(batch.headers)
        rows = rows[passing[rows]]
        if not len(rows):
            return batch
        whys, why_of = _why_blocked(blocked)
        which = part.verdicts.astype(np.int64)
        which[blocked.rows] = len(Verdict) + why_of
        by_list = [(*_MARKS[Verdict.BLOCKED], *why) for why in whys]
        return appended(batch, rows, [*_MARKS, *by_list], which[rows])

    async def _copy(self, topic: str, batch: EventBatch, rows: Integers) -> None:
        await self._writer.copy(topic, batch, rows, self._limits[topic].bytes_max)

    async def _send(self, topic: str, part: DecidedBatch, letters: Letters) -> None:
        await send(self._writer, self._limits[topic], part, letters)

    def _reasons(self, part: DecidedBatch) -> dict[int, str]:
        """Return row -> reason for the events that become dead letters."""
        batch, verdicts, sink = part.batch, part.verdicts, self._sink
        reasons = {
            row: part.rejected[row] for row in np.flatnonzero(verdicts == Verdict.REJECTED).tolist()
        }
        if reasons and sink.on_rejected == "stop":
            row, reason = next(iter(reasons.items()))
            topic, partition, offset = batch.place(row)
            where = f"{topic}/{partition} offset {offset}"
            letters = "set sink.dead_letter_topic and on_rejected: dead_letter"
            if reason.endswith(UNKNOWN_SCHEMA):
                raise DeliveryError(
                    f"{where} is {reason}",
                    remedy=f"set kafka.schema_registry to the registry that has it, or {letters}",
                    finding="schema-unknown",
                )
            if reason in header_limits.REASONS:
                raise DeliveryError(
                    f"{where} is {reason}",
                    remedy=f"{letters}, or raise that limit",
                    finding="headers-exceeded",
                )
            raise DeliveryError(
                f"{where} is {reason}: {sink.topic} would refuse it or delete it at once",
                remedy=f"{letters}, or raise the limits of {sink.topic}",
                finding="event-refused",
            )
        if malformed := np.flatnonzero(verdicts == Verdict.MALFORMED).tolist():
            self._log_malformed(part, malformed)
        if self._on_malformed == "dead_letter":
            reasons |= {row: part.malformed[row] for row in malformed}
        return reasons

    def _log_malformed(self, part: DecidedBatch, rows: Sequence[int]) -> None:
        """Log the first malformed event at once, later ones now and then.

        With a wrong setting every event is malformed and none is judged, and nothing else shows that.
        """
        if events := self._malformed_logged.due(asyncio.get_running_loop().time(), len(rows)):
            topic, partition, offset = part.batch.place(rows[0])
            log.warning(
                "malformed",
                topic=topic,
                partition=partition,
                offset=offset,
                reason=part.malformed[rows[0]],
                events=events,
                not_judged=self._on_malformed,
            )


def refused_by(
    output: Limits, settings: Settings, batch: EventBatch, keys: Keys, present: Span | None
) -> dict[int, str]:
    """Return row -> reason for the events bound for the output that it would refuse, or delete at once.

    Their size includes the headers that we append, at their greatest length.
    """
    if settings.sink.shadow:
        return output.rejected(batch, present, _marked_longest, MARK_BYTES_MAX)
    reasons = output.rejected(batch, present, _marked_again)
    elsewhere = set(keys.dropped)
    if settings.key.on_malformed != "pass":
        elsewhere.update(keys.malformed)
    return {row: reason for row, reason in reasons.items() if row not in elsewhere}


def _marked_longest(batch: EventBatch) -> EventBatch:
    return _with_mark(batch, np.arange(len(batch)), _LONGEST)


def _marked_again(batch: EventBatch) -> EventBatch:
    """Append a mark to those events that came with one; none is longer than this."""
    return _with_mark(batch, marked_rows(batch.headers), mark(Verdict.MALFORMED))


def _with_mark(batch: EventBatch, rows: Integers, headers: Headers) -> EventBatch:
    return appended(batch, rows, [headers], np.zeros(len(rows), dtype=np.int64))


def _duplicate_letters(rows: Integers) -> Letters:
    """Return letters without a reason: their topic says it."""
    return Letters("duplicates", rows, [()], np.zeros(len(rows), dtype=np.int64))


def _blocked_letters(blocked: BlockedRows) -> Letters:
    return Letters("blocked", blocked.rows, *_why_blocked(blocked))


def _dead_letters(reasons: Mapping[int, str]) -> Letters:
    """Make one letter for each row; rows with the same reason share its headers."""
    rows, index = sorted(reasons), dict[str, int]()
    which = [index.setdefault(reasons[row], len(index)) for row in rows]
    whys = [(("streamdedup.reason", reason.encode()),) for reason in index]
    headerless = frozenset(at for reason, at in index.items() if reason in header_limits.REASONS)
    return Letters("dead_letters", _integers(rows), whys, _integers(which), headerless)


def _integers(numbers: Sequence[int]) -> Integers:
    return np.array(numbers, dtype=np.int64)


def _why_blocked(blocked: BlockedRows) -> tuple[Sequence[Headers], Integers]:
    """Return the headers that blocked events have, each kind once, and which of them each blocked row has, (k,)."""
    block, (cause_of, causes) = blocked.lists.block, blocked.causes
    if block is None:
        return [], cause_of
    pairs, which = np.unique(cause_of * len(Match) + blocked.matches, return_inverse=True)
    whys = [
        _by_list(block, Match(pair % len(Match)), causes[pair // len(Match)])
        for pair in pairs.tolist()
    ]
    return whys, which


def _by_list(block: Matcher, match: Match, cause: Cause) -> Headers:
    texts = [block.name, block.version, match.name.lower(), cause.by]
    texts += [cause.reason] if cause.reason else []
    return tuple((name, text.encode()) for name, text in zip(BLOCKED_BY, texts, strict=False))


_MARKS = [mark(verdict) for verdict in Verdict]
_NOISE = hashlib.shake_256(b"does not compress").digest(MARK_BYTES_MAX - len(MARK))
_LONGEST: Headers = ((MARK, _NOISE),)
