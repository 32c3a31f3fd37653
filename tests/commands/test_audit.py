"""Claims about `streamdedup audit`, over a broker in memory: each breach is found, nothing else is taken for one."""

import json
import re
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from streamdedup.cli import main
from streamdedup.commands import audit
from streamdedup.commands.audit import Report, unread
from streamdedup.commands.audit import report as report_module
from streamdedup.delivery.leader_clocks import LeaderClocks
from streamdedup.errors import ConfigError
from streamdedup.kafka.broker_clock import Span
from streamdedup.kafka.records.records import Record
from tests.broker.topics import Event
from tests.deployment import keyed
from tests.lists.files import list_file
from tests.memory_deployment import MemoryDeployment, findings

UNMADE = {"lost": None, "missing": None, "wrongly_dropped": None}


@pytest.fixture
def forged(tmp_path: Path) -> MemoryDeployment:
    """One partition; what the worker would have written is forged, and so are the offsets."""
    return MemoryDeployment(tmp_path).create()


def emit(deployment: MemoryDeployment, events: Iterable[Event], committed_at: int) -> None:
    """Put events into the output, and commit the input up to an offset."""
    deployment.produce(deployment.sink, events)
    deployment.commit({0: committed_at})


def letter(
    deployment: MemoryDeployment, offset: int, key: bytes | None = None, topic: str = ""
) -> Event:
    """What a side topic has of an event of the input, or of another topic."""
    named = topic or deployment.source
    origin = {"topic": named.encode(), "partition": b"0", "offset": b"%d" % offset}
    headers = [(f"streamdedup.{name}", value) for name, value in origin.items()]
    return 0, key, b"", list(headers), None


# --- breaches, forged ---


def test_a_key_that_is_nowhere_is_missed(forged: MemoryDeployment) -> None:
    """Beyond what the error rate explains, keys that are not in the output are a breach, with their offsets."""
    forged.feed(keyed([*range(100), *range(50)], 1))
    emit(forged, keyed(sorted({*range(100)} - {7, 8, 93}), 1), 150)
    report = forged.audited()
    assert findings(report) == {
        "lost": 0,
        "missing": 3,
        "wrongly_dropped": None,
        "doubled": 0,
        "foreign": 0,
    }
    (breach,) = report.breaches
    assert "3 keys in the input but not in the output" in breach
    assert "explains at most 0 of 100 keys" in breach
    assert f"{forged.source}/0 at offset 7, 8, 93" in breach


def test_what_is_behind_the_committed_offset_is_not_due(forged: MemoryDeployment) -> None:
    """Events that were not read yet are not missed, and those that were emitted already are not foreign."""
    forged.feed(keyed(range(100), 1))
    emit(forged, keyed(range(60), 1), 50)
    report = forged.audited()
    assert findings(report) == {**dict.fromkeys(findings(report), 0), "wrongly_dropped": None}
    assert (report.total.read, report.total.keys, report.total.emitted) == (50, 50, 60)


@pytest.mark.parametrize(("missing", "fine"), [(8, True), (40, False)], ids=["within", "beyond"])
def test_false_duplicates_have_a_budget(forged: MemoryDeployment, missing: int, fine: bool) -> None:
    """At 1 % of 1,000 keys, 8 that are missing are explained, and 40 are not."""
    forged.config["filter"]["error_rate"] = 0.01
    forged.feed(keyed(range(1000), 1))
    emit(forged, keyed(range(missing, 1000), 1), 1000)
    report = forged.audited()
    assert report.total.missing == missing
    assert report.fine == fine, report.as_text()
    assert 25 <= (report.total.explained_max or 0) <= 35
    said = "".join(report.notes if fine else report.breaches)
    assert f"{missing} keys" in said


@pytest.mark.parametrize(
    ("in_topic", "lost"), [([0, 1, 2], 0), ([0, 1], 1)], ids=["all", "but one"]
)
def test_the_topic_of_duplicates_tells_dropped_from_lost(
    forged: MemoryDeployment, in_topic: list[int], lost: int
) -> None:
    """A missing key that is among the duplicates was dropped, within the budget; one that is nowhere was lost."""
    forged.config["filter"]["error_rate"] = 0.01
    duplicates = forged.create_side_topic("duplicates_topic")
    forged.feed(keyed([*range(200), *range(100, 150)], 1))
    forged.produce(duplicates, keyed([*in_topic, *range(100, 150)], 1))
    emit(forged, keyed(range(3, 200), 1), 250)
    report = forged.audited()
    assert (report.total.wrongly_dropped, report.total.missing) == (len(in_topic), 3)
    assert report.total.lost == lost
    assert report.fine == (lost == 0), report.as_text()
    if lost:
        assert f"1 event lost; first: {forged.source}/0 at offset 2" in report.breaches[0]


def test_a_topic_of_duplicates_that_was_set_later_proves_no_loss(forged: MemoryDeployment) -> None:
    """If it does not hold all duplicates, what is missing may be either, and the budget decides."""
    forged.config["filter"]["error_rate"] = 0.01
    forged.create_side_topic("duplicates_topic")
    forged.feed(keyed([*range(200), *range(100)], 1))
    emit(forged, keyed(range(2, 200), 1), 300)
    report = forged.audited()
    assert (report.total.lost, report.total.missing, report.total.wrongly_dropped) == (0, 2, 0)
    assert report.fine
    assert "does not hold all duplicates" in report.as_text()


@pytest.mark.parametrize("cut", [False, True])
def test_a_duplicate_that_was_cut_proves_no_loss(forged: MemoryDeployment, cut: bool) -> None:
    """A letter without its value has no key: the missing key may be its, so the budget decides."""
    forged.config["key"] = {"from": "json", "field": "id"}
    forged.config["filter"]["error_rate"] = 0.01
    duplicates = forged.create_side_topic("duplicates_topic")
    forged.config["sink"]["duplicates_headers"] = True
    events: list[Event] = [(0, None, b'{"id": %d}' % n, [], None) for n in range(100)]
    forged.feed(events)
    emit(forged, events[1:], 100)
    if cut:
        forged.produce(duplicates, [(0, None, None, [("streamdedup.cut", b"value")], None)])
    report = forged.audited()
    assert report.total.missing == 1
    assert (report.total.lost, report.fine) == ((0, True) if cut else (1, False))
    assert ("1 event of it without a key" in report.as_text()) == cut


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_key_that_is_emitted_again_is_doubled(forged: MemoryDeployment, guarantee: str) -> None:
    """With exactly_once that is a breach; at_least_once promises less, and the events are reported all the same."""
    forged.config["delivery"]["guarantee"] = guarantee
    forged.feed(keyed([*range(100), 3], 1))
    emit(forged, keyed([*range(100), 3, 3, 40], 1), 101)
    report = forged.audited()
    assert report.total.doubled == 3
    assert report.fine == (guarantee == "at_least_once")
    assert f"{forged.sink}/0 at offset 101, 102" in "".join((*report.breaches, *report.notes))


def test_an_event_of_no_input_is_foreign(forged: MemoryDeployment) -> None:
    """Somebody else's event is named by its output offset, one without a key, too; its key is nowhere to be seen."""
    forged.feed(keyed(range(100), 1))
    emit(forged, [*keyed([*range(100), 777], 1), (0, b"gone", None, [], None)], 100)
    report = forged.audited()
    assert report.total.foreign == 2
    assert f"{forged.sink}/0 at offset 100, 101" in report.breaches[0]
    texts = report.as_text() + json.dumps(report.as_json())
    assert "user777" not in texts
    assert "gone" not in texts


def test_events_that_pass_unjudged_may_come_again_but_not_be_lost(forged: MemoryDeployment) -> None:
    """Tombstones and malformed events that pass are in the output as often as in the input, or more often."""
    stamp = int(time.time() * 1000)
    tombstones: list[Event] = [(0, b"k%d" % n, None, [], stamp) for n in range(10)]
    malformed: list[Event] = [(0, None, b"v%d" % n, [], stamp) for n in range(10)]
    forged.feed([*tombstones, *malformed, *malformed[:2]])
    emit(forged, [*tombstones, *tombstones, *malformed, *malformed[:2]], 22)
    assert forged.audited().fine
    assert (forged.audited().total.unjudged, forged.audited().total.malformed) == (10, 12)
    forged.feed([(0, b"k10", None, [], stamp), malformed[0]])
    emit(forged, [], 24)
    report = forged.audited()
    assert report.total.lost == 2
    assert f"2 events lost; first: {forged.source}/0 at offset 22, 23" in report.breaches[0]


def test_dead_letters_account_for_what_is_not_emitted(forged: MemoryDeployment) -> None:
    """What a dead letter names is not missed, nor is its key; a malformed event that none names is lost."""
    letters = forged.create_side_topic("dead_letter_topic")
    forged.feed([*keyed(range(10), 1), (0, None, b"", [], None), (0, None, b"", [], None)])
    of_another = letter(forged, 5, topic="other")
    forged.produce(letters, [*[letter(forged, 4)] * 2, of_another, letter(forged, 10)])
    emit(forged, keyed({*range(10)} - {4}, 1), 12)
    report = forged.audited()
    assert (report.total.rejected, report.total.malformed, report.total.missing) == (1, 2, 0)
    assert report.total.lost == 1
    assert f"{forged.source}/0 at offset 11" in report.breaches[0]
    forged.produce(letters, [letter(forged, 11)])
    assert forged.audited().fine


# --- what cannot be known ---


def test_what_was_trimmed_is_not_guessed(forged: MemoryDeployment) -> None:
    """Without the beginning of the output nothing is missed, without that of the input nothing is foreign."""
    forged.feed(keyed(range(100), 1))
    emit(forged, keyed([*range(100), 5, 300], 1), 100)
    assert (forged.audited().total.doubled, forged.audited().total.foreign) == (1, 1)
    forged.broker.log(forged.source, 0).trim(10)
    report = forged.audited()
    assert findings(report) == {**findings(report), "missing": 0, "doubled": 1, "foreign": None}
    assert "the beginning of the input was deleted" in report.as_text()
    forged.broker.log(forged.sink, 0).trim(20)
    report = forged.audited()
    assert findings(report) == {**UNMADE, "doubled": 0, "foreign": None}
    assert f"the beginning of {forged.sink} was deleted" in report.as_text()
    assert report.as_text().endswith("the promise holds as far as can be known\n")
    assert " ? " in report.as_text()


def test_offsets_are_taken_for_what_they_are(forged: MemoryDeployment) -> None:
    """One of another tool: said. One that was moved back: what came after is not foreign."""
    forged.feed(keyed(range(100), 1))
    emit(forged, keyed(range(100), 1), 30)
    report = forged.audited()
    assert report.fine
    assert "committed by another tool" in report.as_text()
    assert " unjudged " not in report.as_text()
    assert report.as_json()["partitions"][0]["limits"] == ["moved_by_a_tool"]


def test_a_group_without_offsets_is_not_judged(tmp_path: Path) -> None:
    """A mistyped group gets no green light; if one partition has an offset, the others owe nothing."""
    deployment = MemoryDeployment(tmp_path, partitions=2).create()
    events = [*keyed(range(100), 2)]
    deployment.feed(events)
    deployment.produce(deployment.sink, events)
    with pytest.raises(
        ConfigError, match=rf"the group {deployment.group} has committed nothing on"
    ):
        deployment.audited()
    deployment.commit({0: 50})
    report = deployment.audited()
    assert report.fine
    assert (
        "partition 1: no offset is committed, so no event of the input is due yet"
        in report.as_text()
    )


def test_a_group_that_began_at_latest_owes_nothing_of_before(forged: MemoryDeployment) -> None:
    """What stands before the first event that was emitted was never read; a gap behind it is missed."""
    forged.config["source"]["start"] = "latest"
    forged.feed(keyed([*range(100), *range(90, 130)], 1))
    emit(forged, keyed(range(95, 130), 1), 140)
    report = forged.audited()
    assert (report.total.missing, report.fine) == (0, True), report.as_text()
    forged.feed(keyed([200, 201], 1))
    emit(forged, keyed([201], 1), 142)
    assert forged.audited().total.missing == 1


# --- windows ---


SLOT_MS = 1000


@pytest.mark.parametrize("max_jump", [None, "2500ms"])
def test_a_window_may_emit_a_key_again_once_it_is_forgotten(
    forged: MemoryDeployment, max_jump: str | None
) -> None:
    """Eight generations of a second: after eight seconds the key is new, before it is doubled; late ones pass."""
    forged.config["filter"] = {
        "kind": "window",
        "capacity": 10_000,
        "retention": "7s",
        "max_jump": max_jump,
    }
    now = (int(time.time()) - 3600) * 1000

    def at(key: int, second: float) -> Event:
        return 0, b"k%d" % key, b"", [], now + int(second * SLOT_MS)

    steps = [at(100 + n, n) for n in range(0, 21, 2)]
    again = [at(1, 0), *steps[:4], at(1, 8), at(2, 8), *steps[4:], at(2, 20), at(3, 1), at(3, 1)]
    forged.feed(again)
    emit(forged, again, len(again))
    report = forged.audited()
    assert report.total.doubled == 0, report.as_text()
    assert (report.total.due_again, report.total.late_again) == (3, 1)
    assert "a window forgets" in report.as_text()
    number = (
        "3 events passed again, after it had forgotten their keys, 1 of them later than the window"
    )
    assert f"; {number}\n" in report.as_text()
    emit(forged, [at(2, 15), at(120, 21)], len(again))
    report = forged.audited()
    assert report.total.doubled == 2, report.as_text()
    assert f"{forged.sink}/0 at offset {len(again)}, {len(again) + 1}" in report.breaches[0]


def test_a_window_by_count_may_too(forged: MemoryDeployment) -> None:
    """A key comes again after as many others as the window holds, and not before."""
    forged.config["filter"] = {"kind": "window", "capacity": 70}
    forged.config["filter"]["partition_headroom"] = 0
    forged.feed(keyed([*range(100), 0, 50], 1))
    emit(forged, keyed([*range(100), 0, 50], 1), 102)
    report = forged.audited()
    assert report.total.doubled == 1
    assert f"{forged.sink}/0 at offset 101" in report.breaches[0]


# --- what was read ---


def aged(count: int, ages_s: tuple[int, int]) -> list[Event]:
    """So many events, of which the first and the last were stamped so many seconds ago."""
    now_ms, (first_s, last_s) = time.time_ns() // 1_000_000, ages_s
    ages = [first_s, *[(first_s + last_s) // 2] * (count - 2), last_s]
    return [
        (*event[:4], now_ms - 1000 * age)
        for event, age in zip(keyed(range(1000, 1000 + count), 1), ages, strict=True)
    ]


def verdict(report: Report) -> str:
    """The last line."""
    return report.as_text().splitlines()[-1]


@pytest.mark.parametrize("counted_max", [10_000, 10], ids=["counted", "by offsets"])
def test_what_is_not_read_stands_beside_the_verdict(
    forged: MemoryDeployment, monkeypatch: pytest.MonkeyPatch, counted_max: int
) -> None:
    """A worker that stopped, is full or lags: of how many events so many were read, and how long the others wait."""
    for module in (unread, report_module):
        monkeypatch.setattr(module, "COUNTED_MAX", counted_max)
    forged.feed(keyed(range(40), 1))
    forged.feed(aged(60, (620, 300)))
    emit(forged, keyed(range(40), 1), 40)
    report = forged.audited()
    assert report.fine
    total, (of_partition,) = report.total, report.partitions
    assert (total.read, total.judged, total.unread) == (40, 40, 60)
    assert of_partition.unread == 60
    assert 620 <= (total.oldest_unread_s or 0) < 680
    assert 300 <= (total.newest_unread_s or 0) < 360
    about = "about " if counted_max == 10 else ""
    (line,) = (line for line in report.as_text().splitlines() if line.startswith("read: "))
    assert re.fullmatch(
        rf"read: 40 of {about}100 events: 40 judged; 60 events not read yet: by their timestamps the oldest has waited"
        r" 6[2-7]\d s, the newest 3[0-5]\d s",
        line,
    )
    assert verdict(report) == (
        f"the promise holds as far as can be known for the 40 of {about}100 events that were read"
    )
    total_json = report.as_json()["total"]
    assert (total_json["read"], total_json["judged"], total_json["unread"]) == (40, 40, 60)


def test_what_is_no_event_does_not_wait(forged: MemoryDeployment) -> None:
    """Markers, aborted events and those that are not decided; and an event without a timestamp has no age."""
    forged.feed(keyed(range(10), 1))
    log, records = forged.broker.log(forged.source, 0), [Record.of(1, b"key", b"value", [])]
    log.append(records, "aborts")
    log.decide("aborts", committed=False)
    log.mark("aborts")
    log.append(records, "open")
    emit(forged, keyed(range(10), 1), 10)
    report = forged.audited()
    assert (report.total.unread, report.total.oldest_unread_s) == (0, None)
    assert verdict(report) == "the promise holds as far as can be known"
    log.decide("open", committed=True)
    log.mark("open")
    log.append([Record.of(-1, b"key", b"value", [])])
    report = forged.audited()
    assert report.total.unread == 2
    assert (report.total.oldest_unread_s or 0) > 1e9


def test_the_newest_event_is_found_below_many_markers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many events some are read at each end; of all partitions the oldest and the newest wait counts."""
    monkeypatch.setattr(unread, "COUNTED_MAX", 10)
    forged, now_ms = MemoryDeployment(tmp_path, partitions=2).create(), time.time_ns() // 1_000_000
    forged.broker.fetch_events_max = 1
    for partition, ages_s in enumerate([(900, 700), (800, 500)]):
        log = forged.broker.log(forged.source, partition)
        log.append([Record.of(now_ms - 1000 * age, b"key", b"value", []) for age in ages_s])
        for n in range(300):
            log.append([Record.of(now_ms, b"key", b"aborted", [])], f"aborts {n}")
            log.decide(f"aborts {n}", committed=False)
            log.mark(f"aborts {n}")
    forged.commit({0: 0, 1: 0})
    total = forged.audited().total
    assert total.unread == 2 * 602
    assert [round(each or 0, -2) for each in (total.oldest_unread_s, total.newest_unread_s)] == [
        900,
        500,
    ]


def test_events_that_nobody_judged_do_not_hold_a_promise(forged: MemoryDeployment) -> None:
    """All are malformed, and pass: it says so, and in JSON, too."""
    forged.config["key"] = {"field": "idd"}
    events: list[Event] = [(*event[:4], 1) for event in keyed([*range(50), *range(50)], 1)]
    forged.feed(events)
    emit(forged, events, 100)
    report = forged.audited()
    assert report.fine
    assert (report.total.read, report.total.judged, report.total.malformed) == (100, 0, 100)
    assert "\nread: 100 of 100 events: 0 judged, 100 malformed\n" in report.as_text()
    assert verdict(report) == (
        "the promise holds as far as can be known for the 100 events that were read, of which none was judged"
    )


def test_what_was_not_read_at_all_holds_no_promise(forged: MemoryDeployment) -> None:
    """A group that stands at the beginning: the verdict has no word of a promise that holds."""
    forged.feed(keyed(range(100), 1))
    forged.commit({0: 0})
    report = forged.audited()
    assert verdict(report) == "nothing breaks the promise, but no event of 100 was read"


def test_every_event_that_is_read_has_one_outcome(forged: MemoryDeployment) -> None:
    """Judged, malformed, rejected, or a tombstone: together they are all that was read."""
    letters = forged.create_side_topic("dead_letter_topic")
    forged.config["key"] = {"field": "email", "on_malformed": "pass"}
    keyless: list[Event] = [(0, b"t", None, [], 1), (0, b"m", b"{", [], 1)]
    forged.feed([*keyed(range(20), 1), *keyless])
    forged.produce(letters, [letter(forged, 3, b"user3@example.com")])
    emit(forged, [e for n, e in enumerate(keyed(range(20), 1)) if n != 3], 20)
    emit(forged, keyless, 22)
    report = forged.audited()
    assert report.fine, report.as_text()
    assert (
        "\nread: 22 of 22 events: 19 judged, 1 malformed, 1 rejected, 1 passing tombstones\n"
        in report.as_text()
    )


def test_false_duplicates_stand_beside_the_verdict(forged: MemoryDeployment) -> None:
    """Within the budget, proven by the topic of duplicates: how many, and how many the error rate explains."""
    forged.config["filter"]["error_rate"] = 0.01
    duplicates = forged.create_side_topic("duplicates_topic")
    forged.feed(keyed(range(1000), 1))
    forged.produce(duplicates, keyed(range(8), 1))
    emit(forged, keyed(range(8, 1000), 1), 1000)
    report = forged.audited()
    assert report.fine
    proven = f"8 keys not emitted: new, and dropped as duplicates, as {duplicates} shows"
    assert f"{proven}; an error rate of 0.01 explains up to 2" in " ".join(report.notes)
    assert verdict(report).endswith(" as far as can be known, with 8 keys dropped wrongly")


def test_beyond_the_capacity_no_number_is_explained(tmp_path: Path) -> None:
    """With `filter.on_full: warn`: neither "at most 0" nor a breach, whatever another partition holds."""
    forged = MemoryDeployment(tmp_path, partitions=2).create()
    forged.config["filter"] |= {
        "capacity": 1000,
        "error_rate": 1e-6,
        "on_full": "warn",
        "partition_headroom": 0,
    }
    duplicates = forged.create_side_topic("duplicates_topic")
    full = [*keyed(range(0, 2000, 2), 2)]
    events = [*full, *keyed(range(1, 201, 2), 2)]
    forged.feed(events)
    forged.produce(duplicates, full[:29])
    forged.produce(forged.sink, events[29:])
    forged.commit({0: 1000, 1: 100})
    report = forged.audited()
    assert report.fine, report.as_text()
    assert [c.wrongly_dropped for c in report.partitions] == [29, 0]
    (note,) = (note for note in report.notes if "not emitted" in note)
    beyond = "a filter beyond its capacity has no promised error rate"
    assert note == (
        f"29 keys not emitted: new, and dropped as duplicates, as {duplicates} shows; an error rate of 1e-06 explains"
        f" up to 1 within the capacity, and {beyond}"
    )
    assert verdict(report).endswith(", with 29 keys dropped wrongly")
    forged.config["filter"]["capacity"] = 100
    (note,) = (note for note in forged.audited().notes if "not emitted" in note)
    assert note.endswith(f" shows; {beyond}")


# --- the command ---


def test_the_command_says_it_all(
    forged: MemoryDeployment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 0, 1 and 2; one JSON object with stable names; no key on any stream."""
    monkeypatch.setattr(audit, "audit", partial(audit.audit, connect=forged.connect))
    forged.feed(keyed(range(10), 1))

    def command(*arguments: str) -> tuple[int, str, str]:
        status = main(["audit", "-c", str(forged.write_config()), *arguments])
        return status, *capsys.readouterr()

    status, out, errors = command()
    assert (status, out) == (2, "")
    assert "there is nothing to audit; check kafka.group_id" in errors
    emit(forged, keyed(range(10), 1), 10)
    assert command()[0] == 0
    assert command("--set", "sink.topic=nowhere")[0] == 2
    emit(forged, keyed([3], 1), 10)
    status, out, errors = command("--json")
    assert (status, errors) == (1, "")
    report = json.loads(out)
    assert set(report) == {
        *("group", "source", "sink", "guarantee", "error_rate", "fine", "breaches", "notes"),
        *("across", "total", "partitions", "repartition"),
    }
    assert set(report["partitions"][0]) == {
        *("partition", "input_start", "committed", "output_start", "output_end", "floor"),
        *("read", "emitted", "duplicates", "malformed", "rejected", "blocked", "dropped"),
        *("judged", "unread", "oldest_unread_s", "newest_unread_s"),
        *("unjudged", "untimed", "keys", "due_again", "late_again"),
        *("lost", "missing", "wrongly_dropped", "explained_max", "doubled", "foreign"),
        *("wrongly_rejected", "offsets", "limits"),
    }
    assert report["partitions"][0]["offsets"] == {"doubled": [10]}
    assert "user" not in out


def test_little_memory_gives_the_same_report(forged: MemoryDeployment) -> None:
    """Sorted in 8 KiB, by hundreds of runs in a file, or at once: not one number differs."""
    forged.feed(keyed([*range(5000), *range(2000)], 1))
    emit(forged, keyed([*range(17, 5000), *range(4000, 4100), 9999], 1), 7000)
    small, large = forged.audited(size_bytes=8192), forged.audited()
    assert small.as_json() == large.as_json()
    assert (small.total.missing, small.total.doubled, small.total.foreign) == (17, 100, 1)


# --- lists ---


def listed(deployment: MemoryDeployment, numbers: Iterable[int]) -> str:
    """Block the keys of these numbers; the topic that takes them."""
    keys = [b"user%d@example.com" % number for number in numbers]
    path = list_file(deployment.directory / "block.list", keys)
    deployment.config["blocklist"] = {"file": str(path)}
    return deployment.create_side_topic("blocked_topic")


def test_what_is_blocked_is_not_lost(tmp_path: Path) -> None:
    """Its topic names it, so it is not due; it is counted, in a column of its own."""
    deployment = MemoryDeployment(tmp_path, partitions=4).create()
    listed(deployment, range(0, 400, 4))
    deployment.create_side_topic("duplicates_topic")
    deployment.feed(keyed([*range(400), *range(100)]))
    deployment.work()
    report = deployment.audited()
    assert report.fine, report.as_text()
    assert findings(report) == dict.fromkeys(findings(report), 0)
    total = report.total
    assert (total.read, total.blocked, total.keys, total.emitted) == (500, 125, 300, 300)
    assert total.duplicates == 75
    assert " blocked " in report.as_text()


def test_without_their_topic_blocked_events_are_not_known(tmp_path: Path) -> None:
    """What is not in the output may have been blocked: the audit says so, and calls nothing lost."""
    deployment = MemoryDeployment(tmp_path, partitions=4).create()
    listed(deployment, range(0, 400, 5))
    del deployment.config["sink"]["blocked_topic"]
    deployment.feed(keyed(range(400)))
    deployment.work()
    report = deployment.audited()
    assert report.fine, report.as_text()
    assert (report.total.missing, report.total.blocked, report.total.lost) == (None, None, 0)
    assert "it is not known whether an event that is not in" in report.as_text()
    assert "blocked_unknown" in report.partitions[0].as_json()["limits"]


def test_what_is_lost_beside_what_is_blocked_is_found(forged: MemoryDeployment) -> None:
    """Only what the topic names is accounted for: of a key that came twice, the event that it does not name is due."""
    blocked = listed(forged, [7, 8])
    forged.feed(keyed([*range(10), 8, 9], 1))
    letters = [letter(forged, number, b"user%d@example.com" % number) for number in (7, 8)]
    forged.produce(blocked, letters)
    emit(forged, keyed([0, 1, 2, 4, 5, 6, 9], 1), 12)
    report = forged.audited()
    assert report.total.missing == 2
    assert report.partitions[0].offsets["missing"] == [3, 10]
    assert report.total.blocked == 2


def test_where_blocked_events_were_deleted_a_loss_is_not_known(forged: MemoryDeployment) -> None:
    """The beginning of their topic is gone, and with it what it named."""
    blocked = listed(forged, [7])
    forged.feed(keyed(range(10), 1))
    forged.produce(blocked, [letter(forged, 7, b"user7@example.com")])
    forged.broker.log(blocked, 0).trim(1)
    emit(forged, keyed([*range(7), 8, 9], 1), 10)
    report = forged.audited()
    assert findings(report) == {**UNMADE, "doubled": 0, "foreign": 0}
    assert "blocked_trimmed" in report.partitions[0].as_json()["limits"]


def test_without_a_filter_each_event_is_looked_for(forged: MemoryDeployment) -> None:
    """A key may stand in the output as often as it came; less often is a loss, and nothing is doubled."""
    blocked = listed(forged, [7])
    forged.config["filter"] = {"kind": "none"}
    stamp_ms = int(time.time() * 1000)

    def events(*numbers: int) -> list[Event]:
        return [(0, key, value, [], stamp_ms) for _, key, value, *_ in keyed(numbers, 1)]

    forged.feed(events(1, 1, 2, 7, 3))
    forged.produce(blocked, [letter(forged, 3, b"user7@example.com")])
    emit(forged, events(1, 2, 3), 5)
    report = forged.audited()
    assert findings(report) == {
        "lost": 1,
        "missing": 0,
        "wrongly_dropped": None,
        "doubled": 0,
        "foreign": 0,
    }
    forged.produce(forged.sink, events(1, 1))
    assert forged.audited().fine


# --- a worker's clock ---

HOUR_MS = 3_600_000


def test_an_audit_does_not_believe_a_wrong_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Good events that a worker rejected by its own clock, as workers did before, are a breach; a bad one is not."""
    deployment = MemoryDeployment(tmp_path).create(message_timestamp_after_max_ms=HOUR_MS // 4)
    letters = deployment.create_side_topic("dead_letter_topic")
    now_ms = deployment.broker.now_ms()
    wrong = Span.at(now_ms - 2 * HOUR_MS)
    monkeypatch.setattr(LeaderClocks, "present", lambda *_: wrong)
    good = [(p, k, v, h, now_ms) for p, k, v, h, _ in keyed(range(200), 1)]
    deployment.feed([(0, b"ahead", b"", [], now_ms + HOUR_MS // 2), *good])
    deployment.work()
    assert len(deployment.read_all(letters)) == 201
    report = deployment.audited()
    assert (report.fine, report.total.rejected, report.total.wrongly_rejected) == (False, 201, 200)
    assert report.partitions[0].offsets["wrongly_rejected"] == [1, 2, 3, 4, 5]
    assert report.breaches[0].startswith("200 events rejected for their time, although")
    (clock_differed,) = [note for note in report.notes if "clock was" in note]
    assert clock_differed.startswith("all partitions: the worker's clock was 7,")
    assert "s behind the broker's" in clock_differed
