"""Claims about what a topic would refuse or not keep, asked first: sizes to the byte, times to the ms."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.events import EventBatch, Headers
from streamdedup.kafka.broker_clock import Span
from streamdedup.kafka.client.open_batches import OpenBatches
from streamdedup.kafka.limits import RETENTION_MARGIN_MS, TOO_LARGE, Limits
from streamdedup.kafka.records import headers as headers_module
from streamdedup.kafka.records.codecs import CODECS
from streamdedup.kafka.records.records import Record, batch_of
from streamdedup.kafka.topics import DEFAULT_MESSAGE_BYTES_MAX, FOREVER, Topic
from tests.kafka.test_columns import fetched
from tests.kafka.test_wire import built

NOW_MS = 1_790_000_000_000


PRESENT = Span.at(NOW_MS)


HOUR_MS = 3_600_000


BATCH_HEADER_BYTES = 61


Cell = bytes | None


Row = tuple[int, Cell, Cell, Headers]


# Sizes around those where a length takes one byte more, and text that compresses as well as text that does not.
sizes = st.sampled_from([0, 1, 62, 63, 64, 65, 500, 8190, 8191, 8192, 20_000])


cells = st.none() | st.builds(
    lambda size, seed: np.random.default_rng(seed).bytes(size) if seed else b"a" * size,
    sizes,
    st.integers(0, 3),
)


headers = st.lists(st.tuples(st.text(max_size=70), cells), max_size=4)


codecs = pytest.mark.parametrize("compression", sorted(CODECS))


@codecs
@settings(deadline=None, max_examples=60)
@given(cells, cells, headers)
@example(None, None, [])
@example(b"", b"", [("", None), ("", b"")])
@example(None, b"x", [("\U0001f511" * 64, b"\xff" * 64)])
def test_the_limit_is_exact(
    compression: str, key: Cell, value: Cell, of_record: list[tuple[str, Cell]]
) -> None:
    """What makes a record batch of just the limit is taken, one byte less of a limit refuses it."""
    batch = events((NOW_MS, key, value, of_record))
    size = sent(batch, compression).size()
    assert limits(compression, {"max.message.bytes": f"{size}"}).rejected(batch, PRESENT) == {}
    one_less = limits(compression, {"max.message.bytes": f"{size - 1}"})
    assert one_less.rejected(batch, PRESENT) == {0: TOO_LARGE}


@codecs
def test_the_limit_is_exact_without_a_header_read(
    compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of events as they are fetched: to measure one, none of its headers is made an object."""
    monkeypatch.setattr(headers_module, "read_headers", lambda *_: pytest.fail("it read headers"))
    noise = np.random.default_rng(4).bytes(3000)
    for value in (b"a" * 5000, noise, b"{}"):
        [found] = fetched(built([(0, NOW_MS, None, value, (("", b""),) * 2000)]))
        taken = sent(found, compression).size()
        for size, reasons in ((taken, {}), (taken - 1, {0: TOO_LARGE})):
            narrow = limits(compression, {"max.message.bytes": f"{size}"})
            assert narrow.rejected(found, PRESENT) == reasons


@given(cells, cells, headers)
def test_a_size_follows_from_the_format(key: Cell, value: Cell, of_record: Headers) -> None:
    """Uncompressed, we and aiokafka build what the record format says; so none is wrong with the others."""
    size = written_bytes(key, value, of_record)
    assert sent(events((NOW_MS, key, value, of_record)), "none").size() == size
    assert len(built_by_aiokafka(key, value, of_record)) == size


@codecs
def test_what_counts_is_the_size_on_the_wire(compression: str) -> None:
    """A text far above the limit is taken where compression brings it below; noise is not."""
    noise = np.random.default_rng(5).bytes(5000)
    batch = events((NOW_MS, b"k", b"a" * 5000, []), (NOW_MS, b"k", noise, []))
    refused = limits(compression, {"max.message.bytes": "1000"}).rejected(batch, PRESENT)
    assert sorted(refused) == ([0, 1] if compression == "none" else [1])


def test_every_row_is_judged_by_itself() -> None:
    """Rows keep their places: the large ones are named, whatever stands beside them."""
    rows: list[Row] = [(NOW_MS, None, b"x" * size, []) for size in (10, 3000, 10, 3000, 0)]
    rows.append((NOW_MS, None, None, [("h", b"x" * 3000)]))
    refused = limits("none", {"max.message.bytes": "2000"}).rejected(events(*rows), PRESENT)
    assert refused == dict.fromkeys([1, 3, 5], TOO_LARGE)


def test_without_a_stated_limit_kafkas_default_holds() -> None:
    """Where the broker does not tell its settings, a batch may have Kafka's default of 1,048,588 bytes."""
    fits = b"x" * (
        DEFAULT_MESSAGE_BYTES_MAX - written_bytes(None, b"x" * 1_048_000, []) + 1_048_000
    )
    assert written_bytes(None, fits, []) == 1_048_588
    unknown = limits("none", {})
    batch = events((NOW_MS, None, fits, []), (NOW_MS, None, fits + b"x", []))
    assert unknown.rejected(batch, PRESENT) == {1: TOO_LARGE}


def test_an_event_may_be_stamped_as_far_ahead_as_the_topic_allows() -> None:
    """At `message.timestamp.after.max.ms` from now it is taken, a millisecond further it is not."""
    batch = stamped(NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1, NOW_MS + 10 * HOUR_MS)
    refused = limits("none", {"message.timestamp.after.max.ms": f"{HOUR_MS}"}).rejected(
        batch, PRESENT
    )
    assert refused == dict.fromkeys([2, 3], "stamped further ahead than out allows")


def test_only_what_is_certain_is_rejected_by_time() -> None:
    """Of a present that is known to some seconds, the end counts that is better for the event; unknown, none does."""
    both = {"message.timestamp.after.max.ms": f"{HOUR_MS}", "retention.ms": f"{HOUR_MS}"}
    narrow, oldest = limits("none", both), HOUR_MS - RETENTION_MARGIN_MS
    ahead, behind = NOW_MS + 9 + HOUR_MS, NOW_MS - 5 - oldest
    batch = stamped(ahead, ahead + 1, behind, behind - 1)
    assert narrow.rejected(batch, Span(NOW_MS - 5, NOW_MS + 9)).keys() == {1, 3}
    assert narrow.rejected(batch, None) == {}
    too_large = events((ahead + 1, None, b"x" * DEFAULT_MESSAGE_BYTES_MAX, []))
    assert narrow.rejected(too_large, None) == {0: TOO_LARGE}


def test_a_topic_that_is_only_compacted_keeps_what_is_old() -> None:
    """Its retention.ms deletes nothing; where it is deleted by age as well, it does."""
    batch = stamped(NOW_MS - 2 * HOUR_MS)
    kept = {"retention.ms": f"{HOUR_MS}", "cleanup.policy": "compact"}
    assert limits("none", kept).rejected(batch, PRESENT) == {}
    assert limits("none", kept | {"cleanup.policy": "compact,delete"}).rejected(batch, PRESENT)


@pytest.mark.parametrize("setting", ["retention.ms", "message.timestamp.before.max.ms"])
def test_an_event_must_outlive_its_transaction(setting: str) -> None:
    """What is older than the topic takes or keeps, less a margin, is refused."""
    oldest = NOW_MS - HOUR_MS + RETENTION_MARGIN_MS
    batch = stamped(NOW_MS, oldest, oldest - 1, 0)
    refused = limits("none", {setting: f"{HOUR_MS}"}).rejected(batch, PRESENT)
    assert refused == dict.fromkeys([2, 3], "older than out takes or keeps")


def test_the_narrower_of_retention_and_distance_counts() -> None:
    """Both limits on old events hold at once, whichever is the narrower."""
    for one, other in ((HOUR_MS, 2 * HOUR_MS), (2 * HOUR_MS, HOUR_MS)):
        both = {"retention.ms": f"{one}", "message.timestamp.before.max.ms": f"{other}"}
        assert limits("none", both).behind_ms_max == HOUR_MS - RETENTION_MARGIN_MS


def test_the_old_name_of_the_distance_counts_for_both_sides() -> None:
    """Before Kafka 3.6 one setting bounds both sides; from then on it yields to the new ones that are set."""
    old = {"message.timestamp.difference.max.ms": f"{HOUR_MS}"}
    assert limits("none", old).ahead_ms_max == HOUR_MS
    assert limits("none", old).behind_ms_max == HOUR_MS - RETENTION_MARGIN_MS
    new = old | {"message.timestamp.after.max.ms": f"{2 * HOUR_MS}"}
    assert limits("none", new).ahead_ms_max == 2 * HOUR_MS
    defaults = old | {"message.timestamp.after.max.ms": f"{2**63 - 1}"}
    assert limits("none", defaults).ahead_ms_max == HOUR_MS


@pytest.mark.parametrize(
    "settings_of_topic",
    [
        {},
        {"retention.ms": "-1"},
        {
            "retention.ms": f"{2**63 - 1}",
            "message.timestamp.after.max.ms": f"{2**63 - 1}",
            "message.timestamp.before.max.ms": f"{2**63 - 1}",
        },
        {
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": "1000",
            "message.timestamp.after.max.ms": "1000",
            "message.timestamp.before.max.ms": "1000",
        },
    ],
    ids=["nothing stated", "kept for ever", "Kafka's longest", "stamped by the broker"],
)
def test_where_no_time_is_wrong_none_is_refused(settings_of_topic: Mapping[str, str]) -> None:
    """Without a limit, or where the broker stamps by itself, any timestamp is taken."""
    batch = stamped(-1, 0, NOW_MS, FOREVER)
    unbounded = limits("none", settings_of_topic)
    assert unbounded.ahead_ms_max == unbounded.behind_ms_max == FOREVER
    assert unbounded.rejected(batch, PRESENT) == {}


def test_for_ever_is_not_a_number_of_years() -> None:
    """Kept for ever, the oldest timestamp is taken, and without a limit ahead also the latest one."""
    batch = stamped(-FOREVER - 1, -FOREVER, -(2**63), 2**63 - 1)
    assert limits("none", {"retention.ms": "-1"}).rejected(batch, PRESENT) == {}


@pytest.mark.parametrize("retention_ms", [0, 1, 10_000, RETENTION_MARGIN_MS])
def test_a_short_retention_has_a_margin_of_its_half(retention_ms: int) -> None:
    """However short the retention, an event of this moment is taken, and one that outlives it is not."""
    half_ms = retention_ms // 2
    refused = limits("none", {"retention.ms": f"{retention_ms}"}).rejected(
        stamped(NOW_MS, NOW_MS - half_ms, NOW_MS - retention_ms - 1, NOW_MS + 5), PRESENT
    )
    assert list(refused) == [2]


def test_an_event_without_a_timestamp_is_not_too_old() -> None:
    """-1 is Kafka's word for none: the broker takes it whatever the limits."""
    of_topic = {"retention.ms": "1000", "message.timestamp.before.max.ms": "1000"}
    assert limits("none", of_topic).rejected(stamped(-1, -2), PRESENT).keys() == {1}


def test_a_size_is_the_reason_that_counts() -> None:
    """Too large and too old at once is too large: only then a dead letter goes without its bytes."""
    narrow = limits("none", {"max.message.bytes": "2000", "retention.ms": f"{HOUR_MS}"})
    assert narrow.rejected(events((0, None, b"x" * 3000, [])), PRESENT) == {0: TOO_LARGE}


def limits(compression: str, settings_of_topic: Mapping[str, str]) -> Limits:
    """The limits of a topic with these settings."""
    return Limits.of(Topic("out", None, 1, 1, settings=settings_of_topic), compression)


def events(*rows: Row) -> EventBatch:
    """A batch of (timestamp, key, value, headers)."""
    records = [Record.of(*row) for row in rows]
    return batch_of("in", 0, range(len(rows)), records, next_offset=len(rows))


def stamped(*stamps: int) -> EventBatch:
    """A batch of small events with these timestamps."""
    return events(*((stamp, b"k", b"v", []) for stamp in stamps))


def sent(batch: EventBatch, compression: str) -> Any:
    """The record batch that is sent for an event alone."""
    batches = OpenBatches(CODECS[compression], transactional=False)
    [made] = [*batches.copy("out", batch, np.arange(1), 900), *batches.finish("out")]
    return made


def built_by_aiokafka(key: Cell, value: Cell, of_record: Headers) -> bytes:
    """The batch that aiokafka's producer sends."""
    builder = BatchBuilder(1 << 30, CODECS["none"], is_transactional=1)
    builder.append(timestamp=NOW_MS, key=key, value=value, headers=list(of_record))
    builder.close()
    return bytes(builder._build())


def written_bytes(key: Cell, value: Cell, of_record: Headers) -> int:
    """The size of an uncompressed batch of one record (https://kafka.apache.org/documentation/#recordbatch)."""
    record = 3 + cell_bytes(key) + cell_bytes(value) + varint_bytes(len(of_record))
    for name, header in of_record:
        record += cell_bytes(name.encode()) + cell_bytes(header)
    return BATCH_HEADER_BYTES + varint_bytes(record) + record


def cell_bytes(cell: Cell) -> int:
    """Length and bytes; a null is the length -1."""
    return 1 if cell is None else varint_bytes(len(cell)) + len(cell)


def varint_bytes(number: int) -> int:
    """Seven bits a byte, of the number in zigzag."""
    return max(1, -(-(2 * number).bit_length() // 7))
