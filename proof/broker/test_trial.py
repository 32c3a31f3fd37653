"""Claims about `streamdedup try`: what it reports of the newest events, and that it leaves no trace on the broker."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamdedup.cli import main
from streamdedup.commands.trial import Trial, tried
from streamdedup.errors import ConfigError
from streamdedup.events import Verdict
from streamdedup.settings import load
from tests.broker.base import Broker
from tests.broker.topics import committed, create_topic, read_all, unique_name
from tests.deployment import Deployment, keyed

pytestmark = pytest.mark.broker

STREAMDEDUP = [sys.executable, "-m", "streamdedup"]


@pytest.fixture
def asked(broker: Broker, tmp_path: Path) -> Deployment:
    """Two partitions."""
    return Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()


def trial(deployment: Deployment, events: int = 10_000) -> Trial:
    """What is found."""
    return asyncio.run(tried(load(deployment.write_config()), events))


def test_what_the_configuration_would_do(asked: Deployment) -> None:
    """Verdicts, reasons with the offset of the first, distinct keys, and keys that come in both partitions."""
    asked.feed([(0, b"user%d" % n, b"{}", [], None) for n in [*range(60), *range(20)]])
    asked.feed([(1, b"user%d" % n, b"{}", [], None) for n in range(50, 100)])
    asked.feed([(1, None, b"{}", [], None)] * 3)
    asked.feed([(1, b"gone", None, [], None)] * 2)
    found = trial(asked)
    assert found.events == 135
    assert found.verdicts == {Verdict.PASS: 112, Verdict.DUPLICATE: 20, Verdict.MALFORMED: 3}
    assert found.reasons == {"the record key is null": 3}
    assert found.first == {"the record key is null": (asked.source, 1, 50, "")}
    assert (found.distinct, found.in_several) == (100, 10)


def test_only_the_newest_are_read(asked: Deployment) -> None:
    """Evenly of all partitions."""
    asked.feed(keyed(range(1000), 2))
    found = trial(asked, 100)
    assert found.events == found.distinct == 100


def test_no_trace_is_left(asked: Deployment) -> None:
    """No offset is committed, nothing is written, and a worker may run all the while."""
    asked.feed(keyed(range(100), 2))
    assert trial(asked).events == 100
    assert not committed(asked.bootstrap, asked.group, asked.source)
    assert not read_all(asked.bootstrap, asked.sink)


def test_addresses_are_told_as_they_would_be_judged(asked: Deployment) -> None:
    """The rule of try: what is no address has its reason, and two ways to write one are one key."""
    asked.config["key"] = {"from": "value", "normalize": "email"}
    values = [b"Anna.B+x@GoogleMail.com", b"annab@gmail.com", b"no address"]
    asked.feed([(0, None, value, [], None) for value in values])
    found = trial(asked)
    assert found.verdicts == {Verdict.PASS: 1, Verdict.DUPLICATE: 1, Verdict.MALFORMED: 1}
    assert list(found.reasons) == [
        "the key is not an e-mail address: An email address must have an @-sign"
    ]


def test_lists_are_asked_as_a_worker_would(asked: Deployment, tmp_path: Path) -> None:
    """With the changes of the control topic; what only screens has no duplicates."""
    text, control = tmp_path / "block.txt", unique_name("control")
    text.write_text("@junk.example\na@x.example\n")
    output = str(tmp_path / "block.list")
    assert main(["lists", "build", str(text), "-o", output, "--normalize", "email"]) == 0
    create_topic(asked.bootstrap, control, 1, cleanup_policy="compact")
    asked.config["key"] = {"from": "value", "normalize": "email"}
    asked.config["blocklist"] = {"file": str(tmp_path / "block.list"), "control_topic": control}
    config = asked.write_config()
    subprocess.run([*STREAMDEDUP, "lists", "remove", "-c", config, "a@x.example"], check=True)
    asked.feed([(0, None, a.encode(), [], None) for a in ("b@junk.example", "A@x.example") * 3])
    found = trial(asked)
    assert found.verdicts == {Verdict.PASS: 1, Verdict.DUPLICATE: 2, Verdict.BLOCKED: 3}
    assert "blocked by: domain 3\n" in found.as_text()
    asked.config["filter"] = {"kind": "none"}
    del asked.config["snapshot"]
    assert trial(asked).verdicts == {Verdict.PASS: 3, Verdict.BLOCKED: 3}
    subprocess.run([*STREAMDEDUP, "lists", "undo", "-c", config, "a@x.example"], check=True)
    found = trial(asked)
    assert found.verdicts == {Verdict.BLOCKED: 6}
    assert found.matched == {"address": 3, "domain": 3}


def test_the_command(asked: Deployment) -> None:
    """A person gets a table, a program JSON, and neither gets a key."""
    asked.feed([*keyed(range(50), 2), *keyed(range(10), 2), (0, None, b"{}", [], None)])
    text = command(asked)
    assert text.startswith(f"the newest 61 events of {asked.source}, of 2 partitions:\n")
    assert "  duplicate          10   16.4%\n" in text
    assert "  1 times: the record key is null; first at partition 0, offset 30\n" in text
    assert "distinct keys: 50\n" in text
    assert "user" not in text
    report = json.loads(command(asked, "--json"))
    assert report["verdicts"] == {
        "pass": 50,
        "duplicate": 10,
        "blocked": 0,
        "malformed": 1,
        "rejected": 0,
    }
    assert report["reasons"] == [
        {
            "reason": "the record key is null",
            "events": 1,
            "topic": asked.source,
            "partition": 0,
            "offset": 30,
        }
    ]


def test_a_topic_without_events_says_so(asked: Deployment) -> None:
    """There is nothing to judge; a topic that is not there is an error."""
    assert trial(asked).as_text() == f"{asked.source} holds no events\n"
    asked.config["source"]["topic"] = "not-there"
    with pytest.raises(ConfigError, match="the topic not-there does not exist"):
        trial(asked)


def test_the_output_need_not_be_there(asked: Deployment) -> None:
    """It is tried before anything is set up. If the output is there, events that it would refuse are reported."""
    asked.feed([(0, b"large", os.urandom(5000), [], None), (0, b"small", b"x", [], None)])
    asked.config["sink"]["topic"] = "not-there"
    assert trial(asked).verdicts == {Verdict.PASS: 2}
    asked.config["sink"]["topic"] = asked.sink + "-small"
    create_topic(asked.bootstrap, asked.sink + "-small", 2, **{"max.message.bytes": 1000})
    assert trial(asked).verdicts == {Verdict.PASS: 1, Verdict.REJECTED: 1}


@pytest.mark.parametrize("events", ["0", "2M", "many"])
def test_how_many_events_is_bounded(events: str) -> None:
    """Memory is for a million at most."""
    ran = subprocess.run(
        [*STREAMDEDUP, "try", "--events", events],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "--events" in ran.stderr


def command(deployment: Deployment, *arguments: Any) -> str:
    """What the command prints."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "streamdedup",
            "try",
            "-c",
            str(deployment.write_config()),
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
