"""Shadow mode on a real broker: everything passes and says how it was judged, also if workers are killed.

What a fold, an audit and the pages make of it: tests/worker/test_shadow.py.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

from streamdedup.kafka.options import MARK
from tests.broker.base import Broker
from tests.broker.topics import Record, read_all
from tests.deployment import Deployment
from tests.lists.numbered import addressed, build_lists
from tests.local import run_to_the_end, single


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """One partition in shadow mode, both lists, a topic for each sort of event."""
    made = single(broker, tmp_path).create()
    made.config["key"] = {"from": "key", "normalize": "email"}
    made.config |= build_lists(tmp_path)
    made.config["sink"]["shadow"] = True
    for leaf in ("duplicates_topic", "blocked_topic", "dead_letter_topic"):
        made.create_side_topic(leaf)
    return made


def judged(records: Iterable[Record]) -> list[tuple[bytes | None, bytes | None]]:
    """Return value and verdict of each."""
    return [(record.value, dict(record.headers).get(MARK)) for record in records]


def test_everything_passes_with_its_verdict(deployment: Deployment) -> None:
    """Each event is in the output as it came, and behind its own headers stands ours; the other topics get nothing."""
    deployment.config["source"]["tombstones"] = "drop"
    own = ("own", b"1")
    deployment.feed(addressed([1, 2, 1, 5, 3, 15], headers=[own]))
    deployment.feed(
        [(0, b"no address", b"m", [own], None), (0, b"user7@example.com", None, [], None)]
    )
    worker = run_to_the_end(deployment)
    source, output = (
        read_all(deployment.bootstrap, deployment.source),
        read_all(deployment.bootstrap, deployment.sink),
    )
    for event, copy in zip(source, output, strict=True):
        assert (copy.key, copy.value, copy.timestamp_ms) == (
            event.key,
            event.value,
            event.timestamp_ms,
        )
        assert copy.headers[: len(event.headers)] == event.headers
    verdicts = [
        *(b"pass", b"pass", b"duplicate", b"blocked", b"blocked", b"pass"),
        *(b"malformed", b"blocked"),
    ]
    assert [verdict for _, verdict in judged(output)] == verdicts
    rules = [dict(record.headers).get("streamdedup.rule") for record in output]
    assert rules == [None, None, None, b"address", b"domain", None, None, None]
    assert dict(output[3].headers)["streamdedup.list"] == b"blocked"
    for leaf in ("duplicates_topic", "blocked_topic", "dead_letter_topic"):
        assert not read_all(deployment.bootstrap, deployment.config["sink"][leaf])
    assert worker.tally.consumed == len(source)
    assert worker.lines("shadow_mode")
