"""Claims about emission: what malformed events cost the loop, and what the operator is told of them."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from streamdedup.delivery.emit import Emitter, _why_blocked
from streamdedup.delivery.side_topics import LETTERS_A_TURN
from streamdedup.delivery.transactions import DecidedBatch
from streamdedup.events import NO_TIMESTAMP, EventBatch, Integers, Verdict
from streamdedup.kafka import limits as limits_module
from streamdedup.kafka.records.encoding import BatchEncoder
from streamdedup.kafka.records.marks import MARK_BYTES_MAX, mark
from streamdedup.kafka.records.records import Record, batch_of, records_of
from streamdedup.kafka.sink import RefusedError
from streamdedup.kafka.topics import Topic, Topology
from streamdedup.lists.facts import NAME_CHARACTERS_MAX
from streamdedup.lists.overlay import REASON_BYTES_MAX
from streamdedup.logs import EVERY_S
from streamdedup.rules.lists import BlockedRows, Cause, Causes, Lists, Match
from streamdedup.testing.clock import VirtualLoop
from tests.delivery.bombs import settings_of
from tests.kafka.test_limits import NOW_MS, limits
from tests.lists.listed import Listed

REASON = "the field id is missing"


class Sent:
    """A writer that keeps what goes to side topics, and counts the turns of the loop between two sends."""

    def __init__(self) -> None:
        self.records: list[tuple[str, Record]] = []
        self.sizes: list[int] = []
        self.turns: list[int] = []
        self._turn = 0

    async def turning(self) -> None:
        """Count, until cancelled."""
        while True:
            self._turn += 1
            await asyncio.sleep(0)

    async def copy(self, topic: str, batch: EventBatch, rows: Integers, _bytes_max: int) -> None:
        """Without awaiting anything."""
        if topic == "out":
            return
        self.records += [(topic, record) for record in records_of(batch, rows)]
        self.sizes.append(len(rows))
        self.turns.append(self._turn)


def emission_to(
    writer: Any,
    *,
    dead_letters: bool = True,
    blocked_bytes_max: int | None = None,
    duplicates: Mapping[str, bool] | None = None,
) -> Emitter:
    """An emission whose topics have Kafka's own limits; with one for blocked events where its limit is given.

    Duplicates go to a topic of at most 1,000 bytes if there are options for it.
    """
    sections: dict[str, Any] = {"sink": {} if dead_letters else {"dead_letter_topic": None}}
    if blocked_bytes_max is not None:
        sections["sink"]["blocked_topic"] = "blocked"
        sections["blocklist"] = {"file": __file__}
    if duplicates is not None:
        sections["sink"] |= {"duplicates_topic": "again", **duplicates}
    made = Emitter(settings_of(Path("snapshots"), **sections), writer)
    topics = {name: Topic(name, None, 1, 1) for name in ("out", "letters")}
    topics["again"] = Topic("again", None, 1, 1, settings={"max.message.bytes": "1000"})
    limit = {"max.message.bytes": f"{blocked_bytes_max}"}
    topics["blocked"] = Topic("blocked", None, 1, 1, settings=limit)
    made.observe(Topology(None, topics))
    return made


def events(*records: Record) -> EventBatch:
    """Events of an input whose records are these."""
    return batch_of("in", 0, range(len(records)), records, len(records))


def malformed_part(count: int) -> DecidedBatch:
    """A part of which no event has a key."""
    batch = events(*[Record.of(NOW_MS, b"secret", b"{}")] * count)
    verdicts = np.full(count, Verdict.MALFORMED, dtype=np.uint8)
    return DecidedBatch(
        batch=batch,
        verdicts=verdicts,
        malformed=dict.fromkeys(range(count), REASON),
        rejected={},
        letter_ms=NOW_MS,
    )


@pytest.mark.parametrize("kind", ["malformed", "blocked"])
async def test_letters_leave_the_loop_its_turns(kind: str) -> None:
    """They are made so many at a time, and others run in between."""
    writer, count = Sent(), 2 * LETTERS_A_TURN + 1
    part = (
        malformed_part(count) if kind == "malformed" else blocked_part(*range(count), count=count)
    )
    turning = asyncio.create_task(writer.turning())
    await emission_to(writer, blocked_bytes_max=1_000_000).emit(part)
    turning.cancel()
    assert writer.sizes == [LETTERS_A_TURN, LETTERS_A_TURN, 1]
    assert writer.turns[0] < writer.turns[1] < writer.turns[2]


def test_what_fits_anyway_is_not_built_to_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most records are far below the limit: only the others are made and compressed to be weighed."""
    built = []

    def noted(**options: Any) -> Any:
        built.append(1)
        return BatchEncoder(**options)

    monkeypatch.setattr(limits_module, "BatchEncoder", noted)
    narrow = limits("zstd", {"max.message.bytes": "1000"})
    assert narrow.fitting(events(Record.of(NOW_MS, b"k", b"x" * 800, (("h", b"v"),)))).all()
    assert not built
    noise = np.random.default_rng(1).bytes(1000)
    assert not narrow.fitting(events(Record.of(NOW_MS, b"k", noise))).any()
    assert built


@pytest.mark.parametrize("dead_letters", [True, False])
def test_the_operator_is_told_that_events_have_no_key(dead_letters: bool) -> None:
    """At once, with reason and offset and without the key, and then once a minute with how many there were."""

    async def emit_for_a_while() -> None:
        made = emission_to(Sent(), dead_letters=dead_letters)
        for _ in range(4):
            await made.emit(malformed_part(10))
        await asyncio.sleep(EVERY_S)
        await made.emit(malformed_part(10))

    with capture_logs() as lines, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(emit_for_a_while())
    assert [line["event"] for line in lines] == ["malformed"] * 2
    assert [line["events"] for line in lines] == [10, 40]
    assert (lines[0]["reason"], lines[0]["offset"]) == (REASON, 0)
    assert lines[0]["not_judged"] == ("dead_letter" if dead_letters else "pass")
    assert "secret" not in str(lines)


# --- what a list blocks ---


def blocked_part(*rows: int, value: bytes = b"{}", count: int = 4) -> DecidedBatch:
    """A part of `count` events, of which these rows are blocked by address, but the last by domain.

    The file of the list blocks the first one, changes block the rest, and the last of these has a reason.
    """
    own = (("own", b"h"),)
    batch = events(*(Record.of(NOW_MS - 7, b"k%d" % row, value, own) for row in range(count)))
    verdicts = np.zeros(count, dtype=np.uint8)
    verdicts[list(rows)] = Verdict.BLOCKED
    matches = np.full(len(rows), Match.ADDRESS, dtype=np.uint8)
    matches[-1:] = Match.DOMAIN
    none, lists = np.zeros(0, dtype=np.int64), Lists(block=Listed(name="spam", version="7"))
    cause_of = np.minimum(np.arange(len(rows)), 1)
    cause_of[1:][-1:] = 2
    causes = Causes(cause_of, [Cause("file"), Cause("change"), Cause("change", "Spam, ä")])
    found = BlockedRows(np.array(rows, dtype=np.int64), matches, causes, none, lists)
    return DecidedBatch(
        batch=batch, verdicts=verdicts, malformed={}, rejected={}, letter_ms=NOW_MS, blocked=found
    )


async def test_what_is_blocked_is_sent_whole_with_list_version_and_rule() -> None:
    """Key, value and headers as they were, then where the event stood, and by what it was blocked.

    A tombstone that the operator drops is BLOCKED as well, and goes nowhere. Nor does anything without a topic for it.
    """
    writer, without, part = Sent(), Sent(), blocked_part(1, 3)
    part.verdicts[0] = Verdict.BLOCKED
    await emission_to(without).emit(part)
    assert without.records == []
    await emission_to(writer, blocked_bytes_max=1_000_000).emit(part)
    (to, first), (_, second) = writer.records
    assert to == "blocked"
    assert (first.timestamp, first.key, first.value) == (NOW_MS, b"k1", b"{}")
    assert list(first.headers) == [
        ("own", b"h"),
        ("streamdedup.topic", b"in"),
        ("streamdedup.partition", b"0"),
        ("streamdedup.list", b"spam"),
        ("streamdedup.list-version", b"7"),
        ("streamdedup.rule", b"address"),
        ("streamdedup.list-source", b"file"),
        ("streamdedup.offset", b"1"),
        ("streamdedup.timestamp", b"%d" % (NOW_MS - 7)),
    ]
    assert second.headers[-6:-2] == (
        ("streamdedup.list-version", b"7"),
        ("streamdedup.rule", b"domain"),
        ("streamdedup.list-source", b"change"),
        ("streamdedup.list-reason", "Spam, ä".encode()),
    )


def test_the_longest_headers_of_a_list_are_within_what_is_reckoned_for_them() -> None:
    """Else an event that the output takes without them would not become a dead letter, but stop its partition."""
    name, reason = "\U0001f600" * NAME_CHARACTERS_MAX, "x" * REASON_BYTES_MAX
    version = f"29991231T235959Z-00000000+{2**62}"
    blocked = blocked_part(0, count=1).blocked._replace(
        lists=Lists(block=Listed(name=name, version=version)),
        causes=Causes(np.zeros(1, dtype=np.int64), [Cause("change", reason)]),
    )
    [why], _ = _why_blocked(blocked)
    sizes = [
        len(name.encode()) + len(value or b"") + 4 for name, value in (*mark(Verdict.BLOCKED), *why)
    ]
    assert sum(sizes) <= MARK_BYTES_MAX


async def test_a_blocked_event_is_cut_to_what_its_topic_takes() -> None:
    """Its headers stay; the operator is told, by offset, and which topic to widen."""
    writer = Sent()
    with capture_logs() as lines:
        await emission_to(writer, blocked_bytes_max=1000).emit(
            blocked_part(1, value=np.random.default_rng(1).bytes(2000))
        )
    ((_, letter),) = writer.records
    assert (letter.key, letter.value) == (b"k1", None)
    assert dict(letter.headers)["streamdedup.cut"] == b"value"
    assert dict(letter.headers)["streamdedup.list"] == b"spam"
    (line,) = lines
    assert (line["event"], line["first_offset"]) == ("blocked_cut", 1)
    assert line["remedy"] == "raise max.message.bytes of blocked"


# --- duplicates ---


def duplicates_part(*values: bytes) -> DecidedBatch:
    """Events with these values, each a duplicate."""
    own = (("own", b"h"),)
    batch = events(*(Record.of(NOW_MS - 7, b"k", value, own) for value in values))
    verdicts = np.full(len(values), Verdict.DUPLICATE, dtype=np.uint8)
    return DecidedBatch(batch=batch, verdicts=verdicts, malformed={}, rejected={}, letter_ms=NOW_MS)


async def test_a_duplicate_is_a_copy_unless_letters_are_asked_for() -> None:
    """By default nothing changes; a letter has the event's place and time, and is stamped with the broker's time."""
    copies, letters = Sent(), Sent()
    part = duplicates_part(b"1", b"2")
    await emission_to(copies, duplicates={}).emit(part)
    await emission_to(letters, duplicates={"duplicates_headers": True}).emit(part)
    assert [record for _, record in copies.records] == list(records_of(part.batch, np.arange(2)))
    for row, (to, letter) in enumerate(letters.records):
        assert (to, letter.timestamp, letter.key, letter.value) == (
            "again",
            NOW_MS,
            b"k",
            b"%d" % (row + 1),
        )
        assert list(letter.headers) == [
            ("own", b"h"),
            ("streamdedup.topic", b"in"),
            ("streamdedup.partition", b"0"),
            ("streamdedup.offset", b"%d" % row),
            ("streamdedup.timestamp", b"%d" % (NOW_MS - 7)),
        ]


async def test_a_letter_of_a_duplicate_is_cut_to_what_its_topic_takes() -> None:
    """It still names its event."""
    writer = Sent()
    with capture_logs() as lines:
        await emission_to(writer, duplicates={"duplicates_headers": True}).emit(
            duplicates_part(b"1", np.random.default_rng(1).bytes(2000))
        )
    (_, whole), (_, cut) = writer.records
    assert (whole.value, cut.value, cut.key) == (b"1", None, b"k")
    assert dict(cut.headers)["streamdedup.cut"] == b"value"
    assert dict(cut.headers)["streamdedup.offset"] == b"1"
    assert [(line["event"], line["first_offset"]) for line in lines] == [("duplicates_cut", 1)]


@pytest.mark.parametrize("are_letters", [True, False])
def test_letters_of_duplicates_lose_a_timestamp_that_is_refused(are_letters: bool) -> None:
    """Copies have the timestamps of their events, so there is none of ours to leave out."""
    made = emission_to(Sent(), duplicates={"duplicates_headers": are_letters})
    assert made.letter_ms(None, NOW_MS) == NOW_MS
    error = RefusedError("again", "InvalidTimestamp", by_time=True)
    with capture_logs():
        assert made.unstamp_letters(error) == are_letters
    assert (made.letter_ms(None, NOW_MS) == NO_TIMESTAMP) == are_letters
