"""Claims about events that did not pass, in a worker on a real broker: what it logs at SIGUSR2, and their letters."""

import json
import signal
import time
from pathlib import Path

import pytest

from streamdedup.delivery.not_passed import EMITTED_BEFORE
from tests.broker.base import Broker
from tests.broker.topics import Event, read_all
from tests.local import single

KEY = b"user@hidden.example"


@pytest.mark.parametrize("named", [False, True])
def test_a_duplicate_is_named_in_the_log_and_if_asked_for_in_its_topic(
    broker: Broker, tmp_path: Path, named: bool
) -> None:
    """By the same place. Without the option its record is as it came."""
    deployment = single(broker, tmp_path).create()
    duplicates = deployment.create_side_topic("duplicates_topic")
    deployment.config["sink"]["duplicates_headers"] = named
    time_ms = int(time.time() * 1000) - 60_000
    events: list[Event] = [(0, KEY, value, [("h", b"1")], time_ms) for value in (b"1", b"2")]
    deployment.feed(events)
    with deployment.running() as worker:
        deployment.catch_up(worker)
        worker.process.send_signal(signal.SIGUSR2)
        [end] = worker.wait_for("not_passed_lately")
        [line] = worker.events("not_passed")
        assert worker.interrupt() == 0
        assert KEY.decode() not in json.dumps(worker.events())
    at = [line[name] for name in ("topic", "partition", "offset", "event_time_ms")]
    assert at == [deployment.source, 0, 1, time_ms]
    assert (end["events"], line["verdict"], line["reason"]) == (1, "duplicate", EMITTED_BEFORE)
    [record] = read_all(deployment.bootstrap, duplicates)
    assert (record.key, record.value) == (KEY, b"2")
    names = ["topic", "partition", "offset", "timestamp"]
    place = [(f"streamdedup.{n}", str(v).encode()) for n, v in zip(names, at, strict=True)]
    assert list(record.headers) == [("h", b"1"), *(place if named else [])]
    assert (record.timestamp_ms == time_ms) == (not named)
