"""Claims about `streamdedup explain KEY`: known or not, by which event, how sure that is; on a broker in memory."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from streamdedup.errors import ConfigError
from streamdedup.events import Column
from streamdedup.explain import hits as hits_module
from streamdedup.explain import known as known_module
from streamdedup.explain import wanted as wanted_module
from streamdedup.filters.kinds import KINDS as KINDS_OF_FILTERS
from streamdedup.kafka.records.records import Record
from streamdedup.keys.placement import partitions_of
from streamdedup.snapshot.touched import TouchedReader
from streamdedup.testing.cluster import MemoryCluster
from tests.deployment import keyed
from tests.explain.asking import Asked, deployed, user
from tests.lists.files import list_file

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


@pytest.mark.parametrize("with_snapshots", [True, False], ids=["snapshots", "output"])
def test_a_key_is_known_by_the_event_that_passed(tmp_path: Path, with_snapshots: bool) -> None:
    """The place in the output, and in the input; a key that never came is not known."""
    asked = deployed(tmp_path, 2)
    asked.fill([1, 2, 3, 1])
    if not with_snapshots:
        asked.delete_snapshots()
    answer = asked.key(user(3))
    assert (answer.status, answer.verdict) == (0, ("duplicate", "filter"))
    (there,) = answer.partitions
    assert (there.known.partition, [hit.offset for hit in there.passed]) == (1, [1])
    assert there.known.source == ("snapshot" if with_snapshots else "output")
    assert there.place is not None
    assert there.place.copy is not None
    assert (there.place.copy.partition, there.place.copy.offset) == (1, 1)
    assert there.false_positive is None
    new = asked.key(user(9))
    assert (new.status, new.verdict, list(new.partitions)) == (4, ("pass", "filter"), [])


def test_what_the_output_has_after_the_snapshot_is_known(tmp_path: Path) -> None:
    """The fold from the snapshot's label on is part of the answer."""
    asked = deployed(tmp_path)
    asked.fill([1, 2])
    kept = {path: path.read_bytes() for path in asked.snapshots.rglob("*.snapshot")}
    asked.fill([3])
    for path in asked.snapshots.rglob("*.snapshot"):
        path.unlink()
    for path, content in kept.items():
        path.write_bytes(content)
    (there,) = asked.key(user(3)).partitions
    assert (there.known.source, [hit.offset for hit in there.passed]) == ("snapshot", [3])
    assert len(asked.key(user(1)).partitions) == 1


KINDS = sorted(name for name, kind in KINDS_OF_FILTERS.items() if not kind.static)
GROWING = [f"{name} grown" for name in KINDS if KINDS_OF_FILTERS[name].grows]


@pytest.mark.parametrize("which", [*KINDS, *GROWING])
def test_every_kind_of_filter_answers(tmp_path: Path, which: str) -> None:
    """By a mapped snapshot and a fold into it; the files stay as they are."""
    kind, _, grown = which.partition(" ")
    asked = deployed(tmp_path, kind=kind, capacity=5_000, error_rate=1e-5)
    if kind == "window":
        asked.config["filter"] |= {"retention": "30d"}
    if grown:
        asked.config["filter"] |= {"on_full": "grow", "capacity": 100}
    asked.fill(range(100))
    kept = {path: path.read_bytes() for path in asked.snapshots.rglob("*.snapshot")}
    asked.fill(range(100, 400))
    for path in asked.snapshots.rglob("*.snapshot"):
        path.unlink()
    for path, content in kept.items():
        path.write_bytes(content)
    given = [user(n) for n in (0, 99, 100, 399, 400, 401)]
    answers = asked.keys(*given)
    assert [answer.status for answer in answers] == [0, 0, 0, 0, 4, 4]
    assert {each.known.source for answer in answers for each in answer.partitions} == {"snapshot"}
    assert [path.read_bytes() for path in kept] == list(kept.values())


@pytest.mark.parametrize("with_snapshots", [True, False], ids=["snapshots", "output"])
def test_nothing_below_the_floor_is_known(tmp_path: Path, with_snapshots: bool) -> None:
    """After `reset --forget`, a key passes again, and is known by its new event."""
    asked = deployed(tmp_path)
    asked.fill([1, 2])
    asked.forget("latest")
    if not with_snapshots:
        asked.delete_snapshots()
    assert asked.key(user(1)).status == 4
    asked.fill([1])
    (there,) = asked.key(user(1)).partitions
    assert [hit.offset for hit in there.passed] == [3]


def test_what_is_pending_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in an open transaction is not said to be unknown: the answer names the transaction, and its status is 1."""
    asked = deployed(tmp_path)
    asked.fill([1])
    monkeypatch.setattr(known_module, "DECIDED_S_MAX", 0.0)
    log = asked.broker.log(asked.sink, 0)
    log.append([Record.of(NOW_MS, user(2), b"{}")], "other")
    pending = asked.report(
        [user(2)], lambda r: (r.status([a.status for a in r.answers()]), r.all_notes())
    )
    assert pending[0] == 1
    assert "is open from offset 2" in pending[1][0]
    assert asked.report([user(1)], lambda r: r.status([a.status for a in r.answers()])) == 0
    log.decide("other", committed=True)
    log.mark("other")
    assert asked.key(user(2)).status == 0


def test_a_false_positive_is_proven_by_the_whole_output(tmp_path: Path) -> None:
    """With `quick`, `since` or a trimmed output it is only probable; the answer has the error rate of now."""
    asked = deployed(tmp_path, kind="bloom", error_rate=0.1, capacity=1000, on_full="warn")
    asked.fill(range(1000))  # admitted once they are committed
    asked.fill(range(1000, 2000))
    passed = {record.key for record in asked.read_all(asked.sink)}
    false = next(user(n) for n in range(1000, 2000) if user(n) not in passed)
    answer = asked.key(false)
    assert answer.status == 5
    (there,) = answer.partitions
    assert (there.false_positive, list(there.passed)) == ("proven", [])
    assert 0.01 < there.known.error_rate < 0.9
    for options in ({"quick": True}, {"since_ms": 1}):
        (there,) = asked.key(false, **options).partitions
        assert there.false_positive == ("proven" if options == {"since_ms": 1} else "possible")
    since = asked.broker.now_ms() + 1_000
    (there,) = asked.key(false, since_ms=since).partitions
    assert there.false_positive == "possible"
    asked.broker.log(asked.sink, 0).trim(10)
    answer = asked.key(false)
    (there,) = answer.partitions
    assert (there.false_positive, answer.status) == ("possible", 0)
    text = asked.report([false], lambda r: "\n".join(r.lines(next(r.answers()))))
    assert "perhaps a false positive" in text


def test_lists_come_before_the_filter(tmp_path: Path) -> None:
    """A blocked key says by which list; an exempt one is judged by the filter."""
    asked = deployed(tmp_path)
    asked.config["blocklist"] = {
        "file": str(list_file(tmp_path / "block.list", [user(1), user(2)]))
    }
    asked.config["allowlist"] = {"file": str(list_file(tmp_path / "allow.list", [user(2)]))}
    asked.fill([1, 2])
    assert asked.key(user(1)).verdict == ("blocked", "blocklist")
    answer = asked.key(user(2))
    assert answer.verdict == ("duplicate", "filter")
    assert answer.listed is not None
    assert answer.listed.exempt
    assert "the allow list exempts it" in str(answer.listed)


def test_a_window_says_when_it_forgets(tmp_path: Path) -> None:
    """A key is known until then, by snapshots and by the output alone; the event behind it is its last."""
    asked = deployed(tmp_path, kind="window", retention="1d", error_rate=1e-6)
    times = {1: NOW_MS, 2: NOW_MS + 3 * DAY_MS}
    asked.feed((0, user(n), b"{}", [], time) for n, time in times.items())
    asked.work()
    for _ in range(2):
        assert asked.key(user(1)).status == 4
        answer = asked.key(user(2))
        assert answer.status == 0
        text = asked.report([user(2)], lambda r: "\n".join(r.lines(next(r.answers()))))
        assert "forgotten once an event of 2023-11-1" in text
        asked.delete_snapshots()


def test_a_window_by_count_says_after_how_many_keys(tmp_path: Path) -> None:
    """By snapshots and by the output alone."""
    asked = deployed(tmp_path, kind="window", capacity=100, error_rate=1e-6)
    asked.fill([*range(400), 399])
    for _ in range(2):
        assert [answer.status for answer in asked.keys(user(0), user(399))] == [4, 0]
        text = asked.report([user(399)], lambda r: "\n".join(r.lines(next(r.answers()))))
        assert "more new keys" in text
        asked.delete_snapshots()


def test_many_keys_are_answered_in_their_order(tmp_path: Path) -> None:
    """One pass; a key that is given twice has two answers, and a malformed one the reason."""
    asked = deployed(tmp_path, 2)
    asked.config["key"] |= {"normalize": "email"}
    asked.fill([1, 2, 3])
    given = [user(2), b"no address", user(9), user(2), b"USER3@EXAMPLE.COM"]
    answers = asked.keys(*given, every=True)
    assert [answer.number for answer in answers] == [1, 2, 3, 4, 5]
    assert [answer.status for answer in answers] == [0, 4, 4, 0, 0]
    assert answers[1].verdict == ("malformed", "key")
    assert answers[1].malformed
    assert answers[4].key == user(3)
    assert [hit.offset for hit in answers[3].partitions[0].passed] == [0]


def test_the_partition_by_key_is_that_of_the_key_as_it_was_given(tmp_path: Path) -> None:
    """A producer places an event before anything is normalized."""
    asked = deployed(tmp_path, 50)
    asked.config["key"] |= {"normalize": "lowercase"}
    homes = [asked.key(key).home for key in (b"A", b"a")]
    assert homes == [int(partitions_of(Column.of([key]), 50)[0]) for key in (b"A", b"a")]
    assert homes[0] != homes[1]


def test_a_key_of_several_partitions_is_found_in_each_with_all(tmp_path: Path) -> None:
    """Without snapshots, reading stops at the first hit, and says what was not read."""
    asked = deployed(tmp_path, 3)
    asked.feed((n, user(1), b"%d" % n, [], None) for n in range(3))
    asked.work()
    assert len(asked.key(user(1)).partitions) == 3
    asked.delete_snapshots()
    assert len(asked.key(user(1)).partitions) == 1
    assert len(asked.report([user(1)], lambda r: r.unread)) == 2
    every = asked.key(user(1), every=True)
    assert [len(each.passed) for each in every.partitions] == [1, 1, 1]
    assert [each.known.partition for each in asked.key(user(1), partitions=[2]).partitions] == [2]
    with pytest.raises(ConfigError, match="--partition 3 is not there"):
        asked.key(user(1), partitions=[3])


def test_a_joined_key_is_given_as_an_array(tmp_path: Path) -> None:
    """The texts of its fields, in their order; anything else is malformed, and says so."""
    asked = deployed(tmp_path)
    asked.config["key"] = {"field": ["a", "b"]}
    asked.feed([(0, None, b'{"a": "x", "b": 7}', [], None)])
    asked.work()
    answers = asked.keys(b'["x", "7"]', b'["x"]', b"x", b'["x7", ""]')
    assert [answer.status for answer in answers] == [0, 4, 4, 4]
    assert "write a JSON array of 2 texts" in (answers[1].malformed or "")


# --- snapshots that do not serve ---


def test_a_damaged_snapshot_is_passed_over_and_stays(tmp_path: Path) -> None:
    """Only what was touched is verified; the next one, or the output, answers, and the answer says so."""
    asked = deployed(tmp_path)
    asked.fill([1, 2])
    asked.fill([3])
    newest, *older = sorted(asked.snapshots.rglob("*.snapshot"), reverse=True)
    with newest.open("rb") as file:
        reader = TouchedReader(file.fileno(), newest.stat().st_size)
        reader.contents()
        reader.close()
    content = bytearray(newest.read_bytes())
    for start, stop in reader._places:
        content[start:stop] = bytes(stop - start)
    newest.write_bytes(content)
    before = set(asked.snapshots.rglob("*"))
    answer, notes = asked.report([user(3)], lambda r: (next(r.answers()), r.all_notes()))
    assert answer.status == 0
    assert answer.partitions[0].known.snapshot == str(older[0])
    assert "was passed over" in notes[0]
    assert set(asked.snapshots.rglob("*")) == before


def test_a_snapshot_of_other_settings_is_passed_over(tmp_path: Path) -> None:
    """Then the output alone answers."""
    asked = deployed(tmp_path)
    asked.fill([1])
    asked.config["filter"]["error_rate"] = 1e-6
    answer, notes = asked.report([user(1)], lambda r: (next(r.answers()), r.all_notes()))
    assert answer.partitions[0].known.source == "output"
    assert "other settings" in notes[0]


def test_a_trimmed_output_without_a_snapshot_is_said(tmp_path: Path) -> None:
    """What was emitted before is not known."""
    asked = deployed(tmp_path)
    asked.fill([1, 2])
    asked.delete_snapshots()
    asked.broker.log(asked.sink, 0).trim(1)
    answer, notes = asked.report([user(1)], lambda r: (next(r.answers()), r.all_notes()))
    assert answer.status == 4
    assert "begins at offset 1, and there is no snapshot" in notes[-1]


def test_a_broker_that_goes_away_leaves_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is 1, whatever was found."""
    asked = deployed(tmp_path, 2)
    asked.fill([1, 2])
    asked.delete_snapshots()
    real = MemoryCluster.committed_events

    async def gone(
        self: MemoryCluster, topic: str, partition: int, *range_: Any, **more: Any
    ) -> Any:
        if partition == 1:
            raise KafkaConnectionError
        async for batch in real(self, topic, partition, *range_, **more):
            yield batch

    monkeypatch.setattr(MemoryCluster, MemoryCluster.committed_events.__name__, gone)
    status, broken, answers = asked.report(
        [user(2), user(1)],
        lambda r: (r.status([a.status for a in r.answers()]), r.broken, list(r.answers())),
    )
    assert (status, [answer.verdict[0] for answer in answers]) == (1, ["duplicate", "unknown"])
    assert "went away" in broken
    text = asked.report(
        [user(2), user(1)], lambda r: "\n".join(line for a in r.answers() for line in r.lines(a))
    )
    assert "its next event: unknown, by the filter: the search broke off" in text
    assert "not asked, as the search broke off: partition 1" in text


# --- bounds ---


def test_too_many_and_too_long_keys_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a sentence that has no key."""
    asked = deployed(tmp_path)
    monkeypatch.setattr(wanted_module, "KEYS_MAX", 3)
    monkeypatch.setattr(wanted_module, "KEY_BYTES_MAX", 30)
    with pytest.raises(ConfigError, match="more than 3 keys"):
        asked.keys(*(user(n) for n in range(4)))
    with pytest.raises(ConfigError, match="key 2 has more than 30 bytes") as error:
        asked.keys(b"a", b"b" * 31)
    assert "bbb" not in str(error.value)


def test_odd_keys_are_looked_up(tmp_path: Path) -> None:
    """Of 1 MB, empty, no UTF-8, with control characters: each is found, and shown cut and escaped."""
    asked = deployed(tmp_path)
    odd = [b"x" * 1_000_000, b"", b"\xff\xfe", b"a\x1b[2Jb"]
    asked.feed((0, key, b"{}", [], None) for key in odd)
    asked.work()
    answers = asked.keys(*odd)
    assert [answer.status for answer in answers] == [0, 0, 0, 0]
    texts = asked.report(odd, lambda r: ["\n".join(r.lines(a)) for a in r.answers()])
    assert "... (1,000,000 bytes)" in texts[0]
    assert len(texts[0]) < 2_000
    assert "\\xff\\xfe" in texts[2]
    assert "\x1b" not in texts[3]


def test_events_of_one_key_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign writer can put a key into the output any number of times."""
    asked = deployed(tmp_path)
    asked.fill([1])
    asked.delete_snapshots()
    asked.produce(asked.sink, keyed([1] * 50, 1))
    assert len(asked.key(user(1), every=True).partitions[0].passed) == hits_module.HITS_A_KEY_MAX
    monkeypatch.setattr(hits_module, "HITS_MAX", 5)
    assert len(asked.key(user(1), every=True).partitions[0].passed) == 5


@pytest.mark.parametrize(("at_most", "listed"), [("HITS_A_KEY_MAX", 20), ("HITS_MAX", 5)])
def test_a_key_of_more_partitions_than_events_are_listed_is_no_false_positive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_most: str, listed: int
) -> None:
    """An event that is left out was found all the same, and a note counts it."""
    asked = deployed(tmp_path, 25)
    asked.feed((n, user(1), b"{}", [], None) for n in range(25))
    asked.work()
    if at_most == "HITS_MAX":
        monkeypatch.setattr(hits_module, at_most, 5)
    answer, notes = asked.report(
        [user(1)], lambda r: (next(r.answers()), r.all_notes()), every=True
    )
    assert sum(len(each.passed) for each in answer.partitions) == listed
    assert {each.false_positive for each in answer.partitions} == {None}
    assert answer.status == 0
    assert f"{25 - listed} more events" in notes[-1]


@pytest.mark.parametrize("with_snapshots", [True, False], ids=["snapshots", "output"])
def test_of_many_events_of_a_key_a_window_lists_the_last(
    tmp_path: Path, with_snapshots: bool
) -> None:
    """The others are forgotten; the last made the key known."""
    asked = deployed(tmp_path, kind="window", retention="1d", error_rate=1e-6)
    times = [NOW_MS + n * 3 * DAY_MS for n in range(30)]
    asked.feed((0, user(1), b"%d" % n, [], time) for n, time in enumerate([*times, times[-1] + 1]))
    asked.work()
    if not with_snapshots:
        asked.delete_snapshots()
    (there,) = asked.key(user(1), every=True).partitions
    assert [hit.offset for hit in there.passed][-1] == 29
    assert there.place is not None
    assert there.place.copy is not None
    assert there.place.copy.offset == 29
    assert asked.at(30).outcome.copies[0].offset == 29


@pytest.mark.parametrize("with_snapshots", [True, False], ids=["snapshots", "output"])
def test_what_lies_before_since_is_not_said_to_be_new(tmp_path: Path, with_snapshots: bool) -> None:
    """Without a snapshot the verdict is unknown: the output was not read."""
    asked = deployed(tmp_path)
    asked.fill([1])
    if not with_snapshots:
        asked.delete_snapshots()
    answer = asked.key(user(1), since_ms=asked.broker.now_ms() + 1_000)
    assert answer.verdict[0] == ("duplicate" if with_snapshots else "unknown")


def test_normal_forms_beyond_memory_go_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are the same."""
    asked = deployed(tmp_path)
    asked.fill(range(200))
    monkeypatch.setattr(wanted_module, "HELD_BYTES", 100)
    monkeypatch.setattr(wanted_module, "BLOCK_KEYS", 7)
    answers = asked.keys(*(user(n) for n in range(150, 250)))
    assert [answer.status for answer in answers] == [0] * 50 + [4] * 50


# --- without a filter ---


def test_without_a_filter_the_lists_alone_answer(tmp_path: Path) -> None:
    """No output is searched."""
    asked = Asked(tmp_path)
    asked.create()
    asked.config["filter"] = {"kind": "none"}
    asked.config["blocklist"] = {"file": str(list_file(tmp_path / "block.list", [user(1)]))}
    del asked.config["snapshot"]
    asked.fill([1, 2])
    assert [answer.verdict[0] for answer in asked.keys(user(1), user(2))] == ["blocked", "pass"]
    assert [asked.at(n).outcome.kind for n in (0, 1)] == ["blocked", "passed"]


def test_json_has_what_the_text_has(tmp_path: Path) -> None:
    """Plain values, and the status."""
    asked = deployed(tmp_path)
    asked.fill([1])
    made = asked.report([user(1)], lambda r: r.as_json(next(r.answers())))
    assert json.loads(json.dumps(made)) == made
    assert (made["verdict"], made["status"], made["known_in"][0]["passed"][0]["offset"]) == (
        "duplicate",
        0,
        0,
    )
