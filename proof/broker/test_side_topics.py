"""The topics of events that do not pass: the dead-letter topic, the duplicates topic, or nowhere, on a real broker."""

import time
from pathlib import Path

import pytest

from tests.broker.base import Broker
from tests.broker.needs import AHEAD
from tests.broker.topics import Event, Record, create_topic, read_all, unique_name
from tests.deployment import Deployment
from tests.local import Start, run_to_the_end

pytestmark = pytest.mark.broker


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """One partition, keys from the JSON field `id`."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    deployment.config["key"] = {"from": "json", "field": "id"}
    return deployment


GOOD: list[Event] = [
    (0, b"k", b'{"id": 7}', [], None),
    (0, b"k", b'{"id": "7"}', [], None),
    (0, b"k", b'{"id": 8}', [], None),
]
BAD: list[Event] = [
    (0, b"k0", b"not json", [("own", b"header")], None),
    (0, b"k1", b'{"id": null}', [], None),
    (0, b"k2", b'{"id": 1.5}', [], None),
    (0, b"k3", b'{"other": 1}', [], None),
    (0, b"k4", b'{"id": [1]}', [], None),
    (0, b"k5", b"\xff\xfe", [], None),
]


def values(deployment: Deployment, topic: str) -> list[bytes | None]:
    """The values in a topic."""
    return [record.value for record in read_all(deployment.bootstrap, topic)]


def headers(record: Record) -> dict[str, bytes | None]:
    """The headers of a record, by name."""
    return dict(record.headers)


def test_malformed_events_go_to_the_dead_letter_topic(deployment: Deployment) -> None:
    """With a dead-letter topic, every bad event goes there whole, with its place and the reason."""
    letters = deployment.create_side_topic("dead_letter_topic")
    before_ms = int(time.time() * 1000)
    deployment.feed([*BAD, *GOOD])
    worker = run_to_the_end(deployment)
    assert values(deployment, deployment.sink) == [b'{"id": 7}', b'{"id": 8}']
    records = read_all(deployment.bootstrap, letters)
    assert [(r.key, r.value) for r in records] == [(e[1], e[2]) for e in BAD]
    assert [headers(r)["streamdedup.offset"] for r in records] == [b"%d" % i for i in range(6)]
    for record in records:
        assert headers(record)["streamdedup.topic"] == deployment.source.encode()
        assert headers(record)["streamdedup.partition"] == b"0"
        assert (record.timestamp_ms or 0) >= before_ms
    reasons = [headers(r)["streamdedup.reason"] for r in records]
    assert (reasons[0] or b"").startswith(b"the value is not valid JSON: ")
    assert reasons[5] == reasons[0]
    assert reasons[1] == b"the field id is null"
    assert reasons[3] == b"the field id is missing"
    assert headers(records[0])["own"] == b"header"
    (stopped,) = worker.lines("stopped")
    assert (stopped["consumed"], stopped["malformed"], stopped["pass"]) == (9, 6, 2)


def test_malformed_events_pass_without_a_dead_letter_topic(deployment: Deployment) -> None:
    """Without one they pass unjudged, in their place, and a fold over them goes on."""
    deployment.feed([GOOD[0], BAD[0], BAD[0], GOOD[1]])
    run_to_the_end(deployment)
    expected = [b'{"id": 7}', b"not json", b"not json"]
    assert values(deployment, deployment.sink) == expected
    deployment.delete_snapshots()
    deployment.feed([GOOD[0], BAD[0]])
    second = run_to_the_end(deployment)
    (folded,) = second.lines("output_folded")
    assert (folded["events"], folded["without_key"]) == (3, 2)
    assert values(deployment, deployment.sink) == [*expected, b"not json"]


def test_malformed_events_are_dropped_where_that_is_asked_for(deployment: Deployment) -> None:
    """`on_malformed: drop` drops them, and counts them."""
    deployment.config["key"]["on_malformed"] = "drop"
    deployment.feed([*BAD, *GOOD])
    worker = run_to_the_end(deployment)
    assert values(deployment, deployment.sink) == [b'{"id": 7}', b'{"id": 8}']
    assert worker.lines("stopped")[0]["malformed"] == len(BAD)


def test_duplicates_go_to_their_topic_byte_for_byte(deployment: Deployment) -> None:
    """With a duplicates topic, what is dropped is found there as it was."""
    duplicates = deployment.create_side_topic("duplicates_topic")
    stamp = int(time.time() * 1000) - 1000
    again: Event = (0, None, b'{"id": "7", "again": true}', [("h", b"x")], stamp)
    deployment.feed([*GOOD, again])
    run_to_the_end(deployment)
    first, second = read_all(deployment.bootstrap, duplicates)
    assert first.value == b'{"id": "7"}'
    assert (0, second.key, second.value, list(second.headers), second.timestamp_ms) == again


@pytest.mark.parametrize(("tombstones", "emitted"), [("pass", 3), ("judge", 1), ("drop", 0)])
def test_tombstones(deployment: Deployment, tombstones: str, emitted: int) -> None:
    """Null values pass unjudged, are judged by their key, or are dropped, as configured."""
    deployment.config["key"] = {"from": "key"}
    deployment.config["source"]["tombstones"] = tombstones
    deployment.feed([(0, b"same", None, [], None)] * 3)
    worker = run_to_the_end(deployment)
    assert len(values(deployment, deployment.sink)) == emitted
    assert worker.lines("stopped")[0]["consumed"] == 3


def test_several_fields_are_one_key(deployment: Deployment) -> None:
    """Several fields are joined so that (ab, c) differs from (a, bc); a pointer reaches into objects."""
    deployment.config["key"]["field"] = ["a", "/b/c~1d/0"]
    texts = [
        b'{"a": "ab", "b": {"c/d": ["c"]}}',
        b'{"a": "a", "b": {"c/d": ["bc"]}}',
        b'{"b": {"c/d": ["c"]}, "a": "ab"}',
    ]
    deployment.feed([(0, None, text, [], None) for text in texts])
    run_to_the_end(deployment)
    assert values(deployment, deployment.sink) == texts[:2]


@pytest.mark.needs_broker(AHEAD)
@pytest.mark.rule(8)
def test_what_the_output_would_refuse_becomes_a_dead_letter(broker: Broker, tmp_path: Path) -> None:
    """Events too large for the output or stamped far ahead are REJECTED before a rule sees their key."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1)
    deployment.config["sink"]["compression"] = "none"
    deployment.create(max_message_bytes=2000)
    letters = deployment.create_side_topic("dead_letter_topic")
    ahead_ms = int(time.time() * 1000) + 40 * 60 * 1000
    create_topic(
        broker.bootstrap_servers,
        narrow := unique_name("narrow"),
        1,
        max_message_bytes=2000,
        message_timestamp_after_max_ms=1_800_000,
    )
    deployment.sink = deployment.config["sink"]["topic"] = narrow
    deployment.feed(
        [
            (0, b"twin", b"x" * 3000, [], None),
            (0, b"twin", b"small", [], None),
            (0, b"early", b"from the future", [], ahead_ms),
            (0, b"early", b"from now", [], None),
        ]
    )
    worker = run_to_the_end(deployment)
    assert values(deployment, narrow) == [b"small", b"from now"]
    large, early = read_all(deployment.bootstrap, letters)
    assert (large.key, large.value) == (b"twin", b"x" * 3000)
    assert headers(large)["streamdedup.reason"] == b"too large"
    assert early.value == b"from the future"
    assert b"further ahead" in (headers(early)["streamdedup.reason"] or b"")
    assert worker.lines("stopped")[0]["rejected"] == 2


def test_a_dead_letter_is_cut_as_little_as_its_topic_asks_for(
    broker: Broker, tmp_path: Path
) -> None:
    """Too large for the dead-letter topic, too: without the value, then with nothing of its own; each says so."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    letters = unique_name("letters")
    create_topic(broker.bootstrap_servers, letters, 1, max_message_bytes=2000)
    deployment.config["sink"] |= {"dead_letter_topic": letters, "compression": "none"}
    deployment.config["key"] = {"from": "json", "field": "id"}
    own: Event = (0, b"k", b"no json" * 400, [("own", b"h")], 1_790_000_000_000)
    deployment.feed([own, (0, b"k" * 3000, b"no json", [], None)])
    worker = run_to_the_end(deployment)
    first, second = read_all(deployment.bootstrap, letters)
    assert (first.key, first.value, headers(first)["own"]) == (b"k", None, b"h")
    assert headers(first)["streamdedup.cut"] == b"value"
    assert headers(first)["streamdedup.timestamp"] == b"1790000000000"
    assert (second.key, second.value) == (None, None)
    assert headers(second)["streamdedup.cut"] == b"key, value, headers"
    (line,) = worker.lines("dead_letters_cut")
    assert (line["first_offset"], line["events"]) == (0, 2)
    assert letters in line["remedy"]


def test_a_malformed_event_that_is_no_output_needs_not_fit_it(
    broker: Broker, tmp_path: Path
) -> None:
    """What goes to the dead letters anyway keeps its own reason, however large it is."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1)
    deployment.config["sink"]["compression"] = "none"
    deployment.create(max_message_bytes=2000)
    deployment.config["key"] = {"from": "json", "field": "id"}
    letters = deployment.create_side_topic("dead_letter_topic")
    deployment.feed([(0, None, b"no json" * 1000, [], None)])
    worker = run_to_the_end(deployment)
    (letter,) = read_all(deployment.bootstrap, letters)
    assert letter.value == b"no json" * 1000
    assert headers(letter)["streamdedup.reason"] == (
        b"the value is not valid JSON: a value is missing or wrong, at byte 1"
    )
    assert worker.lines("stopped")[0]["malformed"] == 1


@pytest.mark.rule(8)
async def test_a_rejected_event_without_a_dead_letter_topic_stops_the_shard(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """Nothing is dropped that nobody asked to drop: the shard stops and names the offset."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1)
    deployment.config["sink"]["compression"] = "none"
    deployment.create(max_message_bytes=2000)
    deployment.feed([(0, b"a", b"x" * 3000, [], None), (0, b"b", b"small", [], None)])
    async with start(deployment) as worker:
        trouble = await worker.stopped()
        assert f"{deployment.source}/0 offset 0 is too large" in trouble
        assert "sink.dead_letter_topic" in trouble
    assert values(deployment, deployment.sink) == []


def test_batches_are_cut_to_what_each_topic_takes(broker: Broker, tmp_path: Path) -> None:
    """Many small events at once, for topics that take small batches only: each gets several, none is refused."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1)
    deployment.create(max_message_bytes=3000)
    letters, duplicates = unique_name("letters"), unique_name("duplicates")
    create_topic(broker.bootstrap_servers, letters, 1, max_message_bytes=2000)
    create_topic(broker.bootstrap_servers, duplicates, 1, max_message_bytes=3000)
    deployment.config["sink"] |= {"dead_letter_topic": letters, "duplicates_topic": duplicates}
    deployment.config["key"] = {"from": "json", "field": "id"}
    keys = [*range(2000), *range(2000)]
    deployment.feed([(0, None, b'{"id": %d}' % key, [], None) for key in keys])
    deployment.feed([(0, None, b"bad", [], None)] * 500)
    worker = run_to_the_end(deployment)
    assert len(values(deployment, deployment.sink)) == len(values(deployment, duplicates)) == 2000
    assert values(deployment, letters) == [b"bad"] * 500
    assert worker.lines("doubt") == []
