"""Claims about what a topic would refuse or not keep, asked first: sizes to the byte, times to the ms."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
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
from tests.rows import table

NOW_MS = 1_790_000_000_000
PRESENT = Span.at(NOW_MS)
HOUR_MS = 3_600_000
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


def test_every_row_is_judged_by_itself() -> None:
    """Rows keep their places: the large ones are named, whatever stands beside them."""
    rows: list[Row] = [(NOW_MS, None, b"x" * size, []) for size in (10, 3000, 10, 3000, 0)]
    rows.append((NOW_MS, None, None, [("h", b"x" * 3000)]))
    refused = limits("none", {"max.message.bytes": "2000"}).rejected(events(*rows), PRESENT)
    assert refused == dict.fromkeys([1, 3, 5], TOO_LARGE)


def test_without_a_stated_limit_kafkas_default_holds() -> None:
    """Where the broker does not tell its settings, a batch may have Kafka's default of 1,048,588 bytes."""
    assert DEFAULT_MESSAGE_BYTES_MAX == 1_048_588
    size = sent(events((NOW_MS, None, b"x" * 1_048_000, [])), "none").size()
    fits = b"x" * (1_048_000 + DEFAULT_MESSAGE_BYTES_MAX - size)
    unknown = limits("none", {})
    batch = events((NOW_MS, None, fits, []), (NOW_MS, None, fits + b"x", []))
    assert unknown.rejected(batch, PRESENT) == {1: TOO_LARGE}


OLDEST_MS = NOW_MS - HOUR_MS + RETENTION_MARGIN_MS
AHEAD, BEHIND = "stamped further ahead than out allows", "older than out takes or keeps"
MOST = f"{2**63 - 1}"
ANY = (-FOREVER - 1, -FOREVER, -(2**63), -1, 0, NOW_MS, FOREVER, 2**63 - 1)
AFTER, BEFORE = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"


@table(
    [
        # To the ms: as far ahead as the topic allows, and no older than it takes or keeps, less a margin.
        (
            {AFTER: HOUR_MS},
            (NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1, 2**63 - 1),
            {1: AHEAD, 2: AHEAD},
        ),
        ({"retention.ms": HOUR_MS}, (OLDEST_MS, OLDEST_MS - 1, 0), {1: BEHIND, 2: BEHIND}),
        ({BEFORE: HOUR_MS}, (OLDEST_MS, OLDEST_MS - 1, 0), {1: BEHIND, 2: BEHIND}),
        # -1 is Kafka's word for no time.
        ({"retention.ms": 1000, BEFORE: 1000}, (-1, -2), {1: BEHIND}),
        # Of a topic that is only compacted, nothing is deleted by its age.
        ({"retention.ms": HOUR_MS, "cleanup.policy": "compact"}, (NOW_MS - 2 * HOUR_MS,), {}),
        (
            {"retention.ms": HOUR_MS, "cleanup.policy": "compact,delete"},
            (NOW_MS - 2 * HOUR_MS,),
            {0: BEHIND},
        ),
        # No limit: none is stated, kept for ever, Kafka's longest, or the broker stamps by itself.
        ({}, ANY, {}),
        ({"retention.ms": -1}, ANY, {}),
        ({"retention.ms": MOST, AFTER: MOST, BEFORE: MOST}, ANY[3:7], {}),
        (
            {"message.timestamp.type": "LogAppendTime", "retention.ms": 1, AFTER: 1, BEFORE: 1},
            ANY,
            {},
        ),
        # A short retention has a margin of its half, so that an event of this moment is taken.
        *(
            (
                {"retention.ms": ms},
                (NOW_MS, NOW_MS - ms // 2, NOW_MS - ms - 1, NOW_MS + 5),
                {2: BEHIND},
            )
            for ms in (0, 1, 10_000, RETENTION_MARGIN_MS)
        ),
    ]
)
def test_times_are_judged_to_the_ms(
    of_topic: Mapping[str, object], stamps: tuple[int, ...], refused: dict[int, str]
) -> None:
    """By the settings of the topic: which of these timestamps it does not take or keep, and why."""
    known = limits("none", {name: f"{value}" for name, value in of_topic.items()})
    assert known.rejected(stamped(*stamps), PRESENT) == refused


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
