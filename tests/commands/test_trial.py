"""Claims about `streamdedup try`: what it reports of the newest events; on a broker in memory."""

import asyncio
import json
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamdedup.cli import main
from streamdedup.commands import trial
from streamdedup.delivery.cross_partition import REMEDY
from streamdedup.errors import ConfigError
from streamdedup.events import Verdict
from streamdedup.kafka.records.records import Record
from streamdedup.settings import load
from streamdedup.testing import MemoryBroker, connected_to
from tests.deployment import Deployment
from tests.lists.files import list_file
from tests.local import Start
from tests.spread import PARTITIONS, spread

tried = trial.tried


class Stage:
    """A broker in memory with an input of so many partitions; the command finds it, too."""

    def __init__(
        self, directory: Path, patch: pytest.MonkeyPatch, partitions: int = PARTITIONS
    ) -> None:
        self.deployment = Deployment("memory:1", directory, partitions)
        self.deployment.config["key"] = {"field": "id"}
        self.broker = MemoryBroker()
        self.broker.create_topic(self.deployment.source, partitions)
        patch.setattr(trial, "tried", partial(tried, connect=connected_to(self.broker)))

    def feed(self, events: Iterable[Any]) -> None:
        """Append to the input."""
        self.broker.produce(self.deployment.source, [event[:3] for event in events])

    def tried(self, events: int = 100_000) -> trial.Trial:
        """What is found."""
        settings = load(self.deployment.write_config())
        return asyncio.run(trial.tried(settings, events))

    def command(self, *options: str) -> int:
        """The status of the command."""
        return main(["try", "-c", str(self.deployment.write_config()), *options])


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Six partitions."""
    return Stage(tmp_path, monkeypatch)


@pytest.fixture
def keyed_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Two partitions; the record key is the key."""
    made = Stage(tmp_path, monkeypatch, partitions=2)
    made.deployment.config["key"] = {"from": "key"}
    return made


def test_addresses_are_told_as_they_would_be_judged(keyed_stage: Stage) -> None:
    """The rule of try: what is no address has its reason, and two ways to write one are one key."""
    keyed_stage.deployment.config["key"] = {"from": "value", "normalize": "email"}
    values = [b"Anna.B+x@GoogleMail.com", b"annab@gmail.com", b"no address"]
    keyed_stage.feed((0, None, value) for value in values)
    found = keyed_stage.tried()
    assert found.verdicts == {Verdict.PASS: 1, Verdict.DUPLICATE: 1, Verdict.MALFORMED: 1}
    assert list(found.reasons) == [
        "the key is not an e-mail address: An email address must have an @-sign"
    ]


def test_lists_are_asked_as_a_worker_would(keyed_stage: Stage, tmp_path: Path) -> None:
    """With the changes of the control topic; what only screens has no duplicates."""
    text, output = tmp_path / "block.txt", str(tmp_path / "block.list")
    text.write_text("@junk.example\na@x.example\n")
    assert main(["lists", "build", str(text), "-o", output, "--normalize", "email"]) == 0
    config, broker = keyed_stage.deployment.config, keyed_stage.broker
    broker.create_topic("control", 1, cleanup_policy="compact")
    config["key"] = {"from": "value", "normalize": "email"}
    config["blocklist"] = {"file": output, "control_topic": "control"}
    broker.produce("control", [(0, b"a@x.example", b'{"op": "remove"}')])
    keyed_stage.feed((0, None, a.encode()) for a in ("b@junk.example", "A@x.example") * 3)
    found = keyed_stage.tried()
    assert found.verdicts == {Verdict.PASS: 1, Verdict.DUPLICATE: 2, Verdict.BLOCKED: 3}
    assert "blocked by: domain 3\n" in found.as_text()
    config["filter"] = {"kind": "none"}
    del config["snapshot"]
    assert keyed_stage.tried().verdicts == {Verdict.PASS: 3, Verdict.BLOCKED: 3}
    broker.produce("control", [(0, b"a@x.example", None)])
    found = keyed_stage.tried()
    assert found.verdicts == {Verdict.BLOCKED: 6}
    assert found.matched == {"address": 3, "domain": 3}


def test_the_command(keyed_stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """A person gets a table, a program JSON, and neither gets a key."""
    stage, source = keyed_stage, keyed_stage.deployment.source
    stage.feed((n % 2, b"user%d" % n, b"{}") for n in [*range(50), *range(10)])
    stage.feed([(0, None, b"{}")])
    assert stage.command() == 0
    text = capsys.readouterr().out
    assert text.startswith(f"the newest 61 events of {source}, of 2 partitions:\n")
    assert "  duplicate          10   16.4%\n" in text
    assert "  1 times: the record key is null; first at partition 0, offset 30\n" in text
    assert "distinct keys: 50\n" in text
    assert "user" not in text
    assert stage.command("--json") == 0
    report = json.loads(capsys.readouterr().out)
    counts = {"pass": 50, "duplicate": 10, "blocked": 0, "malformed": 1, "rejected": 0}
    assert report["verdicts"] == counts
    place = {"topic": source, "partition": 0, "offset": 30}
    assert report["reasons"] == [{"reason": "the record key is null", "events": 1, **place}]


def test_a_topic_without_events_says_so(keyed_stage: Stage) -> None:
    """There is nothing to judge; a topic that is not there is an error."""
    assert keyed_stage.tried().as_text() == f"{keyed_stage.deployment.source} holds no events\n"
    keyed_stage.deployment.config["source"]["topic"] = "not-there"
    with pytest.raises(ConfigError, match="the topic not-there does not exist"):
        keyed_stage.tried()


def test_the_output_need_not_be_there(keyed_stage: Stage) -> None:
    """It is tried before anything is set up. If the output is there, events that it would refuse are reported."""
    keyed_stage.feed([(0, b"large", os.urandom(5000)), (0, b"small", b"x")])
    keyed_stage.deployment.config["sink"]["topic"] = "small"
    assert keyed_stage.tried().verdicts == {Verdict.PASS: 2}
    keyed_stage.broker.create_topic("small", 2, max_message_bytes=1000)
    assert keyed_stage.tried().verdicts == {Verdict.PASS: 1, Verdict.REJECTED: 1}


@pytest.mark.parametrize("events", ["0", "2M", "many"])
def test_how_many_events_is_bounded(events: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Memory is for a million at most."""
    with pytest.raises(SystemExit, match="2"):
        main(["try", "--events", events])
    assert "--events" in capsys.readouterr().err


@pytest.mark.parametrize("events", [1, 5, 6, 10, 100, 149])
def test_as_many_events_are_read_as_were_asked_for(stage: Stage, events: int) -> None:
    """Not one more in each partition; what the first partitions do not have, later ones give."""
    stage.feed((n % 5 + 1, b"%d" % n, b'{"id": "%d"}' % n) for n in range(150))
    assert stage.tried(events).events == events


def test_keys_in_several_partitions_have_a_status_of_their_own(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person reads the share, the reason and the remedy, a program the counts; no key is printed."""
    stream = spread(3000, 948)
    stage.feed(stream.events)
    assert stage.command("--events", "10k") == 3
    text = capsys.readouterr().out
    assert (
        f"about {stream.unseen_share:.1%} of all duplicates pass for that reason; {REMEDY}" in text
    )
    assert "warning: 100% of the events have no record key" in text
    assert "user" not in text
    assert stage.command("--events", "10k", "--json") == 3
    report = json.loads(capsys.readouterr().out)
    assert report["duplicates_across_partitions"] == stream.passing - stream.distinct
    assert report["events_without_record_key"] == 3000
    assert report["keys_with_several_record_keys"] == 0


def test_a_key_that_is_probably_wrong_comes_first(stage: Stage) -> None:
    """An empty key comes in all partitions, and what that suggests, another partitioning, would not help."""
    stage.feed((n % 6, None, b'{"id": ""}') for n in range(120))
    assert stage.command() == 5


def test_a_stream_by_key_is_fine(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """Record keys may be others than the key, as long as one key has one of them."""
    stage.feed((n % 6, b"%d" % (n % 6), b'{"id": "%d"}' % n) for n in [*range(60), *range(60)])
    assert stage.command() == 0
    assert "warning" not in capsys.readouterr().out


def test_suspicion_alone_is_no_failure(stage: Stage) -> None:
    """Without a duplicate across partitions, what the record keys say is a warning in the text."""
    stage.feed((n % 6, None, b'{"id": "%d"}' % n) for n in range(60))
    found = stage.tried()
    assert found.evidence is None
    assert "warning: 100% of the events have no record key" in found.as_text()


def test_several_record_keys_of_one_key_are_counted(stage: Stage) -> None:
    """Once for each key, a null among them."""
    value = b'{"id": "%d"}'
    stage.feed((0, b"%d" % (n // 10), value % (n % 10)) for n in range(30))
    stage.feed([(0, None, value % 3), (0, b"0", value % 77)])
    found = stage.tried()
    assert (found.under_several, found.without_record_key) == (10, 1)
    assert "different record keys" not in found.as_text()  # 1 of 32 has none: that is named first
    stage.feed((0, b"0", value % n) for n in range(100, 200))
    assert "different record keys" in stage.tried().as_text()


def test_one_partition_raises_no_suspicion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the record keys are."""
    stage = Stage(tmp_path, monkeypatch, partitions=1)
    stage.feed((0, None, value) for _, _, value, *_ in spread(100, 50).events)
    assert "warning" not in stage.tried().as_text()


def test_without_a_filter_nothing_is_missed(stage: Stage, tmp_path: Path) -> None:
    """Who drops no duplicates need not know in which partition they come."""
    listed = list_file(tmp_path / "block.list", [b"nobody"])
    stage.deployment.config["blocklist"] = {"file": str(listed), "on_positive": "drop"}
    stage.deployment.config["filter"] = {"kind": "none"}
    del stage.deployment.config["snapshot"]
    stage.feed(spread(300, 95).events)
    found = stage.tried()
    assert found.in_several
    assert found.evidence is None
    assert found.suspicion is None


def test_with_repartition_a_key_counts_once_wherever_it_is(stage: Stage) -> None:
    """Nothing is missed, so nobody is warned; a note says why."""
    stream = spread(3000, 948)
    stage.feed(stream.events)
    repartition = {"topic": "middle", "partitions": 4}
    stage.deployment.config["source"]["repartition"] = repartition
    found = stage.tried()
    assert (found.distinct, found.verdicts[Verdict.DUPLICATE]) == (948, 2052)
    assert found.evidence is None
    assert found.suspicion is None
    assert trial.REPARTITIONED in found.as_text()
    assert "warning" not in found.as_text()


def test_another_number_of_places_is_refused(stage: Stage) -> None:
    """As the worker refuses it: what it found would not hold."""
    stage.feed(spread(300, 94).events)
    stage.broker.create_topic("middle", 4)
    stage.deployment.config["source"]["repartition"] = {"topic": "middle", "partitions": 5}
    with pytest.raises(
        ConfigError, match=r"has 4 partitions, and source\.repartition\.partitions is 5"
    ):
        stage.tried()


def fitted(
    stage: Stage, capsys: pytest.CaptureFixture[str], **filter_: Any
) -> tuple[int, str, Any]:
    """The status, the text and the figures of `try` with these options of the filter."""
    stage.deployment.config["filter"] = filter_
    status = stage.command("--events", "10k")
    text = capsys.readouterr().out
    assert stage.command("--events", "10k", "--json") == status
    return status, text, json.loads(capsys.readouterr().out)["fit"]


def test_more_keys_than_the_capacity_have_a_status_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that are remembered at once: a window forgets what the others do not."""
    stage = Stage(tmp_path, monkeypatch, 1)
    day_ms = 86_400_000
    for day in range(3):
        monkeypatch.setattr(stage.broker, "now_ms", partial(int, day * day_ms + 1))
        stage.feed((0, b"%d" % n, b'{"id": "%d"}' % (day * 1000 + n)) for n in range(1000))
    status, text, fit = fitted(stage, capsys, capacity=2500)
    assert (status, fit["distinct_keys_at_once"], fit["remembered_ms"]) == (4, 3000, None)
    assert "warning: distinct keys: 3,000, and filter.capacity is 2,500; raise it" in text
    window = {"kind": "window", "capacity": 2500, "generations": 8}
    status, text, fit = fitted(stage, capsys, **window, retention="1d")
    assert (status, fit["distinct_keys_at_once"]) == (0, 2000)
    assert "distinct keys within any 1.14 d: 2,000, and filter.capacity is 2,500" in text
    status, _, fit = fitted(stage, capsys, **window, retention="7d")
    assert (status, fit["distinct_keys_at_once"]) == (4, 3000)


@pytest.mark.parametrize("empty", [True, False])
def test_a_key_that_prevails_has_a_status_of_its_own(
    stage: Stage, capsys: pytest.CaptureFixture[str], *, empty: bool
) -> None:
    """It is named by the place of its first event, never by itself."""
    common = "" if empty else "s3cr3t"
    stage.feed((1, b"k", b'{"id": "%b"}' % common.encode()) for _ in range(300))
    stage.feed((2, b"%d" % n, b'{"id": "%d"}' % n) for n in range(700))
    status, text, fit = fitted(stage, capsys, capacity=10_000)
    assert (status, fit["events_of_most_frequent_key"]) == (5, 300)
    assert fit["events_with_empty_key"] == (300 if empty else 0)
    assert fit["most_frequent_key_first_at"]["partition"] == 1
    assert "warning: the most frequent key has 30.0% of the events" in text
    assert "s3cr3t" not in text


def test_reasons_are_counted_without_the_byte_that_each_names(stage: Stage) -> None:
    """Else there were as many reasons as events; that of the first event has its byte."""
    stage.feed((1, b"k", b'{"x":"%b\n"}' % (b"a" * length)) for length in range(2_000))
    stage.feed((1, b"k", value) for value in (b'{"id":1,"x":NaN}', b'{"id":1,"x":1e999}'))
    found = stage.tried()
    what = "the value is not valid JSON: a control character is in a string"
    assert dict(found.reasons) == {what: 2_000}
    assert f"2,000 times: {what}; first at partition 1, offset 0, at byte 7\n" in found.as_text()
    assert (found.verdicts[Verdict.PASS], found.verdicts[Verdict.DUPLICATE]) == (1, 1)


def test_events_without_a_key_have_a_status_too(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """The configured field is probably not theirs."""
    stage.feed((0, b"%d" % n, b'{"name": "%d"}' % n) for n in range(200))
    status, text, fit = fitted(stage, capsys, capacity=10_000)
    assert (status, fit) == (5, None)
    assert "malformed" in text


def test_a_wrong_field_is_answered_with_those_that_are_there(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """By name, never by what an event holds: a map that addresses are the names of stays closed."""
    stage.deployment.config["key"] = {"field": "idd"}
    events = [
        {
            "id": f"s3cr3t{n}",
            "user": {"email": "x"},
            "seen": {f"s3cr3t{n}@x.example": 1, "s3cr3t@y.example": 2},
        }
        for n in range(200)
    ]
    stage.feed((n % 6, b"%d" % n, json.dumps(event).encode()) for n, event in enumerate(events))
    assert stage.command() == 5
    text = capsys.readouterr().out
    assert "\nfields that a tenth of the events have: id, seen, user.email\n" in text
    assert "s3cr3t" not in text
    assert stage.command("--json") == 5
    assert json.loads(capsys.readouterr().out)["fields"] == ["id", "seen", "user.email"]


def test_of_many_fields_twenty_are_named(stage: Stage) -> None:
    """And without any that many events have, it says so."""
    stage.deployment.config["key"] = {"field": "idd"}
    stage.feed([(0, b"k", json.dumps({f"f{n}": n for n in range(30)}).encode())] * 8)
    shown = ", ".join(f"f{n}" for n in range(20))
    assert f": {shown}, and 10 more\n" in stage.tried().as_text()
    assert len(stage.tried().as_json()["fields"]) == 20
    stage.feed((0, b"k", b'{"f%d": 1}' % n) for n in range(1000, 2000))
    assert "fields that a tenth of the events have: none\n" in stage.tried().as_text()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ({"field": "id"}, b'{"id": 7}'),
        ({"field": "id"}, b"no JSON"),
        ({"from": "value", "normalize": "email"}, b'{"id": 7}'),
        ({"from": "header", "field": "id"}, b'{"id": 7}'),
    ],
)
def test_fields_are_named_for_a_wrong_field_alone(stage: Stage, key: Any, value: bytes) -> None:
    """Not if the events have it, are no JSON, or have their key elsewhere."""
    stage.deployment.config["key"] = key
    stage.feed([(0, b"k", value)] * 8)
    found = stage.tried()
    assert found.fields is None
    assert "fields" not in found.as_text()


async def test_a_key_of_parts_is_predicted_as_a_worker_decides(stage: Stage, start: Start) -> None:
    """A header and a field with a fallback: each outcome as often as counted by hand, and as in a run."""
    stage.deployment.config["key"] = {
        "parts": [{"header": "tenant"}, {"field": ["after.id", "/before/id"]}]
    }
    broker, source = stage.broker, stage.deployment.source
    hers: Any = [{"after": {"id": 7}}, {"before": {"id": 7}}, {"before": {"id": 7}, "after": None}]
    hers += [
        {"after": {"id": None}, "before": {"id": 7}},
        {"after": {"id": 7}, "before": {"id": 8}},
    ]
    other: Any = [{"after": {"id": "7"}}, {"after": {"id": 8}}, {"before": {"id": 8}}]
    bad: Any = [{"after": {"id": {}}, "before": {"id": 7}}, {"after": {}}, {"before": None}, 7]
    partitions: list[Any] = [
        [(b"acme", value) for value in hers + other + bad],
        [(b"acme", value) for value in hers] + [(None, value) for value in hers],
        [(tenant, value) for value in hers for tenant in (b"b", b"c")],
        [(b"a", {"after": {"id": "cme"}}), (b"ac", {"after": {"id": "me"}})],
    ]
    for number, events in enumerate(partitions):
        for tenant, value in events:
            headers = () if tenant is None else (("tenant", tenant),)
            record = Record.of(broker.now_ms(), None, json.dumps(value).encode(), headers)
            broker.log(source, number).append([record], None)
    found = await tried(load(stage.deployment.write_config()), 1000, connected_to(broker))
    assert (found.distinct, found.in_several, found.unseen) == (6, 1, 1)
    assert found.verdicts == {  # by partition
        Verdict.PASS: 2 + 1 + 2 + 2,
        Verdict.DUPLICATE: 6 + 4 + 8,
        Verdict.MALFORMED: 4 + 5,
    }
    assert found.reasons == {
        "the header tenant is missing": 5,
        "the field after.id is missing, and the field before.id is missing": 3,
        "the field after.id is an object": 1,
    }
    broker.create_topic(stage.deployment.sink, PARTITIONS)
    async with start(stage.deployment, connect=connected_to(broker)) as worker:
        await worker.consumed(found.events)
    assert {verdict: worker.tally[verdict] for verdict in found.verdicts} == found.verdicts
