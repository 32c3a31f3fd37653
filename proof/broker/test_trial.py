"""`streamdedup try` on a real broker: it reports, and leaves no trace; more in tests/commands/test_trial.py."""

import asyncio
from pathlib import Path

import pytest

from streamdedup.commands.trial import Trial, tried
from streamdedup.events import Verdict
from streamdedup.settings import load
from tests.broker.base import Broker
from tests.broker.topics import committed, read_all
from tests.deployment import Deployment, keyed


@pytest.fixture
def asked(broker: Broker, tmp_path: Path) -> Deployment:
    """Two partitions."""
    return Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()


def trial(deployment: Deployment) -> Trial:
    """What is found."""
    return asyncio.run(tried(load(deployment.write_config()), 10_000))


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


def test_no_trace_is_left(asked: Deployment) -> None:
    """No offset is committed, nothing is written, and a worker may run all the while."""
    asked.feed(keyed(range(100), 2))
    assert trial(asked).events == 100
    assert not committed(asked.bootstrap, asked.group, asked.source)
    assert not read_all(asked.bootstrap, asked.sink)
