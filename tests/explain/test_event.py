"""Claims about `streamdedup explain --at`: what became of an event, each fate once; over a broker in memory."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from streamdedup.errors import ConfigError
from streamdedup.explain import places, search
from streamdedup.explain.event_report import EventReport
from streamdedup.explain.search import is_copied
from streamdedup.testing.cluster import MemoryCluster
from tests.broker.topics import Event
from tests.deployment import keyed
from tests.explain.asking import Asked, deployed, user
from tests.lists.files import list_file

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


@pytest.fixture(params=["snapshot", "output"])
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Asked:
    """One partition; it is asked with a snapshot, and without one."""
    made = deployed(tmp_path)
    work = made.work

    def worked() -> object:
        worker = work()
        if request.param == "output":
            shutil.rmtree(made.directory / "snapshots")
        return worker

    made.work = worked  # type: ignore[method-assign,assignment]
    return made


def fate(report: EventReport) -> tuple[str, int]:
    """The outcome and the exit status."""
    return report.outcome.kind, report.status


def test_a_first_event_passed_and_its_repeats_are_duplicates(asked: Asked) -> None:
    """The first names its place in the output; a duplicate in its batch, or after a restart, names the first."""
    asked.fill([1, 2, 1, 3])
    asked.fill([1, 4])
    assert [fate(asked.at(at)) for at in (0, 1, 3, 5)] == [("passed", 0)] * 4
    assert asked.at(3).outcome.copies[0].offset == 2
    for at in (2, 4):
        report = asked.at(at)
        assert fate(report) == ("duplicate", 0)
        assert report.outcome.copies[0].offset == 0
        where = report.outcome.places[0].copy
        assert where is not None
        assert (where.offset, report.outcome.places[0].is_first) == (0, True)
        assert report.now[:2] == ("duplicate", "filter")


def test_an_unread_event_has_only_a_verdict_of_now(asked: Asked) -> None:
    """Its status says whether its key is known."""
    asked.fill([1])
    asked.feed(keyed([1, 2], 1))
    assert [fate(asked.at(at)) for at in (1, 2)] == [("unread", 0), ("unread", 4)]
    assert [asked.at(at).now[0] for at in (1, 2)] == ["duplicate", "pass"]
    assert "the committed offset is 1" in asked.at(2).outcome.text


def test_an_event_before_a_moved_offset_is_unread_and_in_the_output(asked: Asked) -> None:
    """It will be a duplicate, and the answer says where its first copy is."""
    asked.fill([1, 2])
    asked.commit({0: 0})
    report = asked.at(1)
    assert fate(report) == ("unread", 0)
    assert f"an equal event is at {asked.sink}/0 offset 1" in report.outcome.text


def test_an_event_that_is_far_from_its_time_in_the_output_is_found(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An early event with a late timestamp has the search by time begin early, and end before it: the key finds it."""
    late = asked.broker.now_ms() + 1_000
    asked.feed([(0, user(0), b"{}", [], late), *keyed(range(1, 3_000), 1)])
    asked.work()
    monkeypatch.setattr(search, "EQUALS_READ_MAX", 10)
    monkeypatch.setattr(places, "EQUALS_READ_MAX", 10)
    report = asked.at(2_500)
    assert fate(report) == ("passed", 0)
    assert report.outcome.copies[0].offset == 2_500
    assert "it, or an equal earlier one, passed" in report.outcome.text


def test_of_equal_events_the_earliest_passed(asked: Asked) -> None:
    """A producer that repeats an event makes events with equal bytes and times; only the first passed."""
    event: Event = (0, user(1), b"{}", [], NOW_MS)
    asked.feed([event, event, event])
    asked.work()
    assert [fate(asked.at(at))[0] for at in range(3)] == ["passed", "duplicate", "duplicate"]


def test_if_the_input_is_trimmed_an_equal_earlier_event_may_have_passed(asked: Asked) -> None:
    """The answer says so."""
    event: Event = (0, user(1), b"{}", [], NOW_MS)
    asked.feed([event, event])
    asked.work()
    asked.broker.log(asked.source, 0).trim(1)
    report = asked.at(1)
    assert report.outcome.kind == "passed"
    assert "it, or an equal earlier one, passed" in report.outcome.text


@pytest.mark.parametrize(
    ("on_malformed", "said"),
    [("dead_letter", "is the letter about it"), ("drop", "on_malformed: drop"), ("pass", "passed")],
)
def test_an_event_without_a_key(asked: Asked, on_malformed: str, said: str) -> None:
    """The reason, and what became of it, as configured."""
    asked.create_side_topic("dead_letter_topic")
    asked.config["key"] = {"field": "id", "on_malformed": on_malformed}
    asked.feed([(0, b"k", b'{"id": "a"}', [], None), (0, b"k", b'{"no": 1}', [], None)])
    asked.work()
    report = asked.at(1)
    assert fate(report) == (("passed", 0) if on_malformed == "pass" else ("malformed", 4))
    assert said in report.outcome.text
    assert report.now[0] == "malformed"
    assert "id" in report.now[2]


def test_a_rejected_event_has_a_letter_with_the_limit(tmp_path: Path) -> None:
    """The letter is found by the headers that name the event."""
    asked = Asked(tmp_path)
    asked.create(max_message_bytes=2_000)
    asked.create_side_topic("dead_letter_topic")
    asked.config["sink"]["on_rejected"] = "dead_letter"
    asked.feed([(0, user(1), os.urandom(5_000), [], None), *keyed([2], 1)])
    asked.work()
    report = asked.at(0)
    assert fate(report) == ("rejected", 4)
    assert "too large" in report.outcome.text
    assert report.now == ("rejected", "limits", "too large")


@pytest.mark.parametrize("with_topic", [True, False], ids=["letters", "no letters"])
def test_a_blocked_event_names_the_list(asked: Asked, tmp_path: Path, with_topic: bool) -> None:
    """From its letter; without a topic for those, from the list as it is now. The allow list exempts."""
    if with_topic:
        asked.create_side_topic("blocked_topic")
    asked.config["blocklist"] = {
        "file": str(list_file(tmp_path / "block.list", [user(1), user(2)]))
    }
    asked.config["allowlist"] = {"file": str(list_file(tmp_path / "allow.list", [user(2)]))}
    asked.fill([1, 2, 3])
    report = asked.at(0)
    assert fate(report) == ("blocked", 4)
    assert "the list spam, version" in report.outcome.text
    assert (report.outcome.letter is not None) == with_topic
    assert report.now[:2] == ("blocked", "blocklist")
    assert fate(asked.at(1)) == ("passed", 0)


def test_a_late_event_is_dropped(asked: Asked) -> None:
    """It is older than the window, which an earlier event had moved on."""
    asked.config["filter"] |= {
        "kind": "window",
        "retention": "1d",
        "late": "drop",
        "error_rate": 1e-6,
    }
    at = [NOW_MS, NOW_MS - 5 * DAY_MS, NOW_MS + 10]
    asked.feed((0, user(n), b"{}", [], time) for n, time in enumerate(at))
    asked.work()
    assert [fate(asked.at(n))[0] for n in range(3)] == ["passed", "late", "passed"]
    assert asked.at(1).now == (
        "blocked",
        "filter",
        "it is older than the window (filter.late: drop)",
    )


def test_an_event_was_late_although_its_key_passed_since(asked: Asked) -> None:
    """The filter knows the key now, and would not call the event late."""
    asked.config["filter"] |= {"kind": "window", "retention": "1d", "late": "drop"}
    asked.config["filter"]["error_rate"] = 1e-6
    times = [(1, NOW_MS), (2, NOW_MS - 5 * DAY_MS), (2, NOW_MS + 10)]
    asked.feed((0, user(n), b"%d" % time, [], time) for n, time in times)
    asked.work()
    assert [fate(asked.at(n))[0] for n in range(3)] == ["passed", "late", "passed"]
    assert asked.at(1).now[0] == "duplicate"


def test_a_window_forgets(asked: Asked) -> None:
    """A key passes again after its window; each event passed by itself, and a duplicate has the one before it."""
    asked.config["filter"] |= {"kind": "window", "retention": "1d", "error_rate": 1e-6}
    times = [NOW_MS, NOW_MS + 10, NOW_MS + 3 * DAY_MS, NOW_MS + 3 * DAY_MS + 10]
    asked.feed((0, user(1), b"%d" % n, [], time) for n, time in enumerate(times))
    asked.work()
    assert [fate(asked.at(n))[0] for n in range(4)] == [
        "passed",
        "duplicate",
        "passed",
        "duplicate",
    ]
    assert [asked.at(n).outcome.copies[0].offset for n in range(4)] == [0, 0, 1, 1]
    assert any("forgotten once an event of 2023-11-1" in line for line in asked.at(3).lines())


@pytest.mark.parametrize(
    ("tombstones", "fates"), [("pass", ("passed", 0)), ("drop", ("dropped", 4))]
)
def test_a_tombstone(asked: Asked, tombstones: str, fates: tuple[str, int]) -> None:
    """It passes without a verdict, or is dropped, as configured."""
    asked.config["source"] |= {"tombstones": tombstones}
    asked.feed([*keyed([1], 1), (0, user(1), None, [], None)])
    asked.work()
    assert fate(asked.at(1)) == fates


def test_a_key_of_two_partitions_passed_in_both(tmp_path: Path) -> None:
    """The answer names the other partition."""
    asked = deployed(tmp_path, 2)
    asked.feed([(0, user(1), b"a", [], None), (1, user(1), b"b", [], None)])
    asked.work()
    report = asked.at(0, 1)
    assert fate(report) == ("passed", 0)
    assert report.elsewhere == [0]


def test_after_a_forget_an_event_has_passed_twice(asked: Asked) -> None:
    """Both places are named, and which of them is forgotten; duplicates of then are still found."""
    asked.fill([1, 2, 1])
    asked.forget()
    assert asked.at(1).now[0] == "pass"
    assert fate(asked.at(1))[0] == "unread"
    asked.work()
    report = asked.at(0)
    assert fate(report) == ("passed", 0)
    assert [copy.offset for copy in report.outcome.copies] == [0, 3]
    assert "which `reset --forget` has made forgotten; it passed to" in report.outcome.text
    assert fate(asked.at(2)) == ("duplicate", 0)


def test_what_a_forget_to_the_end_forgot_is_still_told(asked: Asked) -> None:
    """An event of before passed then; now its key would pass again."""
    asked.fill([1, 2, 1])
    asked.forget("latest")
    report = asked.at(1)
    assert fate(report) == ("passed", 0)
    assert report.now[0] == "pass"
    assert fate(asked.at(2)) == ("duplicate", 0)


def test_a_false_positive_is_proven(tmp_path: Path) -> None:
    """At a rate of 10 %, some new events do not pass; each is found to be one, and no other event is."""
    asked = deployed(tmp_path, kind="bloom", error_rate=0.1, capacity=1000, on_full="warn")
    asked.fill(range(1000))  # admitted once they are committed
    asked.fill(range(1000, 2000))
    passed = {record.key for record in asked.read_all(asked.sink)}
    false = [n for n in range(1000, 2000) if user(n) not in passed]
    assert false
    for n in (*false[:3], 0):
        expected = ("false_positive", 5) if n in false else ("passed", 0)
        assert fate(asked.at(n)) == expected
    assert "proven" in asked.at(false[0]).outcome.text
    quick = asked.at(false[0], quick=True)
    assert fate(quick) == ("duplicate", 0)
    assert "perhaps a false positive" in quick.outcome.text
    asked.delete_snapshots()
    assert fate(asked.at(false[0])) == ("false_positive", 5)


def test_shadow_mode_marks_what_would_not_have_passed(asked: Asked) -> None:
    """The mark of the output is the answer."""
    asked.config["sink"]["shadow"] = True
    asked.fill([1, 1])
    report = asked.at(1)
    assert fate(report) == ("duplicate", 0)


@pytest.mark.parametrize(
    ("headers", "said"), [(False, "it is in {}/0 offset 2"), (True, "{}/0 offset 2 is the letter")]
)
def test_a_duplicate_is_found_on_its_topic(asked: Asked, headers: bool, said: str) -> None:
    """The answer names the place there: by the event's bytes, or by the headers of letters."""
    topic = asked.create_side_topic("duplicates_topic")
    asked.config["sink"]["duplicates_headers"] = headers
    asked.fill([1, 2, 1])
    asked.feed([(0, user(1), b"other", [], None)])
    asked.work()
    assert said.format(topic) in asked.at(3).outcome.text


def test_what_a_second_writer_made_known_is_told(asked: Asked) -> None:
    """A key that another program has put into the output makes an event a duplicate; the answer says of what."""
    asked.produce(asked.sink, [(0, user(1), b"foreign", [], None)])
    asked.fill([1, 2])
    report = asked.at(0)
    assert fate(report) == ("duplicate", 0)
    assert (
        "of an event that is not in the input: another program has written it"
        in report.outcome.text
    )
    assert f"which passed to {asked.sink}/0 offset 0" in report.outcome.text


def test_an_event_is_no_duplicate_of_a_later_one(asked: Asked) -> None:
    """An offset was moved past it; the later event of its key is named, and that this one is in no topic."""
    asked.fill([1])
    asked.feed([(0, user(2), b"a", [], NOW_MS)])
    asked.commit({0: 2})
    asked.feed([(0, user(2), b"b", [], NOW_MS + 1)])
    asked.work()
    report = asked.at(1)
    assert fate(report) == ("unaccounted", 4)
    assert f"a later event only: {asked.source}/0 offset 2" in report.outcome.text
    assert fate(asked.at(2)) == ("passed", 0)


def test_what_the_topic_of_duplicates_holds_was_a_duplicate(tmp_path: Path) -> None:
    """Whatever else is known no more: the event is in a topic that a worker writes."""
    asked = deployed(tmp_path)
    asked.create_side_topic("duplicates_topic")
    asked.fill([1, 2, 1])
    asked.delete_snapshots()
    asked.broker.log(asked.sink, 0).trim(2)
    report = asked.at(2)
    assert fate(report) == ("duplicate", 0)
    assert "of an event that was not found; it is in" in report.outcome.text


def test_an_event_from_before_since_is_not_said_to_be_missing(asked: Asked) -> None:
    """It may have passed before; the answer says what to leave out."""
    asked.feed((0, user(n), b"{}", [], NOW_MS + n) for n in (1, 1, 2))
    asked.work()
    for at in (0, 1):
        report = asked.at(at, since_ms=NOW_MS + 100)
        assert fate(report) == ("unaccounted", 4)
        assert "leave --since out" in report.outcome.text
    assert fate(asked.at(2, since_ms=NOW_MS + 2)) == ("passed", 0)


# --- bad input ---


def test_what_is_no_event_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """Beyond the end, trimmed, aborted, no partition, no input: each says what to ask for instead."""
    asked = deployed(tmp_path)
    asked.feed(keyed([1, 2], 1))
    asked.broker.produce(asked.source, [(0, b"k", b"v")], abort=True)
    asked.broker.log(asked.source, 0).trim(1)
    for offset, said in (
        (0, "is trimmed: the partition begins at offset 1"),
        (99, "beyond the end"),
    ):
        with pytest.raises(ConfigError, match=said):
            asked.at(offset)
    with pytest.raises(
        ConfigError, match="the marker of a transaction, an event of an aborted one"
    ):
        asked.at(2)
    with pytest.raises(ConfigError, match=r"is not there: the partitions of \S+ are 0 to 0"):
        asked.at(0, 7)
    with pytest.raises(ConfigError, match="is no input of this configuration"):
        asked.at(0, topic=asked.sink)


def test_a_broker_that_never_answers_where_a_time_begins_ends_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report has what was found, and status 1."""
    asked = deployed(tmp_path)
    asked.fill([1])

    async def never(*_: object) -> int:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(MemoryCluster, MemoryCluster.offset_of_time.__name__, never)
    monkeypatch.setattr(search, "ANSWER_S_MAX", 0.01)
    report = asked.at(0)
    assert (report.status, report.now[0]) == (1, "duplicate")
    assert "went away" in (report.broken or "")


# --- privacy ---


def test_the_key_is_not_told_unless_it_is_asked_for(asked: Asked) -> None:
    """Neither in the text nor in JSON, nor a digest; `show_key` prints the normal form."""
    asked.config["key"] |= {"normalize": "email"}
    asked.feed([(0, b"Anna@Example.com", b"{}", [], None)] * 2)
    asked.work()
    for at in (0, 1):
        report = asked.at(at)
        text = "\n".join(report.lines()) + json.dumps(report.as_json())
        assert "anna" not in text.lower()
        assert "digest" not in text
        shown = asked.at(at, show_key=True)
        assert "key: anna@example.com" in "\n".join(shown.lines())
        assert shown.as_json()["key"] == "anna@example.com"


def test_headers_that_a_worker_appends_do_not_count() -> None:
    """Others do: an event with another header is another event."""
    given = (("a", b"1"),)
    assert is_copied(given, (*given, ("streamdedup.verdict", b"pass")))
    assert is_copied(given, given)
    assert not is_copied(given, (*given, ("b", b"2")))
    assert not is_copied(given, ())
