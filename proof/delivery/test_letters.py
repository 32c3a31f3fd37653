"""More claims about letters: of events of every shape, cut, of bombs of headers, and of events that are large."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamdedup.delivery.side_topics import REASONS_A_TURN
from streamdedup.delivery.transactions import DecidedBatch
from streamdedup.events import Verdict
from streamdedup.kafka.client.open_batches import loop_bytes_max
from streamdedup.kafka.header_limits import TOO_MANY
from streamdedup.kafka.records import encoding
from streamdedup.kafka.records.codecs import CODECS, NONE, ZSTD, compress
from streamdedup.kafka.records.records import Record
from tests.delivery.bombs import Way, body, bomb, record_batch, settings_of
from tests.delivery.test_emit import REASON, Sent, blocked_part, emission_to, events
from tests.delivery.test_header_bombs import HEADERS_MAX, WITHIN
from tests.kafka.test_columns import fetched
from tests.kafka.test_headers import written
from tests.kafka.test_limits import NOW_MS
from tests.kafka.test_wire import rows_by_chance


@pytest.mark.parametrize(("bytes_max", "cut"), [(1_000_000, 0), (10_000, 1)])
async def test_letters_of_every_shape_are_whole_but_what_does_not_fit(
    bytes_max: int, cut: int
) -> None:
    """Key, value and headers as they were, then ours; in their order, also around one that does not fit."""
    large = np.random.default_rng(1).bytes(12_000)
    rows = [*rows_by_chance(5, 150), (150, 1, b"k", large, ()), *rows_by_chance(6, 150)]
    verdicts = np.full(301, Verdict.BLOCKED, dtype=np.uint8)
    verdicts[0] = Verdict.MALFORMED
    writer = Sent()
    part = DecidedBatch(
        batch=events(*(Record.of(*row[1:]) for row in rows)),
        verdicts=verdicts,
        malformed={0: REASON},
        rejected={},
        letter_ms=NOW_MS,
        blocked=blocked_part(*range(1, 301), count=301).blocked,
    )
    await emission_to(writer, blocked_bytes_max=bytes_max).emit(part)
    expected = []
    for row, (_, stamped_ms, key, value, own) in enumerate(rows):
        why = [("streamdedup.reason", REASON.encode())] if row == 0 else _why(row)
        is_cut = bool(cut) and value is large
        headers = [
            *own,
            ("streamdedup.topic", b"in"),
            ("streamdedup.partition", b"0"),
            *why,
            ("streamdedup.offset", b"%d" % row),
            ("streamdedup.timestamp", b"%d" % stamped_ms),
            *([("streamdedup.cut", b"value")] if is_cut else []),
        ]
        expected.append((NOW_MS, key, None if is_cut else value, tuple(headers)))
    found = [(r.timestamp, r.key, r.value, tuple(r.headers)) for _, r in writer.records]
    assert found == [*expected[1:], expected[0]]
    assert [to for to, _ in writer.records] == [*["blocked"] * 300, "letters"]


def _why(row: int) -> list[tuple[str, bytes]]:
    is_first, is_last = row == 1, row == 300
    return [
        ("streamdedup.list", b"spam"),
        ("streamdedup.list-version", b"7"),
        ("streamdedup.rule", b"domain" if is_last else b"address"),
        ("streamdedup.list-source", b"file" if is_first else b"change"),
        *([("streamdedup.list-reason", "Spam, ä".encode())] if is_last else []),
    ]


async def test_letters_of_many_reasons_leave_the_loop_its_turns() -> None:
    """As each has a header to encode, fewer are made at a time; each has its own reason."""
    count, writer = 2 * REASONS_A_TURN + 1, Sent()
    reasons = {row: TOO_MANY if row % 7 == 0 else f"because of {row}" for row in range(count)}
    part = DecidedBatch(
        batch=events(*[Record.of(1, b"k", b"v")] * count),
        verdicts=np.full(count, Verdict.MALFORMED, dtype=np.uint8),
        malformed=reasons,
        rejected={},
        letter_ms=NOW_MS,
    )
    await emission_to(writer).emit(part)
    assert writer.sizes == [REASONS_A_TURN, REASONS_A_TURN, 1]
    headers = [dict(record.headers) for _, record in writer.records]
    sent = [one["streamdedup.reason"] for one in headers]
    assert sent == [reason.encode() for reason in reasons.values()]
    cut = [row for row, one in enumerate(headers) if "streamdedup.cut" in one]
    assert cut == list(range(0, count, 7))


@pytest.mark.parametrize(
    ("value_bytes", "cut"), [(5_000, b"value, headers"), (0, b"headers")], ids=["large", "small"]
)
async def test_a_letter_that_is_cut_further_names_all_that_it_lacks(
    value_bytes: int, cut: bytes, tmp_path: Path
) -> None:
    """Without headers for its limit, and without the value for the topic's."""
    noise = np.random.default_rng(1).bytes(value_bytes)
    way = Way(settings_of(tmp_path), bytes_max=2_000)
    await way.take(record_batch(0, [bomb(300_000, noise)], ZSTD))
    [letter] = way.sent.of("letters")
    assert letter.value == (None if value_bytes else b"")
    assert [name for name, _ in letter.headers].count("streamdedup.cut") == 1
    assert dict(letter.headers)["streamdedup.cut"] == cut


def rows_with(*bodies: bytes) -> bytes:
    """One batch in which every event beside these has a key and a header of its own."""
    others = [body(b'{"id":%d}' % n, written([(b"h", b"%d" % n)])[1:], 1) for n in range(9)]
    mixed = [one for pair in zip(others, bodies, strict=False) for one in pair]
    return record_batch(0, [*mixed, *others[len(bodies) :]], NONE)


async def test_the_events_beside_it_pass_as_they_are(tmp_path: Path) -> None:
    """Byte for byte, with their own headers: one, none, or as many as an event may have."""
    large = body(b'{"id":"large"}', written([(b"n", bytes(5_000))])[1:], 1)
    data = rows_with(bomb(HEADERS_MAX + 1), WITHIN, large, body(b'{"id":"none"}'))
    [batch] = fetched(data)
    way = Way(settings_of(tmp_path, source={"headers_bytes_max": 5_000}))
    await way.decide(batch)
    [part] = way.parts
    assert part.rejected == {1: "above source.headers_max", 5: "above source.headers_bytes_max"}
    passed = [(record.value, tuple(record.headers)) for record in way.sent.of("out")]
    assert passed == [
        *((b'{"id":0}', (("h", b"0"),)), (b'{"id":1}', (("h", b"1"),))),
        (b'{"id":"a"}', (("", b""),) * HEADERS_MAX),
        *((b'{"id":2}', (("h", b"2"),)), (b'{"id":3}', (("h", b"3"),)), (b'{"id":"none"}', ())),
        *((b'{"id":%d}' % n, (("h", b"%d" % n),)) for n in range(4, 9)),
    ]


async def test_what_is_kept_of_a_bomb_is_small(tmp_path: Path) -> None:
    """Its headers are not in memory until its transaction is committed, nor in the size of a transaction."""
    way = Way(settings_of(tmp_path))
    await way.take(record_batch(0, [bomb(3_000_000)], ZSTD))
    [part] = way.parts
    columns = part.batch.bodies, part.batch.values, part.batch.keys
    assert all(column is not None and len(column.buffer) < 100 for column in columns)


async def test_a_malformed_event_needs_not_fit_the_output(tmp_path: Path) -> None:
    """What goes to the dead letters anyway keeps its own reason, however large it is."""
    way = Way(settings_of(tmp_path), bytes_max=2_000)
    await way.take(record_batch(0, [body(np.random.default_rng(1).bytes(3_000))], NONE))
    [part] = way.parts
    assert (part.rejected, part.verdicts.tolist()) == ({}, [Verdict.MALFORMED])
    assert way.sent.of("letters")


BYTES_MAX = 10_000
BESIDES_BYTES = 100  # an event's own, beside its noise


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call that compresses an event is made by the loop's thread."""
    calls = list[bool]()

    def noted(*arguments: Any) -> Any:
        calls.append(threading.current_thread() is threading.main_thread())
        return compress(*arguments)

    monkeypatch.setattr(encoding, "compress", noted)
    return calls


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@pytest.mark.parametrize("quick", [True, False], ids=["few", "many"])
async def test_what_takes_long_to_compress_is_compressed_in_a_thread(
    compression: str, quick: bool, on_loop: list[bool], tmp_path: Path
) -> None:
    """To see whether the output takes an event, and the other topic its letter; for few bytes, a thread costs more."""
    noise = np.random.default_rng(1).bytes(2 * BYTES_MAX).hex().encode()
    most = loop_bytes_max(CODECS[compression]) // (len(noise) + BESIDES_BYTES)
    count = most if quick else most + 2
    large = [body(b'{"id":%d,"noise":"%b"}' % (row, noise)) for row in range(count)]
    way = Way(settings_of(tmp_path, sink={"compression": compression}), bytes_max=BYTES_MAX)
    await way.take(record_batch(0, [*large, body(b'{"id":"small"}')], NONE))
    verdicts = [verdict for part in way.parts for verdict in part.verdicts.tolist()]
    assert verdicts == [Verdict.REJECTED] * count + [Verdict.PASS]
    assert set(on_loop) == {quick}
